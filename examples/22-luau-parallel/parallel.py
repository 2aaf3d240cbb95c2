"""A Luau tool that calls another tool many times at once; each call is governed and logged as a model's would be."""

import asyncio
from pathlib import Path

import vaka
from vaka.events import ToolCompleted
from vaka.models import Scripted

HERE = Path(__file__).parent
TIDES = {"Hilo": 0.4, "Papeete": 0.2, "Lima": 1.1, "Far away": 0.0}
asked: list[str] = []
everybody = asyncio.Event()


@vaka.tool(effect="read")
async def tide(harbour: str) -> float:
    """Return the tide of a harbour in metres; no call returns before three are waiting."""
    asked.append(harbour)
    print(f"{len(asked)} asked: {harbour}")
    if len(asked) == 3:
        everybody.set()
    await everybody.wait()
    return TIDES[harbour]


MODEL = Scripted(
    [
        {"tool_calls": [{"name": "harbours", "arguments": {"harbours": ["Hilo", "Papeete", "Lima"]}}]},
        {"text": "The highest tide is in Lima."},
    ]
)
AGENT = vaka.Agent("pilot", model=MODEL, tools=[vaka.LuauTool(HERE / "harbours.luau"), tide])


async def main() -> None:
    """Ask once, and print the tool's result."""
    async with vaka.Runtime(store="memory:") as runtime:
        session = await runtime.open(AGENT)
        async for event in session.stream("Where is the highest tide?"):
            if isinstance(event.data, ToolCompleted) and not event.path:
                print(event.data.result.text)


if __name__ == "__main__":
    asyncio.run(main())
