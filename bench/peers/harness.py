"""Measure a peer, or vaka, with the same conversation and the same code."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from bench.measure import (
    MedianRange,
    measure_object_size,
    percentile,
    rate_when_concurrent,
    time_construction,
    time_in_sequence,
    time_process,
)

REPEATS, COUNT, CONCURRENT_RUNS = 3, 100, 100
"""Repeats in each round of ``scripts/bench_peers.py``."""


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


def report_peers(*peers: Peer) -> None:
    """Measure each peer and print a line of JSON for it."""
    for peer in peers:
        count = 300 if time_construction(peer.make, 20) < 1e-3 else 60
        found = {
            "import_ms": time_process(peer.statement, 3) * 1e3,
            "construct_us": time_construction(peer.make, count) * 1e6,
            "agent_kib": measure_object_size(peer.make, count) / 1024,
            **asyncio.run(_time_runs(peer)),
        }
        print(json.dumps({"name": peer.name, "keeps": peer.keeps, **found}), flush=True)
