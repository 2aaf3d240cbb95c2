"""From documents to definitions: every problem is reported at once, with its place in the document."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from vaka.config.documents import JsonPath, suggest
from vaka.core.types.errors import ConfigError
from vaka.genx.definitions.agents import (
    AgentDefinition,
    AgentToolDefinition,
    LuaAgentDefinition,
    MatchDefinition,
    ReactDefinition,
    RouteDefinition,
    RuleDocument,
)
from vaka.genx.definitions.context_layers import parse_layers
from vaka.genx.definitions.fields import (
    DefinitionFields,
    ParseFindings,
    ParseSettings,
    check_document,
    join_words,
    with_article,
)
from vaka.genx.definitions.generators import parse_context, parse_generator, parse_named_generator
from vaka.genx.definitions.references import DefinitionKind, parse_slot
from vaka.genx.definitions.scripts import SCRIPT_KEYS, parse_script
from vaka.genx.definitions.tools import (
    DEPRECATED_TOOL_TYPES,
    BuiltinToolDefinition,
    CompositeMode,
    CompositeStep,
    CompositeToolDefinition,
    GeneratorMode,
    GeneratorToolDefinition,
    HttpAuth,
    HttpAuthType,
    HttpMethod,
    HttpToolDefinition,
    LuaToolDefinition,
    OutputMode,
    TextProcessorDefinition,
    ToolDefinition,
    ToolSlot,
)


class ParsedDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition, and the findings in its document; a definition with problems must not be used."""

    value: Any = None
    problems: tuple[tuple[JsonPath, str], ...] = ()
    notes: tuple[tuple[JsonPath, str], ...] = ()


def parse_document(
    kind: DefinitionKind, document: object, *, name: str = "", settings: ParseSettings | None = None
) -> ParsedDefinition:
    """Return the definition of a document; ``name`` is used if it has none."""
    findings = ParseFindings(settings or ParseSettings())
    value: Any = None
    try:
        check_document(document)
    except ConfigError as error:
        return ParsedDefinition(problems=(((), str(error)),))
    if isinstance(document, dict):
        table = cast("dict[str, Any]", document)
        if name and table.get("name") is None:
            table = {**table, "name": name}
        fields = DefinitionFields(table, (), "", findings)
        fields.get("$schema")
        value = _PARSERS[kind](fields)
    else:
        findings.problems.append(((), f"expected the definition of {with_article(kind)}: a table with a name"))
    return ParsedDefinition(value=value, problems=tuple(findings.problems), notes=tuple(findings.notes))


def parse_definition(kind: DefinitionKind, document: object, settings: ParseSettings | None = None) -> Any:
    """Return the definition of a document. Raises ``ConfigError`` with every problem on a line of its own."""
    parsed = parse_document(kind, document, settings=settings)
    if parsed.problems:
        raise ConfigError("\n".join(message for _, message in parsed.problems))
    return parsed.value


def _parse_agent(fields: DefinitionFields) -> AgentDefinition | None:
    kind = fields.text("type") or ("lua" if any(key in fields.values for key in SCRIPT_KEYS) else "react")
    if kind == "realtime":
        fields.fail("parse agent type: the agent type 'realtime' is not available yet; use react, match or lua", "type")
    elif kind not in _AGENT_PARSERS:
        fields.fail(f"parse agent type: invalid agent type {kind!r}; expected react, match or lua", "type")
    else:
        return _AGENT_PARSERS[kind](fields.with_prefix(f"parse {kind} agent: "))
    return None


def _agent_fields(fields: DefinitionFields, kind: str) -> tuple[DefinitionFields, dict[str, Any]]:
    """Return the fields with the agent's name before messages, and what every kind of agent has."""
    fields.get("type")
    name = fields.required_text("name", f"{kind} agent: name is required")
    fields = fields.with_prefix(f"agent {name}: " if name else "")
    generator = parse_slot(fields, fields.get("generator"), "generator", parse_generator, "generator")
    return fields, {
        "name": name,
        "description": fields.text("description"),
        "prompt": fields.text("prompt"),
        "context_layers": parse_layers(fields),
        "generator": generator,
    }


def _parse_react(fields: DefinitionFields) -> AgentDefinition:
    fields, shared = _agent_fields(fields, "react")
    agent = ReactDefinition(**shared, tools=_parse_tool_slots(fields))
    fields.report_unknown_keys()
    return agent


def _parse_lua_agent(fields: DefinitionFields) -> AgentDefinition:
    fields, shared = _agent_fields(fields, "lua")
    agent = LuaAgentDefinition(**shared, tools=_parse_tool_slots(fields), script=parse_script(fields))
    fields.report_unknown_keys()
    return agent


def _parse_match(fields: DefinitionFields) -> AgentDefinition:
    fields, shared = _agent_fields(fields, "match")
    for key in ("prompt", "context_layers"):
        if shared[key]:
            fields.note(f"{key} has no effect: the prompt of a router is made of its rules", key)
    rules = tuple(
        parse_slot(fields, value, "rule", _parse_rule, "rules", index)
        for index, value in enumerate(fields.items("rules"))
    )
    names = {rule.name for rule in rules}
    routes = [_parse_route(fields, value, index, names) for index, value in enumerate(fields.items("route"))]
    agent = MatchDefinition(
        **shared,
        rules=rules,
        route=tuple(route for route in routes if route is not None),
        default=parse_slot(fields, fields.get("default"), "agent", _parse_agent, "default"),
    )
    fields.report_unknown_keys()
    return agent


def _parse_route(fields: DefinitionFields, value: object, index: int, known: set[str]) -> RouteDefinition | None:
    if not isinstance(value, dict):
        fields.fail_type("a table with rules and agent", value, "route", index)
        return None
    route = fields.fields_at(cast("dict[str, Any]", value), "route", index, prefix=f"route[{index}]: ")
    rules = route.texts("rules")
    if not route.values.get("rules"):
        route.fail("rules is required", "rules")
    for at, rule in enumerate(rules):
        if rule not in known:
            hint = suggest(rule, sorted(known)) if known else "the agent has no rules"
            route.fail(f"{rule!r} is not the name of one of its rules; {hint}", "rules", at)
    agent = parse_slot(route, route.get("agent"), "agent", _parse_agent, "agent", required="agent is required")
    route.report_unknown_keys()
    return RouteDefinition(rules=rules, agent=agent)


def _parse_tool_slots(fields: DefinitionFields) -> tuple[ToolSlot, ...]:
    return tuple(_parse_tool_slot(fields, value, "tools", index) for index, value in enumerate(fields.items("tools")))


def _parse_tool_slot(fields: DefinitionFields, value: object, *keys: str | int, required: str = "") -> ToolSlot:
    quits = False
    table: Any = value
    if isinstance(value, dict):
        quits = fields.fields_at(table, *keys).flag("quit")
    elif value is None and not required:
        fields.fail_type("a table with $ref or the definition of a tool", value, *keys)
    slot = parse_slot(fields, table, "tool", _parse_inline_tool, *keys, required=required)
    return ToolSlot(slot.reference, slot.definition, quits)


def _parse_rule(fields: DefinitionFields) -> RuleDocument | None:
    name = fields.required_text("name", "rule: name is required")
    document = {key: value for key, value in fields.values.items() if key not in ("$schema", "$ref")}
    check = fields.settings.checks.rule
    for path, message, is_note in check(document) if check is not None and name else ():
        (fields.note if is_note else fields.fail)(message, *path)
    return document


def _parse_inline_tool(fields: DefinitionFields) -> ToolDefinition | None:
    fields.get("quit")
    return _parse_tool(fields)


def _parse_tool(fields: DefinitionFields) -> ToolDefinition | None:
    kind = fields.text("type") or ("lua" if any(key in fields.values for key in SCRIPT_KEYS) else "built-in")
    kind = "built-in" if kind in BUILTIN_NAMES else kind
    if kind not in _TOOL_PARSERS:
        fields.fail(f"parse tool type: invalid tool type {kind!r}; expected {join_words(list(_TOOL_PARSERS))}", "type")
        return None
    for key in BUILTIN_NAMES if kind == "built-in" else (kind,):
        if key in fields.values and kind != "agent" and (kind != "lua" or isinstance(fields.values[key], dict)):
            fields = fields.merge_body(key)
    if kind in DEPRECATED_TOOL_TYPES:
        fields.note(f"the tool type {kind!r} is deprecated; `vaka config convert` makes a Luau tool of it", "type")
    fields.get("type")
    name = fields.required_text("name", f"{kind} tool: name is required")
    fields = fields.with_prefix(f"tool {name}: " if name else "")
    tool = _TOOL_PARSERS[kind](fields, {"name": name, "description": fields.text("description")})
    fields.report_unknown_keys()
    return tool


def _parse_builtin(fields: DefinitionFields, shared: dict[str, Any]) -> ToolDefinition:
    params, parameters = fields.table("params"), fields.table("parameters")
    if params is not None and parameters is not None:
        fields.note("parameters has no effect beside params", "parameters")
    return BuiltinToolDefinition(**shared, params=parameters if params is None else params)


def _parse_http(fields: DefinitionFields, shared: dict[str, Any]) -> ToolDefinition:
    return HttpToolDefinition(
        **shared,
        method=fields.choice("method", HttpMethod, "HTTP method", "GET"),
        endpoint=fields.required_text("endpoint", "endpoint is required"),
        params=fields.table("params"),
        query=fields.text_table("query"),
        headers=fields.text_table("headers"),
        auth=_parse_auth(fields),
        req_body_jq=_parse_jq(fields, "req_body_jq"),
        resp_body_jq=_parse_jq(fields, "resp_body_jq"),
        max_response_size_mb=_parse_positive(fields, "max_response_size_mb") or 1,
        timeout=_parse_positive(fields, "timeout"),
    )


def _parse_auth(fields: DefinitionFields) -> HttpAuth | None:
    value = fields.table("auth")
    if not value:
        return None
    auth = fields.fields_at(value, "auth", prefix="auth: ")
    found = HttpAuth(
        type=auth.choice("type", HttpAuthType, "HTTP auth type", "bearer"),
        token=auth.text("token"),
        username=auth.text("username"),
        password=auth.text("password"),
    )
    if not auth.text("type"):
        auth.fail("invalid HTTP auth type ''; expected bearer or basic", "type")
    elif auth.values["type"] == "bearer" and not found.token:
        auth.fail("token is required for bearer authentication", "token")
    elif auth.values["type"] == "basic" and not found.token and not found.username:
        auth.fail("username and password, or token as user:password, are required for basic authentication", "username")
    auth.report_unknown_keys()
    return found


def _parse_positive(fields: DefinitionFields, key: str) -> float | None:
    value = fields.number(key)
    if value is not None and value < 0:
        fields.fail(f"{key}: expected a number above zero, got {value}", key)
    return value or None


def _parse_jq(fields: DefinitionFields, key: str) -> str:
    expression = fields.text(key)
    check = fields.settings.checks.jq
    problem = check(expression) if expression and check is not None else ""
    if problem:
        fields.fail(f"{key}: {' '.join(problem.split())}", key)
    return expression


def _parse_generator_tool(fields: DefinitionFields, shared: dict[str, Any]) -> ToolDefinition:
    tool = GeneratorToolDefinition(
        **shared,
        model=fields.required_text("model", "model is required"),
        mode=fields.choice("mode", GeneratorMode, "generator mode", "generate"),
        prompt=fields.text("prompt"),
        context_layers=parse_layers(fields),
        output_schema=fields.table("output_schema"),
    )
    if tool.mode == "json_output" and fields.values.get("output_schema") is None:
        fields.fail("output_schema is required for json_output mode")
    return tool


def _parse_text_processor(fields: DefinitionFields, shared: dict[str, Any]) -> ToolDefinition:
    tool = TextProcessorDefinition(
        **shared,
        prompt=fields.required_text("prompt", "prompt is required"),
        model=fields.required_text("model", "model is required"),
        output_mode=fields.choice("output_mode", OutputMode, "text processor output mode", "text"),
        output_schema=fields.table("output_schema"),
    )
    if tool.output_mode == "json" and fields.values.get("output_schema") is None:
        fields.fail("output_schema is required for json output mode")
    return tool


def _parse_composite(fields: DefinitionFields, shared: dict[str, Any]) -> ToolDefinition:
    mode: CompositeMode = fields.choice("mode", CompositeMode, "composite mode", "seq")
    steps: list[CompositeStep] = []
    ids: set[str] = set()
    for index, value in enumerate(fields.items("steps")):
        step = _parse_step(fields, value, index)
        if step is None:
            continue
        if step.id and step.id in ids:
            fields.fail(f'duplicate step id "{step.id}"', "steps", index, "id")
        ids.add(step.id)
        steps.append(step)
    if not fields.values.get("steps"):
        fields.fail("steps is required", "steps")
    return CompositeToolDefinition(**shared, mode=mode, steps=tuple(steps))


def _parse_step(fields: DefinitionFields, value: object, index: int) -> CompositeStep | None:
    if not isinstance(value, dict):
        fields.fail_type("a table with id and tool", value, "steps", index)
        return None
    inner = fields.fields_at(cast("dict[str, Any]", value), "steps", index)
    id = inner.required_text("id", f"step[{index}].id is required")
    required = f"step {id or index} must have tool.$ref or inline tool"
    step = CompositeStep(
        id=id,
        tool=_parse_tool_slot(inner, inner.get("tool"), "tool", required=required),
        input_jq=_parse_jq(inner, "input_jq"),
    )
    inner.report_unknown_keys()
    return step


def _parse_lua_tool(fields: DefinitionFields, shared: dict[str, Any]) -> ToolDefinition:
    params = fields.table("params")
    if params is not None and params.get("type") != "object" and not any(key in params for key in ("$ref", "anyOf")):
        for name, schema in params.items():
            if not isinstance(schema, dict):
                fields.fail_type("the JSON Schema of an argument", schema, "params", name)
    return LuaToolDefinition(**shared, params=params, script=parse_script(fields))


def _parse_agent_tool(fields: DefinitionFields, shared: dict[str, Any]) -> ToolDefinition:
    slot = parse_slot(fields, fields.get("agent"), "agent", _parse_agent, "agent", required="agent is required")
    return AgentToolDefinition(**shared, agent=slot)


BUILTIN_NAMES = ("built-in", "builtin", "built_in")
_AGENT_PARSERS: Mapping[str, Callable[[DefinitionFields], AgentDefinition]] = {
    "react": _parse_react,
    "match": _parse_match,
    "lua": _parse_lua_agent,
}
_TOOL_PARSERS: Mapping[str, Callable[[DefinitionFields, dict[str, Any]], ToolDefinition]] = {
    "built-in": _parse_builtin,
    "http": _parse_http,
    "generator": _parse_generator_tool,
    "text_processor": _parse_text_processor,
    "composite": _parse_composite,
    "lua": _parse_lua_tool,
    "agent": _parse_agent_tool,
}
_PARSERS: Mapping[DefinitionKind, Callable[[DefinitionFields], Any]] = {
    "agent": _parse_agent,
    "tool": _parse_tool,
    "rule": _parse_rule,
    "context": parse_context,
    "generator": parse_named_generator,
}
