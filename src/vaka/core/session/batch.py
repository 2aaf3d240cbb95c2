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
    """What one caller wants to append; ``before`` is what must be in the log first."""

    def __init__(self, entries: Sequence[Entry], *, release: bool = False, before: "Group | None" = None) -> None:
        self.entries, self.release, self.before = entries, release, before
        self.events: tuple[Event, ...] | None = None
        self.error: LogError | None = None

    @property
    def waiting(self) -> bool:
        """True until it was written or refused."""
        return self.events is None and self.error is None


class Attempt(NamedTuple):
    """A write that was handed to the store and may have landed."""

    groups: Sequence[Group]
    events: Sequence[Event]
    release: bool

    def landed(self, found: Sequence[Event]) -> bool:
        """Whether the events found after the old head begin with these."""
        return len(found) >= len(self.events) and all(
            mine.stored == theirs.stored for mine, theirs in zip(self.events, found, strict=False)
        )

    def settle(self) -> None:
        """Hand every group its events."""
        at = 0
        for group in self.groups:
            group.events = tuple(self.events[at : at + len(group.entries)])
            at += len(group.entries)


def sealed(
    state: State, groups: Sequence[Group], seal: Callable[[Sequence[Entry], Sequence[Event]], Sequence[Event]]
) -> Attempt:
    """Return the groups that keep the rules and their events; the others get their error and change nothing.

    ``seal`` makes events of entries, given those before them.
    """
    view = View(state)
    good: list[Group] = []
    events: list[Event] = []
    for group in groups:
        if group.before is not None and group.before.error is not None:
            group.error = group.before.error
            continue
        try:
            view.take(group.entries)
            events += seal(group.entries, events)
        except LogError as error:
            group.error = error
            view = View(state)
            for other in good:
                view.take(other.entries)
        else:
            good.append(group)
    return Attempt(good, events, any(group.release for group in good))
