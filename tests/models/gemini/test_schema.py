"""Schemas for Gemini mean what they meant, without references where there need be none."""

from typing import Any

import jsonschema_rs
import pytest

from vaka.models.schemas import MAX_NODES, inline_references

TREE = {
    "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "n": {"type": "integer"}}}},
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node", "description": "The first."}},
}


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        ({"$schema": "x", "type": "object", "title": "T"}, {"type": "object", "title": "T"}),
        (
            {"$defs": {"A": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/A", "description": "d"}}},
            {"properties": {"a": {"type": "string", "description": "d"}}},
        ),
        (
            {
                "definitions": {"a/b": {"items": {"$ref": "#/definitions/c~0d"}}, "c~d": {"type": "null"}},
                "anyOf": [{"$ref": "#/definitions/a~1b"}, {"not": {"$ref": "#/definitions/c~0d"}}],
            },
            {"anyOf": [{"items": {"type": "null"}}, {"not": {"type": "null"}}]},
        ),
        ({"const": 1}, {"enum": [1]}),
        ({"const": 1, "enum": [1, 2]}, {"const": 1, "enum": [1, 2]}),
        ({"items": True, "additionalProperties": True}, {"items": {}, "additionalProperties": True}),
        ({"additionalProperties": {"const": 1}}, {"additionalProperties": {"enum": [1]}}),
        ({"additionalProperties": False}, {"additionalProperties": False}),
        (
            {"properties": {"$ref": {"type": "string"}, "const": {}}},
            {"properties": {"$ref": {"type": "string"}, "const": {}}},
        ),
        (
            {"properties": {"a": {"$ref": "https://x.example/s"}}},
            {"properties": {"a": {"$ref": "https://x.example/s"}}},
        ),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, {"properties": {"a": {"$ref": "#/$defs/none"}}}),
        (
            {"properties": {"a": {"$ref": "#/title/x"}}, "title": "t"},
            {"properties": {"a": {"$ref": "#/title/x"}}, "title": "t"},
        ),
        ({"anyOf": 1, "properties": 2}, {"anyOf": 1, "properties": 2}),
    ],
)
def test_references_are_put_in_their_place(schema: dict[str, Any], made: dict[str, Any]) -> None:
    assert inline_references(schema) == made


def test_a_schema_that_contains_itself_keeps_its_reference_alone_in_its_place() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "n": {"type": "integer"}}}
    assert inline_references(TREE) == {
        "type": "object",
        "properties": {"root": {**node, "description": "The first."}},
        "$defs": {"Node": node},
    }


def test_two_definitions_of_one_name_stay_two() -> None:
    schema = {
        "$defs": {"A": {"properties": {"a": {"$ref": "#/$defs/A"}}}},
        "definitions": {"A": {"items": {"$ref": "#/definitions/A"}}},
        "properties": {"x": {"$ref": "#/$defs/A"}, "y": {"$ref": "#/definitions/A"}, "z": {"$ref": "#"}},
    }
    made = inline_references(schema)
    assert made["$defs"]["A"] == {"properties": {"a": {"$ref": "#/$defs/A"}}}
    assert made["$defs"]["A2"] == {"items": {"$ref": "#/$defs/A2"}}
    assert made["properties"]["z"]["properties"]["z"] == {"$ref": "#/$defs/root"}
    assert sorted(made["$defs"]) == ["A", "A2", "root"]


@pytest.mark.parametrize(
    "value",
    [{}, {"root": {}}, {"root": {"n": 1, "next": {"n": "x"}}}, {"root": {"next": {"next": {"n": 1}}}}, {"root": 1}, []],
)
def test_inlining_does_not_change_which_values_are_valid(value: Any) -> None:
    assert jsonschema_rs.is_valid(inline_references(TREE), value) == jsonschema_rs.is_valid(TREE, value)


def test_a_schema_that_would_become_huge_is_sent_as_it_is() -> None:
    parts: dict[str, Any] = {"L0": {"type": "string"}}
    for level in range(1, 20):
        parts[f"L{level}"] = {"anyOf": [{"$ref": f"#/$defs/L{level - 1}"}] * 4}
    schema = {"$schema": "x", "$defs": parts, "$ref": "#/$defs/L19"}
    assert MAX_NODES < 4**19
    assert inline_references(schema) == {"$defs": parts, "$ref": "#/$defs/L19"}


def test_the_given_schema_is_not_modified() -> None:
    before = str(TREE)
    inline_references(TREE)
    assert str(TREE) == before
