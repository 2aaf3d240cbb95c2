"""Group commit: appends requested at the same time are checked, sealed and written as one."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from vaka.core.session.invariants import InvariantChecker
from vaka.core.session.state import SessionState
from vaka.core.types.errors import LogError
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope

Entry: TypeAlias = tuple[EventScope, Body]


class AppendGroup:
    """What one caller wants to append. The first ``put_off`` entries are not its own: they came along."""

    __slots__ = ("deferred_count", "entries", "error", "events", "owner", "release", "waiting")

    def __init__(self, entries: Sequence[Entry], deferred_count: int = 0, *, release: bool = False) -> None:
        self.entries, self.deferred_count, self.release = entries, deferred_count, release
        self.events: Sequence[Event] = ()
        self.error: LogError | None = None
        self.owner: AppendGroup | None = None
        self.waiting = True
        """True until it was written or refused."""

    def reject(self, error: LogError) -> "AppendGroup | None":
        """It breaks a rule; return what came along with it, which may still be written."""
        self.error, self.waiting = error, False
        if self.owner is not None:
            self.owner.error = error
        if not self.deferred_count:
            return None
        rest = AppendGroup(self.entries[: self.deferred_count])
        rest.owner = self
        return rest

    def withdraw(self) -> bool:
        """Its caller has gone; return whether anything is left to write."""
        self.entries, self.deferred_count, self.release = self.entries[: self.deferred_count], 0, False
        return bool(self.entries)


class WriteAttempt(NamedTuple):
    """A write that was handed to the store and may have landed."""

    group_events: Sequence[tuple[AppendGroup, Sequence[Event]]]
    events: Sequence[Event]
    release: bool

    def was_written(self, found: Sequence[Event]) -> bool:
        """Whether the events found after the old head begin with these."""
        return len(found) >= len(self.events) and all(
            mine.stored == theirs.stored for mine, theirs in zip(self.events, found, strict=False)
        )

    def deliver_events(self) -> None:
        """Hand every group its events."""
        for group, events in self.group_events:
            group.events, group.waiting = events, False


def seal_groups(
    state: SessionState,
    groups: Sequence[AppendGroup],
    seal: Callable[[Sequence[Entry], Sequence[Event]], Sequence[Event]],
) -> WriteAttempt:
    """Return the groups that keep the rules and their events; the others get their error and change nothing.

    ``seal`` makes events of entries, given those before them.
    """
    view = InvariantChecker(state)
    shares: list[tuple[AppendGroup, Sequence[Event]]] = []
    events: list[Event] = []
    release = False
    left = list(groups)
    while left:
        group = left.pop(0)
        try:
            view.check(group.entries)
            made = seal(group.entries, events)
        except LogError as error:
            rest = group.reject(error)
            left[:0] = [rest] if rest else []
            view = InvariantChecker(state)
            for other, _ in shares:
                view.check(other.entries)
        else:
            shares.append((group, made))
            events += made
            release = release or group.release
    return WriteAttempt(shares, events, release)
