"""RateLimit: so many turns in a time, so many at once, and no place is ever lost."""

import asyncio
import gc
from typing import Any

import pytest

import vaka
from tests.middleware.stop_reason import stop_reason_of
from tests.runtime.runtime_fixtures import agent, collect, runtime, wait_until
from vaka.core.types.errors import ConfigError, Suspended, TurnError
from vaka.middleware import RateLimit
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, fail, say


class TurnGate:
    """A tool that waits until it is opened, and counts who is inside."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.open = asyncio.Event()

        @vaka.tool(effect="read")
        async def wait() -> str:
            """Wait."""
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                await self.open.wait()
            finally:
                self.inside -= 1
            return "in"

        self.tool = wait


def limited_agent(limit: RateLimit, *tools: Any, answers: Any = None) -> vaka.Agent:
    lines = answers or ([call("wait"), say("done")] if tools else [say("done")])
    return agent(ScriptedModel(*lines), *tools, middleware=[limit])


async def test_no_more_turns_run_at_once_than_may_and_all_get_their_turn() -> None:
    limit, door = RateLimit(concurrent=2), TurnGate()
    async with runtime() as rt:
        runs = [asyncio.create_task((await rt.open(limited_agent(limit, door.tool))).run("Go.")) for _ in range(6)]
        await wait_until(lambda: door.inside == 2)
        assert limit.running == 2
        door.open.set()
        assert [(await run).text for run in runs] == ["done"] * 6
    assert (door.most, limit.running) == (2, 0)


async def test_a_turn_that_fails_is_cancelled_or_is_refused_gives_its_place_back() -> None:
    limit, door = RateLimit(concurrent=1), TurnGate()

    async def refuse(turn: Any, content: Any) -> Any:
        return vaka.Reject(reason="no")

    async with runtime(retries=0) as rt:
        assert await stop_reason_of((await rt.open(limited_agent(limit, answers=[fail(400)]))).run("Go.")) == "failed"
        blocked = agent(ScriptedModel(), middleware=[limit, vaka.Middleware.from_functions("no", before_agent=refuse)])
        assert await stop_reason_of((await rt.open(blocked)).run("Go.")) == "failed"
        session = await rt.open(limited_agent(limit, door.tool))
        run = asyncio.create_task(session.run("Go."))
        await wait_until(lambda: door.inside == 1)
        waiting = asyncio.create_task((await rt.open(limited_agent(limit))).run("Go."))
        await session.interrupt()
        assert await stop_reason_of(run) == "interrupted"
        assert (await waiting).text == "done"
    assert limit.running == 0


async def test_one_that_gives_up_waiting_does_not_hold_up_those_behind_it() -> None:
    limit, door = RateLimit(concurrent=1), TurnGate()
    async with runtime() as rt:
        first = asyncio.create_task((await rt.open(limited_agent(limit, door.tool))).run("Go."))
        await wait_until(lambda: door.inside == 1)
        second = await rt.open(limited_agent(limit))
        gone = asyncio.create_task(second.run("Go."))
        third = asyncio.create_task((await rt.open(limited_agent(limit))).run("Go."))
        await wait_until(lambda: limit.waiting == 2)
        await second.interrupt()
        assert await stop_reason_of(gone) == "interrupted"
        door.open.set()
        assert [(await run).text for run in (first, third)] == ["done", "done"]
    assert limit.running == 0


async def test_a_turn_that_waits_for_a_person_gives_its_place_to_others() -> None:
    limit, door = RateLimit(concurrent=1), TurnGate()
    door.open.set()
    async with runtime(ask="suspend", ask_for=("wait",)) as rt:
        asking = await rt.open(limited_agent(limit, door.tool), id="asking")
        with pytest.raises(Suspended):
            await asking.run("Go.")
        gc.disable()  # whoever gives a place back does so, nobody else does it for them
        try:
            await wait_until(lambda: limit.running == 0)
            assert (await (await rt.open(limited_agent(limit))).run("Go.")).text == "done"
        finally:
            gc.enable()
        await rt.resolve((await rt.decisions("asking"))[0].id, "approve")
        await collect(asking.resume())
    assert limit.running == 0


async def test_a_child_that_waits_for_a_person_gives_its_place_to_others() -> None:
    limit, door = RateLimit(concurrent=1), TurnGate()
    door.open.set()
    lines = {"helper": [call("wait"), say("helped")]}
    model = ScriptedModel(call("helper", prompt="Help."), say("both done"), agents=lines)
    parent = agent(model, agent(model, door.tool, middleware=[limit], name="helper"))
    async with runtime(ask="suspend", ask_for=("wait",)) as rt:
        asking = await rt.open(parent, id="asking")
        with pytest.raises(Suspended):
            await asking.run("Go.")
        await wait_until(lambda: limit.running == 0)
        await rt.resolve((await rt.decisions("asking"))[0].id, "approve")
        await collect(asking.resume())
    assert limit.running == 0


async def test_turns_begin_at_the_rate_after_a_burst() -> None:
    clock = FakeClock(auto=True)
    limit, begun = RateLimit(rate=2.0, burst=3), list[float]()
    async with runtime(clock=clock) as rt:
        for _ in range(6):
            await (await rt.open(limited_agent(limit))).run("Go.")
            begun.append(clock.monotonic())
    assert begun == pytest.approx([0, 0, 0, 0.5, 1.0, 1.5])


async def test_without_waiting_one_too_many_is_refused() -> None:
    limit, door = RateLimit(concurrent=1, wait=False), TurnGate()
    async with runtime() as rt:
        first = asyncio.create_task((await rt.open(limited_agent(limit, door.tool))).run("Go."))
        await wait_until(lambda: door.inside == 1)
        with pytest.raises(TurnError, match="too many turns at once"):
            await (await rt.open(limited_agent(limit))).run("Go.")
        door.open.set()
        assert (await first).text == "done"
    assert limit.running == 0


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"rate": -1.0}, {"burst": 0}, {"concurrent": 0}])
def test_limits_that_let_nothing_through_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RateLimit(**wrong)
