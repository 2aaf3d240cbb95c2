"""Turns of scripted agents, recorded through a runtime: the events that the views are given."""

import asyncio
from collections.abc import AsyncGenerator
from functools import cache
from typing import Any

import pytest
from hypothesis import strategies as st

import vaka
from tests.runtime.runtime_fixtures import merge_options
from vaka.core.ports.model import Chunk, Prompt, TextChunk
from vaka.core.types.control import ApprovalRequested, QuestionAsked
from vaka.core.types.ids import SessionId
from vaka.errors import TurnError
from vaka.genx import MatchAgent, QuitTools, Route
from vaka.models import RetryingModel
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing import FakeClock, FakeIds, ScriptedModel, call, calls, fail, say
from vaka.tools import ClientTool

USAGE = {"usage": {"input": 10, "output": 2}}


@vaka.tool
async def weather(city: str) -> str:
    """Look at the weather."""
    if city == "Atlantis":
        raise ValueError("there is no Atlantis")
    return f"sunny in {city}"


@vaka.tool
async def tide() -> dict[str, int]:
    """Look at the tide."""
    return {"metres": 2}


@vaka.tool
async def count(context: vaka.ToolContext[Any], to: int) -> str:
    """Count."""
    for number in range(1, to + 1):
        context.emit(f"{number}\n")
    context.state.set("counted", to)
    return "done"


class Hanging:
    """A model that says the beginning of an answer and nothing more."""

    name = "hanging"

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        yield TextChunk("I am count")
        await asyncio.Event().wait()


def runtime(store: MemoryStore | None = None, **options: Any) -> vaka.Runtime:
    """Return a runtime whose ids and times are the same in each run."""
    clock = FakeClock(auto=True)
    return vaka.Runtime(
        store=store or MemoryStore(),
        **merge_options({"environment": Environment(ids=FakeIds(), clock=clock)}, options),
    )


async def record(agent: vaka.Agent[Any], prompt: str = "Go.", **options: Any) -> list[vaka.Event]:
    """Return the events of one turn; one that hangs is interrupted."""
    events: list[vaka.Event] = []
    async with runtime(**options) as rt:
        session = await rt.open(agent, id="s")
        try:
            async for event in session.stream(prompt):
                events.append(event)
                if event.type == "text.delta" and b"I am count" in event.to_json():
                    await session.interrupt("enough")
        except TurnError:
            pass
    return events


async def record_tools() -> list[vaka.Event]:
    """Reasoning, text, and four calls at once: one succeeds, one fails, one is denied, one is unknown."""
    four = calls(call("weather", city="Hilo"), call("weather", city="Atlantis"), call("tide"), call("fly"))
    model = ScriptedModel(say("Let me see.", reasoning="hm", **four) | USAGE, say("Grüße, 世界.", **USAGE))
    return await record(
        vaka.Agent("guide", model=model, tools=[weather, tide]), permissions=vaka.Permissions(deny=("tide",))
    )


async def record_output() -> list[vaka.Event]:
    """A tool that prints while it runs and changes the state of the session."""
    model = ScriptedModel(call("count", to=2), say("Counted."))
    return await record(vaka.Agent("counter", model=model, tools=[count]))


async def record_child() -> list[vaka.Event]:
    """A child agent that calls a tool."""
    model = ScriptedModel(
        call("scout", prompt="Look."),
        say("Sunny."),
        agents={"scout": [call("weather", city="Hilo"), say("It shines.")]},
    )
    scout = vaka.Agent("scout", model=model, tools=[weather])
    return await record(vaka.Agent("guide", model=model, tools=[scout]))


async def record_interrupt() -> list[vaka.Event]:
    """A turn that a person stops in the middle of its answer."""
    return await record(vaka.Agent("counter", model=Hanging()))


async def record_retry() -> list[vaka.Event]:
    """An answer that is cut and asked for again."""
    model = ScriptedModel({"chunks": ["Hel", "lo"], "cut_after": 1}, say("Hello."))
    return await record(vaka.Agent("greeter", model=RetryingModel(model, base=0.0, clock=FakeClock(auto=True))))


async def record_failure() -> list[vaka.Event]:
    """A turn whose model refuses the request."""
    return await record(vaka.Agent("greeter", model=ScriptedModel(fail(400, "no such model"))))


async def record_resumed() -> list[vaka.Event]:
    """A turn that waits for an approval, which another runtime gets, and goes on there."""
    store, ids = MemoryStore(), FakeIds()
    agent = vaka.Agent("guide", model=ScriptedModel(call("weather", city="Hilo"), say("Sunny.")), tools=[weather])
    events: list[vaka.Event] = []
    options: dict[str, Any] = {
        "environment": Environment(ids=ids),
        "permissions": vaka.Permissions(confirm=("weather",), ask="suspend"),
    }
    async with runtime(store, **options) as rt:
        session = await rt.open(agent, id="s")
        turn = session.stream("Go.")
        while not events or events[-1].type != "approval.requested":
            events.append(await anext(turn))
        with pytest.raises(vaka.Suspended):
            await turn.wait()
    async with runtime(store, **options) as rt:
        (pending,) = await rt.decisions()
        await rt.resolve(pending.id, "approve")
        session = await rt.open(agent, id="s")
        events += [event async for event in session.resume()]
    return events


async def record_decisions() -> list[vaka.Event]:
    """Two calls at once that wait: a child agent whose call needs an approval, and a tool that asks a question."""
    two = calls(call("scout", prompt="Look."), call("choose"))
    scouts = [call("weather", city="Hilo"), say("It shines.")]
    model = ScriptedModel(two, say("<script>alert(1)</script>"), agents={"scout": scouts})
    scout = vaka.Agent("scout", model=model, tools=[weather])
    agent = vaka.Agent("guide", model=model, tools=[scout, choose])
    return await record_suspended(agent, permissions=vaka.Permissions(confirm=("weather",)))


async def record_client_tool() -> list[vaka.Event]:
    """A call that the client runs."""
    model = ScriptedModel(call("pick", name="map"), say("Thanks."))
    return await record_suspended(vaka.Agent("guide", model=model, tools=[ClientTool("pick", "Pick a file.")]))


async def record_suspended(agent: vaka.Agent[Any], **options: Any) -> list[vaka.Event]:
    """Return the log of a turn whose decisions are made while it is suspended."""
    store = MemoryStore()
    async with runtime(store, **merge_options({"permissions": vaka.Permissions(ask="suspend")}, options)) as rt:
        session = await rt.open(agent, id="s")
        with pytest.raises(vaka.Suspended):
            await session.run("Go.")
        for pending in await rt.decisions():
            match pending.event.data:
                case ApprovalRequested():
                    await rt.resolve(pending.id, "approve")
                case QuestionAsked(kind="result", call=waiting):
                    await session.answer_call(waiting or "", {"path": "map.png"})
                case _:
                    await rt.answer(pending.id, "east")
        async for _ in session.resume():
            pass
        return [event async for event in store.events.read(SessionId("s"))]


@vaka.tool(effect="resume")
async def choose(context: vaka.ToolContext[Any]) -> str:
    """Let a person choose."""
    return str(await context.ask("East or west?", options=("east", "west")))


ROUTERS = ("front", "desk")


def make_router() -> vaka.Agent[Any]:
    """Return a router whose first agent is a router, too."""
    rules = [{"name": "book", "patterns": ["book a room"]}, {"name": "music", "patterns": ["play music"]}]
    model = ScriptedModel(
        agents={
            "front": [say("book\nmusic")],
            "desk": [say("book")],
            "player": [say("Playing.")],
            "booking": [call("weather", city="Hilo"), call("leave"), say("Booked.")],
        }
    )
    booking = vaka.Agent("booking", tools=[weather, leave], middleware=[QuitTools("leave")])
    desk = MatchAgent("desk", rules=rules[:1], routes=[Route(["book"], booking)])
    routes = [Route(["book"], desk), Route(["music"], vaka.Agent("player"))]
    return MatchAgent("front", rules=rules, routes=routes, model=model)


@vaka.tool
async def leave() -> str:
    """End the conversation."""
    return "ok"


async def record_router() -> list[vaka.Event]:
    """An input with two intents: the agent of another router answers the first, an agent of the router the second."""
    return await record(make_router(), "Book a room and play music.")


RECORDERS = (
    record_tools,
    record_output,
    record_child,
    record_interrupt,
    record_retry,
    record_failure,
    record_resumed,
    record_router,
    record_decisions,
    record_client_tool,
)


@cache
def recorded_runs() -> list[list[vaka.Event]]:
    async def record_all() -> list[list[vaka.Event]]:
        return [await record() for record in RECORDERS]

    return asyncio.run(record_all())


@st.composite
def parts_of_runs(draw: st.DrawFn) -> list[vaka.Event]:
    """The events of a run from any one on, up to any other, with events that are missing or come twice."""
    events = draw(st.sampled_from(recorded_runs()))
    start, end = draw(st.integers(0, len(events))), draw(st.integers(0, len(events)))
    counts = draw(st.lists(st.sampled_from([1, 1, 1, 0, 2]), min_size=len(events), max_size=len(events)))
    part = list(zip(events, counts, strict=True))[min(start, end) : max(start, end)]
    return [event for event, count in part for _ in range(count)]
