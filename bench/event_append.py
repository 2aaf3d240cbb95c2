"""One durable append: four events of typical size, to one of many sessions."""

import asyncio
import itertools
import time
from pathlib import Path

from bench import bare_loop, stores
from bench.measure import percentile
from bench.row import Row
from vaka.core.ports.store import Store
from vaka.core.session.hash_chain import seal_chain
from vaka.core.types.control import SessionOpened
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope, MessageId, SessionId, Term, TurnId
from vaka.core.types.message import Text, Usage
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.progress import MessageCompleted, StepCompleted, StepStarted
from vaka.runtime.open_store import open_store

TARGETS_MS = {"SQLite": 1.0, "PostgreSQL": 5.0}
_TURN = EventScope(TurnId("trn_019a85b6e7c1f2"), 1)


class SessionWriter:
    """The writer of one session."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, SessionId(session)
        self._term = Term(0)
        self._last: Event | None = None
        self._numbers = itertools.count(1)

    async def open_session(self) -> None:
        """Claim the session and write its first event."""
        self._term = await self._store.events.claim(self._session)
        await self._write(SessionOpened(agent="adder"))

    async def append(self) -> float:
        """Append four events and return the seconds until they were durable; sealing them is not counted."""
        number = next(self._numbers)
        return await self._write(
            MessageCompleted(
                message_id=MessageId(f"msg_{number}"), content=(Text(text="It is three." * 4),), model="m", stop="end"
            ),
            UsageRecorded(model="m", usage=Usage(input=100, output=20), agent="adder"),
            StepCompleted(number=number),
            StepStarted(agent="adder", number=number + 1, model="m"),
        )

    async def _write(self, *bodies: Body) -> float:
        events = seal_chain(self._session, self._last, [(_TURN, body) for body in bodies], "2026-01-01T00:00:00.000Z")
        head = self._last.seq if self._last else 0
        begun = time.perf_counter()
        await self._store.events.append(self._session, events, head=head, term=self._term)
        taken = time.perf_counter() - begun
        self._last = events[-1]
        return taken


async def time_appends(url: str, kind: stores.StoreKind, sessions: int, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds of sequential appends, and of concurrent appends to all sessions."""
    store = open_store(url, durability=kind.durability)
    try:
        writers = [SessionWriter(store, f"ses_{url[-6:-3]}_{number}") for number in range(sessions)]
        for writer in writers:
            await writer.open_session()
            await writer.append()
        alone = [await writer.append() for _ in range(max(count // sessions, 1)) for writer in writers]
        together: list[float] = []
        for _ in range(max(count // sessions, 5)):
            together += await asyncio.gather(*[writer.append() for writer in writers])
        return alone, together
    finally:
        await store.close()


def time_bare_commits(path: Path, synchronous: str, sessions: int, count: int) -> list[float]:
    """Return the seconds of bare commits of the same bytes."""
    sink = bare_loop.SqliteSink(path, synchronous)
    rows = bare_loop.make_batch()
    taken = []
    for number in range(count):
        begun = time.perf_counter()
        sink.commit(f"ses_{number % sessions}", number // sessions * len(rows), rows)
        taken.append(time.perf_counter() - begun)
    return taken


async def time_bare_postgres(dsn: str, sessions: int, count: int) -> list[float]:
    """Return the seconds of bare transactions with the same bytes."""
    sink = await bare_loop.PostgresSink.open(dsn)
    rows = bare_loop.make_batch()
    taken = []
    for number in range(count):
        begun = time.perf_counter()
        await sink.append(f"ses_{number % sessions}", number // sessions * len(rows), rows)
        taken.append(time.perf_counter() - begun)
    await sink.close()
    return taken


def measure_append(quick: bool) -> list[Row]:
    """Measure SQLite in both durabilities, and PostgreSQL."""
    count = 300 if quick else 2000
    rows: list[Row] = []
    with stores.temporary_folder() as home:
        for kind in (stores.PROCESS, stores.POWER):
            for sessions in (1, 100):
                place = home / f"{kind.survives}-{sessions}"
                raw = time_bare_commits(place.with_suffix(".bare"), kind.synchronous, sessions, count)
                found = asyncio.run(time_appends(f"sqlite:///{place}.db", kind, sessions, count))
                rows += _rows(kind, sessions, *found, raw)
    with stores.run_postgres() as dsn:
        kind = stores.POSTGRES
        if dsn is None:
            return [*rows, kind.missing_row("append")]
        raw = asyncio.run(time_bare_postgres(dsn, 100, count))
        return rows + _rows(kind, 100, *asyncio.run(time_appends(dsn, kind, 100, count)), raw)


def _rows(
    kind: stores.StoreKind, sessions: int, alone: list[float], together: list[float], raw: list[float]
) -> list[Row]:
    rows: list[Row] = []
    for share, target in ((0.5, None), (0.99, TARGETS_MS[kind.store])):
        ours, theirs = percentile(alone, share) * 1e3, percentile(raw, share) * 1e3
        name = f"append p{share * 100:.0f}, {sessions} session{'s in turn' if sessions > 1 else ''}"
        note = "raw: a bare transaction with as many bytes"
        rows.append(kind.row(name, ours, "ms", target=target, raw=theirs, ratio=ours / theirs, note=note))
    if sessions > 1:
        value = percentile(together, 0.99) * 1e3
        note = "each waits for the commits of its tick"
        rows.append(kind.row(f"append p99, {sessions} at once", value, "ms", note=note))
    return rows
