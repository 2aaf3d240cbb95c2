"""``UsageTotals``: the usage of a tenant's sessions by day, model and agent, of which each event is read once."""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from datetime import datetime, timedelta

import msgspec

from vaka.core.ports.store import SessionInfo, SessionQuery, Store
from vaka.core.types.context import ContextCompacted
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Usage
from vaka.core.types.monitor import CacheBusted, UsageRecorded
from vaka.runtime.stats import CacheLoss, loss_by_cause, merge_sums

PAGE_SIZE = 200
CLOCK_SKEW = timedelta(minutes=1)


class UsageKey(msgspec.Struct, frozen=True):
    """The key by which usage is counted; ``day`` has the form ``2026-01-31``, in UTC."""

    day: str
    model: str
    agent: str


class UsageCount(msgspec.Struct, frozen=True):
    """The sum of some model calls."""

    usage: Usage = Usage()
    calls: int = 0

    def __add__(self, other: "UsageCount") -> "UsageCount":
        return UsageCount(self.usage + other.usage, self.calls + other.calls)


class SessionUsage:
    """The usage of one session up to its event ``head``."""

    def __init__(self, info: SessionInfo) -> None:
        self.epoch = info.epoch
        self.owner = info.owner
        self.head = 0
        self.counts: dict[UsageKey, UsageCount] = {}
        self.cache_busts: dict[str, CacheLoss] = {}
        self.compactions = 0

    def add(self, event: Event) -> None:
        """Count the next event."""
        body = event.data
        if isinstance(body, UsageRecorded):
            key = UsageKey(event.ts[:10], body.model, body.agent)
            self.counts[key] = self.counts.get(key, UsageCount()) + UsageCount(body.usage, 1)
        elif isinstance(body, CacheBusted):
            self.cache_busts = merge_sums(self.cache_busts, loss_by_cause(body))
        elif isinstance(body, ContextCompacted):
            self.compactions += 1


class UsageTotals:
    """The usage of the sessions of one tenant. The first question reads their logs, later ones what is new.

    A session that another process deletes still counts here until the server starts again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[SessionId, SessionUsage] = {}
        self._known_since: str | None = None
        """All sessions that changed after this time have been read; ``None``: no session."""
        self._seen = ""
        """The time of the last change that was seen."""
        self._lock = asyncio.Lock()

    async def read(self, since: str = "", owner: str = "") -> dict[SessionId, SessionUsage]:
        """Return the usage of sessions that changed after a time (RFC 3339), of one owner or of all."""
        async with self._lock:
            if self._known_since is None or since < self._known_since:
                await self._update(since)
                self._known_since = since
            else:
                await self._update(self._seen)
        return {id: each for id, each in self._sessions.items() if owner in ("", each.owner)}

    async def read_session(self, info: SessionInfo) -> SessionUsage:
        """Return the usage of one session."""
        async with self._lock:
            return await self._read_new(info)

    def forget(self, session: SessionId) -> None:
        """Drop a session that was deleted."""
        self._sessions.pop(session, None)

    async def _update(self, since: str) -> None:
        after, newest = "", self._seen
        while True:
            query = SessionQuery(updated_after=_some_time_before(since), limit=PAGE_SIZE, after=after)
            page = await self._store.sessions.list(query)
            for info in page.sessions:
                newest = max(newest, info.updated)
                await self._read_new(info)
            after = page.next
            if not after:
                self._seen = newest
                return

    async def _read_new(self, info: SessionInfo) -> SessionUsage:
        known = self._sessions.get(info.id)
        if known is None or known.epoch != info.epoch or known.head > info.head:
            known = self._sessions[info.id] = SessionUsage(info)
        known.owner = info.owner
        if known.head < info.head:
            async with aclosing(self._store.events.read(info.id, after=known.head, upto=info.head)) as events:
                async for event in events:
                    if event.session == info.id:  # not copied by a fork
                        known.add(event)
            known.head = info.head
        return known


def _some_time_before(time: str) -> str:
    """Return the time ``CLOCK_SKEW`` before one; the clocks of the processes that write are not the same."""
    return (datetime.fromisoformat(time) - CLOCK_SKEW).isoformat() if time else ""


def sum_counts(counts: Iterable[tuple[str, UsageCount]]) -> dict[str, UsageCount]:
    """Return the sums by name."""
    sums: dict[str, UsageCount] = {}
    for name, count in counts:
        sums[name] = sums.get(name, UsageCount()) + count
    return sums
