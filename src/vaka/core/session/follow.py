"""Following a session: the stored events after a cursor, then new ones, without gaps or duplicates."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Self

from vaka.core.ports.store import Store
from vaka.core.session.fanout import BATCH_BYTES, Fanout, Follower, chars_of, take_batch
from vaka.core.types.control import StreamEnd, StreamReset
from vaka.core.types.errors import VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor, SessionId

FIRST_READ = 16
READ_BATCH = 256
"""Events read from the store at a time: at first, and at most. In between it is as many as fit ``BATCH_BYTES``."""


class FollowerHub:
    """The followers of every session of one store in this process."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._fanouts: dict[SessionId, Fanout] = {}
        self._writers: dict[SessionId, int] = {}
        self._pumps: dict[SessionId, list[asyncio.Task[None]]] = {}
        self.closed = asyncio.Event()
        """Set when the hub is closed."""

    def fanout_of(self, session: SessionId) -> Fanout:
        """Return the fanout of a session, creating it on first use."""
        fanout = self._fanouts.get(session)
        if fanout is None:
            fanout = self._fanouts[session] = Fanout(session)
        return fanout

    def attach_writer(self, session: SessionId) -> Fanout:
        """Register a writer of this process; it publishes to followers directly."""
        fanout = self._fanouts.get(session)
        if fanout is None:
            fanout = self._fanouts[session] = Fanout(session)
        elif session not in self._writers:
            fanout.clear_open_blocks()
        self._writers[session] = self._writers.get(session, 0) + 1
        if session in self._pumps:
            self._stop_pump(session)
        self.store.live.share(session, fanout.snapshots)
        return fanout

    def detach_writer(self, session: SessionId) -> None:
        self._writers[session] -= 1
        if self._writers[session]:
            return
        del self._writers[session]
        self.store.live.share(session, None)
        fanout = self._fanouts[session]
        if fanout.followers:
            fanout.clear_open_blocks()
            self._start_pump(fanout)
        else:
            fanout.publish_deltas = None  # no reference cycle is left to the garbage collector
            del self._fanouts[session]

    async def follow(self, session: SessionId, after: Cursor) -> AsyncGenerator[Event]:
        """Yield the durable events after a cursor, the open blocks, and then every event as it happens.

        Ends with ``stream.end`` when the hub is closed, and raises the error that cuts it off from the store.
        """
        follower, ts = Follower(), ""
        async with Subscription(self, session, after, follower) as subscription:
            while events := await subscription.next_batch():
                ts = events[-1].ts
                for event in events:
                    yield event
        if follower.error is not None:
            raise follower.error
        yield Event(data=StreamEnd(reason="closed"), session=session, ts=ts)

    def end_followers(self, session: SessionId) -> None:
        """End the followers of a session that was deleted."""
        fanout = self._fanouts.get(session)
        for follower in fanout.followers if fanout is not None else ():
            follower.end()

    async def close(self) -> None:
        """End every follower and stop listening to other processes."""
        self.closed.set()
        for fanout in self._fanouts.values():
            for follower in fanout.followers:
                follower.end()
        tasks = [task for pump in self._pumps.values() for task in pump]
        for session in list(self._pumps):
            self._stop_pump(session)
        await asyncio.gather(*tasks, return_exceptions=True)

    def add_follower(self, session: SessionId, follower: Follower) -> Fanout:
        fanout = self._fanouts.get(session) or self.fanout_of(session)
        fanout.add_follower(follower)
        if session not in self._writers:
            self._start_pump(fanout)
        return fanout

    def remove_follower(self, session: SessionId, follower: Follower) -> None:
        fanout = self._fanouts.get(session) or self.fanout_of(session)
        fanout.remove_follower(follower)
        if not fanout.followers and session not in self._writers:
            self._stop_pump(session)
            self._fanouts.pop(session, None)

    def has_writer(self, session: SessionId) -> bool:
        """Whether this process has a writer of the session."""
        return session in self._writers

    def _start_pump(self, fanout: Fanout) -> None:
        if fanout.session not in self._pumps:
            pumps = (self._pump_heads, self._pump_blocks)
            self._pumps[fanout.session] = [asyncio.create_task(self._run_pump(pump, fanout)) for pump in pumps]

    def _stop_pump(self, session: SessionId) -> None:
        for task in self._pumps.pop(session, ()):
            task.cancel()

    async def _run_pump(self, pump: Callable[[Fanout], Coroutine[Any, Any, None]], fanout: Fanout) -> None:
        """Run a pump; when it fails, end the followers with its error, so that they can reconnect."""
        try:
            await pump(fanout)
        except VakaError as error:
            for follower in fanout.followers:
                follower.end(error)
            for task in self._pumps.pop(fanout.session, ()):
                if task is not asyncio.current_task():
                    task.cancel()

    async def _pump_heads(self, fanout: Fanout) -> None:
        head = fanout.head
        while True:
            head = await self.store.events.wait(fanout.session, after=head)
            fanout.advance_head(head)

    async def _pump_blocks(self, fanout: Fanout) -> None:
        """Publish the open blocks of a writer elsewhere, each after the events that were stored before it began."""
        async with aclosing(self.store.live.watch(fanout.session)) as events:
            async for event in events:
                if not fanout.has_remote_block(event):  # the other pump may not have woken yet
                    fanout.advance_head(await self.store.events.wait(fanout.session, after=0))
                fanout.publish_remote_block(event)


class Subscription:
    """One follower and its position in a session. Events come in batches of all that are ready, at least one."""

    def __init__(self, hub: FollowerHub, session: SessionId, after: Cursor, follower: Follower | None = None) -> None:
        self._hub = hub
        self._session = session
        self._after = after
        self._follower = follower or Follower()
        self._seq = after.seq
        self._first = True
        self._read_size = FIRST_READ

    async def __aenter__(self) -> Self:
        self._fanout = self._hub.add_follower(self._session, self._follower)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._hub.remove_follower(self._session, self._follower)

    async def next_batch(self) -> list[Event]:
        """Return the next events; none when the follower has ended and everything was read."""
        follower = self._follower
        if self._first:
            self._first = False
            if reset := await self._check_cursor():
                return reset
        fanout = self._fanout
        while True:
            if fanout.unread and not follower.turn_ends_only:
                fanout.publish_unread()
            if follower.needs_snapshot:
                events = await self._catch_up()
            elif follower.queue:
                events = self._take_live() or await self._take_head()
            elif follower.ended:
                return []
            else:
                await follower.next_wake()
                continue
            if events:
                return events

    async def _check_cursor(self) -> list[Event]:
        """Return nothing if the cursor is one of this log, otherwise a reset; all events follow it."""
        after = self._after
        if self._hub.has_writer(self._session) and not after.epoch and after.seq <= self._fanout.head:
            return []
        info = await self._hub.store.sessions.find(self._session)
        head, epoch = (info.head, info.epoch) if info else (0, 0)
        if head > self._fanout.head:
            self._fanout.advance_head(head)  # for every follower: a pump that starts now waits for later events
        if after.epoch in (0, epoch) and after.seq <= head:
            return []
        self._seq = 0
        ts = info.updated if info else ""
        return [Event(data=StreamReset(reason=f"no event {after} here"), session=self._session, ts=ts)]

    async def _catch_up(self) -> list[Event]:
        """Return the next events of the log, and after the last of them a snapshot of every open block."""
        fanout, follower = self._fanout, self._follower
        if self._seq < fanout.head:
            events = await self._take_durable(fanout.head)
            if events:
                return events
        # No await from here on: the snapshots and the emptied queue must be of the same moment.
        snapshots = fanout.snapshots()
        follower.queue = deque([fanout.head] if self._seq < fanout.head else [])
        follower.live_count = 0
        follower.live_chars = 0
        follower.needs_snapshot = False
        return snapshots

    def _take_live(self) -> list[Event]:
        """Take the queued live events, up to the next head whose events must be read first."""
        queue = self._follower.queue
        events: list[Event] = []
        while queue:
            item = queue[0]
            if not isinstance(item, int):
                events.append(item)
            elif item > self._seq:
                break
            queue.popleft()
        if events:
            self._follower.live_count -= len(events)
            self._follower.live_chars -= sum(map(chars_of, events))
        return events

    async def _take_head(self) -> list[Event]:
        """Return the durable events up to the head that is first in the queue, and the live events after them."""
        queue = self._follower.queue
        if not queue:
            return []
        head = queue[0]
        assert isinstance(head, int)  # noqa: S101  # ``_take_live`` leaves nothing else
        events = await self._take_durable(head)
        if events and self._seq < head:
            return events
        queue = self._follower.queue  # another one after an overflow
        if queue and queue[0] is head:
            queue.popleft()
        return [*events, *self._take_live()] if self._follower.queue else events

    async def _take_durable(self, upto: int) -> list[Event]:
        """Return the next durable events, from memory if all of them are there, otherwise a batch from the store."""
        events = self._fanout.recent_between(self._seq, upto)
        if not events:
            events = await self._read_stored(min(upto, self._seq + self._read_size))
            if not self._hub.has_writer(self._session):
                self._fanout.close_blocks(events)
        if events:
            self._seq = events[-1].seq
        return events

    async def _read_stored(self, upto: int) -> list[Event]:
        """Return the next events from the store, as many as are one batch; the next read asks for as many."""
        async with aclosing(self._hub.store.events.read(self._session, after=self._seq, upto=upto)) as stored:
            events = [event async for event in stored]
        size = sum(len(event.stored) for event in events)
        fitting = BATCH_BYTES * len(events) // max(size, 1)
        self._read_size = max(1, min(fitting, 2 * self._read_size, READ_BATCH))
        return take_batch(events)
