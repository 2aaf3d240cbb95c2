"""JSON Schemas in three dialects: OpenAI's strict one, Anthropic's closed one, Gemini's without references. Pure."""

from typing import Any

import msgspec

from vaka.models.compatibility import is_list, is_object


class _Unsupported(Exception):
    """The schema has no such form; never leaves this file."""


def resolve_reference(root: dict[str, Any], path: str) -> Any:
    """Return the target of a reference within a document, else ``None``."""
    target: Any = root if path == "#" or path.startswith("#/") else None
    for step in path[2:].split("/") if path != "#" else ():
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if is_object(target) else None
    return target


def _expect_object(value: Any) -> dict[str, Any]:
    if not is_object(value):
        raise _Unsupported
    return value


def _types_of(schema: dict[str, Any]) -> list[Any]:
    types: Any = schema.get("type")
    return types if is_list(types) else [types]


# OpenAI

MAX_STRICT_DEPTH = 10
MAX_PROPERTIES = 5000
_STRICT_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})

_STRICT_KEYWORDS = frozenset(
    {
        "type",
        "enum",
        "const",
        "description",
        "pattern",
        "multipleOf",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minItems",
        "maxItems",
    }
)
_CONVERTED_KEYWORDS = frozenset(
    {  # annotations, which forbid no value, and the keywords that are converted
        "title",
        "default",
        "examples",
        "$comment",
        "$schema",
        "$id",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
        "contentEncoding",
        "contentMediaType",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
    }
)
_TYPE_NAMES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}


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
    except (_Unsupported, RecursionError):
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
        if depth > MAX_STRICT_DEPTH:
            raise _Unsupported
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
        types = _types_of(schema)
        if "array" in types:
            new["items"] = self.convert(schema.get("items"), depth + 1)
        elif "items" in schema:
            raise _Unsupported
        if "object" in types:
            self._convert_properties(new, schema, depth)
        elif schema.keys() & {"properties", "required", "additionalProperties"}:
            raise _Unsupported

    def _is_copied(self, name: str, value: Any, schema: dict[str, Any]) -> bool:
        if name in _STRICT_KEYWORDS or (name == "format" and value in _STRICT_FORMATS):
            return True
        handled = name in _CONVERTED_KEYWORDS or (name == "$defs" and schema is self.root)
        if not handled and not (name == "format" and value == "path"):  # any text is a path
            raise _Unsupported
        return False

    def _convert_reference(self, ref: Any, new: dict[str, Any]) -> dict[str, Any]:
        """Return a reference, which has no keywords beside it in the dialect: a description goes around it."""
        known = ref == "#" or (isinstance(ref, str) and ref.removeprefix("#/$defs/") in self.definitions)
        if not known or new.keys() - {"description"}:
            raise _Unsupported
        return {"anyOf": [{"$ref": ref}], **new} if new else {"$ref": ref}

    def _convert_properties(self, new: dict[str, Any], schema: dict[str, Any], depth: int) -> None:
        parts = _expect_object(schema.get("properties", {}))
        additional = schema.get("additionalProperties", not parts and depth > 0)
        required = schema.get("required", [])
        if additional is not False or not is_list(required) or set(required) - parts.keys():
            raise _Unsupported
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
            raise _Unsupported
        default = schema.get("default")
        note = "" if default is None else f"Default: {msgspec.json.encode(default).decode()}."
        description = _join_sentences(new.pop("description", ""), note)
        options = new["anyOf"] if new.keys() == {"anyOf"} else [new]
        if not any(option.get("type") == "null" for option in options):
            options = [*options, {"type": "null"}]
        return {"anyOf": options} | ({"description": description} if description else {})


def _alternatives_of(schema: dict[str, Any]) -> list[Any]:
    """Return the alternatives of a schema. ``oneOf`` needs a discriminator, since the dialect has only ``anyOf``."""
    names = [name for name in ("anyOf", "oneOf", "allOf") if name in schema]
    if not names:
        return []
    options = schema[names[0]]
    several = not is_list(options) or (names == ["allOf"] and len(options) != 1)
    if len(names) > 1 or several or "$ref" in schema or (names == ["oneOf"] and "discriminator" not in schema):
        raise _Unsupported
    return list(options)


def _type_of_values(schema: dict[str, Any]) -> str | list[str]:
    """Return the type of the values of ``enum`` or ``const``, which the dialect requires."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not is_list(values) or not values or not all(type(value) in _TYPE_NAMES for value in values):
        raise _Unsupported  # the dialect cannot describe a value of any type
    types = list(dict.fromkeys(_TYPE_NAMES[type(value)] for value in values))
    return types if len(types) > 1 else types[0]


def _join_sentences(*sentences: Any) -> str:
    return " ".join(sentence for sentence in sentences if isinstance(sentence, str) and sentence)


# Anthropic

_CLOSED_FORMATS = _STRICT_FORMATS | {"uri"}
MAX_CLOSED_DEPTH = 32

_CLOSED_KEYWORDS = ("type", "enum", "const", "description", "title")
_COMBINATORS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_HANDLED_KEYWORDS = frozenset(
    {
        *_CLOSED_KEYWORDS,
        *_COMBINATORS,
        "$schema",
        "$id",
        "$comment",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
        "$defs",
        "definitions",
        "$ref",
        "properties",
        "required",
        "additionalProperties",
        "items",
    }
)
"""Keywords that are converted, or that forbid nothing."""


def close_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the closed form of ``schema`` that a model can be held to, or ``None`` when that would exclude answers.

    It would for objects with free keys, for values of any type, and for a schema that contains itself.
    """
    try:
        return _close(schema, schema, ())
    except _Unsupported:
        return None


def _close(schema: Any, root: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    schema = _expect_object(schema)
    if "$ref" in schema:  # is replaced by its target, with the keywords beside it
        path = schema["$ref"]
        if not isinstance(path, str) or path in inside:
            raise _Unsupported
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        target = _expect_object(resolve_reference(root, path))
        return _close({**target, **beside}, root, (*inside, path))
    if len(inside) > MAX_CLOSED_DEPTH:
        raise _Unsupported
    new: dict[str, Any] = {name: schema[name] for name in _CLOSED_KEYWORDS if name in schema}
    deeper = (*inside, "")
    for name, written in _COMBINATORS.items():
        if name in schema:
            new[written] = [_close(option, root, deeper) for option in schema[name]]
    if not new.keys() & {"type", "enum", "const", "anyOf", "allOf"}:
        raise _Unsupported
    types = _types_of(schema)
    if "object" in types:
        _close_properties(new, schema, root, deeper)
    if "array" in types:
        new["items"] = _close(schema.get("items"), root, deeper)
    _describe_unsupported(new, schema)
    return new


def _close_properties(
    new: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], inside: tuple[str, ...]
) -> None:
    parts = _expect_object(schema.get("properties", {}))
    if schema.get("additionalProperties", not parts) is not False:
        raise _Unsupported
    new["properties"] = {name: _close(part, root, inside) for name, part in parts.items()}
    if "required" in schema:
        new["required"] = schema["required"]
    new["additionalProperties"] = False


def _describe_unsupported(new: dict[str, Any], schema: dict[str, Any]) -> None:
    """Append keywords that the provider does not support to the description."""
    unsupported: list[str] = []
    for name, value in schema.items():
        if (name == "format" and value in _CLOSED_FORMATS) or (name == "minItems" and value in (0, 1)):
            new[name] = value
        elif name not in _HANDLED_KEYWORDS:
            unsupported.append(f"{name}: {msgspec.json.encode(value).decode()}")
    if unsupported:
        words = f"({', '.join(unsupported)})"
        new["description"] = f"{new['description']} {words}" if new.get("description") else words


# Gemini

MAX_NODES = 5000
"""The number of subschemas after inlining, beyond which a schema is sent unchanged."""

_SCHEMA_KEYWORDS = frozenset({"items", "additionalItems", "contains", "not", "propertyNames", "if", "then", "else"})
_SCHEMA_LIST_KEYWORDS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMA_MAP_KEYWORDS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_DROPPED_KEYWORDS = frozenset({"$schema", "$defs", "definitions"})


def inline_references(schema: dict[str, Any]) -> dict[str, Any]:
    """Return ``schema`` with each local reference replaced by its target.

    Recursive references stay. A ``const`` becomes an ``enum`` with one value, which Gemini supports.
    """
    inliner = _ReferenceInliner(schema)
    try:
        inlined = inliner.convert(schema, ())
        definitions: dict[str, Any] = {}
        while inliner.recursive_definitions.keys() - definitions.keys():
            for name in sorted(inliner.recursive_definitions.keys() - definitions.keys()):
                path = inliner.recursive_definitions[name]
                definitions[name] = inliner.convert(resolve_reference(schema, path), (path,))
    except (_Unsupported, RecursionError):
        return {name: value for name, value in schema.items() if name != "$schema"}
    return {**inlined, "$defs": definitions} if definitions else inlined


class _ReferenceInliner:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.node_count = 0
        self.recursive_definitions: dict[str, str] = {}
        """Paths of the definitions that have to stay, by their new names."""

    def convert(self, schema: Any, references: tuple[str, ...]) -> Any:
        """Return a schema without references; ``references`` led to it."""
        if not is_object(schema):
            return {} if schema is True else schema
        self.node_count += 1
        if self.node_count > MAX_NODES:
            raise _Unsupported
        path = schema.get("$ref")
        if isinstance(path, str):
            target = resolve_reference(self.root, path)
            if path in references:
                return {"$ref": f"#/$defs/{self._definition_name(path)}"}
            if is_object(target):
                beside = {name: value for name, value in schema.items() if name != "$ref"}
                return self.convert({**target, **beside}, (*references, path))
        converted = {
            name: self._convert_keyword(name, value, references)
            for name, value in schema.items()
            if name not in _DROPPED_KEYWORDS
        }
        if "const" in converted and "enum" not in converted:
            converted["enum"] = [converted.pop("const")]
        return converted

    def _convert_keyword(self, name: str, value: Any, references: tuple[str, ...]) -> Any:
        if name in _SCHEMA_KEYWORDS or (name == "additionalProperties" and is_object(value)):
            return self.convert(value, references)
        if name in _SCHEMA_LIST_KEYWORDS and is_list(value):
            return [self.convert(part, references) for part in value]
        if name in _SCHEMA_MAP_KEYWORDS and is_object(value):
            return {key: self.convert(part, references) for key, part in value.items()}
        return value

    def _definition_name(self, path: str) -> str:
        """Return the last step of a path, with a number where another definition has that name."""
        step = path.rpartition("/")[2].lstrip("#") or "root"
        name, count = step, 1
        while self.recursive_definitions.get(name, path) != path:
            count += 1
            name = f"{step}{count}"
        self.recursive_definitions[name] = path
        return name
