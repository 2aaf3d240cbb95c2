"""``TurnEvents``: the events of one turn, decisions included, from its input to its end."""

from collections.abc import AsyncGenerator, Sequence
from typing import Self

import msgspec

from vaka.core.loop.blobs import restore_content
from vaka.core.ports.values import BlobStore
from vaka.core.session.fanout import Follower
from vaka.core.session.follow import FollowerHub, Subscription
from vaka.core.types.control import ApprovalExpired, ApprovalResolved, QuestionAnswered
from vaka.core.types.ending import Response
from vaka.core.types.errors import Closed, Suspended
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor
from vaka.core.types.pending_decisions import PendingDecisions
from vaka.core.types.progress import DELTA_TYPES, MessageCompleted
from vaka.runtime.turn_stream import TurnCollector

_DECIDED = (ApprovalResolved, ApprovalExpired, QuestionAnswered)
"""Events of decisions from outside of a turn, which are not recorded as part of it."""


class DecisionCollector(TurnCollector):
    """Finds the events of a turn, with the decisions that were made while it ran."""

    def take_events(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that belong to the turn."""
        known = {id(event) for event in super().take_events(events)}
        return [
            event
            for event in events
            if id(event) in known or (self.turn and not event.turn and isinstance(event.data, _DECIDED))
        ]


class TurnEvents:
    """Reads one turn of a session in this or another process. The turn goes on when its reader leaves.

    ``async for event in events`` ends with the turn, or with ``until_waiting`` also when the turn waits for decisions
    alone; ``ended`` and ``waiting`` say which. Iterating again goes on after that.
    """

    def __init__(
        self,
        hub: FollowerHub,
        collector: TurnCollector,
        after: Cursor,
        follower: Follower | None = None,
        *,
        until_waiting: bool = False,
    ) -> None:
        self._hub = hub
        self._collector = collector
        self._until_waiting = until_waiting
        self._follower = follower or Follower()
        self._subscription = Subscription(hub, collector.session, after, self._follower)
        self._decisions = PendingDecisions()
        self._unread: list[Event] = []
        self.session, self.key = collector.session, collector.key
        """The session, and the key of the input that the turn answers; ``""`` if it is known by its id alone."""
        self.waiting = self._suspended = False
        """Whether the turn waits for decisions alone."""

    @property
    def turn(self) -> str:
        """The id of the turn; ``""`` before it begins."""
        return self._collector.turn

    @property
    def ended(self) -> bool:
        """Whether the last event of the turn was read, or there will be none because its input was withdrawn."""
        return self._collector.ended and not self._unread

    @property
    def pending(self) -> PendingDecisions:
        """The decisions that the turn waits for."""
        return self._decisions

    async def __aenter__(self) -> Self:
        await self._subscription.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._subscription.__aexit__(*error)

    async def next_batch(self) -> list[Event]:
        """Return the next events, up to the one after which the turn waits. Raises the error that ended its driver."""
        events, self._unread = self._unread, []
        if not events:
            read = await self._subscription.next_batch()
            if not read:
                return self._end_reading()
            turn = self._collector.turn
            for event in read:
                if type(event.data) not in DELTA_TYPES or event.turn != turn:
                    break
            else:  # most of the events of a stream: they decide and end nothing
                self.waiting = False
                return read
            events = self._collector.take_events(read)
            if self._collector.ended:
                await self._collector.restore_text(self._hub.store.blobs)
        self.waiting = False
        for index, event in enumerate(events):
            self._decisions.note(event)
            if self._decisions.is_waiting_after(event.data):
                self.waiting = True
                self._unread = events[index + 1 :]
                return events[: index + 1]
        return events

    def _end_reading(self) -> list[Event]:
        """Note that a suspended turn waits, once; raise any other error that ended the driver of the turn."""
        if isinstance(self._follower.error, Suspended) and not self._suspended:
            self._suspended = self.waiting = True
            return []
        message = f"session {self.session!r} stopped before its turn had ended; the server continues it when it starts"
        raise self._follower.error or Closed(message)

    async def __aiter__(self) -> AsyncGenerator[Event]:
        while not self.ended:
            for event in await self.next_batch():
                yield event
            if self.waiting and (self._until_waiting or self._follower.ended):
                return

    def summarize(self) -> Response:
        """Return the response of an ended turn, whether it succeeded or not."""
        return self._collector.summarize()


async def restore_event(blobs: BlobStore, event: Event) -> Event:
    """Return an event with the text of its message that is too large for the log."""
    body = event.data
    if not isinstance(body, MessageCompleted):
        return event
    content = await restore_content(blobs, body.content)
    if content is body.content:
        return event
    return msgspec.structs.replace(event, data=msgspec.structs.replace(body, content=content))
