"""The index rows of a store, computed from the events. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from vaka.core.ports.store import PendingDecision, SessionInfo
from vaka.core.types import control, progress
from vaka.core.types.errors import ErasedSession
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import DecisionId, SessionId
from vaka.core.types.message import text_of

TITLE_LENGTH = 80
MAX_METADATA_BYTES = 16 * 1024
"""The size of the metadata in a row, in bytes of JSON."""
LABELLING_TYPES = (control.SessionOpened, control.SessionUpdated, control.SessionErased)
"""The events that change owner, tags, metadata, state and version."""


def advance_row(info: SessionInfo, events: Sequence[Event]) -> SessionInfo:
    """Return the row of a session after ``events`` (sealed, at least one) were appended to its log."""
    row: SessionInfo | _SessionRow = info
    for event in events:
        kind = type(event.data)
        if kind in _HANDLERS:
            if row is info:
                row = _SessionRow(info)
            _HANDLERS[kind](row, event, event.data)  # type: ignore[arg-type]  # a _SessionRow since the first change
    last, created = events[-1], info.created or events[0].ts
    return SessionInfo(
        id=info.id,
        head=last.seq,
        hash=last.hash,
        epoch=last.epoch,
        term=info.term,
        title=row.title,
        agent=row.agent,
        turn=row.turn,
        inputs=row.inputs,
        pending=row.pending,
        closed=row.closed,
        created=created,
        updated=last.ts if last.ts >= created else _last_change(events, created, info.updated),
        origin=row.origin,
        folder=row.folder,
        owner=row.owner,
        tags=row.tags,
        metadata=row.metadata,
        state=row.state,
        version=row.version,
        erased=row.erased,
        live=info.live,
    )


def _last_change(events: Sequence[Event], created: str, before: str) -> str:
    """Return when a session was last changed; a message that was said before it was created does not make it older."""
    return next((event.ts for event in reversed(events) if event.ts >= created), before or created)


class _SessionRow:
    """The changing part of a row."""

    def __init__(self, info: SessionInfo) -> None:
        self.title = info.title
        self.agent = info.agent
        self.turn = info.turn
        self.origin = info.origin
        self.inputs = info.inputs
        self.pending = info.pending
        self.closed = info.closed
        self.folder = info.folder
        self.owner = info.owner
        self.tags = info.tags
        self.metadata = info.metadata
        self.state = info.state
        self.version = info.version
        self.erased = info.erased

    def input_added(self, event: Event, body: control.InputAdded) -> None:
        self.inputs += 1
        self.closed = False
        self.title = self.title or " ".join(text_of(body.content).split())[:TITLE_LENGTH]

    def input_withdrawn(self, event: Event, body: control.InputWithdrawn) -> None:
        self.inputs = max(self.inputs - 1, 0)

    def turn_started(self, event: Event, body: progress.TurnStarted) -> None:
        self.turn = event.turn
        self.agent = body.agent
        self.inputs = max(self.inputs - len(body.inputs), 0)

    def step_started(self, event: Event, body: progress.StepStarted) -> None:
        self.inputs = max(self.inputs - len(body.inputs), 0)

    def turn_ended(self, event: Event, body: Body) -> None:
        self.turn, self.pending = "", 0

    def decision_asked(self, event: Event, body: Body) -> None:
        self.pending += 1

    def decision_settled(self, event: Event, body: Body) -> None:
        self.pending = max(self.pending - 1, 0)

    def session_opened(self, event: Event, body: control.SessionOpened) -> None:
        self.agent, self.version = body.agent, event.seq
        self._set_labels(body)

    def session_updated(self, event: Event, body: control.SessionUpdated) -> None:
        if any(label is not None for label in (body.title, body.owner, body.tags, body.metadata, body.state)):
            self.version = event.seq
        self.state = body.state or self.state
        self._set_labels(body)

    def _set_labels(self, body: control.SessionOpened | control.SessionUpdated) -> None:
        if body.workspace is not None:
            self.folder = body.workspace.root
        if body.title is not None:
            self.title = body.title
        if body.owner is not None:
            self.owner = body.owner
        if body.tags is not None:
            self.tags = tuple(tag for tag in body.tags if tag and "\n" not in tag)  # a line each in the index
        if body.metadata:
            merged = merge_metadata(self.metadata, body.metadata)
            if len(msgspec.json.encode(merged)) <= MAX_METADATA_BYTES:
                self.metadata = merged

    def session_forked(self, event: Event, body: control.SessionForked) -> None:
        self.origin = body.origin

    def session_reverted(self, event: Event, body: control.SessionReverted) -> None:
        if body.onward is not None:
            self.pending = 0  # its turn goes on, and its inputs still wait
            return
        self.turn = ""
        self.inputs = 0
        self.pending = 0
        self.closed = False

    def session_closed(self, event: Event, body: control.SessionClosed) -> None:
        self.closed = True

    def session_erased(self, event: Event, body: control.SessionErased) -> None:
        """Leave what a row that is rebuilt from the erased log has."""
        self.title = ""
        self.agent = ""
        self.folder = ""
        self.owner = ""
        self.tags = ()
        self.metadata = {}
        self.state = "terminated"
        self.turn = ""
        self.inputs = 0
        self.pending = 0
        self.closed = True
        self.version = self.erased = event.seq


_HANDLERS: dict[type[Body], Callable[[_SessionRow, Event, Any], None]] = {
    control.InputAdded: _SessionRow.input_added,
    control.InputWithdrawn: _SessionRow.input_withdrawn,
    progress.TurnStarted: _SessionRow.turn_started,
    progress.StepStarted: _SessionRow.step_started,
    **dict.fromkeys(progress.TURN_ENDS, _SessionRow.turn_ended),
    control.ApprovalRequested: _SessionRow.decision_asked,
    control.QuestionAsked: _SessionRow.decision_asked,
    control.ApprovalResolved: _SessionRow.decision_settled,
    control.ApprovalExpired: _SessionRow.decision_settled,
    control.QuestionAnswered: _SessionRow.decision_settled,
    control.SessionOpened: _SessionRow.session_opened,
    control.SessionUpdated: _SessionRow.session_updated,
    control.SessionForked: _SessionRow.session_forked,
    control.SessionReverted: _SessionRow.session_reverted,
    control.SessionClosed: _SessionRow.session_closed,
    control.SessionErased: _SessionRow.session_erased,
}


def merge_metadata(metadata: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with changed keys; the value ``None`` removes a key."""
    return {key: value for key, value in {**metadata, **changes}.items() if value is not None}


_SETTLING_ALL = frozenset[type]({*progress.TURN_ENDS, control.SessionReverted})


def find_asked_decisions(session: SessionId, events: Iterable[Event]) -> Iterator[PendingDecision]:
    """Yield a row for each decision these events ask for."""
    for event in events:
        body = event.data
        if isinstance(body, control.ApprovalRequested | control.QuestionAsked):
            id = body.approval if isinstance(body, control.ApprovalRequested) else body.question
            yield PendingDecision(id=id, session=session, seq=event.seq, event=event)


def find_settled_decisions(events: Iterable[Event]) -> "tuple[list[DecisionId], bool]":
    """Return the decisions these events settle, and whether they settle all that were open before."""
    settled: list[DecisionId] = []
    settle_all = False
    for event in events:
        body = event.data
        if type(body) in _SETTLING_ALL:
            settle_all = True
        elif isinstance(body, control.ApprovalResolved | control.ApprovalExpired):
            settled.append(body.approval)
        elif isinstance(body, control.QuestionAnswered):
            settled.append(body.question)
    return settled, settle_all


def rebuild_row(session: SessionId, events: Sequence[Event]) -> SessionInfo:
    """Return the row of a whole log."""
    return advance_row(SessionInfo(id=session), events) if events else SessionInfo(id=session)


def replace_fields(info: SessionInfo, **changes: object) -> SessionInfo:
    """Return ``info`` with some fields changed."""
    return msgspec.structs.replace(info, **changes)


def require_data(info: SessionInfo) -> None:
    """Raise ``ErasedSession`` for a session that was erased."""
    if info.erased:
        raise ErasedSession(
            f"session {info.id!r} was erased: it can be listed, verified, exported and deleted; start another one"
        )
