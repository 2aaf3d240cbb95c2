"""What the index rows of a store say, as a pure function of the events."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from vaka.core.ports.store import Pending, SessionInfo
from vaka.core.ports.world import CHANGED_FILE
from vaka.core.types.content import Content, text_of
from vaka.core.types.control import (
    ApprovalExpired,
    ApprovalRequested,
    ApprovalResolved,
    InputAdded,
    InterruptRequested,
    QuestionAnswered,
    QuestionAsked,
    SessionClosed,
    SessionForked,
    SessionOpened,
    SessionReverted,
    StateChanged,
)
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import JSON, DecisionId, Digest, SessionId
from vaka.core.types.message import ToolResult
from vaka.core.types.monitor import ScriptAnswered
from vaka.core.types.progress import (
    MessageCompleted,
    StepStarted,
    SubagentCompleted,
    SubagentStarted,
    ToolCompleted,
    ToolFailed,
    ToolReturned,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnStarted,
)

TITLE = 80
_DIGEST = 64
_ENDS = frozenset({TurnCompleted, TurnFailed, TurnCancelled, TurnInterrupted, SessionReverted})
_CONTENT = frozenset(
    {InputAdded, TurnStarted, MessageCompleted, SubagentStarted, ToolReturned, ToolCompleted, ToolFailed}
)
_TOLD = frozenset({StepStarted, MessageCompleted})
_MARKED = _CONTENT | {
    StepStarted, ScriptAnswered, SubagentCompleted, InterruptRequested, ApprovalResolved, ApprovalExpired,
    QuestionAnswered, StateChanged,
}  # fmt: skip


def advance(info: SessionInfo, events: Sequence[Event]) -> SessionInfo:
    """Return the row of a session after ``events`` (sealed, at least one) were appended to its log."""
    row: SessionInfo | _Row = info
    for event in events:
        change = _CHANGES.get(type(event.data))
        if change is not None:
            if row is info:
                row = _Row(info)
            change(row, event, event.data)  # type: ignore[arg-type]  # a row of its own since the first change
    last = events[-1]
    return SessionInfo(
        id=info.id, head=last.seq, hash=last.hash, epoch=last.epoch, term=info.term, title=row.title, agent=row.agent,
        turn=row.turn, inputs=row.inputs, pending=row.pending, closed=row.closed,
        created=info.created or events[0].ts, updated=last.ts, origin=row.origin, live=info.live,
    )  # fmt: skip


class _Row:
    """The changing part of a row."""

    def __init__(self, info: SessionInfo) -> None:
        self.title, self.agent, self.turn, self.origin = info.title, info.agent, info.turn, info.origin
        self.inputs, self.pending, self.closed = info.inputs, info.pending, info.closed

    def said(self, event: Event, body: InputAdded) -> None:
        self.inputs += 1
        self.closed = False
        self.title = self.title or " ".join(text_of(body.content).split())[:TITLE]

    def begun(self, event: Event, body: TurnStarted) -> None:
        self.turn, self.agent, self.inputs = event.turn, body.agent, max(self.inputs - len(body.inputs), 0)

    def stepped(self, event: Event, body: StepStarted) -> None:
        self.inputs = max(self.inputs - len(body.inputs), 0)

    def ended(self, event: Event, body: Body) -> None:
        self.turn, self.pending = "", 0

    def asked(self, event: Event, body: Body) -> None:
        self.pending += 1

    def settled(self, event: Event, body: Body) -> None:
        self.pending = max(self.pending - 1, 0)

    def opened(self, event: Event, body: SessionOpened) -> None:
        self.agent = body.agent

    def forked(self, event: Event, body: SessionForked) -> None:
        self.origin = body.origin

    def reverted(self, event: Event, body: SessionReverted) -> None:
        if body.onward is not None:
            self.pending = 0  # its turn goes on, and what waits still waits
            return
        self.turn, self.inputs, self.pending, self.closed = "", 0, 0, False

    def closes(self, event: Event, body: SessionClosed) -> None:
        self.closed = True


_CHANGES: dict[type[Body], Callable[[_Row, Event, Any], None]] = {
    InputAdded: _Row.said,
    TurnStarted: _Row.begun,
    StepStarted: _Row.stepped,
    TurnCompleted: _Row.ended,
    TurnFailed: _Row.ended,
    TurnCancelled: _Row.ended,
    TurnInterrupted: _Row.ended,
    ApprovalRequested: _Row.asked,
    QuestionAsked: _Row.asked,
    ApprovalResolved: _Row.settled,
    ApprovalExpired: _Row.settled,
    QuestionAnswered: _Row.settled,
    SessionOpened: _Row.opened,
    SessionForked: _Row.forked,
    SessionReverted: _Row.reverted,
    SessionClosed: _Row.closes,
}


def asked(session: SessionId, events: Iterable[Event]) -> Iterator[Pending]:
    """Yield a row for each decision these events ask for."""
    for event in events:
        if event.data.channel != "control":
            continue
        if isinstance(event.data, ApprovalRequested):
            yield Pending(id=event.data.approval, session=session, seq=event.seq, event=event)
        elif isinstance(event.data, QuestionAsked):
            yield Pending(id=event.data.question, session=session, seq=event.seq, event=event)


def settled(events: Iterable[Event]) -> "tuple[list[DecisionId], bool]":
    """Return the decisions these events settle, and whether they settle all that were open before."""
    done: list[DecisionId] = []
    everything = False
    for event in events:
        data = event.data
        if type(data) in _ENDS:
            everything = True
        elif isinstance(data, ApprovalResolved | ApprovalExpired):
            done.append(data.approval)
        elif isinstance(data, QuestionAnswered):
            done.append(data.question)
    return done, everything


def marked(events: Iterable[Event]) -> list[Event]:
    """Return the events that may have a key or name blobs; most do neither."""
    return [event for event in events if type(event.data) in _MARKED]


def blobs_of(event: Event) -> list[Digest]:
    """Return the blobs an event names."""
    data: Any = event.data
    kind = type(event.data)
    found: list[Digest] = []
    if kind in _TOLD:
        found += [digest for digest in (data.system, data.tools) if digest]
    if kind in _CONTENT:
        result: ToolResult | None = getattr(data, "result", None)
        content: Content = (result.content if result else getattr(data, "content", None)) or ()
        found += [digest for part in content if (digest := getattr(part, "blob", None))]
    if (kind is ScriptAnswered or kind is SubagentCompleted) and data.blob:
        found.append(data.blob)
    if kind is StateChanged and data.key == CHANGED_FILE:
        found += _copy(data.value)
    return found


class _Copied(msgspec.Struct):
    was: str


def _copy(value: JSON) -> list[Digest]:
    """Return the copy of a file that a value of the session names."""
    try:
        was = msgspec.convert(value, _Copied).was
    except msgspec.ValidationError:
        return []  # somebody else's value
    return [Digest(was)] if len(was) == _DIGEST else []


def rebuild(session: SessionId, events: Sequence[Event]) -> SessionInfo:
    """Return the row of a whole log."""
    return advance(SessionInfo(id=session), events) if events else SessionInfo(id=session)


def replace(info: SessionInfo, **changes: object) -> SessionInfo:
    """Return ``info`` with some fields changed."""
    return msgspec.structs.replace(info, **changes)
