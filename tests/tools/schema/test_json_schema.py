"""Schemas from annotations, one rule at a time."""

import collections
import collections.abc
import enum
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Dict, Generic, List, Literal, NewType, Optional, TypeAlias, TypeVar, Union  # noqa: UP035 - people still write them
from uuid import UUID

import annotated_types as at
import msgspec
import pytest
from pydantic import Field, StringConstraints
from typing_extensions import Doc, TypeAliasType

from vaka.core.types.errors import InvalidInput
from vaka.tools import tool


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the schema of one parameter."""

    def function(value: Any) -> None:
        """Take a value."""

    function.__annotations__["value"] = hint
    parameters = tool(function).spec.parameters
    schema: dict[str, Any] = parameters["properties"]["value"]
    return {**schema, **({"$defs": parameters["$defs"]} if "$defs" in parameters else {})}


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    A = 1
    B = "b"
    C = None
    D = 1.5
    E = True


class Odd(enum.Enum):
    A = (1, 2)
    B = (3, 4)


class Slug(str):
    __slots__ = ()


UserId = NewType("UserId", int)
Names: TypeAlias = list[str]
T = TypeVar("T")
B = TypeVar("B", bound=int)
Tree = TypeAliasType("Tree", "dict[str, Tree] | int")
Plain = TypeAliasType("Plain", list[int])
Either = TypeAliasType("Either", T | bool | None, type_params=(T,))
Positive = TypeAliasType("Positive", Annotated[int, at.Ge(1)])
Pair = TypeAliasType("Pair", tuple[T, T], type_params=(T,))

TABLE: list[tuple[Any, dict[str, Any]]] = [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, {"type": "null"}),
    (Any, {}),
    (object, {}),
    (T, {}),
    (B, {"type": "integer"}),
    (UserId, {"type": "integer"}),
    (Names, {"type": "array", "items": {"type": "string"}}),
    (Plain, {"type": "array", "items": {"type": "integer"}}),
    (Slug, {"type": "string"}),
    (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - the older way to write it
    (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007 - the older way to write it
    (UserId | int, {"type": "integer"}),
    (Either[int | str], {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "boolean"}, {"type": "null"}]}),
    (Annotated[Positive, at.Le(5)], {"type": "integer", "minimum": 1, "maximum": 5}),
    (int | Literal["auto"], {"anyOf": [{"type": "integer"}, {"type": "string", "enum": ["auto"]}]}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal["a", 1, True], {"type": ["string", "integer", "boolean"], "enum": ["a", 1, True]}),
    (Literal[Color.RED], {"type": "string", "enum": ["red"]}),
    (Color, {"type": "string", "enum": ["red", "blue"]}),
    (Level, {"type": "integer", "enum": [1, 2]}),
    (
        Mixed,
        {"type": ["integer", "string", "null", "number"], "enum": [1, "b", None, 1.5]},
    ),
    (Odd, {"type": "string", "enum": ["A", "B"]}),
    (list, {"type": "array"}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (List[int], {"type": "array", "items": {"type": "integer"}}),  # noqa: UP006 - the older way to write it
    (collections.abc.Sequence[str], {"type": "array", "items": {"type": "string"}}),
    (collections.abc.Iterable[str], {"type": "array", "items": {"type": "string"}}),
    (collections.deque[str], {"type": "array", "items": {"type": "string"}}),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (frozenset[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (set, {"type": "array", "uniqueItems": True}),
    (tuple, {"type": "array"}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
    ),
    (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
    (
        Pair[int],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "minItems": 2, "maxItems": 2},
    ),
    (dict, {"type": "object", "additionalProperties": True}),
    (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (Dict[str, Any], {"type": "object", "additionalProperties": True}),  # noqa: UP006 - the older way to write it
    (collections.abc.Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (
        dict[int, str],
        {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "propertyNames": {"pattern": "^-?[0-9]{1,20}$"},
        },
    ),
    (
        dict[Color, str],
        {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "propertyNames": {"enum": ["red", "blue"]},
        },
    ),
    (
        dict[Annotated[str, at.MinLen(2)], str],
        {"type": "object", "additionalProperties": {"type": "string"}, "propertyNames": {"minLength": 2}},
    ),
    (datetime, {"type": "string", "format": "date-time"}),
    (date, {"type": "string", "format": "date"}),
    (time, {"type": "string", "format": "time"}),
    (timedelta, {"type": "string", "format": "duration"}),
    (UUID, {"type": "string", "format": "uuid"}),
    (Path, {"type": "string", "format": "path"}),
    (PurePosixPath, {"type": "string", "format": "path"}),
    (bytes, {"type": "string", "contentEncoding": "base64"}),
    (
        Decimal,
        {
            "anyOf": [
                {"type": "number"},
                {"type": "string", "pattern": r"^-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?$"},
            ]
        },
    ),
    (Annotated[Decimal, at.Ge(Decimal(1))], {"type": "number", "minimum": 1.0}),
    (
        Tree,
        {
            "$ref": "#/$defs/Tree",
            "$defs": {
                "Tree": {
                    "anyOf": [
                        {"type": "object", "additionalProperties": {"$ref": "#/$defs/Tree"}},
                        {"type": "integer"},
                    ]
                }
            },
        },
    ),
]


def test_each_type_has_its_schema() -> None:
    rows = [(str(hint), schema_of(hint), expected) for hint, expected in TABLE]
    assert [row for row in rows if row[1] != row[2]] == []


NOTES: list[tuple[Any, dict[str, Any]]] = [
    (Annotated[str, "Words."], {"type": "string", "description": "Words."}),
    (Annotated[str, Doc("Words.")], {"type": "string", "description": "Words."}),
    (Annotated[int, at.Ge(1), at.Lt(9)], {"type": "integer", "minimum": 1, "exclusiveMaximum": 9}),
    (Annotated[int, at.Gt(0), at.Le(9)], {"type": "integer", "exclusiveMinimum": 0, "maximum": 9}),
    (Annotated[int, at.Interval(ge=0, lt=3)], {"type": "integer", "minimum": 0, "exclusiveMaximum": 3}),
    (Annotated[int, at.MultipleOf(3)], {"type": "integer", "multipleOf": 3}),
    (Annotated[str, at.MinLen(1), at.MaxLen(3)], {"type": "string", "minLength": 1, "maxLength": 3}),
    (Annotated[str, at.Len(0, 3)], {"type": "string", "maxLength": 3}),
    (Annotated[Path, at.MinLen(1)], {"type": "string", "format": "path", "minLength": 1}),
    (Annotated[list[int], at.Len(1, 2)], {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}),
    (
        Annotated[dict[str, int], at.MinLen(1)],
        {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
    ),
    (Annotated[int | None, at.Ge(1)], {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}),
    (
        Annotated[int | str, at.Ge(1), at.MinLen(2)],
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "minLength": 2}]},
    ),
    (Annotated[Plain, at.MinLen(1)], {"type": "array", "items": {"type": "integer"}, "minItems": 1}),
    (list[Annotated[int, at.Ge(1)]], {"type": "array", "items": {"type": "integer", "minimum": 1}}),
    (
        Annotated[int, msgspec.Meta(ge=1, description="Count.", title="N", examples=[3])],
        {"type": "integer", "minimum": 1, "description": "Count.", "title": "N", "examples": [3]},
    ),
    (
        Annotated[str, msgspec.Meta(pattern="^a", extra_json_schema={"x-y": 1})],
        {"type": "string", "pattern": "^a", "x-y": 1},
    ),
    (
        Annotated[int, Field(ge=1, description="Count.", json_schema_extra={"x-y": 1})],
        {"type": "integer", "minimum": 1, "description": "Count.", "x-y": 1},
    ),
    (Annotated[str, Field(pattern="^a", max_length=3)], {"type": "string", "pattern": "^a", "maxLength": 3}),
    (Annotated[str, StringConstraints(min_length=2)], {"type": "string", "minLength": 2}),
    (
        Annotated[Annotated[int, at.Ge(1)], at.Le(3), "N."],
        {"type": "integer", "minimum": 1, "maximum": 3, "description": "N."},
    ),
    (Annotated[int, print, int], {"type": "integer"}),
]


@pytest.mark.parametrize(("hint", "expected"), NOTES, ids=[str(hint) for hint, _ in NOTES])
def test_annotated_adds_descriptions_and_bounds_of_every_library(hint: Any, expected: dict[str, Any]) -> None:
    assert schema_of(hint) == expected


class Stranger:
    """A class that is not a record."""


class Bag(Generic[T]):
    """A generic class that is not a record."""


UNSUPPORTED: list[tuple[Any, str]] = [
    (Stranger, "Stranger cannot be read from JSON; use str"),
    (Bag[int], "Bag cannot be read from JSON"),
    (Callable[[], int], "Callable cannot be read from JSON"),
    (complex, "complex cannot be read from JSON"),
    (type[int], "type cannot be read from JSON"),
    (ClassVar[int], "ClassVar cannot be read from JSON"),
    (5, "5 cannot be read from JSON"),
    (Literal[b"x"], "b'x' is not a JSON value"),
    (dict[float, int], "the keys of a JSON object are text"),
    (Annotated[str, at.Ge(1)], "the bound 'ge' does not apply"),
    (Annotated[bool, at.MinLen(1)], "the bound 'min_length' does not apply"),
    (Annotated[datetime, at.Ge(datetime(2024, 1, 1))], "the bound 'ge' does not apply"),  # noqa: DTZ001 - never used as a time
    (Annotated[int, at.Ge("a")], "the bound 'ge' must be a number"),
    (Annotated[str, msgspec.Meta(pattern="a")], ""),
    (Annotated[str, StringConstraints(pattern="(")], "is not a regular expression"),
]


@pytest.mark.parametrize(("hint", "message"), [row for row in UNSUPPORTED if row[1]], ids=lambda value: str(value))
def test_a_type_that_json_cannot_express_is_an_error_with_its_name(hint: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match="tool 'function', parameter 'value'") as caught:
        schema_of(hint)
    assert message in str(caught.value)


def test_defaults_are_copied_when_json_can_express_them() -> None:
    def function(
        number: int = 5,
        text: str = "a",
        color: Color = Color.RED,
        path: Path = Path("a"),
        when: date = date(2024, 1, 2),
        items: list[int] = [1, 2],  # noqa: B006 - never changed
        nothing: int | None = None,
        wrong: int = None,  # type: ignore[assignment]  # people write this  # noqa: RUF013
        sentinel: Any = ...,
        choice: Literal["a"] = None,  # type: ignore[assignment]  # people write this  # noqa: RUF013
        infinite: float = float("inf"),
    ) -> None:
        """Take many."""

    parameters = tool(function).spec.parameters
    defaults = {name: part["default"] for name, part in parameters["properties"].items() if "default" in part}
    assert defaults == {
        "number": 5,
        "text": "a",
        "color": "red",
        "path": "a",
        "when": "2024-01-02",
        "items": [1, 2],
        "nothing": None,
    }
    assert "required" not in parameters


def test_a_nullable_parameter_without_default_is_optional() -> None:
    @tool
    def function(a: int | None, b: int) -> None:
        """Take two."""

    assert function.spec.parameters["required"] == ["b"]
