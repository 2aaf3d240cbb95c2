"""Write the streams that the tests of the TypeScript client read: python -m tests.typescript.record_streams."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import vaka
from tests.views.recorded_runs import RECORDERS, count, runtime, weather
from vaka.core.types.control import StreamEnd
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.testing import ScriptedModel, call, calls, say

FOLDER = Path(__file__).parents[2] / "ts" / "client" / "test" / "streams"


async def record_conversation() -> list[Event]:
    """A session as a follower reads it: seven turns with tools, a child agent, a checkpoint and a rewind."""
    usage = {"usage": {"input": 10, "output": 2, "cache_read": 4, "cost": 0.5}}
    two = calls(call("weather", city="Hilo"), call("weather", city="Atlantis"))
    chunks = {"reasoning": "Ka moana: 🌊🌊.", "chunks": ["Aloha ", "🌺 mai", " kākou", ", 世界", "!"], **usage}
    model = ScriptedModel(
        chunks,
        say("Let me see.", **two) | usage,
        say("Sunny.", **usage),
        call("count", to=40),
        say("Counted."),
        call("scout", prompt="Look."),
        say("Done."),
        say("On another branch."),
        say("Back again.", **usage),
        agents={"scout": [call("weather", city="Hilo"), say("It shines.")]},
    )
    scout = vaka.Agent("scout", model=model, tools=[weather])
    agent = vaka.Agent("guide", model=model, tools=[weather, count, scout])
    async with runtime() as rt:
        session = await rt.open(agent, id="s", metadata={"plan": "free"})
        await session.update(title="", tags=["sea"], metadata={"plan": "pro"})
        reading = asyncio.create_task(read(rt))
        for prompt in ("Say  hello\nto the 🌊.", "Is it raining?", "Count."):
            await session.run(prompt)
        label = await session.checkpoint("before the scout")
        for prompt in ("Send a scout.", "Go on."):
            await session.run(prompt)
        await session.rewind("before the scout")
        await session.run("Again.")
        await session.update(title=f"From {label}")
        await session.close()
    return await reading


async def read(rt: vaka.Runtime) -> list[Event]:
    async with aclosing(rt.follow("s")) as events:
        return [event async for event in events]


async def main() -> None:
    """Record every run. Approvals name the current folder."""
    os.chdir("/")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for record in (*RECORDERS, record_conversation):
        write_stream(record.__name__.removeprefix("record_"), await record())


def write_stream(name: str, events: Sequence[Event]) -> None:
    end = Event(data=StreamEnd(reason="complete"), session=SessionId("s"), ts=events[-1].ts)
    frames = [event.to_sse() for event in events if event.type != "stream.end"]
    (FOLDER / f"{name}.sse").write_bytes(b": open\nretry: 1000\n\n" + b"".join(frames) + end.to_sse())


if __name__ == "__main__":
    asyncio.run(main())
