"""Checks that every store makes before it writes, and the decisions a batch of events opens and settles."""

from collections.abc import Sequence

from vaka.core.ports.store import PendingDecision
from vaka.core.session.index_rows import find_asked_decisions, find_settled_decisions
from vaka.core.types.control import (
    ApprovalExpired,
    ApprovalRequested,
    ApprovalResolved,
    InputAdded,
    InterruptRequested,
    QuestionAnswered,
    QuestionAsked,
    SessionReverted,
    key_of,
)
from vaka.core.types.errors import InvalidInput, LogError
from vaka.core.types.event import Event
from vaka.core.types.ids import DecisionId, SessionId
from vaka.core.types.progress import TurnCancelled, TurnCompleted, TurnFailed, TurnInterrupted

_DECISION_EVENTS = frozenset[type]({
    ApprovalExpired, ApprovalRequested, ApprovalResolved, QuestionAnswered, QuestionAsked, SessionReverted,
    TurnCancelled, TurnCompleted, TurnFailed, TurnInterrupted,
})  # fmt: skip
"""What opens or settles a decision; almost all events do neither."""


def check_batch(session: SessionId, events: Sequence[Event], *, head: int, head_hash: str) -> None:
    """Raise ``LogError`` unless the events are sealed to follow, one after the other, the event ``head``."""
    for seq, event in enumerate(events, head + 1):
        if event.seq != seq or not event.stored:
            raise LogError(
                f"session {session!r}: event {seq} was expected next, got {event.seq or 'one without a place'}"
            )
        if event.prev != head_hash:
            raise LogError(f"session {session!r}: event {seq} is sealed after another event than {seq - 1}")
        head_hash = event.hash


def check_offer(event: Event, key: str) -> None:
    """Raise ``InvalidInput`` unless anyone may offer this event, under this key."""
    if not isinstance(event.data, InputAdded | InterruptRequested | ApprovalResolved | QuestionAnswered):
        raise InvalidInput(f"{event.type} cannot be offered: only the session's writer may append it")
    if not key or key != key_of(event.data):
        raise InvalidInput(f"{event.type} has the key {key_of(event.data)!r}, it cannot be offered as {key!r}")


def decision_changes(
    session: SessionId, events: Sequence[Event]
) -> "tuple[list[PendingDecision], list[DecisionId], bool]":
    """Return the decisions open after these events that they ask for, those they settle, and whether all older ones."""
    if _DECISION_EVENTS.isdisjoint([type(event.data) for event in events]):
        return [], [], False
    done, everything = find_settled_decisions(events)
    opened = {row.id: row for row in find_asked_decisions(session, events)}
    if opened and (done or everything):
        opened.clear()
        for event in events:
            settles, all_older = find_settled_decisions((event,))
            if all_older:
                opened.clear()
            for decision in settles:
                opened.pop(decision, None)
            opened.update((row.id, row) for row in find_asked_decisions(session, (event,)))
    return list(opened.values()), done, everything
