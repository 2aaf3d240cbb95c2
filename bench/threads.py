"""What the operations of ``runtime.threads`` take among many messages, with several writers at the same time."""

import asyncio
import os
import time
from collections.abc import Awaitable
from typing import Any, NamedTuple

import vaka
from bench import stores
from bench.measure import percentile, raised_niceness
from bench.messages import OPERATION_TARGET_MS, THREADS, WRITERS, Vocabulary, run_sql
from bench.row import Row
from vaka.core.ports.messages import MessageQuery, MessageSearch
from vaka.runtime.open_store import open_store
from vaka.runtime.runtime import Runtime

BATCH = 500


class TimedOperations:
    """The seconds of each operation."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}

    async def time(self, name: str, operation: Awaitable[Any], begun: float | None = None) -> Any:
        """Time an operation, from the moment it was due if that is given: waiting for its turn counts, too."""
        begun = time.perf_counter() if begun is None else begun
        result = await operation
        self.taken.setdefault(name, []).append(time.perf_counter() - begun)
        return result


async def fill_threads(runtime: Runtime, messages: int, vocabulary: Vocabulary) -> None:
    """Create threads of so many messages, and index their words."""
    for number in range(THREADS):
        await runtime.threads.create(id=f"thread-{number}", resource_id=f"owner-{number % 3}")
        for begun in range(0, messages, BATCH):
            await runtime.threads.append_many(
                f"thread-{number}",
                [
                    {"role": "user" if n % 2 == 0 else "assistant", "content": vocabulary.text(3, 60)}
                    for n in range(begun, min(begun + BATCH, messages))
                ],
            )
    await runtime.threads.search(MessageSearch(text=vocabulary.words[0]))


class Load(NamedTuple):
    """How writers work: at a steady rate each, or without a pause; in threads of their own, or in the same ones."""

    name: str
    rate: float = 0.0
    """Rounds of operations a second and writer; 0 for as many as possible."""
    shared: bool = False
    target: float | None = None


LOADS = (
    Load(f"{WRITERS} writers", rate=12.5, target=OPERATION_TARGET_MS),
    Load(f"{WRITERS} writers without a pause"),
    Load(f"{WRITERS} writers without a pause, in the same threads", shared=True),
)


async def work(runtime: Runtime, writer: int, count: int, times: TimedOperations, load: Load) -> None:
    """Use threads as an application does: most operations add and list messages."""
    threads, latest = runtime.threads, MessageQuery(reverse=True)
    due = time.perf_counter() + (writer / WRITERS / load.rate if load.rate else 0.0)
    for number in range(count):
        if load.rate:
            await asyncio.sleep(due - time.perf_counter())
        id = f"thread-{(writer + number) % THREADS if load.shared else writer}"
        message = {"role": "user", "content": f"message {number}", "id": f"{load.name} {writer} {number}"}
        await times.time("add a message", threads.add_message(id, message), due if load.rate else None)
        await times.time("list the newest 50", threads.get_messages(id, latest))
        await times.time("get a thread", threads.get(id))
        if number % 5 == 0:
            await times.time("change a thread", threads.update(id, metadata={"number": number}))
            await times.time("create a thread", threads.create(title="new", resource_id=f"new-{writer}"))
            await times.time("list the threads of an owner", threads.list(resource_id="owner-1"))
            await times.time("count a thread", threads.stats(id))
        due += 1 / load.rate if load.rate else 0.0


async def time_threads(url: str, kind: stores.StoreKind, total: int, count: int) -> dict[Load, TimedOperations]:
    """Fill a store and use it with ``WRITERS`` writers at the same time, under each load."""
    store, times = open_store(url, durability=kind.durability), {load: TimedOperations() for load in LOADS}
    try:
        async with vaka.Runtime(store=store) as runtime:
            await fill_threads(runtime, total // THREADS, Vocabulary())
            if kind is stores.POSTGRES:  # otherwise the server does so while the first operations are timed
                for statement in ("vacuum (analyze)", "checkpoint"):
                    await run_sql(url, statement)
            os.sync()  # commits do not wait for the disk to write what the store was filled with
            warmup = Load("warm-up", rate=LOADS[0].rate)  # connections are opened, and statements prepared
            await asyncio.gather(*(work(runtime, n, 5, TimedOperations(), warmup) for n in range(WRITERS)))
            for load, found in times.items():
                await asyncio.gather(*(work(runtime, n, count // WRITERS, found, load) for n in range(WRITERS)))
    finally:
        await store.close()
    return times


def measure_operations(quick: bool) -> list[Row]:
    """Measure SQLite in both durabilities, and PostgreSQL."""
    total, count = (10_000, 200) if quick else (100_000, 2000)
    rows: list[Row] = []
    with stores.temporary_folder() as home, raised_niceness() as priority, stores.run_postgres() as dsn:
        for kind in (stores.PROCESS, stores.POWER, stores.POSTGRES):
            if kind is stores.POSTGRES and dsn is None:
                rows.append(kind.missing_row("operations of threads"))
                continue
            url = stores.store_url_of(kind, home, dsn) if kind is stores.POSTGRES else stores.store_url_of(kind, home)
            for load, times in asyncio.run(time_threads(url, kind, total, count)).items():
                rows += _rows_of(kind, load, times, f"{total:,} messages in {THREADS} threads; {priority}")
    return rows


def _rows_of(kind: stores.StoreKind, load: Load, times: TimedOperations, note: str) -> list[Row]:
    pace = f"{load.rate * WRITERS:g} rounds a second; " if load.rate else ""
    return [
        kind.row(
            f"{name} p99, {load.name}",
            percentile(taken, 0.99) * 1e3,
            "ms",
            target=load.target,
            note=f"median {percentile(taken, 0.5) * 1e3:.3g} ms; {pace}{note}",
        )
        for name, taken in times.taken.items()
    ]
