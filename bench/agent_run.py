"""One run: a new session, a tool call and the answer."""

import asyncio
import cProfile
import pstats
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import vaka
from bench import bare_loop, stores
from bench.agents import AddingModel, make_agent
from bench.measure import MedianRange, RunOnce, percentile, rate_when_concurrent, time_in_sequence
from bench.row import Row
from vaka.config.options import Storage

CONCURRENT_RUNS = 100


class RunTimes(NamedTuple):
    """Results of sequential runs in milliseconds, and of concurrent runs per second."""

    p50: float
    p95: float
    cpu: float
    rate: float


class RunComparison(NamedTuple):
    """Results of vaka and of the bare loop, measured in turns under the same load."""

    ours: list[RunTimes]
    bare_loop: list[RunTimes]

    def ratio(self, field: str) -> float:
        """Return the cost of vaka relative to the bare loop, the median of all repeats."""
        pairs = [
            (getattr(mine, field), getattr(raw, field)) for mine, raw in zip(self.ours, self.bare_loop, strict=True)
        ]
        return MedianRange.of([raw / mine if field == "rate" else mine / raw for mine, raw in pairs]).value

    def row(self, kind: stores.StoreKind, field: str, name: str, unit: str, **more: Any) -> Row:
        """Return one of the numbers as a row."""
        middle = MedianRange.of([getattr(block, field) for block in self.ours])
        raw = MedianRange.of([getattr(block, field) for block in self.bare_loop]).value
        return kind.row(
            name, middle.value, unit, low=middle.low, high=middle.high, raw=raw, ratio=self.ratio(field), **more
        )


async def measure_runs(run: RunOnce, count: int) -> RunTimes:
    begun = time.process_time()
    taken = await time_in_sequence(run, count)
    cpu = (time.process_time() - begun) / count
    rate = await rate_when_concurrent(run, CONCURRENT_RUNS)
    return RunTimes(percentile(taken, 0.5) * 1e3, percentile(taken, 0.95) * 1e3, cpu * 1e3, rate)


@asynccontextmanager
async def open_runner(url: str, durability: Literal["power", "process"]) -> AsyncIterator[RunOnce]:
    """Yield a function that runs the agent once, in a new session."""
    made = make_agent()
    async with vaka.Runtime(store=url, storage=Storage(durability=durability)) as runtime:

        async def run() -> None:
            session = await runtime.open(made)
            response = await session.run("hi")
            assert response.text == "done"

        yield run


async def compare_with_bare_loop(
    kind: stores.StoreKind, home: Path, dsn: str | None, repeats: int, count: int
) -> RunComparison:
    """Measure both in turns."""
    found = RunComparison([], [])
    async with (
        stores.open_sink(kind, home, dsn) as sink,
        open_runner(stores.store_url_of(kind, home, dsn), kind.durability) as run,
    ):
        loop = bare_loop.BareLoop(sink, AddingModel())
        await time_in_sequence(run, 30)
        await time_in_sequence(loop.run, 30)
        for _ in range(repeats):
            found.ours.append(await measure_runs(run, count))
            found.bare_loop.append(await measure_runs(loop.run, count))
    return found


def rows_for_store(kind: stores.StoreKind, found: RunComparison) -> list[Row]:
    return [
        found.row(kind, "p50", "run p50", "ms", target=kind.run_target_ms, note="raw: a bare loop"),
        found.row(kind, "p95", "run p95", "ms"),
        found.row(kind, "cpu", "run, CPU of this process", "ms", note="does not wait for other processes"),
        found.row(kind, "rate", f"{CONCURRENT_RUNS} runs at once", "runs/s", target=kind.rate_target, better="high"),
    ]


def measure_run(quick: bool) -> list[Row]:
    """All stores."""
    repeats, count = (3, 100) if quick else (5, 400)
    rows: list[Row] = []
    with stores.temporary_folder() as home:
        for kind in stores.LOCAL:
            rows += rows_for_store(kind, asyncio.run(compare_with_bare_loop(kind, home, None, repeats, count)))
        with stores.run_postgres() as dsn:
            kind = stores.POSTGRES
            if dsn is None:
                return [*rows, kind.missing_row("run")]
            rows += rows_for_store(kind, asyncio.run(compare_with_bare_loop(kind, home, dsn, repeats, count // 2)))
    return rows


class CommitCount(NamedTuple):
    commits: float
    pages: float


def count_wal_commits(wal: Path) -> CommitCount:
    """Count the commits and pages in a write-ahead log since its last checkpoint, from its bytes."""
    data = wal.read_bytes()
    page, salts = struct.unpack_from(">I", data, 8)[0], data[16:24]
    commits = pages = 0
    for at in range(32, len(data), 24 + page):
        if data[at + 8 : at + 16] != salts:
            break
        pages += 1
        commits += struct.unpack_from(">I", data, at + 4)[0] != 0
    return CommitCount(commits, pages)


async def count_commits(home: Path, runs: int = 10) -> CommitCount:
    """Return the commits of a warm run in a new session, counted in SQLite's write-ahead log."""
    path = home / "counted.db"
    wal = path.with_name("counted.db-wal")
    async with open_runner(f"sqlite:///{path}", "power") as run:
        await time_in_sequence(run, 2)
        before = count_wal_commits(wal)
        await time_in_sequence(run, runs)
        after = count_wal_commits(wal)
    return CommitCount((after.commits - before.commits) / runs, (after.pages - before.pages) / runs)


async def count_function_calls(runs: int = 50) -> float:
    """Return the number of Python and C function calls of a warm run in memory, independent of the machine."""
    async with open_runner("memory:", "power") as run:
        await time_in_sequence(run, 20)
        profile = cProfile.Profile()
        profile.enable()
        await time_in_sequence(run, runs)
        profile.disable()
    total: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]  # typeshed does not know it
    return total / runs


def measure_commits(quick: bool) -> list[Row]:
    """Measure commits, pages and function calls of one run."""
    with stores.temporary_folder() as home:
        found = asyncio.run(count_commits(home))
    calls = asyncio.run(count_function_calls())
    note = "new session, one tool call; counted in the write-ahead log"
    return [
        stores.POWER.row("commits per run", found.commits, target=4.0, better="equal", note=note),
        stores.POWER.row("pages per run", found.pages, "4 KiB"),
        stores.MEMORY.row("function calls per run", calls, note="Python's and C's, counted by the profiler"),
    ]
