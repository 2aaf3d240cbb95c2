"""Routers whose turns are stopped, rewound, failed or killed, compared by the whole sequence of events."""

import asyncio
import sys
from collections.abc import Sequence
from itertools import accumulate
from types import FrameType

import pytest

import vaka
from tests.genx.match.router_fixtures import RULES, done, offline, outline, router, run_conversation
from tests.runtime.runtime_fixtures import check_log, collect, count_commits, log_writer, read_log, runtime
from vaka.core.ports.model import Prompt
from vaka.core.session.snapshot import reopen
from vaka.core.types import progress
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import TurnError
from vaka.core.types.message import AssistantMessage, ToolMessage, UserMessage, text_of
from vaka.genx import MatchAgent, QuitTools, Route
from vaka.genx.match.router_state import read_router_state
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, ScriptedModel, call, fail, say


async def test_an_interrupt_stops_the_agent_and_the_next_input_goes_on_with_it() -> None:
    waiting = asyncio.Event()

    @vaka.tool(effect="read")
    async def wait() -> None:
        """Wait for ever."""
        waiting.set()
        await asyncio.Event().wait()

    model = ScriptedModel(
        agents={
            "front": [say("music"), say("")],
            "player": [call("wait") | {"text": "One moment."}, say("I am back.")],
        }
    )
    who = MatchAgent("front", rules=RULES, routes=[Route(["music"], vaka.Agent("player", tools=[wait]))], model=model)
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(who, id="s")
        running = asyncio.create_task(session.run("Play music."))
        await waiting.wait()
        await session.interrupt("stop")
        with pytest.raises(TurnError, match="stop"):
            await running
        assert (await session.run("And now?")).text == "I am back."
    log = await read_log(store, "s")
    check_log(log)
    assert outline(log) == [
        "- turn",
        "- match ['music']",
        "- player agent-1 <- 'Play music.'",
        "agent-1 says One moment.",
        "agent-1 calls wait",
        "- end of agent-1 (interrupted)",
        "- active player",
        "- interrupted 'One moment.'",
        "- turn",
        "- match []",
        "- player agent-2 after agent-1 <- 'And now?'",
        "agent-2 says I am back.",
        "- end of agent-2",
        "- active player",
        "- completed 'I am back.'",
    ]


async def test_an_interrupt_during_the_match_ends_the_turn_without_an_agent() -> None:
    asked = asyncio.Event()

    async def answer(prompt: Prompt) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(router(model=FunctionModel(answer)), id="s")
        running = asyncio.create_task(session.run("Play music."))
        await asked.wait()
        await session.interrupt("stop")
        with pytest.raises(TurnError, match="stop"):
            await running
    assert outline(await read_log(store, "s")) == ["- turn", "- interrupted ''"]


async def test_a_rewind_and_a_fork_continue_with_the_agent_that_was_active_there() -> None:
    answers = {"booking": [say("Which day?"), say("Which bed?")], "player": [say("Playing.")]}
    store = MemoryStore()
    async with runtime(store, model=ScriptedModel(agents=answers)) as rt:
        session = await rt.open(router(matcher=offline()), id="s")
        await session.run("book a room in Hilo")
        place = await session.checkpoint("here")
        await session.run("play music")
        await session.rewind("here")
        state = read_router_state(await reopen(store, session.id))
        assert state is not None
        assert (state.current.agent_name, state.child) == ("booking", "agent-1")
        assert (await session.run("Monday.")).text == "Which bed?"
        other = await session.fork(place, id="other")
        assert (await other.run("Tuesday.")).text == "Which bed?"
        history = await other.messages()
    assert [
        (type(message), text_of(message.content)) for message in history if not isinstance(message, ToolMessage)
    ] == [
        (UserMessage, "book a room in Hilo"),
        (AssistantMessage, "Which day?"),
        (UserMessage, "Tuesday."),
        (AssistantMessage, "Which bed?"),
    ]
    assert outline(await read_log(store, "s")) == [
        "- turn",
        "- match ['book']",
        """- booking agent-1 <- 'book a room in Hilo\\n{"city":"Hilo"}'""",
        "agent-1 says Which day?",
        "- end of agent-1",
        "- active booking",
        "- completed 'Which day?'",
        "- turn",
        "- match ['music']",
        "- player agent-2 <- 'play music'",
        "agent-2 says Playing.",
        "- end of agent-2",
        "- active player",
        "- completed 'Playing.'",
        "- rewound",
        "- turn",
        "- match []",
        "- booking agent-3 after agent-1 <- 'Monday.'",
        "agent-3 says Which bed?",
        "- end of agent-3",
        "- active booking",
        "- completed 'Which bed?'",
    ]


async def test_an_agent_that_cannot_start_or_fails_is_the_failure_of_the_turn() -> None:
    answers = {"player": [fail(400, "no such song"), say("Playing.")]}
    store = MemoryStore()
    async with runtime(
        store, model=ScriptedModel(agents=answers), permissions=vaka.Permissions(deny=["booking"])
    ) as rt:
        session = await rt.open(router(matcher=offline()), id="s")
        for text in ("book a room in Hilo", "play music"):
            with pytest.raises(TurnError):
                await session.run(text)
        assert (await session.run("Another one.")).text == "Playing."
    log = await read_log(store, "s")
    check_log(log)
    denied = next(event.data.message for event in log if isinstance(event.data, progress.TurnFailed))
    assert "booking" in denied
    assert outline(log) == [
        "- turn",
        "- match ['book']",
        f"- failed turn: {denied}",
        "- turn",
        "- match ['music']",
        "- player agent-2 <- 'play music'",
        "- end of agent-2 (error)",
        "- active player",
        "- failed model_refused: no such song (status 400)",
        "- turn",
        "- match []",
        "- player agent-3 after agent-2 <- 'Another one.'",
        "agent-3 says Playing.",
        "- end of agent-3",
        "- active player",
        "- completed 'Playing.'",
    ]


async def test_the_limits_of_a_router_hold_for_the_match_and_for_its_agents() -> None:
    answers = {
        "front": [say("music", usage={"input": 40, "output": 10}), say("music", usage={"input": 200, "output": 10})],
        "player": [call("done") | {"usage": {"input": 60, "output": 10}}, say("Too much.")],
    }
    model = ScriptedModel(agents=answers)
    routes = [Route(["music"], vaka.Agent("player", tools=[done]))]
    who = MatchAgent("front", rules=RULES, routes=routes, model=model, limits=vaka.Limits(max_tokens=110))
    assert await run_conversation(who, None, "Play music.", "Play music.") == [
        "- turn",
        "- match ['music']",
        "- player agent-1 <- 'Play music.'",
        "agent-1 calls done",
        "- end of agent-1 (limit)",
        "- active player",
        "- completed '' at tokens",
        "- turn",
        "- match ['music']",
        "- player agent-2 after agent-1 <- 'Play music.'",
        "- end of agent-2 (limit)",
        "- active player",
        "- completed '' at tokens",
    ]
    assert [prompt.agent for prompt in model.prompts] == ["front", "player", "front"]


async def test_an_agent_that_waits_for_a_person_goes_on_after_the_decision() -> None:
    answers = {"front": [say("music")], "player": [call("done"), say("Done.")]}
    model, store = ScriptedModel(agents=answers), MemoryStore()
    routes = [Route(["music"], vaka.Agent("player", tools=[done]))]
    who = MatchAgent("front", rules=RULES, routes=routes, model=model)
    async with runtime(store, permissions=vaka.Permissions(ask="suspend", confirm=["done"])) as rt:
        session = await rt.open(who, id="s")
        with pytest.raises(vaka.Suspended) as suspended:
            await session.run("Play music.")
        await rt.resolve(suspended.value.decisions[0], "approve")
        await collect(session.resume())
    log = await read_log(store, "s")
    check_log(log)
    assert outline(log) == [
        "- turn",
        "- match ['music']",
        "- player agent-1 <- 'Play music.'",
        "- resumed",
        "agent-1 calls done",
        "agent-1 says Done.",
        "- end of agent-1",
        "- active player",
        "- completed 'Done.'",
    ]
    assert [prompt.agent for prompt in model.prompts] == ["front", "player", "player"]


async def test_a_turn_is_finished_after_a_crash_after_any_commit_without_a_second_match() -> None:
    def parts() -> tuple[ScriptedModel, MatchAgent]:
        model = ScriptedModel(
            agents={
                "front": [say("book: city=Hilo\nmusic"), say("")],
                "booking": [say("Which day?"), call("done"), say("Booked.")],
                "player": [say("Playing.")],
            }
        )
        return model, router(model=model)

    store, inputs = MemoryStore(), ("Book a room in Hilo and play music.", "Monday.")
    commits = count_commits(store).commits
    async with runtime(store) as rt:
        session = await rt.open(parts()[1], id="s")
        for text in inputs:
            await session.run(text)
    log = await read_log(store, "s")
    for cut in accumulate(map(len, commits)):
        crashed, (model, who) = MemoryStore(), parts()
        await log_writer(crashed, "s", log[:cut])()
        async with runtime(crashed) as rt:
            session = await rt.open(who, id="s")
            if not isinstance(log[cut - 1].data, progress.TurnCompleted):
                await collect(session.resume())
            for text in inputs[len([event for event in log[:cut] if isinstance(event.data, InputAdded)]) :]:
                await session.run(text)
        restored = await read_log(crashed, "s")
        check_log(restored)
        assert without_repeats(outline(restored)) == without_repeats(outline(log)), cut
        matched = len([event for event in log[:cut] if getattr(event.data, "name", "") == "match"])
        assert len([prompt for prompt in model.prompts if prompt.agent == "front"]) == 2 - matched, cut


def without_repeats(lines: Sequence[str]) -> list[str]:
    """Return an outline without what a resumed turn writes again: that it goes on, and that a read call begins."""
    return [line for line in lines if line != "- resumed" and "calls" not in line]


async def test_an_agent_that_fails_or_is_stopped_at_its_end_is_not_active_any_more() -> None:
    waiting = asyncio.Event()

    @vaka.tool(effect="read")
    async def wait() -> None:
        """Wait for ever."""
        waiting.set()
        await asyncio.Event().wait()

    answers = {"player": [call("done"), call("wait")], "chat": [say("Hello."), say("Well.")]}
    player = vaka.Agent("player", tools=[done, wait], middleware=[QuitTools("done")])
    broken = vaka.LuauAgent("counter", " function run(ctx) ctx.recv() error('boom') end")
    routes = [Route(["music"], player), Route(["book"], broken)]
    who = MatchAgent("front", rules=RULES, routes=routes, matcher=offline(), default=vaka.Agent("chat"))
    async with runtime(model=ScriptedModel(agents=answers)) as rt:
        session = await rt.open(who, id="s")
        running = asyncio.create_task(session.run("play music"))
        await waiting.wait()
        await session.interrupt("stop")
        with pytest.raises(TurnError, match="stop"):
            await running
        assert (await session.run("zzz")).text == "Hello."
        with pytest.raises(TurnError, match="boom"):
            await session.run("book a room in Hilo")
        assert (await session.run("zzz")).text == "Well."


async def test_a_failed_agent_is_the_failure_of_the_turn_also_after_a_crash_behind_its_end() -> None:
    store, model = MemoryStore(), ScriptedModel(agents={"player": [fail(400, "no such song")]})
    async with runtime(store, model=model) as rt:
        with pytest.raises(TurnError, match="no such song") as failed:
            await (await rt.open(router(matcher=offline()), id="s")).run("play music")
    assert failed.value.code == "model_refused"
    log = await read_log(store, "s")
    end = next(event.seq for event in log if isinstance(event.data, progress.SubagentCompleted))
    crashed = MemoryStore()
    await log_writer(crashed, "s", log[:end])()
    async with runtime(crashed, model=model) as rt:
        resumed = await collect((await rt.open(router(matcher=offline()), id="s")).resume())
    last = resumed[-1].data
    assert isinstance(last, progress.TurnFailed)
    assert (last.code, last.message) == ("turn", "no such song (status 400)")


async def test_a_model_does_not_match_again_when_a_hook_before_the_agent_was_killed() -> None:
    class Hook(vaka.Middleware):
        async def before_tool(self, turn: vaka.Turn, call: vaka.ToolCall) -> vaka.ToolCall:
            commits_before_call.append(len(counter.commits))
            return call

    store, commits_before_call = MemoryStore(), list[int]()
    counter = count_commits(store)
    model = ScriptedModel(agents={"front": [say("music")], "player": [say("Playing.")]})
    async with runtime(store) as rt:
        await (await rt.open(router(model=model, middleware=[Hook()]), id="s")).run("Play music.")
    assert "script.answered" in counter.commits[commits_before_call[0] - 1]


async def test_a_mode_and_a_list_of_tools_hold_for_the_agents_and_not_for_the_routes() -> None:
    @vaka.tool
    async def change() -> str:
        """Change something."""
        return "changed"

    model = ScriptedModel(agents={"player": [call("change"), say("Refused."), say("Playing.")]})
    routes = [Route(["music"], vaka.Agent("player", tools=[change, done], model=model))]
    who = MatchAgent("front", rules=RULES, routes=routes, matcher=offline())
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(mode="plan")) as rt:
        session = await rt.open(who, id="s")
        assert (await session.run("play music")).text == "Refused."
        assert (await session.run("play music", options={"tool_whitelist": ["done"]})).text == "Playing."
    refused = [event.data.result for event in await read_log(store, "s") if isinstance(event.data, progress.ToolFailed)]
    assert [(result.call, result.reason) for result in refused] == [("call_1.1", "denied")]
    assert [[tool.name for tool in prompt.tools] for prompt in model.prompts][::2] == [["change", "done"], ["done"]]


async def test_a_state_whose_agent_is_no_longer_in_a_route_is_dropped() -> None:
    store = MemoryStore()
    model = ScriptedModel(agents={"player": [say("Playing.")], "chat": [say("Hello.")]})
    async with runtime(store, model=model) as rt:
        await (await rt.open(router(matcher=offline()), id="s")).run("play music")
        routes = [Route(["music"], vaka.Agent("chat"))]
        changed = MatchAgent("front", rules=RULES, routes=routes, matcher=offline())
        session = await rt.open(changed, id="s")
        assert (await session.run("zzz")).text == ""
        assert (await session.run("play music")).text == "Hello."


@pytest.mark.parametrize(
    "player",
    [vaka.Agent("player"), vaka.LuauAgent("player", "function on_input(ctx, i) ctx.emit({ text = i.text }) end")],
)
async def test_a_turn_reads_no_event_of_the_turns_before_it(player: vaka.Agent) -> None:
    model = ScriptedModel(agents={"player": [say("Playing.", repeat=True)]})
    who = MatchAgent("front", rules=RULES, routes=[Route(["music"], player)], matcher=offline())
    async with runtime(model=model) as rt:
        session = await rt.open(who, id="s")
        counts = [await count_calls(session) for _ in range(40)]
    assert counts[-1] == counts[9]


_COUNTED_FILES = ("match/router.py", "luau/agent.py", "session/context_window.py")


async def count_calls(session: vaka.Session) -> int:
    """Return how many functions of the router, of Luau agents and of the context window one turn calls."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.endswith(_COUNTED_FILES)

    sys.setprofile(note)
    try:
        await session.run("play music")
    finally:
        sys.setprofile(None)
    return calls
