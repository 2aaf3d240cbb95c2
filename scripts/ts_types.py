"""Write the types of events and of the API, and the traits of tools, in TypeScript: python -m scripts.ts_types."""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EVENTS = ROOT / "schema" / "events.schema.json"
API = ROOT / "schema" / "openapi.json"
TRAITS = ROOT / "src" / "vaka" / "core" / "types" / "builtin_traits.json"
SOURCE = ROOT / "ts" / "client" / "src"
CONSOLE = ROOT / "ts" / "console" / "src"

Schema = dict[str, Any]

REFERENCE = re.compile(r'"#/components/schemas/(\w+)"')
SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}

TRAIT_TYPES = {
    "paths": "string[]",
    "folders": "string[]",
    "command": "string",
    "url": "string",
    "summary": "string[]",
    "content": "string",
    "replacement": "[string, string]",
    "replacements": "string",
}
"""The traits that the console reads, with their types."""

EVENTS_HEAD = """\
// Made from schema/events.schema.json by `python -m scripts.ts_types`.
// A field with a default is optional: the server leaves a default out.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export type Channel = "progress" | "control" | "monitor";

interface Envelope<Type extends string, Of extends Channel, Data> {
  v: number;
  /** UTC, for people; the order is that of `seq`. */
  ts: string;
  session: string;
  turn: string;
  step: number;
  /** Which agent: empty for the root. */
  path: string[];
  channel: Of;
  type: Type;
  data: Data;
}

/** An event of the log. `id` is its cursor, `<epoch>.<seq>`. */
export interface DurableEvent<Type extends string, Of extends Channel, Data> extends Envelope<Type, Of, Data> {
  seq: number;
  id: string;
  /** SHA-256 of the stored bytes of the event before. */
  prev: string;
}

/** An event that is sent and not stored. */
export interface LiveEvent<Type extends string, Of extends Channel, Data> extends Envelope<Type, Of, Data> {
  seq?: never;
  id?: never;
  prev?: never;
}

/** An event of a type that this version does not know, or a frame that is not an event; `raw` is what came. */
export interface UnknownEvent extends Partial<Omit<Envelope<"unknown", Channel, unknown>, "type">> {
  type: "unknown";
  raw: unknown;
  seq?: number;
  id?: string;
  prev?: string;
}
"""

API_HEAD = """\
// Made from schema/openapi.json by `python -m scripts.ts_types`.
"""


def comment(text: str, indent: str = "") -> str:
    """Return a documentation comment of the first line of ``text``; nothing without text."""
    line = text.partition("\n")[0].replace("``", "`").replace("*/", "*\\/")
    return f"{indent}/** {line} */\n" if line else ""


def type_of(schema: Schema) -> str:
    """Return the TypeScript type of a value."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(type_of(choice) for choice in schema["anyOf"])
    kind = schema.get("type")
    if kind == "array":
        items = type_of(schema["items"])
        return f"({items})[]" if " " in items else f"{items}[]"
    if kind == "object":
        values: Schema | None = schema.get("additionalProperties")
        return f"{{ [key: string]: {type_of(values)} }}" if values else "JsonObject"
    return SCALARS.get(kind or "", "Json")


def interface_of(name: str, schema: Schema, *, defaults_sent: bool = False) -> str:
    """Return the interface of an object of the schema; with ``defaults_sent``, fields with a default are there, too."""
    required = set(schema["required"])
    if defaults_sent:
        required |= {key for key, field in schema["properties"].items() if "default" in field}
    fields = "".join(
        f"{comment(field.get('description', ''), '  ')}  {key}{'' if key in required else '?'}: {type_of(field)};\n"
        for key, field in schema["properties"].items()
    )
    head = comment(schema.get("description", ""))
    return f"{head}export interface {name} {{\n{fields}}}\n" if fields else f"{head}export type {name} = JsonObject;\n"


def event_type(kind: str, schema: Schema) -> str:
    """Return the type of one event: its envelope with its data."""
    properties = schema["properties"]
    base = "DurableEvent" if "seq" in properties else "LiveEvent"
    name = "`custom.${string}`" if kind == "custom" else json.dumps(kind)
    return f"{base}<{name}, {json.dumps(properties['channel']['const'])}, {type_of(properties['data'])}>"


def read_definitions() -> Schema:
    definitions: Schema = json.loads(EVENTS.read_text("utf-8"))["$defs"]
    return definitions


def render_events() -> str:
    """Return the text of the file of events."""
    definitions = read_definitions()
    events: Schema = definitions.pop("events")
    kinds = {kind: schema for kind, schema in events.items() if kind not in {"unknown", "erased"}}
    interfaces = [interface_of(name, schema) for name, schema in definitions.items()]
    members = "".join(f"  {json.dumps(kind)}: {event_type(kind, schema)};\n" for kind, schema in kinds.items())
    names = "".join(f"  {json.dumps(kind)},\n" for kind in kinds if kind != "custom")
    union = f"""\
/** Every event by its type; the type of a custom event is `custom.<name>`. */
export interface EventTypes {{
{members}}}

export type KnownEvent = EventTypes[keyof EventTypes];
/** What a stream yields. */
export type AgentEvent = KnownEvent | UnknownEvent;
export type EventOf<Type extends keyof EventTypes> = EventTypes[Type];

export const EVENT_TYPES: ReadonlySet<string> = new Set([
{names}]);
"""
    return "\n".join([EVENTS_HEAD, *interfaces, union])


def find_references(part: object, schemas: Schema) -> set[str]:
    """Return the names of all objects that a part of the API document contains."""
    found: set[str] = set()
    new = set(REFERENCE.findall(json.dumps(part)))
    while new:
        name = new.pop()
        if name not in found:
            found.add(name)
            new |= set(REFERENCE.findall(json.dumps(schemas[name])))
    return found


def render_api() -> str:
    """Return the text of the file of the API. What events have, too, is imported."""
    document: Schema = json.loads(API.read_text("utf-8"))
    events, schemas = read_definitions(), document["components"]["schemas"]
    shared = [
        name
        for name, schema in schemas.items()
        if name in events and schema["properties"].keys() == events[name]["properties"].keys()
    ]
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    sent = find_references([operation["responses"] for operation in operations], schemas)
    own = {name: schema for name, schema in schemas.items() if name not in shared}
    interfaces = [interface_of(name, schema, defaults_sent=name in sent) for name, schema in own.items()]
    names = sorted({*shared, "Json", "JsonObject"})
    used = [name for name in names if any(re.search(rf"\b{name}\b", text) for text in interfaces)]
    head = f'{API_HEAD}import type {{ {", ".join(used)} }} from "./event.generated.ts";\n'
    return "\n".join([head, *interfaces])


def render_traits() -> str:
    """Return the text of the file of the traits of built-in tools, with those fields that the console reads."""
    declared: dict[str, dict[str, object]] = json.loads(TRAITS.read_text("utf-8"))
    fields = "".join(f"  {name}?: {kind};\n" for name, kind in TRAIT_TYPES.items())
    shown = {
        tool: {name: value for name, value in traits.items() if name in TRAIT_TYPES}
        for tool, traits in declared.items()
    }
    entries = "".join(f"  {tool}: {json.dumps(traits)},\n" for tool, traits in shown.items() if traits)
    return f"""\
// Made from {TRAITS.relative_to(ROOT)} by `python -m scripts.ts_types`.

/** The arguments of a tool by what they name. */
export interface ToolTraits {{
{fields}}}

export const BUILTIN_TRAITS: {{ readonly [tool: string]: ToolTraits | undefined }} = {{
{entries}}};
"""


FILES: dict[Path, Callable[[], str]] = {
    SOURCE / "event.generated.ts": render_events,
    SOURCE / "api.generated.ts": render_api,
    CONSOLE / "traits.generated.ts": render_traits,
}


def main() -> int:
    """Write the files, or with ``--check`` only print which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a file is out of date")
    check: bool = parser.parse_args().check
    stale = [file for file, render in FILES.items() if not file.exists() or file.read_text("utf-8") != render()]
    for file in stale:
        print(f"{file.relative_to(ROOT)} {'is out of date' if check else 'written'}")
        if not check:
            file.write_text(FILES[file](), "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
