"""``EventFilter``: which events of a session a reader wants."""

from collections.abc import Collection

import msgspec

from vaka.core.types.control import StreamEnd, StreamReset
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath
from vaka.core.types.progress import MessageSnapshot


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects events by channel, type and agent; without conditions, all of them."""

    channels: Collection[str] = ()
    types: Collection[str] = ()
    """Types of events; a ``message.snapshot`` also counts as the type of the deltas it replaces."""
    path: AgentPath = ()
    """The agent whose events and whose children's events are selected."""
    depth: int | None = None
    """How many levels of children to include; ``None``: all, 0: the agent alone."""

    @property
    def selects_all(self) -> bool:
        return not self.channels and not self.types and not self.path and self.depth is None

    def selects(self, event: Event) -> bool:
        """Return whether the reader wants an event. Those about the stream itself are always selected."""
        body = event.data
        if isinstance(body, StreamReset | StreamEnd):
            return True
        if self.channels and event.channel not in self.channels:
            return False
        name = body.of if isinstance(body, MessageSnapshot) and body.of in self.types else event.type
        if self.types and name not in self.types:
            return False
        below = len(event.path) - len(self.path)
        return event.path[: len(self.path)] == self.path and (self.depth is None or below <= self.depth)
