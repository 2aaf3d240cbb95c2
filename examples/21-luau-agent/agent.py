"""An agent that is a Luau script, in a stored session: each turn continues where the last one ended."""

import asyncio
import sys
from pathlib import Path

import vaka
from vaka.content import text_of
from vaka.events import MessageCompleted
from vaka.models import Scripted

HERE = Path(__file__).parent
MODEL = Scripted(
    [{"chunks": ["It is the hull ", "of an outrigger ", "canoe."]}, {"text": "Yes, in open sea.", "repeat": True}]
)
AGENT = vaka.LuauAgent("chat", HERE / "chat.luau", model=MODEL)


async def main(store: str) -> None:
    """Send three inputs, each with a runtime of its own, as if the program had been restarted in between."""
    for words in ("What is a vaka?", "Does it stay upright?", "count"):
        async with vaka.Runtime(store=store) as runtime:
            session = await runtime.open(AGENT, id="chat")
            print(f"> {words}")
            async for event in session.stream(words):
                if isinstance(event.data, MessageCompleted):
                    print(text_of(event.data.content))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///chat.db"))
