"""The live branch of a log: what is left when every rewind has dropped what it went back over."""

from collections.abc import Iterable
from typing import NamedTuple

from vaka.core.types.control import InputAdded, InterruptRequested, SessionReverted
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Event


class _Node(NamedTuple):
    """An event and the one it goes on from; without an event, a place before all that was read."""

    event: Event | None
    parent: "_Node | None"
    seq: int


class Line:
    """The events after ``base``. A rewind may go back to any place, also to one that an earlier rewind left."""

    def __init__(self, base: int = 0) -> None:
        self._base = base
        self._at: dict[int, _Node | None] = {base: None}
        self._tip: _Node | None = None

    def take(self, event: Event) -> None:
        """Take the next event of the log."""
        parent = self._tip
        if isinstance(event.data, SessionReverted):
            to = event.data.to
            if not 0 <= to < event.seq:
                raise Corrupt(f"event {event.seq} goes back to event {to}, which is not before it")
            parent = self._at[to] if to >= self._base else _Node(None, None, to)
            if event.data.onward is not None and to >= self._base:
                parent = self._still_said(to, parent)
        self._tip = self._at[event.seq] = _Node(event, parent, event.seq)

    def _still_said(self, to: int, parent: _Node | None) -> _Node | None:
        """Return the place a turn goes on from by itself: there, with what people have said since."""
        said: list[_Node] = []
        node = self._tip
        while node is not None and node.event is not None and node.seq > to:
            if isinstance(node.event.data, InputAdded | InterruptRequested):
                said.append(node)
            node = node.parent
        for known in reversed(said):
            parent = _Node(known.event, parent, known.seq)
        return parent

    def live(self) -> tuple[list[Event], int | None]:
        """Return the events that count, in order; and where they go on from when that is before ``base``."""
        events: list[Event] = []
        node = self._tip
        while node is not None and node.event is not None:
            events.append(node.event)
            node = node.parent
        events.reverse()
        return events, node.seq if node else None


def live(events: Iterable[Event]) -> list[Event]:
    """Return the events of a whole log that still count."""
    line = Line()
    for event in events:
        line.take(event)
    return line.live()[0]
