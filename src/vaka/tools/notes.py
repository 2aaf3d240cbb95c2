"""What ``Annotated`` adds to a type: words and bounds, from whichever library they come."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from vaka.tools.shape import PATHS, Alias, Either, Items, Noted, Scalar, Shape, Table, Unsupported
from vaka.tools.values import is_array, is_object

_NUMBER = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_STRING = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
_ARRAY = {"min_length": "minItems", "max_length": "maxItems"}
_OBJECT = {"min_length": "minProperties", "max_length": "maxProperties"}
_BOUNDS = (*_NUMBER, *_STRING)
NUMERIC = frozenset(_NUMBER.values())


@dataclass(slots=True)
class Notes:
    """What metadata said."""

    description: str = ""
    bounds: dict[str, Any] = field(default_factory=dict[str, Any])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


def read(metadata: Iterable[Any]) -> Notes:
    """Return what metadata says; objects are known by their attributes, so no library needs to be there."""
    notes = Notes()
    for item in metadata:
        _read(item, notes)
    return notes


def _read(item: Any, notes: Notes) -> None:
    if isinstance(item, str):
        notes.description = notes.description or item
        return
    if isinstance(item, type):
        return
    for words in (getattr(item, "description", None), getattr(item, "documentation", None)):
        if isinstance(words, str):
            notes.description = notes.description or words
    for name in _BOUNDS:
        value = getattr(item, name, None)
        if value is None or (name == "min_length" and value == 0):
            continue
        notes.bounds[name] = getattr(value, "pattern", value)
    _read_extra(item, notes)
    inner: Any = getattr(item, "metadata", None)
    if is_array(inner):
        for part in inner:
            _read(part, notes)


def _read_extra(item: Any, notes: Notes) -> None:
    for name in ("title", "examples"):
        value: Any = getattr(item, name, None)
        if isinstance(value, str | list) and value:
            notes.extra[name] = value
    for name in ("extra_json_schema", "json_schema_extra"):
        value = getattr(item, name, None)
        if is_object(value):
            notes.extra.update(value)


def annotate(shape: Shape, notes: Notes) -> Shape:
    """Return the shape with bounds and words on it; a bound that cannot apply is an error."""
    words = {"description": notes.description} if notes.description else {}
    shape = constrain(shape, notes.bounds)
    keywords = words | notes.extra
    return Noted(shape, keywords) if keywords else shape


def constrain(shape: Shape, bounds: dict[str, Any]) -> Shape:
    """Return the shape within bounds; each must apply to it, or to one option of a union."""
    if not bounds:
        return shape
    bounded, applied = _apply(shape, bounds)
    if left := [name for name in bounds if name not in applied]:
        raise Unsupported(f"the bound {left[0]!r} does not apply to this type")
    return bounded


def _apply(shape: Shape, bounds: dict[str, Any]) -> tuple[Shape, set[str]]:
    if isinstance(shape, Alias) and not shape.recursive:
        return _apply(shape.target, bounds)
    if isinstance(shape, Either):
        pairs = [_apply(option, bounds) for option in shape.options]
        return Either(tuple(option for option, _ in pairs)), {name for _, names in pairs for name in names}
    words = _words(shape)
    keywords = {words[name]: _checked(name, value) for name, value in bounds.items() if name in words}
    return (Noted(shape, keywords) if keywords else shape), {name for name in bounds if name in words}


def _words(shape: Shape) -> dict[str, str]:
    while isinstance(shape, Noted):
        shape = shape.shape
    if isinstance(shape, Scalar):
        if shape.kind in {int, float, Decimal}:
            return _NUMBER
        return _STRING if shape.kind is str or shape.kind in PATHS else {}
    if isinstance(shape, Items):
        return _ARRAY
    return _OBJECT if isinstance(shape, Table) else {}


def _checked(name: str, value: Any) -> Any:
    if name == "pattern":
        try:
            re.compile(value)
        except (re.error, TypeError) as error:
            raise Unsupported(f"the pattern {value!r} is not a regular expression: {error}") from error
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unsupported(f"the bound {name!r} must be a number, not {value!r}")
    return value
