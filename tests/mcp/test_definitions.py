"""MCP servers are read from every form of document; each entry is listed, and what is wrong is reported."""

from typing import Any

import pytest

from vaka.matching.mcp_names import tool_name, tool_part
from vaka.mcp.definition import McpServer, ParsedServers, parse_servers

ENVIRONMENT = {"TOKEN": "t0k en", "EMPTY": "", "HOME": "/home/ada", "HOST": "example.org"}


def read(document: Any) -> ParsedServers:
    return parse_servers(document, origin="x.json", environment=ENVIRONMENT)


def read_one(entry: Any, name: str = "db") -> McpServer:
    (server,) = read({"mcpServers": {name: entry}}).servers
    return server


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": {"db": {"type": "stdio", "command": "run", "args": ["-v", "a b"]}}},
        {"db": {"command": "run", "args": ["-v", "a b"]}},
        {"mcp": {"servers": {"db": {"command": "run", "args": ["-v", "a b"]}}}},
        {"servers": {"db": {"command": "run", "args": ["-v", "a b"]}}, "inputs": []},
        {"mcpServers": [{"name": "db", "command": "run", "args": ["-v", "a b"]}]},
        {"name": "db", "command": ["run", "-v"], "args": "'a b'"},
        {"mcpServers": {"db": "stdio://run -v 'a b'"}},
        {"mcpServers": {"_comment": "ours", "db": "run -v 'a b'"}, "$schema": "x"},
        {"mcpServers": {"db": {"command": "run -v 'a b'"}}},
        {"mcpServers": {"db": {"Command": "run", "arguments": ["-v", "a b"], "transport": "STDIO"}}},
    ],
)
def test_a_server_is_read_from_every_form_of_document(document: Any) -> None:
    (server,) = read(document).servers
    assert (server.name, server.transport, server.command, server.args) == ("db", "stdio", "run", ("-v", "a b"))
    assert server.approved


def test_all_fields_of_a_server_are_read() -> None:
    fields = {
        "command": "~/bin/run",
        "args": ["--token=${TOKEN}", 8080, True],
        "cwd": "~/work",
        "env": {"A": 1, "B": True},
        "timeoutSeconds": 3,
        "toolTimeoutSeconds": 60,
        "enabledTools": ["a", "b"],
        "disabledTools": ["b"],
        "required": True,
        "description": "a database",
    }
    server = read_one(fields)
    assert server.problems == ("x.json: db: args has items that are not texts; they are written as texts",)
    assert server == McpServer(
        name="db",
        command="/home/ada/bin/run",
        args=("--token=t0k en", "8080", "true"),
        cwd="/home/ada/work",
        env={"A": "1", "B": "true"},
        connect_timeout=3.0,
        tool_timeout=60.0,
        enabled_tools=("a", "b"),
        disabled_tools=("b",),
        required=True,
        origin="x.json",
        written=fields,
        problems=server.problems,
    )


@pytest.mark.parametrize(
    ("entry", "transport", "url"),
    [
        ({"url": "https://a.org/mcp"}, "http", "https://a.org/mcp"),
        ({"type": "http", "url": "https://${HOST}/mcp"}, "http", "https://example.org/mcp"),
        ({"type": "streamable-http", "url": "http://a.org"}, "http", "http://a.org"),
        ({"type": "streamableHttp", "serverUrl": "http://a.org"}, "http", "http://a.org"),
        ({"type": "sse", "url": "https://a.org/sse"}, "sse", "https://a.org/sse"),
        ({"type": "stdio", "url": "https://a.org"}, "http", "https://a.org"),
        ({"url": "localhost:3000/mcp"}, "http", "http://localhost:3000/mcp"),
        ({"url": "https://a.org", "transport": {"type": "streamable_http"}}, "http", "https://a.org"),
        ({"transport": {"type": "sse", "url": "https://a.org/sse"}}, "sse", "https://a.org/sse"),
        ({"httpUrl": "a.org/mcp"}, "http", "https://a.org/mcp"),
        ("https://a.org/mcp", "http", "https://a.org/mcp"),
        ("sse://a.org/x", "sse", "https://a.org/x"),
        ("http+sse://a.org", "sse", "http://a.org"),
        ("https+streamable://a.org", "http", "https://a.org"),
        ("https+json://a.org", "http", "https://a.org"),
    ],
)
def test_the_transport_of_a_remote_server_comes_from_its_type_or_address(entry: Any, transport: str, url: str) -> None:
    server = read_one(entry)
    assert (server.transport, server.url, server.refusal) == (transport, url, "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${TOKEN}", "t0k en"),
        ("a${TOKEN}b${HOST}", "at0k enbexample.org"),
        ("${NONE:-x}", "x"),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("${NONE:-${HOST}}", "example.org"),
        ("${NONE:-${NEITHER:-y}}z", "yz"),
        ("${env:TOKEN}", "t0k en"),
        ("$TOKEN", "$TOKEN"),
        ("${TOKEN", "${TOKEN"),
    ],
)
def test_variables_are_replaced_everywhere_and_values_are_not_read_again(text: str, value: str) -> None:
    entry = {"command": f"c{text}", "args": [text], "env": {"K": text}, "headers": {"H": text}}
    server = read_one(entry)
    got = (server.command, server.args, server.env, server.headers)
    assert got == (f"c{value}", (value,), {"K": value}, {"H": value})
    assert server.refusal == ""


@pytest.mark.parametrize(
    ("entry", "refusal"),
    [
        ({"command": "run", "env": {"KEY": "${MISSING}"}}, "the variable MISSING of env.KEY is not set"),
        ({"url": "https://a.org", "headers": {"X": "${input:key}"}}, "the variable input:key of headers.X is not set"),
        ({"type": "http"}, "it has no url"),
        ({"type": "stdio", "args": ["x"]}, "it has no command"),
        ({"comand": "run"}, "it has no command and no url"),
        ({}, "it has no command and no url"),
        (None, "its entry is null"),
        (7, "its entry is a number"),
        ({"command": 7}, "its command is a number"),
        ({"command": {"path": "run"}}, "its command is an object"),
        ({"type": "ws", "url": "wss://a.org"}, "the url begins with wss://"),
        ({"type": "carrier", "url": "https://a.org"}, "the type 'carrier' is not supported"),
        ({"url": "/api/mcp"}, "the url '/api/mcp' has no host"),
        ("ftp://a.org", "ftp:// is not an address"),
        ("http+pigeon://a.org", "http+pigeon:// is not an address"),
        ({"command": "run", "disabled": True}, "its entry disables it"),
        ({"command": "run", "enabled": False}, "its entry disables it"),
    ],
)
def test_an_entry_that_cannot_be_started_is_listed_with_the_reason(entry: Any, refusal: str) -> None:
    parsed = read({"mcpServers": {"before": {"command": "run"}, "db": entry, "after": {"command": "run"}}})
    assert [(server.name, server.approved) for server in parsed.servers] == [
        ("before", True),
        ("db", False),
        ("after", True),
    ]
    assert refusal in parsed.servers[1].refusal


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"command": "run", "comand": "x"}, "'comand' is not known and has no effect; did you mean 'command'?"),
        ({"command": "run", "xyzzy": 1}, "'xyzzy' is not known and has no effect"),
        ({"command": "run", "autoApprove": ["a"]}, "'autoApprove' has no effect; write permission rules"),
        ({"command": "run", "bearer_token_env_var": "T"}, "'bearer_token_env_var' has no effect; write Authorization"),
        ({"command": "run", "ENV": {}}, "'ENV' is read as 'env'"),
        ({"command": "run", "url": "https://a.org"}, "it has a command and a url; the command counts"),
        ({"command": "run", "cwd": "a", "workingDirectory": "b"}, "both mean 'cwd'"),
        ({"command": "run", "args": {"a": 1}}, "args is an object; expected a list"),
        ({"command": "run", "args": ["a", None]}, "args has items that are not texts"),
        ({"command": "run", "env": ["A=1"]}, "env is a list; expected an object"),
        ({"command": "run", "env": "A=1"}, "env is a text; expected an object"),
        ({"command": "run", "env": {"A": None}}, "env.A is null and left out"),
        ({"command": "run", "timeoutSeconds": -1}, "timeoutSeconds -1 is not a number of zero or more"),
        ({"command": "run", "toolTimeoutSeconds": "soon"}, "toolTimeoutSeconds 'soon' is not a number"),
        ({"command": "run", "timeout": 30}, "timeout 30 is read as seconds of a call"),
        ({"command": "run", "enabledTools": []}, "enabledTools is empty, so all tools are offered"),
        ({"command": "run", "disabledTools": ["a", 1]}, "disabledTools has items that are not names"),
        ({"command": "run 'a b"}, "cannot be split at its quotes"),
        ({"command": "run", "type": "docker"}, "the type 'docker' is not known; stdio is used"),
        ({"command": "run", "type": "http"}, "its type is http, but it has no url; stdio is used"),
        ({"command": "run", "args": ["${x"]}, "args has '${' without '}'"),
    ],
)
def test_a_sloppy_entry_still_starts_and_is_reported(entry: Any, problem: str) -> None:
    server = read_one(entry)
    assert server.approved
    assert any(problem in line for line in server.problems), server.problems


def test_what_is_not_a_server_is_reported_and_the_rest_is_read() -> None:
    document: Any = {
        "mcpServers": {"db": {"command": "run"}},
        "stray": {"command": "run"},
        "disabledServers": {"old": {}},
        "description": "ours",
    }
    parsed = read(document)
    assert [(server.name, server.refusal) for server in parsed.servers] == [
        ("db", ""),
        ("stray", "it stands beside mcpServers"),
    ]
    assert parsed.problems == (
        "x.json: 'stray' stands beside mcpServers; move it into mcpServers",
        "x.json: 'disabledServers' stands beside mcpServers; it has no effect",
    )
    assert read(7).problems == ("x.json: expected an object with mcpServers",)
    assert read({"mcpServers": 7}).problems == ("x.json: expected an object with mcpServers",)
    assert read({"db": {"command": "run"}, "version": 1, "port": 2}).problems == (
        "x.json: 'port' is not the entry of a server",
    )
    assert read(None) == read({}) == read({"mcpServers": None}) == ParsedServers()


def test_the_timeout_of_other_programs_is_in_milliseconds() -> None:
    assert read_one({"command": "run", "timeout": 30_000}).tool_timeout == 30.0
    assert read_one({"command": "run", "timeoutSeconds": 0}).connect_timeout == 10.0


def test_servers_without_a_name_get_one_each() -> None:
    specs = ["npx -y @acme/db", "stdio:///opt/bin/run --x", "https://u@mcp.acme.com:8443/x", "run", {"command": "run"}]
    names = [server.name for server in read(specs).servers]
    assert names == ["@acme/db", "run", "mcp.acme.com", "run-2", "run-3"]


def test_a_name_is_listed_as_written_and_made_plain_for_tools() -> None:
    server = read_one({"command": "run"}, name="My  Database!")
    assert (server.name, server.tool_prefix) == ("My  Database!", "mcp__My_Database__")
    assert "mcp__My_Database__" in server.problems[0]
    assert read_one({"command": "run"}, name="a-b_c").problems == ()
    assert tool_part("a__b") == "a_b"
    assert tool_part("_a_") == "a"
    assert tool_part("天气").startswith("server_")
    assert tool_part("天气") != tool_part("時計")
    long = read_one({"command": "run"}, name="s" * 60)
    assert "is too long" in long.problems[0]
    assert tool_name(long.name, "t" * 60).startswith(long.tool_prefix)
    assert tool_part("s" * 60) != tool_part("s" * 61)


def test_hostile_texts_neither_crash_nor_take_long() -> None:
    nested = read_one({"command": "${A:-" * 20_000 + "}" * 20_000})
    assert "command has a default within more than 10 others" in nested.problems[0]
    assert nested.refusal == "it has no command and no url"
    deep: Any = []
    for _ in range(2_000):
        deep = [deep]
    assert read_one({"command": "run", "env": {"A": deep}}).env == {"A": ""}
    entry = {"command": "a\ud800", "args": ["\udcff"], "env": {"\ud800": "x"}, "\ud801": 1}
    (server,) = read({"mcpServers": {"\ud800": entry}}).servers
    texts = (server.name, server.command, *server.args, *server.env, *server.problems)
    assert [text.encode() for text in texts], "the log cannot have lone surrogates"
