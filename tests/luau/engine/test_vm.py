"""Scripts in pooled VMs of this process."""

import asyncio
import threading
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.luau.engine.script_fixtures import ASK_PRELUDE
from vaka.core.types.errors import Closed, InvalidInput, ScriptError, ScriptLimit
from vaka.luau.pool import VmPool
from vaka.luau.program import Program, ScriptLimits
from vaka.luau.protocol import Finished, HostFunction, Waiting
from vaka.luau.scheduler import NullJournal, drive
from vaka.luau.services import ScriptEngine
from vaka.luau.threads import StepThreads
from vaka.luau.vm import VmRunner

WORK = "local n = 0 for i = 1, 3e6 do n += i % 7 end return n"


async def test_a_script_runs_in_steps() -> None:
    vms = VmRunner()
    script = vms.open(Program("local a = ... local b, c = ask('x', a) return a, b, c", preludes=(ASK_PRELUDE,)))
    step = await script.start([1], seed=1, at=5)
    assert isinstance(step, Waiting)
    assert [tuple(call) for call in step.calls] == [(1, "x", [1])]
    assert await script.answer(1, [2, 3], at=6) == Finished([1, 2, 3])
    await script.close()
    await script.close()
    await vms.close()


async def test_a_script_starts_once_and_does_nothing_after_its_end() -> None:
    vms = VmRunner()
    script = vms.open(Program("return 1", "one.luau"))
    with pytest.raises(InvalidInput, match=r"'one\.luau' is not running"):
        await script.answer(1, [], at=0)
    await script.start([], seed=1, at=0)
    with pytest.raises(InvalidInput, match=r"'one\.luau' was started already"):
        await script.start([], seed=1, at=0)
    with pytest.raises(InvalidInput, match=r"'one\.luau' is not running"):
        await script.fail(1, "x", at=0)


async def test_printed_lines_are_passed_to_print_line() -> None:
    vms = VmRunner()
    lines: list[str] = []
    program = Program("print('a', 1, nil, true) ask('x') print('\\xff') error('end')", preludes=(ASK_PRELUDE,))
    script = vms.open(program, lines.append)
    await script.start([], seed=1, at=0)
    assert lines == ["a\t1\tnil\ttrue"]
    with pytest.raises(ScriptError):
        await script.answer(1, [], at=0)
    assert lines[1:] == ["�"]
    await script.close()


async def test_the_output_of_a_script_that_prints_endlessly_is_truncated() -> None:
    vms = VmRunner()
    lines: list[str] = []
    program = Program("while true do print('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx') end", limits=ScriptLimits(seconds=0.2))
    with pytest.raises(ScriptLimit):
        await drive(vms.open(program, lines.append), {}, NullJournal())
    assert sum(map(len, lines)) < 300_000
    assert lines[-1].endswith("(more was printed than can be shown)")


async def test_up_to_max_idle_vms_are_reused() -> None:
    pool = VmPool(max_idle=2)
    program = Program("ask('x')", preludes=(ASK_PRELUDE,))
    scripts = [VmRunner(pool).open(program) for _ in range(5)]
    for script in scripts:
        await script.start([], seed=1, at=0)
    assert pool.vm_count == 5
    for script in scripts:
        await script.close()
    assert pool.vm_count == 2
    again = VmRunner(pool).open(program)
    await again.start([], seed=1, at=0)
    assert pool.vm_count == 2
    pool.close()
    assert pool.vm_count == 1
    await again.close()
    assert pool.vm_count == 0
    with pytest.raises(Closed, match="the pool of VMs is closed"):
        await VmRunner(pool).open(program).start([], seed=1, at=0)


async def test_a_vm_that_ran_out_of_memory_is_not_reused() -> None:
    pool = VmPool()
    program = Program("local t = {} while true do table.insert(t, {}) end", limits=ScriptLimits(memory=4 << 20))
    with pytest.raises(ScriptLimit, match="out of memory"):
        await drive(VmRunner(pool).open(program), {}, NullJournal())
    assert pool.vm_count == 0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("local x = 1\nerror({ code = 7 })", 'my tool.luau:2: {"code":7}'),
        ("local x = 1\nlocal function f() while true do x += 1 end end\nf()", "my tool.luau:2: out of instructions"),
        ("local x = 1\nfurnished()", "my tool.luau:2: out of instructions"),
    ],
)
async def test_an_error_names_the_line_of_a_script_whose_name_has_a_space(source: str, message: str) -> None:
    prelude = "local env = ... env.furnished = function() while true do end end"
    program = Program(source, "my tool.luau", preludes=(prelude,), limits=ScriptLimits(instructions=1000))
    with pytest.raises(ScriptError) as caught:
        await drive(VmRunner(VmPool()).open(program), {}, NullJournal())
    assert str(caught.value).startswith(message)


async def test_scripts_with_different_limits_do_not_share_a_vm() -> None:
    pool = VmPool(max_vms=1)
    small = Program("ask('x')", preludes=(ASK_PRELUDE,), limits=ScriptLimits(memory=4 << 20))
    scripts = [VmRunner(pool).open(small), VmRunner(pool).open(replace(small, limits=ScriptLimits(memory=8 << 20)))]
    for script in scripts:
        await script.start([], seed=1, at=0)
    assert pool.vm_count == 2
    for script in scripts:
        await script.close()


async def test_the_same_seed_gives_the_same_numbers() -> None:
    vms = VmRunner()
    program = Program("return math.random(), os.time(), os.clock(), tostring({}), tostring(print)")
    first = await vms.open(program).start([], seed=7, at=61_500)
    assert first == await vms.open(program).start([], seed=7, at=61_500)
    assert first != await vms.open(program).start([], seed=8, at=61_500)
    assert isinstance(first, Finished)
    assert first.values[1] == 61


async def test_a_script_does_not_block_the_event_loop_in_its_first_step() -> None:
    vms = VmRunner()
    endless = Program("while true do end", "endless.luau", limits=ScriptLimits(seconds=None))
    working = asyncio.create_task(drive(vms.open(endless), {}, NullJournal()))
    for number in range(5):
        assert await drive(vms.open(Program(f"return {number}")), {}, NullJournal()) == [number]
        await asyncio.sleep(0)
    assert not working.done()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_a_script_does_not_block_the_event_loop_in_a_later_step() -> None:
    vms = VmRunner()
    program = Program("for i = 1, 200 do ask('x') end while true do end", "work.luau", preludes=(ASK_PRELUDE,))
    asked, last_asked = count(1), asyncio.Event()

    async def x() -> None:
        if next(asked) == 200:
            last_asked.set()

    working = asyncio.create_task(drive(vms.open(program), {"x": HostFunction(x)}, NullJournal()))
    await last_asked.wait()
    await asyncio.sleep(0)
    assert not working.done()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_a_script_that_moves_to_a_thread_prints_and_calls_everything_once() -> None:
    vms = VmRunner()
    lines: list[str] = []
    asked: list[int] = []
    source = f"""
        local seen = {{}}
        for i = 1, 5 do print("before", i) table.insert(seen, ask("x", i)) end
        print("working")
        local n = (function() {WORK} end)()
        for i = 6, 9 do print("after", i) table.insert(seen, ask("x", i)) end
        return table.concat(seen, " "), n > 0, math.random()
    """
    program = Program(source, preludes=(ASK_PRELUDE,))

    async def x(number: int) -> int:
        asked.append(number)
        return number * 10

    functions = {"x": HostFunction(x)}
    text, worked, random = await drive(vms.open(program, lines.append), functions, NullJournal())
    assert (text, worked, 0 <= random < 1) == (" ".join(str(n * 10) for n in range(1, 10)), True, True)
    assert asked == list(range(1, 10))
    before, after = [f"before\t{n}" for n in range(1, 6)], [f"after\t{n}" for n in range(6, 10)]
    assert lines == [*before, "working", *after]
    assert vms.pool.vm_count == 1


async def test_a_script_can_be_cancelled_in_its_first_step() -> None:
    vms = VmRunner()
    program = Program("if ... then while true do end end return 1", "work.luau")
    driving = asyncio.create_task(drive(vms.open(program), {}, NullJournal(), [True]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert await drive(vms.open(program), {}, NullJournal(), [False]) == [1]


async def test_more_functions_than_threads_run_one_after_the_other() -> None:
    threads, release = StepThreads(1), threading.Event()
    waiting = asyncio.create_task(threads.run(release.wait, release.set))
    await asyncio.sleep(0)
    queued = [asyncio.create_task(threads.run(partial(int, number), bool)) for number in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in queued)
    release.set()
    assert [await waiting, *await asyncio.gather(*queued)] == [True, 0, 1, 2]
    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(partial(int, "x"), bool)
    threads.close()
    threads.close()


async def test_scripts_that_share_a_vm_take_turns_when_one_of_them_is_slow() -> None:
    vms = VmRunner(VmPool(max_vms=1))
    long = Program(f"ask('x') {WORK}", "long.luau", preludes=(ASK_PRELUDE,))
    short = Program("return ask('x')", "short.luau", preludes=(ASK_PRELUDE,))

    async def x() -> int:
        return 1

    functions = {"x": HostFunction(x)}
    runs = [drive(vms.open(program), functions, NullJournal()) for program in [long, short, long, short, short]]
    results: list[Any] = await asyncio.gather(*runs)
    assert [result[0] for result in results if result[0] == 1] == [1, 1, 1]
    assert vms.pool.vm_count == 1


async def test_untrusted_scripts_run_in_workers() -> None:
    opened: list[str] = []

    class RecordingRunner(VmRunner):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def open(self, program: Program, print_line: Any = None) -> Any:
            opened.append(self.name)
            return super().open(program, print_line)

    engine = ScriptEngine(trusted=RecordingRunner("here"), untrusted=RecordingRunner("worker"))
    for trusted in (True, False):
        script = engine.open(Program("return 1", trusted=trusted))
        assert await script.start([], seed=1, at=0) == Finished([1])
    assert opened == ["here", "worker"]
    await engine.close()


async def test_runs_of_one_script_in_one_vm_share_no_globals_and_no_functions() -> None:
    vms = VmRunner(VmPool(max_vms=1))
    source = """
        count = (count or 0) + 1
        seen = seen or {}
        local function mark() seen.marked = true return seen end
        helper = function() return count, seen.marked, _G.late end
        local before = { helper() }
        mark()
        late = math.max(1, 2)
        return before, count
    """
    program = Program(source, main="local script = ... return script()")
    for _ in range(3):
        assert await drive(vms.open(program), {}, NullJournal()) == [[1], 1]
    plain = replace(program, main="")
    for _ in range(2):
        assert await drive(vms.open(plain), {}, NullJournal()) == [[1], 1]
    await vms.close()


async def test_scripts_with_equal_sources_keep_their_names() -> None:
    vms = VmRunner(VmPool(max_vms=1))
    for name in ("first.luau", "second.luau", "first.luau"):
        with pytest.raises(ScriptError, match=f"^{name}:1: no$"):
            await drive(vms.open(Program("error('no')", name)), {}, NullJournal())
    await vms.close()


async def test_a_vm_keeps_few_scripts_loaded() -> None:
    pool = VmPool(max_vms=1)
    vms = VmRunner(pool)
    limits = ScriptLimits()
    sizes: list[int] = []
    for number in range(400):
        source = f"local t = {{{', '.join(f'k{number}_{key} = {key}' for key in range(200))}}} return t.k{number}_7"
        assert await drive(vms.open(Program(source, limits=limits)), {}, NullJournal()) == [7]
        vm = pool.acquire(limits)
        vm.state.collect()
        sizes.append(vm.state.memory_used)
        pool.release(vm)
    assert pool.vm_count == 1
    assert max(sizes[100:]) < 2 * max(sizes[:50])
    await vms.close()


async def test_require_is_there_for_scripts_that_name_it() -> None:
    vms = VmRunner()
    assert await drive(vms.open(Program("return type(require)")), {}, NullJournal()) == ["function"]
    assert await drive(vms.open(Program("local name = 're' .. 'quire' return _G[name]")), {}, NullJournal()) == [None]
    await vms.close()
