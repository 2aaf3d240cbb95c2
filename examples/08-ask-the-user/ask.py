"""A model asks a person two questions, and continues with the answers."""

import asyncio
import sys
from typing import Any

import vaka
from vaka.models import Scripted

QUESTIONS = [
    {
        "question": "Where shall the notes be kept?",
        "header": "Storage",
        "options": [
            {"label": "SQLite", "description": "One file, nothing to install."},
            {"label": "PostgreSQL", "description": "A server, for several machines."},
        ],
    },
    {
        "question": "What shall be searchable?",
        "header": "Search",
        "multiSelect": True,
        "options": [{"label": "Titles"}, {"label": "Texts"}, {"label": "Tags"}],
    },
]
MODEL = Scripted(
    [
        {"tool_calls": [{"name": "AskUserQuestion", "arguments": {"questions": QUESTIONS}}]},
        {"text": "Thank you. I know what to build now."},
    ]
)
AGENT = vaka.Agent("planner", model=MODEL, tools=["AskUserQuestion"])


async def answer(text: str, options: tuple[str, ...]) -> str:
    """Ask at the terminal; without one take the first option."""
    print(text, *(f"  [{number}] {option}" for number, option in enumerate(options, 1)), sep="\n")
    if not sys.stdin.isatty():
        print(f"> {options[0]}")
        return options[0]
    return (await asyncio.to_thread(input, "> ")) or options[0]


async def main() -> None:
    """Run the agent, and answer what it asks."""
    async with vaka.Runtime(store="memory://", permissions=vaka.Permissions(allow=("AskUserQuestion",))) as runtime:
        session = await runtime.open(AGENT, id="plan")
        async for event in session.stream("Build me a program for notes."):
            body: Any = event.data
            if event.type == "question.asked":
                await runtime.answer(body.question, await answer(body.text, body.options), by="you")
            elif event.type == "tool.completed":
                print(f"\nThe model reads:\n{body.result.text}\n")
        last: Any = (await session.messages())[-1]
        print(last.text)


if __name__ == "__main__":
    asyncio.run(main())
