"""Scripts that are driven: their calls are answered, many at a time, and the answers handed over one by one."""

import asyncio
from typing import Any

import pytest

from vaka.core.types.errors import ScriptError
from vaka.luau.program import Program
from vaka.luau.scheduler import Unrecorded, drive
from vaka.luau.script import Functions, HostFunction, Several
from vaka.luau.vm import Vms

ASK = "local env, primitives = ...; env.ask = primitives.request; env.spawn = primitives.spawn"


async def run(source: str, functions: Functions, *arguments: Any) -> Any:
    vms = Vms()
    try:
        program = Program(source, "test.luau", preludes=(ASK,))
        return list(await drive(vms.open(program), functions, Unrecorded(), arguments))
    finally:
        await vms.close()


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


async def test_a_call_gets_its_answer() -> None:
    assert await run("local n = ...; return ask('double', n) + 1", {"double": HostFunction(double)}, 20) == [41]


async def test_calls_of_several_coroutines_run_at_the_same_time() -> None:
    arrived = asyncio.Barrier(3)

    async def meet(name: str) -> str:
        await arrived.wait()
        return name

    source = """
        local names = {}
        for _, name in {"a", "b", "c"} do
            spawn(function() table.insert(names, ask("meet", name)) end)
        end
        repeat ask("pause") until #names == 3
        table.sort(names)
        return names
    """

    async def pause() -> None:
        await asyncio.sleep(0)

    assert await run(source, {"meet": HostFunction(meet), "pause": HostFunction(pause)}) == [["a", "b", "c"]]


async def test_a_host_function_can_give_several_results() -> None:
    async def both() -> Several:
        return Several((1, "two"))

    assert await run("return ask('both')", {"both": HostFunction(both)}) == [1, "two"]


async def test_an_error_of_a_host_function_can_be_caught_by_the_script() -> None:
    async def refuse() -> None:
        raise ScriptError("not today")

    assert await run("return pcall(ask, 'refuse')", {"refuse": HostFunction(refuse)}) == [False, "not today"]


async def test_an_unknown_function_is_an_error_that_names_the_near_one() -> None:
    with pytest.raises(ScriptError, match=r"test.luau:1: the host has no function 'doubel'; there is 'double'"):
        await run("ask('doubel', 1)", {"double": HostFunction(double)})
