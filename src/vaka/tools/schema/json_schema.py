"""Write JSON Schema, draft 2020-12, for JSON types."""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from types import NoneType
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from vaka.tools.arguments import check_json_data
from vaka.tools.schema import json_types
from vaka.tools.schema.json_types import MISSING, JsonType, TypeMember, UnsupportedType, is_null, is_object, unwrap_type

Schema: TypeAlias = dict[str, Any]

_DECIMAL_SCHEMA = {"type": "string", "pattern": r"^-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?$"}
_JSON_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}
_FORMAT_NAMES: dict[type, str] = {
    datetime: "date-time",
    date: "date",
    time: "time",
    timedelta: "duration",
    UUID: "uuid",
    **dict.fromkeys(json_types.PATH_TYPES, "path"),
}
_SCALAR_SCHEMAS: dict[type, Schema] = {
    **{kind: {"type": name} for kind, name in _JSON_TYPE_NAMES.items()},
    **{kind: {"type": "string", "format": name} for kind, name in _FORMAT_NAMES.items()},
    bytes: {"type": "string", "contentEncoding": "base64"},
    Decimal: {"anyOf": [{"type": "number"}, _DECIMAL_SCHEMA]},
}
_SUBSCHEMA_KEYWORDS = (
    "items",
    "additionalProperties",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SUBSCHEMA_LIST_KEYWORDS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SUBSCHEMA_MAP_KEYWORDS = ("properties", "patternProperties", "$defs", "dependentSchemas")


class SchemaWriter:
    """Writes schemas that share their ``$defs``. ``output``: schemas of return values instead of arguments."""

    def __init__(self, *, output: bool = False) -> None:
        self.output = output
        self.defs: dict[str, Schema] = {}
        self._def_names: dict[int, tuple[Any, str]] = {}
        self._writers: dict[type, Callable[[Any], Schema]] = {
            json_types.AnyType: lambda _: {},
            json_types.ScalarType: self._write_scalar,
            json_types.EnumType: lambda enum: enum_schema(plain for plain, _ in enum.values),
            json_types.ArrayType: self._write_array,
            json_types.TupleType: self._write_tuple,
            json_types.MappingType: self._write_mapping,
            json_types.RecordType: self._write_record,
            json_types.UnionType: self._write_union,
            json_types.PydanticType: self._write_pydantic,
            json_types.AliasType: self._write_alias,
            json_types.AnnotatedType: self._write_annotated,
        }

    def write(self, json_type: JsonType) -> Schema:
        return self._writers[type(json_type)](json_type)

    def write_object(
        self, members: Iterable[TypeMember], additional: Any = False, *, all_required: bool = False
    ) -> Schema:
        """Return the schema of an object; ``additional`` is its ``additionalProperties``."""
        members = tuple(members)
        properties = {member.name: self._write_member(member) for member in members}
        schema: Schema = {"type": "object", "properties": properties}
        if required := [member.name for member in members if member.required or all_required]:
            schema["required"] = required
        if not self.output:
            schema["additionalProperties"] = additional
        return schema

    def with_defs(self, schema: Schema) -> Schema:
        """Return a schema with all ``$defs`` written so far."""
        return {**schema, "$defs": dict(self.defs)} if self.defs else schema

    def _write_member(self, member: TypeMember) -> Schema:
        schema = dict(self.write(member.json_type))
        if member.description:
            schema.setdefault("description", member.description)
        if not self.output and (default := json_default_of(member)) is not MISSING:
            schema["default"] = default
        return schema

    def _write_scalar(self, json_type: json_types.ScalarType) -> Schema:
        if self.output and json_type.kind is Decimal:
            return {"type": "string"}
        return dict(_SCALAR_SCHEMAS[json_type.kind])

    def _write_array(self, json_type: json_types.ArrayType) -> Schema:
        schema: Schema = {"type": "array"}
        if item := self.write(json_type.item):
            schema["items"] = item
        return {**schema, "uniqueItems": True} if json_type.unique else schema

    def _write_tuple(self, json_type: json_types.TupleType) -> Schema:
        items = [self.write(item) for item in json_type.items]
        for item, name in zip(items, json_type.names, strict=False):
            item.setdefault("title", name)
        schema: Schema = {"type": "array", "prefixItems": items} if items else {"type": "array"}
        return {**schema, "minItems": json_type.min_length, "maxItems": len(items)}

    def _write_mapping(self, json_type: json_types.MappingType) -> Schema:
        schema: Schema = {"type": "object", "additionalProperties": self.write(json_type.value) or True}
        key = unwrap_type(json_type.key)
        if isinstance(key, json_types.EnumType):
            schema["propertyNames"] = {"enum": [str(plain) for plain, _ in key.values]}
        elif isinstance(key, json_types.ScalarType) and key.kind is int:
            schema["propertyNames"] = {"pattern": "^-?[0-9]{1,20}$"}
        elif isinstance(json_type.key, json_types.AnnotatedType):
            schema["propertyNames"] = json_type.key.keywords
        return schema

    def _write_record(self, json_type: json_types.RecordType) -> Schema:
        return self._write_reference(json_type, json_type.name, lambda: self._write_members(json_type))

    def _write_members(self, json_type: json_types.RecordType) -> Schema:
        schema = self.write_object(json_type.members, all_required=self.output and not json_type.sparse)
        if json_type.tag is not None:
            tag, value = json_type.tag
            schema["properties"] = {tag: enum_schema([value]), **schema["properties"]}
            schema["required"] = [tag, *schema.get("required", [])]
        return {"description": json_type.description, **schema} if json_type.description else schema

    def _write_reference(self, key: Any, wanted: str, write: Callable[[], Schema]) -> Schema:
        """Return a reference to a definition, which is written the first time."""
        if id(key) not in self._def_names:
            name = self._reserve_name(key, wanted)
            self.defs[name] = write()
        return {"$ref": f"#/$defs/{self._def_names[id(key)][1]}"}

    def _reserve_name(self, key: Any, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.defs:
            number += 1
            name = f"{wanted}_{number}"
        self._def_names[id(key)] = key, name
        self.defs[name] = {}
        return name

    def _write_union(self, json_type: json_types.UnionType) -> Schema:
        options: list[Schema] = drop_duplicates(self.write(option) for option in json_type.options)
        if len(options) == 1:
            return options[0]
        schema: Schema = {"anyOf": options}
        records = [option for option in map(unwrap_type, json_type.options) if not is_null(option)]
        tags = [one.tag for one in records if isinstance(one, json_types.RecordType) and one.tag is not None]
        if len(tags) == len(records) > 1 and len({tag for tag, _ in tags}) == 1:
            refs = [self.write(option)["$ref"] for option in records]
            mapping = {str(value): ref for (_, value), ref in zip(tags, refs, strict=True)}
            schema["discriminator"] = {"propertyName": tags[0][0], "mapping": mapping}
        return schema

    def _write_alias(self, json_type: json_types.AliasType) -> Schema:
        if not json_type.recursive:
            return self.write(json_type.target)
        return self._write_reference(json_type, json_type.name, lambda: self.write(json_type.target))

    def _write_annotated(self, json_type: json_types.AnnotatedType) -> Schema:
        schema, keywords = self.write(json_type.inner), json_type.keywords
        inner, numeric = unwrap_type(json_type), json_types.NUMERIC_KEYWORDS
        if isinstance(inner, json_types.ScalarType) and inner.kind is Decimal and numeric & keywords.keys():
            if not self.output:
                return {"type": "number", **keywords}
            keywords = {name: value for name, value in keywords.items() if name not in numeric}
        return {**schema, **keywords}

    def _write_pydantic(self, json_type: json_types.PydanticType) -> Schema:
        adapter = json_type.adapter
        if id(adapter) in self._def_names:
            return self._write_reference(adapter, json_type.name, dict)
        mode = "serialization" if self.output else "validation"
        try:
            schema: Schema = strip_titles(adapter.json_schema(ref_template="#/$defs/{model}", mode=mode))
        except RuntimeError as error:
            message = f"pydantic has no schema for {json_type.name}: {json_types.first_line_of(error)}"
            raise UnsupportedType(message) from error
        inner: dict[str, Schema] = schema.pop("$defs", {})
        taken = [name for name in inner if self.defs.get(name, inner[name]) != inner[name]]
        free = {name: self._reserve_name(inner[name], name) for name in taken}
        refs = {f"#/$defs/{name}": f"#/$defs/{new}" for name, new in free.items()}
        for name, part in inner.items():
            self.defs[free.get(name, name)] = rename_refs(part, refs)
        schema = rename_refs(schema, refs)
        if "properties" not in schema:
            return schema
        if self.defs.get(json_type.name) == schema:
            self._def_names[id(adapter)] = adapter, json_type.name
        return self._write_reference(adapter, json_type.name, lambda: schema)


def enum_schema(values: Iterable[Any]) -> Schema:
    """Return the schema of an enumeration, with the type of its values: some providers require one."""
    values = list(values)
    kinds = drop_duplicates(_JSON_TYPE_NAMES[type(value)] for value in values)
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def drop_duplicates(values: Iterable[Any]) -> list[Any]:
    """Return each value once, in order; values need not be hashable."""
    unique: list[Any] = []
    for value in values:
        if value not in unique:
            unique.append(value)
    return unique


def json_default_of(member: TypeMember) -> Any:
    """Return a member's default as JSON data, or MISSING when it has none or JSON cannot express it."""
    if member.default is MISSING or (member.default is None and not accepts_null(member.json_type)):
        return MISSING
    try:
        plain = msgspec.to_builtins(member.default, enc_hook=encode_unknown)
    except (TypeError, ValueError, RecursionError, NotImplementedError):
        return MISSING
    return plain if check_json_data(plain) is None else MISSING


def encode_unknown(value: Any) -> Any:
    """Return JSON data for values msgspec cannot encode: paths and pydantic models."""
    if isinstance(value, PurePath):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True)
    raise NotImplementedError(f"{type(value).__name__} is not JSON data")


def accepts_null(json_type: JsonType) -> bool:
    inner = unwrap_type(json_type)
    if isinstance(inner, json_types.UnionType):
        return any(accepts_null(option) for option in inner.options)
    if isinstance(inner, json_types.EnumType):
        return any(plain is None for plain, _ in inner.values)
    return is_null(inner) or isinstance(inner, json_types.AnyType | json_types.PydanticType)


def map_subschemas(schema: Schema, convert: Callable[[Any], Any]) -> Schema:
    """Return a schema with ``convert`` applied to its direct subschemas."""
    new: Schema = {**schema}
    for name, value in schema.items():
        if name in _SUBSCHEMA_KEYWORDS:
            new[name] = convert(value)
        elif name in _SUBSCHEMA_LIST_KEYWORDS:
            new[name] = [convert(inner) for inner in value]
        elif name in _SUBSCHEMA_MAP_KEYWORDS:
            new[name] = {key: convert(inner) for key, inner in value.items()}
    return new


def strip_titles(schema: Any) -> Any:
    """Return a schema without titles that only repeat a name."""
    if not is_object(schema):
        return schema
    new: Schema = map_subschemas(schema, strip_titles)
    if "properties" in new:
        new["properties"] = {key: _strip_property_title(inner, key) for key, inner in new["properties"].items()}
    if new.get("type") in {"object", None} and isinstance(new.get("title"), str):
        del new["title"]
    return new


def _strip_property_title(schema: Any, name: str) -> Any:
    if is_object(schema) and schema.get("title") == name.replace("_", " ").title():
        return {key: value for key, value in schema.items() if key != "title"}
    return schema


def rename_refs(schema: Any, refs: Mapping[str, str]) -> Any:
    if not is_object(schema) or not refs:
        return schema
    new: Schema = map_subschemas(schema, lambda inner: rename_refs(inner, refs))
    if "$ref" in new:
        new["$ref"] = refs.get(new["$ref"], new["$ref"])
    mapping = new.get("discriminator", {}).get("mapping")
    if mapping:
        new["discriminator"] = {**new["discriminator"], "mapping": {k: refs.get(v, v) for k, v in mapping.items()}}
    return new
