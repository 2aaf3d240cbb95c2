"""Where the time of a run goes: which part of vaka was at work, sampled every 0.2 ms.

``python -m bench.run_shares`` prints the parts in memory and in SQLite, in microseconds of a run; names of stores print
others. Python looks at the timer when a function begins or a loop repeats, so a part that does neither for long has its
time counted by what follows; parts of fewer than ten microseconds are therefore uncertain.

The garbage collector runs inside whatever makes objects, so it is off while the parts are sampled. Its own time is
measured in other runs, by its callbacks.
"""

import asyncio
import gc
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from bench import stores
from bench.agent_run import open_runner
from bench.machine import describe_machine
from bench.measure import raised_priority, time_in_sequence
from bench.row import format_grid

INTERVAL = 0.0002
WARM_UP, RUNS = 600, 4000
"""The runtime keeps the last 512 sessions; with fewer runs before, its memory still grows."""

GARBAGE_COLLECTOR = "garbage collector"
EVENT_LOOP = "event loop"
PARTS: dict[str, tuple[str, ...]] = {
    "encode and hash": ("core/session/hash_chain",),
    "check and group": ("core/session/invariants", "core/session/group_commit", "core/session/redaction"),
    "fold": ("core/session/fold.", "core/session/fold_offers", "core/session/snapshot", "core/types/state"),
    "publish": ("core/session/fanout", "core/session/follow", "core/session/live_redaction"),
    "the rest of the log": ("core/session/", "core/types/pending", "core/types/event"),
    "store": ("stores/", "text/"),
    "prompt": ("core/loop/prompt", "core/types/tokens", "core/loop/blobs", "middleware/compaction"),
    "answer of the model": ("core/loop/assemble", "core/loop/model_call", "core/loop/ask_model"),
    "permission": ("policy/", "core/loop/permission", "core/ports/policy"),
    "tool": ("tools/", "core/loop/run_tool", "core/loop/call_context", "core/types/tool_result"),
    "turn, steps and calls": ("core/", "middleware/"),
    "session and response": ("runtime/", "agents/"),
}
"""The paths below ``vaka`` of each part; the first that fits counts."""


class Shares(NamedTuple):
    """The microseconds of a run, by part."""

    store: str
    median: float
    parts: dict[str, float]


def part_of(frame: FrameType | None) -> str:
    """Return the part whose code runs; a function of Python's own library counts for its caller."""
    while frame is not None:
        _, vaka, path = frame.f_code.co_filename.rpartition("/vaka/")
        if vaka:
            return next((part for part, paths in PARTS.items() if path.startswith(paths)), "other parts")
        if "/asyncio/" in frame.f_code.co_filename:
            return EVENT_LOOP
        if "/bench/" in frame.f_code.co_filename:
            break
        frame = frame.f_back
    return "model and tool of the benchmark"


@contextmanager
def sample_parts() -> Generator[Counter[str]]:
    """Count the samples of each part while the block runs."""
    found = Counter[str]()

    def count_sample(_: int, frame: FrameType | None) -> None:
        found[part_of(frame)] += 1

    before = signal.signal(signal.SIGALRM, count_sample)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
    try:
        yield found
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def time_collections() -> Generator[list[float]]:
    """Add the seconds of each garbage collection to a list while the block runs."""
    found: list[float] = []
    begun = 0.0

    def note_collection(phase: str, _: dict[str, int]) -> None:
        nonlocal begun
        if phase == "start":
            begun = time.thread_time()
        else:
            found.append(time.thread_time() - begun)

    gc.callbacks.append(note_collection)
    try:
        yield found
    finally:
        gc.callbacks.remove(note_collection)


async def measure_shares(kind: stores.StoreKind, url: str) -> Shares:
    """Measure one store."""
    async with open_runner(url, kind.durability) as run:
        await time_in_sequence(run, WARM_UP)
        with time_collections() as collections:
            taken = sorted(await time_in_sequence(run, RUNS))
        gc.collect()
        gc.disable()
        try:
            begun = time.process_time()
            await time_in_sequence(run, RUNS)
            cpu = (time.process_time() - begun) / RUNS * 1e6
            with sample_parts() as samples:
                await time_in_sequence(run, RUNS)
        finally:
            gc.enable()
    total = sum(samples.values())
    parts = {part: cpu * count / total for part, count in samples.items()}
    parts[GARBAGE_COLLECTOR] = sum(collections) / RUNS * 1e6
    return Shares(f"{kind.store}, {kind.survives}", taken[RUNS // 2] * 1e6, parts)


def format_shares(found: list[Shares]) -> str:
    """Return a table with a column for each store."""
    names = [*PARTS, "other parts", EVENT_LOOP, GARBAGE_COLLECTOR, "model and tool of the benchmark"]
    lines = [[name, *[f"{one.parts.get(name, 0):.0f}" for one in found]] for name in names]
    lines.append(["together, CPU", *[f"{sum(one.parts.values()):.0f}" for one in found]])
    lines.append(["median of a run, time", *[f"{one.median:.0f}" for one in found]])
    return format_grid(["µs of a run", *[one.store for one in found]], lines)


def main() -> int:
    """Measure the stores that the arguments name."""
    kinds = {"memory": stores.MEMORY, "process": stores.PROCESS, "power": stores.POWER}
    names = sys.argv[1:] or ["memory", "process"]
    if not kinds.keys() >= {*names}:
        print(f"expected names of {', '.join(kinds)}, got {' '.join(names)}")
        return 2
    about = describe_machine()
    with stores.temporary_folder() as home, raised_priority():
        found = [
            asyncio.run(measure_shares(kinds[name], stores.store_url_of(kinds[name], home, None))) for name in names
        ]
    print("\n".join(f"{key:12} {value}" for key, value in about.items()))
    print(f"\n{format_shares(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
