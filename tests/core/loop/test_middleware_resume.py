"""Middleware of a turn that is resumed after a crash: it runs again and changes nothing twice."""

from typing import Any

import msgspec

import vaka
from tests.runtime.runtime_fixtures import agent, collect, collect_turn, log_writer, read_log, reasons_by_call, runtime
from vaka.core.types.message import Text
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say


def middleware_at(point: str, function: Any) -> vaka.Middleware:
    return vaka.Middleware.from_functions("mine", **{point: function})


async def test_a_resumed_turn_shows_before_agent_what_it_began_with() -> None:
    seen: list[str] = []

    async def sees(turn: Any, content: Any) -> Any:
        seen.append(content[0].text)
        return (Text(text=content[0].text + " please"),)

    mw, large = middleware_at("before_agent", sees), "x" * 40_000
    for words in ("Go.", large):
        seen.clear()
        store, again = MemoryStore(), MemoryStore()
        async with runtime(store) as rt:
            session = await rt.open(agent(ScriptedModel(say("done")), middleware=[mw]), id="s")
            await session.run(words)
        log = await read_log(store, "s")
        again.hub.shared.blobs = store.hub.shared.blobs
        await log_writer(again, "s", log[:4])()
        async with runtime(again) as rt:
            session = await rt.open(agent(ScriptedModel(say("done")), middleware=[mw]), id="s")
            await collect(session.resume())
        assert seen == [words, words + " please"]


async def test_a_started_call_runs_again_with_the_same_arguments() -> None:
    """before_tool runs again after a crash, but not on top of itself."""
    ran: list[str] = []

    @vaka.tool(effect="idempotent")
    async def write(at: str) -> str:
        """Write."""
        ran.append(at)
        return "ok"

    async def jails(turn: Any, given: Any) -> Any:
        return msgspec.structs.replace(given, arguments={"at": "jail/" + given.arguments["at"]})

    store, again = MemoryStore(), MemoryStore()
    who = agent(
        ScriptedModel(call("write", at="x"), say("done")), write, middleware=[middleware_at("before_tool", jails)]
    )
    async with runtime(store) as rt:
        await collect_turn(await rt.open(who, id="s"))
    log = await read_log(store, "s")
    begun = next(n for n, event in enumerate(log, 1) if event.type == "tool.started")
    await log_writer(again, "s", log[:begun])()
    async with runtime(again) as rt:
        await collect((await rt.open(who, id="s")).resume())
    assert ran == ["jail/x", "jail/x"]


async def test_a_result_that_was_returned_is_seen_by_after_tool_again_not_the_tool() -> None:
    ran: list[str] = []

    @vaka.tool
    async def act() -> str:
        """Act."""
        ran.append("act")
        return "acted"

    async def sees(turn: Any, given: Any, result: Any) -> Any:
        notes.append("after_tool")
        return result

    notes: list[str] = []
    store, again = MemoryStore(), MemoryStore()
    who = agent(ScriptedModel(call("act"), say("done")), act, middleware=[middleware_at("after_tool", sees)])
    async with runtime(store) as rt:
        await collect_turn(await rt.open(who, id="s"))
    log = await read_log(store, "s")
    returned = next(n for n, event in enumerate(log, 1) if event.type == "tool.returned")
    await log_writer(again, "s", log[:returned])()
    async with runtime(again) as rt:
        await collect((await rt.open(who, id="s")).resume())
    assert ran == ["act"]
    assert notes == ["after_tool", "after_tool"]
    assert reasons_by_call(await read_log(again, "s")) == {"call_1": "ok"}
