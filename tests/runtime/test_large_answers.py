"""Texts that are too large for an event are whole for callers, parents and scripts."""

import vaka
from tests.runtime.runtime_fixtures import agent, collect, results_by_call, runtime
from vaka.core.types.message import Stored
from vaka.core.types.progress import TurnCompleted
from vaka.testing.models import ScriptedModel, call, say

LARGE = "x" * 50_000


async def test_the_response_has_the_whole_text_of_a_large_answer() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say(LARGE))), id="s")
        assert (await session.run("Go.")).text == LARGE
        assert (await session.resume().wait()).text == LARGE
        stream = (await rt.open(agent(ScriptedModel(say(LARGE))))).stream("Go.")
        log = await collect(stream)
        assert stream.response.text == LARGE
    assert [len(event.data.text) for event in log if isinstance(event.data, TurnCompleted)] == [1000]


async def test_a_large_answer_is_checked_whole_against_its_output_type() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say(f'{{"text": "{LARGE}"}}')), output=dict[str, str]))
        response = await session.run("Go.")
    assert response.output == {"text": LARGE}


async def test_a_parent_gets_the_whole_answer_of_its_child() -> None:
    child = vaka.Agent("child", model=ScriptedModel({"text": LARGE, "agent": "child"}))
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(call("child", prompt="Go."), say("done")), child))
        [result] = results_by_call(await collect(session.stream("Go."))).values()
    [part] = result.content
    assert isinstance(part, Stored)
    assert part.size == len(LARGE)


async def test_a_script_gets_the_whole_results_of_tools_and_agents() -> None:
    @vaka.tool(effect="read")
    async def text() -> str:
        """Return a text."""
        return LARGE

    @vaka.tool(effect="read")
    async def table() -> dict[str, str]:
        """Return a table."""
        return {"text": LARGE}

    source = """function invoke(ctx)
        local child = ctx.create_agent("child")
        child:send("Go.")
        return { #ctx.invoke("text", {}), #ctx.invoke("table", {}).text, #child:collect(), #ctx.invoke("inner", {})[1] }
    end"""
    child = vaka.Agent("child", model=ScriptedModel({"text": LARGE, "agent": "child"}))
    inner = vaka.LuauTool(f"function invoke() return {{ string.rep('x', {len(LARGE)}) }} end", name="inner")
    sizes = vaka.LuauTool(source, name="sizes")
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(call("sizes"), say("done")), text, table, child, inner, sizes))
        results = results_by_call(await collect(session.stream("Go.")))
    assert results["call_1"].value == [len(LARGE)] * 4
