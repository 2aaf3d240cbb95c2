"""Schemas in the dialects of OpenAI and Gemini: they accept the same values, or there is no such form."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs
import pytest
from inline_snapshot import snapshot

from vaka.models.schemas import MAX_NODES, inline_references, strict_schema
from vaka.tools import tool


def object_schema(required: "list[str] | None" = None, /, **parts: Any) -> dict[str, Any]:
    return {"type": "object", "properties": parts, "required": [*parts] if required is None else required}


def test_a_plain_object_is_closed_and_keeps_its_words() -> None:
    schema = object_schema(city={"type": "string", "title": "City", "description": "Where."}, days={"type": "integer"})
    assert strict_schema(schema) == snapshot(
        {
            "type": "object",
            "required": ["city", "days"],
            "properties": {"city": {"type": "string", "description": "Where."}, "days": {"type": "integer"}},
            "additionalProperties": False,
        }
    )


def test_the_given_schema_stays_as_it_was() -> None:
    schema = object_schema(a=object_schema(b={"type": "array", "items": object_schema(c={"type": "null"})}))
    before = repr(schema)
    assert strict_schema(schema) is not None
    assert repr(schema) == before


def test_lists_unions_references_and_recursion_are_followed_all_the_way_down() -> None:
    tree = object_schema(children={"type": "array", "items": {"$ref": "#/$defs/Tree"}}, kind={"const": "tree"})
    root = {"$ref": "#/$defs/Tree", "description": "The root."}
    schema = object_schema(tree=root, size={"anyOf": [{"type": "null"}, object_schema(x={"enum": [1, 2]})]})
    assert strict_schema({**schema, "$defs": {"Tree": tree}}) == snapshot(
        {
            "type": "object",
            "required": ["tree", "size"],
            "properties": {
                "tree": {"anyOf": [{"$ref": "#/$defs/Tree"}], "description": "The root."},
                "size": {
                    "anyOf": [
                        {"type": "null"},
                        {
                            "type": "object",
                            "required": ["x"],
                            "properties": {"x": {"enum": [1, 2], "type": "integer"}},
                            "additionalProperties": False,
                        },
                    ]
                },
            },
            "additionalProperties": False,
            "$defs": {
                "Tree": {
                    "type": "object",
                    "required": ["children", "kind"],
                    "properties": {
                        "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
                        "kind": {"const": "tree", "type": "string"},
                    },
                    "additionalProperties": False,
                }
            },
        }
    )


def test_a_tagged_choice_and_a_single_allof_become_anyof() -> None:
    one = {
        "oneOf": [object_schema(kind={"const": "a"}), object_schema(kind={"const": "b"})],
        "discriminator": {"propertyName": "kind"},
    }
    made = strict_schema(object_schema(pet=one, same={"allOf": [{"type": "string"}]}, mixed={"enum": ["a", None]}))
    assert made is not None
    assert [*made["properties"]["pet"]] == ["anyOf"]
    assert made["properties"]["same"] == {"anyOf": [{"type": "string"}]}
    assert made["properties"]["mixed"] == {"enum": ["a", None], "type": ["string", "null"]}


def test_keywords_without_an_equivalent_go_into_the_description() -> None:
    made = strict_schema(
        object_schema(data={"type": "string", "contentEncoding": "base64"}, path={"type": "string", "format": "path"})
    )
    assert made is not None
    assert made["properties"] == {
        "data": {"type": "string", "description": "Encoded as base64."},
        "path": {"type": "string"},
    }


def test_every_tool_that_calls_itself_strict_has_a_strict_form() -> None:
    @dataclass
    class Point:
        x: int
        y: int | None = None

    @tool
    def everything(
        city: str,
        kind: Literal["a", 1] = "a",
        where: Point | None = None,
        when: datetime | None = None,
        sizes: list[list[int]] = [],  # noqa: B006 - never changed
        path: Path = Path("x"),
        data: bytes = b"",
    ) -> None:
        """Take everything."""

    @tool
    def loose(rest: dict[str, int]) -> None:
        """Take what cannot be said strictly."""

    made = strict_schema(everything.spec.parameters, nullable=True)
    assert everything.spec.strict
    assert made is not None
    assert made["required"] == ["city", "kind", "where", "when", "sizes", "path", "data"]
    assert not loose.spec.strict
    assert strict_schema(loose.spec.parameters, nullable=True) is None


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"anyOf": [object_schema(a={"type": "string"})]},
        {"type": "object", "anyOf": []},
        object_schema([], a={"type": "string"}),
        {**object_schema(a={"type": "string"}), "additionalProperties": True},
        {**object_schema(a={"type": "string"}), "additionalProperties": {"type": "integer"}},
        {**object_schema(a={"type": "string"}), "minProperties": 1},
        object_schema(["b"], a={"type": "string"}),
        object_schema(a={}),
        object_schema(a=True),
        object_schema(a={"type": "object"}),
        object_schema(a={"type": "array"}),
        object_schema(a={"type": ["array", "null"]}),
        object_schema(a={"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}),
        object_schema(a={"type": "string", "items": {"type": "string"}}),
        object_schema(a={"type": "string", "minLength": 1}),
        object_schema(a={"type": "string", "format": "color"}),
        object_schema(a={"type": "string", "properties": {}}),
        object_schema(a={"oneOf": [{"type": "string"}, {"type": "integer"}]}),
        object_schema(a={"allOf": [{"type": "string"}, {"type": "string"}]}),
        object_schema(a={"anyOf": [{"type": "string"}], "oneOf": [{"type": "string"}]}),
        object_schema(a={"anyOf": "x"}),
        object_schema(a={"not": {"type": "string"}}),
        object_schema(a={"enum": []}),
        object_schema(a={"$ref": "https://example.com/schema"}),
        object_schema(a={"$ref": "#/$defs/Missing"}),
        object_schema(a={"$ref": "#", "type": "object"}),
        object_schema(a={"type": "string", "$defs": {}}),
        {**object_schema(a={"type": "string"}), "$defs": []},
        {**object_schema(), "properties": []},
        {**object_schema(), "required": "a"},
    ],
    ids=repr,
)
def test_schemas_outside_the_dialect_have_no_strict_form(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_too_deep_and_too_many_have_no_strict_form() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(11):
        deep = object_schema(a=deep)
    assert strict_schema(deep) is None
    assert strict_schema(deep["properties"]["a"]) is not None
    wide = {f"p{number}": {"type": "string"} for number in range(5001)}
    assert strict_schema(object_schema(**wide)) is None
    endless: dict[str, Any] = {"type": "string"}
    for _ in range(100_000):
        endless = {"anyOf": [endless]}
    assert strict_schema(object_schema(a=endless)) is None


def test_null_stands_for_an_omitted_member_if_nullable() -> None:
    schema = object_schema(
        ["a"],
        a={"type": "string"},
        b={"type": "integer", "default": 3, "description": "How many."},
        c={"anyOf": [{"type": "string"}, {"type": "null"}]},
        d={"enum": ["x"], "default": "x"},
    )
    assert strict_schema(schema) is None
    assert strict_schema(schema, nullable=True) == snapshot(
        {
            "type": "object",
            "required": ["a", "b", "c", "d"],
            "properties": {
                "a": {"type": "string"},
                "b": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "How many. Default: 3."},
                "c": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "d": {"anyOf": [{"enum": ["x"], "type": "string"}, {"type": "null"}], "description": 'Default: "x".'},
            },
            "additionalProperties": False,
        }
    )


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"name": "x", "sizes": [1]}, True),
        ({"name": "x", "sizes": []}, True),
        ({"name": 1, "sizes": [1]}, False),
        ({"name": "x"}, False),
        ({"name": "x", "sizes": [0]}, False),
    ],
)
def test_a_value_fits_the_strict_form_just_when_it_fits_the_schema(value: Any, fits: bool) -> None:
    schema = object_schema(
        name={"type": "string", "examples": ["y"]}, sizes={"type": "array", "items": {"type": "integer", "minimum": 1}}
    )
    made = strict_schema(schema)
    assert made is not None
    assert [jsonschema_rs.is_valid(one, value) for one in (schema, made)] == [fits, fits]


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
