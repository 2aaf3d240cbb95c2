"""What several callers want to append at the same time, as one write."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from vaka.core.session.place import Place
from vaka.core.session.rules import View
from vaka.core.session.state import State
from vaka.core.types.errors import LogError
from vaka.core.types.event import Body, Event

Entry: TypeAlias = tuple[Place, Body]


class Group:
    """What one caller wants to append. The first ``put_off`` entries are not its own: they came along."""

    __slots__ = ("entries", "error", "events", "owner", "put_off", "release", "waiting")

    def __init__(self, entries: Sequence[Entry], put_off: int = 0, *, release: bool = False) -> None:
        self.entries, self.put_off, self.release = entries, put_off, release
        self.events: Sequence[Event] = ()
        self.error: LogError | None = None
        self.owner: Group | None = None
        self.waiting = True
        """True until it was written or refused."""

    def refuse(self, error: LogError) -> "Group | None":
        """It breaks a rule; return what came along with it, which may still be written."""
        self.error, self.waiting = error, False
        if self.owner is not None:
            self.owner.error = error
        if not self.put_off:
            return None
        rest = Group(self.entries[: self.put_off])
        rest.owner = self
        return rest

    def withdraw(self) -> bool:
        """Its caller has gone; return whether anything is left to write."""
        self.entries, self.put_off, self.release = self.entries[: self.put_off], 0, False
        return bool(self.entries)


class Attempt(NamedTuple):
    """A write that was handed to the store and may have landed."""

    shares: Sequence[tuple[Group, Sequence[Event]]]
    events: Sequence[Event]
    release: bool

    def landed(self, found: Sequence[Event]) -> bool:
        """Whether the events found after the old head begin with these."""
        return len(found) >= len(self.events) and all(
            mine.stored == theirs.stored for mine, theirs in zip(self.events, found, strict=False)
        )

    def settle(self) -> None:
        """Hand every group its events."""
        for group, events in self.shares:
            group.events, group.waiting = events, False


def sealed(
    state: State, groups: Sequence[Group], seal: Callable[[Sequence[Entry], Sequence[Event]], Sequence[Event]]
) -> Attempt:
    """Return the groups that keep the rules and their events; the others get their error and change nothing.

    ``seal`` makes events of entries, given those before them.
    """
    view = View(state)
    shares: list[tuple[Group, Sequence[Event]]] = []
    events: list[Event] = []
    release = False
    left = list(groups)
    while left:
        group = left.pop(0)
        try:
            view.take(group.entries)
            made = seal(group.entries, events)
        except LogError as error:
            rest = group.refuse(error)
            left[:0] = [rest] if rest else []
            view = View(state)
            for other, _ in shares:
                view.take(other.entries)
        else:
            shares.append((group, made))
            events += made
            release = release or group.release
    return Attempt(shares, events, release)
