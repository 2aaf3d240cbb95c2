"""Fail on counts that rose and on ratios 20% above ``bench/baseline.json``, never on a time.

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

from bench import agent_run, delta_cost, later_turns, offline_match, session_reopen, startup, stores, ways_in

BASELINE = Path(__file__).with_name("baseline.json")
TOLERANCE = 1.2
MAX_TRIES = 3
RUN_FUNCTIONS, REQUEST_FUNCTIONS = 490, 160
"""The most functions that are called before the loop of a turn: some more than now, for features."""


class Baseline(msgspec.Struct):
    """The numbers of the last ``--update``."""

    modules: dict[str, int]
    calls: int
    ratios: dict[str, float]


def measure_run_ratio(kind: stores.StoreKind) -> float:
    """Return the CPU time of a run relative to the bare loop."""
    with stores.temporary_folder() as home:
        found = asyncio.run(agent_run.compare_with_bare_loop(kind, home, None, repeats=5, count=100))
    return found.ratio("cpu")


def measure_delta_ratio(burst: int) -> float:
    """Return the CPU time of a delta relative to a queue and a wake-up."""
    ours, raw = delta_cost.compare_costs(3000, burst, 5)
    return statistics.median([mine / bare for mine, bare in zip(ours, raw, strict=True)])


RATIOS: dict[str, Callable[[], float]] = {
    "run in memory / bare loop": lambda: measure_run_ratio(stores.MEMORY),
    "run in SQLite (process) / bare loop": lambda: measure_run_ratio(stores.PROCESS),
    "delta, one a tick / a queue": lambda: measure_delta_ratio(1),
    "delta, 20 a tick / a queue": lambda: measure_delta_ratio(20),
}


def count_modules() -> dict[str, int]:
    """Return the number of modules that the first imports and two commands load."""
    statements = (startup.IMPORT_STATEMENT, startup.USE_STATEMENT)
    return {
        **{statement: len(startup.list_loaded_modules(statement)) for statement in statements},
        "vaka --version": len(startup.list_command_modules(startup.VERSION_ARGUMENTS)),
        "vaka run": len(startup.list_command_modules(startup.RUN_ARGUMENTS)),
    }


def check_counts(baseline: Baseline) -> Iterator[tuple[str, float, str, bool]]:
    """Yield the counts: name, value, expected value, and whether it is met."""
    with stores.temporary_folder() as home:
        commits = asyncio.run(agent_run.count_commits(home)).commits
    yield "commits per run", commits, "4", commits == 4
    _, rows, _ = asyncio.run(session_reopen.count_rows_read(100_000, 990))
    yield "rows read to reopen 100k events", rows, f"< {session_reopen.MAX_ROWS}", rows < session_reopen.MAX_ROWS
    later, most = asyncio.run(later_turns.count_later_turn(200)), later_turns.MESSAGES_BUILT
    yield "events read by turn 200 of a session", later.events_read, "0", later.events_read == 0
    yield "messages built by turn 200 of a session", later.messages_built, f"{most}", later.messages_built == most
    calls, limit = asyncio.run(agent_run.count_function_calls()), baseline.calls * TOLERANCE
    yield "function calls per run in memory", calls, f"≤ {limit:.0f}", calls <= limit
    matched, least = offline_match.count_matched_variants(), offline_match.LEAST_MATCHED
    yield "sentences that match offline as expected", matched, f"≥ {least}", matched >= least
    yield from check_ways_in()
    for statement, found in count_modules().items():
        most = int(baseline.modules[statement] * TOLERANCE)
        yield f"modules of `{statement}`", found, f"≤ {most}", found <= most
    for statement in (startup.IMPORT_STATEMENT, startup.USE_STATEMENT):
        bad = startup.list_forbidden(startup.list_loaded_modules(statement))
        yield f"forbidden modules of `{statement}`", len(bad), "0", not bad


def check_ways_in() -> Iterator[tuple[str, float, str, bool]]:
    """Yield what a run and a request do before the loop of their turns."""
    run, request = ways_in.count_run(ways_in.SESSION_ARGUMENTS), ways_in.count_request()
    for name, value in (("stores", run.stores), ("event loops", run.loops), ("collectors", run.collectors)):
        yield f"{name} of `vaka run`", value, "1", value == 1
    yield "reads of a settings file by `vaka run`", run.settings_reads, "1", run.settings_reads == 1
    for name, functions, most in (
        ("`vaka run`", run.functions, RUN_FUNCTIONS),
        ("a request", request.functions, REQUEST_FUNCTIONS),
    ):
        yield f"functions of {name} before the loop", len(functions), f"≤ {most}", len(functions) <= most
    yield "look-ups of a request", request.look_ups, "1", request.look_ups == 1
    yield "transactions of a request", request.transactions, "4", request.transactions == 4


def check_ratios(baseline: Baseline) -> Iterator[tuple[str, float, str, bool]]:
    """Yield the ratios in the same way; one that is too high is measured again."""
    for name, find in RATIOS.items():
        most = baseline.ratios[name] * TOLERANCE
        best = find()
        for _ in range(MAX_TRIES - 1):
            if best > most:
                best = min(best, find())
        yield name, best, f"≤ {most:.2f}", best <= most


def update_baseline() -> None:
    """Write the current numbers as the baseline."""
    found = {name: round(statistics.median([find() for _ in range(MAX_TRIES)]), 2) for name, find in RATIOS.items()}
    made = Baseline(count_modules(), round(asyncio.run(agent_run.count_function_calls())), found)
    BASELINE.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check everything; 1 when something is worse."""
    parser = argparse.ArgumentParser(prog="bench.check", description="Fail on counts and ratios that got worse.")
    parser.add_argument("--update", action="store_true", help="write the baseline anew")
    parser.add_argument("--counts", action="store_true", help="check the counts only, which no load changes")
    given = parser.parse_args(arguments)
    if given.update:
        update_baseline()
        return 0
    baseline = msgspec.json.decode(BASELINE.read_bytes(), type=Baseline)
    worse = 0
    for check in (check_counts,) if given.counts else (check_counts, check_ratios):
        for name, value, limit, good in check(baseline):
            worse += not good
            print(f"{'ok   ' if good else 'WORSE'}  {name}: {value:.4g} ({limit})", flush=True)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
