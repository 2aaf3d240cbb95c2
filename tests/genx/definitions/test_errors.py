"""Each error of a definition has its words, and names what is expected."""

from typing import Any

import pytest

from vaka.config.documents import JsonPath
from vaka.core.types.errors import ConfigError
from vaka.genx.definitions.fields import MAX_VALUES, DefinitionChecks, ParseSettings
from vaka.genx.definitions.parser import parse_definition
from vaka.genx.definitions.references import DefinitionKind

AGENT = {"name": "a"}
HTTP = {"type": "http", "name": "h", "endpoint": "https://example.com"}
PROCESSOR = {"type": "text_processor", "name": "p", "prompt": "Shorten.", "model": "m"}
TOOL_TYPES = "built-in, http, generator, text_processor, composite, lua or agent"
OF_AGENT = "parse react agent: agent a: "

ERRORS: list[tuple[DefinitionKind, object, str]] = [
    ("agent", {"type": "robot"}, "parse agent type: invalid agent type 'robot'; expected react, match or lua"),
    (
        "agent",
        {"type": "realtime"},
        "parse agent type: the agent type 'realtime' is not available yet; use react, match or lua",
    ),
    ("agent", {}, "parse react agent: react agent: name is required"),
    ("agent", {"name": " "}, "parse react agent: react agent: name is required"),
    ("agent", {"type": "match"}, "parse match agent: match agent: name is required"),
    ("agent", {"type": "lua", "lua": "x"}, "parse lua agent: lua agent: name is required"),
    (
        "agent",
        {"type": "match", "name": "n", "route": [{"agent": {"$ref": "a"}}]},
        "parse match agent: agent n: route[0]: rules is required",
    ),
    (
        "agent",
        {"type": "match", "name": "n", "rules": [{"$ref": "r"}], "route": [{"rules": ["r"]}]},
        "parse match agent: agent n: route[0]: agent is required",
    ),
    (
        "agent",
        {
            "type": "match",
            "name": "n",
            "rules": [{"$ref": "music"}],
            "route": [{"rules": ["musik"], "agent": {"$ref": "a"}}],
        },
        "parse match agent: agent n: route[0]: 'musik' is not the name of one of its rules; did you mean 'music'?",
    ),
    (
        "agent",
        {"type": "match", "name": "n", "route": [{"rules": ["r"], "agent": {"$ref": "a"}}]},
        "parse match agent: agent n: route[0]: 'r' is not the name of one of its rules; the agent has no rules",
    ),
    (
        "agent",
        {"type": "match", "name": "n", "route": ["r"]},
        "parse match agent: agent n: route.0: expected a table with rules and agent, got a text",
    ),
    (
        "agent",
        {"type": "match", "name": "n", "rules": [{}]},
        "parse match agent: agent n: rule: name is required",
    ),
    (
        "agent",
        {"type": "match", "name": "n", "default": {"type": "match"}},
        "parse match agent: agent n: parse match agent: match agent: name is required",
    ),
    (
        "agent",
        {**AGENT, "tools": [{"$ref": "rule:r"}]},
        OF_AGENT + "$ref 'rule:r' is a reference to a rule; expected tool:r",
    ),
    (
        "agent",
        {**AGENT, "generator": {"$ref": "agent:r"}},
        OF_AGENT + "$ref 'agent:r' is a reference to an agent; expected generator:r or model:r",
    ),
    (
        "agent",
        {**AGENT, "tools": [{"$ref": "tool:"}]},
        OF_AGENT + "$ref 'tool:' has no name after the colon",
    ),
    (
        "agent",
        {**AGENT, "tools": [{"$ref": 3}]},
        OF_AGENT + "$ref: expected a text, got a whole number",
    ),
    (
        "agent",
        {**AGENT, "tools": [None]},
        OF_AGENT + "tools.0: expected a table with $ref or the definition of a tool, got nothing",
    ),
    ("agent", {**AGENT, "tools": [{}]}, OF_AGENT + "built-in tool: name is required"),
    ("agent", {**AGENT, "tools": {}}, OF_AGENT + "tools: expected a list, got a table"),
    (
        "agent",
        {**AGENT, "tools": [{"$ref": "x", "quit": "yes"}]},
        OF_AGENT + "quit: expected true or false, got a text",
    ),
    (
        "agent",
        {**AGENT, "context_layers": [""]},
        OF_AGENT + "context layer: must have one of $this, $ref, $env and $mem, or be a text",
    ),
    (
        "agent",
        {**AGENT, "context_layers": [{"$mem": None}]},
        OF_AGENT + "context layer: must have one of $this, $ref, $env and $mem, or be a text",
    ),
    (
        "agent",
        {**AGENT, "context_layers": [{"$env": "A", "$this": "b"}]},
        OF_AGENT + "context layer: must have only one of $this, $ref, $env and $mem, got $this and $env",
    ),
    (
        "agent",
        {**AGENT, "context_layers": [{"$mem": {"recent": -1}}]},
        OF_AGENT + "context layer: $mem: recent: expected a whole number of at least 0, got -1",
    ),
    ("agent", {**AGENT, "prompt": 3}, OF_AGENT + "prompt: expected a text, got a whole number"),
    (
        "agent",
        {**AGENT, "generator": "m"},
        OF_AGENT + "generator: expected a table with $ref or the definition of a generator, got a text",
    ),
    (
        "agent",
        {**AGENT, "generator": {"max_tokens": 1.5}},
        OF_AGENT + "max_tokens: expected a whole number, got a number",
    ),
    (
        "agent",
        {**AGENT, "generator": {"top_p": True}},
        OF_AGENT + "top_p: expected a number, got true or false",
    ),
    (
        "agent",
        {**AGENT, "generator": {"n": 2}},
        OF_AGENT + "n: only one answer is supported; leave it out",
    ),
    (
        "tool",
        {"type": "ftp"},
        f"parse tool type: invalid tool type 'ftp'; expected {TOOL_TYPES}",
    ),
    ("tool", {}, "built-in tool: name is required"),
    ("tool", {"name": "t", "params": []}, "tool t: params: expected a table, got a list"),
    ("tool", {"type": "http", "endpoint": "x"}, "http tool: name is required"),
    ("tool", {"type": "http", "name": "h"}, "tool h: endpoint is required"),
    ("tool", {**HTTP, "http": "x"}, "http: expected a table, got a text"),
    ("tool", {**HTTP, "method": "get"}, "tool h: invalid HTTP method 'get'; expected GET, POST, PUT, DELETE or PATCH"),
    (
        "tool",
        {**HTTP, "auth": {"type": "digest"}},
        "tool h: auth: invalid HTTP auth type 'digest'; expected bearer or basic",
    ),
    ("tool", {**HTTP, "auth": {"token": "t"}}, "tool h: auth: invalid HTTP auth type ''; expected bearer or basic"),
    ("tool", {**HTTP, "auth": {"type": "bearer"}}, "tool h: auth: token is required for bearer authentication"),
    (
        "tool",
        {**HTTP, "auth": {"type": "basic"}},
        "tool h: auth: username and password, or token as user:password, are required for basic authentication",
    ),
    ("tool", {**HTTP, "headers": {"a": []}}, "tool h: headers.a: expected a text, got a list"),
    ("tool", {**HTTP, "timeout": -1}, "tool h: timeout: expected a number above zero, got -1"),
    ("tool", {**HTTP, "req_body_jq": ".["}, 'tool h: req_body_jq: invalid jq expression ".[": no end'),
    ("tool", {"type": "generator", "model": "m"}, "generator tool: name is required"),
    ("tool", {"type": "generator", "name": "g"}, "tool g: model is required"),
    (
        "tool",
        {"type": "generator", "name": "g", "model": "m", "mode": "x"},
        "tool g: invalid generator mode 'x'; expected generate or json_output",
    ),
    (
        "tool",
        {"type": "generator", "name": "g", "model": "m", "mode": "json_output"},
        "tool g: output_schema is required for json_output mode",
    ),
    ("tool", {**PROCESSOR, "prompt": ""}, "tool p: prompt is required"),
    ("tool", {**PROCESSOR, "model": None}, "tool p: model is required"),
    (
        "tool",
        {**PROCESSOR, "output_mode": "xml"},
        "tool p: invalid text processor output mode 'xml'; expected text or json",
    ),
    ("tool", {**PROCESSOR, "output_mode": "json"}, "tool p: output_schema is required for json output mode"),
    ("tool", {"type": "composite", "steps": [{"id": "a", "tool": {"$ref": "x"}}]}, "composite tool: name is required"),
    ("tool", {"type": "composite", "name": "c"}, "tool c: steps is required"),
    (
        "tool",
        {"type": "composite", "name": "c", "mode": "par", "steps": [{"id": "a", "tool": {"$ref": "x"}}]},
        "tool c: invalid composite mode 'par'; expected seq",
    ),
    ("tool", {"type": "composite", "name": "c", "steps": [{"tool": {"$ref": "x"}}]}, "tool c: step[0].id is required"),
    (
        "tool",
        {"type": "composite", "name": "c", "steps": [{"id": "a", "tool": {"$ref": "x"}}] * 2},
        'tool c: duplicate step id "a"',
    ),
    (
        "tool",
        {"type": "composite", "name": "c", "steps": [{"id": "a"}]},
        "tool c: step a must have tool.$ref or inline tool",
    ),
    (
        "tool",
        {"type": "composite", "name": "c", "steps": [1]},
        "tool c: steps.0: expected a table with id and tool, got a whole number",
    ),
    ("tool", {"type": "lua", "name": "l"}, "tool l: lua, lua_file, script or script_file is required"),
    (
        "tool",
        {"name": "l", "lua": "x", "script_file": "y"},
        "tool l: only one of lua, lua_file, script or script_file may be set, got lua and script_file",
    ),
    ("tool", {"name": "l", "lua": ""}, "tool l: lua is empty"),
    ("tool", {"name": "l", "lua_file": ""}, "tool l: lua_file is empty"),
    ("tool", {"name": "l", "lua": "if"}, "tool l: lua: l:1: if what"),
    (
        "tool",
        {"name": "l", "lua": "x", "params": {"city": "string"}},
        "tool l: params.city: expected the JSON Schema of an argument, got a text",
    ),
    ("tool", {"type": "agent", "name": "a"}, "tool a: agent is required"),
    ("tool", [], "expected the definition of a tool: a table with a name"),
    ("context", {"name": "c"}, "context c: prompt is required"),
    ("generator", {"name": "g"}, "generator g: model is required"),
    ("generator", {"name": "g", "model": "m", "top_p": 2}, "top_p: expected a number from 0 to 1, got 2"),
    ("generator", {"name": "g", "model": "m", "temperature": -1}, "temperature: expected a number from 0 on, got -1"),
    ("generator", {"name": "g", "model": "m", "reasoning": 0.5}, "reasoning: expected a whole number, got a number"),
    (
        "generator",
        {"name": "g", "model": "m", "reasoning": "deep"},
        "invalid reasoning 'deep'; expected none, minimal, low, medium, high or max",
    ),
    ("generator", {"name": "g", "model": "m", "stop": [1]}, "stop.0: expected a text, got a whole number"),
    ("rule", {"patterns": []}, "rule: name is required"),
    ("rule", {"name": "r", "patterns": 1}, "rule r: patterns must be a list"),
    ("agent", {1: 2}, "the document has a key that is not a text"),
    ("agent", {"name": "a", "prompt": float("nan")}, "the document has a number that is not finite"),
    ("agent", {"name": "a", "prompt": b""}, "the document has a value that JSON does not have: a bytes"),
    ("agent", {"name": "\ud800"}, "the document has a text with half of a surrogate pair, which UTF-8 cannot express"),
    ("agent", {"name": 2**64}, "the document has a whole number that does not fit into 64 bits"),
    ("agent", [0] * MAX_VALUES, "the document has more than 50000 values"),
]


def check_patterns(rule: dict[str, Any]) -> list[tuple[JsonPath, str, bool]]:
    message = f"rule {rule['name']}: patterns must be a list"
    return [] if isinstance(rule["patterns"], list) else [(("patterns",), message, False)]


@pytest.mark.parametrize(("kind", "document", "message"), ERRORS, ids=[message[-60:] for _, _, message in ERRORS])
def test_an_error_says_what_is_wrong(kind: DefinitionKind, document: object, message: str) -> None:
    checks = DefinitionChecks(
        jq=lambda text: 'invalid jq expression ".[":\n no end' if text == ".[" else "",
        luau=lambda text, name: f"{name}:1: if what" if text == "if" else "",
        rule=check_patterns,
    )
    with pytest.raises(ConfigError) as raised:
        parse_definition(kind, document, ParseSettings(checks=checks))
    assert str(raised.value) == message


def test_a_document_that_is_nested_too_deep_is_an_error() -> None:
    document: dict[str, Any] = {"name": "a"}
    for _ in range(5000):
        document = {"type": "match", "name": "a", "default": document}
    with pytest.raises(ConfigError, match=r"^the document is nested deeper than 64 levels$"):
        parse_definition("agent", document)
