"""The types JSON can express, the constraints that ``Annotated`` adds to them, and the conversion of values.

``convert`` of a type returns JSON data as a Python value of that type; errors of the type's constructor are passed on.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import NoneType
from typing import Any, TypeAlias, TypeGuard
from uuid import UUID

import msgspec


class UnsupportedType(Exception):
    """An annotation that JSON cannot express; the message names the alternatives."""


class TypeMismatch(ValueError):
    """A value that does not fit its type."""


CONVERSION_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, AssertionError, AttributeError)
"""Errors of ``convert`` for a value that does not fit: its own error, or errors of a type's constructor."""


MISSING: Any = object()
"""The absence of a default."""

PATH_TYPES: frozenset[type] = frozenset({Path, PurePath, PurePosixPath, PureWindowsPath})

SCALAR_TYPES: frozenset[type] = PATH_TYPES | {
    str,
    int,
    float,
    bool,
    NoneType,
    datetime,
    date,
    time,
    timedelta,
    UUID,
    bytes,
    Decimal,
}


class AnyType(msgspec.Struct, frozen=True):
    """Any JSON value, passed on unchanged."""

    def convert(self, value: Any) -> Any:
        return value


_JSON_SCALARS = frozenset[type]({str, int, float, bool, NoneType})
"""Types whose values are JSON values."""


class ScalarType(msgspec.Struct, frozen=True):
    """One of ``SCALAR_TYPES``; ``make`` is the subclass to build, if any."""

    kind: type
    make: type | None = None

    def convert(self, value: Any) -> Any:
        exact = type(value) is self.kind and self.kind in _JSON_SCALARS
        plain = value if exact else _convert_scalar(self.kind, value)
        return plain if self.make is None else self.make(plain)


class EnumType(msgspec.Struct, frozen=True):
    """An enumeration: pairs of a JSON value and its Python value."""

    values: tuple[tuple[Any, Any], ...]

    def convert(self, value: Any) -> Any:
        for plain, member in self.values:
            if plain == value and isinstance(plain, bool) is isinstance(value, bool):
                return member
        raise TypeMismatch(f"{value!r} is not one of {', '.join(repr(plain) for plain, _ in self.values)}")


class ArrayType(msgspec.Struct, frozen=True):
    """An array with items of one type."""

    item: "JsonType"
    make: Callable[[list[Any]], Any] = list
    unique: bool = False

    def convert(self, value: Any) -> Any:
        if not is_array(value):
            raise TypeMismatch(f"expected an array, got {value!r}")
        return self.make([self.item.convert(item) for item in value])


class TupleType(msgspec.Struct, frozen=True):
    """An array with one item of each type, in order; at least ``min_length`` of them."""

    items: tuple["JsonType", ...]
    min_length: int
    make: Callable[[list[Any]], Any] = tuple
    names: tuple[str, ...] = ()

    def convert(self, value: Any) -> Any:
        if not is_array(value) or not self.min_length <= len(value) <= len(self.items):
            raise TypeMismatch(f"expected an array of {len(self.items)}, got {value!r}")
        return self.make([part.convert(item) for part, item in zip(self.items, value, strict=False)])


class MappingType(msgspec.Struct, frozen=True):
    """An object with arbitrary keys."""

    key: "JsonType"
    value: "JsonType"
    make: Callable[[dict[Any, Any]], Any] = dict

    def convert(self, value: Any) -> Any:
        if not is_object(value):
            raise TypeMismatch(f"expected an object, got {value!r}")
        return self.make({self._convert_key(key): self.value.convert(item) for key, item in value.items()})

    def _convert_key(self, key: str) -> Any:
        inner = unwrap_type(self.key)
        if isinstance(inner, EnumType):
            for plain, member in inner.values:
                if str(plain) == key:
                    return member
        return int(key) if isinstance(inner, ScalarType) and inner.kind is int else inner.convert(key)


class TypeMember(msgspec.Struct, frozen=True):
    """A member of a record or a parameter of a signature: ``name`` in JSON, ``attribute`` in Python."""

    name: str
    json_type: "JsonType"
    attribute: str
    required: bool = True
    default: Any = MISSING
    description: str = ""
    absent: Any = MISSING
    """The value passed when the member is absent and has no default of its own."""


class RecordType(msgspec.Struct, eq=False):
    """An object with known members, which are filled in later so that a record can contain itself."""

    name: str
    make: Callable[..., Any]
    members: tuple[TypeMember, ...] = ()
    description: str = ""
    tag: tuple[str, str | int] | None = None
    sparse: bool = False
    """Whether a value may lack members."""

    def convert(self, value: Any) -> Any:
        if not is_object(value):
            raise TypeMismatch(f"expected an object, got {value!r}")
        known = {part.name for part in self.members}
        if self.tag is not None:
            tag, expected = self.tag
            if value.get(tag) != expected:
                raise TypeMismatch(f"{tag} is not {expected!r}")
            known.add(tag)
        if unknown := value.keys() - known:
            raise TypeMismatch(f"{self.name} has no {min(unknown)!r}")
        return self.make(**convert_members(self.members, value))


class UnionType(msgspec.Struct, frozen=True):
    """A value of any one of several types."""

    options: tuple["JsonType", ...]

    def convert(self, value: Any) -> Any:
        """Convert to the option whose scalar type is the value's own, or to the first that accepts the value."""
        for option in self.options:
            inner = unwrap_type(option)
            if isinstance(inner, ScalarType) and inner.kind is type(value) and not isinstance(value, str):
                return option.convert(value)
        for option in self.options:
            try:
                return option.convert(value)
            except CONVERSION_ERRORS:
                continue
        raise TypeMismatch(f"{value!r} fits no option of its union type")


class PydanticType(msgspec.Struct, frozen=True):
    """A type whose schema and values come from pydantic."""

    name: str
    adapter: Any

    def convert(self, value: Any) -> Any:
        try:
            return self.adapter.validate_json(msgspec.json.encode(value))
        except ValueError as error:
            raise TypeMismatch("; ".join(_pydantic_errors(error))) from error


class AliasType(msgspec.Struct, eq=False):
    """A named type whose target is filled in later; ``recursive`` when it contains itself."""

    name: str
    target: "JsonType" = AnyType()
    recursive: bool = False

    def convert(self, value: Any) -> Any:
        return self.target.convert(value)


class AnnotatedType(msgspec.Struct, frozen=True):
    """A type with more schema keywords: bounds, a description."""

    inner: "JsonType"
    keywords: dict[str, Any]

    def convert(self, value: Any) -> Any:
        return self.inner.convert(value)


JsonType: TypeAlias = (
    AnyType
    | ScalarType
    | EnumType
    | ArrayType
    | TupleType
    | MappingType
    | RecordType
    | UnionType
    | PydanticType
    | AliasType
    | AnnotatedType
)


def convert_members(members: Iterable[TypeMember], value: dict[str, Any]) -> dict[str, Any]:
    """Return the members present in an object, converted, under their Python names."""
    converted: dict[str, Any] = {}
    for member in members:
        if member.name in value:
            converted[member.attribute] = member.json_type.convert(value[member.name])
        elif member.absent is not MISSING:
            converted[member.attribute] = member.absent
        elif member.required:
            raise TypeMismatch(f"{member.name!r} is missing")
    return converted


def _convert_scalar(kind: Any, value: Any) -> Any:
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is Decimal and isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(repr(value))
    if kind in PATH_TYPES:
        return kind(_convert_scalar(str, value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in _JSON_SCALARS and type(value) is kind:
        return value
    return msgspec.convert(value, kind)


def _pydantic_errors(error: Any) -> Iterator[str]:
    """Yield the errors pydantic reports, without links and without the input."""
    if not hasattr(error, "errors"):  # not a ValidationError of pydantic
        yield str(error)
        return
    for fault in error.errors(include_url=False, include_input=False):
        path = ".".join(str(step) for step in fault["loc"])
        yield f"{path}: {fault['msg']}" if path else fault["msg"]


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


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


_NUMBER_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_STRING_BOUNDS = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
_ARRAY_BOUNDS = {"min_length": "minItems", "max_length": "maxItems"}
_OBJECT_BOUNDS = {"min_length": "minProperties", "max_length": "maxProperties"}
NUMERIC_KEYWORDS = frozenset(_NUMBER_BOUNDS.values())


class TypeMetadata(msgspec.Struct):
    """The description, bounds and extra keywords found in ``Annotated`` metadata."""

    description: str = ""
    bounds: dict[str, Any] = {}
    extra: dict[str, Any] = {}


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
    for name in (*_NUMBER_BOUNDS, *_STRING_BOUNDS):
        value = getattr(item, name, None)
        if value is not None and (name, value) != ("min_length", 0):
            metadata.bounds[name] = getattr(value, "pattern", value)
    _read_extra_keywords(item, metadata)
    inner: Any = getattr(item, "metadata", None)
    for part in inner if is_array(inner) else ():
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
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise UnsupportedType(f"the bound {name!r} must be a number, not {value!r}")
    return float(value) if isinstance(value, Decimal) else value
