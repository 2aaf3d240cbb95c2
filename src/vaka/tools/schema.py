"""From shapes to JSON Schema, draft 2020-12."""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from types import NoneType
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from vaka.tools.arguments import check_plain
from vaka.tools.notes import NUMERIC
from vaka.tools.shape import (
    MISSING,
    PATHS,
    Alias,
    Anything,
    Choice,
    Either,
    Fixed,
    Foreign,
    Items,
    Member,
    Noted,
    Record,
    Scalar,
    Shape,
    Table,
    Unsupported,
    bare,
    first_line,
    is_null,
)
from vaka.tools.values import is_object

Schema: TypeAlias = dict[str, Any]

_DECIMAL = {"type": "string", "pattern": r"^-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?$"}
_SCALARS: dict[type, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {"type": "string", "format": "time"},
    timedelta: {"type": "string", "format": "duration"},
    UUID: {"type": "string", "format": "uuid"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    Decimal: {"anyOf": [{"type": "number"}, _DECIMAL]},
    **{kind: {"type": "string", "format": "path"} for kind in PATHS},
}
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}
_INNER = (
    "items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties",
)  # fmt: skip
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_TABLES = ("properties", "patternProperties", "$defs", "dependentSchemas")


class SchemaWriter:
    """Writes schemas that share their ``$defs``. ``output`` describes what tools return instead of what they take."""

    def __init__(self, *, output: bool = False) -> None:
        self.output = output
        self.defs: dict[str, Schema] = {}
        self._named: dict[int, tuple[Any, str]] = {}
        self._write: dict[type, Callable[[Any], Schema]] = {
            Anything: lambda _: {},
            Scalar: self._scalar,
            Choice: lambda shape: choice(plain for plain, _ in shape.values),
            Items: self._items,
            Fixed: self._fixed,
            Table: self._table,
            Record: self._record,
            Either: self._either,
            Foreign: self._foreign,
            Alias: self._alias,
            Noted: self._noted,
        }

    def write(self, shape: Shape) -> Schema:
        """Return the schema of a shape."""
        return self._write[type(shape)](shape)

    def object(self, members: Iterable[Member], rest: Any = False, *, whole: bool = False) -> Schema:
        """Return the schema of an object with these members, all there if ``whole``; others may be ``rest``."""
        members = tuple(members)
        schema: Schema = {"type": "object", "properties": {member.name: self._member(member) for member in members}}
        if required := [member.name for member in members if member.required or whole]:
            schema["required"] = required
        if not self.output:
            schema["additionalProperties"] = rest
        return schema

    def whole(self, schema: Schema) -> Schema:
        """Return a schema with the ``$defs`` it needs."""
        return {**schema, "$defs": dict(self.defs)} if self.defs else schema

    def _member(self, member: Member) -> Schema:
        schema = dict(self.write(member.shape))
        if member.description:
            schema.setdefault("description", member.description)
        if not self.output and (default := plain_default(member)) is not MISSING:
            schema["default"] = default
        return schema

    def _scalar(self, shape: Scalar) -> Schema:
        if self.output and shape.kind is Decimal:
            return {"type": "string"}
        return dict(_SCALARS[shape.kind])

    def _items(self, shape: Items) -> Schema:
        schema: Schema = {"type": "array"}
        if item := self.write(shape.item):
            schema["items"] = item
        return {**schema, "uniqueItems": True} if shape.unique else schema

    def _fixed(self, shape: Fixed) -> Schema:
        items = [self.write(item) for item in shape.items]
        for item, name in zip(items, shape.names, strict=False):
            item.setdefault("title", name)
        schema: Schema = {"type": "array", "prefixItems": items} if items else {"type": "array"}
        return {**schema, "minItems": shape.least, "maxItems": len(items)}

    def _table(self, shape: Table) -> Schema:
        schema: Schema = {"type": "object", "additionalProperties": self.write(shape.value) or True}
        key = bare(shape.key)
        if isinstance(key, Choice):
            schema["propertyNames"] = {"enum": [str(plain) for plain, _ in key.values]}
        elif isinstance(key, Scalar) and key.kind is int:
            schema["propertyNames"] = {"pattern": "^-?[0-9]{1,20}$"}
        elif isinstance(shape.key, Noted):
            schema["propertyNames"] = shape.key.keywords
        return schema

    def _record(self, shape: Record) -> Schema:
        if (known := self._named.get(id(shape))) is not None:
            return {"$ref": f"#/$defs/{known[1]}"}
        name = self._name(shape, shape.name)
        schema = self.object(shape.members, whole=self.output and not shape.sparse)
        if shape.tag is not None:
            tag, value = shape.tag
            schema["properties"] = {tag: choice([value]), **schema["properties"]}
            schema["required"] = [tag, *schema.get("required", [])]
        self.defs[name] = {"description": shape.description, **schema} if shape.description else schema
        return {"$ref": f"#/$defs/{name}"}

    def _name(self, key: Any, wanted: str) -> str:
        """Reserve a free name under ``$defs``."""
        name, number = wanted, 1
        while name in self.defs:
            number += 1
            name = f"{wanted}_{number}"
        self._named[id(key)] = key, name
        self.defs[name] = {}
        return name

    def _either(self, shape: Either) -> Schema:
        options: list[Schema] = unique(self.write(option) for option in shape.options)
        if len(options) == 1:
            return options[0]
        schema: Schema = {"anyOf": options}
        records = [option for option in map(bare, shape.options) if not is_null(option)]
        tags = [option.tag for option in records if isinstance(option, Record) and option.tag is not None]
        if len(tags) == len(records) > 1 and len({tag for tag, _ in tags}) == 1:
            refs = [self.write(option)["$ref"] for option in records]
            mapping = {str(value): ref for (_, value), ref in zip(tags, refs, strict=True)}
            schema["discriminator"] = {"propertyName": tags[0][0], "mapping": mapping}
        return schema

    def _alias(self, shape: Alias) -> Schema:
        if not shape.recursive:
            return self.write(shape.target)
        if (known := self._named.get(id(shape))) is None:
            name = self._name(shape, shape.name)
            self.defs[name] = self.write(shape.target)
        else:
            name = known[1]
        return {"$ref": f"#/$defs/{name}"}

    def _noted(self, shape: Noted) -> Schema:
        schema, keywords = self.write(shape.shape), shape.keywords
        inner = bare(shape)
        if isinstance(inner, Scalar) and inner.kind is Decimal and NUMERIC & keywords.keys():
            if self.output:
                keywords = {name: value for name, value in keywords.items() if name not in NUMERIC}
            else:
                schema = {"type": "number"}
        return {**schema, **keywords}

    def _foreign(self, shape: Foreign) -> Schema:
        if (known := self._named.get(id(shape.adapter))) is not None:
            return {"$ref": f"#/$defs/{known[1]}"}
        mode = "serialization" if self.output else "validation"
        try:
            schema: Schema = untitled(shape.adapter.json_schema(ref_template="#/$defs/{model}", mode=mode))
        except RuntimeError as error:
            raise Unsupported(f"pydantic has no schema for {shape.name}: {first_line(error)}") from error
        inner: dict[str, Schema] = schema.pop("$defs", {})
        taken = [name for name in inner if self.defs.get(name, inner[name]) != inner[name]]
        free = {name: self._name(inner[name], name) for name in taken}
        refs = {f"#/$defs/{name}": f"#/$defs/{new}" for name, new in free.items()}
        for name, part in inner.items():
            self.defs[free.get(name, name)] = rerooted(part, refs)
        schema = rerooted(schema, refs)
        if "properties" not in schema:
            return schema
        if self.defs.get(shape.name) == schema:
            self._named[id(shape.adapter)] = shape.adapter, shape.name
        else:
            self.defs[self._name(shape.adapter, shape.name)] = schema
        return {"$ref": f"#/$defs/{self._named[id(shape.adapter)][1]}"}


def choice(values: Iterable[Any]) -> Schema:
    """Return the schema of a choice, with the type of its values: some providers insist on one."""
    values = list(values)
    kinds = unique(_NAMES[type(value)] for value in values)
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def unique(values: Iterable[Any]) -> list[Any]:
    """Return the values without those that came before."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def plain_default(member: Member) -> Any:
    """Return a member's default as JSON data, or MISSING when it has none, or none that JSON can carry."""
    if member.default is MISSING or (member.default is None and not accepts_null(member.shape)):
        return MISSING
    try:
        plain = msgspec.to_builtins(member.default, enc_hook=encode)
    except (TypeError, ValueError, RecursionError, NotImplementedError):
        return MISSING
    return plain if check_plain(plain) is None else MISSING


def encode(value: Any) -> Any:
    """Return plain data for a value msgspec does not know: paths and pydantic models."""
    if isinstance(value, PurePath):
        return str(value)
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True)
    raise NotImplementedError(f"{type(value).__name__} is not JSON data")


def accepts_null(shape: Shape) -> bool:
    """Tell whether a shape admits null."""
    inner = bare(shape)
    if isinstance(inner, Either):
        return any(accepts_null(option) for option in inner.options)
    if isinstance(inner, Choice):
        return any(plain is None for plain, _ in inner.values)
    return is_null(inner) or isinstance(inner, Anything | Foreign)


def mapped(schema: Schema, change: Callable[[Any], Any]) -> Schema:
    """Return a schema with each schema directly inside it changed."""
    new: Schema = {**schema}
    for name in _INNER:
        if name in new:
            new[name] = change(new[name])
    for name in _LISTS:
        if name in new:
            new[name] = [change(inner) for inner in new[name]]
    for name in _TABLES:
        if name in new:
            new[name] = {key: change(inner) for key, inner in new[name].items()}
    return new


def untitled(schema: Any) -> Any:
    """Return a schema without the titles that only repeat a name."""
    if not is_object(schema):
        return schema
    new: Schema = mapped(schema, untitled)
    if "properties" in new:
        new["properties"] = {key: _untitled_property(inner, key) for key, inner in new["properties"].items()}
    if new.get("type") in {"object", None} and isinstance(new.get("title"), str):
        del new["title"]
    return new


def _untitled_property(schema: Any, name: str) -> Any:
    if is_object(schema) and schema.get("title") == name.replace("_", " ").title():
        return {key: value for key, value in schema.items() if key != "title"}
    return schema


def rerooted(schema: Any, refs: Mapping[str, str]) -> Any:
    """Return a schema with its references renamed."""
    if not is_object(schema) or not refs:
        return schema
    new: Schema = mapped(schema, lambda inner: rerooted(inner, refs))
    if "$ref" in new:
        new["$ref"] = refs.get(new["$ref"], new["$ref"])
    mapping = new.get("discriminator", {}).get("mapping")
    if mapping:
        new["discriminator"] = {**new["discriminator"], "mapping": {k: refs.get(v, v) for k, v in mapping.items()}}
    return new
