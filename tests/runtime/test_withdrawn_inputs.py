"""An input that no turn has taken yet is taken back."""

import asyncio

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, read_log, runtime
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import Cancelled
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import UserMessage, text_of
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

ID = SessionId("s")


async def count_inputs(rt: vaka.Runtime) -> int:
    """Return the number of inputs that wait, as the index has it."""
    info = await rt.store.sessions.find(ID)
    return info.inputs if info is not None else 0


async def test_a_queued_input_can_be_withdrawn_until_a_turn_takes_it() -> None:
    inside, opened = asyncio.Event(), asyncio.Event()

    @vaka.tool(effect="read")
    async def knock() -> str:
        """Wait at the door."""
        inside.set()
        await opened.wait()
        return "open"

    model, store = ScriptedModel(call("knock"), say("One."), say("Two.")), MemoryStore()
    async with runtime(store=store) as rt:
        session = await rt.open(agent(model, knock), id=ID)
        first = asyncio.create_task(session.run("First."))
        await inside.wait()
        key = await session.send("Never mind.")
        await session.send("Nor this.", key="mine")
        waiting = asyncio.create_task(session.run("Nor this.", key="mine"))
        assert await count_inputs(rt) == 2
        assert await session.withdraw(key, by="kim")
        assert await session.withdraw("mine")
        assert not await session.withdraw(key)
        assert not await session.withdraw("unknown")
        assert await count_inputs(rt) == 0
        opened.set()
        assert (await first).text == "One."
        with pytest.raises(Cancelled, match="withdrawn"):
            await waiting
        with pytest.raises(Cancelled, match="withdrawn"):
            await session.run("Nor this.", key="mine")
        assert (await session.run("Second.")).text == "Two."
        said = [text_of(message.content) for message in await session.messages() if isinstance(message, UserMessage)]
        assert said == ["First.", "Second."]
        row = await rt.store.sessions.find(ID)
        await rt.store.reindex()
        assert await rt.store.sessions.find(ID) == row
        check_log(await read_log(store, ID))
    async with runtime(store=store) as rt:
        assert not await (await rt.open(agent(model), id=ID)).withdraw(key)


async def test_an_input_of_a_session_that_does_not_run_can_be_withdrawn() -> None:
    model, store = ScriptedModel(say("One.")), MemoryStore()
    async with runtime(store=store) as rt:
        session = await rt.open(agent(model), id=ID)
        await session.run("First.")
        left = Event(data=InputAdded(key="left", content=()), session=ID, ts="2026-01-01T00:00:00.000Z")
        await store.events.offer(ID, left, key="left")
        assert await session.withdraw("left")
        assert await count_inputs(rt) == 0
