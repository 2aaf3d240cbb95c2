import re

import pytest

import pyluau
from pyluau import State


@pytest.mark.parametrize(
    "name", ["io", "require", "loadstring", "load", "dofile", "loadfile", "getfenv", "setfenv", "package"]
)
def test_functions_that_reach_outside_are_missing(state: State, name: str) -> None:
    assert state.eval(name) is None


@pytest.mark.parametrize("name", ["execute", "getenv", "exit", "remove", "rename", "tmpname", "setlocale"])
def test_os_has_only_time(state: State, name: str) -> None:
    assert state.eval(f"os.{name}") is None


def test_debug_has_only_info_and_traceback(state: State) -> None:
    assert sorted(state.eval("local names = {} for name in debug do table.insert(names, name) end return names")) == [
        "info",
        "traceback",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "math.abs = nil",
        "string.rep = nil",
        "table.insert = print",
        "getmetatable('').__index = nil",
        "getmetatable(_G).__index = nil",
        "setmetatable(math, {})",
        "rawset(math, 'x', 1)",
        "rawset(string, 'rep', print)",
        "table.clear(table)",
        "coroutine.resume = nil",
    ],
)
def test_libraries_cannot_be_changed(state: State, source: str) -> None:
    with pytest.raises(pyluau.LuauError):
        state.execute(source)
    assert state.eval("math.abs(-1) + #('x'):rep(2)") == 3


def test_scripts_are_isolated_from_each_other(state: State) -> None:
    state.execute("secret = 1 _G.secret2 = 2 print2 = print")
    assert state.eval("return secret, secret2, _G.secret, print2") == (None, None, None, None)


def test_a_script_may_hide_a_global_from_itself(state: State) -> None:
    assert state.eval("print = function() return 'mine' end return print()") == "mine"
    assert state.eval("typeof(print)") == "function"


@pytest.mark.parametrize(
    "source",
    [
        "tostring(...)",
        "`{...}`",
        "string.format('%s', ...)",
        "('%*'):format(...)",
    ],
)
def test_addresses_are_numbers_that_count_up(source: str) -> None:
    objects = "f({}), f(print), f(coroutine.create(print)), f(newproxy()), f(buffer.create(1))"
    script = f"local f = function(...) return {source} end return {objects}"
    expected = tuple(
        f"{kind}: 0x{n:016x}" for n, kind in enumerate(["table", "function", "thread", "userdata", "buffer"], 1)
    )
    for _ in range(2):
        with State() as state:
            assert state.eval(script) == expected


def test_an_object_keeps_its_number(state: State) -> None:
    assert state.eval(
        "local a, b = {}, {} local x = tostring(a) tostring(b) return x == tostring(a), x == tostring(b)"
    ) == (True, False)


def test_print_shows_no_addresses() -> None:
    lines: list[str] = []
    with State(print=lines.append) as state:
        state.execute("print({}, print)")
    assert lines == ["table: 0x0000000000000001\tfunction: 0x0000000000000002"]


def test_tostring_uses_metatables(state: State) -> None:
    table = "local t = setmetatable({}, {__tostring = function() return 'me' end})"
    assert state.eval(table + "return tostring(t), `{t}`, ('%s'):format(t)") == ("me", "me", "me")


def test_other_formats_are_unchanged(state: State) -> None:
    assert state.eval("string.format('%d %5.2f %q %x %*', 3, 1.5, 'a\\n', 255, nil)") == '3  1.50 "a\\\n" ff nil'


def test_the_memory_size_is_hidden(state: State) -> None:
    assert state.eval("return collectgarbage('count'), collectgarbage(), gcinfo()") == (0, 0, 0)
    with pytest.raises(pyluau.LuauError):
        state.eval("collectgarbage('stop')")


def test_time_comes_from_the_host() -> None:
    times = iter([1000.5, 1001.5, 1002.5])
    with State(clock=lambda: next(times)) as state:
        assert state.eval("return os.clock(), os.time(), os.date('%Y-%m-%d %H:%M:%S')") == (
            1000.5,
            1001,
            "1970-01-01 00:16:42",
        )


def test_dates_are_in_utc(state: State) -> None:
    assert state.eval("os.date('%H:%M', 3600)") == "01:00"
    assert state.eval("os.date('*t', 0).hour") == 0
    assert state.eval("os.time({year = 1970, month = 1, day = 1, hour = 1})") == 3600


def test_a_clock_that_fails_fails_the_script() -> None:
    def broken() -> float:
        raise OSError("no clock")

    with State(clock=broken) as state, pytest.raises(OSError, match="no clock"):
        state.eval("os.clock()")
    with State(clock=lambda: "noon") as state, pytest.raises(pyluau.LuauError, match="did not give a number"):  # type: ignore[arg-type,return-value]  # that is the test
        state.eval("os.clock()")


def test_random_numbers_come_from_the_seed() -> None:
    source = "local t = {} for i = 1, 5 do t[i] = math.random(1000) end return t, math.random()"
    with State(seed=7) as one, State(seed=7) as same, State(seed=8) as other:
        assert one.eval(source) == same.eval(source) != other.eval(source)


def test_scripts_can_set_the_seed(state: State) -> None:
    source = "math.randomseed(5) return math.random(1e6)"
    assert state.eval(source) == state.eval(source)


def test_random_numbers_are_within_their_bounds(state: State) -> None:
    assert state.eval(
        "for i = 1, 10000 do local r = math.random(-3, 3) assert(r >= -3 and r <= 3 and r % 1 == 0) end return true"
    )
    assert state.eval("for i = 1, 10000 do local r = math.random() assert(r >= 0 and r < 1) end return true")
    assert state.eval("return math.random(5, 5), math.random(1)") == (5, 1)
    assert state.eval("return math.random(-2147483648, 2147483647) ~= nil")
    for wrong in ("math.random(0)", "math.random(2, 1)", "math.random(1, 2, 3)", "math.random('x')"):
        with pytest.raises(pyluau.LuauError):
            state.eval(wrong)


def test_registered_functions_cannot_be_replaced_for_others(state: State) -> None:
    state.register("mine", lambda: 1)
    state.execute("mine = nil")
    assert state.eval("mine()") == 1


def test_without_a_sandbox_libraries_can_be_changed() -> None:
    with State(sandbox=False) as state:
        state.execute("math.two = 2")
        assert state.eval("math.two") == 2
        assert re.fullmatch(r"table: 0x[0-9a-f]+", state.eval("tostring({})"))
        assert state.eval("collectgarbage('count')") > 10


@pytest.mark.parametrize(
    "source",
    [
        "table.unpack({}, 1, 8000)",
        "unpack({}, 1, 1e6)",
        "table.unpack(table.create(9000, 1))",
        "table.unpack({}, -2^31, 2^31 - 1)",
        "string.byte(string.rep('x', 9000), 1, -1)",
        "utf8.codepoint(string.rep('x', 9000), 1, -1)",
    ],
)
def test_more_values_than_luau_allows_are_refused(state: State, source: str) -> None:
    with pytest.raises(pyluau.LuauError, match=r"too many results to unpack|string slice too long"):
        state.eval(f"select('#', {source})")


def test_as_many_values_as_luau_allows_are_given(state: State) -> None:
    assert state.eval("select('#', table.unpack({}, 1, 7990))") == 7990
    assert state.eval("select('#', string.byte(string.rep('x', 7990), 1, -1))") == 7990
    assert state.eval("string.byte(string.rep('x', 9000), 8999, -1)") == (120, 120)
    assert state.eval("utf8.codepoint(string.rep('x', 9000), -1)") == 120
    assert state.eval("select('#', table.unpack({1, 2}, 5, 1)), unpack({1, 2})") == (0, 1, 2)
