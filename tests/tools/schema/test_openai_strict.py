"""The strict dialect: its conversion, its losses and its warnings."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import annotated_types as at
import jsonschema
import msgspec
import pytest
from pydantic import BaseModel, Field

from vaka.core.types.tool import ParsedArguments
from vaka.tools import strict_schema, tool
from vaka.tools.schema.json_schema import map_subschemas


@dataclass
class Inner:
    """Something inside."""

    name: str
    size: Annotated[int, at.Ge(1)] = 1
    rest: "list[Inner]" = field(default_factory=list)


class Cat(msgspec.Struct, tag="cat"):
    lives: int = 9


class Dog(msgspec.Struct, tag="dog"):
    good: bool


class Round(BaseModel):
    kind: Literal["round"]
    radius: float


class Flat(BaseModel):
    kind: Literal["flat"]


@tool
def everything(
    inner: Annotated[Inner, "Said outside."],
    pet: Cat | Dog,
    shape: Annotated[Round | Flat, Field(discriminator="kind")],
    kind: Literal["a", "b"] = "a",
    when: datetime | None = None,
    path: Path = Path("x"),
    data: bytes = b"",
    amount: int | Decimal = 1,
    other: Inner | None = None,
    lists: list[list[int]] = [],  # noqa: B006 - never changed
    one: Literal[1] = 1,
) -> None:
    """Take everything that can be said strictly."""


def all_subschemas(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a schema and all its subschemas."""
    subschemas: list[dict[str, Any]] = []

    def visit(part: Any) -> Any:
        if isinstance(part, dict):
            subschemas.append(part)
            map_subschemas(part, visit)
        return part

    visit(schema)
    return subschemas


def test_the_strict_dialect_is_followed_in_all_subschemas() -> None:
    strict = strict_schema(everything.spec.parameters)
    assert everything.spec.strict
    assert strict.lossless
    for part in all_subschemas(strict.schema):
        assert not part.keys() & {"default", "title", "oneOf", "discriminator", "contentEncoding", "prefixItems"}
        assert part.keys() & {"type", "anyOf", "$ref"}
        if "$ref" in part:
            assert list(part) == ["$ref"]
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
    assert set(strict.schema["$defs"]) >= {"Inner", "Cat", "Dog"}


def test_optional_members_become_nullable() -> None:
    properties = strict_schema(everything.spec.parameters).schema["properties"]
    assert properties["kind"] == {"type": ["string", "null"], "enum": ["a", "b", None], "description": 'Default: "a".'}
    assert properties["when"] == {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}
    assert properties["inner"] == {"anyOf": [{"$ref": "#/$defs/Inner"}], "description": "Said outside."}
    assert properties["data"] == {"type": ["string", "null"], "description": 'Encoded as base64. Default: "".'}
    assert properties["other"] == {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]}


def test_dropped_keywords_are_warnings() -> None:
    warnings = strict_schema(everything.spec.parameters).warnings
    assert "arguments.path: 'format' is not supported and was left out" in warnings
    assert "arguments.pet: 'discriminator' is not supported and was left out" in warnings


FULL = {
    "inner": {"name": "a"},
    "pet": {"type": "cat"},
    "shape": {"kind": "flat"},
}
STRICT = {
    "inner": {"name": "a", "size": None, "rest": None},
    "pet": {"type": "cat", "lives": None},
    "shape": {"kind": "flat"},
    **dict.fromkeys(["kind", "when", "path", "data", "amount", "other", "lists", "one"]),
}


def test_a_null_of_a_strict_model_is_read_as_an_absent_member() -> None:
    jsonschema.validate(STRICT, strict_schema(everything.spec.parameters).schema)
    assert everything.parse(STRICT) == ParsedArguments({**FULL, "when": None, "other": None})


LOSSY: list[tuple[Any, str]] = [
    ({"type": "string", "minLength": 1}, "arguments.a: 'minLength' is not supported and was left out"),
    ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "'uniqueItems'"),
    ({"type": "array", "prefixItems": [{"type": "string"}]}, "'prefixItems'"),
    ({"type": "array"}, "arguments.a[]: any value is allowed"),
    ({}, "arguments.a: any value is allowed"),
    (True, "arguments.a: any value is allowed"),
    ({"type": "object"}, "arguments.a: other members are allowed"),
    ({"type": "object", "additionalProperties": {"type": "string"}}, "arguments.a: other members are allowed"),
    ({"properties": {"b": {"type": "string"}}, "additionalProperties": True, "type": "object"}, "other members"),
    ({"type": "string", "format": "color"}, "'format'"),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "'oneOf' became 'anyOf'"),
    ({"allOf": [{"type": "string"}, {"type": "string"}]}, "'allOf'"),
    ({"type": "string", "not": {"enum": ["x"]}}, "'not'"),
]


@pytest.mark.parametrize(("part", "warning"), LOSSY, ids=[warning for _, warning in LOSSY])
def test_a_keyword_the_dialect_cannot_express_is_a_loss(part: Any, warning: str) -> None:
    strict = strict_schema({"type": "object", "properties": {"a": part}, "required": ["a"]})
    assert not strict.lossless
    assert any(warning in other for other in strict.warnings)


LOSSLESS: list[tuple[Any, Any]] = [
    ({"type": "string", "title": "A", "examples": ["b"]}, {"type": ["string", "null"]}),
    (
        {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        {
            "type": ["object", "null"],
            "properties": {"b": {"type": "string"}},
            "required": ["b"],
            "additionalProperties": False,
        },
    ),
    ({"allOf": [{"$ref": "#/$defs/x"}]}, {"anyOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]}),
    ({"const": 1, "description": "D."}, {"anyOf": [{"const": 1}, {"type": "null"}], "description": "D."}),
    ({"enum": ["a"]}, {"anyOf": [{"enum": ["a"]}, {"type": "null"}]}),
    ({"type": ["string", "null"], "enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a", None]}),
    ({"anyOf": [{"type": ["string", "null"]}]}, {"anyOf": [{"type": ["string", "null"]}]}),
]


@pytest.mark.parametrize(("part", "expected"), LOSSLESS, ids=[str(part) for part, _ in LOSSLESS])
def test_a_dropped_annotation_keyword_is_not_a_loss(part: Any, expected: Any) -> None:
    strict = strict_schema({"type": "object", "properties": {"a": part}, "$defs": {"x": {"type": "string"}}})
    assert strict.lossless
    assert strict.schema["properties"]["a"] == expected


def test_exceeding_a_limit_of_the_dialect_is_a_loss() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(12):
        deep = {"type": "array", "items": deep}
    assert not strict_schema({"type": "object", "properties": {"a": deep}}).lossless
    wide = {f"p{number}": {"type": "string"} for number in range(5001)}
    assert not strict_schema({"type": "object", "properties": wide}).lossless
    assert not strict_schema({"anyOf": [{"type": "object"}]}).lossless
    assert strict_schema({"type": "object", "properties": {}}).lossless


def test_a_tool_is_strict_only_without_loss() -> None:
    @tool
    def loose(table: dict[str, int]) -> None:
        """Take a table."""

    assert not loose.spec.strict
