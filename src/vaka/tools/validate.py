"""Validate values against a JSON Schema, with errors that a model can act on."""

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.keywords import find_near_names
from vaka.tools.schema.json_types import is_object

MAX_ERRORS = 5

_MAX_LENGTH = 120


class _SchemaError(Protocol):
    """The attributes used of a validation error of jsonschema-rs."""

    message: str
    schema_path: list[str | int]
    instance_path: list[str | int]
    instance: Any
    kind: Any


SchemaCheck: TypeAlias = Callable[[Any], Iterator[_SchemaError]]


class Validator:
    """Validates values against one schema, which is compiled on first use."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self._check: SchemaCheck | None = None

    def compile(self) -> SchemaCheck:
        """Return the compiled schema; raise ``InvalidInput`` for an invalid schema."""
        if self._check is None:
            self._check = _compile_schema(self.schema)
        return self._check

    def find_faults(self, value: Any) -> list[str]:
        """Return the errors of a value, at most ``MAX_ERRORS``, each with its path."""
        faults: list[str] = []
        check = self._check or self.compile()
        for error in check(value):
            for fault in _relevant_errors(error):
                if len(faults) == MAX_ERRORS:
                    return [*faults, "and more"]
                faults.append(f"{format_path(fault.instance_path)}: {_describe_error(fault, self.schema)}")
        return faults


def _compile_schema(schema: dict[str, Any]) -> SchemaCheck:
    import jsonschema_rs  # noqa: PLC0415 - heavy; a program that never calls a tool does not need it

    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True, formats=_FORMATS).iter_errors
    except ValueError as error:
        raise InvalidInput(f"not a usable JSON Schema: {str(error).partition(chr(10))[0]}") from error


def _format_checker(kind: type) -> Callable[[str], bool]:
    """Return a check that accepts exactly the text that can be converted to ``kind`` later."""

    def check(text: str) -> bool:
        try:
            msgspec.convert(text, kind)
        except msgspec.ValidationError:
            return False
        return True

    return check


_EXAMPLES: dict[str, tuple[type, str]] = {
    "date-time": (datetime, "2024-01-31T10:30:00Z"),
    "date": (date, "2024-01-31"),
    "time": (time, "10:30:00"),
    "duration": (timedelta, "PT1H30M"),
    "uuid": (UUID, "123e4567-e89b-12d3-a456-426614174000"),
    "byte": (bytes, "aGVsbG8="),
}
_FORMATS = {name: _format_checker(kind) for name, (kind, _) in _EXAMPLES.items()}


def format_path(path: Iterable[str | int]) -> str:
    """Return a path written like ``items[2].name``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.lstrip(".") or "arguments"


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return ``, did you mean …?`` when a known name is close, else ``""``."""
    close = find_near_names(name, list(known), 1, 0.6)
    return f", did you mean {close[0]!r}?" if close else ""


def _describe_error(error: _SchemaError, schema: dict[str, Any]) -> str:
    name = error.kind.name
    if name == "required":
        return f"{error.kind.property!r} is missing"
    if name in {"additionalProperties", "unevaluatedProperties"}:
        known = _subschema_at(schema, error.schema_path[:-1]).get("properties", ())
        return "; ".join(f"unknown {extra!r}{suggest_name(extra, known)}" for extra in error.kind.unexpected)
    expected = _describe_expected(error)
    return f"{expected}, got {_format_value(error.instance)}" if expected else shorten(error.message)


def _subschema_at(schema: Any, path: Iterable[str | int]) -> dict[str, Any]:
    for step in path:
        schema = schema[step]
    return schema if is_object(schema) else {}


def _relevant_errors(error: _SchemaError) -> Iterator[_SchemaError]:
    """Yield an error; for a union, the errors of the option that the value most likely means."""
    branches: list[list[_SchemaError]] = getattr(error.kind, "context", [])
    candidates = [
        branch for branch in branches if branch and not any(_rules_out_option(fault, error) for fault in branch)
    ]
    if len(candidates) != 1:
        yield error
        return
    for fault in candidates[0]:
        yield from _relevant_errors(fault)


def _rules_out_option(fault: _SchemaError, union: _SchemaError) -> bool:
    """Return whether a fault shows that an option of a union was not meant: another type or another tag."""
    deeper = len(fault.instance_path) - len(union.instance_path)
    if fault.kind.name == "type":
        return deeper == 0
    single = fault.kind.name == "enum" and len(fault.kind.options) == 1
    return (deeper == 0 and fault.kind.name == "enum") or (deeper <= 1 and (single or fault.kind.name == "const"))


def _describe_expected(error: _SchemaError) -> str:
    describe = _EXPECTED.get(error.kind.name)
    return f"expected {text}" if describe and (text := describe(error.kind)) else ""


def _describe_alternatives(kind: Any) -> str:
    """Return what the options of a union expect, each once; ``""`` when several options match ``oneOf``."""
    wanted = dict[str, None]()
    for branch in filter(None, kind.context):
        faults = [_describe_expected(error).removeprefix("expected ") or shorten(error.message) for error in branch]
        wanted[" and ".join(faults[:2])] = None
    return " or ".join(wanted)


def _describe_format(kind: Any) -> str:
    example = f" such as {_EXAMPLES[kind.format][1]}" if kind.format in _EXAMPLES else ""
    return f"text in the format {kind.format}{example}"


_EXPECTED: dict[str, Callable[[Any], str]] = {
    "type": lambda kind: " or ".join(kind.types),
    "enum": lambda kind: f"one of {', '.join(map(_format_value, kind.options))}",
    "const": lambda kind: _format_value(kind.expected_value),
    "format": _describe_format,
    "pattern": lambda kind: f"text that matches {kind.pattern}",
    "anyOf": _describe_alternatives,
    "oneOf": _describe_alternatives,
}


def _format_value(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False))


def shorten(text: str, most: int = _MAX_LENGTH) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
