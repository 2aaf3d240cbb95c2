"""A toy that converses without a model: a router with an offline matcher, and Luau scripts as its skills."""

import asyncio
import sys
from pathlib import Path

import vaka

HERE = Path(__file__).parent
LINES = [
    "Hello!",
    "Sing about the whale!",
    "Please count to 3.",
    "More!",
    "Tell me a story.",
    "Left!",
    "Sing a song and count to 2.",
]


async def main(lines: list[str]) -> None:
    """Say each line to the toy; its skills and their states are in one session."""
    toy = vaka.load_agents(HERE)["toy"]
    async with vaka.Runtime() as runtime:
        session = await runtime.open(toy)
        for line in lines:
            print(f"> {line}")
            print((await session.run(line)).text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or LINES))
