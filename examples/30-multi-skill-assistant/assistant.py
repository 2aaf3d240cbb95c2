"""A router with three agents from files: one with a tool, one that is a Luau script, one for everything else."""

import asyncio
import os
import sys
from pathlib import Path

import vaka
from vaka.events import SubagentStarted

HERE = Path(__file__).parent
LINES = [
    "What is the weather in Hilo?",
    "Remember to buy an umbrella.",
    "Show my notes.",
    "Is it sunny in Kona? And note that I visit Kona.",
    "Good evening!",
]


async def main(lines: list[str]) -> None:
    """Say each line to the assistant, and show which agents answer."""
    os.chdir(HERE)  # the file of the scripted model has a relative path
    front = vaka.load_agents(HERE)["front"]
    async with vaka.Runtime(permissions=vaka.Permissions(allow=("forecast", "done"))) as runtime:
        session = await runtime.open(front)
        for line in lines:
            print(f"> {line}")
            async with session.stream(line) as turn:
                async for event in turn:
                    if isinstance(event.data, SubagentStarted) and not event.path:
                        print(f"  [{event.data.agent}]")
            print(turn.response.text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or LINES))
