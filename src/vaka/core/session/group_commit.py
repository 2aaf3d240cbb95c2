"""Group commit: appends requested at the same time are checked, sealed and written together."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from vaka.core.session.invariants import InvariantChecker
from vaka.core.session.state import SessionState
from vaka.core.types.errors import LogError
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope

Entry: TypeAlias = tuple[EventScope, Body]


class AppendGroup:
    """The entries of one append. The first ``deferred_count`` were deferred earlier and are written with them."""

    __slots__ = ("deferred_count", "entries", "error", "events", "owner", "release", "waiting")

    def __init__(self, entries: Sequence[Entry], deferred_count: int = 0, *, release: bool = False) -> None:
        self.entries, self.deferred_count, self.release = entries, deferred_count, release
        self.events: Sequence[Event] = ()
        self.error: LogError | None = None
        self.owner: AppendGroup | None = None
        self.waiting = True
        """True until it is written or rejected."""

    def reject(self, error: LogError) -> "AppendGroup | None":
        """Reject the group; return a group of its deferred entries, which may still be written."""
        self.error, self.waiting = error, False
        if self.owner is not None:
            self.owner.error = error
        if not self.deferred_count:
            return None
        rest = AppendGroup(self.entries[: self.deferred_count])
        rest.owner = self
        return rest

    def withdraw(self) -> bool:
        """Remove the caller's own entries; return whether deferred ones are left to write."""
        self.entries, self.deferred_count, self.release = self.entries[: self.deferred_count], 0, False
        return bool(self.entries)


class WriteAttempt(msgspec.Struct, frozen=True, eq=False):
    """A write that was sent to the store and may have been committed."""

    group_events: Sequence[tuple[AppendGroup, Sequence[Event]]]
    events: Sequence[Event]
    release: bool

    def was_written(self, tail: Sequence[Event]) -> bool:
        """Whether ``tail``, the stored events after the old head, begins with these."""
        return [event.stored for event in self.events] == [event.stored for event in tail[: len(self.events)]]

    def deliver_events(self) -> None:
        for group, events in self.group_events:
            group.events, group.waiting = events, False


def seal_groups(
    state: SessionState,
    groups: Sequence[AppendGroup],
    seal: Callable[[Sequence[Entry], Sequence[Event]], Sequence[Event]],
) -> WriteAttempt:
    """Return the groups that keep the invariants, with their events; reject the others.

    ``seal`` takes entries and the events before them.
    """
    checker = InvariantChecker(state)
    accepted: list[tuple[AppendGroup, Sequence[Event]]] = []
    events: list[Event] = []
    release, queue = False, list(groups)
    while queue:
        group = queue.pop(0)
        try:
            checker.check(group.entries)
            sealed = seal(group.entries, events)
        except LogError as error:
            rest = group.reject(error)
            queue[:0] = [rest] if rest else []
            checker = InvariantChecker(state)
            for other, _ in accepted:
                checker.check(other.entries)
        else:
            accepted.append((group, sealed))
            events += sealed
            release = release or group.release
    return WriteAttempt(accepted, events, release)
