"""The GenX face of an agent: ``input`` and ``next`` on top of a session."""

import asyncio
import base64
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from vaka.agents.react import Agent, AgentTool, ToolLike, tool_name_of
from vaka.core.loop.blobs import restore_content
from vaka.core.loop.script_journal import restore_result
from vaka.core.ports.values import BlobStore
from vaka.core.types.errors import Closed, InvalidInput, TurnError, VakaError
from vaka.core.types.event import Event
from vaka.core.types.history import format_history
from vaka.core.types.message import Audio, Content, Document, Image, Part, Text
from vaka.core.types.progress import MessageCompleted, ToolCompleted, ToolFailed
from vaka.genx.agent_events import AgentEvent, AgentEventProjection, AgentEventType, Blob, RoundFailure
from vaka.genx.match.router import MatchAgent
from vaka.genx.services import EventBatches, GenxSession, StoredTurn, work_of
from vaka.genx.state import AgentState, find_agents, has_finished, read_conversation, revert_round

if TYPE_CHECKING:
    from vaka.genx.genx_runtime import GenxRuntime

CLOSED_MESSAGE = "agent: closed"
DESTROYED_MESSAGE = f"{CLOSED_MESSAGE}; its state was destroyed"
Contents: TypeAlias = str | Blob | Part | Sequence[str | Blob | Part]
"""The parts of an input: text, bytes of a media type, or parts of ``vaka.content``."""


def to_content(contents: Contents) -> Content:
    """Return the parts of an input as content. Raises ``InvalidInput`` for something that is not a part."""
    items = [contents] if isinstance(contents, str | Blob | Part) else list(contents)
    return tuple([_to_part(item) for item in items])


def _to_part(item: object) -> Part:
    if isinstance(item, str):
        return Text(text=item)
    if isinstance(item, Part):
        return item
    if not isinstance(item, Blob):
        raise InvalidInput(f"an input is made of texts, blobs and parts of vaka.content, not {type(item).__name__}")
    kinds: dict[str, type[Image | Audio]] = {"image": Image, "audio": Audio}
    kind = kinds.get(item.mime_type.partition("/")[0], Document)
    return kind(media_type=item.mime_type, data=base64.b64encode(item.data).decode())


def _tools_that_are_agents(agents: Iterable[Agent[Any, Any]]) -> set[str]:
    """Return the names of tools that call an agent: one tool for each agent, and the tools that find it by name."""
    names = {"Task", "create_agent"}
    for agent in agents:
        agent_tools: list[ToolLike] = [tool for tool in agent.tools if isinstance(tool, Agent | AgentTool)]
        names.update(map(tool_name_of, agent_tools))
    return names


class GenxAgent:
    """An agent as GenX programs use it: give it an ``input``, and ask for the ``next`` event until ``eof``.

    ``next`` blocks until something happens: before the first ``input``, after ``eof`` and after a failed round until
    the next ``input``. After ``closed`` each ``next`` returns that same event, and after ``interrupted`` until a new
    ``input``. When no input can follow, because the state was destroyed or the runtime closed, ``next`` raises
    ``Closed``. It holds no conversation: that is in the log of the session, whose id is the ``state_id``.
    """

    def __init__(
        self,
        runtime: "GenxRuntime",
        session: GenxSession,
        definition: Any,
        state: AgentState,
        destroyed: asyncio.Event,
    ) -> None:
        """Use ``GenxRuntime.new_agent`` or ``restore_agent``, which read what the log has."""
        self._genx = runtime
        self._runtime = runtime.runtime
        self._session = session
        self._definition = definition
        self._state = state
        self._destroyed = destroyed
        agents = find_agents(session.agent).values()
        self._routers = {agent.name for agent in agents if isinstance(agent, MatchAgent)}
        self._agent_tools = _tools_that_are_agents(agents)
        self._projection = self._make_projection()
        self._events: deque[AgentEvent | RoundFailure] = deque()
        self._round: tuple[EventBatches, StoredTurn] | None = None
        self._has_unfinished_turn = False
        self._last_seq = 0
        """The last stored event that the projection has read."""
        self._reading: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] | None = None
        self._last: AgentEvent | None = None
        """The terminal event that every ``next`` returns until the next input."""
        self._closed_event: AgentEvent | None = None
        """Set by ``close``: the event that every ``next`` returns from then on."""
        self._error: BaseException | None = None
        self._input_lock = asyncio.Lock()

    @property
    def definition(self) -> Any:
        """The definition of the agent, or the ``vaka.Agent`` that was passed in place of one."""
        return self._definition

    @property
    def def_(self) -> Any:
        """The same as ``definition``."""
        return self._definition

    @property
    def state(self) -> AgentState:
        """The state of the agent: its conversation and values."""
        return self._state

    @property
    def state_id(self) -> str:
        """The id of its session, by which ``GenxRuntime.restore_agent`` finds it again."""
        return self._session.id

    async def restore(self) -> None:
        """Read from the log whether the agent is finished and has an unfinished turn, which ``next`` continues."""
        view = await read_conversation(self._runtime, self._session.id, ())
        if view is None:
            return
        self._projection = self._make_projection()
        for event in view.window.events:
            self._projection.remember_child(event)
        has_work = bool(view.opened.state.turn or view.opened.state.inputs)
        if has_finished(view) and not has_work:
            self._last = self._projection.event_of_root(AgentEventType.CLOSED, "finished")
        elif has_work:
            self._has_unfinished_turn = True
            for event in await self._session.last_turn():
                self._projection.feed(event)
                self._last_seq = event.seq

    async def input(self, contents: Contents) -> None:
        """Give the agent an input; the round begins at once. A round that runs is interrupted first.

        Raises ``Closed`` for an agent that is closed or has finished, and ``InvalidInput`` for an empty input.
        """
        content = to_content(contents)
        async with self._input_lock:
            self._require_open()
            if self._round is not None:
                await self._end_round("a new input")
                self._require_open()
            await self._require_state()
            reader, collector = self._round = await self._open_turn(content)
            await reader.__aenter__()
            self._forget_interrupt()
            self._wake()
            while not collector.turn and not collector.ended:  # an interrupt of a turn that has not begun does nothing
                await self._advance()

    async def interrupt(self) -> None:
        """Stop the running round; ``next`` then returns ``interrupted``. Without a round nothing happens.

        The round of an ``input`` that has not returned yet is stopped when it has begun.
        """
        async with self._input_lock:
            if self._round is not None or self._has_unfinished_turn:
                await self._session.interrupt()

    async def next(self) -> AgentEvent:
        """Return the next event. Raises ``TurnError`` for a round without an answer; a new input may follow it.

        Raises ``Suspended`` when only the decision of a person can continue the round; the ``next`` after the decision
        continues it. Raises ``Closed`` when there can be no more input: the state was destroyed, or the runtime closed.
        """
        while True:
            if self._error is not None:
                raise self._error
            if self._closed_event is not None:
                return self._closed_event
            if self._events:
                return self._deliver(self._events.popleft())
            if self._last is not None:
                return self._last
            if self._round is None and not self._has_unfinished_turn:
                await self._wait_for_input()
            else:
                await self._advance()

    async def __aiter__(self) -> AsyncGenerator[AgentEvent]:
        """Yield events up to a terminal one, which is the last."""
        while True:
            event = await self.next()
            yield event
            if event.is_terminal:
                return

    async def run_until_eof(self, contents: Contents | None = None) -> list[AgentEvent]:
        """Return the events of a round, up to ``eof`` or a terminal event; ``contents`` is its input, if given."""
        if contents is not None:
            await self.input(contents)
        events = [await self.next()]
        while events[-1].type != AgentEventType.EOF and not events[-1].is_terminal:
            events.append(await self.next())
        return events

    async def revert(self) -> None:
        """Take back the last round, and interrupt it if it runs. Without a round nothing happens."""
        async with self._input_lock:
            self._require_open()
            if self._round is not None:
                await self._end_round("reverted")
            await revert_round(self._runtime, self._session)
            self._has_unfinished_turn = False
            await self.restore()

    async def format_history(self) -> str:
        """Return the conversation as text, ``[role]: content``, one line for each message."""
        return format_history(await self._session.messages())

    async def close(self, *, archive: bool = True) -> None:
        """Close the agent; a second call does nothing. A round that runs is interrupted.

        Its state stays and ``GenxRuntime.restore_agent`` restores it, unless ``archive`` is false: then it is deleted.
        """
        await self._close(None, archive=archive)

    async def close_with_error(self, error: BaseException) -> None:
        """Close the agent; every ``next`` raises ``error``."""
        await self._close(error, archive=True)

    async def _close(self, error: BaseException | None, *, archive: bool) -> None:
        if self._closed_event is not None:
            return
        self._closed_event = self._projection.event_of_root(AgentEventType.CLOSED, "finished")
        self._error = error
        self._wake()
        async with self._input_lock:
            if self._round is not None:
                await self._end_round("closed")
            if (reading := self._reading) is not None:
                reading.cancel()
                await asyncio.wait([reading])
        info = await self._runtime.store.sessions.find(self._session.id)
        if info is None:
            return
        if not archive:
            await self._genx.destroy_state(self._session.id, archive=False)
        elif not info.turn and not info.inputs:  # an unfinished turn stays as it is, to be continued
            await self._session.close(str(error or ""))

    async def _require_state(self) -> None:
        if not self._destroyed.is_set() and await self._runtime.store.sessions.find(self._session.id) is None:
            self._destroyed.set()  # by another process: a task that waits in next learns it here
        if self._destroyed.is_set():
            raise Closed(DESTROYED_MESSAGE)

    async def _open_turn(self, content: Content) -> tuple[EventBatches, StoredTurn]:
        """Store an input in place of an unfinished turn, which stays unfinished if this fails."""
        unfinished, self._has_unfinished_turn = self._has_unfinished_turn, False
        try:
            return await work_of(self._session).open_turn(content, "interrupt")
        except BaseException:
            self._has_unfinished_turn = unfinished
            self._wake()
            raise

    def _require_open(self) -> None:
        known = (self._closed_event, self._last, *self._events)
        if any(isinstance(event, AgentEvent) and event.type == AgentEventType.CLOSED for event in known):
            raise Closed(CLOSED_MESSAGE)

    def _make_projection(self) -> AgentEventProjection:
        return AgentEventProjection(
            self._session.id, self._session.agent.name, routers=self._routers, agent_tools=self._agent_tools
        )

    def _deliver(self, event: "AgentEvent | RoundFailure") -> AgentEvent:
        if isinstance(event, RoundFailure):
            raise TurnError(event.message, code=event.code)
        if event.is_terminal:
            self._last = event
        return event

    async def _wait_for_input(self) -> None:
        """Return after a change, such as an input. Raises ``Closed`` when there can be no input."""
        closed = self._runtime.hub.closed
        waited: list[asyncio.Future[Any]] = [self._next_change()]
        waited += [asyncio.create_task(end.wait()) for end in (closed, self._destroyed)]
        try:
            if not closed.is_set():  # the store of a closed runtime is closed, too
                await self._require_state()
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waited[1:]:
                task.cancel()
        if closed.is_set():
            raise Closed("the runtime is closed")
        if self._destroyed.is_set() and self._closed_event is None:
            raise Closed(DESTROYED_MESSAGE)

    async def _advance(self) -> None:
        """Read the next events of the round; several callers may wait for the same read."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        reading = self._reading
        await asyncio.wait([reading, self._next_change()], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            self._reading = None if self._reading is reading else self._reading
            reading.result()

    async def _read(self) -> None:
        """Read a batch of events, and end the round with its last one or with an error."""
        current = self._round or await self._open_unfinished_turn()
        if current is None:
            return
        reader, collector = current
        try:
            await self._show(await reader.next_batch())
        except BaseException as error:
            self._has_unfinished_turn = isinstance(error, Exception)
            await self._leave(current)
            raise
        if collector.ended:
            await self._leave(current)

    async def _open_unfinished_turn(self) -> tuple[EventBatches, StoredTurn] | None:
        # When this fails, the turn stays unfinished.
        reader, collector = await work_of(self._session).open_unfinished_turn()
        self._has_unfinished_turn = False
        if reader is None:  # another session handle or process has ended the turn
            await self._show([event for event in await self._session.last_turn() if event.seq > self._last_seq])
            return None
        await reader.__aenter__()
        self._round = (reader, collector)
        return self._round

    async def _show(self, events: Iterable[Event]) -> None:
        for event in events:
            self._events += self._projection.feed(await _restore_blobs(self._runtime.store.blobs, event))
            self._last_seq = max(self._last_seq, event.seq)

    async def _leave(self, current: tuple[EventBatches, StoredTurn]) -> None:
        if self._round is current:
            self._round = None
        await current[0].__aexit__()

    async def _end_round(self, note: str) -> None:
        """Interrupt the running round and read it to its end."""
        await self._session.interrupt(note)
        with suppress(VakaError):
            while self._round is not None:
                await self._advance()

    def _forget_interrupt(self) -> None:
        """Forget that an earlier round was interrupted: a new one begins."""
        self._last = None
        self._events = deque(
            event
            for event in self._events
            if isinstance(event, RoundFailure) or event.type != AgentEventType.INTERRUPTED
        )

    def _next_change(self) -> "asyncio.Future[None]":
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)


async def _restore_blobs(blobs: BlobStore, event: Event) -> Event:
    """Return an event with the content of its blobs, if it has content that a projection shows."""
    body = event.data
    if isinstance(body, MessageCompleted):
        content = await restore_content(blobs, body.content)
        if content is not body.content:
            return msgspec.structs.replace(event, data=msgspec.structs.replace(body, content=content))
    elif isinstance(body, ToolCompleted | ToolFailed):
        result = await restore_result(blobs, body.result)
        if result is not body.result:
            return msgspec.structs.replace(event, data=msgspec.structs.replace(body, result=result))
    return event
