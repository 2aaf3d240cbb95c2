import asyncio
from typing import Any

from inline_snapshot import snapshot

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect_turn,
    count_commits,
    event_types,
    last_body,
    read_log,
    reasons_by_call,
    results_by_call,
    runtime,
)
from vaka.core.types import progress
from vaka.core.types.message import ToolMessage
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say


@vaka.tool(effect="read")
async def weather(city: str) -> str:
    """Return today's weather."""
    return f"rain in {city}"


async def test_a_run_with_one_tool_call_streams_its_events() -> None:
    store = MemoryStore()
    model = ScriptedModel(call("weather", city="Hilo"), say("It rains."))
    async with runtime(store) as rt:
        session = await rt.open(agent(model, weather), id="s")
        events = await collect_turn(session, "Is it raining?")
    assert event_types(events, live=True) == snapshot(
        [
            "session.opened",
            "input.added",
            "turn.started",
            "step.started",
            "message.started",
            "tool.args.delta",
            "message.completed",
            "usage",
            "tool.called",
            "tool.started",
            "tool.completed",
            "step.completed",
            "step.started",
            "message.started",
            "text.delta",
            "text.delta",
            "message.completed",
            "usage",
            "step.completed",
            "turn.completed",
        ]
    )
    assert last_body(events).text == "It rains."
    check_log(await read_log(store, "s"))


async def test_a_run_with_one_tool_call_is_four_commits() -> None:
    store = MemoryStore()
    counting = count_commits(store)
    model = ScriptedModel(call("weather", city="Hilo"), say("It rains."))
    async with runtime(store) as rt:
        await collect_turn(await rt.open(agent(model, weather), id="s"))
    assert counting.commits == snapshot(
        [
            ["session.opened", "input.added", "turn.started", "step.started"],
            ["message.completed", "usage", "tool.called", "tool.started"],
            ["tool.completed", "step.completed", "step.started"],
            ["message.completed", "usage", "step.completed", "turn.completed"],
        ]
    )


async def test_run_drains_stream() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(call("weather", city="Hilo"), say("It rains.")), weather), id="s")
        response = await session.run("Is it raining?")
    assert (response.text, response.stop, response.steps, response.tool_calls) == ("It rains.", "end", 2, ("weather",))


async def test_results_reach_the_model_in_call_order_whatever_order_they_finish() -> None:
    gates = {name: asyncio.Event() for name in "abc"}

    @vaka.tool(effect="read")
    async def wait(name: str) -> str:
        """Wait for a name to be called."""
        if name == "c":
            gates["b"].set()
        await gates[name].wait() if name != "c" else None
        if name == "b":
            gates["a"].set()
        return name

    model = ScriptedModel(calls(call("wait", name="a"), call("wait", name="b"), call("wait", name="c")), say("done"))
    async with runtime() as rt:
        events = await collect_turn(await rt.open(agent(model, wait), id="s"))
    finished = [event.data.result.text for event in events if isinstance(event.data, progress.ToolCompleted)]
    assert finished == ["c", "b", "a"]
    shown = model.prompts[1].messages[-1]
    assert isinstance(shown, ToolMessage)
    assert [result.text for result in shown.results] == ["a", "b", "c"]


async def test_no_more_tools_run_at_once_than_allowed() -> None:
    running: list[int] = [0, 0]

    @vaka.tool(effect="read")
    async def work(n: int) -> int:
        """Work a little."""
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running[0] -= 1
        return n

    many = calls(*(call("work", n=n) for n in range(9)))
    store = MemoryStore()
    limits = vaka.Limits(max_tool_concurrency=2)
    async with runtime(store) as rt:
        events = await collect_turn(await rt.open(agent(ScriptedModel(many, say("done")), work, limits=limits), id="s"))
    assert running[1] == 2
    assert [result.value for result in results_by_call(events).values()] == list(range(9))
    check_log(await read_log(store, "s"))


async def test_an_unknown_tool_is_a_failed_result_not_an_error() -> None:
    model = ScriptedModel(call("fly"), say("I cannot."))
    async with runtime() as rt:
        events = await collect_turn(await rt.open(agent(model, weather), id="s"))
    assert results_by_call(events)["call_1"].text == "there is no tool 'fly'; the tools are: weather"
    assert last_body(events).text == "I cannot."


async def test_an_unknown_tool_without_any_tools_is_a_failed_result() -> None:
    async with runtime() as rt:
        events = await collect_turn(await rt.open(agent(ScriptedModel(call("fly"), say("No."))), id="s"))
    assert results_by_call(events)["call_1"].text == "there is no tool 'fly'"


async def test_invalid_arguments_are_a_failed_result() -> None:
    bad: dict[str, Any] = {"tool_calls": [{"name": "weather", "arguments": '{"city": "Hi'}]}
    model = ScriptedModel(calls(call("weather", town=3), bad), say("Sorry."))
    async with runtime() as rt:
        events = await collect_turn(await rt.open(agent(model, weather), id="s"))
    assert reasons_by_call(events) == {"call_1": "invalid_arguments", "call_2": "invalid_arguments"}


async def test_a_second_turn_sees_the_first() -> None:
    model = ScriptedModel(say("Hello."), say("Again."))
    async with runtime() as rt:
        session = await rt.open(agent(model, instructions="Be brief."), id="s")
        await session.run("One.")
        await session.run("Two.")
        heard = await session.messages()
    assert [type(message).__name__ for message in model.prompts[1].messages] == [
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
    ]
    assert model.prompts[1].system == "Be brief."
    assert len(heard) == 4


async def test_call_ids_are_never_used_twice_in_a_session() -> None:
    store = MemoryStore()
    model = ScriptedModel(
        call("weather", city="a"), say("1"), calls(call("weather", city="b"), call("weather", city="c")), say("2")
    )
    async with runtime(store) as rt:
        session = await rt.open(agent(model, weather), id="s")
        await session.run("One.")
        await session.run("Two.")
    log = await read_log(store, "s")
    check_log(log)
    assert list(results_by_call(log)) == ["call_1", "call_2", "call_3"]
