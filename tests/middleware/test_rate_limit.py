"""RateLimit: the rate of turns, concurrent turns, and the release of every slot."""

import asyncio
import gc
from typing import Any

import pytest

import vaka
from tests.middleware.stop_reason import stop_reason_of
from tests.runtime.runtime_fixtures import agent, collect, runtime, wait_until
from vaka.config.options import Models
from vaka.core.types.errors import ConfigError, Suspended, TurnError
from vaka.middleware import RateLimit, Reject
from vaka.runtime.options import Environment
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, fail, say


class TurnGate:
    """A tool that waits until the gate is opened, and counts the calls inside."""

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


async def test_concurrent_turns_are_limited_and_all_of_them_run() -> None:
    limit, gate = RateLimit(concurrent=2), TurnGate()
    async with runtime() as rt:
        runs = [asyncio.create_task((await rt.open(limited_agent(limit, gate.tool))).run("Go.")) for _ in range(6)]
        await wait_until(lambda: gate.inside == 2)
        assert limit.running == 2
        gate.open.set()
        assert [(await run).text for run in runs] == ["done"] * 6
    assert (gate.most, limit.running) == (2, 0)


async def test_a_turn_that_fails_is_interrupted_or_is_rejected_releases_its_slot() -> None:
    limit, gate = RateLimit(concurrent=1), TurnGate()

    async def refuse(turn: Any, content: Any) -> Any:
        return Reject(reason="no")

    async with runtime(models=Models(retries=0)) as rt:
        assert await stop_reason_of((await rt.open(limited_agent(limit, answers=[fail(400)]))).run("Go.")) == "failed"
        blocked = agent(ScriptedModel(), middleware=[limit, vaka.Middleware.from_functions("no", before_agent=refuse)])
        assert await stop_reason_of((await rt.open(blocked)).run("Go.")) == "failed"
        session = await rt.open(limited_agent(limit, gate.tool))
        run = asyncio.create_task(session.run("Go."))
        await wait_until(lambda: gate.inside == 1)
        waiting = asyncio.create_task((await rt.open(limited_agent(limit))).run("Go."))
        await session.interrupt()
        assert await stop_reason_of(run) == "interrupted"
        assert (await waiting).text == "done"
    assert limit.running == 0


async def test_an_interrupted_waiter_does_not_block_those_behind_it() -> None:
    limit, gate = RateLimit(concurrent=1), TurnGate()
    async with runtime() as rt:
        first = asyncio.create_task((await rt.open(limited_agent(limit, gate.tool))).run("Go."))
        await wait_until(lambda: gate.inside == 1)
        second = await rt.open(limited_agent(limit))
        gone = asyncio.create_task(second.run("Go."))
        third = asyncio.create_task((await rt.open(limited_agent(limit))).run("Go."))
        await wait_until(lambda: limit.waiting == 2)
        await second.interrupt()
        assert await stop_reason_of(gone) == "interrupted"
        gate.open.set()
        assert [(await run).text for run in (first, third)] == ["done", "done"]
    assert limit.running == 0


async def test_a_suspended_turn_releases_its_slot() -> None:
    limit, gate = RateLimit(concurrent=1), TurnGate()
    gate.open.set()
    async with runtime(permissions=vaka.Permissions(ask="suspend", confirm=("wait",))) as rt:
        asking = await rt.open(limited_agent(limit, gate.tool), id="asking")
        with pytest.raises(Suspended):
            await asking.run("Go.")
        gc.disable()  # the slot must be released by the middleware, not by a finalizer
        try:
            await wait_until(lambda: limit.running == 0)
            assert (await (await rt.open(limited_agent(limit))).run("Go.")).text == "done"
        finally:
            gc.enable()
        await rt.resolve((await rt.decisions("asking"))[0].id, "approve")
        await collect(asking.resume())
    assert limit.running == 0


async def test_a_suspended_child_releases_its_slot() -> None:
    limit, gate = RateLimit(concurrent=1), TurnGate()
    gate.open.set()
    lines = {"helper": [call("wait"), say("helped")]}
    model = ScriptedModel(call("helper", prompt="Help."), say("both done"), agents=lines)
    parent = agent(model, agent(model, gate.tool, middleware=[limit], name="helper"))
    async with runtime(permissions=vaka.Permissions(ask="suspend", confirm=("wait",))) as rt:
        asking = await rt.open(parent, id="asking")
        with pytest.raises(Suspended):
            await asking.run("Go.")
        await wait_until(lambda: limit.running == 0)
        await rt.resolve((await rt.decisions("asking"))[0].id, "approve")
        await collect(asking.resume())
    assert limit.running == 0


async def test_after_a_burst_turns_start_at_the_rate() -> None:
    clock = FakeClock(auto=True)
    limit, begun = RateLimit(rate=2.0, burst=3), list[float]()
    async with runtime(environment=Environment(clock=clock)) as rt:
        for _ in range(6):
            await (await rt.open(limited_agent(limit))).run("Go.")
            begun.append(clock.monotonic())
    assert begun == pytest.approx([0, 0, 0, 0.5, 1.0, 1.5])


async def test_without_waiting_a_turn_above_the_limit_is_refused() -> None:
    limit, gate = RateLimit(concurrent=1, wait=False), TurnGate()
    async with runtime() as rt:
        first = asyncio.create_task((await rt.open(limited_agent(limit, gate.tool))).run("Go."))
        await wait_until(lambda: gate.inside == 1)
        with pytest.raises(TurnError, match="too many turns at once"):
            await (await rt.open(limited_agent(limit))).run("Go.")
        gate.open.set()
        assert (await first).text == "done"
    assert limit.running == 0


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"rate": -1.0}, {"burst": 0}, {"concurrent": 0}])
def test_limits_that_allow_no_turn_are_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RateLimit(**wrong)
