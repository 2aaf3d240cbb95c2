"""Measure a peer, or vaka, with the same conversation and the same code."""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import (
    MedianRange,
    measure_object_size,
    percentile,
    rate_when_concurrent,
    time_construction,
    time_growth,
    time_in_sequence,
    time_process,
)
from bench.planted_facts import ScriptedTalk

REPEATS = 3
COUNT = 100
CONCURRENT_RUNS = 100
"""Repeats in each round of ``scripts/bench_peers.py``."""
GROWTH_CHECKPOINTS = (1, 10, 100, 1_000)
GROWTH_SAMPLE = 9
GROWTH_SECONDS = 60.0
"""The turns of a session that are measured, how many from each on, and the time limit of those before each."""


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


class Peer(NamedTuple):
    """How to make an agent with the tool ``add``, and how to run it: it calls the tool once and answers ``done``."""

    name: str
    keeps: str
    """What a run survives: nothing, the end of the process, a power cut."""
    statement: str
    """The import statement of a program that makes an agent."""
    make: Callable[[], Any]
    run: Callable[[Any], Awaitable[str]]


class SeenTurn(NamedTuple):
    """The answer of a turn, and the number of messages in its last prompt."""

    text: str
    messages: int


class Growth(NamedTuple):
    """How to open a session in an empty folder, and how to run a turn of it.

    A turn calls the tool once and answers ``done``; its prompt holds all turns before it.
    """

    name: str
    keeps: str
    open: Callable[[Path], AbstractAsyncContextManager[Any]]
    turn: Callable[[Any], Awaitable[SeenTurn]]
    checkpoints: tuple[int, ...] = GROWTH_CHECKPOINTS


class Memory(NamedTuple):
    """How to run the scripted conversation of ``bench.planted_facts``, with the default summaries of a runtime."""

    name: str
    run: Callable[[ScriptedTalk], Coroutine[Any, Any, None]]


async def _time_growth(growth: Growth, folder: Path) -> dict[int, float]:
    found: dict[int, float] = {}
    for part, checkpoints in (("warm-up", (1,)), ("measured", growth.checkpoints)):
        (folder / part).mkdir(parents=True)
        async with growth.open(folder / part) as session:
            done = 0

            async def turn(session: Any = session) -> None:
                nonlocal done
                seen, done = await growth.turn(session), done + 1
                assert seen.text == "done", seen.text
                assert seen.messages >= 4 * done - 1, f"turn {done} saw {seen.messages} messages"

            found = await time_growth(turn, checkpoints, sample=GROWTH_SAMPLE, seconds=GROWTH_SECONDS)
    return found


async def _time_runs(peer: Peer) -> dict[str, float]:
    agent = peer.make()

    async def run() -> None:
        text = await peer.run(agent)
        assert text == "done", text

    async def run_new_agent() -> None:
        await peer.run(peer.make())

    await time_in_sequence(run, 20)
    p50: list[float] = []
    p95: list[float] = []
    cpu: list[float] = []
    rate: list[float] = []
    for _ in range(REPEATS):
        begun = time.process_time()
        taken = await time_in_sequence(run, COUNT)
        cpu.append((time.process_time() - begun) / COUNT * 1e3)
        p50.append(percentile(taken, 0.5) * 1e3)
        p95.append(percentile(taken, 0.95) * 1e3)
        rate.append(await rate_when_concurrent(run, CONCURRENT_RUNS))
    first = percentile(await time_in_sequence(run_new_agent, 30), 0.5) * 1e3
    return {
        "run_ms": MedianRange.of(p50).value,
        "run_low_ms": min(p50),
        "run_high_ms": max(p50),
        "run_p95_ms": MedianRange.of(p95).value,
        "run_cpu_ms": MedianRange.of(cpu).value,
        "first_run_ms": first,
        "runs_per_s": MedianRange.of(rate).value,
    }


def report(peers: Sequence[Peer], growths: Sequence[Growth], memories: Sequence[Memory] = ()) -> None:
    """Measure single runs, with the argument ``growth`` long sessions, or with ``memory`` what summaries keep.

    Print a line of JSON for each.
    """
    if sys.argv[1:] == ["growth"]:
        _report_growths(growths)
    elif sys.argv[1:] == ["memory"]:
        _report_memories(memories)
    else:
        _report_peers(peers)


def _report_growths(growths: Sequence[Growth]) -> None:
    for growth in growths:
        with tempfile.TemporaryDirectory(prefix="vaka-bench-", ignore_cleanup_errors=True) as folder:
            found = asyncio.run(_time_growth(growth, Path(folder)))
        print(json.dumps({"name": growth.name, "keeps": growth.keeps, "turns": found}), flush=True)


def _report_memories(memories: Sequence[Memory]) -> None:
    for memory in memories:
        talk = ScriptedTalk()
        asyncio.run(memory.run(talk))
        print(json.dumps(talk.report(memory.name)), flush=True)


def _report_peers(peers: Sequence[Peer]) -> None:
    for peer in peers:
        count = 300 if time_construction(peer.make, 20) < 1e-3 else 60
        found = {
            "import_ms": time_process(peer.statement, 3) * 1e3,
            "construct_us": time_construction(peer.make, count) * 1e6,
            "agent_kib": measure_object_size(peer.make, count) / 1024,
            **asyncio.run(_time_runs(peer)),
        }
        print(json.dumps({"name": peer.name, "keeps": peer.keeps, **found}), flush=True)
