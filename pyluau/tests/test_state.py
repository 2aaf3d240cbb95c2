import gc
import re
from pathlib import Path

import pytest

import pyluau


def test_an_expression_returns_its_value(state: pyluau.State) -> None:
    assert state.eval("1 + 1") == 2


def test_a_chunk_returns_its_results(state: pyluau.State) -> None:
    assert state.eval("local a = 2; return a * 21") == 42


def test_several_results_are_a_tuple(state: pyluau.State) -> None:
    assert state.eval("return 1, 'two', nil") == (1, "two", None)


def test_no_result_is_none(state: pyluau.State) -> None:
    assert state.eval("local a = 1") is None


def test_arguments_reach_the_chunk(state: pyluau.State) -> None:
    assert state.eval("local a, b = ...; return a .. b", "x", "y") == "xy"


def test_execute_returns_none(state: pyluau.State) -> None:
    result: object = state.execute("return 1")  # type: ignore[func-returns-value]  # that is the test
    assert result is None


def test_closing_twice_has_no_effect() -> None:
    state = pyluau.State()
    state.close()
    state.close()
    assert state.closed


def test_a_closed_state_raises() -> None:
    state = pyluau.State()
    function = state.eval("function() end")
    table = state.table([1])
    state.close()
    for use in (lambda: state.eval("1"), function, table.to_python, lambda: state.memory_used, state.collect):
        with pytest.raises(pyluau.ClosedError, match="closed"):
            use()


def test_a_state_cannot_be_closed_by_a_function_it_calls(state: pyluau.State) -> None:
    state.register("close", state.close)
    with pytest.raises(RuntimeError, match="cannot be closed"):
        state.eval("close()")
    assert state.eval("1") == 1


def test_handles_may_outlive_their_state() -> None:
    state = pyluau.State()
    handles = [state.eval("function() end"), state.table(), state.eval("coroutine.create(print)")]
    state.close()
    del handles
    gc.collect()


def test_the_version_names_lua(state: pyluau.State) -> None:
    assert re.fullmatch(r"Luau 0\.\d+", state.version)
    assert state.version == pyluau.version


def test_each_script_has_an_environment_of_its_own(state: pyluau.State) -> None:
    state.execute("x = 1")
    assert state.eval("x") is None


def test_scripts_can_share_an_environment(state: pyluau.State) -> None:
    env = state.environment({"y": 20})
    state.execute("x = y + 1", env=env)
    assert state.eval("_G.x * 2", env=env) == 42
    assert env["x"] == 21


def test_an_environment_of_values_is_the_scripts_own(state: pyluau.State) -> None:
    values = {"x": 1}
    assert state.eval("x = x + 1; return x, math.abs(-1)", env=values) == (2, 1)
    assert values == {"x": 1}


def test_an_environment_takes_precedence_over_the_globals(state: pyluau.State) -> None:
    env = {"print": lambda x: x + 1, "math": {"abs": lambda x: "mine"}, "n": -1}
    assert state.eval("print(1), math.abs(n)", env=env) == (2, "mine")


def test_an_environment_is_a_dict_or_a_table(state: pyluau.State) -> None:
    with pytest.raises(TypeError, match="env is a dict or a Table"):
        state.eval("1", env=[1])  # type: ignore[arg-type]  # that is the test


def test_without_a_sandbox_globals_persist() -> None:
    with pyluau.State(sandbox=False) as state:
        state.execute("x = 1")
        assert state.eval("x") == 1
        assert state.globals["x"] == 1


def test_memory_is_counted_and_collected(state: pyluau.State) -> None:
    before = state.memory_used
    env = state.environment()
    state.execute("t = table.create(100000, 1)", env=env)
    assert state.memory_used > before + 1_000_000
    env["t"] = None
    state.collect()
    assert state.memory_used < before + 100_000


def test_the_dump_shows_the_stack(state: pyluau.State) -> None:
    seen: list[str] = []
    state.register("dump", lambda: seen.append(state.dump()))
    state.execute("local function inner() dump() end\ninner()", chunkname="=here", opt=1)
    assert "here:1 function inner" in seen[0]


@pytest.mark.parametrize("level", list(pyluau.OptLevel))
def test_every_optimisation_level_gives_the_same_result(state: pyluau.State, level: pyluau.OptLevel) -> None:
    source = "local function f(n) return if n < 2 then n else f(n - 1) + f(n - 2) end return f(15)"
    assert state.eval(source, opt=level) == 610


def test_an_unknown_level_is_refused(state: pyluau.State) -> None:
    with pytest.raises(ValueError, match="opt is 0, 1 or 2"):
        state.eval("1", opt=3)


@pytest.mark.skipif(not pyluau.native_supported, reason="no native code on this processor")
def test_native_code_gives_the_same_result() -> None:
    with pyluau.State(native=True) as state:
        assert state.eval("local s = 0 for i = 1, 1000 do s += i end return s") == 500500


def test_a_source_may_be_bytes(state: pyluau.State) -> None:
    assert state.eval(b"return '\xff'") == b"\xff"


def test_a_source_with_nul_is_a_syntax_error(state: pyluau.State) -> None:
    with pytest.raises(pyluau.LuauSyntaxError, match=r"^chunk:2: a source cannot hold NUL"):
        state.eval("1\n \0 2")


def test_a_source_must_be_text(state: pyluau.State) -> None:
    with pytest.raises(TypeError, match="a source is str or bytes, not int"):
        state.eval(1)  # type: ignore[arg-type]  # that is the test


def test_a_syntax_error_names_chunk_and_line(state: pyluau.State) -> None:
    with pytest.raises(pyluau.LuauSyntaxError, match=r"^mine:2: ") as caught:
        state.execute("local a = 1\nlocal = 2", chunkname="=mine")
    assert (caught.value.chunk, caught.value.line) == ("mine", 2)


def test_globals_can_be_called_by_name(state: pyluau.State) -> None:
    state.define("double", state.eval("function(n) return 2 * n end"))
    assert state.call("double", 21) == 42


def test_a_missing_global_cannot_be_called(state: pyluau.State) -> None:
    with pytest.raises(KeyError):
        state.call("unknown")


def test_only_luau_functions_can_be_called(state: pyluau.State) -> None:
    with pytest.raises(TypeError, match="only a Luau function"):
        state.call(print)  # type: ignore[arg-type]  # that is the test


def test_print_goes_to_the_host() -> None:
    lines: list[str] = []
    with pyluau.State(print=lines.append) as state:
        state.execute("print(1, 'two', nil, true)")
        state.execute("print()")
    assert lines == ["1\ttwo\tnil\ttrue", ""]


def test_print_goes_to_stdout_by_default(state: pyluau.State, capsys: pytest.CaptureFixture[str]) -> None:
    state.execute("print('hi')")
    assert capsys.readouterr().out == "hi\n"


def test_types_can_have_metatables() -> None:
    with pyluau.State(sandbox=False) as state:
        state.set_type_metatable(0, state.eval("{__index = {double = function(n) return n * 2 end}}", convert=False))
        assert state.eval("(21):double()") == 42


def test_ten_thousand_functions_can_be_registered(state: pyluau.State) -> None:
    for number in range(10_000):
        state.register(f"f{number}", lambda number=number: number)
    assert state.eval("f0() + f9999()") == 9999


def test_names_may_be_unicode(state: pyluau.State) -> None:
    state.register("计算", lambda a, b: a + b)
    assert state.eval('_G["计算"](1, 2)') == 3


def test_a_file_is_run_and_named_in_errors(state: pyluau.State, tmp_path: Path) -> None:
    file = tmp_path / "add.luau"
    file.write_text("local a, b = ... if b == nil then error('b is missing') end return a + b + (more or 0)")
    assert state.execute_file(file, 1, 2) == 3
    assert state.execute_file(str(file), 1, 2, env={"more": 4}) == 7
    with pytest.raises(pyluau.LuauError) as caught:
        state.execute_file(file, 1)
    assert (caught.value.chunk, caught.value.line) == (str(file), 1)
    with pytest.raises(pyluau.LuauError, match=r"^add:1: b is missing"):
        state.execute_file(file, 1, chunkname="=add")
    with pytest.raises(FileNotFoundError):
        state.execute_file(tmp_path / "none.luau")


def test_the_fields_of_a_table_are_attributes(state: pyluau.State) -> None:
    table = state.eval("setmetatable({name = 'Ada', get = 1}, {__index = {base = 2}})", convert=False)
    assert (table.name, table.base, table["get"]) == ("Ada", 2, 1)
    table.name = "Bob"
    table.fresh = {"x": [1]}
    assert (table["name"], table.fresh.x.to_python()) == ("Bob", [1])
    del table.fresh
    assert not hasattr(table, "fresh")
    assert callable(table.get)
    for name in ("get", "items", "__class__", "__anything__"):
        with pytest.raises(AttributeError, match="use table"):
            setattr(table, name, 1)
    with pytest.raises(AttributeError, match="no field"):
        table.missing  # noqa: B018  # reading it is the test
