"""A command line of your own: each line is a turn of one session, which is kept in a file and continued next time."""

import asyncio
import sys
import tempfile
from pathlib import Path

import vaka
from vaka.content import format_history
from vaka.errors import TurnError
from vaka.testing import ScriptedModel, call, say

LINES = ["Which boats are in the harbour?", "/history", "Which one leaves first?", "/quit"]
"""What is typed when the program is run without a terminal."""


@vaka.tool(effect="read")
def boats() -> list[str]:
    """Return the boats in the harbour."""
    return ["Holokai", "Moana"]


def make_agent() -> vaka.Agent:
    model = ScriptedModel(call("boats"), say("Holokai and Moana."), say("Holokai leaves first."))
    return vaka.Agent("harbour", model=model, instructions="Answer in one sentence.", tools=[boats])


async def answer(session: vaka.Session, prompt: str) -> None:
    """Print the answer as it arrives."""
    try:
        async for text in session.stream_text(prompt):
            print(text, end="", flush=True)
        print()
    except TurnError as error:
        print(f"the turn has no answer: {error}")


async def show_history(session: vaka.Session) -> None:
    print(format_history(await session.messages()))


async def read_line(typed: list[str]) -> str:
    if not typed:
        return await asyncio.to_thread(input, "> ")
    print(f"> {typed[0]}")
    return typed.pop(0)


async def main(store: str, typed: list[str]) -> None:
    async with vaka.Runtime(store=store) as runtime:
        session = await runtime.open(make_agent(), id="repl")
        while (line := await read_line(typed)) != "/quit":
            if line == "/history":
                await show_history(session)
            elif line.strip():
                await answer(session, line)


if __name__ == "__main__":
    if sys.stdin.isatty():
        asyncio.run(main("sqlite:///repl.db", []))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"sqlite:///{Path(folder)}/repl.db", LINES))
