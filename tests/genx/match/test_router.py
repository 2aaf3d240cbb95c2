"""The conversations of routers, each compared by its whole sequence of events."""

from typing import Any

import pytest

import vaka
from tests.genx.match.router_fixtures import RULES, booking, done, offline, outline, router, run_conversation
from tests.runtime.runtime_fixtures import check_log, read_log, runtime
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.message import ToolMessage, UserMessage, text_of
from vaka.genx import MatchAgent, QuitTools, Route
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say


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
        'Book a room in Hilo.\n{"city":"Hilo"}',
        "Which day?",
        "Monday.",
        "Which bed?",
        "Book it!",
    ]


async def test_the_streamed_text_of_a_router_is_that_of_its_agents() -> None:
    answers = {
        "front": [say("book\nmusic")],
        "booking": [call("done") | {"text": "Wait."}, say("Booked."), say("Played.")],
        "player": [say("Playing.")],
        "house": [say("music")],
    }
    model = ScriptedModel(agents=answers)
    house = MatchAgent("house", rules=RULES, routes=[Route(["music"], router(model=model))], model=model)
    async with runtime() as rt:
        turn = (await rt.open(house, id="s")).stream("Book a room and play music.")
        pieces = [piece async for piece in turn.text()]
        assert turn.response.text == "Booked.\n\nPlaying."
    assert "".join(pieces) == "Wait.Booked.\n\nPlaying."


async def test_several_intents_run_in_order_each_after_the_one_before_has_finished() -> None:
    model = ScriptedModel(
        agents={
            "front": [say("book: city=Hilo\nmusic\nlost\nno rule"), say("nothing")],
            "booking": [say("Which day?"), call("done"), say("Booked.")],
            "player": [call("done"), say("Played.")],
        }
    )
    player = vaka.Agent("player", tools=[done], middleware=[QuitTools("done")])
    routes = [Route(["book"], booking()), Route(["music"], player)]
    who = MatchAgent("front", rules=RULES, routes=routes, model=model)
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


async def test_a_router_with_an_offline_matcher_and_scripts_needs_no_model() -> None:
    who = MatchAgent(
        "front",
        rules=RULES,
        matcher=offline(),
        default=vaka.LuauAgent("chat", "function on_input(ctx, i) end"),
        routes=[Route(["music"], vaka.LuauAgent("counter", COUNTER))],
    )
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


async def test_a_router_can_ask_the_model_only_for_texts_that_match_nothing_offline() -> None:
    model = ScriptedModel(agents={"front": [say("book: city=Hilo")], "player": [say("La.")], "booking": [say("Yes.")]})
    async with runtime(model=model) as rt:
        session = await rt.open(router(matcher="offline-first"), id="s")
        assert [(await session.run(text)).text for text in ("play music", "I need a bed in Hilo")] == ["La.", "Yes."]
    assert [prompt.agent for prompt in model.prompts] == ["player", "front", "booking"]


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
    two = vaka.Agent("two", tools=[done], middleware=[QuitTools("done")])
    routes = [Route(["single"], vaka.Agent("one")), Route(["double"], two)]
    desk = MatchAgent("desk", rules=rooms, routes=routes)
    who = MatchAgent("front", rules=RULES, routes=[Route(["book"], desk), Route(["music"], vaka.Agent("player"))])
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
    player = vaka.Agent("player", tools=[done], middleware=[QuitTools("done")])
    routes = [Route(["book"], booking()), Route(["music"], player), Route(["lost"], vaka.Agent("one"))]
    who = MatchAgent("front", rules=RULES, routes=routes)
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
    who = MatchAgent("front", rules=RULES, matcher=offline(), routes=[Route(["music"], script)])
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(who, id="s")
        assert [(await session.run("play music")).text for _ in range(3)] == ["One.", "Two.", "Three."]
    assert len(model.prompts[-1].messages) == 5
    check_log(await read_log(store, "s"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"routes": [Route([], vaka.Agent("a"))]}, r"agent front: route\[0\]: rules is required"),
        ({"routes": [Route(["bok"], vaka.Agent("a"))]}, "there is no rule 'bok'; did you mean 'book'"),
        ({"routes": [Route(["xyz"], vaka.Agent("a"))]}, "the rules are book, music, lost"),
        ({"routes": [Route(["book"], "a")]}, "agent is required: an Agent, not 'a'"),  # type: ignore[arg-type]  # the error is the test
        (
            {"routes": [Route(["book"], vaka.Agent("a")), Route(["book"], vaka.Agent("b"))]},
            "the rule 'book' has a route already, to 'a'",
        ),
        ({"default": vaka.Agent("player")}, "two agents are named 'player'"),
        ({"matcher": "ofline"}, "matcher must be offline, offline-first or a matcher, not 'ofline'"),
    ],
)
def test_a_router_that_is_not_well_formed_is_refused(change: dict[str, Any], why: str) -> None:
    routes = [Route(["music"], vaka.Agent("player"))]
    arguments: dict[str, Any] = {"rules": RULES, "routes": routes, **change}
    with pytest.raises(InvalidInput, match=why):
        MatchAgent("front", **arguments)


async def test_a_router_that_matches_with_a_model_needs_one() -> None:
    async with runtime() as rt:
        with pytest.raises(ConfigError, match="agent 'front' has no model"):
            await (await rt.open(router(), id="s")).run("Play music.")
    assert repr(router()) == "MatchAgent('front')"
