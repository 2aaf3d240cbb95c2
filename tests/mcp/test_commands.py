"""``vaka mcp`` lists servers without secrets, and adds and removes them in the file of a scope."""

import json
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.cli.chat.chat_in_process import chat_in_process
from tests.cli.shell import TIMEOUT, Shell, call_line, say_line
from tests.without_library import vaka_without
from vaka.agents.react import Agent
from vaka.cli.command_table import find_command
from vaka.cli.completion import add_completers
from vaka.cli.kit.errors import describe_error
from vaka.cli.main import cli
from vaka.mcp.definition import parse_servers
from vaka.models.scripted import Scripted
from vaka.runtime.options import Project
from vaka.runtime.runtime import Runtime

PLAIN_SERVER = Path(__file__).parents[1] / "mcp" / "plain_server.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository, which is the working folder of a user without settings."""
    folder = tmp_path / "boat"
    (folder / ".git").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    monkeypatch.setenv("VAKA_LANG", "en")
    return folder


def vaka(*words: str) -> Result:
    return CliRunner().invoke(cli, ["mcp", *words])


def listed(*words: str) -> dict[str, dict[str, Any]]:
    done = vaka("list", "--json", *words)
    assert done.exit_code == 0
    return {server["name"]: server for server in json.loads(done.stdout)}


def state_of(project: Path) -> Any:
    return json.loads((project.parent / "home" / ".claude.json").read_text())


def test_every_server_is_listed_with_its_origin_and_why_it_is_not_started(project: Path) -> None:
    servers = {"my db": {"command": "run", "comand": 1}, "gone": {"url": "https://${NO_SUCH}/mcp"}, "odd": 7}
    file = project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    assert {name: server["reason"] for name, server in listed().items()} == dict.fromkeys(
        servers, "the folder is not trusted (`vaka trust`)"
    )
    trusted = listed("--trust")
    assert [(name, server["transport"], server["approved"]) for name, server in trusted.items()] == [
        ("my db", "stdio", True),
        ("gone", "http", False),
        ("odd", "stdio", False),
    ]
    assert trusted["gone"]["reason"] == "the variable NO_SUCH of url is not set"
    assert trusted["gone"]["url"] == "https://${NO_SUCH}/mcp"
    assert {server["origin"] for server in trusted.values()} == {str(file)}
    assert len(trusted["my db"]["warnings"]) == 2
    table = vaka("list", "--trust")
    assert "approved" in table.stdout
    assert "not started: the variable NO_SUCH of url is not set" in table.stdout
    assert "did you mean 'command'?" in table.stderr


def test_secrets_of_servers_are_never_shown(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "hunter2hunter2")
    args = [
        "--api-key",
        "abc123",
        "--token=abc123",
        "-e",
        "DB_PASSWORD=abc123",
        "--header",
        "Authorization: abc123",
        "postgresql://ada:abc123@db/x",  # not a secret
        "${SECRET_OF_MINE}",
        "https://a.org/s/abc123abc123abc123abc123/mcp",
    ]
    servers = {
        "a": {"command": "run", "args": args, "env": {"K": "abc123", "L": "${SECRET_OF_MINE}", "M": "${X:-abc123}"}},
        "b": {
            "url": "https://u:abc123@a.org/mcp?key=abc123",  # not a secret
            "headers": {"Authorization": "Bearer abc123"},
        },
        "c": "https://a.org/mcp?key=abc123&x=${SECRET_OF_MINE}",
    }
    (project / ".mcp.json").write_text(json.dumps(servers))
    for words in (("list",), ("list", "--json"), ("get", "a"), ("get", "b", "--json"), ("get", "c")):
        done = vaka(*words, "--trust")
        assert done.exit_code == 0
        assert "abc123" not in done.output
        assert "hunter2" not in done.output
    shown = listed("--trust")
    assert shown["a"]["env"] == {"K": "***", "L": "${SECRET_OF_MINE}", "M": "${X}"}
    assert shown["a"]["args"][:6] == ["--api-key", "***", "--token=***", "-e", "DB_PASSWORD=***", "--header"]
    assert shown["b"]["headers"] == {"Authorization": "***"}


def test_names_cannot_control_the_terminal(project: Path) -> None:
    (project / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"\x1b[2Jx": {"command": "\x1b]0;y\x07", "\x1bz": 1}}})
    )
    error = vaka("get", "y").exception
    assert error is not None
    assert "there are \\u001b[2Jx" in describe_error(error).message
    done = vaka("list")
    assert "\x1b" not in done.output
    assert "\\u001b[2Jx" in done.stdout


def test_a_server_is_added_to_the_file_of_its_scope_and_removed_from_it(project: Path) -> None:
    home = project.parent / "home"
    (home / ".claude.json").write_text('{\n    "z": 1,\n    "projects": {"/x": {"a": [1]}},\n    "b": "\u00fc"\n}\n')
    done = vaka("add", "db", "--env", "A=b=c", "--", "npx", "-y", "@acme/db", "--opt", "a b")
    assert (done.exit_code, done.stderr) == (0, f"{home / '.claude.json'}: added db (scope local)\n")
    state = state_of(project)
    assert list(state) == ["z", "projects", "b"]
    assert state["projects"]["/x"] == {"a": [1]}
    entry = {"type": "stdio", "command": "npx", "args": ["-y", "@acme/db", "--opt", "a b"], "env": {"A": "b=c"}}
    assert state["projects"][str(project)] == {"mcpServers": {"db": entry}}
    assert (home / ".claude.json").read_text().startswith('{\n    "z": 1,')
    headers = ("--header", "Authorization: Bearer ${T}", "--header", "X:y")
    assert vaka("add", "docs", "https://a.org/mcp", *headers, "--scope", "user").exit_code == 0
    assert state_of(project)["mcpServers"]["docs"] == {
        "type": "http",
        "url": "https://a.org/mcp",
        "headers": {"Authorization": "Bearer ${T}", "X": "y"},
    }
    assert vaka("add", "old", "https://a.org/sse", "-t", "sse", "-s", "project").exit_code == 0
    assert vaka("add-json", "more", '{"command": "run"}', "-s", "project").exit_code == 0
    shared = json.loads((project / ".mcp.json").read_text())
    assert shared == {"mcpServers": {"old": {"type": "sse", "url": "https://a.org/sse"}, "more": {"command": "run"}}}
    assert stat.S_IMODE((project / ".mcp.json").stat().st_mode) == 0o600
    assert set(listed()) == {"docs", "old", "more", "db"}
    assert vaka("remove", "db").exit_code == vaka("remove", "docs").exit_code == 0
    done = vaka("remove", "old", "--scope", "project")
    assert done.stderr == f"{project / '.mcp.json'}: removed old (scope project)\n"
    assert set(listed()) == {"more"}
    assert state_of(project)["projects"]["/x"] == {"a": [1]}


def test_a_bare_map_of_servers_stays_one(project: Path) -> None:
    (project / ".mcp.json").write_text('{"a": {"command": "run"}}')
    assert vaka("add", "b", "-s", "project", "--", "run").exit_code == 0
    assert list(json.loads((project / ".mcp.json").read_text())) == ["a", "b"]
    assert vaka("remove", "a").exit_code == 0
    assert list(json.loads((project / ".mcp.json").read_text())) == ["b"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add", "a b", "--", "run"), "try 'a_b'"),
        (("add", "db", "--", "run"), "has a server 'db' already; remove it first: vaka mcp remove db --scope local"),
        (("add", "x", "npx", "-y", "pkg"), "there is no option -y; if it is one of the server, write -- before"),
        (("add", "x", "https://a.org", "more"), "http takes one URL"),
        (("add", "x", "--env", "A=b", "https://a.org"), "--env is for servers with a command"),
        (("add", "x", "--header", "A: b", "--", "run"), "--header for servers with a URL"),
        (("add", "x", "--env", "A", "--", "run"), "--env 'A': expected NAME=VALUE"),
        (("add", "x", "ftp://a.org", "-t", "http"), "the url begins with ftp://"),
        (("add-json", "x", "{"), "JSON:1: not JSON"),
        (("add-json", "x", "[1]"), "expected an object"),
        (("add-json", "x", '{"comand": "run"}'), "it has no command and no url"),
        (("get", "twic"), "there is no MCP server 'twic'; did you mean 'twice'?"),
        (("remove", "bd"), "there is no MCP server 'bd'"),
        (("remove", "db", "--scope", "user"), "has no server 'db'"),
        (("remove", "set"), "is defined in"),
        (("remove", "twice"), "in several scopes: local, user; choose one with --scope"),
        (("list", "--mcp-config", "gone.json"), "there is no file"),
    ],
)
def test_what_cannot_be_done_says_what_to_type(project: Path, words: tuple[str, ...], message: str) -> None:
    run = {"command": "run"}
    state = {"projects": {str(project): {"mcpServers": {"db": run, "twice": run}}}, "mcpServers": {"twice": run}}
    home = project.parent / "home"
    (home / ".claude.json").write_text(json.dumps(state))
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_text(json.dumps({"mcpServers": {"set": run}}))
    done = vaka(*words)
    assert done.exit_code != 0
    assert message in f"{done.output}{done.exception}"
    assert state_of(project) == state


def plain_server(*flags: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(PLAIN_SERVER), *flags]}


def test_servers_are_tried_and_one_that_fails_gives_exit_code_1(project: Path) -> None:
    servers = {"good": plain_server(), "bad": {"command": "/no/such/program"}, "unset": {"command": "${NO_SUCH}"}}
    (project / ".mcp.json").write_text(json.dumps(servers))
    done = vaka("test", "--json", "--trust")
    assert done.exit_code == 1
    good, bad = json.loads(done.stdout)
    assert (good["name"], good["state"], good["protocol"], good["server"]) == ("good", "ready", "2025-11-25", "plain 1")
    assert "echo" in good["tools"]
    assert good["seconds"] > 0
    assert (bad["state"], "there is no '/no/such/program'" in bad["reason"]) == ("failed", True)
    unset = vaka("test", "unset", "--trust")
    assert (unset.exit_code, "the variable NO_SUCH of command is not set" in unset.stdout) == (1, True)
    untrusted = vaka("test")
    assert (untrusted.exit_code, "no server that may be started" in untrusted.stderr) == (0, True)


def test_without_the_library_every_server_says_how_to_install_it(shell: Shell) -> None:
    servers = {f"server{number}": {"command": "true"} for number in range(12)}
    shell.write_file("servers.json", json.dumps({"mcpServers": servers}))
    program = vaka_without("mcp", "mcp", "test", "--json", "--mcp-config", "servers.json")
    done = subprocess.run(program, cwd=shell.folder, env=shell.env, capture_output=True, check=False, timeout=TIMEOUT)
    reason = "the library for MCP servers is not installed: pip install 'vaka[mcp]'"
    assert [server["reason"] for server in json.loads(done.stdout)] == [reason] * 12


def test_a_run_offers_the_tools_of_trusted_files_and_of_flags(shell: Shell) -> None:
    shell.write_file(".mcp.json", json.dumps({"mcpServers": {"p": plain_server()}}))
    more = shell.write_file("more.json", json.dumps({"mcpServers": {"q": plain_server()}}))
    script = shell.write_script(call_line("mcp__q__echo", text="aye"), say_line("done"))
    words = ("--model", script, "--output", "stream-json", "--allow", "mcp__q")

    def results(*flags: str) -> tuple[set[str], list[str], str]:
        done = shell.vaka("run", "Go.", *words, *flags)
        changes = [line["data"] for line in done.lines if line["type"] == "mcp.changed"]
        ended = [line["data"]["result"] for line in done.lines if line["type"] in ("tool.completed", "tool.failed")]
        texts = [result["content"][0]["text"] for result in ended]
        return {change["server"] for change in changes if change["change"] == "ready"}, texts, done.err

    inline = json.dumps({"r": plain_server()})
    servers, texts, err = results("--mcp-config", str(more), "--mcp-config", inline, "--session", "s")
    assert (servers, texts) == ({"q", "r"}, ["aye"])
    assert "its MCP servers are not started, since the folder is not trusted (`vaka trust`)" in err
    again, _, err = results("--session", "s", "--trust")
    assert again == {"p", "q"}, "the files of the first run count again; its JSON may have secrets and is not stored"
    assert "--mcp-config" in err


async def test_the_chat_shows_the_states_of_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = {"good": plain_server(), "bad": {"command": "/no/such/program"}, "off\x1b[2J": {"disabled": True}}
    servers = parse_servers(document).servers
    agent: Agent[Any] = Agent("mate", model=Scripted([{"text": "Aye."}]))
    async with (
        Runtime(agent=agent, project=Project(mcp=servers)) as runtime,
        chat_in_process(runtime, columns=100) as chat,
    ):
        await chat.say("/mcp")
        await chat.expect("good: starts with the next prompt")
        await chat.expect("[2J: not started")
        await chat.say("Ahoy.")
        await chat.expect("Aye.")
        await chat.say("/mcp")
        await chat.expect("good: ready, ")
        await chat.expect(" tools, plain 1")
        await chat.expect("bad: failed, there is no '/no/such/program'")
    async with Runtime(agent=agent) as runtime, chat_in_process(runtime, columns=100) as chat:
        await chat.say("/mcp")
        await chat.expect("no MCP server may be started")


def test_names_of_servers_are_completed_and_the_doctor_counts_them(project: Path) -> None:
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"db": {"command": "run"}, "docs": 7}}))
    command = find_command("mcp")
    assert isinstance(command, click.Group)
    add_completers(command, ("mcp",))
    for name in ("get", "remove", "test"):
        below = command.commands[name]
        offered = below.params[0].shell_complete(click.Context(below), "d")
        assert [item.value for item in offered] == ["db", "docs"]
    done = CliRunner().invoke(cli, ["doctor", "--json", "--store", "memory:"])
    details = {check["name"]: check["detail"] for check in json.loads(done.stdout)["checks"]}
    assert details["MCP servers"] == "2 defined, 2 not started, 1 problems; see `vaka mcp list`"
    assert details["MCP"] == "mcp"


def test_the_examples_of_the_guide_work(project: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "mcp.md"
    text = guide.read_text(encoding="utf-8").partition("## Using servers")[0]
    (document,) = re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    parsed = parse_servers(json.loads(document), environment={"DOCS_TOKEN": "x"})
    assert [server.refusal for server in parsed.servers] == ["", ""]
    assert parsed.problems == ()
    (block,) = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for line in block.splitlines():
        done = CliRunner().invoke(cli, shlex.split(line)[2:])
        assert (line, done.exit_code, done.exception) == (line, 0, None)
    assert set(listed()) == {"db"}


def test_a_file_of_servers_is_validated(project: Path) -> None:
    servers = {"a": {"command": "run", "comand": 1}, "b": {"type": "http"}, "c": {"command": "${NO_SUCH}"}}
    file = project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    for place in (".mcp.json", "."):
        done = CliRunner().invoke(cli, ["config", "validate", place])
        assert "error: " in done.stderr
        assert "b: it has no url" in done.stderr
        assert done.stderr.count("error: ") == 1
        assert "did you mean 'command'?" in done.stderr
        assert "the variable NO_SUCH of command is not set" in done.stderr
        assert done.exit_code != 0
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "run"}}}))
    assert CliRunner().invoke(cli, ["config", "validate", ".mcp.json"]).exit_code == 0
    settings = project / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"mcpServers": servers}))
    assert "b: it has no url" in CliRunner().invoke(cli, ["config", "validate", str(settings)]).stderr


def test_a_file_that_is_not_json_is_not_changed_and_comments_stay(project: Path) -> None:
    (project / ".mcp.json").write_text('{// mine\n"mcpServers": {')
    assert "not JSON" in str(vaka("add", "x", "-s", "project", "--", "run").exception)
    assert (project / ".mcp.json").read_text() == '{// mine\n"mcpServers": {'
    (project / ".mcp.json").write_text('{// mine\n"mcpServers": {}}')
    assert vaka("add", "x", "-s", "project", "--", "run").exception is None
    assert (project / ".mcp.json").read_text().startswith('{// mine\n"mcpServers": {')
    (project / ".mcp.json").write_text('{"mcpServers": [1]}')
    assert "expected an object" in str(vaka("add", "x", "-s", "project", "--", "run").exception)
