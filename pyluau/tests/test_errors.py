import traceback
from typing import Any

import pytest

import pyluau


def test_an_error_has_message_place_and_traceback(state: pyluau.State) -> None:
    with pytest.raises(pyluau.LuauError) as caught:
        state.execute("local function f()\n  error('oh')\nend\nf()", chunkname="=mine", opt=1)
    error = caught.value
    assert (error.message, error.chunk, error.line, error.value) == ("mine:2: oh", "mine", 2, "mine:2: oh")
    assert "mine:2 function f\nmine:4" in error.traceback


@pytest.mark.parametrize(
    ("raised", "value"),
    [
        ("nil", None),
        ("true", True),
        ("42", 42),
        ("'text'", "text"),
        ("{code = 7}", {"code": 7}),
        ("{1, 2}", [1, 2]),
        ("vector.create(1, 2, 3)", pyluau.Vector(1, 2, 3)),
    ],
)
def test_an_error_may_be_any_value(state: pyluau.State, raised: str, value: Any) -> None:
    with pytest.raises(pyluau.LuauError) as caught:
        state.execute(f"error({raised}, 0)")
    assert caught.value.value == value
    assert state.eval("1") == 1


@pytest.mark.parametrize("raised", ["print", "coroutine.create(print)", "newproxy()", "buffer.create(1)"])
def test_an_error_may_be_a_function_or_a_thread(state: pyluau.State, raised: str) -> None:
    with pytest.raises(pyluau.LuauError, match="error object is a"):
        state.execute(f"error({raised})")


def test_an_error_table_that_holds_itself_is_reported_without_its_value(state: pyluau.State) -> None:
    with pytest.raises(pyluau.LuauError) as caught:
        state.execute("local e = {} e.e = e error(e)")
    assert caught.value.value is None


def test_an_error_table_may_have_a_message(state: pyluau.State) -> None:
    with pytest.raises(pyluau.LuauError, match=r"^I failed$"):
        state.execute("error(setmetatable({}, {__tostring = function() return 'I failed' end}))")
    with pytest.raises(pyluau.LuauError, match=r"^this too$"):
        state.execute("error({message = 'this too'})")


def test_a_failing_tostring_does_not_hide_the_error(state: pyluau.State) -> None:
    with pytest.raises(pyluau.LuauError):
        state.execute("error(setmetatable({}, {__tostring = function() error('again') end}))")


def test_an_exception_passes_through_as_itself(state: pyluau.State) -> None:
    problem = ValueError("no good")

    def fail() -> None:
        raise problem

    state.register("fail", fail)
    with pytest.raises(ValueError, match="no good") as caught:
        state.execute("local function inner() fail() end\ninner()", chunkname="=mine", opt=1)
    assert caught.value is problem
    assert any("mine:1 function inner" in note for note in caught.value.__notes__)
    assert "in fail" in "".join(traceback.format_exception(caught.value))


def test_a_script_can_catch_an_exception(state: pyluau.State) -> None:
    def fail() -> None:
        raise KeyError("x")

    state.register("fail", fail)
    ok, text, message = state.eval("local ok, e = pcall(fail) return ok, tostring(e), e.message")
    assert (ok, text, message) == (False, "KeyError: 'x'", "KeyError: 'x'")
    assert state.eval("local _, e = pcall(fail) return 'got ' .. e, e .. '!'") == (
        "got KeyError: 'x'",
        "KeyError: 'x'!",
    )


def test_an_exception_raised_again_is_the_same_object(state: pyluau.State) -> None:
    problem = OSError("disk")

    def fail() -> None:
        raise problem

    state.register("fail", fail)
    with pytest.raises(OSError, match="disk") as caught:
        state.execute("local ok, e = pcall(fail) error(e)")
    assert caught.value is problem


def test_a_luau_error_raised_by_python_is_a_plain_error(state: pyluau.State) -> None:
    def fail(value: Any) -> None:
        raise pyluau.LuauError("refused", value=value)

    state.register("fail", fail)
    assert state.eval("local _, e = pcall(fail, nil) return e") == "refused"
    assert state.eval("local _, e = pcall(fail, {code = 1}) return e") == {"code": 1}


def test_an_error_keeps_its_value_through_python(state: pyluau.State) -> None:
    state.register("run", lambda f: f())
    same = state.eval("local e = {} local _, got = pcall(run, function() error(e) end) return got")
    assert same == {}
    assert state.eval("local _, e = pcall(run, function() error('x', 0) end) return e") == "x"


def test_a_script_cannot_catch_a_base_exception(state: pyluau.State) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    state.register("stop", stop)
    with pytest.raises(KeyboardInterrupt):
        state.execute("while true do pcall(stop) end")
    assert state.eval("1") == 1


def test_a_result_without_counterpart_is_an_error_in_the_script(state: pyluau.State) -> None:
    state.register("odd", lambda: object())
    ok, message = state.eval("local ok, e = pcall(odd) return ok, tostring(e)")
    assert (ok, message) == (False, "ConversionError: a object has no counterpart in Luau")


def test_an_argument_without_counterpart_is_an_error_in_the_script(state: pyluau.State) -> None:
    state.register("take", lambda _: None)
    ok, message = state.eval("local t = {} t.t = t return pcall(take, t)")
    assert not ok
    assert "holds itself" in message


def test_deep_recursion_is_a_typed_error(state: pyluau.State) -> None:
    with pytest.raises(pyluau.StackOverflow, match="stack overflow"):
        state.execute("local function f() return 1 + f() end f()")
    assert state.eval("1") == 1


@pytest.mark.parametrize(
    "source",
    [
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return t[k] end return t.x",
        "local function f() return pcall(f) end local function g() local ok, e = f() error(e) end g()",
        "local s = string.rep('(', 150) return string.find(s, s)",
        "local f = function() end for i = 1, 300 do local g = f f = coroutine.wrap(function() g() end) end f()",
        "local function cmp(a, b) table.sort({2, 1}, cmp) return true end table.sort({2, 1}, cmp)",
    ],
)
def test_recursion_through_metamethods_is_an_error(state: pyluau.State, source: str) -> None:
    try:
        state.eval(source)
    except pyluau.LuauError:
        pass
    assert state.eval("1") == 1


def test_source_nested_too_deeply_is_a_syntax_error(state: pyluau.State) -> None:
    for source in ("(" * 100_000, "return " + "{" * 100_000, "local a = " + "-" * 100_000 + "1", "if a then " * 50_000):
        with pytest.raises(pyluau.LuauSyntaxError):
            state.execute(source)


def test_every_error_is_a_pyluau_error() -> None:
    for name in pyluau.__all__:
        error = getattr(pyluau, name)
        if isinstance(error, type) and issubclass(error, Exception):
            assert issubclass(error, pyluau.PyluauError)
