"""Definitions as JSON, YAML and MessagePack, in both directions."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec

from vaka.config.documents import JsonPath, iter_json_lines, parse_json, read_errors
from vaka.core.types.errors import ConfigError
from vaka.genx.definitions.agents import AgentDefinition
from vaka.genx.definitions.context_layers import (
    DEFAULT_RECENT,
    ContextLayerReference,
    EnvironmentLayer,
    FieldLayer,
    InlineLayer,
    MemoryLayer,
)
from vaka.genx.definitions.fields import MAX_NESTING, check_document
from vaka.genx.definitions.references import Slot
from vaka.genx.definitions.tools import ScriptDefinition, ToolDefinition, ToolSlot
from vaka.genx.definitions.yaml_documents import parse_yaml, write_yaml

Format: TypeAlias = Literal["json", "yaml", "msgpack"]
FORMATS: dict[str, Format] = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".msgpack": "msgpack"}
"""The formats by the ends of file names."""
MAX_FILE_BYTES = 1024 * 1024


class LocatedDocument(msgspec.Struct, frozen=True):
    """A document, and the lines of its values."""

    value: object
    line_of: Callable[[JsonPath], int]
    """Return the line of the value at a path, or of the nearest one around it."""


def read_document(path: Path) -> LocatedDocument:
    """Return the document of a file. Raises ``ConfigError`` with file and line."""
    format = FORMATS.get(path.suffix.lower())
    if format is None:
        raise ConfigError(f"{path}: expected a file that ends in {', '.join(FORMATS)}")
    with read_errors(path), path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: larger than the {MAX_FILE_BYTES} bytes a definition may have")
    return decode_document(data, format, str(path))


def decode_document(data: bytes, format: Format, origin: str = "document") -> LocatedDocument:
    """Return the document that bytes hold. Raises ``ConfigError`` with the line."""
    if format == "msgpack":
        return LocatedDocument(_decode_msgpack(data, origin), lambda path: 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{origin}: not UTF-8: {error.reason} at byte {error.start}") from None
    if format == "json":
        json_lines = cache(lambda: dict(iter_json_lines(text)))  # only a document with items or problems needs them
        return LocatedDocument(parse_json(text, origin), lambda path: _nearest_line(json_lines() if path else {}, path))
    value, lines = parse_yaml(text, origin)
    return LocatedDocument(value, lambda path: _nearest_line(lines, path))


def _nearest_line(lines: dict[JsonPath, int], path: JsonPath) -> int:
    return next((lines[path[:size]] for size in range(len(path), -1, -1) if path[:size] in lines), 1)


def encode_definition(definition: object, format: Format) -> bytes:
    """Return a definition, or a slot, as bytes. Raises ``ConfigError`` for values that the format does not have."""
    document = to_document(definition)
    check_document(document)
    if format == "json":
        return msgspec.json.format(msgspec.json.encode(document)) + b"\n"
    if format == "yaml":
        return write_yaml(document).encode()
    return msgspec.msgpack.encode(_pack_document(document))


def to_document(value: object) -> Any:
    """Return a definition as plain data: of a reference only its ``$ref``, without fields that have their defaults."""
    if isinstance(value, Slot):
        return _slot_document(cast("Any", value))
    if isinstance(value, list | tuple):
        return [to_document(item) for item in cast("tuple[object, ...]", value)]
    if not isinstance(value, msgspec.Struct):
        return value
    layer = _layer_document(value)
    return layer if layer is not None else _struct_document(value)


def _struct_document(value: msgspec.Struct) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if isinstance(value, AgentDefinition | ToolDefinition):
        document["type"] = value.type
    for field in msgspec.structs.fields(value):
        inner = getattr(value, field.name)
        if isinstance(inner, ScriptDefinition):
            document |= {"lua_file": inner.file} if inner.file else {"lua": inner.text}
        elif field.required or not _is_default(inner, field):
            document[field.name] = to_document(inner)
    return document


def _is_default(value: object, field: msgspec.structs.FieldInfo) -> bool:
    return value == {} if field.default_factory is dict else value == field.default


def _slot_document(slot: Slot[Any]) -> dict[str, Any] | None:
    quits = {"quit": True} if isinstance(slot, ToolSlot) and slot.quit else {}
    if slot.reference is not None:
        return {"$ref": slot.reference.text, **quits}
    return None if slot.definition is None else {**to_document(slot.definition), **quits}


def _layer_document(layer: object) -> str | dict[str, Any] | None:
    if isinstance(layer, InlineLayer):
        return layer.text
    if isinstance(layer, FieldLayer):
        return {"$this": layer.path}
    if isinstance(layer, EnvironmentLayer):
        return {"$env": layer.variable}
    if isinstance(layer, ContextLayerReference):
        return {"$ref": layer.reference.text}
    if not isinstance(layer, MemoryLayer):
        return None
    flags = {name: True for name in ("summary", "query") if getattr(layer, name)}
    return {"$mem": {**flags, **({} if layer.recent == DEFAULT_RECENT else {"recent": layer.recent})}}


def _pack_document(document: Any) -> Any:
    """Return a document with its tools and agents packed as MessagePack does it: ``{ref, quit, type, tool: bytes}``."""
    return _replace_slots(document, _pack_slot)


def _pack_slot(value: Any, key: str) -> Any:
    if not isinstance(value, dict):
        return value
    slot = cast("dict[str, Any]", value)
    quits = {"quit": True} if slot.get("quit") else {}
    if "$ref" in slot:
        return {"ref": slot["$ref"], **quits}
    inline = {name: inner for name, inner in slot.items() if name != "quit"}
    return {"type": slot["type"], key: msgspec.msgpack.encode(_pack_document(inline)), **quits}


def _decode_msgpack(data: bytes, origin: str, depth: int = 0) -> Any:
    if depth > MAX_NESTING:
        raise ConfigError(f"{origin}: nested deeper than {MAX_NESTING} levels")

    def unpack_slot(value: Any, key: str) -> Any:
        if not isinstance(value, dict):
            return value
        slot = cast("dict[str, Any]", value)
        quits = {"quit": slot["quit"]} if "quit" in slot else {}
        if isinstance(slot.get("ref"), str) and slot["ref"]:
            return {"$ref": slot["ref"], **quits}
        packed = slot.get(key)
        if packed is None and slot.get("ref") == "":
            return None
        if not isinstance(packed, bytes):
            return _replace_slots(slot, unpack_slot)
        inline = _decode_msgpack(packed, f"{origin}: {key}", depth + 1)
        if not isinstance(inline, dict):
            raise ConfigError(f"{origin}: {key}: expected a table")
        kind = {"type": slot["type"]} if slot.get("type") else {}
        return {**cast("dict[str, Any]", inline), **kind, **quits}

    try:
        document: Any = msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{origin}: not MessagePack: {error}") from None
    return _replace_slots(document, unpack_slot)


def _replace_slots(document: Any, replace: Callable[[Any, str], Any]) -> Any:
    """Return a definition, or a list of them, with each slot of a tool or agent replaced."""
    if isinstance(document, list):
        return [_replace_slots(item, replace) for item in cast("tuple[Any, ...]", document)]
    if not isinstance(document, dict):
        return document
    table = dict(cast("dict[str, Any]", document))
    if isinstance(table.get("tools"), list):
        table["tools"] = [replace(item, "tool") for item in table["tools"]]
    for name, key in (("steps", "tool"), ("route", "agent")):
        if isinstance(table.get(name), list):
            table[name] = [_replace_member(item, key, replace) for item in table[name]]
    for name in ("default", "agent"):
        if name in table:
            table[name] = replace(table[name], "agent")
    return table


def _replace_member(item: Any, key: str, replace: Callable[[Any, str], Any]) -> Any:
    """Return a route or a step with its slot replaced."""
    if not isinstance(item, dict) or key not in item:
        return cast("Any", item)
    table = cast("dict[str, Any]", item)
    return {**table, key: replace(table[key], key)}
