"""Timing functions. Standard library only: peers run in environments that have nothing else."""

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

HIGHEST_NICENESS = -20

RunOnce = Callable[[], Awaitable[object]]


@contextmanager
def raised_priority() -> Generator[str]:
    """Run the block and all processes it starts with real-time priority, where permitted; yield a note about it.

    Otherwise a measurement of a few milliseconds over several processes depends on the other load of the machine.
    """
    before, param = os.sched_getscheduler(0), os.sched_getparam(0)
    with _run_ahead(
        lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10)),
        lambda: os.sched_setscheduler(0, before, param),
    ) as note:
        yield note


@contextmanager
def raised_niceness() -> Generator[str]:
    """Run the block and all processes it starts ahead of ordinary ones, where permitted; yield a note about it.

    For a block that keeps a CPU busy: the kernel stops a real-time process that does so for 50 ms in each second.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with _run_ahead(
        lambda: os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_NICENESS),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, before),
    ) as note:
        yield note


@contextmanager
def _run_ahead(advance: Callable[[], None], restore: Callable[[], None]) -> Generator[str]:
    try:
        advance()
    except PermissionError:
        yield "among others"
        return
    try:
        yield "ahead of others"
    finally:
        restore()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class MedianRange(NamedTuple):
    """The median and the extremes of some repeats."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "MedianRange":
        return cls(statistics.median(values), min(values), max(values))


async def time_in_sequence(run: RunOnce, count: int) -> list[float]:
    """Return the seconds of each of ``count`` runs, one after the other."""
    taken: list[float] = []
    for _ in range(count):
        begun = time.perf_counter()
        await run()
        taken.append(time.perf_counter() - begun)
    return taken


async def rate_when_concurrent(run: RunOnce, count: int) -> float:
    """Return the runs per second of ``count`` concurrent runs."""
    begun = time.perf_counter()
    await asyncio.gather(*[run() for _ in range(count)])
    return count / (time.perf_counter() - begun)


def time_construction(make: Callable[[], object], count: int = 1000) -> float:
    """Return the median seconds of one construction."""
    for _ in range(count // 10):
        make()
    taken: list[float] = []
    for _ in range(count):
        begun = time.perf_counter()
        make()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def measure_object_size(make: Callable[[], object], count: int = 300) -> float:
    """Return the bytes of one object, without what all share."""
    objects = [make()]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    objects.extend(make() for _ in range(count))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / count


def subprocess_environment() -> dict[str, str]:
    """Return the environment for a process that writes .pyc files, as a user's would."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def time_process(statement: str, times: int = 9) -> float:
    """Return the seconds of a Python process that executes ``statement``, the minimum of ``times``."""
    command = [sys.executable, "-c", statement]
    subprocess.run(command, check=True, env=subprocess_environment())  # writes the .pyc files
    taken: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        subprocess.run(command, check=True, env=subprocess_environment())
        taken.append(time.perf_counter() - begun)
    return min(taken)


async def time_growth(
    turn: RunOnce, checkpoints: Sequence[int], *, sample: int = 5, seconds: float = 120.0
) -> dict[int, float]:
    """Return the CPU milliseconds of a turn at each checkpoint, the median of ``sample`` turns from there on.

    When the turns up to a checkpoint take more than ``seconds``, the turn that was reached is measured instead of it,
    and the checkpoints after it are missing.
    """
    found: dict[int, float] = {}
    done = 0
    for checkpoint in checkpoints:
        end = time.perf_counter() + seconds
        while done < checkpoint - 1 and time.perf_counter() < end:
            await turn()
            done += 1
        reached = done + 1
        taken: list[float] = []
        for _ in range(sample):
            begun = time.process_time()
            await turn()
            taken.append((time.process_time() - begun) * 1e3)
        done += sample
        found[reached] = statistics.median(taken)
        if reached < checkpoint:
            break
    return found
