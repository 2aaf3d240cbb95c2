"""Hooks: the time that a command hook adds to a turn, besides the time that the command itself takes."""

import asyncio
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from typing import Any

import vaka
from bench.measure import MedianRange, raised_priority
from bench.row import Row
from vaka.config.options import Storage
from vaka.hooks import Hook
from vaka.models import Scripted
from vaka.runtime.open_store import Durability
from vaka.runtime.options import Project

MAX_ADDED_MS = 8.0
COMMAND = "cat > /dev/null"
STEPS: list[dict[str, Any]] = [{"tool_calls": [{"name": "look", "arguments": {"at": "sea"}}]}, {"text": "done"}]

Work = Callable[[], Awaitable[object]]


@vaka.tool(effect="read")
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


async def run_command_alone() -> None:
    """Run the command of the hook with asyncio, with as much input as it gets from vaka."""
    child = await asyncio.create_subprocess_exec("/bin/sh", "-c", COMMAND, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    await child.communicate(b"x" * 400)


def make_turn(runtime: vaka.Runtime) -> Work:
    """Return work that runs a new session with one tool call."""

    async def work() -> None:
        session = await runtime.open(vaka.Agent("bench", model=Scripted(STEPS), tools=[look]))
        await session.run("Go.")

    return work


async def time_work(work: Work) -> float:
    """Return the milliseconds of one call."""
    begun = time.perf_counter()
    await work()
    return (time.perf_counter() - begun) * 1e3


async def compare_turns(
    folder: str, durability: Durability, hooks: list[Hook], count: int
) -> tuple[list[float], list[float]]:
    """Return what hooks add to a turn, without the command itself, and the command alone, in milliseconds."""
    added: list[float] = []
    alone: list[float] = []
    store = f"sqlite:///{folder}/{durability}-{len(hooks)}.db"
    storage, transcripts = Storage(durability=durability), f"{folder}/transcripts"
    async with (
        vaka.Runtime(store, storage=storage, project=Project(hooks=hooks, transcript_folder=transcripts)) as hooked,
        vaka.Runtime(store, storage=storage, project=Project(transcript_folder=transcripts)) as plain,
    ):
        with_hooks, without = make_turn(hooked), make_turn(plain)
        for number in range(count + 3):
            pair = await time_work(with_hooks) - await time_work(without), await time_work(run_command_alone)
            if number >= 3:
                added.append(pair[0] - pair[1])
                alone.append(pair[1])
    return added, alone


async def measure(count: int) -> list[Row]:
    """Measure a turn with one hook before its tool call, and one with several hooks that run at the same time."""
    rows: list[Row] = []
    one = [Hook(event="PreToolUse", command=COMMAND)]
    several = [Hook(event="PreToolUse", command=f"{COMMAND}; : {number}") for number in range(4)]
    cases: list[tuple[str, Durability, list[Hook]]] = [
        ("a command hook", "process", one),
        ("a command hook", "power", one),
        ("four hooks at once", "power", several),
    ]
    with tempfile.TemporaryDirectory() as folder, raised_priority() as how:
        for name, durability, hooks in cases:
            added, alone = await compare_turns(folder, durability, hooks, count)
            found, raw = MedianRange.of(added), MedianRange.of(alone)
            rows.append(
                Row(
                    name=f"{name} in a turn",
                    store="SQLite",
                    durability=durability,
                    value=found.value,
                    unit="ms more",
                    low=found.low,
                    high=found.high,
                    raw=raw.value,
                    ratio=(found.value + raw.value) / raw.value,
                    target=MAX_ADDED_MS if len(hooks) == 1 else None,
                    note=f"raw: the command and asyncio; {how}",
                )
            )
    return rows


def measure_hooks(quick: bool) -> list[Row]:
    """Measure the time that hooks add."""
    return asyncio.run(measure(20 if quick else 60))
