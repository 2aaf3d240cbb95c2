"""The values that tools have set, read from outside of a turn."""

import asyncio

import vaka
from vaka.core.ports.tool import ToolContext
from vaka.testing import ScriptedModel, call, say


async def test_values_are_read_while_a_turn_runs_and_after_it() -> None:
    is_set, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def note(context: ToolContext) -> str:
        """Note it."""
        await context.state.set_now("color", "blue")
        is_set.set()
        await go_on.wait()
        return "noted"

    agent = vaka.Agent("assistant", model=ScriptedModel(call("note"), say("Done.")), tools=[note])
    async with vaka.Runtime() as runtime:
        session = await runtime.open(agent, id="s")
        assert await session.state_values() == {}
        turn = asyncio.create_task(session.run("Go."))
        await is_set.wait()
        values = await session.state_values()
        assert values == {"color": "blue"}
        values.clear()
        go_on.set()
        await turn
        assert await session.state_values() == {"color": "blue"}
