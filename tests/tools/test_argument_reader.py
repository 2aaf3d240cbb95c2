"""Arguments against a schema: every fault is described."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import pytest

from tests.tools.context import FakeContext
from vaka.core.types.tool import InvalidArguments, ParsedArguments
from vaka.tools import tool
from vaka.tools.arguments import ArgumentReader


@dataclass
class Item:
    name: str
    count: int = 1
    note: str | None = None


@tool
def order(
    items: list[Item],
    kind: Literal["fast", "slow"] = "fast",
    when: datetime | None = None,
    size: int | list[int] = 1,
    extra: Item | None = None,
) -> str:
    """Order items."""
    return f"{items} {kind} {when} {size}"


@tool
def nothing() -> str:
    """Do nothing."""
    return "nothing"


FAULTS: list[tuple[Any, str]] = [
    ({"items": []}, ""),
    ({"items": [{"name": "a", "count": 2.0}]}, ""),
    ({"items": [{"name": "a", "count": "2"}]}, 'items[0].count: expected integer, got "2"'),
    ({"items": [{"name": "a", "count": 2.5}]}, "items[0].count: expected integer, got 2.5"),
    ({"items": [{"name": "a", "count": True}]}, "items[0].count: expected integer, got true"),
    ({}, "arguments: 'items' is missing"),
    ({"itms": []}, "arguments: 'items' is missing\narguments: unknown 'itms', did you mean 'items'?"),
    ({"items": [], "zzz": 1}, "arguments: unknown 'zzz'"),
    ({"items": [{"nme": "a", "name": "b"}]}, "items[0]: unknown 'nme', did you mean 'name'?"),
    ({"items": [], "kind": "medium"}, 'kind: expected one of "fast", "slow", got "medium"'),
    (
        {"items": [], "when": "yesterday"},
        'when: expected text in the format date-time such as 2024-01-31T10:30:00Z, got "yesterday"',
    ),
    ({"items": [], "when": 5}, "when: expected string or null, got 5"),
    ({"items": [], "size": "x"}, 'size: expected integer or array, got "x"'),
    ({"items": [], "size": [1, "x"]}, 'size[1]: expected integer, got "x"'),
    ({"items": [], "extra": {"count": "x"}}, "extra: 'name' is missing\nextra.count: expected integer, got \"x\""),
    (
        {"items": [{"name": number} for number in range(9)]},
        "\n".join(f"items[{number}].name: expected string, got {number}" for number in range(5)) + "\nand more",
    ),
    ({"items": "x" * 500}, 'items: expected array, got "' + "x" * 119 + "…"),
]


@pytest.mark.parametrize(("value", "message"), FAULTS, ids=[message[:40] or "fine" for _, message in FAULTS])
def test_every_fault_is_reported_with_its_path(value: dict[str, Any], message: str) -> None:
    parsed = order.parse(value)
    faults = parsed.message.splitlines() if isinstance(parsed, InvalidArguments) else []
    assert sorted(faults) == sorted(message.splitlines())


def test_parsed_arguments_are_plain_data_with_a_description_of_repairs() -> None:
    raw = '{"items": [{"name": "a",}], "when": "2024-01-02T03:04:05Z"}'
    assert order.parse(raw) == ParsedArguments(
        {"items": [{"name": "a"}], "when": "2024-01-02T03:04:05Z"}, "trailing comma removed"
    )


def test_an_empty_text_means_no_arguments_where_none_are_required() -> None:
    assert nothing.parse("") == ParsedArguments({}, "empty text read as {}")
    assert nothing.parse("{}") == ParsedArguments({})
    parsed = order.parse(" ")
    assert isinstance(parsed, InvalidArguments)
    assert "they are empty" in parsed.message


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("[]", "an array"),
        ('"a"', "text"),
        ("null", "null"),
        ("1", "a number"),
        ("true", "a boolean"),
        ([1], "an array"),
    ],
)
def test_arguments_that_are_not_an_object_are_an_error(raw: Any, message: str) -> None:
    assert nothing.parse(raw) == InvalidArguments(f"the arguments must be one JSON object, got {message}")


def test_data_that_is_not_json_is_an_error() -> None:
    assert isinstance(nothing.parse({"a": object()}), InvalidArguments)
    assert isinstance(nothing.parse(b"{}"), InvalidArguments)  # type: ignore[arg-type]  # hooks are programs of strangers


class TestNullForLeftOut:
    """Strict models write every member; null means an absent one."""

    def test_a_null_at_the_top_is_removed(self) -> None:
        parsed = order.parse({"items": [], "kind": None, "when": None, "size": None})
        assert parsed == ParsedArguments({"items": [], "when": None})

    def test_a_null_in_a_nested_object_is_removed(self) -> None:
        parsed = order.parse(
            {"items": [{"name": "a", "count": None, "note": None}], "extra": {"name": "b", "count": None}}
        )
        assert parsed == ParsedArguments({"items": [{"name": "a", "note": None}], "extra": {"name": "b"}})

    def test_a_null_for_a_required_member_stays(self) -> None:
        parsed = order.parse({"items": [{"name": None}]})
        assert parsed == InvalidArguments("items[0].name: expected string, got null")

    async def test_the_default_applies_to_a_null(self) -> None:
        parsed = order.parse({"items": [{"name": "a", "count": None}], "kind": None})
        assert isinstance(parsed, ParsedArguments)
        assert await order.call(FakeContext(), parsed.value) == "[Item(name='a', count=1, note=None)] fast None 1"

    @pytest.mark.parametrize(
        ("part", "value", "expected"),
        [
            ({}, None, {"a": None}),
            (True, None, {"a": None}),
            (False, None, {}),
            ({"type": "integer"}, None, {}),
            ({"type": ["integer", "null"]}, None, {"a": None}),
            ({"enum": [1, None]}, None, {"a": None}),
            ({"enum": [1]}, None, {}),
            ({"const": None}, None, {"a": None}),
            ({"const": 1}, None, {}),
            ({"oneOf": [{"type": "null"}, {"type": "string"}]}, None, {"a": None}),
            ({"$ref": "#/$defs/n"}, None, {}),
            ({"$ref": "#/$defs/loop"}, None, {"a": None}),
            ({"type": "array", "prefixItems": [{"$ref": "#/$defs/o"}]}, [{"b": None}, 5], {"a": [{}, 5]}),
            ({"type": "array", "items": {"$ref": "#/$defs/o"}}, [{"b": None}], {"a": [{}]}),
            ({"type": "object", "additionalProperties": {"$ref": "#/$defs/o"}}, {"x": {"b": None}}, {"a": {"x": {}}}),
            ({"anyOf": [{"$ref": "#/$defs/o"}, {"type": "array"}]}, {"b": None}, {"a": {}}),
            (
                {"anyOf": [{"$ref": "#/$defs/o"}, {"type": "array", "items": {"$ref": "#/$defs/o"}}]},
                [{"b": None}],
                {"a": [{}]},
            ),
            ({"anyOf": [{"$ref": "#/$defs/t1"}, {"$ref": "#/$defs/t2"}]}, {"k": "2", "b": None}, {"a": {"k": "2"}}),
            ({"anyOf": [{"$ref": "#/$defs/o"}, {"$ref": "#/$defs/t3"}]}, {"b": None}, {"a": {"b": None}}),
        ],
    )
    def test_a_null_is_removed_only_where_the_schema_does_not_admit_null(
        self, part: Any, value: Any, expected: Any
    ) -> None:
        closed = {"type": "object", "additionalProperties": False}
        number = {"type": "integer"}
        defs = {
            "n": number,
            "loop": {"$ref": "#/$defs/loop"},
            "o": {**closed, "properties": {"b": number}},
            "t1": {
                **closed,
                "properties": {"k": {"const": "1"}, "b": {"type": ["integer", "null"]}},
                "required": ["k"],
            },
            "t2": {**closed, "properties": {"k": {"enum": ["2"]}, "b": number}, "required": ["k"]},
            "t3": {**closed, "properties": {"b": {"type": ["null", "string"]}, "c": True}},
        }
        schema = {"type": "object", "properties": {"a": part}, "$defs": defs}
        assert ArgumentReader(schema).read({"a": value}) == ParsedArguments(expected)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "strin"}}},
        {"type": "object", "properties": 5},
        {"type": "object", "anyOf": 5},
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "#/$defs/nowhere"},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"$schema": "http://example.com/own"},
    ],
    ids=str,
)
def test_an_invalid_schema_is_invalid_arguments_not_an_exception(schema: dict[str, Any]) -> None:
    parsed = ArgumentReader(schema).read({"a": 1})
    assert isinstance(parsed, InvalidArguments)
    assert parsed.message.startswith("this tool cannot be called: not a usable JSON Schema")


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ({"minimum": 3}, 1, "a: 1 is less than the minimum of 3"),
        ({"const": 3}, 1, "a: expected 3, got 1"),
        ({"pattern": "^x$"}, "y", 'a: expected text that matches ^x$, got "y"'),
        ({"format": "email"}, "y", 'a: expected text in the format email, got "y"'),
        ({"format": "time"}, "9:00", 'a: expected text in the format time such as 10:30:00, got "9:00"'),
        ({"format": "byte"}, "*", 'a: expected text in the format byte such as aGVsbG8=, got "*"'),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            1,
            "a: 1 is valid under more than one of the schemas listed in the 'oneOf' keyword",
        ),
        (
            {"anyOf": [{"minimum": 3}, {"maximum": 1}]},
            2,
            "a: expected 2 is less than the minimum of 3 or 2 is greater than the maximum of 1, got 2",
        ),
        ({"unevaluatedProperties": False}, {"x": 1}, "a: unknown 'x'"),
    ],
)
def test_faults_of_all_keywords_are_described(part: dict[str, Any], value: Any, message: str) -> None:
    assert ArgumentReader({"type": "object", "properties": {"a": part}}).read({"a": value}) == InvalidArguments(message)


def test_a_schema_of_an_older_draft_is_read_as_that_draft() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"type": "array", "items": [{"type": "string"}]}},
    }
    assert ArgumentReader(schema).read({"a": [1]}) == InvalidArguments("a[0]: expected string, got 1")
