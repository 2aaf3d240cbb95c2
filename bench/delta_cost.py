"""What one delta costs, from the model's chunk to one follower, in CPU time."""

import asyncio
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable

import vaka
from bench.agents import TalkingModel
from bench.row import Row
from vaka.core.ports.model import Prompt, TextChunk
from vaka.core.types.message import Text, UserMessage
from vaka.core.types.progress import MessageSnapshot, TextDelta

_PROMPT = Prompt(messages=(UserMessage(content=(Text(text="hi"),)),))


async def stream_with_vaka(words: int, burst: int, encoded: bool) -> int:
    """Stream one answer to one follower; return the number of code points it received."""
    made = vaka.Agent("talker", model=TalkingModel(words, burst))
    seen = 0
    async with vaka.Runtime() as runtime:
        session = await runtime.open(made)
        async for event in session.stream("hi"):
            if isinstance(event.data, TextDelta):
                seen += len(event.data.text)
            elif isinstance(event.data, MessageSnapshot):
                seen = len(event.data.text)
            if encoded:
                event.to_json()
    return seen


async def stream_with_queue(words: int, burst: int, _: bool) -> int:
    """Do the same with a queue and a wake-up only."""
    queue: deque[str | None] = deque()
    wake = asyncio.Event()

    async def read() -> int:
        seen = 0
        while True:
            while queue:
                text = queue.popleft()
                if text is None:
                    return seen
                seen += len(text)
            wake.clear()
            await wake.wait()

    reader = asyncio.create_task(read())
    async for chunk in TalkingModel(words, burst).stream(_PROMPT):
        if isinstance(chunk, TextChunk):
            queue.append(chunk.text)
            wake.set()
    queue.append(None)
    wake.set()
    return await reader


def measure_delta_cost(
    stream: Callable[[int, int, bool], Awaitable[int]], words: int, burst: int, encoded: bool = False
) -> float:
    """Return the CPU microseconds of one delta: the difference between a long and a short answer."""

    async def once(count: int) -> float:
        begun = time.process_time()
        seen = await stream(count, burst, encoded)
        taken = time.process_time() - begun
        assert seen == count * len("a word or two ")
        return taken

    return (asyncio.run(once(words)) - asyncio.run(once(1))) / words * 1e6


def compare_costs(words: int, burst: int, repeats: int, encoded: bool = False) -> tuple[list[float], list[float]]:
    """Measure both in turns."""
    measure_delta_cost(stream_with_vaka, words // 4, burst)
    pairs = [
        (
            measure_delta_cost(stream_with_vaka, words, burst, encoded),
            measure_delta_cost(stream_with_queue, words, burst),
        )
        for _ in range(repeats)
    ]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def measure_delta_stream(quick: bool) -> list[Row]:
    """Measure one delta in each tick of the event loop, and twenty."""
    words, repeats = (2000, 3) if quick else (10_000, 5)
    made: list[Row] = []
    for name, burst, encoded, target in (
        ("delta to one follower, one a tick", 1, False, 25.0),
        ("delta to one follower, 20 a tick", 20, False, 10.0),
        ("delta to one follower as JSON, 20 a tick", 20, True, None),
    ):
        mine, bare = compare_costs(words, burst, repeats, encoded)
        ratio = statistics.median([one / other for one, other in zip(mine, bare, strict=True)])
        made.append(
            Row(
                name=name,
                value=statistics.median(mine),
                unit="µs CPU",
                low=min(mine),
                high=max(mine),
                target=target,
                store="memory",
                raw=statistics.median(bare),
                ratio=ratio,
                note="raw: a queue and a wake-up",
            )
        )
    return made
