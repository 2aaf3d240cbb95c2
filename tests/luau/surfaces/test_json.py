"""JSON encoding and decoding in scripts."""

import math

import msgspec
import pytest

from tests.luau.surfaces.surface_fixtures import run_for_result, run_script


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("nil", "null"),
        ("true", "true"),
        ("42", "42"),
        ("42.0", "42"),
        ("-0.5", "-0.5"),
        ("3.14", "3.14"),
        ("2^53 - 1", "9007199254740991"),
        ("1e300", "1e+300"),
        ("0/0", "null"),
        ("math.huge", "null"),
        ("'hello'", '"hello"'),
        ("''", '""'),
        (r"'a\"b\\c\n\t\1/'", r'"a\"b\\c\n\t\u0001/"'),
        ("'é日🌺'", '"é日🌺"'),
        (r"'\255'", '"\ufffd"'),
        ("{}", "{}"),
        ("{1, 2, 3}", "[1,2,3]"),
        ("{1, nil, 3}", "[1,null,3]"),
        ("{[2] = 'b'}", '[null,"b"]'),
        ("{b = 1, a = {x = false}}", '{"a":{"x":false},"b":1}'),
        ("{1, x = 2}", '{"1":1,"x":2}'),
        ("{[0] = 1}", '{"0":1}'),
        ("{[1.5] = 1}", '{"1.5":1}'),
        ("{[1000000] = 1}", '{"1000000":1}'),
        ("{[true] = 1}", '{"true":1}'),
        ("print", "null"),
        ("{f = print, g = coroutine.create(print)}", '{"f":null,"g":null}'),
    ],
)
async def test_builtin_encodes_json(value: str, text: str) -> None:
    assert await run_script(f"return __builtin.json_encode({value})") == [text, None]


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "true",
        "false",
        "0",
        "-1",
        "12.5",
        "1e3",
        "-2.5E-3",
        '"x"',
        '""',
        "[]",
        "{}",
        "[1,[2,[3]],{}]",
        '{"a":{"b":[true,null]},"c":"d"}',
        ' \n\t{ "a" : [ 1 , 2 ] } ',
        r'"\"\\\/\b\f\n\r\t\u00e9\ud83c\udf3a"',
        '"日本"',
    ],
)
async def test_valid_json_is_decoded_as_in_python(text: str) -> None:
    expected = msgspec.json.decode(text.replace(",null", ""))  # Luau drops a null at the end of a list
    assert await run_script("return __builtin.json_decode(...)", text) == [expected, None]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty string"),
        ("   ", "empty string"),
        ("not json", "unexpected character at byte 1"),
        ("[1,", "unexpected end of JSON"),
        ("[1 2]", "expected ',' or ']' at byte 4"),
        ("[1,]", "unexpected character at byte 4"),
        ('{"a" 1}', "expected ':' at byte 6"),
        ('{"a":1 "b"}', "expected ',' or '}' at byte 8"),
        ('{"a":1,}', "expected the name of a field at byte 8"),
        ("{a:1}", "expected the name of a field at byte 2"),
        ('"abc', "unexpected end of JSON"),
        ('"a\nb"', "control character in a string at byte 3"),
        (r'"\x"', "unknown escape at byte 3"),
        (r'"\u12"', "bad \\u escape at byte 4"),
        ("01", "unexpected text after the value at byte 2"),
        ("1.", "unexpected text after the value at byte 2"),
        ("+1", "unexpected character at byte 1"),
        ("1e999", "number out of range at byte 1"),
        ("nul", "unexpected character at byte 1"),
        ("true false", "unexpected text after the value at byte 6"),
        ("[" * 300, "nested deeper than 200 at byte 201"),
    ],
)
async def test_invalid_json_returns_nil_and_a_reason(text: str, why: str) -> None:
    assert await run_script("return __builtin.json_decode(...)", text) == [None, why]
    caught = await run_script("return pcall(ctx.json.decode, ...)", text)
    assert caught == [False, why]


async def test_a_lone_surrogate_is_replaced() -> None:
    assert await run_for_result(r"""return __builtin.json_decode('"\\ud83c!"')""") == "\ufffd!"


async def test_an_empty_list_remains_a_list() -> None:
    assert await run_for_result('return ctx.json.encode(ctx.json.decode(\'{"a":[],"b":{}}\'))') == '{"a":[],"b":{}}'


async def test_a_table_that_contains_itself_is_an_error() -> None:
    source = "local t = {} t.t = t return __builtin.json_encode(t)"
    assert await run_script(source) == [None, "a table that holds itself has no JSON"]
    deep = "local t = {} for _ = 1, 300 do t = {t} end return __builtin.json_encode(t)"
    assert await run_script(deep) == [None, "tables are nested deeper than 200"]


async def test_a_table_that_occurs_twice_is_encoded_twice() -> None:
    assert await run_for_result("local t = {1} return __builtin.json_encode({t, t})") == "[[1],[1]]"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("print", "a function has no JSON"),
        ("{a = print}", "a function has no JSON"),
        ("0/0", "nan has no JSON"),
        ("{[{}] = 1}", "a table cannot be the name of a field in JSON"),
    ],
)
async def test_ctx_raises_for_values_without_a_json_form(value: str, why: str) -> None:
    assert await run_script(f"return pcall(function() return ctx.json.encode({value}) end)") == [
        False,
        f"script:1: {why}",
    ]


@pytest.mark.parametrize("value", ["1", "{}", "nil", "print"])
async def test_only_strings_are_decoded(value: str) -> None:
    decoded = await run_script(f"return __builtin.json_decode({value})")
    assert decoded[0] is None
    assert str(decoded[1]).startswith("expected a string, got ")
    ok, why = await run_script(f"return pcall(function() return ctx.json.decode({value}) end)")
    assert not ok
    assert "json.decode: the text must be a string" in why


async def test_numbers_survive_a_round_trip() -> None:
    numbers = [0, 1, -1, 0.1, 1 / 3, math.pi, 2**53 - 1, 1e22, 5e-324, 1.7976931348623157e308]
    for number in numbers:
        assert await run_for_result("return __builtin.json_decode(__builtin.json_encode(...))", number) == number
