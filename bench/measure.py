"""How everything here is timed. Standard library only: peers run in environments that have nothing else."""

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

RunOnce = Callable[[], Awaitable[object]]


@contextmanager
def raised_priority() -> Generator[str]:
    """Go before everybody else on this machine, with all that is started here, and say so; nothing where one may not.

    What takes several processes a few milliseconds is otherwise a measurement of whoever else is at work.
    """
    before = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))
    except PermissionError:
        yield "among others"
        return
    try:
        yield "ahead of others"
    finally:
        os.sched_setscheduler(0, before, os.sched_param(0))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class MedianRange(NamedTuple):
    """The median of some repeats, and how far they lie apart."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "MedianRange":
        """Sum up repeats."""
        return cls(statistics.median(values), min(values), max(values))


async def time_in_sequence(run: RunOnce, count: int) -> list[float]:
    """Return how many seconds each of ``count`` runs took, one after the other."""
    taken: list[float] = []
    for _ in range(count):
        begun = time.perf_counter()
        await run()
        taken.append(time.perf_counter() - begun)
    return taken


async def rate_when_concurrent(run: RunOnce, count: int) -> float:
    """Return how many runs a second were done when ``count`` began at once."""
    begun = time.perf_counter()
    await asyncio.gather(*[run() for _ in range(count)])
    return count / (time.perf_counter() - begun)


def time_construction(make: Callable[[], object], count: int = 1000) -> float:
    """Return the median of the seconds it takes to make one."""
    for _ in range(count // 10):
        make()
    taken: list[float] = []
    for _ in range(count):
        begun = time.perf_counter()
        make()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def measure_object_size(make: Callable[[], object], count: int = 300) -> float:
    """Return how many bytes one keeps, once everything they share is there."""
    kept = [make()]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept.extend(make() for _ in range(count))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / count


def subprocess_environment() -> dict[str, str]:
    """Return our environment for a process that may write its .pyc files, as a user's would."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def time_process(statement: str, times: int = 9) -> float:
    """Return the shortest of the seconds a Python process takes from its start to its end with ``statement``."""
    command = [sys.executable, "-c", statement]
    subprocess.run(command, check=True, env=subprocess_environment())  # writes the .pyc files
    taken: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        subprocess.run(command, check=True, env=subprocess_environment())
        taken.append(time.perf_counter() - begun)
    return min(taken)
