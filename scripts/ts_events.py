"""Write the TypeScript types of all events from their schema: python -m scripts.ts_events [--check]."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "schema" / "events.schema.json"
FILE = ROOT / "ts" / "client" / "src" / "event.generated.ts"

Schema = dict[str, Any]

SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}

HEAD = """\
// Made from schema/events.schema.json by `python -m scripts.ts_events`.
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


def interface_of(name: str, schema: Schema) -> str:
    """Return the interface of an object of the schema."""
    required = schema["required"]
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


def render() -> str:
    """Return the text of the file."""
    definitions: Schema = json.loads(SCHEMA.read_text("utf-8"))["$defs"]
    events: Schema = definitions.pop("events")
    kinds = {kind: schema for kind, schema in events.items() if kind != "unknown"}
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
    return "\n".join([HEAD, *interfaces, union])


def main() -> int:
    """Write the file, or with ``--check`` only print whether it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when the file is out of date")
    check: bool = parser.parse_args().check
    text = render()
    if FILE.exists() and FILE.read_text("utf-8") == text:
        print("up to date")
        return 0
    if not check:
        FILE.write_text(text, "utf-8")
    print(f"{FILE.relative_to(ROOT)} {'is out of date' if check else 'written'}")
    return 1 if check else 0


if __name__ == "__main__":
    sys.exit(main())
