"""However the driving of a script ends, nothing of it goes on."""

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from tests.luau.engine.book import ASK, DOUBLE, Played, run
from vaka.core.types.errors import Closed, ReplayError, ScriptError, ScriptLimit
from vaka.luau.program import Program
from vaka.luau.scheduler import Unrecorded, drive
from vaka.luau.script import Call, Done, HostFunction, Step, Waiting
from vaka.luau.vm import Vms


class Held:
    """A host function that never comes back, and knows how often it was left."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.left = 0

    async def hold(self) -> None:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.left += 1


async def test_a_call_that_the_script_gives_up_is_cancelled() -> None:
    held = Held()
    source = """
        local waiting = coroutine.create(function() ask("hold") end)
        coroutine.resume(waiting)
        ask("double", 1)
        coroutine.close(waiting)
        ask("double", 2)
        return "done"
    """
    assert await run(source, {"hold": HostFunction(held.hold), **DOUBLE}) == ["done"]
    assert held.left == 1


async def test_calls_that_nobody_waits_for_at_the_end_are_cancelled() -> None:
    held = Held()
    source = "spawn(function() ask('hold') end) ask('double', 1) return 1"
    assert await run(source, {"hold": HostFunction(held.hold), **DOUBLE}) == [1]
    assert held.left == 1


async def test_cancelling_cancels_every_call_and_closes_the_script() -> None:
    held = Held()
    vms = Vms()
    program = Program("spawn(function() ask('hold') end) ask('hold')", preludes=(ASK,))
    script = vms.open(program)
    driving = asyncio.create_task(drive(script, {"hold": HostFunction(held.hold)}, Unrecorded()))
    await held.entered.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert held.left == 2
    assert vms.pool.states == 1
    await vms.close()
    assert vms.pool.states == 0


async def test_a_script_that_takes_longer_than_its_deadline_is_ended() -> None:
    held = Held()
    with pytest.raises(ScriptLimit, match=r"the script was not done within 0.01 s"):
        await run("ask('hold')", {"hold": HostFunction(held.hold)}, deadline=0.01)
    assert held.left == 1


async def test_a_timeout_of_a_function_is_not_the_deadline() -> None:
    async def slow() -> None:
        raise TimeoutError("mine")

    assert await run("return pcall(ask, 'slow')", {"slow": HostFunction(slow)}) == [False, "slow: TimeoutError: mine"]


async def test_a_function_that_cancels_itself_is_an_error_of_that_function() -> None:
    async def leave() -> None:
        raise asyncio.CancelledError

    assert await run("return pcall(ask, 'leave')", {"leave": HostFunction(leave)}) == [False, "leave was cancelled"]


@pytest.mark.parametrize("error", [Closed("the session was closed"), ReplayError("not the same")])
async def test_what_ends_the_session_ends_the_script(error: Exception) -> None:
    async def lose() -> None:
        raise error

    for local in (False, True):
        with pytest.raises(type(error), match=str(error)):
            await run("pcall(ask, 'lose')", {"lose": HostFunction(lose, local=local)})


def nothing() -> Generator[tuple[str, Any], Any, Any]:
    yield "never", "played"


async def test_a_script_that_waits_for_nothing_is_an_error() -> None:
    class Idle(Played):
        async def start(self, arguments: Sequence[Any], *, seed: int, at: int) -> Step:
            return Waiting([])

    with pytest.raises(ScriptError, match="waits for nothing"):
        await drive(Idle(nothing), {}, Unrecorded())


async def test_a_call_may_be_dropped_in_the_step_in_which_another_is_made() -> None:
    class Drops(Played):
        async def start(self, arguments: Sequence[Any], *, seed: int, at: int) -> Step:
            return Waiting([Call(1, "say", ["a"]), Call(2, "say", ["b"]), Call(3, "double", [1])])

        async def answer(self, call: int, values: Sequence[Any], *, at: int) -> Step:
            return Waiting([], [2]) if call == 1 else Done([call])

    async def say(word: str) -> None:
        assert word == "a"

    functions = {"say": HostFunction(say, local=True), **DOUBLE}
    assert await drive(Drops(nothing), functions, Unrecorded()) == [3]
