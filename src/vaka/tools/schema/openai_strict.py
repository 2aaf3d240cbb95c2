"""OpenAI's strict dialect of JSON Schema: convert a tool's parameters and report what is lost."""

import json
from typing import Any, NamedTuple

from vaka.tools.schema.json_types import is_array, is_object

SUPPORTED_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
MAX_DEPTH = 10
MAX_PROPERTIES = 5000

_SUPPORTED_KEYWORDS = frozenset(
    {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "enum",
        "const",
        "$ref",
        "$defs",
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
# They describe a value and rule none out, so dropping them does not weaken validation.
_ANNOTATION_KEYWORDS = frozenset(
    {
        "title",
        "examples",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$schema",
        "$id",
        "discriminator",
        "contentEncoding",
        "contentMediaType",
    }
)
_TYPE_KEYWORDS = frozenset({"type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"})
_ANY_SCALAR_SCHEMA = {"type": ["string", "number", "boolean", "null"]}
_NULL_SCHEMA = {"type": "null"}


class StrictSchema(NamedTuple):
    """A schema in the strict dialect, warnings about dropped keywords, and whether it admits the same arguments."""

    schema: dict[str, Any]
    warnings: list[str]
    lossless: bool


def strict_schema(parameters: dict[str, Any]) -> StrictSchema:
    """Return a tool's parameters in the strict dialect, in which null means an absent member."""
    converter = _StrictConverter()
    if parameters.get("type") != "object" or "anyOf" in parameters or "$ref" in parameters:
        converter.record_loss("arguments", "the schema must be a plain object")
    schema = converter.convert(parameters, "arguments", 0)
    schema.pop("description", None)
    if converter.property_count > MAX_PROPERTIES:
        converter.record_loss("arguments", f"more than {MAX_PROPERTIES} properties")
    return StrictSchema(schema, converter.warnings, converter.lossless)


class _StrictConverter:
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.lossless = True
        self.property_count = 0

    def record_loss(self, place: str, what: str) -> None:
        self.warnings.append(f"{place}: {what}")
        self.lossless = False

    def convert(self, schema: Any, place: str, depth: int) -> dict[str, Any]:
        if depth > MAX_DEPTH:
            self.record_loss(place, f"nested deeper than {MAX_DEPTH} levels")
            return dict(_ANY_SCALAR_SCHEMA)
        if not is_object(schema) or not schema.keys() & _TYPE_KEYWORDS:
            self.record_loss(
                place,
                "any value is allowed, which the dialect cannot express; only text, numbers, booleans and null are",
            )
            return dict(_ANY_SCALAR_SCHEMA)
        schema = self._normalize_combinators(schema, place)
        new = {name: value for name, value in schema.items() if self._keeps_keyword(name, value, place)}
        self._write_description(new, schema)
        self._convert_subschemas(new, schema, place, depth)
        if schema.get("type") == "object" or "properties" in schema:
            self._convert_object(new, schema, place, depth)
        return _isolate_ref(new)

    def _normalize_combinators(self, schema: dict[str, Any], place: str) -> dict[str, Any]:
        """Rewrite ``oneOf``, and ``allOf`` with one option, as ``anyOf``."""
        schema = dict(schema)
        if "oneOf" in schema:
            if "discriminator" not in schema:
                self.record_loss(place, "'oneOf' became 'anyOf'")
            schema["anyOf"] = schema.pop("oneOf")
        if len(schema.get("allOf", ())) == 1 and "anyOf" not in schema:
            schema["anyOf"] = schema.pop("allOf")
        return schema

    def _keeps_keyword(self, name: str, value: Any, place: str) -> bool:
        if name in _SUPPORTED_KEYWORDS or (name == "format" and value in SUPPORTED_FORMATS):
            return True
        if name in _ANNOTATION_KEYWORDS or (name == "format" and value == "path"):
            self.warnings.append(f"{place}: {name!r} is not supported and was left out")
        elif name != "default":
            self.record_loss(place, f"{name!r} is not supported and was left out")
        return False

    @staticmethod
    def _write_description(new: dict[str, Any], schema: dict[str, Any]) -> None:
        """Add to the description what the dialect has no keyword for."""
        sentences = [schema["description"]] if schema.get("description") else []
        if schema.get("contentEncoding"):
            sentences.append(f"Encoded as {schema['contentEncoding']}.")
        if schema.get("default") is not None:
            sentences.append(f"Default: {json.dumps(schema['default'], ensure_ascii=False)}.")
        if sentences:
            new["description"] = " ".join(sentences)

    def _convert_subschemas(self, new: dict[str, Any], schema: dict[str, Any], place: str, depth: int) -> None:
        if "anyOf" in new:
            new["anyOf"] = [self.convert(option, place, depth) for option in new["anyOf"]]
        if "$defs" in new:
            new["$defs"] = {name: self.convert(part, name, 0) for name, part in new["$defs"].items()}
        if "items" in new or schema.get("type") == "array":
            new["items"] = self.convert(schema.get("items"), f"{place}[]", depth + 1)

    def _convert_object(self, new: dict[str, Any], schema: dict[str, Any], place: str, depth: int) -> None:
        parts, required = schema.get("properties", {}), schema.get("required", ())
        free_by_default = not parts and depth > 0
        if schema.get("additionalProperties", free_by_default) is not False:
            self.record_loss(place, "other members are allowed, which the dialect cannot express")
        self.property_count += len(parts)
        new["properties"] = {}
        for name, part in parts.items():
            inner = self.convert(part, f"{place}.{name}", depth + 1)
            new["properties"][name] = inner if name in required else make_nullable(inner)
        new["required"] = list(parts)
        new["additionalProperties"] = False


def _isolate_ref(schema: dict[str, Any]) -> dict[str, Any]:
    """Wrap a reference that has other keywords: the dialect wants ``$ref`` alone."""
    if "$ref" not in schema or len(schema) == 1:
        return schema
    return {"anyOf": [{"$ref": schema["$ref"]}], **{name: value for name, value in schema.items() if name != "$ref"}}


def make_nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a strict schema that also admits null."""
    if "anyOf" in schema:
        if any(_admits_null(option) for option in schema["anyOf"]):
            return schema
        return {**schema, "anyOf": [*schema["anyOf"], dict(_NULL_SCHEMA)]}
    kinds: Any = schema.get("type")
    if kinds is None or "const" in schema:
        words = {"description": schema["description"]} if "description" in schema else {}
        inner = {name: value for name, value in schema.items() if name != "description"}
        return {"anyOf": [inner, dict(_NULL_SCHEMA)], **words}
    several = kinds if is_array(kinds) else [kinds]
    new: dict[str, Any] = {**schema, "type": several if "null" in several else [*several, "null"]}
    if "enum" in schema and None not in schema["enum"]:
        new["enum"] = [*schema["enum"], None]
    return new


def _admits_null(schema: dict[str, Any]) -> bool:
    kinds = schema.get("type")
    return kinds == "null" or (isinstance(kinds, list) and "null" in kinds)
