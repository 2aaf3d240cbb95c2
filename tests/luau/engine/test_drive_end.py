"""When the driving of a script ends, all its calls are cancelled and the script is closed."""

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from tests.luau.engine.script_fixtures import ASK_PRELUDE, DOUBLE_FUNCTIONS, GeneratorScript, run_source
from vaka.core.types.errors import Closed, ReplayError, ScriptError
from vaka.luau.program import Program
from vaka.luau.protocol import Finished, HostCall, HostFunction, Step, Waiting
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.vm import VmRunner


class NeverReturns:
    """A host function that never returns, and counts its cancellations."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.cancel_count = 0

    async def hold(self) -> None:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.cancel_count += 1


async def test_a_call_that_the_script_drops_is_cancelled() -> None:
    blocked = NeverReturns()
    source = """
        local waiting = coroutine.create(function() ask("hold") end)
        coroutine.resume(waiting)
        ask("double", 1)
        coroutine.close(waiting)
        ask("double", 2)
        return "done"
    """
    assert await run_source(source, {"hold": HostFunction(blocked.hold), **DOUBLE_FUNCTIONS}) == ["done"]
    assert blocked.cancel_count == 1


async def test_calls_still_running_at_the_end_of_a_script_are_cancelled() -> None:
    blocked = NeverReturns()
    source = "spawn(function() ask('hold') end) ask('double', 1) return 1"
    assert await run_source(source, {"hold": HostFunction(blocked.hold), **DOUBLE_FUNCTIONS}) == [1]
    assert blocked.cancel_count == 1


async def test_cancelling_cancels_every_call_and_closes_the_script() -> None:
    blocked = NeverReturns()
    vms = VmRunner()
    program = Program("spawn(function() ask('hold') end) ask('hold')", preludes=(ASK_PRELUDE,))
    script = vms.open(program)
    driving = asyncio.create_task(drive(script, {"hold": HostFunction(blocked.hold)}, NullJournal()))
    await blocked.entered.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert blocked.cancel_count == 2
    assert vms.pool.vm_count == 1
    await vms.close()
    assert vms.pool.vm_count == 0


async def test_a_timeout_error_of_a_function_can_be_caught() -> None:
    async def slow() -> None:
        raise TimeoutError("mine")

    assert await run_source("return pcall(ask, 'slow')", {"slow": HostFunction(slow)}) == [
        False,
        "slow: TimeoutError: mine",
    ]


async def test_a_function_that_cancels_itself_is_an_error_of_that_function() -> None:
    async def leave() -> None:
        raise asyncio.CancelledError

    assert await run_source("return pcall(ask, 'leave')", {"leave": HostFunction(leave)}) == [
        False,
        "leave was cancelled",
    ]


@pytest.mark.parametrize("error", [Closed("the session was closed"), ReplayError("not the same")])
async def test_an_error_that_ends_the_session_cannot_be_caught(error: Exception) -> None:
    async def lose() -> None:
        raise error

    for local in (False, True):
        with pytest.raises(type(error), match=str(error)):
            await run_source("pcall(ask, 'lose')", {"lose": HostFunction(lose, local=local)})


def never_started() -> Generator[tuple[str, Any], Any, Any]:
    yield "never", "played"


async def test_a_script_that_waits_without_a_call_is_an_error() -> None:
    class Idle(GeneratorScript):
        async def start(self, arguments: Sequence[Any], *, seed: int, at: int) -> Step:
            return Waiting([])

    with pytest.raises(ScriptError, match="no host call is running"):
        await drive(Idle(never_started), {}, NullJournal())


async def test_a_call_may_be_dropped_in_the_step_in_which_another_is_made() -> None:
    class Drops(GeneratorScript):
        async def start(self, arguments: Sequence[Any], *, seed: int, at: int) -> Step:
            return Waiting([HostCall(1, "say", ["a"]), HostCall(2, "say", ["b"]), HostCall(3, "double", [1])])

        async def answer(self, call: int, values: Sequence[Any], *, at: int) -> Step:
            return Waiting([], [2]) if call == 1 else Finished([call])

    async def say(word: str) -> None:
        assert word == "a"

    functions = {"say": HostFunction(say, local=True), **DOUBLE_FUNCTIONS}
    assert await drive(Drops(never_started), functions, NullJournal()) == [3]
