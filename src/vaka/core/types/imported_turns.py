"""``ImportedTurns``: the messages of a conversation as entries of a log."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from vaka.core.types import progress
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Body
from vaka.core.types.ids import AgentPath, CallId, EventScope, MessageId, TurnId
from vaka.core.types.message import (
    AssistantMessage,
    Content,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    text_of,
)
from vaka.core.types.state import call_id

LogEntry: TypeAlias = tuple[float, EventScope, Body]
"""The Unix time of an entry in seconds (0: now), its scope and its body."""


class ImportedTurns:
    """Makes the entries of a log from messages: one turn for each run of user messages and what answers it."""

    def __init__(self, agent: str, new_id: Callable[[str], str], calls: int = 0, failed: Collection[str] = ()) -> None:
        """``calls`` is the number of calls that the log has already, ``failed`` the ids of results that are errors."""
        self.entries: list[LogEntry] = []
        self._agent = agent
        self._new_id = new_id
        self._calls = calls
        self._failed = frozenset(failed)
        self._path: AgentPath = ()
        self._turn: TurnId | None = None
        self._step = 0
        self._time = 0.0
        self._text = ""
        self._message: MessageId | None = None
        self._open: dict[str, CallId] = {}

    def add_message(
        self, message: Message, *, id: str = "", time: float = 0, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Add the next message of a conversation.

        Raises ``InvalidInput`` for a result whose call is not open.

        Args:
            message: The message; the results of a call directly follow it.
            id: The key of an input or the id of an answer; default: a new one.
            time: When it was said, in Unix seconds; default: as the message before.
            metadata: Data of the client about an input or an answer.
        """
        self._time = time or self._time
        match message:
            case UserMessage(content=content):
                self.end_turn()
                self._begin_turn(content, id, metadata)
            case AssistantMessage(content=content, calls=calls):
                self._begin_step(content, id, metadata)
                for call in calls:
                    self._add_call(call.id, call.name, call.arguments, call.raw)
            case ToolMessage(results=results):
                for result in results:
                    self._add_result(result.call, result.content, failed=result.failed)

    @property
    def calls(self) -> int:
        """The number of calls of the log."""
        return self._calls

    @property
    def open_calls(self) -> Mapping[str, CallId]:
        """The ids in the log of the calls that have no result yet, by those that were given."""
        return self._open

    def end_turn(self) -> None:
        """End the turn; calls without a result get a result that says so."""
        if self._turn is None:
            return
        self._end_step()
        self._write(progress.TurnCompleted(text=self._text))
        self._turn, self._text = None, ""

    def _begin_turn(self, content: Content = (), key: str = "", metadata: Mapping[str, Any] | None = None) -> None:
        self._turn, self._step = TurnId(self._new_id("trn")), 0
        keys: tuple[str, ...] = ()
        if content:
            keys = (key or self._new_id("inp"),)
            added = InputAdded(key=keys[0], content=content, source="import", metadata=dict(metadata or {}))
            self.entries.append((self._time, EventScope(), added))
        self._write(progress.TurnStarted(agent=self._agent, inputs=keys))

    def _begin_step(self, content: Content, id: str = "", metadata: Mapping[str, Any] | None = None) -> None:
        if self._turn is None:
            self._begin_turn()
        self._end_step()
        self._step += 1
        self._message, self._text = MessageId(id or self._new_id("msg")), text_of(content) or self._text
        self._write(progress.StepStarted(agent=self._agent, number=self._step, model=progress.GIVEN_CALLS))
        completed = progress.MessageCompleted(message_id=self._message, content=content, metadata=dict(metadata or {}))
        self._write(completed)

    def _end_step(self) -> None:
        if self._message is None:
            return
        for call in list(self._open.values()):
            content = (Text(text="The imported conversation has no result of this call."),)
            result = ToolResult(call=call, content=content, failed=True, reason="sealed")
            self._write(progress.ToolFailed(result=result))
        self._open.clear()
        self._write(progress.StepCompleted(number=self._step))
        self._message = None

    def _add_call(self, given_id: str, name: str, arguments: dict[str, Any], raw: str) -> None:
        if self._message is None or (self._open and given_id in self._open):
            self._begin_step(())
        self._calls += 1
        id = self._open[given_id] = call_id(self._path, self._calls)
        call = ToolCall(id=id, name=name, arguments=arguments, raw=raw, provider_id=given_id)
        assert self._message is not None  # noqa: S101  # ``_begin_step`` has set it
        self._write(progress.ToolCalled(call=call, message_id=self._message))

    def _add_result(self, given_id: str, content: Content, *, failed: bool = False) -> None:
        call = self._open.pop(given_id, None)
        if call is None:
            raise InvalidInput(f"the tool result {given_id!r} has no call before it, or is the second one")
        failed = failed or given_id in self._failed
        result = ToolResult(call=call, content=content, failed=failed, reason="error" if failed else "")
        self._write(progress.ToolFailed(result=result) if failed else progress.ToolCompleted(result=result))
        if not self._open:
            self._end_step()

    def _write(self, body: Body) -> None:
        assert self._turn is not None  # noqa: S101  # the callers have begun a turn
        self.entries.append((self._time, EventScope(self._turn, self._step, self._path), body))
