"""Names fit all providers, and schemas that could harm are left out with a reason."""

import base64
import re
from typing import Any

import pytest

from vaka.core.types.errors import ConfigError
from vaka.core.types.ids import CallId
from vaka.core.types.message import Text, ToolCall
from vaka.core.types.tool import ToolSpec
from vaka.matching.mcp_names import tool_name
from vaka.mcp.definition import McpServer
from vaka.mcp.middleware import read_servers
from vaka.mcp.tools import (
    MAX_TEXT,
    ListedTool,
    check_schemas,
    make_spec,
    read_content,
    read_result,
    select_tools,
)
from vaka.runtime.options import policy_from_rules


def test_names_have_the_characters_and_the_length_that_all_providers_accept_and_are_unique() -> None:
    taken: set[str] = set()
    pairs = [
        ("git hub", "issues/list"),
        ("git hub", "issues.list"),
        ("s", "x" * 90),
        ("s", "x" * 91),
        ("s", ""),
        ("é", "日本"),
    ]
    for server, tool in pairs:
        name = tool_name(server, tool, taken)
        assert re.fullmatch(r"mcp__[A-Za-z0-9_-]{1,59}", name), name
        assert len(name) <= 64
        assert name not in taken
        taken.add(name)
    assert tool_name("git hub", "issues/list") == "mcp__git_hub__issues_list"


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "https://evil.example/schema.json"}, "outside of itself"),
        ({"properties": {"x": {"$ref": "file:///etc/passwd"}}}, "outside of itself"),
        (nested(2_000), "levels deep"),
        ({"properties": {"x": {"pattern": "^(a+)+$"}}}, "pattern"),
        ({"patternProperties": {"(x*)*y": {}}}, "pattern"),
        ({"description": "x" * 300_000}, "bytes"),
        ([], "not an object"),
    ],
)
def test_a_tool_with_a_harmful_schema_is_left_out_with_a_reason(schema: Any, reason: str) -> None:
    tools = [ListedTool(name="bad", parameters=schema), ListedTool(name="good", parameters=nested(3), output=schema)]
    tools = [check_schemas(tool) for tool in tools]
    assert tools[1].output is None or schema == []
    found, (note,) = select_tools(McpServer(name="s", command="x"), tools)
    assert [tool.name for tool in found] == ["good"]
    assert note.startswith("the tool 'bad' of the MCP server 's' is left out: ")
    assert reason in note


def test_the_whole_schema_is_kept_and_claims_of_strangers_change_no_effect() -> None:
    schema = {
        "$defs": {"a": {"type": "string"}},
        "anyOf": [{"required": ["x"]}],
        "additionalProperties": False,
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a", "default": None}},
    }
    tool = ListedTool(name="t", description="d" * 10_000, parameters=schema, reads=True)
    stranger = make_spec(McpServer(name="s", command="x", origin="/p/.mcp.json"), tool, "mcp__s__t")
    assert stranger.parameters == schema
    assert (stranger.effect, stranger.layer, len(stranger.description)) == ("once", "mcp", 4_001)
    assert make_spec(McpServer(name="s", command="x"), tool, "mcp__s__t").effect == "read"


def test_only_the_tools_that_a_definition_names_are_offered() -> None:
    server = McpServer(name="s", command="x", enabled_tools=("a", "b", "gone"), disabled_tools=("b",))
    found, notes = select_tools(server, [ListedTool(name=name) for name in "cba"])
    assert [tool.name for tool in found] == ["a"]
    assert notes == ["the MCP server 's' has no tool 'gone', which its definition names"]


def test_a_server_with_too_many_tools_is_reported_in_few_notes() -> None:
    tools = [ListedTool(name=f"t{number:05}") for number in range(10_000)]
    found, notes = select_tools(McpServer(name="s", command="x", disabled_tools=("gone",)), tools)
    assert (len(found), len(notes)) == (1_000, 21)
    assert "'gone'" in notes[0]
    assert notes[-1] == "8981 more tools of the MCP server 's' are left out"


def test_a_server_whose_tools_would_fill_every_prompt_offers_a_part_of_them() -> None:
    schema = {"type": "object", "properties": {"x": {"description": "y" * 100_000}}}
    tools = [ListedTool(name=f"t{number:02}", description="z" * 100_000, parameters=schema) for number in range(20)]
    found, notes = select_tools(McpServer(name="s", command="x"), tools)
    assert 5 < len(found) < 12
    assert len(notes) == 20 - len(found)
    assert "is left out: the tools before it take more than 1 MB" in notes[0]


def as_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "image", "data": as_base64(b"<svg/>"), "mimeType": "image/svg+xml"}, "image/svg+xml: left out"),
        ({"type": "image", "data": as_base64(b"hi"), "mimeType": "image/png"}, "[image image/png: left out"),
        ({"type": "image", "data": as_base64(b"GIF89a" + bytes(4 << 20)), "mimeType": "image/gif"}, "larger than 5 MB"),
        ({"type": "audio", "data": as_base64(bytes(11 << 20)), "mimeType": "audio/wav"}, "larger than 10 MB"),
        ({"type": "audio", "data": as_base64(b"OggS"), "mimeType": "audio/ogg"}, "[audio audio/ogg: left out"),
        (
            {"type": "resource", "resource": {"uri": "f://a", "blob": as_base64(b"PK"), "mimeType": "application/zip"}},
            "[application f://a: left out",
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "f://a", "blob": as_base64(b"{}"), "mimeType": "application/json"},
            },
            "[application f://a]\n{}",
        ),
    ],
)
def test_media_that_a_provider_would_refuse_are_left_out_with_the_reason(block: Any, text: str) -> None:
    (part,) = read_content([block])
    assert isinstance(part, Text)
    assert text in part.text


def test_servers_whose_tools_would_have_the_same_names_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'my db' and 'my.db' would have tools with the same names"):
        read_servers({"my db": {"command": "x"}, "my.db": {"command": "x"}})


def test_a_result_that_is_too_long_is_cut_and_one_that_is_odd_is_shown() -> None:
    blocks = [{"type": "text", "text": "x" * MAX_TEXT}, {"type": "text", "text": "rest"}, {"type": "new", "a": 1}, "?"]
    result = read_result(CallId("c"), {"content": blocks})
    assert [len(part.text) > 0 for part in result.content if isinstance(part, Text)] == [True, True, True]
    assert result.content[1] == Text(text="\n[cut: 4 more characters]")
    failed = read_result(CallId("c"), {"isError": True})
    assert (failed.failed, failed.text) == (True, "the tool failed and said nothing about it")


def test_a_rule_may_name_tools_of_servers_without_the_prefix() -> None:
    policy = policy_from_rules(allow=["git__log", "mcp__db"], ask=["git__p*"], deny=["git__push"])

    def judge(name: str) -> str:
        verdict = policy.judge(ToolCall(id=CallId("c"), name=name), ToolSpec(name=name, layer="mcp"), ())
        return f"{type(verdict).__name__} {verdict.rule}".strip()

    names = ("mcp__git__log", "mcp__git__pull", "mcp__git__push", "mcp__db__read")
    assert [judge(name) for name in names] == [
        "Allow git__log",
        "Ask git__p*",
        "Deny git__push",
        "Allow mcp__db",
    ]
    assert judge("mcp__mcp__git__log").startswith("Ask")
