import threading
from typing import Any

import pytest

import pyluau


def test_luau_calls_python(state: pyluau.State) -> None:
    state.register("add", lambda a, b: a + b)
    assert state.eval("add(1, 2)") == 3


def test_a_tuple_is_several_results(state: pyluau.State) -> None:
    state.register("both", lambda: (1, "two"))
    assert state.eval("return select('#', both()), both()") == (2, 1, "two")


def test_none_is_one_nil(state: pyluau.State) -> None:
    state.register("nothing", lambda: None)
    assert state.eval("select('#', nothing())") == 1


def test_registering_again_replaces_a_function(state: pyluau.State) -> None:
    state.register("f", lambda: 1)
    state.register("f", lambda: 2)
    assert state.eval("f()") == 2


def test_unregister_removes_a_function(state: pyluau.State) -> None:
    state.register("f", lambda: 1)
    state.unregister("f")
    assert state.eval("f") is None


def test_only_functions_are_registered(state: pyluau.State) -> None:
    with pytest.raises(TypeError, match="needs a function"):
        state.register("f", 1)  # type: ignore[arg-type]  # that is the test


def test_a_luau_function_can_be_registered(state: pyluau.State) -> None:
    state.register("twice", state.eval("function(f, x) return f(f(x)) end"))
    assert state.eval("twice(function(n) return n * 3 end, 2)") == 18


def test_tables_reach_python_by_value(state: pyluau.State) -> None:
    seen: list[Any] = []
    state.register("see", seen.append)
    state.execute("see({1, {a = true}})")
    assert seen == [[1, {"a": True}]]


def test_tables_can_reach_python_as_handles(state: pyluau.State) -> None:
    def fill(table: pyluau.Table) -> None:
        table["filled"] = True

    state.register("fill", fill, convert=False)
    assert state.eval("local t = {} fill(t) return t") == {"filled": True}


def test_calls_nest_both_ways(state: pyluau.State) -> None:
    state.register("down", lambda f, n: f(n - 1))
    env = state.environment()
    state.execute("function step(n) return if n == 0 then 'bottom' else down(step, n) end", env=env)
    assert env["step"](20) == "bottom"


def test_nesting_too_deep_is_an_error_not_a_crash(state: pyluau.State) -> None:
    state.register("again", lambda f: f())
    with pytest.raises((pyluau.LuauError, RecursionError)):
        state.eval("local function f() return again(f) end return f()")
    assert state.eval("1") == 1


def test_a_function_keeps_its_upvalues(state: pyluau.State) -> None:
    count = state.eval("local n = 0 return function() n += 1 return n end")
    assert [count(), count(), count()] == [1, 2, 3]


def test_handles_of_one_function_are_equal(state: pyluau.State) -> None:
    function, again = state.eval("local f = function() end return f, f")
    assert function == again
    assert function != state.eval("function() end")


def test_a_hundred_thousand_calls_do_not_leak_memory(state: pyluau.State) -> None:
    state.register("id", lambda x: x)
    run = state.eval("function(n) local s = 0 for i = 1, n do s += id(i) end return s end")
    run(10)
    state.collect()
    before = state.memory_used
    assert run(100_000) == 5_000_050_000
    state.collect()
    assert state.memory_used < before + 10_000


def test_handles_made_in_a_loop_are_freed(state: pyluau.State) -> None:
    state.register("ignore", lambda _: None)
    run = state.eval("function(n) for i = 1, n do ignore(function() return i end) end end")
    run(1)
    before = state.memory_used
    run(100_000)
    state.collect()
    assert state.memory_used < before + 1_000_000


def test_results_can_be_returned_as_handles(state: pyluau.State) -> None:
    make = state.eval("function() return {1} end")
    assert make() == [1]
    assert isinstance(make.call(convert=False), pyluau.Table)
    assert isinstance(state.call(make, convert=False), pyluau.Table)


def test_two_hundred_calls_nest_across_the_border(state: pyluau.State) -> None:
    protected = "local n = ... local ok, depth = pcall(descend, n) return if ok then depth else error(depth, 0)"
    for source in ("descend(...)", protected):
        descend = lambda n, source=source: n if n == 200 else state.eval(source, n + 1)  # noqa: E731
        state.register("descend", descend)
        assert state.eval("descend(0)") == 200


def test_nesting_on_a_small_stack_is_an_error_not_a_crash() -> None:
    found: list[type[BaseException]] = []

    def nest() -> None:
        with pyluau.State() as state:
            state.register("descend", lambda: state.eval("descend()"))
            try:
                state.eval("descend()")
            except pyluau.StackOverflow as error:
                found.append(type(error))

    size = threading.stack_size(512 << 10)
    try:
        thread = threading.Thread(target=nest)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
    assert found == [pyluau.StackOverflow]


def test_one_function_runs_with_several_environments(state: pyluau.State) -> None:
    function = state.eval("function() n = (n or 0) + 1 return n, math.max(1, 2) end")
    first, second = state.environment({"n": 10}), state.environment()
    assert function.with_env(first)() == (11, 2)
    assert function.with_env(first)() == (12, 2)
    assert function.with_env(second)() == (1, 2)
    assert function.with_env({"n": 5})() == (6, 2)
    with pytest.raises(RuntimeError, match="no globals"):
        state.eval("print", convert=False).with_env(first)
