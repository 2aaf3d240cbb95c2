"""The types JSON can express, the constraints that ``Annotated`` adds to them, and type guards for JSON values."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import NoneType
from typing import Any, TypeAlias, TypeGuard
from uuid import UUID


class UnsupportedType(Exception):
    """An annotation that JSON cannot express; the message names the alternatives."""


class _Missing:
    """The absence of a default."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()

SCALAR_TYPES: frozenset[type] = frozenset({
    str, int, float, bool, NoneType, datetime, date, time, timedelta, UUID, bytes, Decimal,
    Path, PurePath, PurePosixPath, PureWindowsPath,
})  # fmt: skip

PATH_TYPES: frozenset[type] = frozenset({Path, PurePath, PurePosixPath, PureWindowsPath})


@dataclass(frozen=True, slots=True)
class AnyType:
    """Any JSON value, passed on unchanged."""


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One of ``SCALAR_TYPES``; ``make`` is the subclass to build, if any."""

    kind: type
    make: type | None = None


@dataclass(frozen=True, slots=True)
class EnumType:
    """An enumeration: pairs of a JSON value and its Python value."""

    values: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array with items of one type."""

    item: "JsonType"
    make: Callable[[list[Any]], Any] = list
    unique: bool = False


@dataclass(frozen=True, slots=True)
class TupleType:
    """An array with one item of each type, in order; at least ``min_length`` of them."""

    items: tuple["JsonType", ...]
    min_length: int
    make: Callable[[list[Any]], Any] = tuple
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MappingType:
    """An object with arbitrary keys."""

    key: "JsonType"
    value: "JsonType"
    make: Callable[[dict[Any, Any]], Any] = dict


@dataclass(frozen=True, slots=True)
class TypeMember:
    """A member of a record or a parameter of a signature: ``name`` in JSON, ``attribute`` in Python."""

    name: str
    json_type: "JsonType"
    attribute: str
    required: bool = True
    default: Any = MISSING
    description: str = ""
    absent: Any = MISSING
    """The value passed when the member is absent and has no default of its own."""


@dataclass(eq=False, slots=True)
class RecordType:
    """An object with known members, which are filled in later so that a record can contain itself."""

    name: str
    make: Callable[..., Any]
    members: tuple[TypeMember, ...] = ()
    description: str = ""
    tag: tuple[str, str | int] | None = None
    sparse: bool = False
    """Whether a value may lack members."""


@dataclass(frozen=True, slots=True)
class UnionType:
    """A value of any one of several types."""

    options: tuple["JsonType", ...]


@dataclass(frozen=True, slots=True)
class PydanticType:
    """A type whose schema and values come from pydantic."""

    name: str
    adapter: Any


@dataclass(eq=False, slots=True)
class AliasType:
    """A named type whose target is filled in later; ``recursive`` when it contains itself."""

    name: str
    target: "JsonType" = field(default_factory=AnyType)
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class AnnotatedType:
    """A type with more schema keywords: bounds, a description."""

    inner: "JsonType"
    keywords: dict[str, Any]


JsonType: TypeAlias = (
    AnyType | ScalarType | EnumType | ArrayType | TupleType | MappingType | RecordType | UnionType | PydanticType
    | AliasType | AnnotatedType
)  # fmt: skip


def first_line_of(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def is_null(json_type: JsonType) -> bool:
    return isinstance(json_type, ScalarType) and json_type.kind is NoneType


def unwrap_type(json_type: JsonType) -> JsonType:
    """Return the type inside annotations and aliases."""
    while isinstance(json_type, AnnotatedType | AliasType):
        json_type = json_type.inner if isinstance(json_type, AnnotatedType) else json_type.target
    return json_type


def is_optional(json_type: JsonType) -> bool:
    """Return whether a type is null or a union with null."""
    inner = unwrap_type(json_type)
    return is_null(inner) or (isinstance(inner, UnionType) and any(is_optional(option) for option in inner.options))


def flatten_unions(options: Iterator[JsonType]) -> Iterator[JsonType]:
    """Yield options, with the options of inner unions in place of the union."""
    for option in options:
        if isinstance(option, UnionType):
            yield from option.options
        else:
            yield option


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


_NUMBER_BOUNDS = {
    "ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum", "multiple_of": "multipleOf",
}  # fmt: skip
_STRING_BOUNDS = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
_ARRAY_BOUNDS = {"min_length": "minItems", "max_length": "maxItems"}
_OBJECT_BOUNDS = {"min_length": "minProperties", "max_length": "maxProperties"}
_BOUND_NAMES = (*_NUMBER_BOUNDS, *_STRING_BOUNDS)
NUMERIC_KEYWORDS = frozenset(_NUMBER_BOUNDS.values())


@dataclass(slots=True)
class TypeMetadata:
    """The description, bounds and extra keywords found in ``Annotated`` metadata."""

    description: str = ""
    bounds: dict[str, Any] = field(default_factory=dict[str, Any])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


def read_metadata(metadata: Iterable[Any]) -> TypeMetadata:
    """Read metadata. Objects are recognized by their attributes, so no library needs to be imported."""
    notes = TypeMetadata()
    for item in metadata:
        _read_metadata_item(item, notes)
    return notes


def _read_metadata_item(item: Any, metadata: TypeMetadata) -> None:
    if isinstance(item, str):
        metadata.description = metadata.description or item
        return
    if isinstance(item, type):
        return
    for text in (getattr(item, "description", None), getattr(item, "documentation", None)):
        if isinstance(text, str):
            metadata.description = metadata.description or text
    for name in _BOUND_NAMES:
        value = getattr(item, name, None)
        if value is None or (name == "min_length" and value == 0):
            continue
        metadata.bounds[name] = getattr(value, "pattern", value)
    _read_extra_keywords(item, metadata)
    inner: Any = getattr(item, "metadata", None)
    if is_array(inner):
        for part in inner:
            _read_metadata_item(part, metadata)


def _read_extra_keywords(item: Any, metadata: TypeMetadata) -> None:
    for name in ("title", "examples"):
        value: Any = getattr(item, name, None)
        if isinstance(value, str | list) and value:
            metadata.extra[name] = value
    for name in ("extra_json_schema", "json_schema_extra"):
        value = getattr(item, name, None)
        if is_object(value):
            metadata.extra.update(value)


def apply_metadata(json_type: JsonType, metadata: TypeMetadata) -> JsonType:
    """Return the type with bounds and description; raise ``UnsupportedType`` for a bound that does not apply."""
    json_type = apply_bounds(json_type, metadata.bounds)
    keywords = ({"description": metadata.description} if metadata.description else {}) | metadata.extra
    return AnnotatedType(json_type, keywords) if keywords else json_type


def apply_bounds(json_type: JsonType, bounds: dict[str, Any]) -> JsonType:
    """Return the type within bounds; each bound must apply to it, or to an option of a union."""
    if not bounds:
        return json_type
    bounded, applied = _bound_type(json_type, bounds)
    if left := [name for name in bounds if name not in applied]:
        raise UnsupportedType(f"the bound {left[0]!r} does not apply to this type")
    return bounded


def _bound_type(json_type: JsonType, bounds: dict[str, Any]) -> tuple[JsonType, set[str]]:
    if isinstance(json_type, AliasType) and not json_type.recursive:
        return _bound_type(json_type.target, bounds)
    if isinstance(json_type, UnionType):
        pairs = [_bound_type(option, bounds) for option in json_type.options]
        return UnionType(tuple(option for option, _ in pairs)), {name for _, names in pairs for name in names}
    names = _bound_keywords_of(json_type)
    keywords = {names[name]: _check_bound(name, value) for name, value in bounds.items() if name in names}
    return (AnnotatedType(json_type, keywords) if keywords else json_type), names.keys() & bounds.keys()


def _bound_keywords_of(json_type: JsonType) -> dict[str, str]:
    while isinstance(json_type, AnnotatedType):
        json_type = json_type.inner
    if isinstance(json_type, ScalarType):
        if json_type.kind in {int, float, Decimal}:
            return _NUMBER_BOUNDS
        return _STRING_BOUNDS if json_type.kind is str or json_type.kind in PATH_TYPES else {}
    if isinstance(json_type, ArrayType):
        return _ARRAY_BOUNDS
    return _OBJECT_BOUNDS if isinstance(json_type, MappingType) else {}


def _check_bound(name: str, value: Any) -> Any:
    if name == "pattern":
        try:
            re.compile(value)
        except (re.error, TypeError) as error:
            raise UnsupportedType(f"the pattern {value!r} is not a regular expression: {error}") from error
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnsupportedType(f"the bound {name!r} must be a number, not {value!r}")
    return value
