"""Documents become definitions; each error has its words and its place in the document."""

import re
from pathlib import Path
from typing import Any, cast

import jsonschema_rs
import pytest

from vaka.genx.definitions.agents import (
    AgentToolDefinition,
    LuaAgentDefinition,
    MatchDefinition,
    ReactDefinition,
    RouteDefinition,
)
from vaka.genx.definitions.codecs import read_document
from vaka.genx.definitions.context_layers import (
    ContextLayerReference,
    EnvironmentLayer,
    FieldLayer,
    InlineLayer,
    MemoryLayer,
)
from vaka.genx.definitions.fields import DefinitionChecks, ParseSettings
from vaka.genx.definitions.folder import FOLDERS, list_files
from vaka.genx.definitions.generators import ContextDefinition, GeneratorDefinition
from vaka.genx.definitions.json_schema import definition_schema
from vaka.genx.definitions.parser import parse_definition, parse_document
from vaka.genx.definitions.references import DefinitionKind, Reference, Slot
from vaka.genx.definitions.scripts import MAX_SCRIPT_BYTES, read_script
from vaka.genx.definitions.tools import (
    BuiltinToolDefinition,
    CompositeStep,
    CompositeToolDefinition,
    GeneratorToolDefinition,
    HttpAuth,
    HttpToolDefinition,
    LuaToolDefinition,
    ScriptDefinition,
    TextProcessorDefinition,
    ToolSlot,
)
from vaka.genx.definitions.yaml_documents import parse_yaml

HTTP = {"type": "http", "name": "h", "endpoint": "https://example.com"}
PROCESSOR = {"type": "text_processor", "name": "p", "prompt": "Shorten.", "model": "m"}


def problems_of(kind: DefinitionKind, document: object, **settings: Any) -> list[str]:
    parsed = parse_document(kind, document, settings=ParseSettings(**settings))
    return [message for _, message in parsed.problems]


def test_a_router_has_rules_routes_and_a_default() -> None:
    agent = parse_definition(
        "agent",
        {
            "type": "match",
            "name": "concierge",
            "generator": {"model": "small-router", "temperature": 0, "stop": "\n", "max_tokens": 20.0, "n": 1},
            "rules": [{"$ref": "rule:book_room"}, {"name": "smalltalk", "patterns": ["how are you"]}],
            "route": [
                {"rules": ["book_room"], "agent": {"$ref": "agent:booking"}},
                {"rules": ["smalltalk"], "agent": {"name": "chatty", "prompt": "Be brief."}},
            ],
            "default": {"$ref": "fallback"},
        },
    )
    assert agent == MatchDefinition(
        name="concierge",
        generator=Slot(
            definition=GeneratorDefinition(model="small-router", temperature=0, stop=("\n",), max_tokens=20)
        ),
        rules=(
            Slot(reference=Reference("rule", "book_room", "rule")),
            Slot(definition={"name": "smalltalk", "patterns": ["how are you"]}),
        ),
        route=(
            RouteDefinition(rules=("book_room",), agent=Slot(reference=Reference("agent", "booking", "agent"))),
            RouteDefinition(
                rules=("smalltalk",), agent=Slot(definition=ReactDefinition(name="chatty", prompt="Be brief."))
            ),
        ),
        default=Slot(reference=Reference("agent", "fallback")),
    )
    assert agent.generator.definition.options == {"temperature": 0, "max_tokens": 20, "stop": ["\n"]}
    assert agent.default.is_ref
    assert agent.default.name == "fallback"
    assert [rule.name for rule in agent.rules] == ["book_room", "smalltalk"]


def test_an_agent_has_tools_and_context_layers_of_every_kind() -> None:
    agent = parse_definition(
        "agent",
        {
            "$schema": "https://example.com/agent.schema.json",
            "name": "a",
            "description": "Helps.",
            "generator": {"$ref": "model:small"},
            "context_layers": [
                "Be kind.",
                {"$this": ".prompt"},
                {"$ref": "character:elsa"},
                {"$ref": "house:rules"},
                {"$env": "TONE"},
                {"$mem": {"summary": True, "recent": 0}},
                {"$mem": {"query": True}},
            ],
            "tools": [
                {"$ref": "tool:goodbye", "quit": True},
                {"name": "clock", "quit": True, "parameters": {"type": "object"}},
                {"type": "agent", "name": "ask", "agent": {"$ref": "agent:other"}},
            ],
        },
    )
    assert agent == ReactDefinition(
        name="a",
        description="Helps.",
        generator=Slot(reference=Reference("generator", "small", "model")),
        context_layers=(
            InlineLayer("Be kind."),
            FieldLayer(".prompt"),
            ContextLayerReference(Reference("context", "elsa", "character")),
            ContextLayerReference(Reference("context", "house:rules")),
            EnvironmentLayer("TONE"),
            MemoryLayer(summary=True, recent=0),
            MemoryLayer(query=True, recent=100),
        ),
        tools=(
            ToolSlot(Reference("tool", "goodbye", "tool"), quit=True),
            ToolSlot(definition=BuiltinToolDefinition(name="clock", params={"type": "object"}), quit=True),
            ToolSlot(
                definition=AgentToolDefinition(name="ask", agent=Slot(reference=Reference("agent", "other", "agent")))
            ),
        ),
    )
    assert agent.context_layers[1].field == "prompt"
    assert [slot.name for slot in agent.tools] == ["goodbye", "clock", "ask"]
    assert not agent.generator.is_empty
    assert ReactDefinition(name="b").generator.is_empty
    assert Slot[GeneratorDefinition]().name == ""


@pytest.mark.parametrize("kind", ["built-in", "builtin", ""])
def test_a_tool_without_a_type_is_built_in(kind: str) -> None:
    assert parse_definition("tool", {"type": kind, "name": "t"}) == BuiltinToolDefinition(name="t")


def test_the_flat_and_the_nested_form_of_a_tool_are_equal() -> None:
    body: dict[str, Any] = {
        "method": "POST",
        "endpoint": "https://example.com/{city}",
        "headers": {"X-Level": 3},
        "query": {"q": "{city}"},
        "auth": {"type": "basic", "username": "$USER", "password": "$PASS"},
        "req_body_jq": ".",
        "timeout": 5,
        "max_response_size_mb": 0.5,
        "params": {"type": "object"},
        "resp_body_jq": ".a",
    }
    flat = {"type": "http", "name": "weather", "description": "The weather.", **body}
    nested = {"type": "http", "name": "weather", "http": {**body, "name": "inner", "description": "The weather."}}
    expected = HttpToolDefinition(
        name="weather",
        description="The weather.",
        method="POST",
        endpoint="https://example.com/{city}",
        headers={"X-Level": "3"},
        query={"q": "{city}"},
        req_body_jq=".",
        resp_body_jq=".a",
        timeout=5,
        auth=HttpAuth(type="basic", username="$USER", password="$PASS"),
        max_response_size_mb=0.5,
        params={"type": "object"},
    )
    assert parse_definition("tool", flat) == parse_definition("tool", nested) == expected


def test_each_kind_of_tool_has_its_defaults() -> None:
    composite = {
        "type": "composite",
        "name": "c",
        "composite": {
            "steps": [{"id": "one", "tool": {"$ref": "x"}}, {"id": "two", "tool": HTTP, "input_jq": ".input"}]
        },
    }
    assert [
        parse_definition("tool", HTTP),
        parse_definition("tool", {"type": "generator", "name": "g", "generator": {"model": "m"}}),
        parse_definition("tool", PROCESSOR),
        parse_definition("tool", composite),
        parse_definition("tool", {"name": "l", "lua": "return 1", "params": {"city": {"type": "string"}}}),
        parse_definition("tool", {"type": "lua", "name": "l", "lua": {"script_file": "l.luau"}}),
        parse_definition("agent", {"name": "l", "script": "return 1", "tools": [{"$ref": "x"}]}),
        parse_definition("context", {"name": "c", "prompt": "Text."}),
        parse_definition("generator", {"name": "g", "model": "m", "top_k": 0, "reasoning": "low", "extra": {"a": 1}}),
        parse_definition("generator", {"name": "g", "model": "m", "reasoning": 2048}).options,
        parse_definition("rule", {"name": "r", "patterns": []}),
    ] == [
        HttpToolDefinition(name="h", endpoint="https://example.com", method="GET", max_response_size_mb=1),
        GeneratorToolDefinition(name="g", model="m", mode="generate"),
        TextProcessorDefinition(name="p", prompt="Shorten.", model="m", output_mode="text"),
        CompositeToolDefinition(
            name="c",
            steps=(
                CompositeStep(id="one", tool=ToolSlot(Reference("tool", "x"))),
                CompositeStep(
                    id="two",
                    tool=ToolSlot(definition=HttpToolDefinition(name="h", endpoint="https://example.com")),
                    input_jq=".input",
                ),
            ),
        ),
        LuaToolDefinition(name="l", params={"city": {"type": "string"}}, script=ScriptDefinition(text="return 1")),
        LuaToolDefinition(name="l", script=ScriptDefinition(file="l.luau")),
        LuaAgentDefinition(
            name="l", tools=(ToolSlot(Reference("tool", "x")),), script=ScriptDefinition(text="return 1")
        ),
        ContextDefinition(name="c", prompt="Text."),
        GeneratorDefinition(name="g", model="m", reasoning="low", extra={"a": 1}),
        {"reasoning": 2048},
        {"name": "r", "patterns": []},
    ]


def test_all_problems_are_reported_at_once_with_their_places() -> None:
    document = {"type": "http", "name": "h", "http": {"method": "x", "auth": {"type": "bearer"}}}
    parsed = parse_document("tool", document)
    assert [path for path, _ in parsed.problems] == [("http", "method"), ("endpoint",), ("http", "auth", "token")]


def test_unknown_keys_are_errors_in_strict_mode_and_notes_otherwise() -> None:
    document = {
        "name": "a",
        "promt": "x",
        "tools": [{"$ref": "x", "description": "y"}, {"name": "t", "zzz": 1}],
        "generator": {"modle": "m"},
        "context_layers": [{"$env": "A", "b": 1}, {"$mem": {"c": 1}}],
    }
    messages = [
        "agent a: 'modle' is not a known key; did you mean 'model'?",
        "agent a: context layer: 'b' is not a known key",
        "agent a: context layer: $mem: 'c' is not a known key",
        "agent a: 'description' is not a known key",
        "agent a: tool t: 'zzz' is not a known key",
        "agent a: 'promt' is not a known key; did you mean 'prompt'?",
    ]
    assert sorted(problems_of("agent", document, strict=True)) == sorted(f"parse react agent: {m}" for m in messages)
    parsed = parse_document("agent", document)
    assert parsed.problems == ()
    assert sorted(message for _, message in parsed.notes) == sorted(
        m.replace("a known key", "a known key and has no effect") for m in messages
    )


def test_deprecated_kinds_and_fields_without_effect_are_noted() -> None:
    assert [message for _, message in parse_document("tool", HTTP).notes] == [
        "the tool type 'http' is deprecated; `vaka config convert` makes a Luau tool of it"
    ]
    both = parse_document("tool", {"name": "t", "params": {"type": "object"}, "parameters": {}})
    assert both.value.params == {"type": "object"}
    assert [message for _, message in both.notes] == ["tool t: parameters has no effect beside params"]
    router = {"type": "match", "name": "r", "prompt": "Hi.", "context_layers": [{"$this": ".x"}]}
    assert [message for _, message in parse_document("agent", router).notes] == [
        "agent r: context layer: $this: '.x' is always empty; expected one of prompt, name, description, model, mode",
        "agent r: prompt has no effect: the prompt of a router is made of its rules",
        "agent r: context_layers has no effect: the prompt of a router is made of its rules",
    ]


def test_the_file_of_a_script_is_found_in_the_folders_and_nowhere_else(tmp_path: Path) -> None:
    tools = tmp_path / "project" / "tools"
    tools.mkdir(parents=True)
    (tools / "near.luau").write_text("return 1")
    (tmp_path / "project" / "far.luau").write_text("if")
    (tmp_path / "project" / "large.luau").write_text(" " * (MAX_SCRIPT_BYTES + 1))
    (tmp_path / "outside.luau").write_text("return 1")
    folders = (tools, tmp_path / "project")
    settings = ParseSettings(
        script_folders=folders,
        checks=DefinitionChecks(luau=lambda text, name: f"{name}:1: if what" if text == "if" else ""),
    )

    def parse(file: str) -> Any:
        return parse_document("tool", {"name": "t", "lua_file": file}, settings=settings)

    (tmp_path / "libs").mkdir()
    (tmp_path / "project" / "root.luau").write_text("return 1")
    assert (parse("root.luau").value.script.libs, parse("near.luau").value.script.libs) == (None, None)
    (tmp_path / "project" / "libs").symlink_to(tmp_path / "libs")
    assert parse("near.luau").value.script.libs is None, "a library outside of the project does not count"
    (tmp_path / "project" / "libs").unlink()
    (tmp_path / "project" / "libs").mkdir()
    assert parse("near.luau").value.script.libs == tmp_path / "project" / "libs"
    near = parse("near.luau").value.script
    assert near.path == tools / "near.luau"
    assert read_script(near) == "return 1"
    assert read_script(ScriptDefinition(text="return 2")) == "return 2"
    assert "not found in" in parse("x" * 5000).problems[0][1]
    outside = f"is not inside of {tmp_path / 'project'}"
    assert [
        [message for _, message in parse(file).problems]
        for file in ("far.luau", "large.luau", "../../outside.luau", str(tmp_path / "outside.luau"), "none.luau", "\0")
    ] == [
        ["tool t: lua_file: far.luau:1: if what"],
        [f"tool t: lua_file: {folders[1]}/large.luau: larger than the {MAX_SCRIPT_BYTES} bytes a script may have"],
        [f"tool t: lua_file: '../../outside.luau' {outside}"],
        [f"tool t: lua_file: '{tmp_path}/outside.luau' {outside}"],
        [f"tool t: lua_file: 'none.luau' not found in {folders[0]} or {folders[1]}"],
        [f"tool t: lua_file: '\\x00' not found in {folders[0]} or {folders[1]}"],
    ]


def test_the_schema_accepts_every_form_and_finds_typos() -> None:
    tools = jsonschema_rs.validator_for(definition_schema("tool"))
    forms: list[Any] = [
        HTTP,
        PROCESSOR,
        {"name": "t"},
        [{"name": "t", "type": "builtin", "parameters": {}}],
        {"type": "http", "http": {"endpoint": "https://example.com", "headers": {"X-Level": 3}}},
        {"type": "lua", "lua": {"script": "return 1"}},
        {"script_file": "x.luau", "params": {"a": {}}},
        {"type": "composite", "steps": [{"id": "a", "tool": {**HTTP, "quit": False}, "input_jq": "."}]},
        {"type": "agent", "agent": {"$ref": "agent:a"}},
        {"built-in": {"name": "x"}},
    ]
    assert [form for form in forms if not tools.is_valid(form)] == []
    typos: list[Any] = [
        {**HTTP, "endpiont": "x"},
        {**HTTP, "method": "get"},
        {"type": "http", "name": "h"},
        {"type": "ftp"},
        {"lua": "x", "script": "y"},
        {"type": "composite", "steps": [{"id": "a"}]},
        {"type": "agent", "agent": {"prompt": "without a name"}},
        {"type": "generator", "prompt": "x"},
    ]
    assert [typo for typo in typos if tools.is_valid(typo)] == []
    rules = jsonschema_rs.validator_for(definition_schema("rule"))
    assert rules.is_valid([{"name": "r", "vars": {"a": {"type": "int"}}, "patterns": ["x", ["y", "r"]]}])
    assert rules.is_valid({"patterns": [{"input": "x"}], "examples": ["y"], "tests": ["x", {"input": "x"}]})
    assert not rules.is_valid({"name": "r", "patterns": [[]]})


def test_the_schema_accepts_definitions_made_of_others() -> None:
    text = {"$include": "prompt.md"}
    valid: list[tuple[DefinitionKind, Any]] = [
        ("agent", {"extends": "agent:base", "prompt": text, "tools": [{"$include": "tools.yaml"}]}),
        ("agent", {"$include": "agent.yaml", "description": "D"}),
        ("agent", {"tools": [{"extends": {"$ref": "tool:t"}, "name": "x"}], "generator": {"extends": "large"}}),
        ("agent", {"context_layers": [text, "x"], "generator": text}),
        ("tool", {"extends": "tool:web", "http": {"method": "POST", "headers": text}}),
        ("tool", [{"type": "http", "endpoint": text}, {"$include": "t.yaml"}]),
        ("generator", {"extends": "large", "top_k": 1}),
        ("context", {"prompt": text}),
        ("rule", {"name": "r", "examples": {"$include": "examples.yaml"}}),
    ]
    assert [one for one in valid if not jsonschema_rs.validator_for(definition_schema(one[0])).is_valid(one[1])] == []
    wrong: list[tuple[DefinitionKind, Any]] = [
        ("agent", {"extends": 3}),
        ("agent", {"extends": "base", "promt": "x"}),
        ("context", {"extends": "x"}),
        ("tool", {"type": "http", "endpoint": {"$includes": "x"}}),
        ("agent", {"prompt": {"$include": 3}}),
    ]
    assert [one for one in wrong if jsonschema_rs.validator_for(definition_schema(one[0])).is_valid(one[1])] == []


def test_the_schema_accepts_the_definitions_of_the_examples() -> None:
    examples = Path(__file__).parents[3] / "examples"
    files: list[tuple[Path, DefinitionKind]] = [
        (path, kind)
        for folder, kind in FOLDERS.items()
        for project in examples.iterdir()
        for path in list_files(project / folder)
    ]
    schemas = {kind: jsonschema_rs.validator_for(definition_schema(kind)) for _, kind in files}
    assert [path for path, kind in files if not schemas[kind].is_valid(read_document(path).value)] == []
    assert len(files) > 10


def test_the_examples_of_the_reference_are_definitions() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/definitions.md").read_text("utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    agent, tools = (parse_yaml(block, "page")[0] for block in blocks)
    assert parse_definition("agent", agent) == ReactDefinition(name="helper", prompt="You help.")
    flat, nested = (parse_definition("tool", tool) for tool in cast("list[Any]", tools))
    assert flat == nested == HttpToolDefinition(name="weather", endpoint="https://example.com/{city}")
