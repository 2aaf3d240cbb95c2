"""A session gets a title, an owner, tags and metadata, and is found by them."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, read_log, runtime
from vaka.core.ports.store import SessionInfo, SessionQuery
from vaka.core.types.control import SessionUpdated
from vaka.core.types.errors import Busy, HeadMoved, InvalidInput, NotFound
from vaka.core.types.ids import SessionId
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

ID = SessionId("s")


async def find(rt: vaka.Runtime) -> SessionInfo:
    info = await rt.store.sessions.find(ID)
    assert info is not None
    return info


async def test_a_session_can_begin_with_its_description_and_change_it() -> None:
    seen: list[dict[str, Any]] = []

    @vaka.tool(effect="read")
    async def look(context: vaka.ToolContext) -> str:
        """Read the metadata."""
        seen.append(dict(context.metadata))
        return "seen"

    model = ScriptedModel(call("look"), say("Hi."), call("look"), say("Hi."), call("look"), say("Hi."))
    store = MemoryStore()
    async with runtime(store=store) as rt:
        session = await rt.open(agent(model, look), id=ID, metadata={"plan": "free", "n": 1})
        event = await session.update(
            title=" Tea \n time", owner="ann", tags=["a", "b", "a"], metadata={"n": 2}, by="ann"
        )
        assert event.data == SessionUpdated(title="Tea time", owner="ann", tags=("a", "b"), metadata={"n": 2}, by="ann")
        info = await find(rt)
        assert (info.title, info.owner, info.tags) == ("Tea time", "ann", ("a", "b"))
        assert (info.metadata, info.status, info.agent) == ({"plan": "free", "n": 2}, "idle", session.agent.name)
        await session.run("One.")
        other = await rt.open(session.agent, id=ID)
        await other.run("Two.")
        await rt.update_session(ID, metadata={"plan": None, "n": 3})
        await other.run("Three.")
        assert seen == [{"plan": "free", "n": 2}, {"plan": "free", "n": 2}, {"n": 3}]
        page = await rt.store.sessions.list(SessionQuery(owner="ann", tag="b"))
        assert [found.title for found in page.sessions] == ["Tea time"]
        assert (await read_log(store, ID))[0].type == "session.opened"
        check_log(await read_log(store, ID))


async def test_a_description_changes_while_a_turn_runs_and_survives_a_rewind_and_a_fork() -> None:
    inside, opened = asyncio.Event(), asyncio.Event()

    @vaka.tool(effect="read")
    async def knock() -> str:
        """Wait at the door."""
        inside.set()
        await opened.wait()
        return "open"

    model, store = ScriptedModel(call("knock"), say("One."), say("Two.")), MemoryStore()
    async with runtime(store=store) as rt:
        session = await rt.open(agent(model, knock), id=ID, metadata={"a": 1})
        running = asyncio.create_task(session.run("First."))
        await inside.wait()
        await session.update(title="Door", tags=["x"], metadata={"b": 2})
        async with runtime(store=store.open_handle()) as elsewhere:
            with pytest.raises(Busy):
                await elsewhere.update_session(ID, title="No.")
        opened.set()
        await running
        await session.rewind("2")
        info = await find(rt)
        assert (info.title, info.tags, info.metadata) == ("Door", ("x",), {"a": 1, "b": 2})
        assert await rt.store.reindex() == 1
        assert await find(rt) == info
        again = await rt.open(session.agent, id=ID)
        await again.run("Second.")
        assert again.metadata == {"a": 1, "b": 2}
        copy = await rt.store.sessions.find((await session.fork(id="t")).id)
        assert copy is not None
        assert (copy.title, copy.tags, copy.origin) == ("Door", ("x",), ID)
        check_log(await read_log(store, ID))


async def test_updates_at_every_moment_of_a_turn_are_all_in_the_log() -> None:
    store = MemoryStore()
    async with runtime(store=store) as rt:
        session = await rt.open(agent(ScriptedModel(*[say("Hi.")] * 12)), id=ID)

        async def update_after(ticks: int) -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)
            await session.update(metadata={str(ticks): True})

        for ticks in range(0, 48, 4):
            await asyncio.gather(session.run("Go."), *(update_after(ticks + n) for n in range(4)))
        assert set((await find(rt)).metadata) == {str(ticks) for ticks in range(48)}
        check_log(await read_log(store, ID))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"metadata": {}},
        {"title": "x" * 201},
        {"owner": "a\nb"},
        {"owner": "x" * 201},
        {"tags": "abc"},
        {"tags": ["a\nb"]},
        {"tags": [" "]},
        {"tags": ["x" * 101]},
        {"tags": [str(n) for n in range(65)]},
        {"metadata": {"a": "x" * 17_000}},
        {"metadata": {"a": object()}},
    ],
)
async def test_a_description_that_cannot_be_indexed_is_refused(changes: dict[str, Any]) -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel()), id=ID)
        with pytest.raises(InvalidInput):
            await session.update(**changes)
        with pytest.raises(NotFound):
            await rt.update_session(ID, title="x")
        assert await rt.store.sessions.find(ID) is None


async def test_one_of_several_callers_creates_a_session() -> None:
    greeter = agent(ScriptedModel(say("Hi.")))
    async with runtime() as rt:
        await (await rt.open(greeter, id=ID)).update(owner="alice", create=True)
        with pytest.raises(HeadMoved, match="there is a session 's' already"):
            await (await rt.open(greeter, id=ID)).update(owner="bob", create=True)
        assert (await find(rt)).owner == "alice"
