"""Following a session: what is stored after a cursor, then what happens, with no gap and nothing twice."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from vaka.core.ports.store import Store
from vaka.core.session.cursor import Cursor
from vaka.core.session.fanout import Fanout, Follower
from vaka.core.types.control import StreamReset
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import MessageSnapshot


class Hub:
    """The followers of every session of one store in this process."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._fanouts: dict[SessionId, Fanout] = {}
        self._writers: dict[SessionId, int] = {}
        self._pumps: dict[SessionId, list[asyncio.Task[None]]] = {}

    def fanout(self, session: SessionId) -> Fanout:
        """Return the fanout of a session, made when it is first needed."""
        fanout = self._fanouts.get(session)
        if fanout is None:
            fanout = self._fanouts[session] = Fanout(session)
        return fanout

    def attach(self, session: SessionId) -> Fanout:
        """A writer in this process begins: followers hear from it directly."""
        fanout = self.fanout(session)
        self._writers[session] = self._writers.get(session, 0) + 1
        self._stop_pump(session)
        self.store.live.share(session, fanout.snapshots)
        return fanout

    def detach(self, session: SessionId) -> None:
        """The writer in this process is done."""
        self._writers[session] -= 1
        if self._writers[session]:
            return
        del self._writers[session]
        self.store.live.share(session, None)
        fanout = self.fanout(session)
        fanout.forget()
        if fanout.followers:
            self._start_pump(fanout)
        else:
            del self._fanouts[session]

    async def follow(
        self, session: SessionId, after: Cursor, follower: Follower | None = None
    ) -> AsyncGenerator[Event]:
        """Yield the durable events after a cursor, the open blocks, and then everything as it happens.

        It goes on until it is closed, or until the ``follower`` given here is told that it has ended.
        """
        fanout = self.fanout(session)
        follower = follower or Follower()
        fanout.followers.add(follower)
        if session not in self._writers:
            self._start_pump(fanout)
        try:
            seq = after.seq
            at_hand = session in self._writers and not after.epoch
            info = None if at_hand else await self.store.sessions.find(session)
            if info is not None:
                fanout.head = max(fanout.head, info.head)
                if after.epoch not in (0, info.epoch) or seq > info.head:
                    seq = 0
                    yield Event(data=StreamReset(reason=f"no event {after} here"), session=session, ts=info.updated)
            async with aclosing(self._pull(fanout, follower, seq)) as events:
                async for event in events:
                    yield event
        finally:
            fanout.followers.discard(follower)
            if not fanout.followers and session not in self._writers:
                self._stop_pump(session)
                self._fanouts.pop(session, None)

    async def close(self) -> None:
        """Stop listening for what other processes write."""
        tasks = [task for pump in self._pumps.values() for task in pump]
        for session in list(self._pumps):
            self._stop_pump(session)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pull(self, fanout: Fanout, follower: Follower, seq: int) -> AsyncGenerator[Event]:
        while True:
            if follower.behind:
                while seq < fanout.head:
                    async with aclosing(self._durable(fanout, seq, fanout.head)) as events:
                        async for event in events:
                            seq = event.seq
                            yield event
                # No await from here to the snapshots: they and the queue must mean the same moment.
                follower.queue.clear()
                follower.live, follower.behind = 0, False
                for event in fanout.snapshots():
                    yield event
            elif follower.queue:
                item = follower.queue.popleft()
                if isinstance(item, Event):
                    follower.live -= 1
                    yield item
                    continue
                if item > seq:
                    async with aclosing(self._durable(fanout, seq, item)) as events:
                        async for event in events:
                            seq = event.seq
                            yield event
            elif follower.ended:
                return
            else:
                follower.wake.clear()
                await follower.wake.wait()

    async def _durable(self, fanout: Fanout, after: int, upto: int) -> AsyncGenerator[Event]:
        recent = fanout.recent(after)
        if recent is not None:
            for event in recent:
                if event.seq <= upto:
                    yield event
            return
        async with aclosing(self.store.events.read(fanout.session, after=after, upto=upto)) as events:
            async for event in events:
                yield event

    def _start_pump(self, fanout: Fanout) -> None:
        if fanout.session not in self._pumps:
            self._pumps[fanout.session] = [
                asyncio.create_task(self._pump_heads(fanout)),
                asyncio.create_task(self._pump_blocks(fanout)),
            ]

    def _stop_pump(self, session: SessionId) -> None:
        for task in self._pumps.pop(session, ()):
            task.cancel()

    async def _pump_heads(self, fanout: Fanout) -> None:
        head = fanout.head
        while True:
            head = await self.store.events.wait(fanout.session, after=head)
            fanout.reach(head)

    async def _pump_blocks(self, fanout: Fanout) -> None:
        async with aclosing(self.store.live.watch(fanout.session)) as events:
            async for event in events:
                if isinstance(event.data, MessageSnapshot):
                    for follower in fanout.followers:
                        follower.push(event)
