"""States of GenX agents: sessions and children of sessions, their messages and values, and state documents."""

import asyncio
import sqlite3
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, count_commits, log_writer, read_log, runtime
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import Closed, InvalidInput, NotFound
from vaka.core.types.progress import TurnCompleted
from vaka.genx import (
    AgentEvent,
    GenxMessage,
    GenxRuntime,
    LuaState,
    MatchAgent,
    MatchState,
    MemoryOptions,
    MemoryQuery,
    PromptText,
    QuitTools,
    ReActState,
    Route,
    StateDocument,
)
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import RecordingModel, ScriptedModel, call, say

RULES: list[dict[str, Any]] = [
    {"name": "book", "vars": {"city": {"label": "city"}}, "patterns": ["book a room in [city]"]},
    {"name": "music", "patterns": ["play music"]},
]


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}"


@vaka.tool(effect="read")
async def done() -> str:
    """End the conversation."""
    return "ok"


def router(*lines: Any) -> MatchAgent:
    booking = vaka.Agent("booking", tools=[done], middleware=[QuitTools("done")])
    routes = [Route(["book"], booking), Route(["music"], vaka.Agent("player"))]
    return MatchAgent("front", rules=RULES, routes=routes, model=ScriptedModel(*lines))


def said(role: Any, content: str, **more: Any) -> GenxMessage:
    return GenxMessage(role=role, content=content, **more)


def shown(events: list[AgentEvent]) -> list[str]:
    """Return one line per event: type, phase, agent, state, and for the end of a stream its text."""
    rows: list[str] = []
    text = ""
    for event in events:
        row = f"{event.type} {event.phase or '-'} {event.agent_def} {event.agent_state_id}"
        if event.chunk is None:
            rows.append(row)
            continue
        text += str(event.chunk.part)
        if event.chunk.ctrl is not None and event.chunk.ctrl.end_of_stream:
            rows.append(f"{row} {text}")
            text = ""
    return rows


def without_times(messages: list[GenxMessage]) -> list[GenxMessage]:
    return [
        GenxMessage(**{name: getattr(message, name) for name in message.__struct_fields__ if name != "unix_epoch"})
        for message in messages
    ]


async def test_the_messages_of_a_state_are_those_of_its_session() -> None:
    async with runtime(environment=Environment(clock=FakeClock())) as rt:
        genx = GenxRuntime(rt, agents=[agent(ScriptedModel(call("look", at="it"), say("Hello.")), look)])
        assistant = await genx.new_agent("assistant", state_id="s")
        await assistant.run_until_eof("Hi.")
        state = assistant.state
        assert isinstance(state, ReActState)
        messages = await state.load_recent()
        called, result = messages[1], messages[2]
        assert (called.tool_call_name, called.tool_call_args) == ("look", '{"at":"it"}')
        assert (result.tool_result_id, result.content) == (called.tool_call_id, "seen it")
        assert without_times([messages[0], messages[3]]) == [said("user", "Hi."), said("model", "Hello.")]
        assert await state.load_recent(1) == messages[3:]
        assert all(message.unix_epoch for message in messages)
        same = await genx.get_state("s")
        assert same is not None
        assert (same.agent_def, same.parent_state_id, await same.load_recent()) == ("assistant", "", messages)
        assert await genx.get_state("other") is None


async def test_stored_messages_are_merged_and_reach_the_model() -> None:
    store, model = MemoryStore(), RecordingModel(ScriptedModel(say("Yes.")))
    async with runtime(store) as rt:
        genx = GenxRuntime(rt, agents=[agent(model, look)])
        state = await genx.create_react_state("assistant", "parent")
        for message in (
            said("user", "One."),
            said("user", "Two."),
            said("model", "Th"),
            said("model", "ree."),
            said("model", "", tool_call_id="a", tool_call_name="look", tool_call_args='{"at":'),
            said("model", "", tool_call_id="a", tool_call_name="look", tool_call_args='"it"}'),
            said("model", "", tool_call_id="b", tool_call_name="look", tool_call_args="{"),
            said("tool", "seen it", tool_result_id="a"),
        ):
            await state.store_message(message)
        assert len(await state.load_recent()) == 5  # the calls wait for the second result
        await state.store_message(said("tool", "broken", tool_result_id="b"))
        await state.store_message(said("model", "", tool_call_id="c", tool_call_name="look"))
        await state.store_message(said("user", "Well?"))
        with pytest.raises(InvalidInput, match="no call before it"):
            await state.store_message(said("tool", "seen", tool_result_id="z"))
        with pytest.raises(InvalidInput, match="user message should not have tool result fields"):
            await state.store_message(said("user", "", tool_result_id="z"))
        recent = without_times(await state.load_recent())
        assert [(message.role, message.content or message.tool_call_args) for message in recent] == [
            ("user", "One.\nTwo."),
            ("model", "Three."),
            ("model", '{"at":"it"}'),
            ("model", "{"),
            ("tool", "seen it"),
            ("tool", "broken"),
            ("model", "{}"),
            ("tool", "The imported conversation has no result of this call."),
            ("user", "Well?"),
        ]
        restored = await genx.restore_agent(state.id)
        await restored.run_until_eof("So?")
        assert restored.state.parent_state_id == "parent"
        [prompt] = model.prompts
        assert len(prompt.messages) == 10
        await restored.revert()
        assert without_times(await state.load_recent())[-1].role == "tool"
        check_log(await read_log(store, state.id))


async def test_messages_stored_at_the_same_time_are_all_kept() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        genx = GenxRuntime(rt, agents=[agent(ScriptedModel())])
        state = await genx.create_react_state("assistant")
        same = await genx.get_state(state.id)
        assert same is not None
        await asyncio.gather(
            *(state.store_message(said("model", f"{number} ")) for number in range(10)),
            *(same.set_property(f"p{number}", number) for number in range(10)),
        )
        [message] = await state.load_recent()
        assert sorted(message.content.split()) == [str(number) for number in range(10)]
        assert len(await state.properties()) == 10
        check_log(await read_log(store, state.id))


async def test_properties_and_the_summary_are_values_of_the_session() -> None:
    async with runtime() as rt:
        state = await GenxRuntime(rt, agents=[agent(ScriptedModel())]).create_react_state("assistant")
        await state.set_property("mood", "good")
        await state.set_property("age", 3)
        await state.delete_property("age")
        await state.set_summary("We met.")
        assert (await state.properties(), await state.get_property("age")) == ({"mood": "good"}, None)
        with pytest.raises(InvalidInput, match="begin with"):
            await state.set_property("$finished", True)
        await state.set_finished(True)
        assert (await state.is_finished(), await state.phase()) == (True, "finished")
        await state.set_finished(False)
        assert not await state.is_finished()


async def test_a_query_finds_messages_by_words_and_time() -> None:
    async with runtime() as rt:
        state = await GenxRuntime(rt, agents=[agent(ScriptedModel())]).create_react_state("assistant")
        noon = 1767355200  # 2026-01-02 12:00 UTC
        await state.store_message(said("user", "My cat is called Mochi.", unix_epoch=noon))
        await state.store_message(said("model", "A good name for a cat.", unix_epoch=noon + 3600))
        await state.store_message(said("user", "What time is it?", unix_epoch=noon + 86400))
        found = await state.query(MemoryQuery(text="the cat"))
        assert [segment.summary for segment in found] == ["My cat is called Mochi.", "A good name for a cat."]
        [segment] = await state.query(MemoryQuery(text="cat", year=2026, month=1, day=2, hour=13))
        assert (segment.summary, segment.unix_epoch) == ("My cat is called Mochi.", noon)
        assert len(await state.query(MemoryQuery(day=2))) == 2
        with pytest.raises(InvalidInput, match="month must be 1-12, got 13"):
            await state.query(MemoryQuery(month=13))
        await state.store_message(said("model", "Noon."))
        await state.store_message(said("user", "And the cat?"))
        await state.set_summary("We talk about pets.")
        context = await state.build_memory_context(MemoryOptions(summary=True, query=True, recent=2))
        assert [message.content for message in context.messages] == ["Noon.", "And the cat?"]
        assert context.prompts[0] == PromptText("summary", "We talk about pets.")
        assert "Mochi" in context.prompts[1].text
        assert len((await state.build_memory_context()).messages) == 5


async def test_a_router_passes_the_events_of_its_agents_and_keeps_its_own_end(tmp_path: Path) -> None:
    lines = [
        say("book: city=Hilo", agent="front"),
        say("Which day?", agent="booking"),
        say("book", agent="front"),
        call("done") | {"agent": "booking"},
        say("Booked.", agent="booking"),
        say("nothing", agent="front"),
        say("music", agent="front"),
        say("La.", agent="player"),
    ]
    store = f"sqlite:///{tmp_path}/vaka.db"
    async with vaka.Runtime(store=store) as rt:
        front = await GenxRuntime(rt).new_agent(router(*lines), state_id="s")
        assert shown(await front.run_until_eof("A room in Hilo.")) == [
            "chunk thinking booking s/agent-agent-1 Which day?",
            "eof executing front s",
        ]
        state = front.state
        assert isinstance(state, MatchState)
        assert [(match.rule_name, match.args) for match in await state.matches()] == [("book", {"city": "Hilo"})]
        calling = await state.calling_state()
        assert calling is not None
        assert (calling.id, calling.parent_state_id, await state.phase()) == ("s/agent-agent-1", "s", "executing")
        assert [message.role for message in await calling.load_recent()] == ["user", "model"]
        with pytest.raises(InvalidInput, match="the state of a child agent"):
            await calling.store_message(said("user", "Hi."))
    async with vaka.Runtime(store=store) as rt:
        genx = GenxRuntime(rt, agents=[router(*lines)])
        front = await genx.restore_agent("s")
        assert shown(await front.run_until_eof("Tomorrow.")) == [
            "tool_start tool booking s/agent-agent-1",
            "tool_done tool booking s/agent-agent-1",
            "chunk thinking booking s/agent-agent-1 Booked.",
            "eof - front s",
        ]
        child = await genx.get_state("s/agent-agent-1")
        assert child is not None
        assert (await child.is_finished(), child.agent_def, len(await child.load_recent())) == (True, "booking", 6)
        assert shown(await front.run_until_eof("Hm.")) == ["eof - front s"]
        assert not await front.state.is_matched() if isinstance(front.state, MatchState) else False
        assert shown(await front.run_until_eof("Play."))[-1] == "eof executing front s"
        await front.revert()
        assert (await front.format_history()).splitlines()[-1] == "[model]: Booked."
        with pytest.raises(InvalidInput, match='restore "s"'):
            await genx.restore_agent("s/agent-agent-1")
        with pytest.raises(InvalidInput, match='destroy "s"'):
            await genx.destroy_state("s/agent-agent-1")
        assert await genx.get_state("s/agent-agent-9") is None


async def test_a_router_killed_in_its_agent_goes_on_with_the_same_ids(tmp_path: Path) -> None:
    entered, opened = asyncio.Event(), asyncio.Event()

    @vaka.tool(effect="read")
    async def wait() -> str:
        """Wait."""
        entered.set()
        await opened.wait()
        return "waited"

    def front() -> MatchAgent:
        lines = [say("music", agent="front"), call("wait") | {"agent": "player"}, say("La.", agent="player")]
        more = [say("music", agent="front"), call("wait") | {"agent": "player"}]
        routes = [Route(["music"], vaka.Agent("player", tools=[wait]))]
        return MatchAgent("front", rules=RULES, routes=routes, model=ScriptedModel(*lines, *more))

    copy = tmp_path / "copy.db"
    async with vaka.Runtime(store=f"sqlite:///{tmp_path}/vaka.db") as dying:
        router_agent = await GenxRuntime(dying).new_agent(front(), state_id="s")
        await router_agent.input("Play.")
        assert shown([await router_agent.next()]) == ["tool_start tool player s/agent-agent-1"]
        await entered.wait()
        state = router_agent.state
        assert (await state.phase(), isinstance(state, MatchState)) == ("executing", True)
        with closing(sqlite3.connect(tmp_path / "vaka.db")) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)  # what the process leaves if it is killed now
        opened.set()
    async with vaka.Runtime(store=f"sqlite:///{copy}") as rt:
        router_agent = await GenxRuntime(rt, agents=[front()]).restore_agent("s")
        assert shown(await router_agent.run_until_eof()) == [
            "tool_start tool player s/agent-agent-1",
            "tool_done tool player s/agent-agent-1",
            "chunk thinking player s/agent-agent-1 La.",
            "eof executing front s",
        ]
        opened.clear()
        entered.clear()
        await router_agent.input("Louder.")
        await entered.wait()
        await router_agent.interrupt()
        assert shown(await router_agent.run_until_eof()) == [
            "tool_start tool player s/agent-agent-1",
            "tool_error tool player s/agent-agent-1",
            "interrupted - front s",
        ]


async def test_agents_killed_after_any_commit_are_restored_and_go_on() -> None:
    def react() -> vaka.Agent:
        lines = [call("look", at="it"), say("Seen."), call("done"), say("Bye.")]
        return agent(ScriptedModel(*lines), look, done, name="front", middleware=[QuitTools("done")])

    def route() -> vaka.Agent:
        lines = [say("book: city=Hilo"), say("")], [say("Which day?"), call("done"), say("Booked.")]
        return router(
            *(line | {"agent": name} for name, of in zip(("front", "booking"), lines, strict=True) for line in of)
        )

    inputs = ("First.", "Second.")
    for make in (react, route):
        store = MemoryStore()
        commits = count_commits(store).commits
        async with runtime(store) as rt:
            front = await GenxRuntime(rt).new_agent(make(), state_id="s")
            ends = [(await front.run_until_eof(text))[-1] for text in inputs]
            history = await front.format_history()
        log = await read_log(store, "s")
        for cut in accumulate(map(len, commits)):
            crashed = MemoryStore()
            await log_writer(crashed, "s", log[:cut])()
            async with runtime(crashed) as rt:
                front = await GenxRuntime(rt, agents=[make()]).restore_agent("s")
                said_before = len([event for event in log[:cut] if isinstance(event.data, InputAdded)])
                last = ends[said_before - 1]
                if said_before and not isinstance(log[cut - 1].data, TurnCompleted):
                    last = (await front.run_until_eof())[-1]
                for text in inputs[said_before:]:
                    last = (await front.run_until_eof(text))[-1]
                assert (last, await front.format_history()) == (ends[-1], history), (make, cut)
            check_log(await read_log(crashed, "s"))


async def test_the_ids_of_an_agent_stay_after_a_revert_and_a_restore() -> None:
    lines = [say("music", agent="front"), say("La.", agent="player")] * 5
    async with runtime() as rt:
        genx = GenxRuntime(rt, agents=[router(*lines)])
        front = await genx.new_agent("front", state_id="s")
        for _ in range(3):
            await front.run_until_eof("Play.")
        await front.revert()
        expected = ["chunk thinking player s/agent-agent-1 La.", "eof executing front s"]
        assert shown(await front.run_until_eof("Play.")) == expected
        await front.close()
        front = await genx.restore_agent("s")
        assert shown(await front.run_until_eof("Play.")) == expected
        child = await genx.get_state("s/agent-agent-1")
        assert child is not None
        assert len(await child.load_recent()) == 8


async def test_agents_of_a_router_in_a_router_have_their_own_ids() -> None:
    inner = MatchAgent("desk", rules=RULES, routes=[Route(["music"], vaka.Agent("player"))])
    model = ScriptedModel(
        say("music", agent="front"),
        say("music", agent="desk"),
        say("La.", agent="player"),
        say("music", agent="front"),
        say("music", agent="desk"),
        say("Lo.", agent="player"),
    )
    outer = MatchAgent("front", rules=RULES, routes=[Route(["music"], inner)], model=model)
    async with runtime() as rt:
        genx = GenxRuntime(rt)
        front = await genx.new_agent(outer, state_id="s")
        for text in ("La.", "Lo."):
            assert shown(await front.run_until_eof("Play.")) == [
                f"chunk thinking player s/agent-agent-1/agent-agent-1 {text}",
                "eof executing front s",
            ]
        player = await genx.get_state("s/agent-agent-1/agent-agent-1")
        assert player is not None
        assert [message.content for message in await player.load_recent()] == ["Play.", "La.", "Play.", "Lo."]
        assert player.parent_state_id == "s/agent-agent-1"


async def test_a_script_that_has_ended_is_closed() -> None:
    script = vaka.LuauAgent("echo", "function run(ctx) ctx.emit(ctx.recv()) ctx.emit('Bye.') end")
    async with runtime(model=ScriptedModel()) as rt:
        genx = GenxRuntime(rt, agents=[script])
        echo = await genx.new_agent("echo", state_id="s")
        assert isinstance(echo.state, LuaState)
        events = await echo.run_until_eof("Hello.")
        assert (events[-1].type.value, events[-1].phase) == ("closed", "finished")
        with pytest.raises(Closed, match="agent: closed"):
            await echo.input("Still there?")
        assert (await (await genx.restore_agent("s")).next()).type == "closed"
        assert await echo.state.is_finished()


async def test_an_archived_router_is_restored_with_the_conversation_of_its_agent() -> None:
    store = MemoryStore()
    lines = [say("book: city=Hilo", agent="front"), say("Which day?", agent="booking")]
    async with runtime(store) as rt:
        genx = GenxRuntime(rt, agents=[router(*lines)])
        front = await genx.new_agent("front", state_id="s")
        await front.run_until_eof("A room in Hilo.")
        document = await genx.export_state("s")
        await genx.destroy_state("s", archive=True)
        assert await genx.get_state("s") is None
    model = RecordingModel(ScriptedModel(say("nothing", agent="front"), say("Booked.", agent="booking")))
    async with runtime(store) as rt:
        front_agent = router()
        front_agent.model = model
        genx = GenxRuntime(rt, agents=[front_agent])
        front = await genx.restore_agent("s")
        assert await genx.export_state("s") == document
        events = await front.run_until_eof("Tomorrow.")
        assert shown(events)[-1] == "eof executing front s"
        assert len(model.prompts[-1].messages) == 3  # the agent remembers its first round
        check_log(await read_log(store, "s"))


async def test_a_document_becomes_a_session_and_back() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        genx = GenxRuntime(rt, agents=[agent(ScriptedModel(say("Again.")), look)])
        document = StateDocument(
            state_type="react",
            id="old",
            agent_def="assistant",
            parent_state_id="top",
            summary="We met.",
            properties={"mood": "good"},
            finished=True,
            messages=(
                said("user", "Hi.", unix_epoch=5),
                said("model", "I look.", unix_epoch=6),
                said("model", "", tool_call_id="x", tool_call_name="look", tool_call_args="{}", unix_epoch=6),
                said("tool", "seen", tool_result_id="x", unix_epoch=7),
                said("model", "y" * 40_000, unix_epoch=8),
                said("user", "Bye.", unix_epoch=9),
            ),
        )
        state = await genx.import_state(document)
        assert await state.to_document() == document.__class__(
            **{name: getattr(document, name) for name in document.__struct_fields__ if name != "phase"},
            phase="finished",
        )
        check_log(await read_log(store, "old"))
        with pytest.raises(InvalidInput, match='state "old" exists'):
            await genx.import_state(document)
        with pytest.raises(InvalidInput, match="belongs to a child agent of 'old'"):
            await genx.import_state(document, state_id="old/agent-1")
        copy = await genx.import_state(document, state_id="copy")
        await copy.set_finished(False)
        restored = await genx.restore_agent("copy")
        assert [event.type.value for event in await restored.run_until_eof("More.")][-1] == "eof"


async def test_destroyed_states_are_archived_or_gone() -> None:
    async with runtime() as rt:
        genx = GenxRuntime(rt, agents=[agent(ScriptedModel())])
        state = await genx.create_react_state("assistant")
        await genx.destroy_state(state.id, archive=True)
        await genx.destroy_state(state.id, archive=True)
        restored = await genx.restore_agent(state.id)
        assert restored.state_id == state.id
        await genx.destroy_state(state.id, archive=True)
        await genx.destroy_state(state.id)
        with pytest.raises(Closed, match="agent: closed; its state was destroyed"):
            await restored.input("Hi.")
        for method in (genx.destroy_state, genx.restore_agent, genx.export_state):
            with pytest.raises(NotFound, match=f'state "{state.id}" not found'):
                await method(state.id)
        with pytest.raises(InvalidInput, match="not found"):
            await state.load_recent()


async def test_a_state_of_another_type_than_its_agent_is_refused() -> None:
    async with runtime() as rt:
        genx = GenxRuntime(rt, agents=[agent(ScriptedModel()), router()])
        with pytest.raises(InvalidInput, match="'assistant' is not of type match"):
            await genx.create_match_state("assistant")
        state = await genx.create_match_state("front")
        other = GenxRuntime(rt, agents=[agent(ScriptedModel(), name="front")])
        with pytest.raises(InvalidInput, match="is of type match, but the agent 'front' is of type react"):
            await other.restore_agent(state.id)
        script = await genx.import_state(StateDocument(state_type="lua", id="l", agent_def="script"))
        assert isinstance(script, LuaState)


async def test_the_state_of_a_child_is_found_when_its_parent_has_forgotten_it() -> None:
    child = agent(ScriptedModel(say("Rain.", agent="weather")), name="weather", description="Knows it.")
    async with runtime() as rt:
        genx = GenxRuntime(rt)
        model = ScriptedModel(call("weather", prompt="Hilo?"), say("Rain."))
        assistant = await genx.new_agent(agent(model, child), state_id="s")
        events = await assistant.run_until_eof("Hi.")
        [child_id] = {event.agent_state_id for event in events if event.agent_def == "weather"}
        state = await genx.get_state(child_id)
        assert state is not None
        assert (state.parent_state_id, await state.phase()) == ("s", "")
        assert without_times(await state.load_recent()) == [said("user", "Hilo?"), said("model", "Rain.")]
