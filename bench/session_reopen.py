"""Reopening a long session reads only its tail: rows are counted, not timed."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from bench import stores
from bench.row import Row
from vaka.core.ports.store import EventStore, SessionIndex, SessionInfo, SnapshotStore, Store
from vaka.core.session.fanout import Fanout
from vaka.core.session.log import SessionLog
from vaka.core.session.snapshot import reopen
from vaka.core.types.context import ContextCompacted
from vaka.core.types.control import InputAdded
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope, MessageId, SessionId, TurnId
from vaka.core.types.message import Text
from vaka.core.types.progress import MessageCompleted, StepCompleted, StepStarted, TurnCompleted, TurnStarted
from vaka.runtime.clock import SystemClock
from vaka.runtime.open_store import open_store

MAX_ROWS = 1300
EVENTS_BETWEEN_COMPACTIONS = 5000
SESSION = SessionId("ses_long")


class CountingStore:
    """The reading methods of a store, which count the rows they return."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rows = 0
        self.events: EventStore = self  # type: ignore[assignment]  # reopening only reads
        self.snapshots: SnapshotStore = self  # type: ignore[assignment]  # reopening only loads
        self.sessions: SessionIndex = self  # type: ignore[assignment]  # reopening only finds

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        async with aclosing(self._store.events.read(session, after=after, upto=upto)) as events:
            async for event in events:
                self.rows += 1
                yield event

    async def select(self, session: SessionId, seqs: Sequence[int], *, digest: str) -> Sequence[Event]:
        self.rows += len(seqs)
        return await self._store.events.select(session, seqs, digest=digest)

    async def load(self, session: SessionId, *, version: str, upto: int | None = None) -> tuple[int, bytes] | None:
        self.rows += 1
        return await self._store.snapshots.load(session, version=version, upto=upto)

    async def find(self, session: SessionId) -> SessionInfo | None:
        self.rows += 1
        return await self._store.sessions.find(session)


def _turn_events(number: int) -> list[Body]:
    key, text = f"inp_{number}", f"The answer to question {number} is {number}."
    return [
        InputAdded(key=key, content=(Text(text=f"Question {number}?"),)),
        TurnStarted(agent="adder", inputs=(key,)),
        StepStarted(agent="adder", number=1, model="m"),
        MessageCompleted(message_id=MessageId(f"msg_{number}"), content=(Text(text=text),), model="m", stop="end"),
        StepCompleted(number=1),
        TurnCompleted(text=text),
    ]


async def write_long_session(store: Store, events: int, tail: int) -> int:
    """Write a session of turns with compactions, the last one ``tail`` events before the end."""
    log = SessionLog(store, SESSION, Fanout(SESSION), SystemClock())
    log.begin_writing(await store.events.claim(SESSION), await reopen(store, SESSION))
    number, last = 0, events - tail
    due: float = EVENTS_BETWEEN_COMPACTIONS
    while log.head < events:
        number += 1
        await log.append(EventScope(TurnId(f"trn_{number}")), *_turn_events(number))
        if log.head >= due:
            due = min(log.head + EVENTS_BETWEEN_COMPACTIONS, last) if log.head < last else math.inf
            await log.append(EventScope(), ContextCompacted(summary="They talked about numbers.", keep_from=log.head))
    await log.append(EventScope(), release=True)
    return log.head


async def count_rows_read(events: int, tail: int, url: str = "memory:") -> tuple[int, int, float]:
    """Return the length of the log, the rows that reopening it reads, and the seconds it takes."""
    store = open_store(url, durability="process")
    try:
        head = await write_long_session(store, events, tail)
        counting = CountingStore(store)
        begun = time.perf_counter()
        opened = await reopen(counting, SESSION)  # type: ignore[arg-type]  # it has the methods that reopen uses
        taken = time.perf_counter() - begun
        assert opened.last is not None
        assert opened.last.seq == head
        return head, counting.rows, taken
    finally:
        await store.close()


def measure_reopen(quick: bool) -> list[Row]:
    """A session of a hundred thousand events."""
    events = 20_000 if quick else 100_000
    with stores.temporary_folder() as home:
        head, read, taken = asyncio.run(count_rows_read(events, 990, f"sqlite:///{home / 'long.db'}"))
    note = f"{head:,} events, the last compaction 990 before the end"
    return [
        stores.PROCESS.row("rows read to reopen", read, target=MAX_ROWS, note=note),
        stores.PROCESS.row("reopen", taken * 1e3, "ms"),
    ]
