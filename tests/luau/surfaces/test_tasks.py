"""``ctx.spawn``, ``join`` and ``parallel``: concurrent functions."""

import asyncio

import pytest

from tests.luau.surfaces.surface_fixtures import make_services, run_for_error, run_for_result, run_script
from vaka.core.types.errors import ScriptError
from vaka.testing.clock import FakeClock


async def test_tasks_run_concurrently_and_are_joined() -> None:
    clock = FakeClock()
    source = """
        local order = {}
        local function work(name, seconds)
            ctx.sleep(seconds)
            table.insert(order, name)
            return name, seconds
        end
        local a, b = ctx.spawn(work, "a", 2), ctx.spawn(work, "b", 1)
        local before = a:done()
        local name, seconds = ctx.join(a)
        return before, name, seconds, b:join(), order
    """
    running = asyncio.create_task(run_script(source, services=make_services(sleep=clock.sleep)))
    await clock.wait_for_sleeps(2)
    clock.advance(1)
    clock.advance(1)
    assert await running == [False, "a", 2, "b", ["b", "a"]]


async def test_join_raises_the_error_of_the_task() -> None:
    assert await run_for_error("ctx.join(ctx.spawn(function() error('broken', 0) end))") == "broken"
    source = "local t = ctx.spawn(function() error({code = 7}) end) local _, e = pcall(ctx.join, t) return e.code"
    assert await run_for_result(source) == 7


async def test_the_failure_of_a_task_that_is_not_joined_is_logged() -> None:
    lines: list[tuple[str, str]] = []
    source = "ctx.spawn(function() error('lost', 0) end) pcall(ctx.join, ctx.spawn(function() error('seen', 0) end))"
    await run_script(source, services=make_services(log=lambda level, line: lines.append((level, line))))
    assert [(level, line.partition(" and ")[0], line[-4:]) for level, line in lines] == [
        ("warning", "a task failed", "lost")
    ]


async def test_parallel_returns_results_in_the_order_of_the_functions() -> None:
    source = """
        local function after(seconds, value) return function() ctx.sleep(seconds) return value, "dropped" end end
        local a, b, c = ctx.parallel(after(0.003, 1), after(0, nil), after(0.001, 3))
        local list = ctx.parallel({after(0, "x"), after(0, "y")})
        local named = ctx.parallel({left = after(0, "l"), right = after(0, "r")})
        return a, b, c, list, named, ctx.parallel()
    """
    assert await run_script(source) == [1, None, 3, ["x", "y"], {"left": "l", "right": "r"}]


async def test_parallel_costs_the_same_for_each_function_however_many_there_are() -> None:
    """The memory limit would stop a script whose functions remember each other."""
    source = """
        local functions = {}
        for i = 1, 8000 do functions[i] = function() ctx.sleep(0) return i end end
        local results, sum = ctx.parallel(functions), 0
        for _, result in results do sum += result end
        return #results, sum
    """
    assert await run_script(source) == [8000, 8000 * 8001 // 2]


async def test_parallel_drops_thousands_of_calls_when_one_fails() -> None:
    source = """
        local functions = {}
        for i = 1, 8000 do functions[i] = function() ctx.sleep(if i == 4000 then 0 else 1000) error("first", 0) end end
        return pcall(ctx.parallel, functions)
    """
    assert await run_script(source) == [False, "first"]


async def test_parallel_cancels_the_others_when_one_fails() -> None:
    clock = FakeClock()
    source = """
        local done, inner = false, false
        local ok, why = pcall(ctx.parallel,
            function() ctx.spawn(function() ctx.sleep(50) inner = true end) ctx.sleep(100) done = true end,
            function() ctx.sleep(1) error("first", 0) end)
        ctx.sleep(200)
        return ok, why, done, inner
    """
    running = asyncio.create_task(run_script(source, services=make_services(sleep=clock.sleep)))
    await clock.wait_for_sleeps(3)
    clock.advance(1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert clock.sleep_count == 1
    clock.advance(200)
    assert await running == [False, "first", False, False]


async def test_running_tasks_end_with_the_script() -> None:
    clock = FakeClock()
    assert (
        await run_for_result(
            "ctx.spawn(function() ctx.sleep(1000) end) return 'over'",
            services=make_services(sleep=clock.sleep),
        )
        == "over"
    )
    assert clock.sleep_count == 0


async def test_a_task_can_be_cancelled() -> None:
    source = """
        local task = ctx.spawn(function() ctx.sleep(1000) end)
        return task:cancel(), task:cancel(), task:done(), pcall(ctx.join, task)
    """
    assert await run_script(source) == [True, False, True, False, "the task was cancelled"]
    source = (
        "local task task = ctx.spawn(function() ctx.sleep(0) return pcall(task.cancel, task) end) return ctx.join(task)"
    )
    assert await run_script(source) == [False, "a task cannot cancel itself"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("ctx.spawn(1)", "spawn: what to run must be a function, not a number"),
        ("ctx.join(1)", "join: expected a task, got a number"),
        ("ctx.join({})", "join: expected a task, got a table"),
        ("ctx.parallel(1)", "parallel: 1 must be a function, not a number"),
        ("ctx.parallel(print, 2)", "parallel: 2 must be a function, not a number"),
        ("ctx.parallel({[true] = print})", "parallel: true is not a place in a list or a name"),
        ("ctx.sleep()", "sleep: seconds must be a number, not nil"),
        ("ctx.sleep(0/0)", "sleep: seconds must be a number, not nan"),
    ],
)
async def test_task_functions_raise_for_invalid_arguments(body: str, why: str) -> None:
    assert why in await run_for_error(body)


async def test_host_calls_work_inside_coroutines_of_the_script() -> None:
    source = """
        local seen = {}
        local thread = coroutine.create(function()
            table.insert(seen, ctx.uuid())
            coroutine.yield("mine")
            ctx.sleep(0)
            return "end"
        end)
        local ok, first = coroutine.resume(thread)
        while coroutine.status(thread) ~= "dead" do
            ctx.sleep(0)
            local good, value = coroutine.resume(thread)
            if good and value then table.insert(seen, value) end
        end
        return ok, first, seen
    """
    ok, first, seen = await run_script(source, services=make_services())
    assert (ok, first) == (True, None)
    assert (len(seen[0]), seen[1:]) == (36, ["mine", "end"])


async def test_a_call_where_a_script_cannot_wait_names_its_line() -> None:
    with pytest.raises(ScriptError, match=r"^script:2: cannot wait for the host here \(inside a metamethod"):
        await run_script("local text = 'abc'\nreturn (string.gsub(text, '.', function() return ctx.uuid() end))")
