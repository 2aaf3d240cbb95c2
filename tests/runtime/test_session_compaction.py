"""A session that its caller compacts: between turns, as the writer, with instructions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, read_log, runtime
from vaka.core.ports.model import Prompt
from vaka.core.types.context import CompactionRequest, ContextCompacted
from vaka.core.types.errors import Busy, InvalidInput, NotFound
from vaka.core.types.message import ToolMessage, text_of
from vaka.middleware import ContextPolicy
from vaka.stores.memory import MemoryStore
from vaka.testing import FunctionModel, ScriptedModel, call, fail, say

LINE = "The quick brown fox jumps over the lazy dog. "
SUMMARY = {"summary": [say("<summary>The boat is red.</summary>", repeat=True)]}


async def talk(session: vaka.Session, turns: int) -> None:
    for number in range(1, turns + 1):
        await session.run(f"question {number} {LINE * 5}")


async def seen_by(session: vaka.Session) -> list[str]:
    return [text_of(m.content) for m in await session.messages() if not isinstance(m, ToolMessage)]


async def test_a_session_is_compacted_between_turns_with_instructions() -> None:
    model = ScriptedModel(say(LINE * 5, repeat=True), agents=SUMMARY)
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model, compaction=False), id="s")
        await talk(session, 5)
        result = await session.compact("the colour of the boat")
        assert result.event is not None
        body = result.event.data
        assert isinstance(body, ContextCompacted)
        assert (body.trigger, body.instructions, body.model) == ("manual", "the colour of the boat", "scripted")
        assert (result.before, result.after) == (body.before, body.after)
        assert result.after < result.before
        assert result.summary.endswith("The boat is red.")
        shown = await seen_by(session)
        assert shown[0].startswith("question 1 ")
        assert shown[1].endswith("The boat is red.")
        assert shown[-2].startswith("question 5 ")
        asked = next(prompt for prompt in model.prompts if prompt.agent == "summary")
        assert "keep in particular: the colour of the boat" in text_of(asked.messages[0].content)  # type: ignore[union-attr]  # a user message
        stats = await rt.stats("s")
        assert (stats.request_count, stats.compactions, stats.by_agent["summary"].request_count) == (6, 1, 1)
        assert (await session.run("and now?")).text
        assert (await seen_by(session))[-2] == "and now?"
    check_log(await read_log(store, "s"))


async def test_the_sizes_before_and_after_are_of_one_scale_when_the_provider_counts_less() -> None:
    counted = say(LINE * 5, usage={"input": 300, "output": 50}, repeat=True)
    async with runtime() as rt:
        answering = agent(ScriptedModel(counted, agents=SUMMARY), instructions="Be brief. " * 2_000)
        session = await rt.open(answering, id="s")
        await talk(session, 5)
        result = await session.compact()
    assert 0 < result.after < result.before < 1_000


async def test_nothing_is_written_when_there_is_nothing_to_leave_out() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(say("Hi."))), id="s")
        with pytest.raises(NotFound, match="there is no session 's'"):
            await session.compact()
        await session.run("Hello.")
        head = len(await read_log(store, "s"))
        result = await session.compact()
        assert (result.event, result.before, result.summary) == (None, result.after, "")
        assert len(await read_log(store, "s")) == head
        info = await store.sessions.find(session.id)
        assert info is not None
        assert not info.live  # the claim was released


async def test_a_running_turn_is_busy_unless_it_is_interrupted() -> None:
    waiting = asyncio.Event()

    async def answer(prompt: Prompt) -> Any:
        if "wait" in text_of(prompt.messages[-1].content):  # type: ignore[union-attr]  # a user message
            waiting.set()
            await asyncio.Event().wait()
        return say("<summary>Short.</summary>" if prompt.agent == "summary" else LINE * 5)

    async with runtime() as rt:
        session = await rt.open(agent(FunctionModel(answer)), id="s")
        await talk(session, 3)
        task = asyncio.create_task(session.run("wait"))
        await waiting.wait()
        with pytest.raises(Busy):
            await session.compact()
        result = await session.compact(interrupt=True)
        assert (await asyncio.gather(task, return_exceptions=True))[0] is not None
        assert result.event is not None


async def test_an_input_that_comes_during_the_summary_is_answered_after_it() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def answer(prompt: Prompt) -> Any:
        if prompt.agent == "summary":
            asked.set()
            await go_on.wait()
            return say("<summary>Short.</summary>")
        return say(LINE * 5)

    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(FunctionModel(answer)), id="s")
        await talk(session, 3)
        compacting = asyncio.create_task(session.compact())
        await asked.wait()
        head = len(await read_log(store, "s"))
        late = asyncio.create_task(session.run("one more"))
        await store.events.wait(session.id, after=head)
        go_on.set()
        assert (await compacting).event is not None
        assert (await late).text
        assert (await seen_by(session))[-2:] == ["one more", LINE * 5]
    types = [event.type for event in await read_log(store, "s")]
    assert types.count("context.compacted") == 1
    check_log(await read_log(store, "s"))


async def test_a_failed_summary_is_reported_and_a_skipped_one_says_why() -> None:
    model = ScriptedModel(say(LINE * 5, repeat=True), agents={"summary": [{**fail(500, "down"), "repeat": True}]})
    async with runtime() as rt:
        session = await rt.open(agent(model), id="s")
        await talk(session, 4)
        said = await session.messages()
        result = await session.compact()
        assert (result.event, result.after) == (None, result.before)
        assert result.skipped.startswith("no model wrote a summary: ")
        assert "down" in result.skipped
        assert await session.messages() == said

        class Refusal(vaka.Middleware, ContextPolicy):
            async def before_compaction(self, turn: Any, request: CompactionRequest) -> CompactionRequest:
                return CompactionRequest(skip=f"not {request.trigger}")

        other = await rt.open(agent(model, middleware=[Refusal()]), id="s2")
        await talk(other, 4)
        skipped = await other.compact()
        assert (skipped.event, skipped.skipped) == (None, "not manual")


async def test_scripts_and_long_instructions_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    script = tmp_path / "echo.luau"
    script.write_text("function main(ctx) end")
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("Hi."))), id="s")
        await session.run("Hello.")
        with pytest.raises(InvalidInput, match="at most 20000 are allowed"):
            await session.compact("x" * 20_001)
        with pytest.raises(InvalidInput, match="runs a script"):
            await (await rt.open(vaka.LuauAgent("echo", script), id="s2")).compact()


async def test_a_turn_that_waits_for_a_person_must_end_first() -> None:
    @vaka.tool
    async def sail() -> str:
        """Sail."""
        return "gone"

    asks = vaka.middleware.Approval({"sail": True})
    model = ScriptedModel(say(LINE * 5), say(LINE * 5), call("sail"), agents=SUMMARY)
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
        session = await rt.open(agent(model, sail, middleware=[asks]), id="s")
        await talk(session, 2)
        with pytest.raises(vaka.Suspended):
            await session.run("Sail.")
        with pytest.raises(Busy, match="has an unfinished turn; resume it or interrupt it first"):
            await session.compact()
        assert "context.compacted" not in [event.type for event in await read_log(store, "s")]


async def test_of_two_writers_one_compacts_and_the_other_gets_busy(tmp_path: Path) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def answer(prompt: Prompt) -> Any:
        if prompt.agent == "summary":
            asked.set()
            await go_on.wait()
            return say("<summary>Short.</summary>")
        return say(LINE * 5)

    url = f"sqlite:///{tmp_path / 'vaka.db'}"
    async with vaka.Runtime(store=url) as one, vaka.Runtime(store=url) as two:
        here = await one.open(agent(FunctionModel(answer)), id="s")
        there = await two.open(agent(FunctionModel(answer)), id="s")
        await talk(here, 3)
        compacting = asyncio.create_task(here.compact())
        await asked.wait()
        with pytest.raises(Busy):
            await there.compact()
        go_on.set()
        assert (await compacting).event is not None
        assert (await there.run("and now?")).text
        assert (await seen_by(there))[1].endswith("Short.")
        types = [event.type async for event in one.store.events.read(here.id)]
        assert types.count("context.compacted") == 1


async def test_a_compacted_child_goes_on_with_its_summary_after_its_parent_was_compacted() -> None:
    @vaka.tool(effect="read")
    async def look(at: int) -> str:
        """Look at something."""
        return LINE * 20

    child = [*[call("look", at=number) for number in range(10)], say("I saw all."), say("I remember.")]
    model = ScriptedModel(
        call("Task", prompt="Look ten times.", subagent_type="runner"),
        say("one"),
        say(LINE * 20),
        say(LINE),
        call("Task", prompt="What did you see?", resume="agent-1"),
        say("five"),
        agents={"runner": child, **SUMMARY},
        context_window=2_000,
    )
    store = MemoryStore()
    runner = vaka.SubAgents(vaka.SubAgent(name="runner", instructions="You run.", tools=[look]))
    async with runtime(store) as rt:
        session = await rt.open(agent(model, middleware=[runner]), id="s")
        for prompt in ("Go.", "Two.", "Three."):
            await session.run(prompt)
        assert (await session.compact()).event is not None
        assert (await session.run("Ask again.")).text == "five"
    log = await read_log(store, "s")
    paths = [event.path for event in log if event.type == "context.compacted"]
    assert paths[0] == ("agent-1",)
    assert paths[-1] == ()
    [asked] = [prompt for prompt in model.prompts if prompt.path == ("agent-2",)]
    shown = [text_of(m.content) for m in asked.messages if not isinstance(m, ToolMessage)]
    assert any(text.endswith("The boat is red.") for text in shown)
    assert "Look ten times." in shown
    assert shown[-1] == "What did you see?"
    check_log(log)
