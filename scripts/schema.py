"""Write the schemas of stored and sent data, and the specs and traits of built-in tools: python -m scripts.schema."""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from vaka.cli.turn.stream_input import InputLine
from vaka.config.server_tables import FEATURE_NAMES
from vaka.core.types import context, control, monitor, progress
from vaka.core.types.body import BODY_TYPES
from vaka.core.types.event import VERSION, Body, Custom, Unknown
from vaka.core.types.traits import TRAITS_FILE
from vaka.genx.definitions.json_schema import definition_schema
from vaka.genx.definitions.references import KINDS
from vaka.project.project_tools import COMMAND_TOOL, COMMAND_TRAITS, SKILL_TOOL, SKILL_TRAITS
from vaka.runtime.agent_builder import AgentBuilder
from vaka.runtime.builtin_agents import TASK_SPEC_FILE
from vaka.runtime.model_registry import ModelConfig, ModelRegistry
from vaka.runtime.task_tool import TASK_TOOL, TASK_TRAITS, builtin_task_tool
from vaka.server.doors import native_operations
from vaka.server.rest.openapi import make_openapi
from vaka.server.ws import frames
from vaka.tools.builtin import SPECS_FILE, TOOLS, import_tool
from vaka.tools.builtin.builtin_tool import BuiltinTool

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
HOME = "vaka.core.types."
MODULES = (progress, control, context, monitor)

Schema = dict[str, Any]


def list_bodies() -> list[type[Body]]:
    """Return every event body, by channel and then in order of definition."""
    order = {"progress": 0, "control": 1, "monitor": 2}
    known = [body for body in BODY_TYPES.values() if body is not Unknown and body.__module__.startswith(HOME)]
    names = {name: at for at, name in enumerate(name for module in MODULES for name in vars(module))}
    return sorted(known, key=lambda body: (order[body.channel], names[body.__name__]))


def envelope_schema(*, durable: bool) -> Schema:
    """Return the schema of the envelope: a durable event has a position in its log, a live one has none."""
    fields: Schema = {
        "v": {"type": "integer", "minimum": 1, "description": f"{VERSION}; more only for what old code must not skip."},
        "seq": {"type": "integer", "minimum": 1, "description": "The place in the log."},
        "id": {"type": "string", "pattern": "^[1-9][0-9]*\\.[1-9][0-9]*$", "description": "The cursor: <epoch>.<seq>."},
        "ts": {"type": "string", "format": "date-time", "description": "UTC, for people; order is seq."},
        "session": {"type": "string"},
        "turn": {"type": "string"},
        "step": {"type": "integer", "minimum": 0},
        "path": {"type": "array", "items": {"type": "string"}, "description": "Which agent: empty for the root."},
        "channel": {"enum": ["progress", "control", "monitor"]},
        "type": {"type": "string"},
        "data": {"type": "object"},
        "prev": {
            "type": "string",
            "pattern": "^([0-9a-f]{64})?$",
            "description": "SHA-256 of the stored bytes of the event before; empty for the first.",
        },
    }
    if not durable:
        fields = {name: field for name, field in fields.items() if name not in {"seq", "id", "prev"}}
    return {"type": "object", "properties": fields, "required": list(fields)}


def event_schema(body: type[Body]) -> Schema:
    """Return the schema of one type of event."""
    schema = envelope_schema(durable=body.durable)
    kind = {"pattern": "^custom\\."} if body is Custom else {"const": body.type}
    schema["properties"] |= {
        "channel": {"const": body.channel},
        "type": {"type": "string", **kind},
        "data": {"$ref": f"#/$defs/{body.__name__}"},
    }
    summary = (body.__doc__ or "").partition("\n")[0]
    return {"title": body.type, "description": summary + ("" if body.durable else " Live."), **schema}


def unknown_event_schema(known: list[type[Body]]) -> Schema:
    """Return the schema of an event of a type this version does not know."""
    schema = envelope_schema(durable=True)
    names = sorted(body.type for body in known if body is not Custom)
    schema["properties"]["type"] = {
        "type": "string",
        "allOf": [{"not": {"enum": names}}, {"not": {"pattern": "^custom\\."}}],
    }
    return {"title": "unknown", "description": "A type from another version: keep it, act on nothing.", **schema}


def erased_event_schema() -> Schema:
    """Return the schema of an event whose data were erased."""
    schema = envelope_schema(durable=True)
    del schema["properties"]["data"]
    schema["properties"]["erased"] = {
        "type": "string",
        "pattern": "^[0-9a-f]{64}$",
        "description": "SHA-256 of the bytes that were stored: it stays the hash of the event.",
    }
    schema |= {"required": list(schema["properties"]), "not": {"required": ["data"]}}
    return {"title": "erased", "description": "What is left of an erased event of any type.", **schema}


def events_schema() -> Schema:
    """Return the schema of every event."""
    known = list_bodies()
    _, components = msgspec.json.schema_components(known, ref_template="#/$defs/{name}")
    parts = {name: components[name] for name in sorted(components)}
    kinds = {body.type: event_schema(body) for body in known}
    kinds |= {"unknown": unknown_event_schema(known), "erased": erased_event_schema()}
    return {
        "$schema": DIALECT,
        "title": "vaka event",
        "description": "An event as it is stored, sent and exported. Fields not named here may come and are ignored.",
        "type": "object",
        "required": ["type"],
        "oneOf": [{"$ref": f"#/$defs/events/{kind}"} for kind in kinds],
        "$defs": {"events": kinds, **parts},
    }


def tool_specs() -> Schema:
    """Return the spec of every built-in tool, as its function and its description give it."""
    return {name: msgspec.to_builtins(import_tool(name).spec) for name in TOOLS}


def tool_traits() -> Schema:
    """Return the traits of every built-in tool, as it declares them."""
    declared = {name: cast("BuiltinTool", import_tool(name)).traits for name in TOOLS}
    declared |= {TASK_TOOL: TASK_TRAITS, SKILL_TOOL: SKILL_TRAITS, COMMAND_TOOL: COMMAND_TRAITS}
    return {name: msgspec.to_builtins(declared[name]) for name in sorted(declared)}


def input_schema() -> Schema:
    """Return the schema of a line that ``vaka run --input stream-json`` reads."""
    (line,), components = msgspec.json.schema_components([InputLine], ref_template="#/$defs/{name}")
    return {
        "$schema": DIALECT,
        "title": "vaka run input",
        "description": "A line of stdin of `vaka run --input stream-json`.",
        **line,
        "$defs": {name: components[name] for name in sorted(components)},
    }


def frames_schema() -> Schema:
    """Return the schema of the frames of the WebSocket: those that a client sends, and those that the server sends."""
    shapes = [*get_args(frames.ClientFrame), *get_args(frames.ServerFrame), *frames.RESULTS.values()]
    refs, components = msgspec.json.schema_components(shapes, ref_template="#/$defs/{name}")
    named = dict(zip(shapes, refs, strict=True))
    components["EventFrame"]["properties"]["event"] = {"$ref": "events.schema.json"}
    return {
        "$schema": DIALECT,
        "title": f"vaka frames, WebSocket subprotocol {frames.SUBPROTOCOL}",
        "description": "A frame of the client or of the server; `results` has the result of each method that has one.",
        "oneOf": [{"$ref": "#/$defs/client"}, {"$ref": "#/$defs/server"}],
        "$defs": {
            "client": {"oneOf": [named[frame] for frame in get_args(frames.ClientFrame)]},
            "server": {"oneOf": [named[frame] for frame in get_args(frames.ServerFrame)]},
            "results": {method: named[result] for method, result in frames.RESULTS.items()},
            **{name: components[name] for name in sorted(components)},
        },
    }


def openapi_schema() -> Schema:
    """Return the OpenAPI document of the native API, with every feature."""
    return make_openapi(native_operations(FEATURE_NAMES))


def task_spec() -> Schema:
    """Return the spec of the tool that runs the built-in child agents."""
    spec: Schema = msgspec.to_builtins(builtin_task_tool(AgentBuilder(), ModelRegistry(ModelConfig())).spec)
    return spec


FILES: dict[Path, Callable[[], Schema]] = {
    FOLDER / "events.schema.json": events_schema,
    FOLDER / "input.schema.json": input_schema,
    FOLDER / "frames.schema.json": frames_schema,
    FOLDER / "openapi.json": openapi_schema,
    SPECS_FILE: tool_specs,
    TRAITS_FILE: tool_traits,
    TASK_SPEC_FILE: task_spec,
    **{FOLDER / f"{kind}.schema.json": partial(definition_schema, kind) for kind in KINDS},
}


def render_schema(make: Callable[[], Schema]) -> str:
    """Return the text of a schema file."""
    return json.dumps(make(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the files, or with ``--check`` only print which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a file is out of date")
    check: bool = parser.parse_args().check
    stale: list[str] = []
    for file, make in FILES.items():
        if not file.exists() or file.read_text() != render_schema(make):
            stale.append(str(file.relative_to(ROOT)))
            if not check:
                file.write_text(render_schema(make))
    print("\n".join(f"{name} {'is out of date' if check else 'written'}" for name in stale) or "up to date")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
