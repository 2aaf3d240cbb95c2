"""Events of a session as GenX ``AgentEvent``: what ``next()`` of a GenX agent returns.

``AgentEventProjection`` folds the events of one session, durable and live, into agent events. It writes nothing and
forgets each turn at its end.
"""

import base64
from collections.abc import Callable, Collection
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self, TypeAlias

import msgspec

from vaka.core.types import progress
from vaka.core.types.control import SessionClosed, SessionOpened, SessionReverted, StateChanged
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath, CallId, MessageId, SessionId
from vaka.core.types.message import Audio, Content, Document, Image, ToolCall, ToolResult
from vaka.core.types.monitor import OPEN_OUTCOMES, SCRIPT_END, ScriptAnswered
from vaka.genx.demux import EndKind, RoundEnd, Routed, StreamKey, StreamPiece
from vaka.views.message_blocks import MessageBlocks, kind_of

INVALID_TOOL_CALL = "agent: invalid tool call"
FINISHED_KEY = "$finished"
"""The end of the key of the state value of an agent that has called a quit tool."""
ROUTER_KEY = "$router"
"""The key of the state value of a root agent that is a router: set while one of its agents waits for input."""


class AgentEventType(StrEnum):
    """The type of an agent event; ``ordinal`` is its number in GenX."""

    CHUNK = "chunk"
    EOF = "eof"
    CLOSED = "closed"
    TOOL_START = "tool_start"
    TOOL_DONE = "tool_done"
    TOOL_ERROR = "tool_error"
    INTERRUPTED = "interrupted"

    @property
    def ordinal(self) -> int:
        return _ORDINALS.index(self)


_ORDINALS = tuple(AgentEventType)
_ROUND_ENDS: dict[AgentEventType, EndKind] = {
    AgentEventType.EOF: "eof",
    AgentEventType.CLOSED: "closed",
    AgentEventType.INTERRUPTED: "interrupted",
}
_TOOL_EVENTS = frozenset({AgentEventType.TOOL_START, AgentEventType.TOOL_DONE, AgentEventType.TOOL_ERROR})


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a media type: the part of a chunk or of an input that is not text."""

    mime_type: str
    data: bytes


class FuncCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The name of a tool, and its arguments as JSON text."""

    name: str = ""
    arguments: str = ""


class GenxToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as GenX writes it."""

    id: str
    func_call: FuncCall


class GenxToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call; ``id`` is the id of the call."""

    id: str
    result: str = ""


class StreamCtrl(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stream that a chunk belongs to, and whether the chunk begins or ends it."""

    stream_id: str = ""
    label: str = ""
    begin_of_stream: bool = False
    end_of_stream: bool = False
    timestamp: int = 0
    """Milliseconds since 1970."""


class MessageChunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of output. ``part`` is text or a ``Blob``; the chunk that ends a stream of text has the part ``""``."""

    role: Literal["user", "model", "tool"]
    name: str = ""
    part: str | Blob | None = None
    tool_call: GenxToolCall | None = None
    ctrl: StreamCtrl | None = None


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A report of an agent. ``agent_def`` names its definition, ``agent_state_id`` the agent itself."""

    type: AgentEventType
    phase: str
    agent_def: str
    agent_state_id: str
    chunk: MessageChunk | None = None
    tool_call: GenxToolCall | None = None
    tool_result: GenxToolResult | None = None
    tool_error: str = ""

    @property
    def is_terminal(self) -> bool:
        """Whether the event ends the agent (``closed``) or its round (``interrupted``)."""
        return self.type in (AgentEventType.CLOSED, AgentEventType.INTERRUPTED)

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str | dict[str, Any]) -> Self:
        """Return the event of its JSON form; ``type`` may be the ordinal. Raises ``InvalidInput``."""
        try:
            raw = data if isinstance(data, dict) else msgspec.json.decode(data, type=dict[str, Any])
            kind = raw.get("type")
            if isinstance(kind, int) and 0 <= kind < len(_ORDINALS):
                raw = {**raw, "type": _ORDINALS[kind].value}
            event = msgspec.convert(raw, cls)
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"agent event cannot be decoded: {error}") from error
        if event.type in _TOOL_EVENTS and (event.tool_call is None or not event.tool_call.func_call.name):
            raise InvalidInput(f"{INVALID_TOOL_CALL}: {event.type} needs a tool_call with an id and a name")
        if event.type == AgentEventType.CHUNK and event.chunk is None:
            raise InvalidInput("agent event cannot be decoded: an event of type chunk needs a chunk")
        return event


class RoundFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A round that ended without an answer: ``next()`` raises it as an error."""

    code: str
    message: str
    agent_def: str
    agent_state_id: str


Projected: TypeAlias = list[AgentEvent | RoundFailure]


def route_agent_event(event: AgentEvent | RoundFailure) -> list[Routed]:
    """Return the piece of a stream, or the end of the round, that an agent event is."""
    ids: dict[str, Any] = {"agent_def": event.agent_def, "agent_state_id": event.agent_state_id}
    if isinstance(event, RoundFailure):
        return [RoundEnd(kind="error", code=event.code, message=event.message, **ids)]
    if event.type in _ROUND_ENDS:
        return [RoundEnd(kind=_ROUND_ENDS[event.type], **ids)]
    if event.chunk is not None:
        return [_piece_of_chunk(event, event.chunk)]
    return [_piece_of_call(event, event.tool_call)] if event.tool_call is not None else []


def _piece_of_call(event: AgentEvent, call: GenxToolCall) -> StreamPiece:
    data = {"event": event.type.value, "call": msgspec.to_builtins(call)}
    if event.tool_result is not None:
        data["result"] = event.tool_result.result
    key = StreamKey(event.agent_state_id, call.id, "tool")
    is_start = event.type == AgentEventType.TOOL_START
    return StreamPiece(key=key, agent_def=event.agent_def, data=data, begins=is_start, ends=not is_start)


def _piece_of_chunk(event: AgentEvent, chunk: MessageChunk) -> StreamPiece:
    part, ctrl = chunk.part, chunk.ctrl or StreamCtrl()
    kind = part.mime_type.partition("/")[0] if isinstance(part, Blob) else "text"
    key = StreamKey(event.agent_state_id, ctrl.stream_id, kind)
    data = part.data if isinstance(part, Blob) else part or ""
    begins, ends = ctrl.begin_of_stream, ctrl.end_of_stream
    return StreamPiece(key=key, agent_def=event.agent_def, data=data, begins=begins, ends=ends)


def state_id_of(session: str, path: AgentPath) -> str:
    """Return the state id of an agent; ``path`` is the path of the child that began its conversation."""
    return "/agent-".join((session, *path))


def path_of_state_id(state_id: str) -> tuple[str, AgentPath]:
    """Return the session and the path that a state id names."""
    session, *path = state_id.split("/agent-")
    return session, tuple(path)


def to_genx_call(call: ToolCall) -> GenxToolCall:
    arguments = call.raw or msgspec.json.encode(call.arguments).decode()
    return GenxToolCall(id=call.id, func_call=FuncCall(name=call.name, arguments=arguments))


def timestamp_of(ts: str) -> int:
    """Return the time of an event in milliseconds since 1970; 0 without one."""
    return round(datetime.fromisoformat(ts).timestamp() * 1000) if ts else 0


class _Agent(msgspec.Struct):
    """One agent of the session, while its turn runs."""

    name: str
    state_id: str
    is_router: bool
    ran_child: AgentPath | None = None
    """The child that it has run last in this turn."""


class AgentEventProjection:
    """Folds the events of one session into agent events.

    An event has the phase of its agent: ``thinking`` for chunks, ``tool`` or ``agent`` for the events of a call,
    ``finished`` for ``closed``, otherwise ``""``. A router has the phases ``matching`` and ``executing``, and shows
    only its own end: the events of its agents have their own ids.
    """

    def __init__(
        self,
        session: SessionId,
        agent: str = "",
        *,
        routers: Collection[str] = (),
        agent_tools: Collection[str] = (),
    ) -> None:
        """Begin a projection.

        Args:
            session: The session, which is the state id of the root agent.
            agent: The name of the root agent, used until an event names it.
            routers: The names of the agents that are routers.
            agent_tools: The names of tools that are agents.
        """
        self.session = session
        self._routers, self._agent_tools = frozenset(routers), frozenset(agent_tools)
        self._starts: dict[AgentPath, AgentPath] = {}
        self._finished: dict[str, int] = {}
        """The seq at which each agent that has called a quit tool did so, by its state id."""
        self._router_waits: bool | None = None
        """Whether an agent of the root router waits for input; ``None`` when no event has said so."""
        self._agents: dict[AgentPath, _Agent] = {(): _Agent(agent, session, agent in self._routers)}
        self._calls: dict[CallId, ToolCall] = {}
        self._child_calls: set[CallId] = set()
        """The open calls that have started an agent."""
        self._messages: dict[MessageId, MessageBlocks] = {}
        """The text of the messages that are open."""

    def feed(self, event: Event) -> Projected:
        """Take the next event of the session, and return what it means to a GenX caller; mostly nothing or one."""
        handler = _HANDLERS.get(type(event.data))
        return handler(self, event, event.data) if handler is not None else []

    def remember_child(self, event: Event) -> None:
        """Take an earlier ``subagent.started``: a child that continues its conversation has the same state id."""
        body = event.data
        if isinstance(body, progress.SubagentStarted) and body.after not in ("", body.child):
            earlier = tuple(body.after.split("/")) if "/" in body.after else (*event.path, body.after)
            self._starts[(*event.path, body.child)] = self._starts.get(earlier, earlier)

    def route(self, event: Event) -> list[Routed]:
        """Take the next event of the session, and return what it means to a ``Demultiplexer``."""
        return [routed for projected in self.feed(event) for routed in route_agent_event(projected)]

    @property
    def is_finished(self) -> bool:
        """Whether the root agent has called a quit tool, or is a script that has ended."""
        return self.session in self._finished

    def event_of_root(self, kind: AgentEventType, phase: str = "") -> AgentEvent:
        root = self._agents[()]
        return AgentEvent(type=kind, phase=phase, agent_def=root.name, agent_state_id=root.state_id)

    def agent_opened(self, event: Event, body: SessionOpened) -> Projected:
        if body.agent:
            self._name_agent((), body.agent)
        return []

    def agent_began(
        self, event: Event, body: "progress.TurnStarted | progress.TurnResumed | progress.StepStarted"
    ) -> Projected:
        self._name_agent(event.path, body.agent)
        return []

    def subagent_started(self, event: Event, body: progress.SubagentStarted) -> Projected:
        path = (*event.path, body.child)
        self.remember_child(event)
        self._name_agent(path, body.agent)
        self._agent_at(event.path).ran_child = path
        if body.content:  # a script that is a tool has none
            self._child_calls.add(body.call)
        return []

    def subagent_completed(self, event: Event, body: progress.SubagentCompleted) -> Projected:
        child = (*event.path, body.child)
        self._agents = {path: agent for path, agent in self._agents.items() if path[: len(child)] != child}
        return []

    def text_arrived(self, event: Event, body: "progress.TextDelta | progress.MessageSnapshot") -> Projected:
        if kind_of(body) != "text":
            return []
        blocks = self._messages.setdefault(body.message_id, MessageBlocks())
        is_first, text = blocks.is_empty, "".join(piece.text for piece in blocks.add_delta(body))
        return self._text(event, body.message_id, text, begin=is_first) if text else []

    def message_completed(self, event: Event, body: progress.MessageCompleted) -> Projected:
        blocks = self._messages.pop(body.message_id, MessageBlocks())
        rest, is_first = blocks.rest_of(body.content), blocks.is_empty
        events = self._text(event, body.message_id, rest, begin=is_first, end=True) if rest or not is_first else []
        return [*events, *self._media(event, body.message_id, body.content)]

    def message_discarded(self, event: Event, body: progress.MessageDiscarded) -> Projected:
        blocks = self._messages.pop(body.message_id, MessageBlocks())
        return [] if blocks.is_empty else self._text(event, body.message_id, "", end=True)

    def tool_called(self, event: Event, body: progress.ToolCalled) -> Projected:
        self._calls[body.call.id] = body.call
        return []

    def tool_started(self, event: Event, body: progress.ToolStarted) -> Projected:
        self._calls[body.call.id] = body.call
        return self._tool_event(event, AgentEventType.TOOL_START, body.call)

    def tool_ended(self, event: Event, body: "progress.ToolCompleted | progress.ToolFailed") -> Projected:
        result = body.result
        call = self._calls.pop(result.call, None) or ToolCall(id=result.call, name="")
        kind = AgentEventType.TOOL_ERROR if isinstance(body, progress.ToolFailed) else AgentEventType.TOOL_DONE
        events = self._tool_event(event, kind, call, result)
        self._child_calls.discard(result.call)
        return events

    def value_changed(self, event: Event, body: StateChanged) -> Projected:
        if body.key == ROUTER_KEY:
            self._router_waits = body.value is not None
        key, _, name = body.key.rpartition(":")
        if name != FINISHED_KEY:
            return []
        start = key.removeprefix("$agent/").rstrip("/")
        state_id = state_id_of(self.session, tuple(start.split("/")) if start else ())
        if body.value is None:
            self._finished.pop(state_id, None)
        else:
            self._finished[state_id] = event.seq
        return []

    def script_answered(self, event: Event, body: ScriptAnswered) -> Projected:
        if body.name == SCRIPT_END and body.answer not in OPEN_OUTCOMES:
            self._finished[self._agent_at(event.path).state_id] = event.seq
        return []

    def session_reverted(self, event: Event, body: SessionReverted) -> Projected:
        self._finished = {agent: seq for agent, seq in self._finished.items() if seq <= body.to}
        self._router_waits = None
        return []

    def session_closed(self, event: Event, body: SessionClosed) -> Projected:
        return [self.event_of_root(AgentEventType.CLOSED, "finished")]

    def turn_ended(self, event: Event, body: Any) -> Projected:
        if event.path:
            return []
        root = self._agents[()]
        ended = self._ending_of(root, body)
        self._agents = {(): _Agent(root.name, root.state_id, root.is_router)}
        self._calls = {}
        self._child_calls = set()
        self._messages = {}
        return [ended]

    def _ending_of(self, root: _Agent, body: Any) -> "AgentEvent | RoundFailure":
        if isinstance(body, progress.TurnInterrupted):
            return self.event_of_root(AgentEventType.INTERRUPTED)
        if isinstance(body, progress.TurnCompleted) and body.stop == "end":
            if self.is_finished:
                return self.event_of_root(AgentEventType.CLOSED, "finished")
            return self.event_of_root(AgentEventType.EOF, "executing" if self._has_active_child(root) else "")
        code = body.code if isinstance(body, progress.TurnFailed) else "cancelled"
        message = getattr(body, "message", "") or getattr(body, "note", "") or "the turn was cancelled"
        if isinstance(body, progress.TurnCompleted):
            code, message = "limit", f"the turn ended before it was complete, at the limit {body.limit!r}"
        return RoundFailure(code=code, message=message, agent_def=root.name, agent_state_id=root.state_id)

    def _has_active_child(self, router: _Agent) -> bool:
        """Return whether the agent that a router has run last waits for the next input."""
        if not router.is_router:
            return False
        if self._router_waits is not None:
            return self._router_waits
        if router.ran_child is None:
            return False
        return self._state_id(router.ran_child) not in self._finished

    def _name_agent(self, path: AgentPath, name: str) -> None:
        known = self._agents.get(path)
        if known is None or known.name != name:
            self._agents[path] = _Agent(name, self._state_id(path), name in self._routers)

    def _agent_at(self, path: AgentPath) -> _Agent:
        if path not in self._agents:
            self._name_agent(path, "")
        return self._agents[path]

    def _state_id(self, path: AgentPath) -> str:
        if not path:
            return self.session
        return state_id_of(self.session, self._starts.get(path, path))

    def _text(
        self, event: Event, message: MessageId, text: str, *, begin: bool = False, end: bool = False
    ) -> Projected:
        ctrl = StreamCtrl(stream_id=message, begin_of_stream=begin, end_of_stream=end, timestamp=timestamp_of(event.ts))
        return self._chunk(event, text, ctrl)

    def _media(self, event: Event, message: MessageId, content: Content) -> Projected:
        events: Projected = []
        for at, part in enumerate(content):
            if isinstance(part, Image | Audio | Document) and part.data:
                ctrl = StreamCtrl(
                    stream_id=f"{message}/{at}",
                    begin_of_stream=True,
                    end_of_stream=True,
                    timestamp=timestamp_of(event.ts),
                )
                blob = Blob(mime_type=part.media_type, data=base64.b64decode(part.data))
                events += self._chunk(event, blob, ctrl)
        return events

    def _chunk(self, event: Event, part: "str | Blob", ctrl: StreamCtrl) -> Projected:
        agent = self._agent_at(event.path)
        if agent.is_router:
            return []
        chunk = MessageChunk(role="model", name=agent.name, part=part, ctrl=ctrl)
        return [self._event(agent, AgentEventType.CHUNK, "thinking", chunk=chunk)]

    def _tool_event(
        self, event: Event, kind: AgentEventType, call: ToolCall, result: ToolResult | None = None
    ) -> Projected:
        agent = self._agent_at(event.path)
        if agent.is_router:
            return []
        phase = "agent" if call.name in self._agent_tools or call.id in self._child_calls else "tool"
        text = result.text if result is not None else ""
        details: dict[str, Any] = {}
        if kind == AgentEventType.TOOL_ERROR:
            details["tool_error"] = text or "the call failed"
        if result is not None:
            details["tool_result"] = GenxToolResult(id=result.call, result=text)
        return [self._event(agent, kind, phase, tool_call=to_genx_call(call), **details)]

    def _event(self, agent: _Agent, kind: AgentEventType, phase: str, **details: Any) -> AgentEvent:
        return AgentEvent(type=kind, phase=phase, agent_def=agent.name, agent_state_id=agent.state_id, **details)


_HANDLERS: dict[type[Body], Callable[..., Projected]] = {
    SessionOpened: AgentEventProjection.agent_opened,
    SessionClosed: AgentEventProjection.session_closed,
    SessionReverted: AgentEventProjection.session_reverted,
    StateChanged: AgentEventProjection.value_changed,
    ScriptAnswered: AgentEventProjection.script_answered,
    progress.TurnStarted: AgentEventProjection.agent_began,
    progress.TurnResumed: AgentEventProjection.agent_began,
    progress.StepStarted: AgentEventProjection.agent_began,
    progress.SubagentStarted: AgentEventProjection.subagent_started,
    progress.SubagentCompleted: AgentEventProjection.subagent_completed,
    progress.TextDelta: AgentEventProjection.text_arrived,
    progress.MessageSnapshot: AgentEventProjection.text_arrived,
    progress.MessageCompleted: AgentEventProjection.message_completed,
    progress.MessageDiscarded: AgentEventProjection.message_discarded,
    progress.ToolCalled: AgentEventProjection.tool_called,
    progress.ToolStarted: AgentEventProjection.tool_started,
    progress.ToolCompleted: AgentEventProjection.tool_ended,
    progress.ToolFailed: AgentEventProjection.tool_ended,
    progress.TurnCompleted: AgentEventProjection.turn_ended,
    progress.TurnFailed: AgentEventProjection.turn_ended,
    progress.TurnCancelled: AgentEventProjection.turn_ended,
    progress.TurnInterrupted: AgentEventProjection.turn_ended,
}
