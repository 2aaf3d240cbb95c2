"""Faults of the ReAct agents that vaka's definitions come from; each test shows that vaka does not have one."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import accumulate
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    collect_turn,
    count_commits,
    event_types,
    last_body,
    log_writer,
    read_log,
    reasons_by_call,
    results_by_call,
    runtime,
)
from vaka.content import format_history
from vaka.core.ports.model import Chunk, Prompt, StopChunk, TextChunk
from vaka.core.types import progress
from vaka.core.types.errors import ConfigError, Interrupted
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor
from vaka.core.types.message import Text, ToolMessage
from vaka.genx import QuitTools, is_finished
from vaka.runtime.session import Session
from vaka.stores.memory import MemoryStore
from vaka.testing.models import RecordingModel, ScriptedModel, call, calls, say


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    if at == "sun":
        raise ValueError("too bright")
    return f"seen {at}"


async def revert(session: Session) -> None:
    """Take back the last turn."""
    first = (await session.last_turn())[0]
    await session.rewind(Cursor(first.epoch, first.seq - 1))


async def history(session: Session) -> list[str]:
    return format_history(await session.messages()).splitlines()


async def test_the_start_of_a_tool_is_delivered_while_the_tool_blocks_the_turn() -> None:
    inside, release = asyncio.Event(), asyncio.Event()

    @vaka.tool(effect="read")
    async def wait() -> str:
        """Wait."""
        inside.set()
        await release.wait()
        return "waited"

    model = RecordingModel(ScriptedModel(call("wait"), say("done")))
    async with runtime() as rt:
        session = await rt.open(agent(model, wait))
        types: list[str] = []
        async with aclosing(aiter(session.stream("Go."))) as events:
            async for event in events:
                types.append(event.type)
                if event.type == "tool.started":
                    await inside.wait()
                    assert len(model.prompts) == 1  # the model is called again only after the result
                    release.set()
                if isinstance(event.data, progress.ToolCompleted):
                    assert event.data.result.text == "waited"  # the result is part of the event
    assert types.index("tool.started") < types.index("tool.completed")
    assert len(model.prompts) == 2


async def test_a_failing_and_an_unknown_tool_are_failed_events_that_the_model_reads() -> None:
    model = RecordingModel(
        ScriptedModel(calls(call("look", at="sun"), call("fly"), call("look", at="a")), say("Sorry."))
    )
    async with runtime() as rt:
        session = await rt.open(agent(model, look))
        events = await collect_turn(session)
        assert reasons_by_call(events) == {"call_1": "error", "call_2": "unknown_tool", "call_3": "ok"}
        assert [event.type for event in events if event.type in ("tool.failed", "tool.completed")].count(
            "tool.failed"
        ) == 2
        assert last_body(events).text == "Sorry."
    last = model.prompts[1].messages[-1]
    assert isinstance(last, ToolMessage)
    told = [result.text for result in last.results]
    assert "too bright" in told[0]
    assert "fly" in told[1]
    assert told[2] == "seen a"


async def test_all_calls_of_one_answer_run_and_one_model_call_follows() -> None:
    model = RecordingModel(
        ScriptedModel(calls(*[call("look", at=str(n)) for n in range(12)], text="Let me see."), say("ok"))
    )
    async with runtime() as rt:
        session = await rt.open(agent(model, look))
        events = await collect_turn(session)
        assert [result.text for result in results_by_call(events).values()] == [f"seen {n}" for n in range(12)]
        lines = await history(session)
    assert len(model.prompts) == 2
    assert lines[1].startswith('[model]: Let me see. look({"at":"0"}) look(')  # the text before a call is kept
    assert lines[2:-1] == [f"[tool]: seen {n}" for n in range(12)]


async def test_every_text_part_of_an_input_reaches_the_model_and_broken_arguments_are_repaired() -> None:
    broken = {"tool_calls": [{"name": "look", "arguments": '{"at": "here",}'}]}
    model = RecordingModel(ScriptedModel(broken, say("ok")))
    async with runtime() as rt:
        session = await rt.open(agent(model, look))
        await session.run([Text(text="First."), Text(text="Second.")])
        assert await history(session) == [
            "[user]: First.Second.",
            '[model]: look({"at": "here",})',
            "[tool]: seen here",
            "[model]: ok",
        ]


async def test_a_tool_that_only_its_agent_has_is_found_when_it_is_called() -> None:
    def made(name: str) -> Any:
        @vaka.tool(name="answer", effect="read")
        async def answer() -> str:
            """Answer."""
            return name

        return answer

    async with runtime() as rt:
        for name in ("one", "two"):  # two tools with one name, each inline in its agent
            events = await collect_turn(await rt.open(agent(ScriptedModel(call("answer"), say("ok")), made(name))))
            assert results_by_call(events)["call_1"].text == name


async def test_a_turn_ends_once_and_text_alone_never_finishes_the_agent() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(*[say("ok")] * 3), middleware=[QuitTools("look")]), id="s")
        for _ in range(3):
            events = await collect_turn(session)
            assert event_types(events).count("turn.completed") == 1
            assert await collect(session.resume()) == []  # no second end without an input
        assert not await is_finished(session)
    assert event_types(await read_log(store, "s")).count("turn.completed") == 3


async def test_a_finished_agent_stays_finished_and_an_input_never_waits_for_ever() -> None:
    async with runtime() as rt:
        session = await rt.open(
            agent(ScriptedModel(call("look"), say("Bye.")), look, middleware=[QuitTools("tool:look")])
        )
        await session.run("Go.")
        for _ in range(3):
            failed = last_body(await collect_turn(session))
            assert (failed.code, failed.message[:14]) == ("closed", "agent: closed;")
        assert (await history(session))[-1] == "[model]: Bye."


class StallingModel:
    """Stops in the middle of its first answer."""

    name = "stalling"

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        yield TextChunk("I was about" if prompt.number == 1 else "Go on.")
        if prompt.number == 1:
            await asyncio.Event().wait()
        yield StopChunk("end")


async def test_an_interrupt_keeps_the_partial_text_and_the_next_input_continues() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(StallingModel()))
        events: list[Event] = []
        async with session.stream("Tell me.") as turn:
            async for event in turn:
                events.append(event)
                if isinstance(event.data, progress.TextDelta):
                    await session.interrupt("enough")
            with pytest.raises(Interrupted):
                _ = turn.response
        cut = next(event.data for event in events if isinstance(event.data, progress.MessageCompleted))
        assert (cut.cut, cut.stop) == (True, "cut")
        assert (await session.run("And then?")).text == "Go on."
        assert await history(session) == [
            "[user]: Tell me.",
            "[model]: I was about",
            "[user]: And then?",
            "[model]: Go on.",
        ]


async def test_two_reverts_in_a_row_take_back_two_turns() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("1"), say("2"), say("3"), say("4"))))
        for text in ("One.", "Two.", "Three."):
            await session.run(text)
        await revert(session)
        await revert(session)
        assert await history(session) == ["[user]: One.", "[model]: 1"]
        await session.run("Again.")
        assert (await history(session))[:3] == ["[user]: One.", "[model]: 1", "[user]: Again."]


async def test_closing_twice_keeps_the_conversation_for_another_process() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("1"))), id="s")
        await session.run("One.")
        await session.close()
        await session.close()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("1"), say("2"))), id="s")
        assert await history(session) == ["[user]: One.", "[model]: 1"]
        assert (await session.run("Two.")).text == "2"


async def test_a_process_killed_anywhere_continues_with_its_pending_tool_results() -> None:
    ran: list[str] = []

    @vaka.tool(effect="idempotent")
    async def note(text: str) -> str:
        """Note a text."""
        ran.append(text)
        return f"noted {text}"

    lines = (calls(call("note", text="a"), call("note", text="b")), call("note", text="c"), say("done"))
    store = MemoryStore()
    counter = count_commits(store)
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(*lines), note), id="s")
        await session.run("Go.")
        whole = await history(session)
    log = await read_log(store, "s")
    for length in list(accumulate(map(len, counter.commits)))[:-1]:
        dead = MemoryStore()
        await log_writer(dead, "s", log[:length])()
        model = RecordingModel(ScriptedModel(*lines))
        async with runtime(dead) as rt:
            session = await rt.open(agent(model, note), id="s")
            assert (await session.resume().wait()).text == "done"
            assert (length, await history(session)) == (length, whole)
        check_log(await read_log(dead, "s"))
    assert set(ran) == {"a", "b", "c"}


async def test_a_limit_stops_a_model_that_calls_tools_for_ever_and_usage_is_counted() -> None:
    forever = [call("look", at=str(number)) for number in range(50)]
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(*forever), look, limits=vaka.Limits(max_steps=4)))
        response = await session.run("Go.")
        assert (response.stop, response.limit, response.steps) == ("limit", "steps", 4)
        assert response.usage.output > 0
        assert agent(ScriptedModel()).limits.max_steps is not None  # there is a limit by default


async def test_the_turn_of_a_reader_that_leaves_goes_on_without_it() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(call("look"), say("done"), say("more")), look))
        async with session.stream("Go.") as turn:
            async for event in turn:
                if event.type == "tool.started":
                    break
        assert (await session.run("More.")).text == "more"
        assert (await history(session))[3:] == ["[model]: done", "[user]: More.", "[model]: more"]


async def test_an_unknown_model_is_an_error_and_never_an_empty_name() -> None:
    async with runtime() as rt:
        session = await rt.open(vaka.Agent("a", model="nosuch/model"))
        with pytest.raises(ConfigError, match="nosuch"):
            await session.run("Hi.")
