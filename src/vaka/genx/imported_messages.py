"""Messages of a GenX state document as entries of a log: turns of the agent, and runs of a child of a router."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from vaka.core.types import progress
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, EventScope, MessageId, TurnId
from vaka.core.types.imported_turns import ImportedTurns, LogEntry
from vaka.core.types.message import Content, Text, ToolCall, ToolResult
from vaka.core.types.state import call_id, child_name
from vaka.genx.state_document import GenxMessage


class GenxTurns(ImportedTurns):
    """Makes the entries of a log from messages of a state document."""

    def add(self, message: GenxMessage) -> None:
        """Add the next message. Raises ``InvalidInput`` for a result whose call is not open."""
        self._time = message.unix_epoch or self._time
        if message.role == "user":
            self.end_turn()
            self._begin_turn(_content_of(message.content))
        elif message.role == "tool":
            self._add_result(message.tool_result_id, (Text(text=message.content),))
        elif message.tool_call_id:
            arguments, raw = _parse_arguments(message.tool_call_args)
            self._add_call(message.tool_call_id, message.tool_call_name, arguments, raw)
        else:
            self._begin_step(_content_of(message.content))


class ImportedChild(GenxTurns):
    """Makes the entries of a child agent of a router from messages: a run for each run of user messages.

    All runs are in one turn of the router, which has no input and no answer. Each continues the conversation of the
    one before.
    """

    def __init__(self, router: str, agent: str, new_id: Callable[[str], str], calls: int) -> None:
        """``calls`` is the number of calls of the router that the log has already."""
        super().__init__(agent, new_id)
        self._router, self._router_calls = router, calls
        self._router_turn = TurnId(new_id("trn"))
        self._call: ToolCall | None = None
        self.children: list[str] = []
        """The names of the runs, in order."""

    def import_messages(self, messages: Iterable[GenxMessage]) -> list[LogEntry]:
        """Return the entries of the turn."""
        self._write_for_router(progress.TurnStarted(agent=self._router, inputs=()))
        for message in messages:
            self.add(message)
        self.end_turn()
        self._write_for_router(progress.TurnCompleted(text=""))
        return self.entries

    def end_turn(self) -> None:
        if self._turn is None or self._call is None:
            return
        self._end_step()
        completed = progress.SubagentCompleted(
            call=self._call.id, agent=self._agent, child=self.children[-1], text=self._text, kept=True
        )
        self._write_for_router(completed)
        self._write_for_router(progress.ToolCompleted(result=ToolResult(call=self._call.id)))
        self._turn = None
        self._text = ""
        self._call = None

    def _begin_turn(self, content: Content = (), key: str = "", metadata: Mapping[str, Any] | None = None) -> None:
        self._router_calls += 1
        self._turn = self._router_turn
        self._step = 0
        self._calls = 0
        self._call = ToolCall(id=call_id((), self._router_calls), name=self._agent)
        child, after = child_name(self._router_calls), self.children[-1] if self.children else ""
        self.children.append(child)
        self._path = (child,)
        self._write_for_router(progress.ToolCalled(call=self._call, message_id=MessageId("")))
        started = progress.SubagentStarted(
            call=self._call.id, agent=self._agent, child=child, content=content, after=after
        )
        self._write_for_router(started)

    def _write_for_router(self, body: Body) -> None:
        self.entries.append((self._time, EventScope(self._router_turn), body))


def _content_of(text: str) -> Content:
    return (Text(text=text),) if text else ()


def _parse_arguments(text: str) -> tuple[dict[str, JSON], str]:
    """Return the arguments of a call, and their text if it is not a JSON object."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any]), ""
    except msgspec.MsgspecError:
        return {}, text
