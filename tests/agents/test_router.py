"""Routers: each conversation is compared by its whole sequence of events."""

import asyncio
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from types import FrameType
from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import check_log, collect, count_commits, log_writer, read_log, runtime
from vaka.agents.match.offline import OfflineMatcher
from vaka.agents.match.router_state import RouterState, read_router_state
from vaka.agents.match.rules import parse_rule
from vaka.core.ports.model import Prompt
from vaka.core.session.snapshot import reopen
from vaka.core.types import progress
from vaka.core.types.control import InputAdded, StateChanged
from vaka.core.types.errors import ConfigError, InvalidInput, TurnError
from vaka.core.types.event import Event
from vaka.core.types.message import AssistantMessage, ToolMessage, UserMessage, text_of
from vaka.core.types.monitor import ScriptAnswered
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, ScriptedModel, call, fail, say

AGENTS = ("booking", "player", "chat", "desk", "counter", "one", "two")
"""The agents of routes; a router calls them, which the start of the agent shows as well."""
RULES: list[dict[str, Any]] = [
    {"name": "book", "vars": {"city": {"label": "city"}}, "patterns": ["book a room in [city]"]},
    {"name": "music", "patterns": ["play music"]},
    {"name": "lost", "patterns": ["this rule has no route"]},
]


@vaka.tool(effect="read")
async def done() -> str:
    """End the conversation."""
    return "ok"


def booking() -> vaka.Agent:
    return vaka.Agent("booking", tools=[done], middleware=[vaka.QuitTools("done")])


def router(*, default: vaka.Agent | None = None, name: str = "front", **more: Any) -> vaka.MatchAgent:
    routes = [vaka.Route(["book"], booking()), vaka.Route(["music"], vaka.Agent("player"))]
    return vaka.MatchAgent(name, rules=RULES, routes=routes, default=default, **more)


def _active_agent(body: StateChanged) -> str:
    if not body.key.endswith("$router"):
        return ""
    state = body.value and msgspec.convert(body.value, RouterState)
    return f"active {state.current.agent_name}" if state else "idle"


def _after(earlier: str) -> str:
    return f"after {earlier} " if earlier else ""


_LINES: dict[type, Callable[[Any], str]] = {
    progress.TurnStarted: lambda body: "turn",
    progress.TurnResumed: lambda body: "resumed",
    ScriptAnswered: lambda body: f"match {[rule for rule, _ in body.answer]}" if body.name == "match" else "",
    progress.SubagentStarted: lambda body: (
        f"{body.agent} {body.child} {_after(body.after)}<- {text_of(body.content)!r}"
    ),
    progress.MessageCompleted: lambda body: text_of(body.content) and f"says {text_of(body.content)}",
    progress.ToolStarted: lambda body: f"calls {body.call.name}",
    progress.SubagentCompleted: lambda body: f"end of {body.child}{body.reason and f' ({body.reason})'}",
    StateChanged: _active_agent,
    progress.TurnCompleted: lambda body: f"completed {body.text!r}{body.limit and f' at {body.limit}'}",
    progress.TurnFailed: lambda body: f"failed {body.code}: {body.message}",
    progress.TurnInterrupted: lambda body: f"interrupted {body.text!r}",
}


def outline(events: Iterable[Event], agents: Collection[str] = AGENTS) -> list[str]:
    """Return what a router and its agents write to a log, each event as one line with its path."""
    lines: list[str] = []
    for event in events:
        body = event.data
        line = _LINES.get(type(body), lambda body: "")(body)
        if line and not (isinstance(body, progress.ToolStarted) and body.call.name in agents):
            lines.append(f"{'/'.join(event.path) or '-'} {line}")
    return lines


async def run_conversation(who: vaka.Agent, model: ScriptedModel | None, *inputs: str) -> list[str]:
    """Run a conversation and return the outline of its log."""
    store = MemoryStore()
    async with runtime(store, **({"model": model} if model else {})) as rt:
        session = await rt.open(who, id="s")
        for text in inputs:
            await session.run(text)
    log = await read_log(store, "s")
    check_log(log)
    return outline(log)


async def test_a_match_starts_an_agent_that_stays_until_another_rule_matches() -> None:
    model = ScriptedModel(
        agents={
            "front": [say("book: city=Hilo"), say("what is this"), say("book"), say("music"), say("")],
            "booking": [say("Which day?"), say("Which bed?"), say("Again?")],
            "player": [say("Playing."), say("Louder.")],
        }
    )
    inputs = ["Book a room in Hilo.", "Monday.", "Book it!", "Play music.", "Louder!"]
    assert await run_conversation(router(), model, *inputs) == [
        "- turn",
        "- match ['book']",
        """- booking agent-1 <- 'Book a room in Hilo.\\n{"city":"Hilo"}'""",
        "agent-1 says Which day?",
        "- end of agent-1",
        "- active booking",
        "- completed 'Which day?'",
        "- turn",
        "- match []",
        "- booking agent-2 after agent-1 <- 'Monday.'",
        "agent-2 says Which bed?",
        "- end of agent-2",
        "- active booking",
        "- completed 'Which bed?'",
        "- turn",
        "- match ['book']",
        "- booking agent-3 after agent-2 <- 'Book it!'",
        "agent-3 says Again?",
        "- end of agent-3",
        "- active booking",
        "- completed 'Again?'",
        "- turn",
        "- match ['music']",
        "- player agent-4 <- 'Play music.'",
        "agent-4 says Playing.",
        "- end of agent-4",
        "- active player",
        "- completed 'Playing.'",
        "- turn",
        "- match []",
        "- player agent-5 after agent-4 <- 'Louder!'",
        "agent-5 says Louder.",
        "- end of agent-5",
        "- active player",
        "- completed 'Louder.'",
    ]
    last = [prompt for prompt in model.prompts if prompt.agent == "booking"][-1]
    assert [text_of(message.content) for message in last.messages if not isinstance(message, ToolMessage)] == [
        'Book a room in Hilo.\n{"city":"Hilo"}', "Which day?", "Monday.", "Which bed?", "Book it!"
    ]  # fmt: skip


async def test_several_intents_run_in_order_each_after_the_one_before_has_finished() -> None:
    model = ScriptedModel(
        agents={
            "front": [say("book: city=Hilo\nmusic\nlost\nno rule"), say("nothing")],
            "booking": [say("Which day?"), call("done"), say("Booked.")],
            "player": [call("done"), say("Played.")],
        }
    )
    player = vaka.Agent("player", tools=[done], middleware=[vaka.QuitTools("done")])
    routes = [vaka.Route(["book"], booking()), vaka.Route(["music"], player)]
    who = vaka.MatchAgent("front", rules=RULES, routes=routes, model=model)
    assert await run_conversation(who, model, "Book a room in Hilo and play music.", "Monday.") == [
        "- turn",
        "- match ['book', 'music', 'lost']",
        """- booking agent-1 <- 'Book a room in Hilo and play music.\\n{"city":"Hilo"}'""",
        "agent-1 says Which day?",
        "- end of agent-1",
        "- active booking",
        "- completed 'Which day?'",
        "- turn",
        "- match []",
        "- booking agent-2 after agent-1 <- 'Monday.'",
        "agent-2 calls done",
        "agent-2 says Booked.",
        "- end of agent-2",
        "- player agent-3 <- 'Book a room in Hilo and play music.'",
        "agent-3 calls done",
        "agent-3 says Played.",
        "- end of agent-3",
        "- idle",
        "- completed 'Booked.\\n\\nPlayed.'",
    ]


async def test_without_a_match_the_default_agent_answers_and_without_one_the_turn_ends() -> None:
    model = ScriptedModel(
        agents={
            "front": [say("lost"), say("nothing"), say("music")],
            "chat": [say("Hello."), say("Well.")],
            "player": [say("Playing.")],
        }
    )
    with_default = router(model=model, default=vaka.Agent("chat"))
    assert await run_conversation(with_default, model, "Hi.", "How are you?", "Play music.") == [
        "- turn",
        "- match ['lost']",
        "- chat agent-1 <- 'Hi.'",
        "agent-1 says Hello.",
        "- end of agent-1",
        "- active chat",
        "- completed 'Hello.'",
        "- turn",
        "- match []",
        "- chat agent-2 after agent-1 <- 'How are you?'",
        "agent-2 says Well.",
        "- end of agent-2",
        "- active chat",
        "- completed 'Well.'",
        "- turn",
        "- match ['music']",
        "- player agent-3 <- 'Play music.'",
        "agent-3 says Playing.",
        "- end of agent-3",
        "- active player",
        "- completed 'Playing.'",
    ]
    model = ScriptedModel(agents={"front": [say("nothing"), say("music")], "player": [say("Playing.")]})
    assert await run_conversation(router(model=model), model, "Hi.", "Play music.") == [
        "- turn",
        "- match []",
        "- completed ''",
        "- turn",
        "- match ['music']",
        "- player agent-1 <- 'Play music.'",
        "agent-1 says Playing.",
        "- end of agent-1",
        "- active player",
        "- completed 'Playing.'",
    ]


COUNTER = """ function run(ctx)
    for count = 1, 2 do
        local input = ctx.recv()
        if input == nil then
            ctx.emit({ text = "Closed.", eof = true })
            return
        end
        ctx.emit({ text = `{count} {input.text}`, eof = true })
    end
end"""


def offline() -> OfflineMatcher:
    return OfflineMatcher([parse_rule(rule) for rule in RULES])


async def test_a_router_with_an_offline_matcher_and_scripts_needs_no_model() -> None:
    who = vaka.MatchAgent(
        "front", rules=RULES, matcher=offline(), default=vaka.LuauAgent("chat", "function on_input(ctx, i) end"),
        routes=[vaka.Route(["music"], vaka.LuauAgent("counter", COUNTER))],
    )  # fmt: skip
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(who, id="s")
        texts = [(await session.run(text)).text for text in ("play music", "again", "play music")]
        await session.close()
        texts.append((await session.run("zzz")).text)
        await session.close()
    assert texts == ["1 play music", "2 again", "1 play music", ""]
    assert outline(await read_log(store, "s")) == [
        "- turn",
        "- match ['music']",
        "- counter agent-1 <- 'play music'",
        "agent-1 says 1 play music",
        "- end of agent-1",
        "- active counter",
        "- completed '1 play music'",
        "- turn",
        "- match []",
        "- counter agent-2 after agent-1 <- 'again'",
        "agent-2 says 2 again",
        "- end of agent-2",
        "- idle",
        "- completed '2 again'",
        "- turn",
        "- match ['music']",
        "- counter agent-3 <- 'play music'",
        "agent-3 says 1 play music",
        "- end of agent-3",
        "- active counter",
        "- completed '1 play music'",
        "- turn",
        "- counter agent-4 after agent-3 <- ''",
        "agent-4 says Closed.",
        "- end of agent-4",
        "- idle",
        "- completed 'Closed.'",
        "- turn",
        "- match []",
        "- chat agent-5 <- 'zzz'",
        "- end of agent-5 (error)",
        "- active chat",
        "- completed ''",
        "- turn",
        "- chat agent-6 after agent-5 <- ''",
        "- end of agent-6 (error)",
        "- active chat",
        "- completed ''",
    ]


async def test_a_router_is_an_agent_of_another_router() -> None:
    rooms = [{"name": "single", "patterns": ["a single room"]}, {"name": "double", "patterns": ["a double room"]}]
    model = ScriptedModel(
        agents={
            "front": [say("book\nmusic"), say(""), say(""), say("")],
            "desk": [say("single"), say("double"), say("")],
            "one": [say("One bed.")],
            "two": [say("Two beds?"), call("done"), say("Done.")],
            "player": [say("Playing."), say("Louder.")],
        }
    )
    two = vaka.Agent("two", tools=[done], middleware=[vaka.QuitTools("done")])
    routes = [vaka.Route(["single"], vaka.Agent("one")), vaka.Route(["double"], two)]
    desk = vaka.MatchAgent("desk", rules=rooms, routes=routes)
    who = vaka.MatchAgent(
        "front", rules=RULES, routes=[vaka.Route(["book"], desk), vaka.Route(["music"], vaka.Agent("player"))]
    )
    inputs = ["Book a single room and play music.", "No, two beds.", "Yes.", "Louder!"]
    assert await run_conversation(who, model, *inputs) == [
        "- turn",
        "- match ['book', 'music']",
        "- desk agent-1 <- 'Book a single room and play music.'",
        "agent-1 match ['single']",
        "agent-1 one agent-1 <- 'Book a single room and play music.'",
        "agent-1/agent-1 says One bed.",
        "agent-1 end of agent-1",
        "agent-1 active one",
        "- end of agent-1",
        "- active desk",
        "- completed 'One bed.'",
        "- turn",
        "- match []",
        "- desk agent-2 after agent-1 <- 'No, two beds.'",
        "agent-2 match ['double']",
        "agent-2 two agent-1 <- 'No, two beds.'",
        "agent-2/agent-1 says Two beds?",
        "agent-2 end of agent-1",
        "agent-2 active two",
        "- end of agent-2",
        "- active desk",
        "- completed 'Two beds?'",
        "- turn",
        "- match []",
        "- desk agent-3 after agent-2 <- 'Yes.'",
        "agent-3 match []",
        "agent-3 two agent-1 after agent-2/agent-1 <- 'Yes.'",
        "agent-3/agent-1 calls done",
        "agent-3/agent-1 says Done.",
        "agent-3 end of agent-1",
        "agent-3 idle",
        "- end of agent-3",
        "- player agent-4 <- 'Book a single room and play music.'",
        "agent-4 says Playing.",
        "- end of agent-4",
        "- active player",
        "- completed 'Done.\\n\\nPlaying.'",
        "- turn",
        "- match []",
        "- player agent-5 after agent-4 <- 'Louder!'",
        "agent-5 says Louder.",
        "- end of agent-5",
        "- active player",
        "- completed 'Louder.'",
    ]


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
    who = vaka.MatchAgent(
        "front", rules=RULES, routes=[vaka.Route(["music"], vaka.Agent("player", tools=[wait]))], model=model
    )
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
    assert outline(await read_log(store, "s"))[-6:] == [
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
    async with runtime(store, model=ScriptedModel(agents=answers), deny=["booking"]) as rt:
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
    routes = [vaka.Route(["music"], vaka.Agent("player", tools=[done]))]
    who = vaka.MatchAgent("front", rules=RULES, routes=routes, model=model, limits=vaka.Limits(max_tokens=110))
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
    routes = [vaka.Route(["music"], vaka.Agent("player", tools=[done]))]
    who = vaka.MatchAgent("front", rules=RULES, routes=routes, model=model)
    async with runtime(store, ask="suspend", ask_for=["done"]) as rt:
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
    def parts() -> tuple[ScriptedModel, vaka.MatchAgent]:
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


async def test_parts_that_are_not_text_reach_the_agent_and_a_text_without_words_matches_nothing() -> None:
    model = ScriptedModel(agents={"front": [say("book: city=Hilo")], "booking": [say("Nice."), say("And this?")]})
    image = vaka.Image(data="cG5n", media_type="image/png")
    async with runtime(model=model) as rt:
        session = await rt.open(router(), id="s")
        await session.run([vaka.Text(text="Book this room."), image])
        await session.run([image])
    assert [prompt.messages[-1] for prompt in model.prompts if prompt.agent == "booking"] == [
        UserMessage(content=(vaka.Text(text="Book this room."), image, vaka.Text(text='{"city":"Hilo"}'))),
        UserMessage(content=(image,)),
    ]
    assert [prompt.agent for prompt in model.prompts] == ["front", "booking", "booking"]


async def test_intents_of_a_later_input_follow_those_that_wait() -> None:
    model = ScriptedModel(
        agents={
            "front": [say("book\nmusic"), say("book: city=Kona\nmusic\nlost")],
            "booking": [say("Which day?"), call("done"), say("Booked.")],
            "player": [call("done"), say("Played.")],
            "one": [say("Found.")],
        }
    )
    player = vaka.Agent("player", tools=[done], middleware=[vaka.QuitTools("done")])
    routes = [
        vaka.Route(["book"], booking()), vaka.Route(["music"], player), vaka.Route(["lost"], vaka.Agent("one"))
    ]  # fmt: skip
    who = vaka.MatchAgent("front", rules=RULES, routes=routes)
    lines = await run_conversation(who, model, "Book a room and play music.", "In Kona, with music. Where am I?")
    assert [line for line in lines if "<-" in line or "active" in line] == [
        "- booking agent-1 <- 'Book a room and play music.'",
        "- active booking",
        """- booking agent-2 after agent-1 <- 'In Kona, with music. Where am I?\\n{"city":"Kona"}'""",
        "- player agent-3 <- 'Book a room and play music.'",
        "- one agent-4 <- 'In Kona, with music. Where am I?'",
        "- active one",
    ]


async def test_a_script_of_a_route_keeps_its_conversation_with_an_agent_of_its_own() -> None:
    text = """ function run(ctx)
        local helper = ctx.create_agent("helper")
        while true do
            helper:send(ctx.recv().text)
            ctx.emit({ text = helper:collect(), eof = true })
        end
    end"""
    model = ScriptedModel(agents={"helper": [say("One."), say("Two."), say("Three.")]})
    script = vaka.LuauAgent("counter", text, tools=[vaka.Agent("helper", model=model)])
    who = vaka.MatchAgent("front", rules=RULES, matcher=offline(), routes=[vaka.Route(["music"], script)])
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(who, id="s")
        assert [(await session.run("play music")).text for _ in range(3)] == ["One.", "Two.", "Three."]
    assert len(model.prompts[-1].messages) == 5
    check_log(await read_log(store, "s"))


async def test_a_state_whose_agent_is_no_longer_in_a_route_is_dropped() -> None:
    store = MemoryStore()
    model = ScriptedModel(agents={"player": [say("Playing.")], "chat": [say("Hello.")]})
    async with runtime(store, model=model) as rt:
        await (await rt.open(router(matcher=offline()), id="s")).run("play music")
        routes = [vaka.Route(["music"], vaka.Agent("chat"))]
        changed = vaka.MatchAgent("front", rules=RULES, routes=routes, matcher=offline())
        session = await rt.open(changed, id="s")
        assert (await session.run("zzz")).text == ""
        assert (await session.run("play music")).text == "Hello."


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"routes": [vaka.Route([], vaka.Agent("a"))]}, r"agent front: route\[0\]: rules is required"),
        ({"routes": [vaka.Route(["bok"], vaka.Agent("a"))]}, "there is no rule 'bok'; did you mean 'book'"),
        ({"routes": [vaka.Route(["xyz"], vaka.Agent("a"))]}, "the rules are book, music, lost"),
        ({"routes": [vaka.Route(["book"], "a")]}, "agent is required: an Agent, not 'a'"),  # type: ignore[arg-type]  # the error is the test
        (
            {"routes": [vaka.Route(["book"], vaka.Agent("a")), vaka.Route(["book"], vaka.Agent("b"))]},
            "the rule 'book' has a route already, to 'a'",
        ),
        ({"default": vaka.Agent("player")}, "two agents are named 'player'"),
    ],
)
def test_a_router_that_is_not_well_formed_is_refused(change: dict[str, Any], why: str) -> None:
    routes = [vaka.Route(["music"], vaka.Agent("player"))]
    with pytest.raises(InvalidInput, match=why):
        vaka.MatchAgent("front", **{"rules": RULES, "routes": routes, **change})


async def test_a_router_that_matches_with_a_model_needs_one() -> None:
    async with runtime() as rt:
        with pytest.raises(ConfigError, match="agent 'front' has no model"):
            await (await rt.open(router(), id="s")).run("Play music.")
    assert repr(router()) == "MatchAgent('front')"


async def test_a_turn_reads_no_event_of_the_turns_before_it() -> None:
    model = ScriptedModel(agents={"player": [say("Playing.", repeat=True)]})
    async with runtime(model=model) as rt:
        session = await rt.open(router(matcher=offline()), id="s")
        counts = [await count_calls(session) for _ in range(40)]
    assert counts[-1] == counts[9]


async def count_calls(session: vaka.Session) -> int:
    """Return how many Python functions of the router and the context window one turn calls."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.endswith(("router.py", "context_window.py"))

    sys.setprofile(note)
    try:
        await session.run("play music")
    finally:
        sys.setprofile(None)
    return calls
