"""Fail on what got worse: counts that rose, and ratios 20% above ``bench/baseline.json``. Never on a time.

A ratio is ours over the raw limit, both measured in turns in this process and in CPU time, so a slow or busy machine
changes both. One that looks worse is measured again: noise goes away, a regression does not.
``python -m bench.check --update`` writes the baseline anew.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from bench import reopening, running, starting, stores, streaming

BASELINE = Path(__file__).with_name("baseline.json")
WORSE = 1.2
TRIES = 3


class Baseline(msgspec.Struct):
    """What was found when it was last written."""

    modules: dict[str, int]
    calls: int
    ratios: dict[str, float]


def run_ratio(kind: stores.Kind) -> float:
    """Return how many times the CPU of the bare loop a run takes."""
    with stores.folder() as home:
        found = asyncio.run(running.compare(kind, home, None, repeats=5, count=100))
    return found.ratio("cpu")


def delta_ratio(burst: int) -> float:
    """Return how many times the CPU of a queue and a wake-up a delta takes."""
    ours, raw = streaming.compare(3000, burst, 5)
    return statistics.median([mine / bare for mine, bare in zip(ours, raw, strict=True)])


RATIOS: dict[str, Callable[[], float]] = {
    "run in memory / bare loop": lambda: run_ratio(stores.MEMORY),
    "run in SQLite (process) / bare loop": lambda: run_ratio(stores.PROCESS),
    "delta, one a tick / a queue": lambda: delta_ratio(1),
    "delta, 20 a tick / a queue": lambda: delta_ratio(20),
}


def modules() -> dict[str, int]:
    """Return how many modules the first imports load."""
    return {statement: len(starting.modules(statement)) for statement in (starting.IMPORT, starting.USE)}


def counts(baseline: Baseline) -> Iterator[tuple[str, float, str, bool]]:
    """Yield what is counted: its name, its value, what it must be, and whether it is."""
    with stores.folder() as home:
        commits = asyncio.run(running.count_commits(home)).commits
    yield "commits per run", commits, "4", commits == 4
    _, rows, _ = asyncio.run(reopening.count_rows(100_000, 990))
    yield "rows read to reopen 100k events", rows, f"< {reopening.LIMIT}", rows < reopening.LIMIT
    calls, limit = asyncio.run(running.count_calls()), baseline.calls * WORSE
    yield "function calls per run in memory", calls, f"≤ {limit:.0f}", calls <= limit
    for statement, found in modules().items():
        most = int(baseline.modules[statement] * WORSE)
        yield f"modules of `{statement}`", found, f"≤ {most}", found <= most
        bad = starting.forbidden(starting.modules(statement))
        yield f"forbidden modules of `{statement}`", len(bad), "0", not bad


def ratios(baseline: Baseline) -> Iterator[tuple[str, float, str, bool]]:
    """Yield the ratios in the same way; one that looks worse gets further tries."""
    for name, find in RATIOS.items():
        most = baseline.ratios[name] * WORSE
        best = find()
        for _ in range(TRIES - 1):
            if best > most:
                best = min(best, find())
        yield name, best, f"≤ {most:.2f}", best <= most


def update() -> None:
    """Write the baseline as of now."""
    found = {name: round(statistics.median([find() for _ in range(TRIES)]), 2) for name, find in RATIOS.items()}
    made = Baseline(modules(), round(asyncio.run(running.count_calls())), found)
    BASELINE.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check everything; 1 when something is worse."""
    parser = argparse.ArgumentParser(prog="bench.check", description="Fail on counts and ratios that got worse.")
    parser.add_argument("--update", action="store_true", help="write the baseline anew")
    if parser.parse_args(arguments).update:
        update()
        return 0
    baseline = msgspec.json.decode(BASELINE.read_bytes(), type=Baseline)
    worse = 0
    for check in (counts, ratios):
        for name, value, limit, good in check(baseline):
            worse += not good
            print(f"{'ok   ' if good else 'WORSE'}  {name}: {value:.4g} ({limit})", flush=True)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
