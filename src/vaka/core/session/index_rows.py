"""The index rows of a store as a pure function of the events."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from vaka.core.ports.store import PendingDecision, SessionInfo
from vaka.core.ports.tool import CHANGED_FILE_KEY
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
from vaka.core.types.message import Content, ToolResult, text_of
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

TITLE_LENGTH = 80
_DIGEST_LENGTH = 64
_SETTLE_ALL = frozenset({TurnCompleted, TurnFailed, TurnCancelled, TurnInterrupted, SessionReverted})
_WITH_CONTENT = frozenset(
    {InputAdded, TurnStarted, MessageCompleted, SubagentStarted, ToolReturned, ToolCompleted, ToolFailed}
)
_WITH_PROMPT_BLOBS = frozenset({StepStarted, MessageCompleted})
_WITH_KEY_OR_BLOBS = _WITH_CONTENT | {
    StepStarted, ScriptAnswered, SubagentCompleted, InterruptRequested, ApprovalResolved, ApprovalExpired,
    QuestionAnswered, StateChanged,
}  # fmt: skip


def advance_row(info: SessionInfo, events: Sequence[Event]) -> SessionInfo:
    """Return the row of a session after ``events`` (sealed, at least one) were appended to its log."""
    row: SessionInfo | _SessionRow = info
    for event in events:
        change = _HANDLERS.get(type(event.data))
        if change is not None:
            if row is info:
                row = _SessionRow(info)
            change(row, event, event.data)  # type: ignore[arg-type]  # a row of its own since the first change
    last = events[-1]
    return SessionInfo(
        id=info.id, head=last.seq, hash=last.hash, epoch=last.epoch, term=info.term, title=row.title, agent=row.agent,
        turn=row.turn, inputs=row.inputs, pending=row.pending, closed=row.closed,
        created=info.created or events[0].ts, updated=last.ts, origin=row.origin, live=info.live,
    )  # fmt: skip


class _SessionRow:
    """The changing part of a row."""

    def __init__(self, info: SessionInfo) -> None:
        self.title, self.agent, self.turn, self.origin = info.title, info.agent, info.turn, info.origin
        self.inputs, self.pending, self.closed = info.inputs, info.pending, info.closed

    def input_added(self, event: Event, body: InputAdded) -> None:
        self.inputs += 1
        self.closed = False
        self.title = self.title or " ".join(text_of(body.content).split())[:TITLE_LENGTH]

    def turn_started(self, event: Event, body: TurnStarted) -> None:
        self.turn, self.agent, self.inputs = event.turn, body.agent, max(self.inputs - len(body.inputs), 0)

    def step_started(self, event: Event, body: StepStarted) -> None:
        self.inputs = max(self.inputs - len(body.inputs), 0)

    def turn_ended(self, event: Event, body: Body) -> None:
        self.turn, self.pending = "", 0

    def decision_asked(self, event: Event, body: Body) -> None:
        self.pending += 1

    def decision_settled(self, event: Event, body: Body) -> None:
        self.pending = max(self.pending - 1, 0)

    def session_opened(self, event: Event, body: SessionOpened) -> None:
        self.agent = body.agent

    def session_forked(self, event: Event, body: SessionForked) -> None:
        self.origin = body.origin

    def session_reverted(self, event: Event, body: SessionReverted) -> None:
        if body.onward is not None:
            self.pending = 0  # its turn goes on, and what waits still waits
            return
        self.turn, self.inputs, self.pending, self.closed = "", 0, 0, False

    def session_closed(self, event: Event, body: SessionClosed) -> None:
        self.closed = True


_HANDLERS: dict[type[Body], Callable[[_SessionRow, Event, Any], None]] = {
    InputAdded: _SessionRow.input_added,
    TurnStarted: _SessionRow.turn_started,
    StepStarted: _SessionRow.step_started,
    TurnCompleted: _SessionRow.turn_ended,
    TurnFailed: _SessionRow.turn_ended,
    TurnCancelled: _SessionRow.turn_ended,
    TurnInterrupted: _SessionRow.turn_ended,
    ApprovalRequested: _SessionRow.decision_asked,
    QuestionAsked: _SessionRow.decision_asked,
    ApprovalResolved: _SessionRow.decision_settled,
    ApprovalExpired: _SessionRow.decision_settled,
    QuestionAnswered: _SessionRow.decision_settled,
    SessionOpened: _SessionRow.session_opened,
    SessionForked: _SessionRow.session_forked,
    SessionReverted: _SessionRow.session_reverted,
    SessionClosed: _SessionRow.session_closed,
}


def find_asked_decisions(session: SessionId, events: Iterable[Event]) -> Iterator[PendingDecision]:
    """Yield a row for each decision these events ask for."""
    for event in events:
        if event.data.channel != "control":
            continue
        if isinstance(event.data, ApprovalRequested):
            yield PendingDecision(id=event.data.approval, session=session, seq=event.seq, event=event)
        elif isinstance(event.data, QuestionAsked):
            yield PendingDecision(id=event.data.question, session=session, seq=event.seq, event=event)


def find_settled_decisions(events: Iterable[Event]) -> "tuple[list[DecisionId], bool]":
    """Return the decisions these events settle, and whether they settle all that were open before."""
    done: list[DecisionId] = []
    everything = False
    for event in events:
        data = event.data
        if type(data) in _SETTLE_ALL:
            everything = True
        elif isinstance(data, ApprovalResolved | ApprovalExpired):
            done.append(data.approval)
        elif isinstance(data, QuestionAnswered):
            done.append(data.question)
    return done, everything


def select_keyed_or_blob_events(events: Iterable[Event]) -> list[Event]:
    """Return the events that may have a key or name blobs; most do neither."""
    return [event for event in events if type(event.data) in _WITH_KEY_OR_BLOBS]


def blobs_of(event: Event) -> list[Digest]:
    """Return the blobs an event names."""
    data: Any = event.data
    kind = type(event.data)
    found: list[Digest] = []
    if kind in _WITH_PROMPT_BLOBS:
        found += [digest for digest in (data.system, data.tools) if digest]
    if kind in _WITH_CONTENT:
        result: ToolResult | None = getattr(data, "result", None)
        content: Content = (result.content if result else getattr(data, "content", None)) or ()
        found += [digest for part in content if (digest := getattr(part, "blob", None))]
    if (kind is ScriptAnswered or kind is SubagentCompleted) and data.blob:
        found.append(data.blob)
    if kind is StateChanged and data.key == CHANGED_FILE_KEY:
        found += _copied_blobs(data.value)
    return found


class _FileCopy(msgspec.Struct):
    was: str


def _copied_blobs(value: JSON) -> list[Digest]:
    """Return the copy of a file that a value of the session names."""
    try:
        was = msgspec.convert(value, _FileCopy).was
    except msgspec.ValidationError:
        return []  # somebody else's value
    return [Digest(was)] if len(was) == _DIGEST_LENGTH else []


def rebuild_row(session: SessionId, events: Sequence[Event]) -> SessionInfo:
    """Return the row of a whole log."""
    return advance_row(SessionInfo(id=session), events) if events else SessionInfo(id=session)


def replace_fields(info: SessionInfo, **changes: object) -> SessionInfo:
    """Return ``info`` with some fields changed."""
    return msgspec.structs.replace(info, **changes)
