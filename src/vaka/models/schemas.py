"""Convert a JSON Schema to OpenAI's strict dialect, or return None where that would change its meaning. Pure."""

from typing import Any

import msgspec

from vaka.models.json_values import is_list, is_object

MAX_DEPTH = 10
MAX_PROPERTIES = 5000
STRING_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

_COPIED_KEYWORDS = frozenset({
    "type", "enum", "const", "description", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minItems", "maxItems",
})  # fmt: skip
_HANDLED_KEYWORDS = frozenset({  # annotations, which forbid no value, and the keywords that are converted
    "title", "default", "examples", "$comment", "$schema", "$id", "deprecated", "readOnly", "writeOnly",
    "discriminator", "contentEncoding", "contentMediaType", "properties", "required", "additionalProperties", "items",
    "anyOf", "oneOf", "allOf", "$ref",
})  # fmt: skip
_TYPE_NAMES: dict[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object", list: "array"
}  # fmt: skip


class _NoStrictForm(Exception):
    """The schema has no strict form; never leaves this file."""


def strict_schema(schema: dict[str, Any], *, nullable: bool = False) -> dict[str, Any] | None:
    """Return the strict form of ``schema``, or ``None`` when it would change the meaning.

    With ``nullable``, null stands for an omitted member, as readers of tool calls accept it.
    """
    if schema.get("type") != "object" or schema.keys() & {"anyOf", "oneOf", "allOf", "$ref"}:
        return None
    try:
        converter = _StrictConverter(schema, nullable=nullable)
        strict = converter.convert(schema, 0)
        definitions = {name: converter.convert(part, 0) for name, part in converter.definitions.items()}
    except (_NoStrictForm, RecursionError):
        return None
    if converter.properties > MAX_PROPERTIES:
        return None
    return {**strict, "$defs": definitions} if definitions else strict


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
        types: Any = schema.get("type")
        types = types if is_list(types) else [types]
        if "array" in types:
            new["items"] = self.convert(schema.get("items"), depth + 1)
        elif "items" in schema:
            raise _NoStrictForm
        if "object" in types:
            self._convert_properties(new, schema, depth)
        elif schema.keys() & {"properties", "required", "additionalProperties"}:
            raise _NoStrictForm

    def _is_copied(self, name: str, value: Any, schema: dict[str, Any]) -> bool:
        if name in _COPIED_KEYWORDS or (name == "format" and value in STRING_FORMATS):
            return True
        handled = name in _HANDLED_KEYWORDS or (name == "$defs" and schema is self.root)
        if not handled and not (name == "format" and value == "path"):  # any text is a path
            raise _NoStrictForm
        return False

    def _convert_reference(self, ref: Any, new: dict[str, Any]) -> dict[str, Any]:
        """Return a reference, which has no keywords beside it in the dialect: a description goes around it."""
        known = ref == "#" or (isinstance(ref, str) and ref.removeprefix("#/$defs/") in self.definitions)
        if not known or new.keys() - {"description"}:
            raise _NoStrictForm
        return {"anyOf": [{"$ref": ref}], **new} if new else {"$ref": ref}

    def _convert_properties(self, new: dict[str, Any], schema: dict[str, Any], depth: int) -> None:
        parts = _expect_object(schema.get("properties", {}))
        additional = schema.get("additionalProperties", not parts and depth > 0)
        required = schema.get("required", [])
        if additional is not False or not is_list(required) or set(required) - parts.keys():
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
        default = schema.get("default")
        note = "" if default is None else f"Default: {msgspec.json.encode(default).decode()}."
        description = _join_sentences(new.pop("description", ""), note)
        options = new["anyOf"] if new.keys() == {"anyOf"} else [new]
        if not any(option.get("type") == "null" for option in options):
            options = [*options, {"type": "null"}]
        return {"anyOf": options} | ({"description": description} if description else {})


def _alternatives_of(schema: dict[str, Any]) -> list[Any]:
    """Return the alternatives of a schema; those of ``oneOf`` need a discriminator, since the dialect has ``anyOf``."""
    names = [name for name in ("anyOf", "oneOf", "allOf") if name in schema]
    if not names:
        return []
    options = schema[names[0]]
    several = not is_list(options) or (names == ["allOf"] and len(options) != 1)
    if len(names) > 1 or several or "$ref" in schema or (names == ["oneOf"] and "discriminator" not in schema):
        raise _NoStrictForm
    return list(options)


def _type_of_values(schema: dict[str, Any]) -> str | list[str]:
    """Return the type of the values of ``enum`` or ``const``, which the dialect requires."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not is_list(values) or not values or not all(type(value) in _TYPE_NAMES for value in values):
        raise _NoStrictForm  # the dialect cannot describe a value of any type
    types = list(dict.fromkeys(_TYPE_NAMES[type(value)] for value in values))
    return types if len(types) > 1 else types[0]


def _join_sentences(*sentences: Any) -> str:
    return " ".join(sentence for sentence in sentences if isinstance(sentence, str) and sentence)


def _expect_object(value: Any) -> dict[str, Any]:
    if not is_object(value):
        raise _NoStrictForm
    return value
