"""Commands: the time that a sandbox adds to a start, and the cost of large output."""

import asyncio
import resource
import statistics
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable

from bench.measure import MedianRange, raised_priority
from bench.row import Row
from vaka.core.ports.sandbox import Command, Sandbox
from vaka.sandbox.linux import Bubblewrap, Landlock
from vaka.sandbox.sensitive import protected_paths
from vaka.sandbox.unconfined import Unconfined

MAX_ADDED_MS = 10.0
MAX_RSS_MB = 64.0
PAUSE = 0.02
GIB = 1024**3
SCRIPT = ("bash", "-c", "true")

Work = Callable[[], Awaitable[None]]


async def run_plain() -> None:
    """Start a command with asyncio, read its output and wait for it."""
    child = await asyncio.create_subprocess_exec(*SCRIPT, stdout=PIPE, stderr=PIPE)
    await child.communicate()


async def run_bare_bubblewrap() -> None:
    """Do the same under bubblewrap, with the minimal options of a sandbox."""
    words = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-all")
    child = await asyncio.create_subprocess_exec("bwrap", *words, *SCRIPT, stdout=PIPE, stderr=PIPE)
    await child.communicate()


def make_confined_run(sandbox: Sandbox, folder: str, *, protect: bool = False) -> Work:
    """Return work that starts a command in a sandbox, reads its output and waits for it."""
    protected = protected_paths(folder) if protect else ()
    command = Command(argv=SCRIPT, cwd=folder, writable=(folder,), protected=protected)

    async def work() -> None:
        process = await sandbox.start(command)
        async for _ in process.output():
            pass
        await process.wait()

    return work


async def make_workspace(folder: str) -> None:
    """Make a typical workspace: a repository without any other protected path."""
    for words in (("init", "-q"), ("config", "user.name", "kim")):
        child = await asyncio.create_subprocess_exec("git", "-C", folder, *words, stdout=PIPE, stderr=PIPE)
        await child.communicate()


async def time_work(work: Work) -> float:
    """Return the milliseconds of one call."""
    start = time.perf_counter()
    await work()
    return (time.perf_counter() - start) * 1e3


async def measure_starts(count: int) -> list[Row]:
    """Start commands in each sandbox in turn, each paired with a start without vaka.

    A pause after each start lets the last command be cleaned up, as in normal use; the last row is without pauses.
    """
    with tempfile.TemporaryDirectory() as folder, raised_priority() as how:
        await make_workspace(folder)
        starts = {
            "none": make_confined_run(Unconfined(), folder),
            "landlock, without namespaces": make_confined_run(Landlock(namespaces=False), folder),
            "landlock": make_confined_run(Landlock(), folder),
            "bubblewrap": make_confined_run(Bubblewrap(), folder),
            "bubblewrap, all protected paths": make_confined_run(Bubblewrap(), folder, protect=True),
            "bubblewrap alone, without vaka": run_bare_bubblewrap,
        }
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in starts}
        for turn in range(count + 1):
            for name, work in starts.items():
                pair = []
                for start in (work, run_plain):
                    pair.append(await time_work(start))
                    await asyncio.sleep(PAUSE)
                if turn:  # the first one warms up
                    pairs[name].append((pair[0], pair[1]))
        rows = [_row(name, found, how) for name, found in pairs.items()]
        row = [
            (await time_work(starts["bubblewrap"]), statistics.median(raw for _, raw in pairs["none"]))
            for _ in range(count)
        ]
    return [*rows, _row("bubblewrap, one right after another", row, how, target=None)]


def _row(name: str, pairs: list[tuple[float, float]], how: str, target: float | None = MAX_ADDED_MS) -> Row:
    added = MedianRange.of([ours - raw for ours, raw in pairs])
    raw = statistics.median(raw for _, raw in pairs)
    ratio = statistics.median(ours / raw for ours, raw in pairs)
    alone = "without vaka" in name
    return Row(
        name=f"start a command: {name}",
        value=added.value,
        unit="ms more",
        low=added.low,
        high=added.high,
        target=None if alone else target,
        raw=raw,
        ratio=ratio,
        note=f"{'for comparison' if alone else 'raw: asyncio alone'}; {how}",
    )


async def measure_output(size: int) -> list[Row]:
    """Measure a command with large output, read in chunks."""
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Bubblewrap()
        await make_confined_run(sandbox, folder)()
        command = Command(argv=("head", "-c", str(size), "/dev/zero"), cwd=folder, writable=(folder,))
        before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        process = await sandbox.start(command)
        total = 0
        async for _, data in process.output():
            total += len(data)
        taken = time.perf_counter() - begun
        await process.wait()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    name = f"{total / GIB:.3g} GiB of output"
    return [
        Row(
            name=f"{name}: memory", value=grown, unit="MB more", target=MAX_RSS_MB, note="largest size of this process"
        ),
        Row(name=f"{name}: speed", value=total / taken / 1e6, unit="MB/s", better="high"),
    ]


def measure_sandbox(quick: bool) -> list[Row]:
    return asyncio.run(_measure_sandbox(quick))


async def _measure_sandbox(quick: bool) -> list[Row]:
    return [*await measure_starts(10 if quick else 40), *await measure_output(GIB // 8 if quick else 2 * GIB)]
