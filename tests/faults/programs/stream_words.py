"""Stream a message word by word, one for each input line: ``python -m tests.faults.programs.stream_words PLAN``."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from tests.faults.crash_run import Gate, Plan, make_runtime, open_store
from tests.faults.line_protocol import InputLines, print_event, print_line
from vaka.agents.react import Agent
from vaka.core.ports.model import Chunk, Prompt, StopChunk, TextChunk, UsageChunk
from vaka.core.types.message import Usage

WORDS = ("Once ", "upön ", "a tíme ", "there 🛶 ", "was a\nreef.")


class WordByWordModel:
    """A model that waits at the gate after each word, if there is a gate."""

    name = "tale"

    def __init__(self, gate: Gate | None = None) -> None:
        self._gate = gate

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        for word in WORDS:
            yield TextChunk(word)
            if self._gate is not None:
                await self._gate(str(prompt.number))
        yield UsageChunk(Usage(input=1, output=len(WORDS)))
        yield StopChunk()


async def main(plan: Plan) -> None:
    store, lines = open_store(plan), InputLines()
    async with make_runtime(plan, store) as runtime:
        session = await runtime.open(Agent("teller", model=WordByWordModel(lines.wait_at_gate)), id=plan.session)
        events = session.resume() if plan.how == "resume" else session.stream("Tell.")
        async with aclosing(events) as seen:
            async for event in seen:
                print_event(event)
    await store.close()
    print_line("ended")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
