"""Agents that a script talks to: sends do not wait, answers stream, one child keeps its conversation."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import accumulate
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    count_commits,
    log_writer,
    read_log,
    results_by_call,
    runtime,
)
from vaka.core.ports.model import Chunk, Prompt, StopChunk, TextChunk
from vaka.core.types.errors import TurnError
from vaka.core.types.message import ToolMessage, text_of
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, fail, say

TWICE = """ function on_input(ctx, input)
    local helper = ctx.create_agent("helper")
    helper:send("first")
    local one = helper:collect()
    helper:send("second")
    ctx.emit({ text = `{one} {helper:collect()}`, eof = true })
end"""


@vaka.tool(effect="read")
async def look() -> str:
    """Look."""
    return "a reef"


def conversation_of(prompt: Prompt) -> list[str]:
    """Return the texts of a prompt: of messages, and of the first result of each step."""
    return [
        message.results[0].text if isinstance(message, ToolMessage) else text_of(message.content)
        for message in prompt.messages
    ]


async def test_a_child_keeps_its_conversation_over_several_sends() -> None:
    model = ScriptedModel(agents={"helper": [call("look"), say("I see a reef."), say("It is still there.")]})
    helper = vaka.Agent("helper", model=model, tools=[look])
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(vaka.LuauAgent("chat", TWICE, model=model, tools=[helper]), id="s")
        assert (await session.run("Go.")).text == "I see a reef. It is still there."
    assert conversation_of(model.prompts[-1]) == ["first", "", "a reef", "I see a reef.", "second"]
    check_log(await read_log(store, "s"))


async def test_the_conversation_of_a_child_survives_a_crash_after_any_commit() -> None:
    def parts() -> tuple[ScriptedModel, vaka.LuauAgent]:
        model = ScriptedModel(agents={"helper": [call("look"), say("I see a reef."), say("It is still there.")]})
        return model, vaka.LuauAgent(
            "chat", TWICE, model=model, tools=[vaka.Agent("helper", model=model, tools=[look])]
        )

    store = MemoryStore()
    commits = count_commits(store).commits
    async with runtime(store) as rt:
        await (await rt.open(parts()[1], id="s")).run("Go.")
    log = await read_log(store, "s")
    for cut in list(accumulate(map(len, commits)))[:-1]:
        crashed, (model, who) = MemoryStore(), parts()
        await log_writer(crashed, "s", log[:cut])()
        async with runtime(crashed) as rt:
            resumed: list[Any] = await collect((await rt.open(who, id="s")).resume())
        assert resumed[-1].data.text == "I see a reef. It is still there.", cut
        for prompt in model.prompts:
            if conversation_of(prompt)[-1] == "second":
                assert conversation_of(prompt) == ["first", "", "a reef", "I see a reef.", "second"], cut


async def test_two_children_of_one_name_have_separate_conversations() -> None:
    text = """ function on_input(ctx)
        local one, two = ctx.create_agent("helper"), ctx.create_agent("helper")
        one:send("a") one:collect()
        two:send("b") two:collect()
        one:send("c") one:collect()
    end"""
    model = ScriptedModel(agents={"helper": [say("A"), say("B"), say("C")]})
    async with runtime() as rt:
        who = vaka.LuauAgent("chat", text, model=model, tools=[vaka.Agent("helper", model=model)])
        await (await rt.open(who)).run("Go.")
    assert [conversation_of(prompt) for prompt in model.prompts] == [["a"], ["b"], ["a", "A", "c"]]


async def test_a_luau_child_keeps_its_state_and_its_place_over_several_sends() -> None:
    counts = """ function on_input(ctx, input)
        ctx.agent.state.count = (ctx.agent.state.count or 0) + 1
        ctx.emit({ text = `{ctx.agent.state.count} {input.text}`, eof = true })
    end"""
    loops = """ function run(ctx)
        local count = 0
        while true do
            local input = ctx.recv()
            count += 1
            ctx.emit({ text = `{count} {input.text}`, eof = true })
        end
    end"""
    text = """ function on_input(ctx, input)
        local said = {}
        for _, name in { "counts", "loops", "counts" } do
            local child = ctx.create_agent(name)
            for _, word in { "a", "b" } do
                child:send(word)
                table.insert(said, child:collect())
            end
        end
        ctx.emit({ text = table.concat(said, ", "), eof = true })
    end"""
    async with runtime() as rt:
        children = [vaka.LuauAgent("counts", counts), vaka.LuauAgent("loops", loops)]
        session = await rt.open(vaka.LuauAgent("chat", text, tools=children))
        expected = "1 a, 2 b, 1 a, 2 b, 1 a, 2 b"
        assert [(await session.run("Go.")).text for _ in range(2)] == [expected, expected]


class SlowModel:
    """A model whose second piece waits for ``released``."""

    name = "slow"

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        yield TextChunk("one ")
        await self.released.wait()
        yield TextChunk("two")
        yield StopChunk()


async def test_a_send_returns_at_once_and_the_answer_streams() -> None:
    model, order = SlowModel(), list[str]()

    @vaka.tool(effect="read")
    async def note(text: str) -> None:
        """Note something."""
        order.append(text)
        if text == "one ":
            model.released.set()

    text = """ function invoke(ctx)
        local helper = ctx.create_agent("helper")
        helper:send("Go.")
        ctx.invoke("note", { text = "sent" })
        for chunk in helper:iter() do ctx.invoke("note", { text = chunk.text }) end
        return helper:needs_input()
    end"""
    tool, helper = vaka.LuauTool(text, name="script"), vaka.Agent("helper", model=model)
    async with runtime() as rt:
        who = agent(ScriptedModel(call("script"), say("done")), tool, helper, note)
        log = await collect((await rt.open(who, id="s")).stream("Go."))
    assert order == ["sent", "one ", "two"]
    assert results_by_call(log)["call_1"].value is True


async def test_several_sends_are_answered_one_after_the_other() -> None:
    text = """ function on_input(ctx)
        local helper = ctx.create_agent("helper")
        for _, word in { "a", "b", "c" } do helper:send(word) end
        local first = {}
        for chunk in helper:iter() do table.insert(first, chunk.text) end
        ctx.emit({ text = table.concat(first), eof = true })
    end"""
    model = ScriptedModel(agents={"helper": [say("A."), say("B."), say("C.")]})
    async with runtime() as rt:
        who = vaka.LuauAgent("chat", text, model=model, tools=[vaka.Agent("helper", model=model)])
        assert (await (await rt.open(who)).run("Go.")).text == "A.B.C."
    assert conversation_of(model.prompts[-1]) == ["a", "A.", "b", "B.", "c"]


@pytest.mark.parametrize("read", ["helper:collect()", "for _ in helper:iter() do end"])
async def test_a_child_that_fails_is_an_error_where_its_answer_is_read(read: str) -> None:
    text = f""" function on_input(ctx)
        local helper = ctx.create_agent("helper")
        helper:send("a")
        {read}
    end"""
    model = ScriptedModel(agents={"helper": [fail(400, "the helper failed")]})
    async with runtime() as rt:
        session = await rt.open(
            vaka.LuauAgent("chat", text, model=model, tools=[vaka.Agent("helper", model=model)]), id="s"
        )
        with pytest.raises(TurnError, match=r"chat\.luau:\d+: .*helper"):
            await session.run("Go.")
