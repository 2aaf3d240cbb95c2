"""The strict dialect of OpenAI's JSON Schema: what a model cannot step out of. Pure.

In it every member is required, nothing else may come, and few keywords exist. Where that would rule out what a schema
admits, or admit what it rules out, there is no strict form, and the schema is better sent as it is.
"""

from typing import Any, TypeGuard

import msgspec

DEPTH = 10
PROPERTIES = 5000
FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

_COPIED = frozenset({
    "type", "enum", "const", "description", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minItems", "maxItems",
})  # fmt: skip
_REMARKS = frozenset({  # they rule nothing out, so that nothing is lost with them
    "title", "default", "examples", "$comment", "$schema", "$id", "deprecated", "readOnly", "writeOnly",
    "discriminator", "contentEncoding", "contentMediaType",
})  # fmt: skip
_MADE = frozenset({"properties", "required", "additionalProperties", "items", "anyOf", "oneOf", "allOf", "$ref"})
_KINDS: dict[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object", list: "array"
}  # fmt: skip


class _Lossy(Exception):
    """There is no strict form; never leaves this file."""


def strict(schema: dict[str, Any], *, nullable: bool = False) -> dict[str, Any] | None:
    """Return the strict form of ``schema``, or ``None`` when it would change the meaning.

    With ``nullable`` null may stand for a member that is left out, as whoever reads tool calls takes it.
    """
    if schema.get("type") != "object" or schema.keys() & {"anyOf", "oneOf", "allOf", "$ref"}:
        return None
    try:
        work = _Work(schema, nullable=nullable)
        made = work.convert(schema, 0)
        defined = {name: work.convert(part, 0) for name, part in work.definitions.items()}
    except (_Lossy, RecursionError):
        return None
    if work.properties > PROPERTIES:
        return None
    return {**made, "$defs": defined} if defined else made


class _Work:
    def __init__(self, root: dict[str, Any], *, nullable: bool) -> None:
        self.root, self.nullable = root, nullable
        self.definitions = _object(root.get("$defs", {}))
        self.properties = 0

    def convert(self, schema: Any, depth: int) -> dict[str, Any]:
        schema = _object(schema)
        if depth > DEPTH:
            raise _Lossy
        new = {name: value for name, value in schema.items() if self._copied(name, value, schema)}
        if schema.get("contentEncoding"):
            new["description"] = _said(new.get("description"), f"Encoded as {schema['contentEncoding']}.")
        options = _options(schema)
        if options:
            new["anyOf"] = [self.convert(option, depth) for option in options]
        elif "$ref" in schema:
            return self._reference(schema["$ref"], new)
        elif "type" not in new:
            new["type"] = _kind(schema)
        self._inner(new, schema, depth)
        return new

    def _inner(self, new: dict[str, Any], schema: dict[str, Any], depth: int) -> None:
        kinds = schema.get("type")
        if kinds == "array" or (_is_list(kinds) and "array" in kinds):
            new["items"] = self.convert(schema.get("items"), depth + 1)
        elif "items" in schema:
            raise _Lossy
        if kinds == "object" or (_is_list(kinds) and "object" in kinds):
            self._members(new, schema, depth)
        elif schema.keys() & {"properties", "required", "additionalProperties"}:
            raise _Lossy

    def _copied(self, name: str, value: Any, schema: dict[str, Any]) -> bool:
        if name in _COPIED or (name == "format" and value in FORMATS):
            return True
        if name in _REMARKS or name in _MADE or (name == "$defs" and schema is self.root):
            return False
        if name == "format" and value == "path":  # any text is one
            return False
        raise _Lossy

    def _reference(self, ref: Any, new: dict[str, Any]) -> dict[str, Any]:
        """A reference stands alone in the dialect: words about it go around it."""
        known = ref == "#" or (isinstance(ref, str) and ref.removeprefix("#/$defs/") in self.definitions)
        if not known or new.keys() - {"description"}:
            raise _Lossy
        return {"anyOf": [{"$ref": ref}], **new} if new else {"$ref": ref}

    def _members(self, new: dict[str, Any], schema: dict[str, Any], depth: int) -> None:
        parts = _object(schema.get("properties", {}))
        free = schema.get("additionalProperties", not parts and depth > 0)
        required = schema.get("required", [])
        if free is not False or not _is_list(required) or set(required) - parts.keys():
            raise _Lossy
        self.properties += len(parts)
        new["properties"] = {
            name: self._member(part, depth + 1, left_out=name not in required) for name, part in parts.items()
        }
        new["required"] = list(parts)
        new["additionalProperties"] = False

    def _member(self, schema: Any, depth: int, *, left_out: bool) -> dict[str, Any]:
        new = self.convert(schema, depth)
        if not left_out:
            return new
        if not self.nullable:
            raise _Lossy
        words = _said(new.pop("description", ""), _default(schema))
        options = new["anyOf"] if new.keys() == {"anyOf"} else [new]
        has_null = any(option.get("type") == "null" for option in options)
        return {"anyOf": options if has_null else [*options, {"type": "null"}]} | (
            {"description": words} if words else {}
        )


def _options(schema: dict[str, Any]) -> list[Any]:
    """Return what a value may be one of; alternatives that exclude each other only where a tag tells them apart."""
    found = [name for name in ("anyOf", "oneOf", "allOf") if name in schema]
    if not found:
        return []
    options = schema[found[0]]
    several = not _is_list(options) or (found == ["allOf"] and len(options) != 1)
    if len(found) > 1 or several or "$ref" in schema or (found == ["oneOf"] and "discriminator" not in schema):
        raise _Lossy
    return list(options)


def _kind(schema: dict[str, Any]) -> str | list[str]:
    """Return the type of the only values there are: the dialect wants it said."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not _is_list(values) or not values or not all(type(value) in _KINDS for value in values):
        raise _Lossy  # any value at all: the dialect has no word for it
    kinds = list(dict.fromkeys(_KINDS[type(value)] for value in values))
    return kinds if len(kinds) > 1 else kinds[0]


def _said(*words: Any) -> str:
    """Say in words what the dialect has no keyword for."""
    return " ".join(word for word in words if isinstance(word, str) and word)


def _default(schema: Any) -> str:
    value = _object(schema).get("default")
    return "" if value is None else f"Default: {msgspec.json.encode(value).decode()}."


def _object(value: Any) -> dict[str, Any]:
    if not _is_object(value):
        raise _Lossy
    return value


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list | tuple)
