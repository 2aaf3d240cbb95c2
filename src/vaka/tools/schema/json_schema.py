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
from vaka.tools.schema.json_types import (
    MISSING,
    NUMERIC_KEYWORDS,
    PATH_TYPES,
    AliasType,
    AnnotatedType,
    AnyType,
    ArrayType,
    EnumType,
    JsonType,
    MappingType,
    PydanticType,
    RecordType,
    ScalarType,
    TupleType,
    TypeMember,
    UnionType,
    UnsupportedType,
    first_line_of,
    is_null,
    is_object,
    unwrap_type,
)

Schema: TypeAlias = dict[str, Any]

_DECIMAL_SCHEMA = {"type": "string", "pattern": r"^-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?$"}
_JSON_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}
_FORMAT_NAMES: dict[type, str] = {
    datetime: "date-time", date: "date", time: "time", timedelta: "duration", UUID: "uuid",
    **dict.fromkeys(PATH_TYPES, "path"),
}  # fmt: skip
_SCALAR_SCHEMAS: dict[type, Schema] = {
    **{kind: {"type": name} for kind, name in _JSON_TYPE_NAMES.items()},
    **{kind: {"type": "string", "format": name} for kind, name in _FORMAT_NAMES.items()},
    bytes: {"type": "string", "contentEncoding": "base64"},
    Decimal: {"anyOf": [{"type": "number"}, _DECIMAL_SCHEMA]},
}
_SUBSCHEMA_KEYWORDS = (
    "items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties",
)  # fmt: skip
_SUBSCHEMA_LIST_KEYWORDS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SUBSCHEMA_MAP_KEYWORDS = ("properties", "patternProperties", "$defs", "dependentSchemas")


class SchemaWriter:
    """Writes schemas that share their ``$defs``. ``output``: schemas of return values instead of arguments."""

    def __init__(self, *, output: bool = False) -> None:
        self.output = output
        self.defs: dict[str, Schema] = {}
        self._def_names: dict[int, tuple[Any, str]] = {}
        self._writers: dict[type, Callable[[Any], Schema]] = {
            AnyType: lambda _: {}, ScalarType: self._write_scalar, ArrayType: self._write_array,
            EnumType: lambda enum: enum_schema(plain for plain, _ in enum.values), TupleType: self._write_tuple,
            MappingType: self._write_mapping, RecordType: self._write_record, UnionType: self._write_union,
            PydanticType: self._write_pydantic, AliasType: self._write_alias, AnnotatedType: self._write_annotated,
        }  # fmt: skip

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

    def _write_scalar(self, json_type: ScalarType) -> Schema:
        if self.output and json_type.kind is Decimal:
            return {"type": "string"}
        return dict(_SCALAR_SCHEMAS[json_type.kind])

    def _write_array(self, json_type: ArrayType) -> Schema:
        schema: Schema = {"type": "array"}
        if item := self.write(json_type.item):
            schema["items"] = item
        return {**schema, "uniqueItems": True} if json_type.unique else schema

    def _write_tuple(self, json_type: TupleType) -> Schema:
        items = [self.write(item) for item in json_type.items]
        for item, name in zip(items, json_type.names, strict=False):
            item.setdefault("title", name)
        schema: Schema = {"type": "array", "prefixItems": items} if items else {"type": "array"}
        return {**schema, "minItems": json_type.min_length, "maxItems": len(items)}

    def _write_mapping(self, json_type: MappingType) -> Schema:
        schema: Schema = {"type": "object", "additionalProperties": self.write(json_type.value) or True}
        key = unwrap_type(json_type.key)
        if isinstance(key, EnumType):
            schema["propertyNames"] = {"enum": [str(plain) for plain, _ in key.values]}
        elif isinstance(key, ScalarType) and key.kind is int:
            schema["propertyNames"] = {"pattern": "^-?[0-9]{1,20}$"}
        elif isinstance(json_type.key, AnnotatedType):
            schema["propertyNames"] = json_type.key.keywords
        return schema

    def _write_record(self, json_type: RecordType) -> Schema:
        if (known := self._def_names.get(id(json_type))) is not None:
            return {"$ref": f"#/$defs/{known[1]}"}
        name = self._reserve_name(json_type, json_type.name)
        schema = self.write_object(json_type.members, all_required=self.output and not json_type.sparse)
        if json_type.tag is not None:
            tag, value = json_type.tag
            schema["properties"] = {tag: enum_schema([value]), **schema["properties"]}
            schema["required"] = [tag, *schema.get("required", [])]
        self.defs[name] = {"description": json_type.description, **schema} if json_type.description else schema
        return {"$ref": f"#/$defs/{name}"}

    def _reserve_name(self, key: Any, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.defs:
            number += 1
            name = f"{wanted}_{number}"
        self._def_names[id(key)] = key, name
        self.defs[name] = {}
        return name

    def _write_union(self, json_type: UnionType) -> Schema:
        options: list[Schema] = drop_duplicates(self.write(option) for option in json_type.options)
        if len(options) == 1:
            return options[0]
        schema: Schema = {"anyOf": options}
        records = [option for option in map(unwrap_type, json_type.options) if not is_null(option)]
        tags = [option.tag for option in records if isinstance(option, RecordType) and option.tag is not None]
        if len(tags) == len(records) > 1 and len({tag for tag, _ in tags}) == 1:
            refs = [self.write(option)["$ref"] for option in records]
            mapping = {str(value): ref for (_, value), ref in zip(tags, refs, strict=True)}
            schema["discriminator"] = {"propertyName": tags[0][0], "mapping": mapping}
        return schema

    def _write_alias(self, json_type: AliasType) -> Schema:
        if not json_type.recursive:
            return self.write(json_type.target)
        if (known := self._def_names.get(id(json_type))) is None:
            name = self._reserve_name(json_type, json_type.name)
            self.defs[name] = self.write(json_type.target)
        else:
            name = known[1]
        return {"$ref": f"#/$defs/{name}"}

    def _write_annotated(self, json_type: AnnotatedType) -> Schema:
        schema, keywords = self.write(json_type.inner), json_type.keywords
        inner = unwrap_type(json_type)
        if isinstance(inner, ScalarType) and inner.kind is Decimal and NUMERIC_KEYWORDS & keywords.keys():
            if self.output:
                keywords = {name: value for name, value in keywords.items() if name not in NUMERIC_KEYWORDS}
            else:
                schema = {"type": "number"}
        return {**schema, **keywords}

    def _write_pydantic(self, json_type: PydanticType) -> Schema:
        if (known := self._def_names.get(id(json_type.adapter))) is not None:
            return {"$ref": f"#/$defs/{known[1]}"}
        mode = "serialization" if self.output else "validation"
        try:
            schema: Schema = strip_titles(json_type.adapter.json_schema(ref_template="#/$defs/{model}", mode=mode))
        except RuntimeError as error:
            raise UnsupportedType(f"pydantic has no schema for {json_type.name}: {first_line_of(error)}") from error
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
            self._def_names[id(json_type.adapter)] = json_type.adapter, json_type.name
        else:
            self.defs[self._reserve_name(json_type.adapter, json_type.name)] = schema
        return {"$ref": f"#/$defs/{self._def_names[id(json_type.adapter)][1]}"}


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
    if isinstance(inner, UnionType):
        return any(accepts_null(option) for option in inner.options)
    if isinstance(inner, EnumType):
        return any(plain is None for plain, _ in inner.values)
    return is_null(inner) or isinstance(inner, AnyType | PydanticType)


def map_subschemas(schema: Schema, convert: Callable[[Any], Any]) -> Schema:
    """Return a schema with ``convert`` applied to its direct subschemas."""
    new: Schema = {**schema}
    for name in _SUBSCHEMA_KEYWORDS:
        if name in new:
            new[name] = convert(new[name])
    for name in _SUBSCHEMA_LIST_KEYWORDS:
        if name in new:
            new[name] = [convert(inner) for inner in new[name]]
    for name in _SUBSCHEMA_MAP_KEYWORDS:
        if name in new:
            new[name] = {key: convert(inner) for key, inner in new[name].items()}
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
