"""The message index: what it adds to a run, and what listing, adding and searching cost among many messages."""

import asyncio
import itertools
import random
import time
from bisect import bisect
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import asyncpg

from bench import agent_run, stores
from bench.measure import MedianRange, percentile, raised_priority, time_in_sequence
from bench.row import Row
from vaka.core.ports.messages import MessageFilter, MessageQuery, MessageSearch
from vaka.core.ports.store import Store
from vaka.core.session.hash_chain import seal_chain
from vaka.core.types.control import InputAdded
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope, MessageId, SessionId, Term, TurnId
from vaka.core.types.message import Text
from vaka.core.types.progress import MessageCompleted
from vaka.runtime.open_store import open_store
from vaka.stores.postgres import events as postgres_events
from vaka.stores.sqlite import rows as sqlite_rows

THREADS = 10
WRITERS = 8
OPERATION_TARGET_MS = 10.0
SEARCH_TARGET_MS = 30.0
UPKEEP_TARGET = 1.15
_TURN = EventScope(TurnId("trn_019a85b6e7c1f2"), 1)


class Vocabulary:
    """Words that occur as often as those of a language: the second one half as often as the first, and so on."""

    def __init__(self, size: int = 30_000) -> None:
        self.random = random.Random(1)
        self.words = ["".join(self.random.choices("abcdefghijklmnoprstuvw", k=2 + n % 7)) for n in range(size)]
        self._weights = list(itertools.accumulate(1 / (n + 1) for n in range(size)))

    def word(self) -> str:
        return self.words[bisect(self._weights, self.random.random() * self._weights[-1]) % len(self.words)]

    def text(self, least: int, most: int) -> str:
        return " ".join(self.word() for _ in range(self.random.randint(least, most)))


class ThreadWriter:
    """The writer of one session, which appends messages of a person and a model in turns."""

    def __init__(self, store: Store, session: str, vocabulary: Vocabulary) -> None:
        self._store = store
        self.session = SessionId(session)
        self._vocabulary = vocabulary
        self._last: Event | None = None
        self._term = Term(0)
        self._numbers = itertools.count()

    async def add(self, count: int = 1) -> float:
        """Append messages in one transaction and return the seconds until they were durable."""
        if not self._term:
            self._term = await self._store.events.claim(self.session)
        bodies: list[tuple[EventScope, Body]] = [(_TURN, self._make_message()) for _ in range(count)]
        events = seal_chain(self.session, self._last, bodies, "2026-01-01T00:00:00.000Z")
        head = self._last.seq if self._last else 0
        begun = time.perf_counter()
        await self._store.events.append(self.session, events, head=head, term=self._term)
        taken = time.perf_counter() - begun
        self._last = events[-1]
        return taken

    def _make_message(self) -> Body:
        number = next(self._numbers)
        if number % 2:
            content = (Text(text=self._vocabulary.text(20, 120)),)
            return MessageCompleted(message_id=MessageId(f"m{number}"), content=content, model="m", stop="end")
        return InputAdded(key=f"k{number}", content=(Text(text=self._vocabulary.text(3, 60)),))


async def fill_store(url: str, kind: stores.StoreKind, threads: int, messages: int, vocabulary: Vocabulary) -> None:
    """Write threads of so many messages, and index their words."""
    store = open_store(url, durability=kind.durability)
    try:
        for number in range(threads):
            writer = ThreadWriter(store, f"thread-{number}", vocabulary)
            for begun in range(0, messages, 100):
                await writer.add(min(100, messages - begun))
                await asyncio.sleep(0)
        await store.messages.search(MessageSearch(text=vocabulary.words[0]))
    finally:
        await store.close()


async def time_operation(operation: Callable[[], Awaitable[object]], count: int) -> list[float]:
    taken: list[float] = []
    for _ in range(count):
        begun = time.perf_counter()
        await operation()
        taken.append(time.perf_counter() - begun)
    return taken


async def time_operations(store: Store, vocabulary: Vocabulary, count: int, messages: int) -> dict[str, list[float]]:
    """Return the seconds of each operation; ``messages`` is the number of messages of a thread."""
    chosen = vocabulary.random

    def session() -> SessionId:
        return SessionId(f"thread-{chosen.randrange(THREADS)}")

    users = MessageQuery(filter=MessageFilter(role="user"), include_content=False)
    return {
        "list the newest 50": await time_operation(
            lambda: store.messages.list(session(), MessageQuery(reverse=True)), count
        ),
        "list 50 of one role": await time_operation(lambda: store.messages.list(session(), users), count),
        "find a message": await time_operation(
            lambda: store.messages.find(session(), f"k{2 * chosen.randrange(messages // 2)}"), count
        ),
        "count a thread": await time_operation(lambda: store.messages.stats(session()), max(count // 10, 5)),
    }


async def time_searches(store: Store, vocabulary: Vocabulary, count: int) -> dict[str, list[float]]:
    """Return the seconds of searches for words as they occur, and for the most common one."""
    common = vocabulary.words[0]
    tenant = store.with_namespace("tenant")
    await ThreadWriter(tenant, "theirs", vocabulary).add(50)
    return {
        "search a word": await time_operation(
            lambda: store.messages.search(MessageSearch(text=vocabulary.word())), count
        ),
        "search two words": await time_operation(
            lambda: store.messages.search(MessageSearch(text=f"{vocabulary.word()} {vocabulary.word()}")), count
        ),
        "search the most common word": await time_operation(
            lambda: store.messages.search(MessageSearch(text=common)), count
        ),
        "search in one thread": await time_operation(
            lambda: store.messages.search(MessageSearch(text=vocabulary.word(), session="thread-1")), count
        ),
        "search in a small namespace": await time_operation(
            lambda: tenant.messages.search(MessageSearch(text=common)), count
        ),
    }


class ThreadTimes(NamedTuple):
    """The seconds of all operations."""

    adds: list[float]
    operations: dict[str, list[float]]
    searches: dict[str, list[float]]
    priority: str


async def time_store(url: str, kind: stores.StoreKind, total: int, count: int, analyze: str = "") -> ThreadTimes:
    """Fill a store and measure it."""
    vocabulary = Vocabulary()
    await fill_store(url, kind, THREADS, total // THREADS, vocabulary)
    if analyze:
        await run_sql(url, analyze)
    with raised_priority() as priority:  # threads that the store starts from here on have it, too
        store = open_store(url, durability=kind.durability)
        try:
            adds = await asyncio.gather(
                *[add_often(ThreadWriter(store, f"new-{n}", vocabulary), count // WRITERS) for n in range(WRITERS)]
            )
            operations = await time_operations(store, vocabulary, count, total // THREADS)
            searches = await time_searches(store, vocabulary, max(count // 10, 20))
        finally:
            await store.close()
    return ThreadTimes([*itertools.chain(*adds)], operations, searches, priority)


async def add_often(writer: ThreadWriter, count: int) -> list[float]:
    """Return the seconds of many additions of one message."""
    taken: list[float] = []
    for _ in range(count):
        taken.append(await writer.add())
        await asyncio.sleep(0)
    return taken


async def run_sql(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(statement)
    await connection.close()


def measure_threads(quick: bool) -> list[Row]:
    """Measure SQLite in both durabilities, and PostgreSQL."""
    total, count = (10_000, 200) if quick else (100_000, 2000)
    rows: list[Row] = []
    with stores.temporary_folder() as home:
        for kind in (stores.PROCESS, stores.POWER):
            url = stores.store_url_of(kind, home)
            rows += _rows_of(kind, asyncio.run(time_store(url, kind, total, count)), total)
        with raised_priority(), stores.run_postgres() as dsn:  # the server's processes have it, too
            kind = stores.POSTGRES
            if dsn is None:
                return [*rows, kind.missing_row("threads")]
            found = asyncio.run(time_store(dsn, kind, total, count, "vacuum (analyze) vaka.messages"))
            return rows + _rows_of(kind, found, total)


def _rows_of(kind: stores.StoreKind, found: ThreadTimes, total: int) -> list[Row]:
    note = f"{total:,} messages in {THREADS} threads; {found.priority}"
    adds = percentile(found.adds, 0.99) * 1e3
    name = f"add a message p99, {WRITERS} writers"
    rows = [kind.row(name, adds, "ms", target=OPERATION_TARGET_MS, note=note)]
    for name, taken in found.operations.items():
        rows.append(kind.row(f"{name} p99", percentile(taken, 0.99) * 1e3, "ms", target=OPERATION_TARGET_MS, note=note))
    for name, taken in found.searches.items():
        rows.append(kind.row(f"{name} p95", percentile(taken, 0.95) * 1e3, "ms", target=SEARCH_TARGET_MS, note=note))
    return rows


@contextmanager
def without_index() -> Generator[None]:
    """Run the block with stores that write no message rows."""

    def select_nothing(_: object) -> list[Event]:
        return []

    async def encode_nothing(*_: object) -> list[dict[str, object]]:
        return []

    patches: list[tuple[ModuleType, str, object]] = [
        (sqlite_rows, "select_messages", select_nothing),
        (postgres_events, "encode_messages", encode_nothing),
    ]
    kept = [getattr(module, name) for module, name, _ in patches]
    for module, name, value in patches:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(patches, kept, strict=True):
            setattr(module, name, value)


async def compare_runs(kind: stores.StoreKind, home: Path, dsn: str | None, repeats: int, count: int) -> list[float]:
    """Return the cost of runs with the index relative to runs without it, measured in turns.

    The work of a server is in other processes, so its runs are timed; otherwise the CPU of this process counts.
    """
    clock = time.perf_counter if dsn else time.process_time
    url = stores.store_url_of(kind, home, dsn)
    ratios: list[float] = []
    async with agent_run.open_runner(url, kind.durability) as run:
        await time_in_sequence(run, 50)
        for _ in range(repeats):
            indexed = await _time_runs(run, count, clock)
            with without_index():
                plain = await _time_runs(run, count, clock)
            ratios.append(indexed / plain)
    return ratios


async def _time_runs(run: Callable[[], Awaitable[object]], count: int, clock: Callable[[], float]) -> float:
    """Return the mean seconds of runs: batches of words that are indexed meanwhile count."""
    begun = clock()
    await time_in_sequence(run, count)
    return (clock() - begun) / count


def measure_upkeep(quick: bool) -> list[Row]:
    """Measure what the index adds to a run with one tool call."""
    repeats, count = (5, 130) if quick else (31, 130)
    rows: list[Row] = []
    with stores.temporary_folder() as home, raised_priority() as priority:
        for kind in (stores.PROCESS, stores.POWER):
            ratios = MedianRange.of(asyncio.run(compare_runs(kind, home, None, repeats, count)))
            rows.append(_upkeep_row(kind, ratios, priority))
        with stores.run_postgres() as dsn:
            kind = stores.POSTGRES
            if dsn is None:
                return [*rows, kind.missing_row("message index")]
            ratios = MedianRange.of(asyncio.run(compare_runs(kind, home, dsn, repeats, count // 2)))
            return [*rows, _upkeep_row(kind, ratios, priority)]


def _upkeep_row(kind: stores.StoreKind, ratios: MedianRange, priority: str) -> Row:
    clock = "time" if kind is stores.POSTGRES else "CPU of this process"
    note = f"{clock} of a run with the message index relative to one without; {priority}"
    return kind.row(
        "run with message index", ratios.value, "×", target=UPKEEP_TARGET, low=ratios.low, high=ratios.high, note=note
    )


def measure_long_thread(quick: bool) -> list[Row]:
    """Measure one thread of a million messages, in a SQLite file."""
    total = 20_000 if quick else 1_000_000
    kind = stores.PROCESS
    with stores.temporary_folder() as home:
        return asyncio.run(_measure_long_thread(stores.store_url_of(kind, home), kind, total))


async def _measure_long_thread(url: str, kind: stores.StoreKind, total: int) -> list[Row]:
    vocabulary, session = Vocabulary(), SessionId("thread-0")
    await fill_store(url, kind, 1, total, vocabulary)
    rows: list[Row] = []
    with raised_priority() as priority:
        note = f"{total:,} messages in one thread; {priority}"
        store = open_store(url, durability=kind.durability)
        try:
            newest, number = MessageQuery(reverse=True), vocabulary.random.randrange
            times = {
                "list the newest 50": await time_operation(lambda: store.messages.list(session, newest), 500),
                "find a message": await time_operation(
                    lambda: store.messages.find(session, f"k{2 * number(total // 2)}"), 100
                ),
                "count the thread": await time_operation(lambda: store.messages.stats(session), 10),
                "search a word": await time_operation(
                    lambda: store.messages.search(MessageSearch(text=vocabulary.word())), 100
                ),
            }
        finally:
            await store.close()
    for name, taken in times.items():
        rows.append(kind.row(f"{name} p95, long thread", percentile(taken, 0.95) * 1e3, "ms", note=note))
    return rows
