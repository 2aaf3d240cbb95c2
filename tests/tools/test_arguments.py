"""Parsing the arguments a model wrote, with unambiguous repairs only."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.core.types.tool import InvalidArguments
from vaka.tools.arguments import MAX_DEPTH, check_json_data, parse_json

FENCE = "```"
TAKEN: list[tuple[str, Any, str]] = [
    ('{"a": 1}', {"a": 1}, ""),
    (' \n{"a": [1, 2.5, true, false, null, "x"]}\t', {"a": [1, 2.5, True, False, None, "x"]}, ""),
    ('{"a": "\\u00e9\\ud83d\\ude00é😀"}', {"a": "é😀é😀"}, ""),
    ('{"a": "\\u0000"}', {"a": "\0"}, ""),
    ('{"n": -9223372036854775808, "m": 18446744073709551615}', {"n": -(2**63), "m": 2**64 - 1}, ""),
    ('{"a": 1e300}', {"a": 1e300}, ""),
    ('\ufeff{"a": 1}', {"a": 1}, "characters around the JSON removed"),
    ('\u00a0{"a": 1}\u200b', {"a": 1}, "characters around the JSON removed"),
    (f'{FENCE}json\n{{"a": 1}}\n{FENCE}', {"a": 1}, "code fence removed"),
    (f'{FENCE}JSON\r\n{{"a": 1}}\r\n{FENCE}\n', {"a": 1}, "code fence removed"),
    (f'{FENCE}\n{{"a": "{FENCE}"}}{FENCE}', {"a": FENCE}, "code fence removed"),
    ('{"a": 1,}', {"a": 1}, "trailing comma removed"),
    ('{"a": [1, 2, ], "b": {"c": ",}" , } }', {"a": [1, 2], "b": {"c": ",}"}}, "trailing comma removed"),
    ('{"a": "one\ntwo\tthree\rfour"}', {"a": "one\ntwo\tthree\rfour"}, "line breaks or tabs in text escaped"),
    ('{"a": "q\\"\n"}', {"a": 'q"\n'}, "line breaks or tabs in text escaped"),
    (
        f'{FENCE}json\n{{"a": "x\ny",}}\n{FENCE}',
        {"a": "x\ny"},
        "code fence removed; line breaks or tabs in text escaped; trailing comma removed",
    ),
    (json.dumps(json.dumps({"a": "b"})), {"a": "b"}, "object taken out of a text"),
    (
        f"{FENCE}\n{json.dumps(json.dumps({}))}\n{FENCE}",
        {},
        "code fence removed; object taken out of a text",
    ),
    (json.dumps(json.dumps(json.dumps({"a": "b"}))), json.dumps(json.dumps({"a": "b"})), ""),
    ('"{not json"', "{not json", ""),
    ('"text"', "text", ""),
    ("[1]", [1], ""),
    ("null", None, ""),
]


@pytest.mark.parametrize(("raw", "value", "repaired"), TAKEN, ids=[repr(row[0]) for row in TAKEN])
def test_unambiguous_text_is_repaired_with_a_description(raw: str, value: Any, repaired: str) -> None:
    assert parse_json(raw) == (value, repaired)


CUT = "they are cut short"
REFUSED: list[tuple[str, str]] = [
    ("", "they are empty"),
    ("  \n", "they are empty"),
    ('{"a": 1}{"b": 2}', "there is more than one value"),
    ('{"a": 1}\n{"b": 2}', "there is more than one value"),
    ('{"a": 1}, {"b": 2}', "there is more than one value"),
    ('{"a": 1} and more', "there is text after the JSON"),
    ('{"a": 1}}', "there is text after the JSON"),
    ('Sure! {"a": 1}', "there is text before the JSON"),
    ('{"command": "rm -rf /tmp/b', CUT),
    ('{"command": "rm -rf /tmp/b\\', CUT),
    ('{"command": "rm -rf /tmp/build"', CUT),
    ('{"command": "rm -rf /tmp/build",', CUT),
    ('{"command":', CUT),
    ("{", CUT),
    ('{"a": [1, 2', CUT),
    ("{'a': 1}", "single quotes"),
    ("{\"a\": 'b'}", "single quotes"),
    ("{a: 1}", "Expecting property name"),
    ('{"a": 1} // done', "there is text after the JSON"),
    ('{"a": /* one */ 1}', "there is a comment"),
    ('{"a": 1, # one\n "b": 2}', "there is a comment"),
    ('{"a": True}', "write true, false and null"),
    ('{"a": None}', "write true, false and null"),
    ('{"a": 1, "a": 2}', "the key 'a' appears twice"),
    ('{"x": {"b": 1, "a": 2, "a": 2}}', "the key 'a' appears twice"),
    ('{"a": 1, "\\u0061": 2}', "the key 'a' appears twice"),
    ('{"a": 1, "a": 2,}', "the key 'a' appears twice"),
    ('{"a": NaN}', "NaN is not a JSON number"),
    ('{"a": Infinity}', "Infinity is not a JSON number"),
    ('{"a": -Infinity}', "-Infinity is not a JSON number"),
    ('{"a": 1e999}', "too large or too long"),
    (f'{{"a": 0.{"1" * 500}}}', "too large or too long"),
    (f'{{"a": {"1" * 5000}}}', "does not fit in 64 bits"),
    ('{"a": 18446744073709551616}', "does not fit in 64 bits"),
    ('{"a": -9223372036854775809}', "does not fit in 64 bits"),
    ("[" * 100_000, f"nested deeper than {MAX_DEPTH} levels"),
    ('{"a":' * 65 + "1" + "}" * 65, f"nested deeper than {MAX_DEPTH} levels"),
    ('{"a": "\\ud800"}', "half of a surrogate pair"),
    ('{"\\udfff": 1}', "half of a surrogate pair"),
    ('{"a": "\ud800"}', "half of a surrogate pair"),
    ('{"a": "x\\\ny"}', "Invalid \\escape"),
    ('{"a": "\x00"}', "Invalid control character"),
    ('{"a": "\x1b[0m"}', "Invalid control character"),
    ("{,}", "Expecting property name"),
    ("[,]", "Expecting value"),
    ('{"a": 1,,}', "Expecting property name"),
    ('{"a":,}', "Expecting value"),
    ('{"a" 1}', "Expecting ':' delimiter"),
    ('{"a": 01}', "Expecting ',' delimiter"),
    ('{"a": .5}', "Expecting value"),
    ('{"a": +1}', "Expecting value"),
    ('{"a": 0x10}', "Expecting ',' delimiter"),
    ('{"a": undefined}', "Expecting value"),
    (f'{FENCE}json\n{{"a": 1}}', "there is text before the JSON"),
    (f'{FENCE}json\n{{"a": 1}}\n{FENCE}\nDone.', "there is text before the JSON"),
    (f'{FENCE}json\n{{"a": 1}}\n{FENCE}\n{FENCE}json\n{{"b": 1}}\n{FENCE}', "there is text after the JSON"),
    (f'{FENCE}python\n{{"a": 1}}\n{FENCE}', "there is text before the JSON"),
]


def test_other_text_is_an_error_with_an_instruction_for_the_model() -> None:
    rows = [(raw[:60], message, parse_json(raw)) for raw, message in REFUSED]
    assert [
        (raw, message, parsed)
        for raw, message, parsed in rows
        if not isinstance(parsed, InvalidArguments) or message not in parsed.message or len(parsed.message) >= 300
    ] == []


def test_64_levels_are_accepted_with_brackets_in_strings() -> None:
    raw = '{"b": "' + "[" * 100 + '", "a":' * 1 + '{"a":' * 63 + "1" + "}" * 64
    assert not isinstance(parse_json(raw), InvalidArguments)


LONG = {
    "quotes": '"' + '\\"' * 100_000,
    "member": '{"a": "' + '\\"' * 100_000,
    "commas": "," * 100_000,
    "blanks": '{"a": ' + " " * 100_000 + ",",
    "fence": FENCE + "\n" * 100_000,
    "lines": '{"a": 1' + ",\n" * 50_000 + "}",
    "trailing": '{"a": [' + "1, " * 50_000 + "]}",
}


@pytest.mark.parametrize("raw", LONG.values(), ids=LONG)
def test_long_invalid_text_is_read_in_linear_time(raw: str) -> None:
    parse_json(raw)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), PLAIN, min_size=1, max_size=4)


@given(OBJECTS, st.booleans())
def test_valid_json_is_read_unchanged(value: dict[str, Any], ascii_only: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only)) == (value, "")
    assert check_json_data(value) is None


@given(OBJECTS, st.sampled_from(["{}", FENCE + "json\n{}\n" + FENCE, "\ufeff{}"]), st.booleans())
def test_truncated_json_is_never_accepted(value: dict[str, Any], around: str, encoded: bool) -> None:
    text = json.dumps(json.dumps(value)) if encoded else json.dumps(value)
    raw = around.replace("{}", text)
    for end in range(len(raw)):
        parsed = parse_json(raw[:end])
        assert isinstance(parsed, InvalidArguments) or parsed[0] == value


@given(st.text())
def test_no_text_raises_an_exception(text: str) -> None:
    parse_json(text)
    parse_json("{" + text + "}")
    parse_json('{"a": "' + text + '"}')


@given(st.text(alphabet='{}[],:"\\ \n\t1a\ufeff`'))
def test_a_repair_changes_only_what_its_description_names(text: str) -> None:
    parsed = parse_json(text)
    try:
        expected = json.loads(text)
    except ValueError:
        assert isinstance(parsed, InvalidArguments) or parsed[1]
    else:
        assert (
            isinstance(parsed, InvalidArguments) or parsed[0] == expected or parsed[1] == "object taken out of a text"
        )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": float("nan")}, "nan is not a JSON number"),
        ({"a": [float("inf")]}, "inf is not a JSON number"),
        ({"a": 2**64}, "does not fit in 64 bits"),
        ({1: 2}, "the key 1 is not text"),
        ({"\ud800": 1}, "half of a surrogate pair"),
        ({"a": b""}, "bytes is not JSON data"),
        ({"a": (1,)}, "tuple is not JSON data"),
    ],
)
def test_data_is_checked_by_the_same_rules_as_text(value: Any, message: str) -> None:
    parsed = check_json_data(value)
    assert parsed is not None
    assert message in parsed.message


def test_data_that_contains_itself_is_an_error() -> None:
    value: list[Any] = []
    value.append(value)
    parsed = check_json_data({"a": value})
    assert parsed is not None
    assert "nested deeper" in parsed.message
