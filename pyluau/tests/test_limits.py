import threading
import time

import pytest

import pyluau
from pyluau import Limits, State


def limited(**limits: object) -> State:
    return State(limits=Limits(**limits))  # type: ignore[arg-type]  # the tests below name real limits


LOOPS = [
    "while true do end",
    "repeat until false",
    "for i = 1, math.huge do end",
    "while true do pcall(function() while true do end end) end",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
    "local function f() while true do end end while true do coroutine.resume(coroutine.create(f)) end",
    "local function f() pcall(f) while true do pcall(f) end end f()",
    "while true do local ok = pcall(error) end",
    "for _ in function() return 1 end do end",
    "table.sort(table.create(100, 1), function() while true do end end)",
    "string.gsub(('x'):rep(100), 'x', function() while true do end end)",
    "local t = setmetatable({}, {__index = function() while true do end end}) return t.x",
    "coroutine.wrap(function() coroutine.wrap(function() while true do end end)() end)()",
]

SLOW = [
    "string.find(('a'):rep(200), ('a*'):rep(60) .. 'b')",
    "string.match(('a'):rep(50000), '.-.-.-.-b')",
    "string.gsub(('a'):rep(50000), '(a*)*(a*)b', '')",
    "while true do string.rep('x', 1000) end",
]


@pytest.mark.parametrize("source", LOOPS + SLOW)
def test_a_script_cannot_catch_out_of_time(source: str) -> None:
    with limited(seconds=0.05) as state:
        before = time.monotonic()
        with pytest.raises(pyluau.OutOfTime, match=r"more than 0\.05 seconds"):
            state.execute(source)
        assert time.monotonic() - before < 2
        assert state.eval("pcall(function() return 1 end)") == (True, 1)


@pytest.mark.parametrize("source", LOOPS)
def test_a_script_cannot_catch_out_of_instructions(source: str) -> None:
    with limited(instructions=10_000, seconds=10) as state:
        with pytest.raises(pyluau.OutOfInstructions, match="more than 10000"):
            state.execute(source)
        assert state.eval("pcall(function() return 1 end)") == (True, 1)


def test_the_instruction_count_is_deterministic() -> None:
    source = "local n = 0 for i = 1, 100 do n += #tostring(i) end return n"

    def needed() -> int:
        for budget in range(1, 1000):
            with limited(instructions=budget) as state:
                try:
                    state.eval(source)
                except pyluau.OutOfInstructions:
                    continue
                return budget
        return 0

    assert needed() == needed() > 100


def test_cpu_time_is_limited() -> None:
    with limited(cpu_seconds=0.05) as state, pytest.raises(pyluau.OutOfTime, match="processor time"):
        state.execute("while true do end")


def test_sleeping_does_not_count_as_cpu_time() -> None:
    with limited(cpu_seconds=0.05) as state:
        state.register("sleep", time.sleep)
        state.execute("sleep(0.2) for i = 1, 1000 do end")


def test_each_script_has_the_whole_time() -> None:
    with limited(seconds=0.2) as state:
        for _ in range(5):
            state.execute("local stop = os.clock() + 0.1 while os.clock() < stop do end")


MEMORY = [
    "local t = {} while true do t[#t + 1] = {} end",
    "local t = {} while true do pcall(function() while true do t[#t + 1] = {} end end) end",
    "local s = 'x' while true do s = s .. s end",
    "local s = 'x' while true do pcall(function() s = s .. s end) end",
    "return string.rep('x', 2^30)",
    "return pcall(string.rep, 'x', 2^30)",
    "return table.create(2^26)",
    "return pcall(table.create, 2^26, 0)",
    "return buffer.create(2^30)",
    "local s = ('x'):rep(2^20) local t = table.create(1000, s) return table.concat(t)",
    "local s = ('x'):rep(2^20) return string.format(('%s'):rep(100), table.unpack(table.create(100, s)))",
    "local s = ('x'):rep(2^20) return (s:gsub('x', ('y'):rep(1000)))",
    "local t = {} for i = 1, 1e9 do t[i] = i end",
    "local t = {} for i = 1, 1e9 do t['k' .. i] = true end",
    "local function f(...) return f(1, ...) end f()",
    "coroutine.wrap(function() local t = {} while true do t[#t + 1] = {} end end)()",
    "local t = {} while true do t = setmetatable({t}, {__index = t}) end",
    "local f = print while true do local g = f f = function() return g end end",
]


@pytest.mark.parametrize("source", MEMORY)
def test_a_script_cannot_catch_out_of_memory(source: str) -> None:
    with limited(memory=8 << 20, seconds=20, coroutines=None) as state:
        with pytest.raises((pyluau.OutOfMemory, pyluau.StackOverflow)):
            state.execute(source)
        assert state.memory_used < 4 << 20
        assert state.eval("#string.rep('x', 1000000)") == 1_000_000


def test_garbage_is_collected_before_memory_runs_out() -> None:
    with limited(memory=4 << 20) as state:
        assert state.eval("local s for i = 1, 2000 do s = ('x'):rep(100000) .. i end return #s") == 100_004


def test_arguments_count_as_memory() -> None:
    with limited(memory=4 << 20) as state:
        with pytest.raises(pyluau.OutOfMemory):
            state.eval("#...", "x" * (8 << 20))
        assert state.eval("#...", "xx") == 2


def test_a_limit_too_small_for_a_vm_is_refused() -> None:
    with pytest.raises(ValueError, match="too small for a VM"):
        limited(memory=1000)


@pytest.mark.parametrize(
    "source",
    [
        "local t = {} while true do t[#t + 1] = coroutine.create(print) end",
        "local t = {} while true do pcall(function() t[#t + 1] = coroutine.create(print) end) end",
        "local t = {} while true do t[#t + 1] = coroutine.wrap(print) end",
        "local function f() coroutine.wrap(f)() end local t = {} for i = 1, 1000 do t[i] = coroutine.create(f) end",
    ],
)
def test_a_script_cannot_catch_too_many_coroutines(source: str) -> None:
    with limited(coroutines=100, seconds=10) as state:
        with pytest.raises(pyluau.TooManyCoroutines, match="more than 100"):
            state.execute(source)
        assert state.eval("coroutine.wrap(function() return 1 end)()") == 1


def test_coroutines_that_ended_do_not_count() -> None:
    with limited(coroutines=10) as state:
        source = "local n = 0 for i = 1, 10000 do n += coroutine.wrap(function() return 1 end)() end return n"
        assert state.eval(source) == 10_000


def test_another_thread_can_cancel_a_script(state: State) -> None:
    started = threading.Event()
    state.register("started", started.set)

    def cancel() -> None:
        started.wait()
        assert state.cancel()

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(pyluau.Cancelled):
        state.execute("started() while true do pcall(function() while true do end end) end")
    thread.join()
    assert state.eval("1") == 1


def test_cancelling_an_idle_state_has_no_effect(state: State) -> None:
    assert not state.cancel()
    assert state.eval("1") == 1


def test_a_host_function_cannot_hide_a_limit() -> None:
    with limited(seconds=0.05) as state:

        def swallow(function: pyluau.Function) -> str:
            try:
                function()
            except pyluau.OutOfTime:
                return "swallowed"
            return ""

        state.register("swallow", swallow)
        with pytest.raises(pyluau.OutOfTime):
            state.execute("swallow(function() while true do end end) while true do end")


def test_a_killed_script_leaves_nothing_behind() -> None:
    with limited(instructions=100_000) as state:
        state.execute("1 == 1" and "local a = 1")
        state.collect()
        before = state.memory_used
        for _ in range(50):
            with pytest.raises(pyluau.OutOfInstructions):
                state.execute("keep = {} coroutine.wrap(function() while true do keep[#keep + 1] = {} end end)()")
        state.collect()
        assert state.memory_used < before + 20_000


@pytest.mark.parametrize(
    "source",
    [
        "table.move({1}, 1, 2147483647, 1, {[-2147483648] = 1})",
        "local d = {} d[-2147483648] = 1 return pcall(table.move, {1}, 1, 2147483647, 1, d)",
        "return pcall(table.move, {1}, -2147483648, 2147483647, 1)",
        "return pcall(table.move, {1, 2, 3}, 1, 3, 2147483647)",
        "return pcall(table.move, {}, 1, 2147483646, 2)",
        "return pcall(table.move, {1}, -2147483648, -1, -2147483648, {1})",
    ],
)
def test_an_overflow_in_table_move_does_not_crash(source: str) -> None:
    with limited(seconds=5) as state:
        try:
            state.eval(source)
        except pyluau.LuauError:
            pass
        assert state.eval("1") == 1


@pytest.mark.parametrize(
    "source",
    [
        "local s = ('a'):rep(2^22) return s:find(('a'):rep(2^21) .. 'b', 1, true)",
        "local s = ('a'):rep(2^22) return s:find(('a'):rep(2^21) .. 'b')",
        "local s = ('a'):rep(2^22) return #s:split(('a'):rep(2^21) .. 'b')",
        "return #string.rep('', 2^31 - 1)",
        "return table.find(table.create(2^20, 1), 2)",
    ],
)
def test_library_functions_obey_the_time_limit(source: str) -> None:
    with limited(seconds=1) as state:
        before = time.monotonic()
        state.eval(source)
        assert time.monotonic() - before < 2


def test_long_patterns_are_found_like_short_ones(state: State) -> None:
    needle = "n" * 40
    assert state.eval("local s, n = ...; return s:find(n, 1, true)", f"ab{needle}c", needle) == (3, 42)
    assert state.eval("local s, n = ...; return s:find(n)", f"ab{needle}c", needle) == (3, 42)
    assert state.eval("local s, n = ...; return s:find(n, -40)", f"ab{needle}", needle) == (3, 42)
    assert state.eval("local s, n = ...; return s:find(n, 4)", f"ab{needle}", needle) is None
    assert state.eval("local s, n = ...; return s:find(n, 1000)", f"ab{needle}", needle) is None
    assert state.eval("local s, n = ...; return s:split(n)", f"a{needle}b{needle}", needle) == ["a", "b", ""]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_limit_is_a_positive_number(seconds: float) -> None:
    with pytest.raises(ValueError, match="positive number of seconds"):
        Limits(seconds=seconds)


def test_limits_are_values() -> None:
    assert Limits(seconds=1.0) == Limits(seconds=1.0) != Limits(seconds=2.0)
    assert repr(Limits()) == (
        "Limits(memory=67108864, seconds=None, cpu_seconds=None, instructions=None, coroutines=10000, depth=100)"
    )
    with State(limits=Limits(seconds=3.0)) as state:
        assert state.limits == Limits(seconds=3.0)


@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize(
    ("source", "limits", "line"),
    [
        ("local x = 0\nlocal function f()\n\twhile true do x += 1 end\nend\nf()", {"seconds": 0.02}, 3),
        ("local x = 0\nwhile true do x += 1 end", {"instructions": 1000}, 2),
        ("\n\nlocal s = string.rep('a', 1e8)\nreturn s", {"memory": 2 << 20}, 3),
        ("pcall(function()\n\tlocal s = 'a'\n\twhile true do s ..= s end\nend)\n\nprint(1)", {"memory": 2 << 20}, 6),
        ("coroutine.resume(coroutine.create(function()\n\tstring.rep('a', 1e8)\nend))", {"memory": 2 << 20}, 2),
        ("coroutine.wrap(function()\n\twhile true do end\nend)()", {"seconds": 0.02}, 2),
        ("local t = {}\nwhile true do\n\ttable.insert(t, coroutine.create(print))\nend", {"coroutines": 5}, 3),
        ("\npcall(string.find, string.rep('a', 300000), string.rep('.-', 50) .. 'b')", {"seconds": 0.02}, 2),
    ],
)
def test_a_limit_error_names_the_line_where_the_script_was_stopped(
    source: str, limits: dict[str, float], line: int, stepped: bool
) -> None:
    with limited(**limits) as state:
        with pytest.raises(pyluau.LimitError) as caught:
            if stepped:
                state.stepper(state.load(pyluau.compile(source), "=my file.luau")).start()
            else:
                state.execute(source, chunkname="=my file.luau")
        error = caught.value
        assert (error.chunk, error.line) == ("my file.luau", line)
        assert str(error).startswith(f"my file.luau:{line}: ")
        assert f"my file.luau:{line}" in error.traceback
        assert state.eval("1 + 1") == 2


def test_a_limit_error_of_a_script_that_has_not_begun_names_no_line() -> None:
    with limited(memory=2 << 20) as state, pytest.raises(pyluau.OutOfMemory) as caught:
        state.load(pyluau.compile("return {" + "".join(f"{n}.5," for n in range(400_000)) + "}"))
    assert (caught.value.chunk, caught.value.line, caught.value.traceback) == (None, None, "")
