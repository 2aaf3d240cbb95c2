"""Checking JSON data against a schema, with every fault named in words a model can act on."""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.tools.values import is_object

MAX_ERRORS = 5
_LONG = 120


class _Error(Protocol):
    """What is needed of a validation error of jsonschema-rs."""

    message: str
    schema_path: list[str | int]
    instance_path: list[str | int]
    instance: Any
    kind: Any


Check: TypeAlias = Callable[[Any], Iterator[_Error]]


class Validator:
    """Names the faults of values against one schema; the schema is compiled when first needed."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self._check: Check | None = None

    def compile(self) -> Check:
        """Return the compiled schema; raise ``InvalidInput`` when it is not one."""
        if self._check is None:
            self._check = _compiled(self.schema)
        return self._check

    def faults(self, value: Any) -> list[str]:
        """Return what is wrong with a value, at most ``MAX_ERRORS`` sentences, each with its place."""
        faults: list[str] = []
        for error in self.compile()(value):
            for fault in _relevant(error):
                if len(faults) == MAX_ERRORS:
                    return [*faults, "and more"]
                faults.append(f"{place(fault.instance_path)}: {_say(fault, self.schema)}")
        return faults


def _compiled(schema: dict[str, Any]) -> Check:
    import jsonschema_rs  # noqa: PLC0415 - heavy; a program that never calls a tool does not need it

    try:
        return jsonschema_rs.validator_for(schema, validate_formats=True, offline=True, formats=_FORMATS).iter_errors
    except ValueError as error:
        raise InvalidInput(f"not a usable JSON Schema: {str(error).partition(chr(10))[0]}") from error


def _reads_as(kind: type) -> Callable[[str], bool]:
    """What passes as a format is what can be converted later, no more and no less."""

    def check(text: str) -> bool:
        try:
            msgspec.convert(text, kind)
        except msgspec.ValidationError:
            return False
        return True

    return check


_EXAMPLES = {
    "date-time": "2024-01-31T10:30:00Z",
    "date": "2024-01-31",
    "time": "10:30:00",
    "duration": "PT1H30M",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "byte": "aGVsbG8=",
}
_FORMATS = {
    "date-time": _reads_as(datetime),
    "date": _reads_as(date),
    "time": _reads_as(time),
    "duration": _reads_as(timedelta),
    "uuid": _reads_as(UUID),
    "byte": _reads_as(bytes),
}


def place(path: Iterable[str | int]) -> str:
    """Return a path as people write it: ``items[2].name``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.lstrip(".") or "arguments"


def near(name: str, known: Iterable[str]) -> str:
    """Return `` did you mean …?`` when a known name is close, else nothing."""
    found = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f", did you mean {found[0]!r}?" if found else ""


def _say(error: _Error, schema: dict[str, Any]) -> str:
    name = error.kind.name
    if name == "required":
        return f"{error.kind.property!r} is missing"
    if name in {"additionalProperties", "unevaluatedProperties"}:
        known = _at(schema, error.schema_path[:-1]).get("properties", ())
        return "; ".join(f"unknown {extra!r}{near(extra, known)}" for extra in error.kind.unexpected)
    expected = _expected(error)
    return f"{expected}, got {_shown(error.instance)}" if expected else _cut(error.message)


def _at(schema: Any, path: Iterable[str | int]) -> dict[str, Any]:
    """Return the schema that a path leads to."""
    for step in path:
        schema = schema[step]
    return schema if is_object(schema) else {}


def _relevant(error: _Error) -> Iterator[_Error]:
    """Yield an error, or the errors of the one option of a union that the value is meant for."""
    branches: list[list[_Error]] = getattr(error.kind, "context", [])
    meant = [branch for branch in branches if branch and not any(_elsewhere(fault, error) for fault in branch)]
    if len(meant) != 1:
        yield error
        return
    for fault in meant[0]:
        yield from _relevant(fault)


def _elsewhere(fault: _Error, union: _Error) -> bool:
    """Tell whether a fault shows that an option of a union was not meant: another type, another tag."""
    deeper = len(fault.instance_path) - len(union.instance_path)
    if fault.kind.name == "type":
        return deeper == 0
    single = fault.kind.name == "enum" and len(fault.kind.options) == 1
    return (deeper == 0 and fault.kind.name == "enum") or (deeper <= 1 and (single or fault.kind.name == "const"))


def _expected(error: _Error) -> str:
    kind = error.kind
    match kind.name:
        case "type":
            return f"expected {' or '.join(kind.types)}"
        case "enum":
            return f"expected one of {', '.join(_shown(option) for option in kind.options)}"
        case "const":
            return f"expected {_shown(kind.expected_value)}"
        case "format":
            example = _EXAMPLES.get(kind.format)
            return f"expected text in the format {kind.format}" + (f" such as {example}" if example else "")
        case "pattern":
            return f"expected text that matches {kind.pattern}"
        case "anyOf" | "oneOf":
            return _alternatives(kind)
        case _:
            return ""


def _alternatives(kind: Any) -> str:
    """What each option wanted, said once; nothing when several options fit where one should."""
    wanted = dict[str, None]()
    for branch in filter(None, kind.context):
        faults = [_expected(error).removeprefix("expected ") or _cut(error.message) for error in branch]
        wanted[" and ".join(faults[:2])] = None
    return f"expected {' or '.join(wanted)}" if wanted else ""


def _shown(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
