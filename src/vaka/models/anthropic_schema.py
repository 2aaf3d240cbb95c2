"""The shape of an answer in the words that Anthropic's models can be held to. Pure.

Every object is closed there, and few keywords exist; what cannot be held to is said in the description, so that the
model may still follow it. Whoever reads the answer checks it against the whole schema anyway.
"""

from typing import Any, cast

import msgspec

FORMATS = frozenset({
    "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid",
})  # fmt: skip
DEPTH = 32

_SAME = ("type", "enum", "const", "description", "title")
_REMARKS = frozenset({"$schema", "$id", "$comment", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"})
_GROUPS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_MADE = frozenset({"$defs", "definitions", "$ref", "properties", "required", "additionalProperties", "items", *_GROUPS})


class _Open(Exception):
    """The schema admits what a closed one cannot say; never leaves this file."""


def closed(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the form of ``schema`` a model can be held to, or ``None`` when answers would be lost with it.

    That is so for maps with free keys, for values of any kind, and for a schema that contains itself.
    """
    try:
        return _convert(schema, schema, ())
    except _Open:
        return None


def _convert(schema: Any, root: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    given = _object(schema)
    if "$ref" in given:
        return _referred(given, root, inside)
    if len(inside) > DEPTH:
        raise _Open
    new: dict[str, Any] = {name: given[name] for name in _SAME if name in given}
    deeper = (*inside, "")
    for name, written in _GROUPS.items():
        if name in given:
            new[written] = [_convert(option, root, deeper) for option in cast("list[Any]", given[name])]
    if not new.keys() & {"type", "enum", "const", "anyOf", "allOf"}:
        raise _Open
    kinds = given.get("type")
    if _is(kinds, "object"):
        _members(new, given, root, deeper)
    if _is(kinds, "array"):
        new["items"] = _convert(given.get("items"), root, deeper)
    _remark(new, given)
    return new


def _referred(given: dict[str, Any], root: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    """Put what is referred to in its place: one form for every way of writing it."""
    path = given["$ref"]
    if not isinstance(path, str) or not path.startswith("#/") or path in inside:
        raise _Open
    found: Any = root
    for step in path[2:].split("/"):
        found = _object(found).get(step.replace("~1", "/").replace("~0", "~"))
    around = {name: value for name, value in given.items() if name != "$ref"}
    return _convert({**_object(found), **around}, root, (*inside, path))


def _members(new: dict[str, Any], given: dict[str, Any], root: dict[str, Any], inside: tuple[str, ...]) -> None:
    parts = _object(given.get("properties", {}))
    free = given.get("additionalProperties", not parts)
    if free is not False:
        raise _Open
    new["properties"] = {name: _convert(part, root, inside) for name, part in parts.items()}
    if "required" in given:
        new["required"] = given["required"]
    new["additionalProperties"] = False


def _remark(new: dict[str, Any], given: dict[str, Any]) -> None:
    """Say in words what there is no keyword for."""
    left = {
        name: value
        for name, value in given.items()
        if name not in _SAME and name not in _MADE and name not in _REMARKS and not _kept(new, name, value)
    }
    if left:
        words = ", ".join(f"{name}: {msgspec.json.encode(value).decode()}" for name, value in left.items())
        new["description"] = f"{new['description']} ({words})" if new.get("description") else f"({words})"


def _kept(new: dict[str, Any], name: str, value: Any) -> bool:
    if (name == "format" and value in FORMATS) or (name == "minItems" and value in (0, 1)):
        new[name] = value
        return True
    return False


def _is(kinds: Any, kind: str) -> bool:
    return kinds == kind or (isinstance(kinds, list) and kind in kinds)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Open
    return cast("dict[str, Any]", value)
