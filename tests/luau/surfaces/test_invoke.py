"""``ctx.invoke`` and ``ctx.create_agent``: tools and other agents."""

import pytest

from tests.luau.surfaces.surface_fixtures import EchoAgents, make_services, run_for_error, run_script
from vaka.core.loop.script_journal import ScriptRequest
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON


async def test_invoke_calls_a_tool() -> None:
    calls: list[tuple[int, str, JSON]] = []

    async def invoke(request: ScriptRequest, tool: str, arguments: dict[str, JSON]) -> JSON:
        calls.append((request.number, tool, arguments))
        if tool == "bad":
            raise ScriptError("it broke")
        return {"got": arguments}

    services = make_services(invoke=invoke)
    source = "return ctx.invoke('t', {a = 1}).got.a, ctx.invoke('t').got, pcall(ctx.invoke, 'bad')"
    assert await run_script(source, services=services) == [1, {}, False, "it broke"]
    assert calls == [(1, "t", {"a": 1}), (2, "t", {}), (3, "bad", {})]
    assert "invoke: tool must be a string, not nil" in await run_for_error("ctx.invoke()", services)
    assert "invoke: args must be a table, not a string" in await run_for_error("ctx.invoke('t', 'x')", services)
    assert "invoke: args must be a table with names, not a list" in await run_for_error(
        "ctx.invoke('t', {1})", services
    )
    assert "invoke is not available here: this script has no tools" in await run_for_error("ctx.invoke('t')")


async def test_an_agent_answers_with_the_conversation_so_far() -> None:
    source = """
        local agent = ctx.create_agent("helper", {tone = "kind"})
        local before = agent:needs_input()
        agent:send("one")
        agent:input({text = "two"})
        local ready = agent:needs_input()
        local all = agent:collect()
        agent:send("three")
        local chunks = {}
        for chunk in agent:iter() do table.insert(chunks, chunk.text) end
        return before, ready, all, chunks, agent:needs_input()
    """
    one, two, three = (
        f"helper/{{'tone': 'kind'}}/{after}/{text}" for after, text in (("", "one"), ("+", "two"), ("++", "three"))
    )
    assert await run_script(source, services=make_services(agents=EchoAgents())) == [
        True,
        False,
        one + two,
        [three],
        True,
    ]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("ctx.create_agent()", "create_agent: name must be a string, not nil"),
        ("ctx.create_agent('a', 1)", "create_agent: config must be a table, not a number"),
        ("ctx.create_agent('a', {f = print})", "create_agent: config cannot hold a function"),
        ("local a = ctx.create_agent('a') a:close() a:close() a:send('x')", "agent is closed"),
        ("local a = ctx.create_agent('a') a:close() a:collect()", "agent is closed"),
        ("local a = ctx.create_agent('a') a:send()", "send: what is sent must be a string, not nil"),
        ("local a = ctx.create_agent('a') a.send('x')", "send: call it as agent:send(…)"),
    ],
)
async def test_agents_raise_for_invalid_arguments(body: str, why: str) -> None:
    assert why in await run_for_error(body, make_services(agents=EchoAgents()))


async def test_missing_services_are_errors() -> None:
    assert "create_agent is not available here" in await run_for_error("ctx.create_agent('a'):send('x')")
    assert "realtime.connect is not available here" in await run_for_error("ctx.realtime.connect('m')")
    assert "input is not available here" in await run_for_error("ctx.input()")
    assert "recv is not available here" in await run_for_error("ctx.recv()")
    assert "emit is not available here" in await run_for_error("ctx.emit{text = 'x'}")
