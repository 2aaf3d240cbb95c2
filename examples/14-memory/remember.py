"""An agent that remembers its user: what is said in one session is known in the next ones, and can be erased."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator
from typing import Any

import vaka
from vaka.content import ToolMessage, UserMessage, text_of
from vaka.memory import FactExtraction, SemanticMemory
from vaka.models import Chunk, Prompt, Scripted


class Companion:
    """A stand-in for a model, so that the example needs no key: it answers from what it was given."""

    name = "companion"

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Extract facts as the agent ``facts``, and talk as any other."""
        spoken = "\n".join(text_of(message.content) for message in prompt.messages if isinstance(message, UserMessage))
        line = self._extract(prompt, spoken) if prompt.agent == "facts" else self._talk(spoken)
        async for chunk in Scripted([{**line, "repeat": True}]).stream(prompt):
            yield chunk

    def _extract(self, prompt: Prompt, spoken: str) -> dict[str, Any]:
        said = spoken.partition("<person>\n")[2].partition("\n</person>")[0]
        if isinstance(prompt.messages[-1], ToolMessage) or not said.startswith("I "):
            return {"text": "done"}
        return {"tool_calls": [{"name": "memory_add", "arguments": {"text": said, "explicit": True}}]}

    def _talk(self, spoken: str) -> dict[str, Any]:
        known = [line.split("] ")[1].split(" (")[0] for line in spoken.splitlines() if line.startswith("- [mem_")]
        return {"text": f"I know this about you: {' '.join(known)}" if known else "Nice to meet you."}


def make_agent() -> vaka.Agent:
    """Return the agent; ``VAKA_MODEL`` names a real model."""
    memory = SemanticMemory(threshold=0.1)
    return vaka.Agent(
        "companion",
        model=os.environ.get("VAKA_MODEL") or Companion(),
        instructions="You are a friendly companion.",
        middleware=[memory, FactExtraction(memory)],
    )


async def say(store: str, user: str, session_id: str, text: str) -> None:
    """Say something in a runtime of its own, as another process would, and print the answer."""
    async with vaka.Runtime(store=store) as runtime:  # leaving the block waits for the extraction of facts
        session = await runtime.open(make_agent(), id=session_id)
        await session.update(owner=user)
        print(f"{user}: {text}")
        print(f"  {(await session.run(text)).text}")


async def main(store: str) -> None:
    """Talk to two people; each has a memory of their own."""
    await say(store, "mara", "monday", "I sail a small boat in Tromsø.")
    await say(store, "tom", "tom-1", "What do you know about my boat?")
    await say(store, "mara", "tuesday", "What do you know about my boat?")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/memory.db"))
