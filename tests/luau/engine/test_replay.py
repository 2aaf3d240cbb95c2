"""Replaying recorded answers restores a script, whatever it does and wherever it was interrupted."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.luau.engine.script_fixtures import ASK_PRELUDE, GeneratorScript, MemoryJournal
from vaka.core.types.errors import ScriptError
from vaka.luau.program import Program
from vaka.luau.protocol import HostFunction
from vaka.luau.scheduler import drive
from vaka.luau.vm import VmRunner

# Several concurrent tasks, each a list of calls; returns the events in their order.
SCRIPT = """
    local plan = ...
    local happened, left, main = {}, #plan, coroutine.running()
    local waiting = false
    for number, calls in plan do
        spawn(function()
            for _, call in calls do
                local ok, value = pcall(ask, call.name, number, call.delay)
                table.insert(happened, {number, ok, value, math.random(1, 100), os.time()})
                if call.own then
                    local inner = coroutine.wrap(function() coroutine.yield(ask("work", number, 0)) end)
                    table.insert(happened, {number, inner()})
                end
            end
            left -= 1
            if left == 0 and waiting then wake(main) end
        end)
    end
    if left > 0 then waiting = true park() end
    return happened
"""
PROGRAM = Program(SCRIPT, "plan.luau", preludes=(ASK_PRELUDE,))

calls = st.fixed_dictionaries(
    {"name": st.sampled_from(["work", "fail", "near"]), "delay": st.integers(0, 4), "own": st.booleans()}
)
plans = st.lists(st.lists(calls, max_size=3), max_size=4)
relaxed = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Host:
    """Host functions that count their calls."""

    def __init__(self, slower: int = 0) -> None:
        self.slower = slower
        self.call_count = 0

    async def work(self, number: int, delay: int) -> Any:
        self.call_count += 1
        for _ in range(delay * (1 + self.slower)):
            await asyncio.sleep(0)
        return {"number": number, "delay": delay}

    async def fail(self, number: int, delay: int) -> Any:
        await self.work(number, delay)
        raise ScriptError(f"no {number}")

    async def near(self, number: int, delay: int) -> Any:
        return [number, delay]

    def functions(self) -> dict[str, HostFunction]:
        return {
            "work": HostFunction(self.work),
            "fail": HostFunction(self.fail, durable=True),
            "near": HostFunction(self.near, local=True),
        }


@relaxed
@given(plans, st.integers(0, 3))
async def test_a_script_in_a_vm_is_restored_by_replay(plan: list[Any], slower: int) -> None:
    vms = VmRunner()
    book = MemoryJournal()
    first = await drive(vms.open(PROGRAM), Host().functions(), book, [plan])
    for count in range(len(book.answers) + 1):
        host, again = Host(slower), book.first_answers(count)
        result = await drive(vms.open(PROGRAM), host.functions(), again, [plan])
        assert again.answers[:count] == book.answers[:count]
        assert host.call_count == len(again.answers) - count, "an answered call must not be call_count again"
        silent, whole = Host(), again.first_answers(len(again.answers))
        assert await drive(vms.open(PROGRAM), silent.functions(), whole, [plan]) == result
        assert silent.call_count == 0
    assert await drive(vms.open(PROGRAM), Host().functions(), book.first_answers(len(book.answers)), [plan]) == first
    await vms.close()


@relaxed
@given(st.lists(calls, max_size=6), st.integers(0, 3))
async def test_a_generator_is_restored_by_replay(plan: list[Any], slower: int) -> None:
    def body() -> Any:
        happened: list[Any] = []
        for number, call in enumerate(plan):
            try:
                happened.append((yield call["name"], [number, call["delay"]]))
            except ScriptError as error:
                happened.append(str(error))
        return happened

    host = Host()

    def functions(host: Host) -> dict[str, HostFunction]:
        async def work(pair: list[int]) -> Any:
            return await host.work(*pair)

        async def fail(pair: list[int]) -> Any:
            return await host.fail(*pair)

        async def near(pair: list[int]) -> Any:
            return await host.near(*pair)

        return {"work": HostFunction(work), "fail": HostFunction(fail), "near": HostFunction(near, local=True)}

    book = MemoryJournal()
    first = await drive(GeneratorScript(body), functions(host), book)
    for count in range(len(book.answers) + 1):
        again, other = book.first_answers(count), Host(slower)
        assert await drive(GeneratorScript(body), functions(other), again) == first
        assert again.answers == book.answers
        assert other.call_count == len(book.answers) - count
