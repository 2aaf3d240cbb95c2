"""A quit tool finishes its agent: the final text follows, then the conversation accepts no more input."""

import asyncio
from itertools import accumulate
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect_turn,
    count_commits,
    last_body,
    log_writer,
    read_log,
    results_by_call,
    runtime,
)
from vaka.core.types.errors import InvalidInput, TurnError
from vaka.core.types.message import AssistantMessage, UserMessage, text_of
from vaka.core.types.progress import TurnCompleted, TurnFailed
from vaka.genx import QuitTools, is_finished
from vaka.runtime.options import policy_from_rules
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, fail, say

WORK: list[str] = []


@vaka.tool(effect="read")
async def look() -> str:
    """Look around."""
    WORK.append("look")
    return "seen"


@vaka.tool(effect="idempotent")
async def goodbye(broken: bool = False) -> str:
    """Say goodbye."""
    WORK.append("goodbye")
    if broken:
        raise ValueError("the door is stuck")
    return "waved"


def polite(*lines: Any, **more: Any) -> vaka.Agent:
    return agent(ScriptedModel(*lines), look, goodbye, middleware=[QuitTools("tool:goodbye")], **more)


async def test_a_quit_tool_runs_the_final_text_follows_and_then_input_is_refused() -> None:
    store, who = MemoryStore(), polite(calls(call("goodbye"), call("look")), say("Farewell."), say("never"))
    WORK.clear()
    async with runtime(store) as rt:
        session = await rt.open(who, id="s")
        assert not await is_finished(session)
        assert (await session.run("Bye.")).text == "Farewell."
        assert sorted(WORK) == ["goodbye", "look"]
        assert await is_finished(session)
        with pytest.raises(TurnError, match=r"^agent: closed; the agent 'assistant' has finished") as refused:
            await session.run("Hello again?")
        assert refused.value.code == "closed"
        failed = last_body(await collect_turn(session, "Really?"))
        assert isinstance(failed, TurnFailed)
        assert failed.withdrawn
        said = [text_of(message.content) for message in await session.messages() if isinstance(message, UserMessage)]
        assert said == ["Bye."]
    async with runtime(store) as rt:  # as after a restart
        session = await rt.open(who, id="s")
        with pytest.raises(TurnError, match="agent: closed"):
            await session.run("Still there?")
        fork = await session.fork()
        assert await is_finished(fork)
        with pytest.raises(TurnError, match="agent: closed"):
            await fork.run("And here?")
    log = await read_log(store, "s")
    check_log(log)


async def test_a_rewind_to_before_the_quit_call_takes_the_end_back() -> None:
    store, who = MemoryStore(), polite(say("Hi."), call("goodbye"), say("Farewell."), say("Back."))
    async with runtime(store) as rt:
        session = await rt.open(who, id="s")
        await session.run("Hello.")
        before = await session.checkpoint("before")
        await session.run("Bye.")
        early, late = await session.fork(before), await session.fork()
        assert [await is_finished(early), await is_finished(late)] == [False, True]
        await session.rewind(before)
        assert not await is_finished(session)
        assert (await session.run("Wait.")).text


async def test_calls_that_fail_or_are_refused_finish_nothing() -> None:
    lines = (call("goodbye", broken=True), say("It failed."), call("goodbye", nonsense=1), say("It was wrong."))
    async with runtime() as rt:
        session = await rt.open(polite(*lines))
        for _ in range(2):
            await session.run("Bye.")
            assert not await is_finished(session)
    async with runtime(permissions=vaka.Permissions(policy=policy_from_rules(deny=["goodbye"]))) as rt:
        session = await rt.open(polite(call("goodbye"), say("I may not.")))
        assert (await session.run("Bye.")).text == "I may not."
        assert not await is_finished(session)


async def test_an_agent_is_finished_however_the_turn_of_its_quit_tool_ends() -> None:
    async with runtime() as rt:
        session = await rt.open(polite(call("goodbye"), fail(500)))
        with pytest.raises(TurnError, match="the model failed"):
            await session.run("Bye.")
        assert await is_finished(session)
        limited = await rt.open(polite(call("goodbye"), say("never"), limits=vaka.Limits(max_steps=1)))
        assert (await limited.run("Bye.")).limit == "steps"
        assert await is_finished(limited)


async def test_input_that_joins_the_last_turn_is_answered_and_queued_input_is_refused() -> None:
    inside, opened = asyncio.Event(), asyncio.Event()

    @vaka.tool(effect="read")
    async def leave() -> str:
        """Leave slowly."""
        inside.set()
        await opened.wait()
        return "left"

    model = ScriptedModel(call("leave"), say("Yes, and goodbye."))
    async with runtime() as rt:
        session = await rt.open(agent(model, leave, middleware=[QuitTools("leave")]))
        first = asyncio.create_task(session.run("Leave."))
        await inside.wait()
        await session.steer("Take your coat.")
        await session.send("Come back.", key="back")
        opened.set()
        assert (await first).text == "Yes, and goodbye."
        with pytest.raises(TurnError, match="agent: closed"):
            await session.run("Come back.", key="back")
        assert [text_of(m.content) for m in await session.messages() if isinstance(m, UserMessage)] == [
            "Leave.",
            "Take your coat.",
        ]


async def test_a_process_killed_anywhere_in_the_last_turn_finishes_it_and_the_agent() -> None:
    store, who = MemoryStore(), polite(calls(call("look"), call("goodbye")), say("Farewell."))
    counter = count_commits(store)
    async with runtime(store) as rt:
        await (await rt.open(who, id="s")).run("Bye.")
    log = await read_log(store, "s")
    for length in list(accumulate(map(len, counter.commits)))[:-1]:
        dead = MemoryStore()
        await log_writer(dead, "s", log[:length])()
        async with runtime(dead) as rt:
            session = await rt.open(polite(calls(call("look"), call("goodbye")), say("Farewell.")), id="s")
            assert not await is_finished(session)
            response = await session.resume().wait()
            assert (length, response.text) == (length, "Farewell.")
            assert await is_finished(session)
            with pytest.raises(TurnError, match="agent: closed"):
                await session.run("Hello?")
        again = await read_log(dead, "s")
        check_log(again)
        assert sum(isinstance(event.data, TurnCompleted) for event in again) == 1


async def test_the_quit_tool_of_a_child_finishes_neither_its_parent_nor_its_next_run() -> None:
    child = vaka.Agent(
        "child",
        model=ScriptedModel(agents={"child": [call("goodbye"), say("Child left."), say("New child.")]}),
        tools=[goodbye],
        middleware=[QuitTools("goodbye")],
        description="Leaves.",
    )
    lines = (call("child", prompt="Go."), call("child", prompt="Go again."), say("Done."))
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(*lines), child, middleware=[QuitTools("goodbye")]))
        assert (await session.run("Go.")).text == "Done."
        assert not await is_finished(session)


async def test_the_call_of_an_agent_can_be_a_quit_tool() -> None:
    child = vaka.Agent("closer", model=ScriptedModel(agents={"closer": [say("Closed.")]}), description="Closes.")
    async with runtime() as rt:
        session = await rt.open(
            agent(
                ScriptedModel(call("closer", prompt="Go."), say("Done.")), child, middleware=[QuitTools("agent:closer")]
            )
        )
        await session.run("Go.")
        assert await is_finished(session)


def test_a_quit_tool_without_a_name_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="a quit tool needs a name, not 'tool:'"):
        QuitTools("tool:")


async def test_a_task_cannot_be_resumed_with_a_finished_child() -> None:
    model = ScriptedModel(
        call("Task", prompt="Go.", subagent_type="runner"),
        say("one"),
        call("Task", prompt="More.", resume="agent-1"),
        say("two"),
        agents={"runner": [call("goodbye"), say("Gone."), say("never")]},
    )
    runner = vaka.SubAgent(name="runner", tools=[goodbye], middleware=[QuitTools("goodbye")])
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model, middleware=[vaka.SubAgents(runner)]), id="s")
        await session.run("Start.")
        assert (await session.run("Again.")).text == "two"
    results = results_by_call(await read_log(store, "s"))
    assert results["call_1"].text.startswith("Gone.")
    assert results["call_2"].failed
    assert "agent: closed; the agent 'runner' has finished" in results["call_2"].text


TALK = """ function run(ctx)
    local helper = ctx.create_agent("helper")
    while true do
        local input = ctx.recv()
        if not input then return end
        helper:send(input.text)
        local ok, answer = pcall(function() return helper:collect() end)
        ctx.emit({ text = answer, eof = true })
    end
end"""


async def test_a_conversation_with_a_finished_child_raises_its_error_in_a_script_after_any_crash() -> None:
    def script() -> vaka.LuauAgent:
        model = ScriptedModel(agents={"helper": [say("Hello."), call("goodbye"), say("Farewell."), say("never")]})
        helper = vaka.Agent("helper", model=model, tools=[goodbye], middleware=[QuitTools("goodbye")])
        return vaka.LuauAgent("chat", TALK, model=model, tools=[helper])

    store = MemoryStore()
    counter = count_commits(store)
    async with runtime(store) as rt:
        session = await rt.open(script(), id="s")
        assert (await session.run("Hi.")).text == "Hello."
        assert (await session.run("Bye.")).text == "Farewell."
        assert "agent: closed" in (await session.run("Hello?")).text
        assert not await is_finished(session)
    log = await read_log(store, "s")
    for length in list(accumulate(map(len, counter.commits)))[:-1]:
        dead = MemoryStore()
        await log_writer(dead, "s", log[:length])()
        async with runtime(dead) as rt:
            session = await rt.open(script(), id="s")
            await session.resume().wait()
            answers = [text_of(m.content) for m in await session.messages() if isinstance(m, AssistantMessage)]
            answers += [(await session.run(text)).text for text in ("Hi.", "Bye.", "Hello?")[len(answers) :]]
            assert (length, answers[:2]) == (length, ["Hello.", "Farewell."])
            assert "agent: closed" in answers[2]
