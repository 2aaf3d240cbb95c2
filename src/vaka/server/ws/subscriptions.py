"""The subscriptions of a connection: one session, or every session of a namespace that changes."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing, nullcontext
from typing import Literal, TypeAlias

from vaka.core.ports.env import format_milliseconds
from vaka.core.ports.store import SessionInfo, SessionQuery, Store
from vaka.core.session.fanout import Follower
from vaka.core.session.follow import FollowerHub, Subscription
from vaka.core.types.control import StreamEnd, StreamReset
from vaka.core.types.errors import VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor, SessionId
from vaka.runtime.runtime import Runtime
from vaka.server.event_filter import EventFilter
from vaka.server.ws.outbound import OutboundQueue

_log = logging.getLogger("vaka.server")

POLL_SECONDS = 0.5
"""Seconds between two searches for sessions that have changed."""
POLL_PAGE = 200
CLOCK_TOLERANCE_MS = 2000
"""How far behind the latest change other processes may date theirs."""
IDLE_SECONDS = 30.0
"""Seconds without an event after which a subscription to all sessions no longer follows one of them."""
TAIL_EVENTS = 64


FeedEnd: TypeAlias = VakaError | Literal["idle", "closed", "deleted"]
"""Why a feed has ended."""


class SessionFeed:
    """Reads the events of one session into the queue of a connection, as fast as its client takes them."""

    def __init__(
        self,
        hub: FollowerHub,
        session: SessionId,
        after: Cursor,
        sub: str,
        chosen: EventFilter,
        queue: OutboundQueue,
        *,
        head: int = 0,
    ) -> None:
        """``head``: up to this event the log is replayed, one feed of the connection at a time."""
        self.session, self._head = session, head
        self.hub = hub
        self._after = after
        self._sub = sub
        self._queue = queue
        self._chosen = None if chosen.selects_all else chosen
        self._follower = Follower()
        self.seq, self.epoch = after.seq, after.epoch
        """The last stored event that was read."""

    @property
    def cursor(self) -> str:
        return str(Cursor(self.epoch, self.seq))

    async def run(self, idle_seconds: float | None = None) -> FeedEnd:
        """Read until the session is deleted, the hub is closed or, with ``idle_seconds``, nothing has come for so long.

        An error that cuts the session off is returned.
        """
        try:
            async with Subscription(self.hub, self.session, self._after, self._follower) as reader:
                while True:
                    async with self._queue.replaying if self.seq < self._head else nullcontext():
                        await self._queue.relief()
                        async with asyncio.timeout(idle_seconds):
                            events = await reader.next_batch()
                        if not events:
                            break
                        for event in events:
                            await self._put(event)
        except TimeoutError:
            return "idle"
        except VakaError as error:
            return error
        cause = self._follower.error
        if isinstance(cause, VakaError):
            return cause
        return "closed" if self.hub.closed.is_set() else "deleted"

    async def _put(self, event: Event) -> None:
        if event.seq:
            self.seq, self.epoch = event.seq, event.epoch
        elif isinstance(event.data, StreamReset):
            self.seq = 0
        if self._chosen is not None and not self._chosen.selects(event):
            return
        if self._queue.pressure:
            if not event.seq and not isinstance(event.data, StreamReset | StreamEnd):
                self._follower.needs_snapshot = True  # of every open block, when the client has caught up
                return
            await self._queue.relief()
        self._queue.put_event(self._sub, event)


class ChangedSessions:
    """Finds the sessions of one store that change, in this or another process, for all who watch.

    Only sessions that change cost time: the others are not read.
    """

    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        self._store, self._now_ms = store, now_ms
        self._watchers: set[Callable[[SessionInfo], None]] = set()
        self._task: asyncio.Task[None] | None = None

    def watch(self, watcher: Callable[[SessionInfo], None]) -> str:
        """Call ``watcher`` with each session that changes from now on; return the time of now."""
        self._watchers.add(watcher)
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        return format_milliseconds(self._now_ms())

    def unwatch(self, watcher: Callable[[SessionInfo], None]) -> None:
        self._watchers.discard(watcher)
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _poll(self) -> None:
        known: dict[SessionId, str] = {}
        since_ms = self._now_ms() - CLOCK_TOLERANCE_MS
        while True:
            started_ms = self._now_ms()
            try:
                changed = await self._list_changed(format_milliseconds(since_ms))
            except VakaError:  # the store cannot be reached now; the next search finds the same changes
                changed = None
            if changed is not None:
                for info in changed:
                    if known.get(info.id) != info.hash:
                        for watcher in list(self._watchers):
                            watcher(info)
                known = {info.id: info.hash for info in changed}
                since_ms = started_ms - CLOCK_TOLERANCE_MS
            await asyncio.sleep(POLL_SECONDS)

    async def _list_changed(self, since: str) -> list[SessionInfo]:
        found: list[SessionInfo] = []
        after = ""
        while True:
            query = SessionQuery(updated_after=since, limit=POLL_PAGE, after=after)
            page = await self._store.sessions.list(query)
            found.extend(page.sessions)
            after = page.next
            if not after:
                return found


class SessionChanges:
    """The searches for changed sessions of a server, one for each namespace that is watched."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, ChangedSessions] = {}

    def of(self, runtime: Runtime) -> ChangedSessions:
        """Return the search in the namespace of a runtime."""
        store, clock = runtime.store, runtime.env.clock
        changes = self._by_namespace.get(store.namespace)
        if changes is None:
            changes = ChangedSessions(store, lambda: int(clock.time() * 1000))
            self._by_namespace[store.namespace] = changes
        return changes


class AllSessionsFeed:
    """Reads the events of every session that changes and that the caller may see."""

    session = SessionId("*")

    def __init__(
        self,
        hub: FollowerHub,
        changes: ChangedSessions,
        may_see: Callable[[SessionInfo], bool],
        sub: str,
        chosen: EventFilter,
        queue: OutboundQueue,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._hub = hub
        self._changes = changes
        self._may_see = may_see
        self._idle_seconds = idle_seconds
        self._sub = sub
        self._chosen = chosen
        self._queue = queue
        self._seqs: dict[SessionId, int] = {}
        """The last event that was read of each session that has changed."""
        self._feeds: dict[SessionId, asyncio.Task[None]] = {}
        self._latest: dict[SessionId, SessionInfo] = {}
        """The last change of each session that is being read: its feed may end before it has seen it."""
        self._since = changes.watch(self._follow)

    @property
    def cursor(self) -> str:
        return ""

    def _follow(self, info: SessionInfo) -> None:
        if info.id in self._feeds:
            self._latest[info.id] = info
        elif self._seqs.get(info.id, -1) < info.head and self._may_see(info):
            self._feeds[info.id] = asyncio.create_task(self._read(info))

    async def _read(self, info: SessionInfo) -> None:
        try:
            after = self._seqs.get(info.id)
            if after is None:
                after = await self._last_before(info)
            feed = SessionFeed(self._hub, info.id, Cursor(0, after), self._sub, self._chosen, self._queue)
            if await feed.run(self._idle_seconds) == "deleted":
                self._seqs.pop(info.id, None)
            else:
                self._seqs[info.id] = feed.seq
        except VakaError as error:  # its next change is found again
            _log.warning("session %s cannot be followed: %s", info.id, error)
        finally:
            del self._feeds[info.id]
            latest = self._latest.pop(info.id, None)
        if latest is not None:
            self._follow(latest)

    async def _last_before(self, info: SessionInfo) -> int:
        """Return the seq of the last event before this feed began: the feed sends the events after it."""
        if info.created >= self._since:
            return 0
        upto, size = info.head, TAIL_EVENTS
        while upto > 0:
            start = max(0, upto - size)
            async with aclosing(self._hub.store.events.read(info.id, after=start, upto=upto)) as events:
                older = [event.seq async for event in events if event.ts < self._since]
            if older:
                return older[-1]
            upto, size = start, size * 2
        return 0

    async def run(self) -> FeedEnd:
        """Read until cancelled or until the hub is closed."""
        try:
            await self._hub.closed.wait()
        finally:
            self._changes.unwatch(self._follow)
            tasks = list(self._feeds.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return "closed"
