"""The delay between two processes that follow one session while text streams."""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import vaka
from bench.row import Row
from vaka.core.ports.model import Chunk, Prompt, StopChunk, TextChunk
from vaka.core.types.progress import MessageSnapshot, TextDelta

SESSION = "followed"
PAUSE = 0.02


class SlowModel:
    """A model that streams a word every 20 ms."""

    name = "slow"

    def __init__(self, words: int) -> None:
        self._words = words

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        for _ in range(self._words):
            yield TextChunk("a word or two ")
            await asyncio.sleep(PAUSE)
        yield StopChunk()


async def follow_session(store: str) -> None:
    """Follow the session to its end; print the time at which each length of text was first received, as JSON."""
    seen: list[tuple[float, int]] = []
    length = 0
    async with vaka.Runtime(store=store) as runtime, aclosing(runtime.follow(SESSION)) as events:
        print("ready", flush=True)
        async for event in events:
            body = event.data
            if isinstance(body, TextDelta):
                length = body.offset + len(body.text)
            elif isinstance(body, MessageSnapshot):
                length = len(body.text)
            elif event.type == "turn.completed":
                break
            else:
                continue
            seen.append((time.time(), length))
    print(json.dumps(seen), flush=True)


async def measure_lags(store: str, words: int) -> list[float]:
    """Return, for each piece of text, the seconds between its arrival in two processes that follow a third."""
    command = [sys.executable, "-m", "bench.follow_lag", store]
    pipe = asyncio.subprocess.PIPE
    followers = [await asyncio.create_subprocess_exec(*command, stdout=pipe) for _ in range(2)]
    for follower in followers:
        assert follower.stdout is not None
        await follower.stdout.readline()
    async with vaka.Runtime(store=store) as runtime:
        session = await runtime.open(vaka.Agent("slow", model=SlowModel(words)), id=SESSION)
        await session.run("Talk.")
    outputs = await asyncio.gather(*(follower.communicate() for follower in followers))
    first, second = (json.loads(out) for out, _ in outputs)
    return [abs(when - _first_seen_at(second, length)) for when, length in first]


def _first_seen_at(seen: list[tuple[float, int]], length: int) -> float:
    """Return the time at which at least this much text was first received."""
    return next((when for when, had in seen if had >= length), seen[-1][0])


def measure_follow_lag(quick: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        found = sorted(asyncio.run(measure_lags(f"sqlite:///{Path(folder) / 'log.db'}", 60 if quick else 200)))
    note = f"{len(found)} pieces of text; a process elsewhere sees text every 100 ms"
    return [
        Row(name="text between two followers, p50", value=statistics.median(found) * 1e3, unit="ms", store="SQLite"),
        Row(
            name="text between two followers, worst",
            value=found[-1] * 1e3,
            unit="ms",
            store="SQLite",
            target=200,
            note=note,
        ),
    ]


if __name__ == "__main__":
    asyncio.run(follow_session(sys.argv[1]))
