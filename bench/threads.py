"""What the operations of ``runtime.threads`` take among many messages, with several writers at the same time."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

import vaka
from bench import stores
from bench.measure import percentile, raised_priority
from bench.messages import OPERATION_TARGET_MS, THREADS, WRITERS, Vocabulary
from bench.row import Row
from vaka.core.ports.messages import MessageQuery, MessageSearch
from vaka.runtime import lazy
from vaka.runtime.runtime import Runtime

BATCH = 500


class TimedOperations:
    """The seconds of each operation."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}

    async def time(self, name: str, operation: Awaitable[Any]) -> Any:
        begun = time.perf_counter()
        result = await operation
        self.taken.setdefault(name, []).append(time.perf_counter() - begun)
        return result


async def fill_threads(runtime: Runtime, messages: int, vocabulary: Vocabulary) -> None:
    """Create threads of so many messages, and index their words."""
    for number in range(THREADS):
        await runtime.threads.create(id=f"thread-{number}", resource_id=f"owner-{number % 3}")
        for begun in range(0, messages, BATCH):
            await runtime.threads.append_many(f"thread-{number}", [
                {"role": "user" if n % 2 == 0 else "assistant", "content": vocabulary.text(3, 60)}
                for n in range(begun, min(begun + BATCH, messages))
            ])  # fmt: skip
    await runtime.threads.search(MessageSearch(text=vocabulary.words[0]))


async def work(runtime: Runtime, writer: int, count: int, times: TimedOperations) -> None:
    """Use threads as an application does: most operations add and list messages."""
    threads, latest = runtime.threads, MessageQuery(reverse=True)
    for number in range(count):
        id = f"thread-{(writer + number) % THREADS}"
        message = {"role": "user", "content": f"message {number}", "id": f"{writer}-{number}"}
        await times.time("add a message", threads.add_message(id, message))
        await times.time("list the newest 50", threads.get_messages(id, latest))
        await times.time("get a thread", threads.get(id))
        if number % 5 == 0:
            await times.time("change a thread", threads.update(id, metadata={"number": number}))
            await times.time("create a thread", threads.create(title="new", resource_id=f"new-{writer}"))
            await times.time("list the threads of an owner", threads.list(resource_id="owner-1"))


async def time_threads(url: str, kind: stores.StoreKind, total: int, count: int) -> TimedOperations:
    """Fill a store and use it with ``WRITERS`` writers at the same time."""
    store, vocabulary, times = lazy.open_store(url, durability=kind.durability), Vocabulary(), TimedOperations()
    try:
        async with vaka.Runtime(store=store) as runtime:
            await fill_threads(runtime, total // THREADS, vocabulary)
            await asyncio.gather(*(work(runtime, writer, count // WRITERS, times) for writer in range(WRITERS)))
    finally:
        await store.close()
    return times


def measure_operations(quick: bool) -> list[Row]:
    """Measure SQLite in both durabilities, and PostgreSQL."""
    total, count = (10_000, 200) if quick else (100_000, 2000)
    rows: list[Row] = []
    with stores.temporary_folder() as home, raised_priority() as priority, stores.run_postgres() as dsn:
        for kind in (stores.PROCESS, stores.POWER, stores.POSTGRES):
            if kind is stores.POSTGRES and dsn is None:
                rows.append(kind.missing_row("operations of threads"))
                continue
            url = stores.store_url_of(kind, home, dsn) if kind is stores.POSTGRES else stores.store_url_of(kind, home)
            times = asyncio.run(time_threads(url, kind, total, count))
            note = f"{total:,} messages in {THREADS} threads; {priority}"
            rows += [
                kind.row(
                    f"{name} p99, {WRITERS} at a time", percentile(taken, 0.99) * 1e3, "ms",
                    target=OPERATION_TARGET_MS, note=note,
                )
                for name, taken in times.taken.items()
            ]  # fmt: skip
    return rows
