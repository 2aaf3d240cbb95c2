"""What every store checks before it writes."""

from collections.abc import Sequence

from vaka.core.ports.store import Pending
from vaka.core.session.index import asked, settled
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

_DECIDING = frozenset[type]({
    ApprovalExpired, ApprovalRequested, ApprovalResolved, QuestionAnswered, QuestionAsked, SessionReverted,
    TurnCancelled, TurnCompleted, TurnFailed, TurnInterrupted,
})  # fmt: skip
"""What opens or settles a decision; almost all events do neither."""


def check_batch(session: SessionId, events: Sequence[Event], *, head: int, hash: str) -> None:
    """Raise ``LogError`` unless the events are sealed to follow, one after the other, the event ``head``."""
    for seq, event in enumerate(events, head + 1):
        if event.seq != seq or not event.stored:
            raise LogError(
                f"session {session!r}: event {seq} was expected next, got {event.seq or 'one without a place'}"
            )
        if event.prev != hash:
            raise LogError(f"session {session!r}: event {seq} is sealed after another event than {seq - 1}")
        hash = event.hash


def check_offer(event: Event, key: str) -> None:
    """Raise ``InvalidInput`` unless anyone may offer this event, under this key."""
    if not isinstance(event.data, InputAdded | InterruptRequested | ApprovalResolved | QuestionAnswered):
        raise InvalidInput(f"{event.type} cannot be offered: only the session's writer may append it")
    if not key or key != key_of(event.data):
        raise InvalidInput(f"{event.type} has the key {key_of(event.data)!r}, it cannot be offered as {key!r}")


def decisions(session: SessionId, events: Sequence[Event]) -> "tuple[list[Pending], list[DecisionId], bool]":
    """Return the decisions open after these events that they ask for, those they settle, and whether all older ones."""
    if _DECIDING.isdisjoint([type(event.data) for event in events]):
        return [], [], False
    done, everything = settled(events)
    opened = {row.id: row for row in asked(session, events)}
    if opened and (done or everything):
        opened.clear()
        for event in events:
            settles, all_older = settled((event,))
            if all_older:
                opened.clear()
            for decision in settles:
                opened.pop(decision, None)
            opened.update((row.id, row) for row in asked(session, (event,)))
    return list(opened.values()), done, everything
