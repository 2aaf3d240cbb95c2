"""From JSON data to the Python values an annotation asks for."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from types import NoneType
from typing import Any

import msgspec

from vaka.tools.shape import (
    MISSING,
    PATHS,
    Alias,
    Anything,
    Choice,
    Either,
    Fixed,
    Foreign,
    Items,
    Member,
    Noted,
    Record,
    Scalar,
    Shape,
    Table,
    bare,
)
from vaka.tools.values import is_array, is_object


class Mismatch(ValueError):
    """A value that is not of its shape."""


def convert(shape: Shape, value: Any) -> Any:
    """Return the Python value that JSON data stands for; raise what the type raises when it refuses it."""
    return _CONVERT[type(shape)](shape, value)


def members(parts: tuple[Member, ...], value: dict[str, Any]) -> dict[str, Any]:
    """Return the members that are there, converted, under their Python names."""
    found: dict[str, Any] = {}
    for part in parts:
        if part.name in value:
            found[part.attribute] = convert(part.shape, value[part.name])
        elif part.absent is not MISSING:
            found[part.attribute] = part.absent
        elif part.required:
            raise Mismatch(f"{part.name!r} is missing")
    return found


def _scalar(shape: Scalar, value: Any) -> Any:
    found = _plain(shape.kind, value)
    return found if shape.make is None else shape.make(found)


def _plain(kind: Any, value: Any) -> Any:
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is Decimal and isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(repr(value))
    if kind in PATHS:
        return kind(_plain(str, value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in {str, int, float, bool, NoneType} and type(value) is kind:
        return value
    return msgspec.convert(value, kind)


def _choice(shape: Choice, value: Any) -> Any:
    for plain, found in shape.values:
        if plain == value and isinstance(plain, bool) is isinstance(value, bool):
            return found
    raise Mismatch(f"{value!r} is not one of {', '.join(repr(plain) for plain, _ in shape.values)}")


def _items(shape: Items, value: Any) -> Any:
    if not is_array(value):
        raise Mismatch(f"expected an array, got {value!r}")
    return shape.make([convert(shape.item, item) for item in value])


def _fixed(shape: Fixed, value: Any) -> Any:
    if not is_array(value) or not shape.least <= len(value) <= len(shape.items):
        raise Mismatch(f"expected an array of {len(shape.items)}, got {value!r}")
    return shape.make([convert(part, item) for part, item in zip(shape.items, value, strict=False)])


def _table(shape: Table, value: Any) -> Any:
    if not is_object(value):
        raise Mismatch(f"expected an object, got {value!r}")
    return shape.make({_key(shape.key, key): convert(shape.value, item) for key, item in value.items()})


def _key(shape: Shape, key: str) -> Any:
    shape = bare(shape)
    if isinstance(shape, Choice):
        for plain, found in shape.values:
            if str(plain) == key:
                return found
    return int(key) if isinstance(shape, Scalar) and shape.kind is int else convert(shape, key)


def _record(shape: Record, value: Any) -> Any:
    if not is_object(value):
        raise Mismatch(f"expected an object, got {value!r}")
    known = {part.name for part in shape.members}
    if shape.tag is not None:
        tag, expected = shape.tag
        if value.get(tag) != expected:
            raise Mismatch(f"{tag} is not {expected!r}")
        known.add(tag)
    if unknown := value.keys() - known:
        raise Mismatch(f"{shape.name} has no {min(unknown)!r}")
    return shape.make(**members(shape.members, value))


def _either(shape: Either, value: Any) -> Any:
    """Convert to the option whose plain type is the value's own, or to the first that takes it."""
    for option in shape.options:
        inner = bare(option)
        if isinstance(inner, Scalar) and inner.kind is type(value) and not isinstance(value, str):
            return convert(option, value)
    for option in shape.options:
        try:
            return convert(option, value)
        except (ValueError, TypeError, ArithmeticError, LookupError):
            continue
    raise Mismatch(f"{value!r} is none of what it may be")


def _foreign(shape: Foreign, value: Any) -> Any:
    try:
        return shape.adapter.validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise Mismatch("; ".join(_faults(error))) from error


def _faults(error: Any) -> Iterator[str]:
    """What pydantic found, without its links and without what was sent."""
    if not hasattr(error, "errors"):  # raised on the way there
        yield str(error)
        return
    for fault in error.errors(include_url=False, include_input=False):
        path = ".".join(str(step) for step in fault["loc"])
        yield f"{path}: {fault['msg']}" if path else fault["msg"]


_CONVERT: dict[type, Callable[[Any, Any], Any]] = {
    Anything: lambda _, value: value,
    Scalar: _scalar,
    Choice: _choice,
    Items: _items,
    Fixed: _fixed,
    Table: _table,
    Record: _record,
    Either: _either,
    Foreign: _foreign,
    Alias: lambda shape, value: convert(shape.target, value),
    Noted: lambda shape, value: convert(shape.shape, value),
}
