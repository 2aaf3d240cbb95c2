"""Definitions are the same in JSON, YAML and MessagePack, and nothing but ``ConfigError`` comes of hostile bytes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from vaka.core.types.errors import ConfigError
from vaka.genx.definitions.agents import AgentDefinition
from vaka.genx.definitions.codecs import (
    MAX_FILE_BYTES,
    Format,
    decode_document,
    encode_definition,
    read_document,
    to_document,
)
from vaka.genx.definitions.json_schema import definition_schema
from vaka.genx.definitions.parser import parse_definition, parse_document
from vaka.genx.definitions.references import KINDS, DefinitionKind, Reference, Slot
from vaka.genx.definitions.tools import ToolSlot

FORMATS: list[Format] = ["json", "yaml", "msgpack"]

YAML = """
# A router with an inline agent.
type: match
name: concierge
generator: &model {model: small}
rules:
  - $ref: rule:book
  - name: smalltalk
    patterns: [yes, 2024-01-02, "how are you", 12:30:45]
route:
  - {rules: [book], agent: {$ref: agent:booking}}
  - rules: [smalltalk]
    agent:
      name: chatty
      generator: {<<: *model, temperature: 1e-1}
      tools:
        - {$ref: tool:bye, quit: true}
        - name: steps
          type: composite
          steps: [{id: one, tool: {name: l, lua: "return 1\\n"}}, {id: two, tool: {$ref: x}}]
        - {type: agent, name: ask, agent: {name: inner, context_layers: [Hi., {$mem: {recent: 3, query: true}},
           {$this: .prompt}, {$env: A}, {$ref: "style:warm"}]}}
default: {$ref: fallback}
"""
JSON = """
{"type": "match", "name": "concierge", "generator": {"model": "small"},
 "rules": [{"$ref": "rule:book"}, {"name": "smalltalk", "patterns": ["yes", "2024-01-02", "how are you", "12:30:45"]}],
 "route": [
  {"rules": ["book"], "agent": {"$ref": "agent:booking"}},
  {"rules": ["smalltalk"], "agent": {"name": "chatty", "generator": {"model": "small", "temperature": 0.1}, "tools": [
    {"$ref": "tool:bye", "quit": true},
    {"name": "steps", "type": "composite", "steps": [
      {"id": "one", "tool": {"name": "l", "lua": "return 1\\n"}}, {"id": "two", "tool": {"$ref": "x"}}]},
    {"type": "agent", "name": "ask", "agent": {"name": "inner", "context_layers":
      ["Hi.", {"$mem": {"recent": 3, "query": true}}, {"$this": ".prompt"}, {"$env": "A"},
       {"$ref": "style:warm"}]}}]}}],
 "default": {"$ref": "fallback"}}
"""


def parse_bytes(data: bytes, format: Format, kind: DefinitionKind = "agent") -> Any:
    return parse_definition(kind, decode_document(data, format).value)


def test_json_and_yaml_twins_are_equal_and_round_trip_in_every_format() -> None:
    agent = parse_bytes(YAML.encode(), "yaml")
    assert isinstance(agent, AgentDefinition)
    assert agent == parse_bytes(JSON.encode(), "json")
    for format in FORMATS:
        assert parse_bytes(encode_definition(agent, format), format) == agent


def test_a_context_without_text_round_trips() -> None:
    context = parse_definition("context", {"name": "c", "prompt": ""})
    for format in FORMATS:
        assert parse_definition("context", decode_document(encode_definition(context, format), format).value) == context


def test_a_reference_is_written_as_its_ref_alone_and_an_empty_one_as_null() -> None:
    assert to_document(Slot[Any](Reference("agent", "a", "agent"))) == {"$ref": "agent:a"}
    assert to_document(ToolSlot(Reference("tool", "a"), quit=True)) == {"$ref": "a", "quit": True}
    assert to_document(ToolSlot(quit=True)) is None
    assert encode_definition(Slot[Any](), "json") == b"null\n"
    tool = parse_definition("tool", {"name": "t", "params": {}, "description": "Does."})
    assert to_document(ToolSlot(definition=tool, quit=True)) == {
        "type": "built-in",
        "name": "t",
        "description": "Does.",
        "params": {},
        "quit": True,
    }


def test_msgpack_packs_tools_and_agents_as_bytes() -> None:
    tool = {"type": "lua", "name": "l", "lua_file": "l.luau"}
    agent = parse_definition("agent", {"name": "a", "tools": [{"$ref": "tool:bye", "quit": True}, tool]})
    packed = msgspec.msgpack.decode(encode_definition(agent, "msgpack"))
    assert packed == {
        "type": "react",
        "name": "a",
        "tools": [{"ref": "tool:bye", "quit": True}, {"type": "lua", "tool": msgspec.msgpack.encode(tool)}],
    }
    plain = msgspec.msgpack.encode({"name": "a", "tools": [{"$ref": "tool:bye", "quit": True}, tool]})
    assert parse_bytes(plain, "msgpack") == agent
    untyped = {"name": "a", "tools": [{"ref": "tool:bye", "quit": True}, {"tool": msgspec.msgpack.encode(tool)}]}
    assert parse_bytes(msgspec.msgpack.encode(untyped), "msgpack") == agent
    empty = {"type": "match", "name": "m", "default": {"ref": "", "type": "", "agent": None}}
    assert parse_bytes(msgspec.msgpack.encode(empty), "msgpack").default.is_empty


def test_errors_of_documents_have_their_line() -> None:
    def error_of(data: bytes, format: Format = "yaml") -> str:
        with pytest.raises(ConfigError) as raised:
            parse_definition("agent", decode_document(data, format, "f").value)
        return str(raised.value)

    deep = b"1"
    for _ in range(70):
        deep = msgspec.msgpack.encode({"name": "a", "type": "match", "default": {"type": "match", "agent": deep}})
    laughs = b"a: &a [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (name, name, b", ".join([b"*%c" % (name - 1)] * 10)) for name in b"bcdefghi"
    )
    assert {
        "flow": error_of(b"\na: [1\n"),
        "duplicate": error_of(b"a: 1\nb: 2\na: 3"),
        "documents": error_of(b"--- 1\n--- 2"),
        "nesting": error_of(b"[" * 100_000),
        "laughs": error_of(laughs),
        "many values": error_of(b"[" + b"1," * 60_000 + b"]"),
        "many merged": error_of(b"- &a {%s}\n- <<: [%s]" % (b"".join(b"k%d: 1," % n for n in range(500)), b"*a," * 99)),
        "recursion": error_of(b"&a [*a]"),
        "no anchor": error_of(b"*a"),
        "tag": error_of(b"a: !!python/object:x {}"),
        "tag of scalar": error_of(b"a: !!int x"),
        "bool as int": error_of(b"a: !!int true"),
        "infinite": error_of(b"\na: .inf"),
        "digits": error_of(b"a: " + b"9" * 5000),
        "key": error_of(b"? [a]\n: 1"),
        "alias as key": error_of(b"a: &a [1]\n? *a\n: 1"),
        "merge": error_of(b"<<: 3"),
        "character": error_of(b"a: \x00"),
        "text": error_of(b"a: \xff"),
        "json": error_of(b'{"a": 1,\n"a": 2}', "json"),
        "msgpack": error_of(b"\xc1", "msgpack"),
        "msgpack depth": error_of(deep, "msgpack")[-30:],
        "msgpack bytes": error_of(
            msgspec.msgpack.encode({"name": "a", "tools": [3, {"tool": msgspec.msgpack.encode(1)}]}), "msgpack"
        ),
    } == snapshot(
        {
            "flow": "f:3: not YAML: did not find expected ',' or ']'",
            "duplicate": "f:3: 'a' appears twice",
            "documents": "f:2: expected one document, got several; write each to a file of its own",
            "nesting": "f:1: nested deeper than 64 levels",
            "laughs": "the document has more than 50000 values",
            "many values": "f:1: the document has more than 50000 values",
            "many merged": "f:2: the document has more than 50000 values",
            "recursion": "f:1: the alias *a refers to a value that contains it",
            "no anchor": "f:1: the alias *a has no anchor before it",
            "tag": "f:1: the tag 'tag:yaml.org,2002:python/object:x' is not supported",
            "tag of scalar": "f:1: the tag 'tag:yaml.org,2002:int' does not fit, or is not supported",
            "bool as int": "f:1: the tag 'tag:yaml.org,2002:int' does not fit, or is not supported",
            "infinite": "f:2: '.inf' is not a number that JSON has",
            "digits": "f:1: '9999999999999999999999999999999999999999' is not a number that JSON has",
            "key": "f:1: a key must be a text",
            "alias as key": "f:2: a key must be a text",
            "merge": "f:1: expected an alias of a table after <<",
            "character": "f: not YAML: it has a character that YAML does not allow",
            "text": "f: not UTF-8: invalid start byte at byte 3",
            "json": "f:2: 'a' appears twice",
            "msgpack": "f: not MessagePack: MessagePack data is malformed: invalid opcode '\\xc1' (byte 0)",
            "msgpack depth": ": nested deeper than 64 levels",
            "msgpack bytes": "f: tool: expected a table",
        }
    )


def test_scalars_follow_yaml_1_2() -> None:
    text = """
    - yes
    - 2024-01-02
    - ~
    - 0x1F
    - 0o17
    - -3
    - 1e3
    - "1"
    - !!str 1
    - ! 2
    - !!float 2
    - &a key
    - {*a : True, 1: 2, <<: {z: 1}, '<<': 3, ? &b c : *b}
    - !!null ~
    """
    assert decode_document(text.encode(), "yaml").value == [
        "yes",
        "2024-01-02",
        None,
        31,
        15,
        -3,
        1000.0,
        "1",
        "1",
        "2",
        2.0,
        "key",
        {"key": True, "1": 2, "z": 1, "<<": 3, "c": "c"},
        None,
    ]
    assert decode_document(b"", "yaml").value is None


def test_a_file_is_read_by_the_end_of_its_name(tmp_path: Path) -> None:
    for name, data in {
        "a.JSON": b'\xef\xbb\xbf{"name": "a"}',
        "a.yml": b"name: a",
        "a.msgpack": b"\x81\xa4name\xa1a",
    }.items():
        (tmp_path / name).write_bytes(data)
        assert read_document(tmp_path / name).value == {"name": "a"}
    (tmp_path / "large.json").write_bytes(b" " * (MAX_FILE_BYTES + 1))
    for name, words in {
        "a.txt": "expected a file that ends in .json, .yaml, .yml, .msgpack",
        "none.json": "cannot be read: No such file or directory",
        "large.json": f"larger than the {MAX_FILE_BYTES} bytes a definition may have",
    }.items():
        with pytest.raises(ConfigError) as raised:
            read_document(tmp_path / name)
        assert str(raised.value) == f"{tmp_path / name}: {words}"


def test_a_definition_with_values_outside_of_json_is_not_written() -> None:
    tool = parse_definition("tool", {"name": "t", "params": {}})
    with pytest.raises(ConfigError, match="not finite"):
        encode_definition(msgspec.structs.replace(tool, params={"a": float("inf")}), "msgpack")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["yes", "1e5", "0o7", "~", ".nan", "<<", "- a", "a: b", "#", "\x85", "  x\n y", "'", '"', "{{x}}"]
)
NAMES = TEXTS.filter(lambda text: bool(text.strip()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(-1e300, 1e300) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
TABLES = st.dictionaries(TEXTS, VALUES, max_size=3)


def optional(**fields: "st.SearchStrategy[Any]") -> "st.SearchStrategy[dict[str, Any]]":
    return st.fixed_dictionaries({}, optional=fields)


def with_required(
    required: "dict[str, st.SearchStrategy[Any]]", **fields: "st.SearchStrategy[Any]"
) -> "st.SearchStrategy[dict[str, Any]]":
    return st.fixed_dictionaries(required, optional=fields)


def table_of(key: str, values: "st.SearchStrategy[Any]") -> "st.SearchStrategy[dict[str, Any]]":
    return st.fixed_dictionaries({key: values})


def references(*prefixes: str) -> "st.SearchStrategy[dict[str, Any]]":
    return table_of("$ref", st.tuples(st.sampled_from(prefixes), NAMES).map(":".join))


LAYERS: "st.SearchStrategy[list[Any]]" = st.lists(
    TEXTS.filter(bool)
    | references("context", "style")
    | table_of("$env", TEXTS.filter(bool))
    | table_of("$mem", optional(summary=st.booleans(), recent=st.integers(0, 2**40))),
    max_size=2,
)
SIMPLE_TOOLS = (
    with_required({"name": NAMES}, params=TABLES, description=TEXTS)
    | with_required({"type": st.just("lua"), "name": NAMES, "lua": NAMES})
    | with_required(
        {"type": st.just("http"), "name": NAMES, "endpoint": NAMES},
        headers=st.dictionaries(TEXTS, TEXTS, max_size=2),
        method=st.sampled_from(["GET", "POST"]),
        auth=st.just({"type": "bearer", "token": "t"}),
        timeout=st.floats(0.1, 1e9),
    )
    | with_required({"type": st.just("generator"), "name": NAMES, "model": NAMES}, context_layers=LAYERS)
)


def tool_slots(tools: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    def merge(slot: dict[str, Any], quits: dict[str, Any]) -> dict[str, Any]:
        return {**slot, **quits}

    return st.builds(merge, tools | references("tool"), optional(quit=st.booleans()))


def compose(tools: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    steps = st.lists(with_required({"id": NAMES, "tool": tool_slots(tools)}), min_size=1, max_size=2)
    unique = steps.filter(lambda found: len({step["id"] for step in found}) == len(found))
    return with_required({"type": st.just("composite"), "name": NAMES, "steps": unique})


TOOLS = st.recursive(SIMPLE_TOOLS, compose, max_leaves=2)
REACT = with_required(
    {"name": NAMES},
    prompt=TEXTS,
    context_layers=LAYERS,
    tools=st.lists(tool_slots(TOOLS), max_size=2),
    generator=references("model") | optional(model=TEXTS, top_p=st.floats(0, 1), stop=st.lists(TEXTS), extra=TABLES),
)


def route(agents: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    slots = agents | references("agent")
    rules = st.just([{"$ref": "rule:a"}, {"name": "b", "patterns": ["x"]}])
    routes = st.lists(with_required({"rules": st.just(["a", "b"]), "agent": slots}), max_size=2)
    return with_required({"type": st.just("match"), "name": NAMES, "rules": rules, "route": routes}, default=slots)


AGENTS = st.recursive(REACT, route, max_leaves=3)
AGENT_SCHEMA = jsonschema_rs.validator_for(definition_schema("agent"))


@pytest.mark.parametrize("format", FORMATS)
@given(document=AGENTS)
def test_every_agent_round_trips(format: Format, document: dict[str, Any]) -> None:
    AGENT_SCHEMA.validate(document)
    agent = parse_definition("agent", document)
    AGENT_SCHEMA.validate(to_document(agent))
    data = encode_definition(agent, format)
    assert parse_bytes(data, format) == agent
    assert to_document(parse_bytes(data, format)) == to_document(agent)


KEYS = st.sampled_from(
    [
        "type",
        "name",
        "prompt",
        "tools",
        "rules",
        "route",
        "agent",
        "default",
        "steps",
        "id",
        "tool",
        "quit",
        "$ref",
        "$this",
        "$env",
        "$mem",
        "context_layers",
        "generator",
        "http",
        "auth",
        "method",
        "endpoint",
        "headers",
        "lua",
        "lua_file",
        "params",
        "output_schema",
        "mode",
        "stop",
        "n",
        "recent",
        "model",
    ]
)
HOSTILE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS
    | st.binary(max_size=3)
    | st.sampled_from(["react", "match", "lua", "http", "composite", "agent", "tool:x", "json_output"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=6)
        | st.dictionaries(inner.filter(lambda key: not isinstance(key, list | dict)), inner, max_size=2)
    ),
    max_leaves=20,
)


@given(kind=st.sampled_from(KINDS), document=HOSTILE)
def test_any_document_is_a_definition_or_has_problems(kind: DefinitionKind, document: object) -> None:
    parsed = parse_document(kind, document)
    assert parsed.problems or parsed.value is not None


@pytest.mark.parametrize("format", FORMATS)
@given(
    data=st.binary(max_size=60)
    | HOSTILE.map(lambda value: repr(value).encode(errors="replace"))
    | VALUES.map(lambda value: json.dumps(value).encode())
    | VALUES.map(msgspec.msgpack.encode)
)
def test_any_bytes_are_a_document_or_a_config_error(format: Format, data: bytes) -> None:
    try:
        document = decode_document(data, format)
    except ConfigError:
        return
    assert document.line_of(("a", 0)) >= 1


@given(value=VALUES)
def test_every_json_value_reads_the_same_from_yaml(value: object) -> None:
    write: Callable[[object], bytes] = lambda value: encode_definition({"value": value}, "yaml")  # noqa: E731
    assert decode_document(write(value), "yaml").value == {"value": value}
    assert decode_document(json.dumps({"value": value}).encode(), "json").value == {"value": value}


def test_a_text_of_many_digits_stays_a_text() -> None:
    digits = "9" * 5000
    assert decode_document(encode_definition([digits], "yaml"), "yaml").value == [digits]
