"""A model call that does not read what a provider has cached is reported, with the cause and its price."""

from typing import Any

import msgspec
import pytest

import vaka
from tests.caching_model import CachingModel, PromptCache
from tests.runtime.runtime_fixtures import agent, read_log, runtime
from vaka.agents.subagents import SubAgents
from vaka.core.ports.model import Prompt
from vaka.core.types.context import ContextCompacted
from vaka.core.types.errors import TurnError
from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId
from vaka.core.types.message import AssistantMessage, Text, UserMessage
from vaka.core.types.monitor import CacheBusted, UsageRecorded
from vaka.core.types.progress import StepStarted
from vaka.genx.prompt_layers import ConversationMemory
from vaka.models.catalog import Price, PriceList
from vaka.models.wrappers.meter import MeteredModel
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, fail, say

PRICES = PriceList({"mine/*": Price(input=1, output=10, cache_read=0.1, cache_write=2)})


@vaka.tool(effect="read")
async def look() -> str:
    """Look around."""
    return "grass " * 20


@vaka.tool(effect="read", name="look")
async def look_closer() -> str:
    """Look around, very closely."""
    return "ants"


@vaka.tool(effect="read")
async def listen() -> str:
    """Listen."""
    return "wind"


class Conversation:
    """A session whose turns may each have another agent, another process, or a pause before them."""

    def __init__(self) -> None:
        self.clock, self.store = FakeClock(), MemoryStore()
        self.cache, self.turns = PromptCache(self.clock), 0

    async def turn(self, *tools: Any, model: str = "mine/x", answers: Any = (), turns: int = 1, **more: Any) -> None:
        """Run turns in a process of their own."""
        script = ScriptedModel(*(answers or [say("Yes.", repeat=True)]))
        inner = CachingModel(script, self.cache, model)
        bot = agent(MeteredModel(inner, PRICES), *tools, **{"instructions": "Be brief. " * 50, **more})
        async with runtime(self.store, environment=Environment(clock=self.clock)) as rt:
            session = await rt.open(bot, id="s")
            for _ in range(turns):
                self.turns += 1
                await session.run(f"Question {self.turns}: what do you see? " * 5)

    async def log(self) -> list[Event]:
        return await read_log(self.store, "s")

    async def busts(self) -> list[CacheBusted]:
        return [event.data for event in await self.log() if isinstance(event.data, CacheBusted)]


async def one_bust(first: dict[str, Any], second: dict[str, Any], *, seconds: float = 10) -> CacheBusted:
    """Return the event of a conversation whose second turn, in a new process, differs from the first."""
    talk = Conversation()
    await talk.turn(*first.pop("tools", ()), **first)
    talk.clock.advance(seconds)
    await talk.turn(*second.pop("tools", ()), **second)
    (busted,) = await talk.busts()
    usage = [event.data.usage for event in await talk.log() if isinstance(event.data, UsageRecorded)]
    assert busted.tokens == min(usage[0].input, usage[1].input) - usage[1].cache_read
    assert busted.cost == pytest.approx(busted.tokens * (2 - 0.1) / 1e6)
    assert busted.agent == "assistant"
    return busted


async def test_a_conversation_that_only_grows_busts_nothing_in_one_process_or_in_several() -> None:
    talk = Conversation()
    for number in range(4):
        answers = [say("Yes.")] * (number * 3) + [call("look"), say("Grass."), say("Yes.")]
        await talk.turn(look, answers=answers, turns=2)
        talk.clock.advance(200)
    assert await talk.busts() == []
    assert sum(isinstance(event.data, UsageRecorded) for event in await talk.log()) == 12


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"tools": (look,)}, {"tools": (look, listen)}, {"cause": "tools", "added": ("listen",)}),
        ({"tools": (look, listen)}, {"tools": (look,)}, {"cause": "tools", "removed": ("listen",)}),
        ({"tools": (look,)}, {}, {"cause": "tools", "removed": ("look",)}),
        ({"tools": (look,)}, {"tools": (look_closer,)}, {"cause": "tools", "changed": ("look",)}),
        ({"tools": (look, listen)}, {"tools": (listen, look)}, {"cause": "tools"}),
        ({}, {"instructions": "Be long. " * 50}, {"cause": "system"}),
        ({}, {"model": "mine/y"}, {"cause": "model", "added": ("mine/y",), "removed": ("mine/x",)}),
        (
            {"instructions": "A" * 400, "model": "mine/y"},
            {"tools": (look,)},
            {"cause": "model", "added": ("mine/x",), "removed": ("mine/y",)},
        ),
    ],
)
async def test_the_first_changed_part_is_the_cause_also_after_a_restart(
    first: dict[str, Any], second: dict[str, Any], expected: dict[str, Any]
) -> None:
    busted = await one_bust(first, second)
    named = {"added": busted.added, "removed": busted.removed, "changed": busted.changed}
    assert (busted.part, busted.idle) == (expected["cause"], 10)
    assert {"cause": busted.cause, **named} == {"added": (), "removed": (), "changed": (), **expected}


async def test_a_pause_longer_than_the_cache_lives_is_the_cause_whatever_else_changed() -> None:
    busted = await one_bust({}, {}, seconds=400)
    assert (busted.cause, busted.part, busted.idle) == ("expired", "", 400)
    busted = await one_bust({}, {"instructions": "Be long. " * 50}, seconds=4000)
    assert (busted.cause, busted.part, busted.idle) == ("expired", "system", 4000)


class Compacting(vaka.Middleware):
    """Compacts the conversation before the first step of a turn."""

    async def before_step(self, turn: Any) -> Any:
        return [ContextCompacted(summary="They talked.", keep_from=turn.state.seq + 1)] if not turn.scope.step else ()


async def test_a_compaction_is_a_cause_of_its_own() -> None:
    busted = await one_bust({}, {"middleware": [Compacting()]})
    assert (busted.cause, busted.part) == ("compaction", "messages")


class Renaming(vaka.Middleware):
    """Puts another text in the place of the first message, from a given number of messages on."""

    def __init__(self, least: int = 1) -> None:
        self.least = least

    async def before_model(self, turn: Any, prompt: Prompt) -> Prompt:
        if len(prompt.messages) < self.least:
            return prompt
        first = UserMessage(content=(Text(text="Something else."),))
        return msgspec.structs.replace(prompt, messages=(first, *prompt.messages[1:]))


async def test_changed_messages_are_the_cause_in_one_process_and_after_a_restart() -> None:
    talk = Conversation()
    await talk.turn(middleware=[Renaming(3)], turns=2)
    await talk.turn(middleware=[Renaming()])
    assert [(busted.cause, busted.part) for busted in await talk.busts()] == [("messages", "messages")]
    assert (await one_bust({}, {"middleware": [Renaming()]})).cause == "messages"
    assert (await one_bust({}, {"middleware": [ConversationMemory(recent=1)]})).cause == "messages"


async def test_a_menu_that_was_erased_or_damaged_leaves_only_the_cause() -> None:
    for damage in (b"", b"[1]"):
        talk = Conversation()
        await talk.turn(look)
        (menu,) = {event.data.tools for event in await talk.log() if isinstance(event.data, StepStarted)}
        assert menu
        talk.store.hub.shared.blobs.pop(("", menu))
        if damage:
            talk.store.hub.shared.blobs["", menu] = (damage, "")
        await talk.turn(look, listen)
        (busted,) = await talk.busts()
        assert (busted.cause, busted.added) == ("tools", ())


async def test_a_failed_call_and_an_answer_of_a_middleware_leave_the_cache_as_it_is() -> None:
    talk = Conversation()
    await talk.turn()
    with pytest.raises(TurnError):
        await talk.turn(answers=[say("Yes."), fail(400)])
    await talk.turn(middleware=[vaka.Middleware.from_functions("quick", before_model=answer_at_once)])
    await talk.turn()
    assert await talk.busts() == []
    await talk.turn(instructions="Be long. " * 50)
    assert [busted.cause for busted in await talk.busts()] == ["system"]


async def test_calls_of_a_middleware_and_calls_that_cache_nothing_are_not_compared() -> None:
    cached, plain = ({"input": 1000, "output": 1, "cache_read": tokens} for tokens in (900, 0))
    asked = Prompt(messages=(UserMessage(content=(Text(text="Aside."),)),), agent="aside")
    aside = ScriptedModel(agents={"aside": [say("Hm.", usage=cached)] * 9})

    async def ask_aside(turn: Any, message: AssistantMessage) -> AssistantMessage:
        assert await turn.ask_model(aside, asked) == "Hm."
        return message

    model = ScriptedModel(*[say("Yes.", usage=usage) for usage in (cached, cached, plain, plain, cached)])
    store = MemoryStore()
    middleware = [vaka.Middleware.from_functions("aside", after_model=ask_aside)]
    async with runtime(store) as rt:
        session = await rt.open(agent(model, middleware=middleware), id="s")
        for _ in range(5):
            await session.run("Well?")
    busts = [event.data for event in await read_log(store, "s") if isinstance(event.data, CacheBusted)]
    assert [(busted.cause, busted.tokens, busted.cost) for busted in busts] == [("expired", 900, 0.0)]


async def answer_at_once(turn: Any, prompt: Prompt) -> AssistantMessage:
    return AssistantMessage(id=MessageId(""), content=(Text(text="No."),), model="none", stop="end")


async def test_a_bust_is_reported_once_and_a_fork_expects_nothing() -> None:
    talk = Conversation()
    await talk.turn()
    await talk.turn(instructions="Be long. " * 50)
    await talk.turn(instructions="Be long. " * 50)
    assert len(await talk.busts()) == 1
    async with runtime(talk.store, environment=Environment(clock=talk.clock)) as rt:
        forked = await rt.fork("s", id="t")
        model = MeteredModel(CachingModel(ScriptedModel(say("Yes.", repeat=True)), PromptCache()), PRICES)
        await (await rt.open(agent(model), id=forked)).run("Well?")
    assert "cache.busted" not in [event.type for event in (await read_log(talk.store, "t"))[len(await talk.log()) :]]


async def test_the_conversation_of_a_child_agent_has_a_cache_of_its_own() -> None:
    talk = Conversation()
    child = vaka.Agent(
        "child",
        model=CachingModel(ScriptedModel(say("Seen.", repeat=True)), talk.cache, "mine/child"),
        description="Sees.",
        instructions="See. " * 50,
    )
    spawn = call("Task", description="See", prompt="Look.", subagent_type="child")
    await talk.turn(answers=[spawn, spawn, say("Yes.")], middleware=[SubAgents(child)])
    assert await talk.busts() == []
