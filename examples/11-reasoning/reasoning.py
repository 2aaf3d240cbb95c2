"""A reasoning model: its reasoning arrives as events of its own, shown apart from the answer."""

import argparse
import asyncio
import os
import sys

import vaka
from vaka.content import AssistantMessage, Reasoning
from vaka.events import ReasoningDelta, TextDelta, ToolCompleted, UsageRecorded
from vaka.models import Scripted

QUESTION = "We paddle at 5 knots from Hilo to Maui for 3 hours. How far do we get?"
STAND_IN = Scripted(
    [
        {
            "reasoning": "Speed through the water is not speed over ground. I need the current first.",
            "tool_calls": [{"name": "current", "arguments": {"place": "Hilo"}}],
            "usage": {"input": 90, "output": 40, "reasoning": 22},
        },
        {
            "reasoning": "The current is 1 knot against us: 5 - 1 = 4 knots over ground, and 4 times 3 is 12.",
            "text": "About 12 nautical miles: the current takes 1 of your 5 knots.",
            "usage": {"input": 150, "output": 52, "reasoning": 30},
        },
    ],
    name="stand-in",
)
DIM, PLAIN = ("\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "")


@vaka.tool(effect="read")
async def current(place: str) -> str:
    """Return the current off a place, in knots."""
    return f"off {place}: 1 knot, setting south"


class Page:
    """Prints reasoning and answer, each under its own heading."""

    def __init__(self) -> None:
        self.thinking: bool | None = None

    def write(self, text: str, *, thinking: bool) -> None:
        """Add a piece of reasoning or of the answer."""
        if thinking is not self.thinking:
            self.thinking = thinking
            print(f"\n{DIM}[thinks]" if thinking else f"\n{PLAIN}[says]")
        print(text, end="", flush=True)

    def note(self, text: str) -> None:
        """Add a line that is neither."""
        self.thinking = None
        print(f"{PLAIN}\n{text}")


async def main(model: str) -> None:
    """Ask, and show reasoning and answer."""
    agent = vaka.Agent(
        "navigator",
        model=model or STAND_IN,
        instructions="You are a navigator. Look up the current before you answer. Be brief.",
        tools=[current],
        options={"reasoning": "medium"},
    )
    page, thought = Page(), 0
    async with vaka.Runtime() as runtime:
        session = await runtime.open(agent)
        async for event in session.stream(QUESTION):
            body = event.data
            if isinstance(body, ReasoningDelta | TextDelta):
                page.write(body.text, thinking=isinstance(body, ReasoningDelta))
            elif isinstance(body, ToolCompleted):
                page.note(f"[tool] {body.result.text}")
            elif isinstance(body, UsageRecorded):
                thought += body.usage.reasoning
        # The log stores reasoning with the provider's signatures, and it is sent back unchanged.
        answers = [message for message in await session.messages() if isinstance(message, AssistantMessage)]
        kept = [part for answer in answers for part in answer.content if isinstance(part, Reasoning)]
    page.note(f"\n{len(kept)} thoughts are kept in the log; {thought} tokens went into thinking.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=os.environ.get("VAKA_MODEL", ""), help="a real one, such as anthropic/NAME")
    asyncio.run(main(parser.parse_args().model))
