import math
from typing import Any

import pytest

import pyluau
from pyluau import Vector


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        2**53,
        -(2**53),
        1.5,
        1e300,
        math.inf,
        "",
        "text",
        "zürich 计算 🦊",
        "a\0b",
        b"\xff\xfe",
        [],
        [1, 2, 3],
        [[], [[]]],
        {},
        {"a": 1, "b": [1, {"c": "d"}]},
        {1.5: "x", True: "y"},
        {"1": "text key"},
        {2: "two", 3: "three"},
        Vector(1.0, 2.0, 3.5),
        bytearray(b"\0\1\2"),
        bytearray(),
    ],
    ids=repr,
)
def test_plain_data_survives_a_round_trip(state: pyluau.State, value: Any) -> None:
    back = state.eval("...", value)
    assert back == value
    assert type(back) is type(value)


def test_nan_survives_a_round_trip(state: pyluau.State) -> None:
    assert math.isnan(state.eval("...", math.nan))


def test_whole_numbers_are_ints(state: pyluau.State) -> None:
    assert (
        repr(state.eval("return 3, 3.0, 3.5, 6 / 2, 2^53, 2^54"))
        == "(3, 3, 3.5, 3, 9007199254740992, 1.8014398509481984e+16)"
    )


def test_negative_zero_stays_a_float(state: pyluau.State) -> None:
    assert repr(state.eval("-0")) == "-0.0"


def test_a_large_exact_int_is_converted(state: pyluau.State) -> None:
    assert state.eval("... == 2^60", 2**60) is True


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 10**400])
def test_an_int_that_is_not_exact_is_refused(state: pyluau.State, number: int) -> None:
    with pytest.raises(pyluau.ConversionError, match="is not exactly a Luau number"):
        state.eval("...", number)


def test_bytes_are_strings(state: pyluau.State) -> None:
    assert state.eval("local s = ...; return #s, typeof(s), s", b"ab\0") == (3, "string", "ab\0")


def test_strings_can_always_be_bytes() -> None:
    with pyluau.State(strings="bytes") as state:
        assert state.eval("{a = 'b'}") == {b"a": b"b"}


def test_strings_can_always_be_text() -> None:
    with pyluau.State(strings="str") as state:
        assert state.eval("'b'") == "b"
        with pytest.raises(pyluau.ConversionError, match="not UTF-8"):
            state.eval(r"'\xff'")


def test_an_unknown_strings_option_is_refused() -> None:
    with pytest.raises(ValueError, match="strings is 'auto', 'str' or 'bytes'"):
        pyluau.State(strings="maybe")  # type: ignore[arg-type]  # that is the test


def test_a_lone_surrogate_is_refused(state: pyluau.State) -> None:
    with pytest.raises(UnicodeEncodeError):
        state.eval("...", "\ud800")


def test_tuples_are_lists_inside(state: pyluau.State) -> None:
    assert state.eval("...", [(1, 2)]) == [[1, 2]]


def test_an_empty_table_is_a_dict(state: pyluau.State) -> None:
    assert state.eval("{}") == {}


def test_an_emptied_list_is_still_a_list(state: pyluau.State) -> None:
    assert state.eval("local t = ...; table.remove(t); return t", [1]) == []


def test_a_script_can_mark_an_empty_list(state: pyluau.State) -> None:
    state.define("array", state.primitives["array"])
    assert state.eval("return array({}), array(), array({1}), {}") == ([], [], [1], {})


def test_a_sequence_filled_backwards_is_a_list(state: pyluau.State) -> None:
    assert state.eval("local t = {} for i = 5, 1, -1 do t[i] = i end return t") == [1, 2, 3, 4, 5]


def test_a_table_with_holes_is_a_dict(state: pyluau.State) -> None:
    assert state.eval("{1, nil, 3}") == {1: 1, 3: 3}


def test_a_mixed_table_is_a_dict(state: pyluau.State) -> None:
    assert state.eval("{1, 2, x = 3}") == {1: 1, 2: 2, "x": 3}


def test_none_in_a_dict_is_absent(state: pyluau.State) -> None:
    assert state.eval("...", {"a": None, "b": 1}) == {"b": 1}


def test_none_cannot_be_a_key(state: pyluau.State) -> None:
    with pytest.raises(pyluau.ConversionError, match="nil cannot be a key"):
        state.eval("...", {None: 1})
    with pytest.raises(pyluau.ConversionError, match="cannot be a key"):
        state.eval("...", {math.nan: 1})


@pytest.mark.parametrize("value", [{1}, object(), 1j, range(3)], ids=["set", "object", "complex", "range"])
def test_values_without_a_counterpart_are_refused(state: pyluau.State, value: Any) -> None:
    with pytest.raises(pyluau.ConversionError, match="has no counterpart in Luau"):
        state.eval("...", value)


def test_a_list_that_contains_itself_is_refused(state: pyluau.State) -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    with pytest.raises(pyluau.ConversionError, match="holds itself"):
        state.eval("...", loop)


def test_a_table_that_contains_itself_is_refused(state: pyluau.State) -> None:
    with pytest.raises(pyluau.ConversionError, match="holds itself"):
        state.eval("local t = {} t.a = {t, t} return t")


def test_a_table_may_contain_another_twice(state: pyluau.State) -> None:
    assert state.eval("local t = {1} return {t, t}") == [[1], [1]]


def test_depth_is_bounded_both_ways(state: pyluau.State) -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(pyluau.ConversionError, match="nested deeper"):
        state.eval("...", deep)
    with pytest.raises(pyluau.ConversionError, match="nested deeper than 100"):
        state.eval("local t = {} for i = 1, 200 do t = {t} end return t")


def test_a_small_table_cannot_become_a_large_value(state: pyluau.State) -> None:
    doubling = "local t = {1} for i = 1, 60 do t = {t, t} end return t"
    with pytest.raises(pyluau.ConversionError, match="too large"):
        state.eval(doubling)
    with pytest.raises(pyluau.ConversionError, match="too large"):
        state.eval("local s = ('x'):rep(2^20) local t = {} for i = 1, 10000 do t[i] = s end return t")


def test_a_table_as_a_key_is_refused(state: pyluau.State) -> None:
    with pytest.raises(pyluau.ConversionError, match="a table as a key"):
        state.eval("{[{}] = 1}")


def test_functions_inside_tables_are_handles(state: pyluau.State) -> None:
    module = state.eval("{double = function(n) return n * 2 end}")
    assert module["double"](21) == 42


def test_a_python_function_comes_back_itself(state: pyluau.State) -> None:
    assert state.eval("...", len) is len


def test_tables_can_be_returned_as_handles(state: pyluau.State) -> None:
    table = state.eval("{1, 2, x = {y = 3}}", convert=False)
    assert isinstance(table, pyluau.Table)
    assert len(table) == 2
    assert isinstance(table["x"], pyluau.Table)
    assert table["x"]["y"] == 3
    assert table.to_python() == {1: 1, 2: 2, "x": {"y": 3}}


def test_a_handle_is_the_table_itself(state: pyluau.State) -> None:
    table = state.table({"n": 1})
    state.eval("local t = ...; t.n += 1", table)
    assert table["n"] == 2
    assert state.eval("...", table, convert=False) == table
    assert state.table() != table


def test_tables_can_be_changed(state: pyluau.State) -> None:
    table = state.table(array=4, fields=4)
    table["a"], table[1] = 1, "one"
    table.set("b", [1])
    assert "a" in table
    assert "z" not in table
    del table["a"]
    assert (table.get("a"), table.get("a", 7), len(table)) == (None, 7, 1)
    with pytest.raises(KeyError):
        table["a"]
    assert dict(table.items())[1] == "one"
    assert list(table) == table.keys() == [1, "b"]
    assert table.values()[0] == "one"


def test_metatables_are_used_unless_raw(state: pyluau.State) -> None:
    metatable = "{__index = function(_, k) return k .. '!' end, __newindex = error, __len = function() return 7 end}"
    table = state.eval(f"setmetatable({{}}, {metatable})", convert=False)
    assert (table["x"], table.raw_get("x"), len(table)) == ("x!", None, 7)
    with pytest.raises(pyluau.LuauError):
        table["x"] = 1
    table.raw_set("x", 1)
    assert table["x"] == 1


def test_a_metatable_can_be_set(state: pyluau.State) -> None:
    table = state.table()
    table.set_metatable(state.table({"__index": {"a": 1}}))
    assert table["a"] == 1
    table.set_metatable(None)
    assert table.get("a") is None


def test_a_frozen_table_cannot_be_changed(state: pyluau.State) -> None:
    table = state.table({"a": 1})
    table.freeze()
    with pytest.raises(pyluau.LuauError, match="readonly"):
        table["a"] = 2
    with pytest.raises(pyluau.LuauError, match="readonly"):
        state.eval("local t = ...; t.a = 2", table)
    table.freeze(read_only=False)
    table["a"] = 2
    assert table["a"] == 2


def test_a_value_of_another_state_is_refused(state: pyluau.State) -> None:
    with pyluau.State() as other, pytest.raises(pyluau.ConversionError, match="belongs to another state"):
        state.eval("...", other.table())


def test_buffers_can_be_shared(state: pyluau.State) -> None:
    buffer = state.eval("buffer.fromstring('hello')", convert=False)
    assert isinstance(buffer, pyluau.Buffer)
    assert (len(buffer), bytes(buffer), buffer.read(1, 3)) == (5, b"hello", b"el")
    buffer.write(0, b"J")
    assert state.eval("buffer.tostring(...)", buffer) == "Jello"
    with pytest.raises(RuntimeError, match="outside a buffer"):
        buffer.write(4, b"xx")
    with pytest.raises(RuntimeError, match="outside a buffer"):
        buffer.read(2, 9)


def test_a_memoryview_becomes_a_buffer(state: pyluau.State) -> None:
    assert state.eval("buffer.len(...)", memoryview(b"abc")) == 3


def test_vectors_are_vectors_on_both_sides(state: pyluau.State) -> None:
    assert state.eval("... + vector.create(1, 1, 1)", Vector(1, 2, 3)) == Vector(2, 3, 4)
    assert state.eval("vector.create(1, 2, 3)").y == 2


def test_userdata_survives_a_round_trip(state: pyluau.State) -> None:
    proxy = state.eval("newproxy()")
    assert state.eval("local a = ...; return typeof(a)", proxy) == "userdata"


@pytest.mark.parametrize("table", ["{[1] = 'a', [true] = 'b'}", "{x = {[0] = 'a', [false] = 'b'}}"])
def test_a_table_with_keys_that_are_equal_in_python_is_not_converted(state: pyluau.State, table: str) -> None:
    with pytest.raises(pyluau.ConversionError, match="keys that are equal in Python"):
        state.eval(table)
    assert state.eval("{[true] = 'b', [2] = 'a'}") == {True: "b", 2: "a"}
