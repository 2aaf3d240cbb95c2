"""A hostile script fails without affecting the process or the next script."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.luau.engine.hostile_scripts import HOSTILE_LIMITS, HOSTILE_SCRIPTS, HostileScript
from tests.luau.engine.script_fixtures import ASK_PRELUDE
from vaka.core.types.errors import ScriptError
from vaka.luau.pool import VmPool
from vaka.luau.program import Program, ScriptLimits
from vaka.luau.protocol import HostFunction
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.services import ScriptRunner
from vaka.luau.vm import VmRunner
from vaka.luau.worker import WorkerPool


async def echo(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


FUNCTIONS = {"echo": HostFunction(echo)}


async def run_hostile(runner: ScriptRunner, source: str, limits: ScriptLimits = HOSTILE_LIMITS) -> Any:
    program = Program(source, "bad.luau", preludes=(ASK_PRELUDE,), limits=limits)
    return list(await drive(runner.open(program), FUNCTIONS, NullJournal()))


async def assert_fails_alone(runner: ScriptRunner, hostile: HostileScript) -> None:
    with pytest.raises(ScriptError, match=hostile.pattern) as caught:
        await run_hostile(runner, hostile.source, hostile.limits)
    assert type(caught.value) is hostile.error
    assert await run_hostile(runner, "return ask('echo', string.rep('x', 3)), table.concat({1, 2}), park ~= nil") == [
        "xxx",
        "12",
        True,
    ]


@pytest.fixture
async def vms() -> AsyncGenerator[VmRunner]:
    runner = VmRunner(VmPool(max_vms=1))
    yield runner
    await runner.close()


@pytest.mark.parametrize("hostile", HOSTILE_SCRIPTS.values(), ids=HOSTILE_SCRIPTS)
async def test_a_hostile_script_fails_without_affecting_the_next(vms: VmRunner, hostile: HostileScript) -> None:
    await assert_fails_alone(vms, hostile)


async def test_hostile_scripts_fail_in_one_worker_without_ending_it() -> None:
    workers = WorkerPool(1)
    try:
        for hostile in HOSTILE_SCRIPTS.values():
            await assert_fails_alone(workers, hostile)
        assert len(workers.pids) == 1
    finally:
        await workers.close()


async def test_hostile_scripts_do_not_affect_a_script_that_waits_in_the_same_vm(vms: VmRunner) -> None:
    started = asyncio.Event()
    release = asyncio.Event()

    async def hold() -> str:
        started.set()
        await release.wait()
        return "held"

    waits = Program(
        "local mine = {} mine.x = ask('hold') return mine.x",
        "good.luau",
        preludes=(ASK_PRELUDE,),
        limits=HOSTILE_LIMITS,
    )
    waiting = asyncio.create_task(drive(vms.open(waits), {"hold": HostFunction(hold)}, NullJournal()))
    await started.wait()
    for name in ("an endless loop", "a coroutine bomb", "a recursion without end", "a huge string"):
        with pytest.raises(ScriptError):
            await run_hostile(vms, HOSTILE_SCRIPTS[name].source, HOSTILE_SCRIPTS[name].limits)
    release.set()
    assert await waiting == ["held"]


async def test_a_script_can_wait_inside_pcall_and_inside_its_own_coroutines(vms: VmRunner) -> None:
    source = """
        local ok, value = pcall(function() return ask("echo", 1) + 1 end)
        local wrapped = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(ask("echo", i)) end end)
        local inner = coroutine.create(function() return ask("echo", 5) end)
        local first = {coroutine.resume(inner)}
        local status = coroutine.status(inner)
        ask("echo", 0)
        return ok, value, wrapped() + wrapped() + wrapped(), #first, status, select(2, coroutine.resume(inner))
    """
    assert await run_hostile(vms, source) == [True, 2, 6, 1, "suspended", 5]


async def test_nothing_of_a_script_is_visible_to_the_next_one(vms: VmRunner) -> None:
    leave = """
        leaked = 1
        _G.other = {}
        pcall(function() string.leak = 1 end)
        pcall(function() getmetatable("").leak = 1 end)
        pcall(rawset, string, "leak", 1)
        pcall(setmetatable, _G, {__index = function() return "caught" end})
        pcall(rawset, getmetatable("") or {}, "__add", function() return "added" end)
        math.randomseed(1)
        coroutine.resume(coroutine.create(function() while true do coroutine.yield() end end))
        return tostring({})
    """
    look = """
        local names = {}
        for name in _G do table.insert(names, name) end
        table.sort(names)
        local added = pcall(function() return "a" + "b" end)
        return leaked, other, string.leak, ("").leak, nothing, added, names, tostring({})
    """
    alone = await run_hostile(vms, look)
    await run_hostile(vms, leave)
    assert await run_hostile(vms, look) == alone
    assert alone[:5] == [None] * 5
    assert vms.pool.vm_count == 1


async def test_a_thousand_scripts_wait_at_once_and_finish() -> None:
    runner = VmRunner(VmPool(max_vms=8))
    arrived = 0
    all_arrived = asyncio.Event()

    async def gather(number: int) -> int:
        nonlocal arrived
        arrived += 1
        if arrived == 1000:
            all_arrived.set()
        await all_arrived.wait()
        return number

    source = "local n = ...; mine = n; local got = ask('gather', n); assert(mine == n); return got * 2"
    program = Program(source, "many.luau", preludes=(ASK_PRELUDE,))
    functions = {"gather": HostFunction(gather)}
    runs = (drive(runner.open(program), functions, NullJournal(), [number]) for number in range(1000))
    assert await asyncio.gather(*runs) == [[number * 2] for number in range(1000)]
    assert runner.pool.vm_count <= 8
    await runner.close()
    assert runner.pool.vm_count == 0
