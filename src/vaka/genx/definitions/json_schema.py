"""JSON Schemas of definitions, for editors: made from the types, with every form that the parser reads."""

import types
from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from vaka.genx.definitions.agents import (
    AgentDefinition,
    AgentToolDefinition,
    LuaAgentDefinition,
    MatchDefinition,
    ReactDefinition,
)
from vaka.genx.definitions.context_layers import ContextLayer
from vaka.genx.definitions.fields import with_article
from vaka.genx.definitions.folder import LIST_KINDS
from vaka.genx.definitions.generators import ContextDefinition, GeneratorDefinition
from vaka.genx.definitions.includes import INCLUDE
from vaka.genx.definitions.inheritance import EXTENDED_KINDS, EXTENDS
from vaka.genx.definitions.parser import BUILTIN_NAMES
from vaka.genx.definitions.references import KINDS, PREFIXES, DefinitionKind, Slot
from vaka.genx.definitions.scripts import FILE_KEYS, SCRIPT_KEYS
from vaka.genx.definitions.tools import (
    DEPRECATED_TOOL_TYPES,
    BuiltinToolDefinition,
    CompositeToolDefinition,
    GeneratorToolDefinition,
    HttpToolDefinition,
    LuaToolDefinition,
    ScriptDefinition,
    TextProcessorDefinition,
    ToolDefinition,
    ToolSlot,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
AGENT_TYPES: tuple[type[AgentDefinition], ...] = (ReactDefinition, MatchDefinition, LuaAgentDefinition)
TOOL_TYPES: tuple[type[ToolDefinition], ...] = (
    BuiltinToolDefinition,
    HttpToolDefinition,
    GeneratorToolDefinition,
    TextProcessorDefinition,
    CompositeToolDefinition,
    LuaToolDefinition,
    AgentToolDefinition,
)

Schema = dict[str, Any]

_REQUIRED: Mapping[type, tuple[str, ...]] = {
    HttpToolDefinition: ("endpoint",),
    GeneratorToolDefinition: ("model",),
    TextProcessorDefinition: ("prompt", "model"),
    CompositeToolDefinition: ("steps",),
    AgentToolDefinition: ("agent",),
    ContextDefinition: ("prompt",),
}
"""Fields that a definition must have, beside its name, which the name of its file can give."""

_TEXT: Schema = {"type": "string"}
_QUIT: Schema = {"type": "boolean", "description": "Whether the agent that has this tool is finished after it ran."}
_TEXT_TABLE: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_PATTERN: Schema = {
    "anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 2}, {"type": "object"}]
}
_EXAMPLE: Schema = {
    "anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 3}, {"type": "object"}]
}
_RULE: Schema = {
    "type": "object",
    "description": "An intent of a router.",
    "properties": {
        "$schema": _TEXT,
        "name": {**_TEXT, "description": "The name of the rule."},
        "references": {**_TEXT_TABLE, "description": "Texts for the prompt, by their names."},
        "vars": {
            "type": "object",
            "description": "The arguments of the rule.",
            "additionalProperties": {
                "type": "object",
                "properties": {"label": _TEXT, "type": {"enum": ["string", "int", "float", "bool", ""]}},
                "additionalProperties": False,
            },
        },
        "patterns": {"type": "array", "items": _PATTERN, "description": "Sentences with `[argument]` placeholders."},
        "examples": {
            "type": "array",
            "description": "Cases for the prompt: a subject, the text of the user, and the answer.",
            "items": _EXAMPLE,
        },
        "tests": {
            "type": "array",
            "description": "Texts that must match, or tables with `input`, `args` and `rule`.",
            "items": {"anyOf": [_TEXT, {"type": "object"}]},
        },
    },
}
_LAYER: Schema = {
    "anyOf": [
        {**_TEXT, "minLength": 1, "description": "A text."},
        *(
            {"type": "object", "properties": {key: schema}, "required": [key], "additionalProperties": False}
            for key, schema in {
                "$this": {**_TEXT, "description": "A field of the same definition, such as `.prompt`."},
                "$ref": {**_TEXT, "description": "A context, as `context:NAME`."},
                "$env": {**_TEXT, "description": "A variable of the environment."},
                "$mem": {
                    "type": "object",
                    "description": "What of the conversation and its memory the model sees.",
                    "properties": {
                        "summary": {"type": "boolean"},
                        "query": {"type": "boolean"},
                        "recent": {"type": "integer", "minimum": 0},
                    },
                    "additionalProperties": False,
                },
            }.items()
        ),
    ]
}


_INCLUDE: Schema = {
    "type": "object",
    "description": "What a file has: a document, or the text of a file that ends in .md or .txt.",
    "properties": {INCLUDE: {**_TEXT, "description": "The file, relative to this one."}},
    "required": [INCLUDE],
}


def definition_schema(kind: DefinitionKind | None = None) -> Schema:
    """Return the schema of the files of one kind, or of a file of any kind."""
    known = _SchemaBuilder().definitions
    roots = KINDS if kind is None else (kind,)
    forms: list[Schema] = [{"$ref": f"#/$defs/{root}"} for root in roots]
    forms += [{"type": "array", "items": {"$ref": f"#/$defs/{root}"}} for root in roots if root in LIST_KINDS]
    used: dict[str, Schema] = {}
    waiting: list[Any] = list(forms)
    while waiting:
        value: Any = waiting.pop()
        if isinstance(value, dict):
            table = cast("Schema", value)
            target = table.get("$ref")
            name = target.removeprefix("#/$defs/") if isinstance(target, str) else ""
            if name and name not in used:
                used[name] = known[name]
                waiting.append(known[name])
            waiting += table.values()
        elif isinstance(value, list):
            waiting += cast("tuple[Any, ...]", value)
    return {
        "$schema": DIALECT,
        "title": f"vaka {kind or 'definition'}",
        **(forms[0] if len(forms) == 1 else {"anyOf": forms}),
        "$defs": {name: used[name] for name in sorted(used)},
    }


class _SchemaBuilder:
    """Makes the schemas of all definitions and of their parts."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {"context_layer": deepcopy(_LAYER)}
        for kind in KINDS:
            self.definitions[f"{kind}_slot"] = _slot_schema(kind)
        agents = {f"{one.type}_agent": self.agent_schema(one) for one in AGENT_TYPES}
        tools = {f"{one.type}_tool": self.tool_schema(one) for one in TOOL_TYPES}
        self.definitions |= {**agents, **tools}
        context, generator = self.struct_schema(ContextDefinition), self.struct_schema(GeneratorDefinition)
        generator["properties"]["stop"]["type"] = ["string", "array"]
        generator["properties"]["n"] = {"const": 1, "description": "The number of answers."}
        forms: dict[DefinitionKind, dict[str, Schema]] = {
            "agent": agents,
            "tool": tools,
            "rule": {"written_rule": deepcopy(_RULE)},
            "context": {"written_context": context},
            "generator": {"written_generator": generator},
        }
        for kind, parts in forms.items():
            composed = f"composed_{kind}"
            self.definitions |= {**parts, composed: self.composed_schema(kind, [*parts.values()])}
            self.definitions[kind] = {"anyOf": [{"$ref": f"#/$defs/{part}"} for part in (*parts, composed)]}
        for schema in self.definitions.values():
            _allow_includes(schema)
        self.definitions["include"] = _INCLUDE

    def composed_schema(self, kind: DefinitionKind, forms: list[Schema]) -> Schema:
        """Return the schema of a definition that takes fields from another one or from a file."""
        properties: Schema = {}
        for form in forms:
            properties |= {key: part for key, part in form["properties"].items() if key != "type"}
        if any("type" in form["properties"] for form in forms):
            properties["type"] = _TEXT
        properties[INCLUDE] = _INCLUDE["properties"][INCLUDE]
        ways = [INCLUDE]
        if kind in EXTENDED_KINDS:
            ways.append(EXTENDS)
            named = {"type": "object", "properties": {"$ref": _TEXT}, "required": ["$ref"]}
            about = f"The {kind} whose fields count that are not here: `{kind}:NAME`, or only the name."
            properties[EXTENDS] = {"anyOf": [_TEXT, named], "description": about}
        return {
            "type": "object",
            "description": f"{with_article(kind).capitalize()} with fields of another one, or of a file.",
            "properties": properties,
            "anyOf": [{"required": [key]} for key in ways],
            "additionalProperties": kind == "rule",
        }

    def agent_schema(self, agent: type[AgentDefinition]) -> Schema:
        schema = self.struct_schema(agent)
        kind = {"const": agent.type}
        if agent is MatchDefinition:
            schema["required"] = ["type"]
        schema["properties"] = {"type": {**kind, "description": "The kind of agent."}, **schema["properties"]}
        return schema

    def tool_schema(self, tool: type[ToolDefinition]) -> Schema:
        """Return the schema of the flat form, and of the nested one, in which a table under the type has the fields."""
        schema = self.struct_schema(tool)
        names = BUILTIN_NAMES if tool is BuiltinToolDefinition else (tool.type,)
        fields: Schema = schema["properties"]
        if tool is BuiltinToolDefinition:
            fields["parameters"] = fields["params"]
        if tool is not AgentToolDefinition:
            body: Schema = {"type": "object", "properties": {**fields}, "additionalProperties": False}
            for name in names:
                given = fields.get(name)
                fields[name] = {"anyOf": [given, body], "description": given["description"]} if given else body
            required = [{"required": schema.pop("required", [])}, *({"required": [name]} for name in names)]
            if tool is not BuiltinToolDefinition and tool is not LuaToolDefinition:
                schema["anyOf"] = required
        if tool.type in DEPRECATED_TOOL_TYPES:
            schema["deprecated"] = True
        kind = {"enum": list(names), "description": "The kind of tool."}
        schema["properties"] = {"type": kind, **fields, "quit": _QUIT}
        # A tool without a type is built-in, or a script if it has one.
        if tool is not BuiltinToolDefinition and tool is not LuaToolDefinition:
            schema["required"] = ["type", *schema.get("required", [])]
        return schema

    def struct_schema(self, struct: type) -> Schema:
        hints = get_type_hints(struct, include_extras=True)
        properties: Schema = {"$schema": _TEXT}
        schema: Schema = {"type": "object", "description": (struct.__doc__ or "").replace("``", "`")}
        for field in msgspec.structs.fields(struct):
            if hints[field.name] is ScriptDefinition:
                properties |= {
                    key: {**_TEXT, "description": "A file with the script." if key in FILE_KEYS else "The script."}
                    for key in SCRIPT_KEYS
                }
                schema["oneOf"] = [{"required": [key]} for key in SCRIPT_KEYS]
            else:
                properties[field.name] = part = self.type_schema(hints[field.name])
                if isinstance(field.default, str | int | float) and field.default:
                    part["default"] = field.default
        schema |= {"properties": properties, "additionalProperties": False}
        if struct in _REQUIRED:
            schema["required"] = list(_REQUIRED[struct])
        return schema

    def type_schema(self, hint: Any) -> Schema:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            descriptions = [part.description for part in arguments[1:] if isinstance(part, msgspec.Meta)]
            return {**self.type_schema(arguments[0]), "description": " ".join(filter(None, descriptions))}
        if hint == ContextLayer:
            return {"$ref": "#/$defs/context_layer"}
        if origin in (Union, types.UnionType):
            parts = [self.type_schema(one) for one in arguments if one is not types.NoneType]
            return parts[0] if len(parts) == 1 else {"anyOf": parts}
        if origin is tuple:
            return {"type": "array", "items": self.type_schema(arguments[0])}
        if origin is Slot or hint is ToolSlot:
            return {"$ref": f"#/$defs/{_slot_kind(arguments[0] if arguments else ToolDefinition)}_slot"}
        return _simple_schema(hint) or self.part_schema(hint)

    def part_schema(self, struct: type) -> Schema:
        """Return a reference to the schema of a part, such as a route or a step."""
        name = struct.__name__
        if name not in self.definitions:
            self.definitions[name] = part = self.struct_schema(struct)
            part["required"] = [field.name for field in msgspec.structs.fields(struct) if field.required]
            del part["properties"]["$schema"]
        return {"$ref": f"#/$defs/{name}"}


def _allow_includes(schema: Schema) -> None:
    """Let each table, list and text inside a schema be included from a file."""
    for name, part in schema.get("properties", {}).items():
        _allow_includes(part)
        if name not in ("$schema", "$ref", INCLUDE, EXTENDS, "name"):
            schema["properties"][name] = _with_include(part)
    for part in schema.get("anyOf", ()):
        _allow_includes(part)
    if "items" in schema:
        _allow_includes(schema["items"])
        schema["items"] = _with_include(schema["items"])


def _with_include(schema: Schema) -> Schema:
    include = {"$ref": "#/$defs/include"}
    if "anyOf" in schema:
        return schema if include in schema["anyOf"] else {**schema, "anyOf": [*schema["anyOf"], include]}
    if not ("$ref" in schema or schema.get("type") in ("string", "object", "array")):
        return schema
    outer = {key: part for key, part in schema.items() if key in ("description", "default")}
    inner = {key: part for key, part in schema.items() if key not in outer}
    return {"anyOf": [inner, include], **outer}


def _simple_schema(hint: Any) -> Schema | None:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is dict:
        return _TEXT_TABLE if arguments[1] is str else {"type": "object"}
    simple = {str: "string", bool: "boolean", int: "integer", float: "number"}
    return {"type": simple[hint]} if hint in simple else None


def _slot_schema(kind: DefinitionKind) -> Schema:
    """Return the schema of a place that holds a reference or an inline definition."""
    words = " or ".join(f"`{prefix}:NAME`" for prefix, target in PREFIXES.items() if target == kind)
    reference: Schema = {
        "type": "object",
        "properties": {"$ref": {**_TEXT, "minLength": 1, "description": f"{words}, or only the name."}},
        "required": ["$ref"],
    }
    inline: Schema = {"$ref": f"#/$defs/{kind}"}
    if kind == "tool":
        reference["properties"]["quit"] = _QUIT
    if kind in ("agent", "tool", "rule"):
        inline = {"allOf": [inline, {"required": ["name"]}]}
    return {"anyOf": [reference, inline]}


def _slot_kind(definition: Any) -> DefinitionKind:
    kinds: dict[Any, DefinitionKind] = {
        ToolDefinition: "tool",
        AgentDefinition: "agent",
        GeneratorDefinition: "generator",
    }
    return kinds.get(definition, "rule")
