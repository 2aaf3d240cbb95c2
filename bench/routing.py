"""Routers: the time that a router adds to a turn of the agent it routes to, without matching."""

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence

import vaka
from bench.measure import MedianRange, raised_priority
from bench.row import Row
from vaka.config.options import Storage
from vaka.core.ports.model import Chunk, Prompt, StopChunk, TextChunk, UsageChunk
from vaka.core.types.message import Usage
from vaka.genx import MatchAgent, Route
from vaka.genx.match.lines import MatchResult

MAX_ADDED_MS = 1.0
LATE_TURN = 1_000
RULES = [{"name": "chat", "patterns": ["say something"]}]


class FixedMatcher:
    """Matches one rule with any text, at no cost."""

    async def match_async(self, text: str) -> Sequence[MatchResult]:
        return [MatchResult("chat")]


class FixedModel:
    """Answers every prompt with the same text; the scripted model would count the characters of each message."""

    name = "fixed"

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Yield the answer."""
        yield TextChunk("Hi.")
        yield UsageChunk(Usage(input=1, output=1))
        yield StopChunk()


def make_agent() -> vaka.Agent:
    return vaka.Agent("bench", model=FixedModel())


def make_router() -> vaka.Agent:
    routes = [Route(["chat"], make_agent())]
    return MatchAgent("front", rules=RULES, routes=routes, matcher=FixedMatcher())


async def time_turn(session: vaka.Session) -> float:
    """Return the milliseconds of one turn."""
    begun = time.perf_counter()
    await session.run("Hello.")
    return (time.perf_counter() - begun) * 1e3


async def compare_turns(store: str, turns: int, count: int) -> tuple[list[float], list[float]]:
    """Return what a router adds to each turn after the first ``turns``, and the turns without it, in milliseconds."""
    added: list[float] = []
    alone: list[float] = []
    async with vaka.Runtime(store=store, storage=Storage(durability="process")) as runtime:
        routed, plain = await runtime.open(make_router()), await runtime.open(make_agent())
        for number in range(turns + count):
            with_router, without = await time_turn(routed), await time_turn(plain)
            if number >= turns:
                added.append(with_router - without)
                alone.append(without)
    return added, alone


async def measure(count: int) -> list[Row]:
    """Measure early and late turns in memory, and early ones in SQLite."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, raised_priority() as how:
        cases = [("memory:", "", 20), ("memory:", "", LATE_TURN), (f"sqlite:///{folder}/bench.db", "process", 20)]
        for store, durability, turns in cases:
            added, alone = await compare_turns(store, turns, count)
            found, raw = MedianRange.of(added), MedianRange.of(alone)
            rows.append(
                Row(
                    name=f"router: turn {turns} of an agent behind it",
                    store="SQLite" if durability else "memory",
                    durability=durability,
                    value=found.value,
                    unit="ms more",
                    low=found.low,
                    high=found.high,
                    raw=raw.value,
                    ratio=(found.value + raw.value) / raw.value,
                    note=f"raw: the agent alone; {how}",
                    target=None if durability else MAX_ADDED_MS,
                )
            )
    return rows


def measure_routing(quick: bool) -> list[Row]:
    """Measure the time that a router adds."""
    return asyncio.run(measure(50 if quick else 200))
