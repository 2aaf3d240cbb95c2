"""What a turn costs after many turns of its session: in one runtime, and in a new one that reads the session first.

Also the memory that a runtime holds for a session between its turns.
"""

import asyncio
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import vaka
from bench import stores
from bench.agents import AddingModel, add, make_agent
from bench.later_turns import count_later_turn
from bench.measure import time_growth
from bench.row import Row
from vaka.config.options import Storage

CHECKPOINTS = (1, 10, 100, 1_000, 5_000)
QUICK_CHECKPOINTS = (1, 10, 100)
COLD_REPEATS = 3
LONG_RESULT = "a line of output that a tool has printed\n" * 400
SECONDS = 240.0
WARM_SESSIONS, WARM_TURNS = 200, 10
MODEL_SECONDS = 0.05


async def read_page() -> str:
    """Return a page of text."""
    return LONG_RESULT


def make_long_agent() -> vaka.Agent:
    """Return an agent whose tool returns 16 KiB in every turn."""
    return vaka.Agent("reader", model=AddingModel(tool="read_page", arguments="{}"), tools=[read_page])


def make_parent_agent() -> vaka.Agent:
    """Return an agent whose tool is another agent, which calls a tool itself."""
    child = vaka.Agent("adder", description="Adds numbers.", model=AddingModel(), tools=[add])
    return vaka.Agent("parent", model=AddingModel(tool="adder", arguments='{"prompt":"add"}'), tools=[child])


class Workload(NamedTuple):
    """An agent, the session it works in, and the turns at which it is measured."""

    session: str
    name: str
    make: Callable[[], vaka.Agent]
    checkpoints: tuple[int, ...]


WORKLOADS = (
    Workload("plain", "turn {}", make_agent, CHECKPOINTS),
    Workload("results", "turn {} with results of 16 KiB", make_long_agent, (1, 10, 100, 1_000)),
    Workload("children", "turn {} with a child agent", make_parent_agent, (1, 10, 100, 1_000)),
)


async def measure_workload(
    kind: stores.StoreKind, url: str, workload: Workload, checkpoints: Sequence[int]
) -> dict[int, float]:
    """Return the CPU milliseconds of a turn at each checkpoint of one session."""
    async with vaka.Runtime(store=url, storage=Storage(durability=kind.durability)) as runtime:
        agent = workload.make()
        for _ in range(3):
            await (await runtime.open(agent)).run("hi")  # imports and caches
        session = await runtime.open(agent, id=workload.session)

        async def turn() -> None:
            await session.run("hi")

        return await time_growth(turn, checkpoints, seconds=SECONDS)


async def measure_cold_turn(kind: stores.StoreKind, url: str, workload: Workload) -> float:
    """Return the CPU milliseconds of a turn in a new runtime, which reads the session, less those of a new session."""
    taken: list[float] = []
    for _ in range(COLD_REPEATS):
        async with vaka.Runtime(store=url, storage=Storage(durability=kind.durability)) as runtime:
            agent = workload.make()
            await (await runtime.open(agent)).run("hi")
            known = await runtime.open(agent, id=workload.session)
            costs: list[float] = []
            for session in (known, await runtime.open(agent)):
                begun = time.process_time()
                await session.run("hi")
                costs.append((time.process_time() - begun) * 1e3)
            taken.append(costs[0] - costs[1])
    return statistics.median(taken)


async def measure_store(kind: stores.StoreKind, home: Path, dsn: str | None, *, quick: bool) -> list[Row]:
    rows: list[Row] = []
    url = stores.store_url_of(kind, home, dsn)
    for workload in WORKLOADS:
        checkpoints = [at for at in workload.checkpoints if not quick or at <= QUICK_CHECKPOINTS[-1]]
        found = await measure_workload(kind, url, workload, checkpoints)
        first = found[checkpoints[0]]
        for at, cost in found.items():
            name, target = workload.name.format(f"{at:,}"), 1.3 * first if at == 1_000 else None
            note = "CPU of this process; ratio: to turn 1"
            rows.append(kind.row(name, cost, "ms", ratio=cost / first, raw=first, target=target, note=note))
        if kind.store != "memory":
            cost, turns = await measure_cold_turn(kind, url, workload), max(found)
            rows.append(kind.row(f"read a session of {turns:,} turns: {workload.name.format('…')}", cost, "ms"))
    counts = await count_later_turn(20, url, MODEL_SECONDS)
    note = f"a model call takes {MODEL_SECONDS * 1e3:.0f} ms; the log has {20 * 14 + 1} events"
    rows.append(kind.row("events read by turn 20", counts.events_read, target=0.0, better="equal", note=note))
    return rows


async def measure_warm_session(url: str, sessions: int) -> float:
    """Return the bytes that a runtime holds for a session between its turns, without what all sessions share."""
    async with vaka.Runtime(store=url, storage=Storage(durability="process")) as runtime:
        agent = make_agent()

        async def run_sessions(count: int) -> None:
            for _ in range(count):
                session = await runtime.open(agent)
                for _ in range(WARM_TURNS):
                    await session.run("hi")
            gc.collect()

        await run_sessions(10)
        tracemalloc.start()
        await run_sessions(10)  # caches that are replaced from now on were traced, too
        before = tracemalloc.get_traced_memory()[0]
        await run_sessions(sessions)
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return grown / sessions


def measure_growth(quick: bool) -> list[Row]:
    """Measure every store that is here."""
    rows: list[Row] = []
    for kind in (stores.MEMORY, stores.PROCESS):
        with stores.temporary_folder() as home:
            rows += asyncio.run(measure_store(kind, home, None, quick=quick))
    with stores.temporary_folder() as home:
        url = stores.store_url_of(stores.PROCESS, home)
        size = asyncio.run(measure_warm_session(url, 50 if quick else WARM_SESSIONS))
    note = "tracemalloc; 4 messages and 14 events a turn"
    rows.append(stores.PROCESS.row(f"a warm session of {WARM_TURNS} turns", size / 1024, "KiB", note=note))
    with stores.temporary_folder() as home, stores.run_postgres() as dsn:
        if dsn is None:
            return [*rows, stores.POSTGRES.missing_row("turn")]
        rows += asyncio.run(measure_store(stores.POSTGRES, home, dsn, quick=quick))
    return rows
