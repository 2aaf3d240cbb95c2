"""Isolation of scripts, and replay with all surfaces."""

from tests.luau.surfaces.surface_fixtures import (
    DictValues,
    EchoAgents,
    FakeNetwork,
    MemoryJournal,
    make_services,
    run_script,
)
from vaka.core.ports.net import NetResponse
from vaka.core.types.ids import JSON
from vaka.luau.host.storage import StoredMemory
from vaka.luau.services import HostServices
from vaka.testing.models import ScriptedModel, say

DATA = NetResponse(
    status=200, headers=(("content-type", "application/json"),), body=b'{"a": [1, null]}', url="http://host/a"
)


GIVEN: dict[str, JSON] = {"name": "assistant", "state": True}


async def test_time_ids_and_random_numbers() -> None:
    source = "local r = ctx.random(1, 6) return ctx.now(), ctx.uuid(), r >= 1 and r <= 6, ctx.random() < 1"
    book = MemoryJournal()
    first = await run_script(source, journal=book)
    assert first[0] == 1_700_000_000
    assert len(first[1]) == 36
    assert first[2:] == [True, True]
    assert await run_script(source, journal=MemoryJournal(book.answers)) == first


async def test_scripts_are_isolated_from_each_other() -> None:
    await run_script("leak = 1 rawset(ctx, 'leak', 2) rawset(ctx.log, 'leak', 3) rawset(__builtin, 'leak', 4)")
    assert (
        await run_script("return leak, rawget(ctx, 'leak'), ctx.leak, ctx.log.leak, __builtin.leak, __enter")
        == [None] * 6
    )


EVERYTHING = """
    local state = ctx.agent.state
    state.count = (state.count or 0) + 1
    local a, b, c = ctx.parallel(
        function() return ctx.generate("m", "one") end,
        function() return ctx.http.get("http://host/a").json.a[1] end,
        function() ctx.sleep(0.001) return ctx.invoke("t", {x = 1}) end)
    local agent = ctx.create_agent("helper")
    agent:send(a)
    ctx.log.info("half")
    state.last = agent:collect()
    return a, b, c, state:all(), #ctx.uuid(), ctx.now() > 0, ctx.random()
"""


async def test_replaying_any_prefix_gives_the_same_result() -> None:
    async def invoke(*_: JSON) -> JSON:
        return "invoked"

    def services() -> HostServices:
        memory = StoredMemory(DictValues(), "")
        return make_services(
            find_model=lambda _: ScriptedModel(say("Yes.")),
            network=FakeNetwork({"http://host/a": DATA}),
            invoke=invoke,
            agents=EchoAgents(),
            memory=memory,
        )

    book = MemoryJournal()
    complete = await run_script(EVERYTHING, services=services(), startup_info=GIVEN, journal=book)
    assert complete[:3] == ["Yes.", 1, "invoked"]
    for cut in range(1, len(book.answers) + 1):
        assert (
            await run_script(
                EVERYTHING, services=services(), startup_info=GIVEN, journal=MemoryJournal(book.answers[:cut])
            )
            == complete
        )


SHARED = """
    local response = ctx.http.get("http://host/a")
    local things = {
        ctx, ctx.agent, ctx.log, ctx.json, rt, __builtin, response, response.headers, ctx.spawn(function() end),
        rt:sleep(0), rt:timeout(0), ctx.create_agent("a"), ctx.agent.history, ctx.agent.memory, ctx.agent.state,
    }
    local seen = {}
    for index, thing in things do
        seen[index] = getmetatable(thing)
    end
    return seen
"""


async def test_shared_metatables_cannot_be_reached() -> None:
    seen = await run_script(
        SHARED, services=make_services(network=FakeNetwork({"http://host/a": DATA}), agents=EchoAgents())
    )
    assert seen == [["The metatable is locked"] * 15]
