"""Luau scripts: the time that vaka adds to a bare call into the VM, and the memory of many scripts."""

import asyncio
import itertools
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyluau
import vaka
from bench.measure import MedianRange, percentile, time_in_sequence
from bench.row import Row
from vaka.core.types.ids import JSON
from vaka.luau.pool import VmPool
from vaka.luau.program import Program, main_source, prelude_source, surfaces_of
from vaka.luau.protocol import HostFunction, Waiting
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.vm import VmRunner
from vaka.luau.worker import WorkerPool
from vaka.testing.models import ScriptedModel, call, say

CALL_US = 2.0
HOST_US = 3.0
OVERHEAD_US = 20.0
WORKER_US = 150.0
FIRST_MS = 1.0
SUSPENDED_MB = 400.0
OWN_MB = 250.0

TOOL = "function invoke(ctx, args) return { sum = args.a + args.b } end"
BARE = "return function(args) return { sum = args.a + args.b } end"
ASKS = "local count = ... for i = 1, count do ask(i) end"
GIVES_ASK = "local env, primitives = ... env.ask = function(...) return primitives.request('ask', ...) end"
WAITS = "ask()"


def make_program(source: str, **more: Any) -> Program:
    """Return a script whose only host function is ``ask``."""
    return Program(source, preludes=(GIVES_ASK,), trusted=True, **more)


def make_tool_program() -> Program:
    """Return a program as the tool runner makes it."""
    return Program(TOOL, preludes=(prelude_source(surfaces_of([TOOL])),), main=main_source(), trusted=True)


def time_call_us(function: Callable[[], object], count: int) -> MedianRange:
    """Return the microseconds of one call, in five rounds."""
    rounds: list[float] = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(count):
            function()
        rounds.append((time.perf_counter() - begun) / count * 1e6)
    return MedianRange.of(rounds)


def make_row(name: str, middle: MedianRange, target: float, unit: str = "µs", **more: Any) -> Row:
    return Row(name=name, value=middle.value, unit=unit, low=middle.low, high=middle.high, target=target, **more)


def measure_calls(quick: bool) -> list[Row]:
    """Measure calls in both directions, and the first use of a VM."""
    count = 5_000 if quick else 50_000
    with pyluau.State() as state:
        add = state.eval("function(a, b) return a + b end")
        state.register("host", _return_first)
        many = state.eval(f"function() for i = 1, {count} do host(1, 2) end end")
        out = time_call_us(lambda: add(1, 2), count)
        back = MedianRange.of([found / count for found in _time_several(many)])

    def first() -> None:
        with pyluau.State() as state:
            state.eval("local t = {} for i = 1, 10 do t[i] = i end return #t")

    begun = time_call_us(first, 20 if quick else 200)
    cold = MedianRange(begun.value / 1e3, begun.low / 1e3, begun.high / 1e3)
    return [
        make_row("Python calls Luau", out, CALL_US, note="two arguments"),
        make_row("Luau calls Python", back, HOST_US, note="two arguments"),
        make_row("first use: VM, compile, run", cold, FIRST_MS, "ms"),
    ]


def _return_first(a: int, b: int) -> int:
    return a


def _time_several(function: Callable[[], object]) -> list[float]:
    return [time_call_us(function, 1).value for _ in range(5)]


async def _time_runner(count: int) -> tuple[MedianRange, MedianRange]:
    vms, made = VmRunner(), make_tool_program()
    given: dict[str, JSON] = {"mode": "tool"}
    arguments = {"a": 1, "b": 2}

    async def run() -> None:
        values = await drive(vms.open(made), {}, NullJournal(), [given, arguments])
        assert values[0] == {"sum": 3}

    await time_in_sequence(run, 50)
    ours: list[float] = []
    bare: list[float] = []
    with pyluau.State() as state:
        function = state.eval(BARE)
        for _ in range(5):
            ours.append(statistics.median(await time_in_sequence(run, count)) * 1e6)
            bare.append(time_call_us(lambda: function(arguments), count).value)
    await vms.close()
    return MedianRange.of(ours), MedianRange.of(bare)


def measure_runner(quick: bool) -> list[Row]:
    """Measure a warm call of a tool through VM pool, prelude and scheduler, compared with a bare call."""
    ours, bare = asyncio.run(_time_runner(200 if quick else 2_000))
    return [
        Row(
            name="warm Luau tool: over the bare call",
            value=ours.value - bare.value,
            unit="µs",
            low=ours.low - bare.value,
            high=ours.high - bare.value,
            target=OVERHEAD_US,
            raw=bare.value,
            ratio=ours.value / bare.value,
            note="pool, prelude, scheduler; no session",
        )
    ]


async def _time_round_trips(count: int) -> list[float]:
    workers = WorkerPool(1)
    asked: list[float] = []

    async def ask(_: JSON) -> None:
        asked.append(time.perf_counter())

    try:
        functions = {"ask": HostFunction(ask, local=True)}
        await drive(workers.open(make_program(ASKS)), functions, NullJournal(), [10])
        asked.clear()
        await drive(workers.open(make_program(ASKS)), functions, NullJournal(), [count])
    finally:
        await workers.close()
    return [after - before for before, after in itertools.pairwise(asked)]


def measure_worker(quick: bool) -> list[Row]:
    """Measure a call from a script in a worker to its host and back."""
    trips = asyncio.run(_time_round_trips(500 if quick else 5_000))
    return [
        Row(name="worker round trip p50", value=percentile(trips, 0.5) * 1e6, unit="µs", target=WORKER_US),
        Row(name="worker round trip p99", value=percentile(trips, 0.99) * 1e6, unit="µs"),
    ]


def _peak_rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def _suspend_scripts(pool: VmPool, count: int) -> None:
    vms, made = VmRunner(pool), make_program(WAITS)
    scripts = [vms.open(made) for _ in range(count)]
    for script in scripts:
        assert isinstance(await script.start([], seed=1, at=0), Waiting)
    await asyncio.gather(*[script.answer(1, [], at=0) for script in scripts])
    await vms.close()


def measure_pooled(quick: bool) -> list[Row]:
    """Measure suspended scripts that share the VMs of a pool."""
    count, before = 1_000 if quick else 10_000, _peak_rss_mb()
    asyncio.run(_suspend_scripts(VmPool(max_vms=16), count))
    note = "whole process; raw: before the first"
    return [
        Row(
            name=f"{count} suspended scripts, 16 VMs: RSS",
            value=_peak_rss_mb(),
            unit="MB",
            target=SUSPENDED_MB,
            raw=before,
            note=note,
        )
    ]


def measure_own_vms(quick: bool) -> list[Row]:
    """Measure suspended scripts, each in its own VM."""
    count, before = 100 if quick else 1_000, _peak_rss_mb()
    asyncio.run(_suspend_scripts(VmPool(max_vms=count), count))
    note = "whole process; raw: before the first"
    return [
        Row(
            name=f"{count} VMs of their own: RSS", value=_peak_rss_mb(), unit="MB", target=OWN_MB, raw=before, note=note
        )
    ]


async def _time_sessions(runs: int) -> tuple[list[float], list[float]]:
    """Time a turn with one call: of a tool in Luau, and of the same tool in Python."""

    @vaka.tool(effect="read")
    async def python(a: int, b: int) -> dict[str, int]:
        """Add."""
        return {"sum": a + b}

    script = vaka.LuauTool(TOOL, name="luau")
    taken: dict[str, list[float]] = {"luau": [], "python": []}
    async with vaka.Runtime(store="memory:") as runtime:
        for number in range(runs + 20):
            for name, made in (("luau", script), ("python", python)):
                agent = vaka.Agent("a", model=ScriptedModel(call(name, a=1, b=2), say("done")), tools=[made])
                session = await runtime.open(agent)
                begun = time.perf_counter()
                await session.run("hi")
                if number >= 20:
                    taken[name].append(time.perf_counter() - begun)
    return taken["luau"], taken["python"]


def measure_session(quick: bool) -> list[Row]:
    """Measure a turn with a Luau tool, compared with the same tool in Python."""
    luau, python = asyncio.run(_time_sessions(50 if quick else 400))
    ours, raw = statistics.median(luau) * 1e3, statistics.median(python) * 1e3
    note = "in memory, everything recorded; raw: the same tool in Python"
    return [Row(name="a turn with a Luau tool", value=ours, unit="ms", raw=raw, ratio=ours / raw, note=note)]


def measure_scripts(quick: bool) -> list[Row]:
    """Measure everything except memory, which is measured in separate processes."""
    parts: Sequence[Callable[[bool], list[Row]]] = (measure_calls, measure_runner, measure_worker, measure_session)
    return [found for part in parts for found in part(quick)]
