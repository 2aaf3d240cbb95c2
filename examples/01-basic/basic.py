"""One agent, one tool, and a stored session: run it twice and it remembers."""

import asyncio
import sys
from pathlib import Path

import vaka
from vaka.models import Scripted

HERE = Path(__file__).parent


@vaka.tool(effect="read")
async def word_count(path: str) -> dict[str, int]:
    """Count the lines and words of a text file beside this example."""
    text = (HERE / Path(path).name).read_text(encoding="utf-8")
    return {"lines": len(text.splitlines()), "words": len(text.split())}


MODEL = Scripted(
    [
        {"tool_calls": [{"name": "word_count", "arguments": {"path": "README.md"}}]},
        {"text": "It is short: the numbers are in the tool's result above."},
        {"text": "We counted the words of the README before; nothing has changed since.", "repeat": True},
    ]
)
AGENT = vaka.Agent("counter", model=MODEL, instructions="Be brief.", tools=[word_count])


async def main(store: str) -> None:
    """Ask once, print the events, and the conversation so far."""
    async with vaka.Runtime(store=store) as runtime:
        session = await runtime.open(AGENT, id="basic")
        async for event in session.stream("How long is the README?"):
            print(f"{event.id or '·':>6}  {event.type}")
        print()
        for message in await session.messages():
            print(message)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///basic.db"))
