"""From JSON data to the Python values an annotation asks for."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from types import NoneType
from typing import Any

import msgspec

from vaka.tools.schema.json_types import (
    MISSING,
    PATH_TYPES,
    AliasType,
    AnnotatedType,
    AnyType,
    ArrayType,
    EnumType,
    JsonType,
    MappingType,
    PydanticType,
    RecordType,
    ScalarType,
    TupleType,
    TypeMember,
    UnionType,
    is_array,
    is_object,
    unwrap_type,
)


class TypeMismatch(ValueError):
    """A value that is not of its shape."""


def convert(json_type: JsonType, value: Any) -> Any:
    """Return the Python value that JSON data stands for; raise what the type raises when it refuses it."""
    return _CONVERTERS[type(json_type)](json_type, value)


def convert_members(parts: tuple[TypeMember, ...], value: dict[str, Any]) -> dict[str, Any]:
    """Return the members that are there, converted, under their Python names."""
    found: dict[str, Any] = {}
    for part in parts:
        if part.name in value:
            found[part.attribute] = convert(part.json_type, value[part.name])
        elif part.absent is not MISSING:
            found[part.attribute] = part.absent
        elif part.required:
            raise TypeMismatch(f"{part.name!r} is missing")
    return found


def _convert_scalar(json_type: ScalarType, value: Any) -> Any:
    found = _convert_plain(json_type.kind, value)
    return found if json_type.make is None else json_type.make(found)


def _convert_plain(kind: Any, value: Any) -> Any:
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is Decimal and isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(repr(value))
    if kind in PATH_TYPES:
        return kind(_convert_plain(str, value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in {str, int, float, bool, NoneType} and type(value) is kind:
        return value
    return msgspec.convert(value, kind)


def _convert_enum(json_type: EnumType, value: Any) -> Any:
    for plain, found in json_type.values:
        if plain == value and isinstance(plain, bool) is isinstance(value, bool):
            return found
    raise TypeMismatch(f"{value!r} is not one of {', '.join(repr(plain) for plain, _ in json_type.values)}")


def _convert_array(json_type: ArrayType, value: Any) -> Any:
    if not is_array(value):
        raise TypeMismatch(f"expected an array, got {value!r}")
    return json_type.make([convert(json_type.item, item) for item in value])


def _convert_tuple(json_type: TupleType, value: Any) -> Any:
    if not is_array(value) or not json_type.min_length <= len(value) <= len(json_type.items):
        raise TypeMismatch(f"expected an array of {len(json_type.items)}, got {value!r}")
    return json_type.make([convert(part, item) for part, item in zip(json_type.items, value, strict=False)])


def _convert_mapping(json_type: MappingType, value: Any) -> Any:
    if not is_object(value):
        raise TypeMismatch(f"expected an object, got {value!r}")
    return json_type.make(
        {_convert_key(json_type.key, key): convert(json_type.value, item) for key, item in value.items()}
    )


def _convert_key(json_type: JsonType, key: str) -> Any:
    json_type = unwrap_type(json_type)
    if isinstance(json_type, EnumType):
        for plain, found in json_type.values:
            if str(plain) == key:
                return found
    return int(key) if isinstance(json_type, ScalarType) and json_type.kind is int else convert(json_type, key)


def _convert_record(json_type: RecordType, value: Any) -> Any:
    if not is_object(value):
        raise TypeMismatch(f"expected an object, got {value!r}")
    known = {part.name for part in json_type.members}
    if json_type.tag is not None:
        tag, expected = json_type.tag
        if value.get(tag) != expected:
            raise TypeMismatch(f"{tag} is not {expected!r}")
        known.add(tag)
    if unknown := value.keys() - known:
        raise TypeMismatch(f"{json_type.name} has no {min(unknown)!r}")
    return json_type.make(**convert_members(json_type.members, value))


def _convert_union(json_type: UnionType, value: Any) -> Any:
    """Convert to the option whose plain type is the value's own, or to the first that takes it."""
    for option in json_type.options:
        inner = unwrap_type(option)
        if isinstance(inner, ScalarType) and inner.kind is type(value) and not isinstance(value, str):
            return convert(option, value)
    for option in json_type.options:
        try:
            return convert(option, value)
        except (ValueError, TypeError, ArithmeticError, LookupError):
            continue
    raise TypeMismatch(f"{value!r} is none of what it may be")


def _convert_pydantic(json_type: PydanticType, value: Any) -> Any:
    try:
        return json_type.adapter.validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise TypeMismatch("; ".join(_pydantic_errors(error))) from error


def _pydantic_errors(error: Any) -> Iterator[str]:
    """What pydantic found, without its links and without what was sent."""
    if not hasattr(error, "errors"):  # raised on the way there
        yield str(error)
        return
    for fault in error.errors(include_url=False, include_input=False):
        path = ".".join(str(step) for step in fault["loc"])
        yield f"{path}: {fault['msg']}" if path else fault["msg"]


_CONVERTERS: dict[type, Callable[[Any, Any], Any]] = {
    AnyType: lambda _, value: value,
    ScalarType: _convert_scalar,
    EnumType: _convert_enum,
    ArrayType: _convert_array,
    TupleType: _convert_tuple,
    MappingType: _convert_mapping,
    RecordType: _convert_record,
    UnionType: _convert_union,
    PydanticType: _convert_pydantic,
    AliasType: lambda shape, value: convert(shape.target, value),
    AnnotatedType: lambda shape, value: convert(shape.inner, value),
}
