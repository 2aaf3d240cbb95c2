"""Convert a JSON Schema to OpenAI's strict dialect, or return None where that would change its meaning. Pure."""

from typing import Any, TypeGuard

import msgspec

MAX_DEPTH = 10
MAX_PROPERTIES = 5000
STRING_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

_COPIED_KEYWORDS = frozenset({
    "type", "enum", "const", "description", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minItems", "maxItems",
})  # fmt: skip
_ANNOTATION_KEYWORDS = frozenset({  # they rule nothing out, so that nothing is lost with them
    "title", "default", "examples", "$comment", "$schema", "$id", "deprecated", "readOnly", "writeOnly",
    "discriminator", "contentEncoding", "contentMediaType",
})  # fmt: skip
_CONVERTED_KEYWORDS = frozenset(
    {"properties", "required", "additionalProperties", "items", "anyOf", "oneOf", "allOf", "$ref"}
)
_TYPE_NAMES: dict[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object", list: "array"
}  # fmt: skip


class _NoStrictForm(Exception):
    """There is no strict form; never leaves this file."""


def strict_schema(schema: dict[str, Any], *, nullable: bool = False) -> dict[str, Any] | None:
    """Return the strict form of ``schema``, or ``None`` when it would change the meaning.

    With ``nullable`` null may stand for a member that is left out, as whoever reads tool calls takes it.
    """
    if schema.get("type") != "object" or schema.keys() & {"anyOf", "oneOf", "allOf", "$ref"}:
        return None
    try:
        work = _StrictConverter(schema, nullable=nullable)
        made = work.convert(schema, 0)
        defined = {name: work.convert(part, 0) for name, part in work.definitions.items()}
    except (_NoStrictForm, RecursionError):
        return None
    if work.properties > MAX_PROPERTIES:
        return None
    return {**made, "$defs": defined} if defined else made


class _StrictConverter:
    def __init__(self, root: dict[str, Any], *, nullable: bool) -> None:
        self.root, self.nullable = root, nullable
        self.definitions = _expect_object(root.get("$defs", {}))
        self.properties = 0

    def convert(self, schema: Any, depth: int) -> dict[str, Any]:
        schema = _expect_object(schema)
        if depth > MAX_DEPTH:
            raise _NoStrictForm
        new = {name: value for name, value in schema.items() if self._is_copied(name, value, schema)}
        if schema.get("contentEncoding"):
            new["description"] = _join_sentences(new.get("description"), f"Encoded as {schema['contentEncoding']}.")
        options = _alternatives_of(schema)
        if options:
            new["anyOf"] = [self.convert(option, depth) for option in options]
        elif "$ref" in schema:
            return self._convert_reference(schema["$ref"], new)
        elif "type" not in new:
            new["type"] = _type_of_values(schema)
        self._convert_children(new, schema, depth)
        return new

    def _convert_children(self, new: dict[str, Any], schema: dict[str, Any], depth: int) -> None:
        kinds = schema.get("type")
        if kinds == "array" or (_is_list(kinds) and "array" in kinds):
            new["items"] = self.convert(schema.get("items"), depth + 1)
        elif "items" in schema:
            raise _NoStrictForm
        if kinds == "object" or (_is_list(kinds) and "object" in kinds):
            self._convert_properties(new, schema, depth)
        elif schema.keys() & {"properties", "required", "additionalProperties"}:
            raise _NoStrictForm

    def _is_copied(self, name: str, value: Any, schema: dict[str, Any]) -> bool:
        if name in _COPIED_KEYWORDS or (name == "format" and value in STRING_FORMATS):
            return True
        if name in _ANNOTATION_KEYWORDS or name in _CONVERTED_KEYWORDS or (name == "$defs" and schema is self.root):
            return False
        if name == "format" and value == "path":  # any text is one
            return False
        raise _NoStrictForm

    def _convert_reference(self, ref: Any, new: dict[str, Any]) -> dict[str, Any]:
        """A reference stands alone in the dialect: words about it go around it."""
        known = ref == "#" or (isinstance(ref, str) and ref.removeprefix("#/$defs/") in self.definitions)
        if not known or new.keys() - {"description"}:
            raise _NoStrictForm
        return {"anyOf": [{"$ref": ref}], **new} if new else {"$ref": ref}

    def _convert_properties(self, new: dict[str, Any], schema: dict[str, Any], depth: int) -> None:
        parts = _expect_object(schema.get("properties", {}))
        free = schema.get("additionalProperties", not parts and depth > 0)
        required = schema.get("required", [])
        if free is not False or not _is_list(required) or set(required) - parts.keys():
            raise _NoStrictForm
        self.properties += len(parts)
        new["properties"] = {
            name: self._convert_property(part, depth + 1, optional=name not in required) for name, part in parts.items()
        }
        new["required"] = list(parts)
        new["additionalProperties"] = False

    def _convert_property(self, schema: Any, depth: int, *, optional: bool) -> dict[str, Any]:
        new = self.convert(schema, depth)
        if not optional:
            return new
        if not self.nullable:
            raise _NoStrictForm
        words = _join_sentences(new.pop("description", ""), _describe_default(schema))
        options = new["anyOf"] if new.keys() == {"anyOf"} else [new]
        has_null = any(option.get("type") == "null" for option in options)
        return {"anyOf": options if has_null else [*options, {"type": "null"}]} | (
            {"description": words} if words else {}
        )


def _alternatives_of(schema: dict[str, Any]) -> list[Any]:
    """Return what a value may be one of; alternatives that exclude each other only where a tag tells them apart."""
    found = [name for name in ("anyOf", "oneOf", "allOf") if name in schema]
    if not found:
        return []
    options = schema[found[0]]
    several = not _is_list(options) or (found == ["allOf"] and len(options) != 1)
    if len(found) > 1 or several or "$ref" in schema or (found == ["oneOf"] and "discriminator" not in schema):
        raise _NoStrictForm
    return list(options)


def _type_of_values(schema: dict[str, Any]) -> str | list[str]:
    """Return the type of the only values there are: the dialect wants it said."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not _is_list(values) or not values or not all(type(value) in _TYPE_NAMES for value in values):
        raise _NoStrictForm  # any value at all: the dialect has no word for it
    kinds = list(dict.fromkeys(_TYPE_NAMES[type(value)] for value in values))
    return kinds if len(kinds) > 1 else kinds[0]


def _join_sentences(*words: Any) -> str:
    """Say in words what the dialect has no keyword for."""
    return " ".join(word for word in words if isinstance(word, str) and word)


def _describe_default(schema: Any) -> str:
    value = _expect_object(schema).get("default")
    return "" if value is None else f"Default: {msgspec.json.encode(value).decode()}."


def _expect_object(value: Any) -> dict[str, Any]:
    if not _is_object(value):
        raise _NoStrictForm
    return value


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list | tuple)
