"""Agents by name in one process: what a folder defines, what ``.claude/agents`` has, and what is wrong with both."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.runtime.runtime_fixtures import write
from vaka.cli.kit.bootstrap import load_flag_settings
from vaka.cli.main import cli
from vaka.cli.project_agents import project_agent_names


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository, which is the working folder of a user without settings."""
    folder = tmp_path / "boat"
    (folder / ".git").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("VAKA_LANG", "en")
    return folder


def vaka(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def tools_of(*words: str) -> list[str]:
    done = vaka("tools", "list", "--json", *words)
    assert done.exit_code == 0, done.stderr
    return [tool["name"] for tool in json.loads(done.stdout)["tools"]]


def test_agents_of_definitions_and_of_files_have_their_own_tools(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "description: Reviews.\ntools: Read, Grep, mcp__lib\nmcpServers: [lib]\npermissionMode: plan\neffort: low"
    write(project / ".claude/agents/reviewer.md", f"---\n{head}\nmodel: opus\nmaxTurns: 2\n---\nYou review.")
    assert tools_of("--agent", "reviewer") == ["Grep", "Read"]
    write(project / "agents/clerk.yaml", "tools: [{name: bash}, {name: Read}]\n")
    write(project / "deep/down/here.txt", "")
    monkeypatch.chdir(project / "deep/down")
    assert tools_of("--agent", "clerk") == ["Bash", "Read"]
    assert tools_of("--agent", "clerk", "--builtin-tools", "Read,Grep") == ["Grep", "Bash", "Read"]
    assert tools_of("--agent", f"{project}/agents/clerk.yaml") == ["Bash", "Read"]
    assert project_agent_names(load_flag_settings({})) == ["clerk", "reviewer"]
    write(project / "agents/clerk.yaml", "tools: [{name: bush}]\n")
    broken, unknown = (vaka("tools", "list", "--agent", name).exception for name in ("clerk", "reviewr"))
    assert f"{project}/agents/clerk.yaml:1: there is no tool 'bush'; did you mean Bash?" in str(broken)
    assert "there is no agent 'reviewr'; did you mean reviewer?" in str(unknown)
    write(project / "agents/odd.yaml", "colour: blue\n")
    for file, problem in (
        ("agents/odd.yaml", "does not define an agent"),
        ("vaka.yaml", "expected a file in a folder"),
    ):
        done = vaka("tools", "list", "--agent", f"{project}/{file}")
        assert f"{project}/{file}: {problem}" in str(done.exception)


def test_variables_are_read_in_folders_that_the_user_trusts_or_names(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project / "bots/agents/one.yaml", "context_layers: [{$env: CITY}]\n")
    monkeypatch.setenv("VAKA_DEFINITIONS", "bots")
    assert tools_of("--agent", "one") == []
    refused = vaka("tools", "list", "--agent", "one", "--untrusted")
    assert "$env reads the variable CITY of the environment, which only a trusted folder may do" in str(
        refused.exception
    )
    monkeypatch.chdir(project / "bots")
    monkeypatch.delenv("VAKA_DEFINITIONS")
    assert "only a trusted folder may do" in str(vaka("tools", "list", "--agent", "one").exception)
    assert tools_of("--agent", "one", "--trust") == []
    assert project_agent_names(load_flag_settings({})) == ["one"]
    monkeypatch.chdir(project.parent)
    assert project_agent_names(load_flag_settings({})) == []


def test_definitions_of_another_folder_and_their_problems_are_listed(project: Path) -> None:
    write(project / "vaka.toml", 'definitions = "bots"\n')
    assert "vaka.toml:1: definitions: there is no folder" in vaka("agents", "list").stderr
    write(project / "bots/agents/one.json", '{"name": "one", "prompt": "P", "generator": {"model": "local"}}')
    write(project / "bots/models/corp.yaml", "schema: openai/chat/v1\nmodels: [{name: corp, model: corp-1}]\n")
    for number in range(9):
        write(project / f"bots/tools/bad{number}.yaml", "type: nothing\nname: bad\n")
    listed = vaka("agents", "list", "--json")
    (one,) = json.loads(listed.stdout)
    assert (one["name"], one["source"], one["model"], one["line"]) == ("one", "definition", "local", 1)
    assert listed.stderr.count("invalid tool type") == 9
    run = vaka("tools", "list", "--agent", "one")
    assert run.stderr.count("invalid tool type") == 5
    assert f"5 more problems of definitions; `vaka config validate {project}/bots` shows them" in run.stderr
    for number in range(9):
        (project / f"bots/tools/bad{number}.yaml").unlink()
    assert "corp.yaml: its models do not count; --trust counts them" in vaka("tools", "list", "--agent", "one").stderr
    assert "corp.yaml" not in vaka("tools", "list", "--agent", "one", "--trust").stderr


def test_scripts_of_flags_find_agents_of_definitions(project: Path) -> None:
    write(
        project / "agents/echo.yaml",
        "lua: function on_input(c, i) c.emit({text = 'echo ' .. i.text, eof = true}) end\n",
    )
    script = 'function invoke(c) local a = c.create_agent("NAME") a:send("hi") return a:collect() end\n'
    write(project / "good.luau", script.replace("NAME", "echo"))
    write(project / "bad.luau", script.replace("NAME", "missing"))
    flags = ("--tools", "good.luau", "--tools", "bad.luau", "--store", "memory:", "-q")
    done = vaka("tools", "call", "good", "{}", *flags)
    assert json.loads(done.stdout)["result"] == "echo hi", done.stderr
    assert (
        "create_agent: unknown agent 'missing'"
        in json.loads(vaka("tools", "call", "bad", "{}", *flags).stdout)["result"]
    )
