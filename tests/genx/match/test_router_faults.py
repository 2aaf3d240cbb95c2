"""Routers killed between any two writes, interrupted, and used for a long time."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import accumulate
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, count_commits, log_writer, read_log, runtime
from vaka.content import format_history
from vaka.core.ports.model import Chunk, Prompt, StopChunk, TextChunk
from vaka.core.session.snapshot import reopen
from vaka.core.types.errors import Interrupted, TurnError
from vaka.core.types.ids import SessionId
from vaka.core.types.message import ToolMessage, UserMessage, text_of
from vaka.core.types.progress import TextDelta, TurnCompleted
from vaka.genx import MatchAgent, QuitTools, Route
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, call

WORDS = ("play", "weather", "script", "nested", "left", "right")
TWO_ANSWERS = """ function run(ctx)
    for number = 1, 2 do
        ctx.emit({ text = `script {number}: {ctx.recv().text}`, eof = true })
    end
end"""


@vaka.tool(effect="idempotent")
async def goodbye() -> str:
    """End the conversation."""
    return "waved"


async def match_words(prompt: Prompt) -> str:
    """Answer with the rules whose names the input has."""
    message = prompt.messages[-1]
    assert isinstance(message, UserMessage)
    return "\n".join(word for word in text_of(message.content).split() if word in WORDS) or "nothing"


def talker(name: str) -> vaka.Agent:
    """Return an agent that says how many inputs it has had, and leaves after the word ``bye``."""

    async def answer(prompt: Prompt) -> Any:
        inputs = [text_of(message.content) for message in prompt.messages if isinstance(message, UserMessage)]
        if "bye" in inputs[-1] and not isinstance(prompt.messages[-1], ToolMessage):
            return call("goodbye")
        return f"{name} {len(inputs)}: {inputs[-1]}"

    return agent(FunctionModel(answer), goodbye, name=name, middleware=[QuitTools("goodbye")])


def router(name: str, default: vaka.Agent | None = None, **routes: vaka.Agent) -> MatchAgent:
    rules = [{"name": rule, "patterns": [rule]} for rule in routes]
    found = [Route([rule], who) for rule, who in routes.items()]
    return MatchAgent(name, rules=rules, routes=found, default=default, model=FunctionModel(match_words))


def house() -> MatchAgent:
    inner = router("inner", left=talker("left"), right=talker("right"))
    script = vaka.LuauAgent("lua", TWO_ANSWERS)
    return router(
        "house", talker("fallback"), play=talker("player"), weather=talker("sky"), script=script, nested=inner
    )


CONVERSATIONS = {
    "switches": ["play one", "more", "weather two", "play three", "bye", "hm"],
    "intents": ["play weather bye", "play weather", "bye", "ok", "weather bye play script", "x", "y"],
    "nested": ["nested left 1", "more", "nested right 2", "bye", "nested left right bye", "z"],
}
ANSWERS = {
    "switches": [
        "player 1: play one",
        "player 2: more",
        "sky 1: weather two",
        "player 1: play three",
        "player 2: bye",
        "fallback 1: hm",
    ],
    "intents": [
        "player 1: play weather bye\n\nsky 1: play weather bye",
        "player 1: play weather",
        "player 2: bye\n\nsky 1: play weather",
        "sky 2: ok",
        "\n\n".join(f"{who}: weather bye play script" for who in ("sky 3", "player 1", "script 1")),
        "script 2: x",
        "fallback 1: y",
    ],
    "nested": [
        "left 1: nested left 1",
        "left 2: more",
        "right 1: nested right 2",
        "right 2: bye",
        "left 1: nested left right bye\n\nright 1: nested left right bye",
        "fallback 1: z",
    ],
}


async def answers_of(store: MemoryStore) -> list[str]:
    log = await read_log(store, "s")
    check_log(log)
    return [event.data.text for event in log if isinstance(event.data, TurnCompleted)]


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["sampled", "all"])
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_router_killed_after_any_commit_goes_on_as_if_nothing_had_happened(name: str, step: int) -> None:
    store = MemoryStore()
    counter = count_commits(store)
    async with runtime(store) as rt:
        session = await rt.open(house(), id="s")
        for text in CONVERSATIONS[name]:
            await session.run(text)
    assert await answers_of(store) == ANSWERS[name]
    log = await read_log(store, "s")
    for length in list(accumulate(map(len, counter.commits)))[:-1:step]:
        dead = MemoryStore()
        await log_writer(dead, "s", log[:length])()
        async with runtime(dead) as rt:
            session = await rt.open(house(), id="s")
            await session.resume().wait()
            for text in CONVERSATIONS[name][len(await answers_of(dead)) :]:
                await session.run(text)
        assert (length, await answers_of(dead)) == (length, ANSWERS[name])


class MoodyModel:
    """Stops in the middle of an answer, or fails there, when the input says so."""

    name = "moody"

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        inputs = [text_of(message.content) for message in prompt.messages if isinstance(message, UserMessage)]
        yield TextChunk(f"answer {len(inputs)}")
        if "stall" in inputs[-1]:
            await asyncio.Event().wait()
        if "fail" in inputs[-1]:
            raise ValueError("the model broke")
        yield StopChunk("end")


async def test_an_interrupt_reaches_the_agent_whose_partial_text_is_that_of_the_turn() -> None:
    async with runtime() as rt:
        session = await rt.open(router("house", play=vaka.Agent("player", model=MoodyModel())))
        await session.run("play")
        async with session.stream("stall") as turn:
            async for event in turn:
                if isinstance(event.data, TextDelta):
                    await session.interrupt("enough")
            with pytest.raises(Interrupted) as stopped:
                _ = turn.response
        assert stopped.value.result is not None
        assert stopped.value.result.text == "answer 2"
        with pytest.raises(TurnError, match="the model broke"):
            await session.run("fail")
        assert (await session.run("go on")).text == "answer 4"  # the agent stays active
        assert format_history(await session.messages()).splitlines() == [
            "[user]: play",
            "[model]: answer 1",
            "[user]: stall",
            "[user]: fail",
            "[user]: go on",
            "[model]: answer 4",
        ]


async def test_a_model_that_repeats_a_rule_for_ever_leads_to_its_agent_once() -> None:
    async def repeat(prompt: Prompt) -> str:
        return "play\n" * 5_000

    rules = [{"name": "play", "patterns": ["play"]}]
    routes = [Route(["play"], talker("player"))]
    async with runtime() as rt:
        session = await rt.open(MatchAgent("house", rules=rules, routes=routes, model=FunctionModel(repeat)))
        assert (await session.run("bye")).text == "player 1: bye"


async def test_an_agent_behind_a_router_keeps_its_conversation_over_many_turns() -> None:
    store = MemoryStore()
    commits = count_commits(store).commits
    async with runtime(store) as rt:
        session = await rt.open(router("house", play=talker("player")), id="s")
        for number in range(1, 301):
            assert (await session.run(f"play {number}")).text == f"player {number}: play {number}"
    assert len(commits) == 300 * 5  # input, call with what was matched, step, end of the agent, end of the turn
    opened = await reopen(store, SessionId("s"))
    assert list(opened.state.values) == ["$router"]  # what the session keeps does not grow with its turns
