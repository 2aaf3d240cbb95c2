"""What is measured of a peer, and of vaka beside it: the same conversation, timed by the same code."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from bench.measure import Middle, at_once, construction, one_by_one, percentile, size, start

REPEATS, COUNT, TOGETHER = 3, 100, 100
"""In each of the rounds that ``scripts/bench_peers.py`` makes."""


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


class Peer(NamedTuple):
    """How to make an agent with the tool ``add``, and how to let it call the tool once and answer ``done``."""

    name: str
    keeps: str
    """What of a run survives: nothing, the death of the process, a power cut."""
    statement: str
    """What a program imports to make an agent."""
    make: Callable[[], Any]
    run: Callable[[Any], Awaitable[str]]


async def _runs(peer: Peer) -> dict[str, float]:
    agent = peer.make()

    async def run() -> None:
        text = await peer.run(agent)
        assert text == "done", text

    async def fresh() -> None:
        await peer.run(peer.make())

    await one_by_one(run, 20)
    p50: list[float] = []
    p95: list[float] = []
    cpu: list[float] = []
    rate: list[float] = []
    for _ in range(REPEATS):
        begun = time.process_time()
        taken = await one_by_one(run, COUNT)
        cpu.append((time.process_time() - begun) / COUNT * 1e3)
        p50.append(percentile(taken, 0.5) * 1e3)
        p95.append(percentile(taken, 0.95) * 1e3)
        rate.append(await at_once(run, TOGETHER))
    first = percentile(await one_by_one(fresh, 30), 0.5) * 1e3
    return {
        "run_ms": Middle.of(p50).value,
        "run_low_ms": min(p50),
        "run_high_ms": max(p50),
        "run_p95_ms": Middle.of(p95).value,
        "run_cpu_ms": Middle.of(cpu).value,
        "first_run_ms": first,
        "runs_per_s": Middle.of(rate).value,
    }


def report(*peers: Peer) -> None:
    """Measure each and write a line of JSON for each."""
    for peer in peers:
        count = 300 if construction(peer.make, 20) < 1e-3 else 60
        found = {
            "import_ms": start(peer.statement, 3) * 1e3,
            "construct_us": construction(peer.make, count) * 1e6,
            "agent_kib": size(peer.make, count) / 1024,
            **asyncio.run(_runs(peer)),
        }
        print(json.dumps({"name": peer.name, "keeps": peer.keeps, **found}), flush=True)
