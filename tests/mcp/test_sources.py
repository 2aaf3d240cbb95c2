"""The servers of all layers are found and listed; which of them may be started follows from trust and settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from vaka.config.settings import ConfigContext
from vaka.core.types.errors import ConfigError
from vaka.mcp.definition import McpServer, ParsedServers
from vaka.mcp.sources import NOT_TRUSTED, ServerFlags, servers_in_force
from vaka.project.claude_settings import load_settings_files, may_have_servers
from vaka.project.hook_sources import hooks_in_force
from vaka.runtime.server_settings import FolderSettings

RUN = {"command": "run"}


class Machine:
    """A home folder, a repository and the folder of an administrator."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.managed = folder / "etc"
        for path in (self.home, self.project / ".git", self.managed):
            path.mkdir(parents=True)
        self.cwd = self.project
        self.environ: dict[str, str] = {}

    @property
    def context(self) -> ConfigContext:
        return ConfigContext(cwd=self.cwd, home=self.home, environ=self.environ)

    def write(self, path: Path, document: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    def load(self, *, trusted: bool = True, **flags: Any) -> ParsedServers:
        files = load_settings_files(self.context, trust=trusted, managed=[self.managed])
        settings = FolderSettings(self.context, files, trusted=trusted, managed=[self.managed])
        found = servers_in_force(settings, ServerFlags(**flags))
        given = flags or any(self.managed.iterdir())
        assert given or may_have_servers(self.context, files) == bool(found.servers or found.problems)
        return found

    def states(self, *, trusted: bool = True, **flags: Any) -> dict[str, str]:
        """Return the refusal of each server, with ``name@file``."""
        servers = self.load(trusted=trusted, **flags).servers
        return {f"{server.name}@{Path(server.origin).name}": server.refusal for server in servers}

    def server(self, name: str, **flags: Any) -> McpServer:
        return next(server for server in self.load(**flags).servers if server.name == name and server.approved)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_servers_of_every_layer_are_found(machine: Machine) -> None:
    def named(name: str) -> dict[str, Any]:
        return {"mcpServers": {name: RUN}}

    state = named("mine") | {"projects": {str(machine.project): named("here"), "/elsewhere": named("not-here")}}
    machine.write(machine.home / ".claude.json", state)
    machine.write(machine.home / ".claude/settings.json", named("a"))
    machine.write(machine.home / ".claude/plugins/tools/.claude-plugin/plugin.json", {"name": "tools"})
    machine.write(machine.home / ".claude/plugins/tools/.mcp.json", {"p": {"command": "${CLAUDE_PLUGIN_ROOT}/p"}})
    machine.write(machine.project / ".mcp.json", named("shared"))
    machine.write(machine.project / ".claude/settings.json", {"mcp": {"servers": {"b": RUN}}})
    machine.write(machine.project / ".claude/settings.local.json", named("c"))
    inline = {"name": "inner", "mcpServers": {"q": RUN}}
    machine.write(machine.project / ".claude/plugins/inner/.claude-plugin/plugin.json", inline)
    machine.write(machine.managed / "managed-settings.json", named("admin"))
    machine.cwd = machine.project / "deep" / "er"
    machine.write(machine.cwd / ".mcp.json", named("near"))
    assert machine.states(configs=['{"mcpServers": {"given": {"url": "https://a.org"}}}']) == {
        "a@settings.json": "",
        "mine@.claude.json": "",
        "plugin:tools:p@.mcp.json": "",
        "b@settings.json": "",
        "shared@.mcp.json": "",
        "near@.mcp.json": "",
        "plugin:inner:q@plugin.json": "",
        "c@settings.local.json": "",
        "here@.claude.json": "",
        "given@--mcp-config": "",
        "admin@managed-settings.json": "",
    }
    plugin = machine.server("plugin:tools:p")
    assert plugin.command == f"{machine.home}/.claude/plugins/tools/p"
    assert plugin.tool_prefix == "mcp__plugin_tools_p__"
    assert machine.server("shared").cwd == str(machine.project)
    assert machine.server("mine").cwd == ""
    untrusted = machine.states(trusted=False)
    project = {name for name, refusal in untrusted.items() if refusal}
    assert set(untrusted.values()) == {"", NOT_TRUSTED}
    assert project == {
        "b@settings.json",
        "shared@.mcp.json",
        "near@.mcp.json",
        "plugin:inner:q@plugin.json",
        "c@settings.local.json",
    }


def test_local_servers_replace_those_of_the_project_and_these_the_users(machine: Machine) -> None:
    entry = {"mcpServers": {"db": RUN}}
    machine.write(machine.home / ".claude.json", entry | {"projects": {str(machine.project): entry}})
    shared = machine.write(machine.project / ".mcp.json", entry)
    states = [(server.approved, server.refusal) for server in machine.load().servers]
    state = machine.home / ".claude.json"
    assert states == [
        (False, f"{state} has a server of this name, which counts"),
        (False, f"{state} has a server of this name, which counts"),
        (True, ""),
    ]
    machine.write(state, entry)
    assert machine.server("db").origin == str(shared)
    untrusted = machine.load(trusted=False).servers
    assert [server.approved for server in untrusted] == [True, False], "a folder that is not trusted replaces nothing"


def test_servers_whose_tools_would_have_the_same_names_do_not_both_start(machine: Machine) -> None:
    machine.write(machine.project / ".mcp.json", {"my db": RUN, "my.db": RUN, "other": RUN})
    states = machine.states()
    assert [bool(refusal) for refusal in states.values()] == [False, True, False]
    assert "its tools would have the same names as the tools of 'my db'" in states["my.db@.mcp.json"]


CHOICES: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"a", "b", "c"}),
    ({"disabledMcpjsonServers": ["b"]}, {"a", "c"}),
    ({"enabledMcpjsonServers": ["b"]}, {"b"}),
    ({"enabledMcpjsonServers": ["a", "b"], "disabledMcpjsonServers": ["b"]}, {"a"}),
    ({"enabledMcpjsonServers": ["b"], "enableAllProjectMcpServers": True}, {"a", "b", "c"}),
    ({"enableAllProjectMcpServers": False}, set()),
    ({"deniedMcpServers": [{"serverName": "A"}]}, {"b", "c"}),
    ({"deniedMcpServers": [{"serverUrl": "https://EVIL.org:443/mcp/"}]}, {"a", "b"}),
    ({"deniedMcpServers": [{"serverUrl": "https://*.org/*"}]}, {"a", "b"}),
    ({"deniedMcpServers": [{"serverCommand": ["run", "b"]}]}, {"a", "c"}),
    ({"deniedMcpServers": [{"serverName": "a", "serverUrl": "https://evil.org/mcp"}]}, {"a", "b", "c"}),
    ({"deniedMcpServers": ["a", {"name": "c"}]}, {"b"}),
    ({"allowedMcpServers": [{"serverName": "a"}, {"serverName": "c"}]}, {"a", "c"}),
    ({"allowedMcpServers": [{"serverName": "a"}], "deniedMcpServers": [{"serverName": "a"}]}, set()),
    ({"allowedMcpServers": [{"serverName": "a"}, {"serverCommand": ["run", "b"]}]}, {"b"}),
    ({"allowedMcpServers": [{"serverUrl": "https://evil.org/mcp"}, {"serverName": "c"}]}, {"c"}),
    ({"allowedMcpServers": []}, set()),
    ({"allowedMcpServers": [{"server": "a"}]}, set()),
]


@pytest.mark.parametrize(("settings", "started"), CHOICES)
def test_settings_choose_the_servers_that_start(machine: Machine, settings: dict[str, Any], started: set[str]) -> None:
    servers = {"a": {"command": "run", "args": ["a"]}, "b": {"command": "run", "args": ["b"]}}
    machine.write(machine.project / ".mcp.json", servers | {"c": {"url": "https://evil.org/mcp"}})
    machine.write(machine.project / ".claude/settings.local.json", settings)
    found = machine.load()
    assert {server.name for server in found.servers if server.approved} == started
    assert len(found.servers) == 3
    wrong = "allowedMcpServers" in settings and settings["allowedMcpServers"] == [{"server": "a"}]
    assert bool(found.problems) == wrong


@pytest.mark.parametrize("shared", [{"enableAllProjectMcpServers": True}, {"enabledMcpjsonServers": ["a"]}])
def test_a_project_cannot_choose_servers_that_its_user_has_not_chosen(machine: Machine, shared: dict[str, Any]) -> None:
    machine.write(machine.project / ".mcp.json", {"a": RUN})
    machine.write(machine.project / ".claude/settings.json", shared)
    assert machine.states() == {"a@.mcp.json": ""}
    user = machine.write(machine.home / ".claude/settings.json", {"enableAllProjectMcpServers": False})
    assert "enabledMcpjsonServers does not name it" in machine.states()["a@.mcp.json"]
    machine.write(user, {"enabledMcpjsonServers": ["b"]})
    assert "enabledMcpjsonServers does not name it" in machine.states()["a@.mcp.json"]
    machine.write(machine.project / ".claude/settings.local.json", {"enabledMcpjsonServers": ["a"]})
    assert machine.states() == {"a@.mcp.json": ""}


def test_a_repository_in_the_folder_of_the_user_needs_trust_for_its_plugins(machine: Machine) -> None:
    machine.cwd = machine.home / ".claude/plugins/marketplaces/other"
    plugin = machine.cwd / ".claude/plugins/kit"
    machine.write(plugin / ".claude-plugin/plugin.json", {"name": "kit"})
    machine.write(plugin / ".mcp.json", {"own": RUN})
    machine.write(plugin / "hooks/hooks.json", {"hooks": {"Stop": [{"hooks": [{"command": "stop"}]}]}})
    (machine.cwd / ".git").mkdir()
    assert machine.states(trusted=False) == {"plugin:kit:own@.mcp.json": NOT_TRUSTED}
    (hook,) = hooks_in_force(machine.context, [], trusted=False).hooks
    assert hook.disabled == "the folder is not trusted"
    assert machine.states() == {"plugin:kit:own@.mcp.json": ""}
    (hook,) = hooks_in_force(machine.context, [], trusted=True).hooks
    assert not hook.disabled


def test_a_plugin_of_the_project_needs_trust_also_where_a_link_leads_to_the_project(machine: Machine) -> None:
    folder = machine.project / "kit"
    machine.write(folder / ".mcp.json", {"own": RUN})
    machine.write(folder / "hooks/hooks.json", {"hooks": {"Stop": [{"hooks": [{"command": "stop"}]}]}})
    machine.cwd = machine.home / "link"
    machine.cwd.symlink_to(machine.project)
    assert machine.states(trusted=False, plugin_dirs=[folder]) == {"plugin:kit:own@.mcp.json": NOT_TRUSTED}
    (hook,) = hooks_in_force(machine.context, [], trusted=False, plugin_dirs=[folder]).hooks
    assert hook.disabled == "the folder is not trusted"


def test_the_lists_of_the_administrator_cannot_be_widened(machine: Machine) -> None:
    machine.write(machine.managed / "managed-settings.json", {"allowedMcpServers": [{"serverName": "a"}]})
    machine.write(machine.managed / "managed-settings.d/1.json", {"deniedMcpServers": [{"serverName": "z"}]})
    machine.write(machine.home / ".claude/settings.json", {"allowedMcpServers": [{"serverName": "b"}]})
    machine.write(machine.home / ".claude.json", {"mcpServers": {"a": RUN, "b": RUN, "z": RUN}})
    assert not any(server.approved for server in machine.load().servers)
    (machine.home / ".claude/settings.json").unlink()
    assert [server.name for server in machine.load().servers if server.approved] == ["a"]
    machine.write(machine.managed / "managed-settings.json", {})
    machine.write(machine.managed / "managed-mcp.json", {"mcpServers": {"only": RUN}})
    states = machine.states(configs=['{"x": {"command": "run"}}'])
    assert [name for name, refusal in states.items() if not refusal] == ["only@managed-mcp.json"]


def test_a_disabled_plugin_or_server_does_not_start(machine: Machine) -> None:
    for name in ("on", "off"):
        machine.write(machine.home / f".claude/plugins/{name}/.claude-plugin/plugin.json", {"name": name})
        machine.write(machine.home / f".claude/plugins/{name}/.mcp.json", {"p": RUN})
    machine.write(machine.home / ".claude/settings.json", {"enabledPlugins": {"off@market": False}})
    disabled = {"projects": {str(machine.project): {"disabledMcpServers": ["x"]}}, "mcpServers": {"x": RUN}}
    machine.write(machine.home / ".claude.json", disabled)
    assert machine.states() == {
        "x@.claude.json": f"disabledMcpServers of {machine.home}/.claude.json names it",
        "plugin:on:p@.mcp.json": "",
    }


def test_a_plugin_names_files_of_its_own_folder_only(machine: Machine) -> None:
    names = ["../outside.json", "/etc/passwd", "./gone.json", "./.mcp.json", "more/servers.json", {"inline": RUN}]
    folder = machine.project / "kit"
    machine.write(machine.project / "outside.json", {"outside": RUN})
    machine.write(folder / ".claude-plugin/plugin.json", {"name": "kit", "mcpServers": names})
    machine.write(folder / "more/servers.json", {"mcpServers": {"more": RUN}})
    machine.write(folder / ".mcp.json", {"own": RUN})
    found = machine.load(plugin_dirs=[folder])
    assert {server.name for server in found.servers} == {"plugin:kit:inline", "plugin:kit:own", "plugin:kit:more"}
    manifest = folder / ".claude-plugin/plugin.json"
    assert found.problems == (
        f"{manifest}: mcpServers: '../outside.json' leads out of the plugin",
        f"{manifest}: mcpServers: '/etc/passwd' leads out of the plugin",
        f"{manifest}: mcpServers: there is no file 'gone.json'",
    )
    untrusted = machine.load(trusted=False, plugin_dirs=[folder])
    assert {server.refusal for server in untrusted.servers} == {NOT_TRUSTED}


def test_files_that_cannot_be_read_are_reported_and_the_rest_is_read(machine: Machine) -> None:
    machine.write(machine.home / ".claude.json", "{not json")
    machine.write(machine.home / ".claude/plugins/bad/.claude-plugin/plugin.json", {"mcpServers": 7})
    machine.write(machine.home / ".claude/plugins/bad/.mcp.json", "[1,")
    machine.write(machine.project / ".mcp.json", '\ufeff{// ours\n "db": {"command": "run", "args": ["//x", ",]"],},}')
    machine.write(machine.project / ".claude/settings.json", {"mcpServers": 7, "enabledMcpjsonServers": ["db", 1]})
    found = machine.load()
    assert [(server.name, server.args, server.refusal) for server in found.servers] == [("db", ("//x", ",]"), "")]
    text = "\n".join(found.problems)
    assert ".claude.json: not JSON" in text
    assert "it is read anyway" in text
    assert "bad/.mcp.json:1: not JSON" in text
    assert "settings.json: expected an object with mcpServers" in text
    assert "enabledMcpjsonServers: expected a list" in text


def test_folders_have_the_names_that_other_programs_give_them(machine: Machine) -> None:
    entry = {"command": "${workspaceFolder}/run", "args": ["${CLAUDE_PROJECT_DIR}", "${userHome}", "~"]}
    machine.write(machine.project / ".mcp.json", {"db": entry})
    server = machine.server("db")
    assert (server.command, server.args) == (f"{machine.project}/run", (str(machine.project), str(machine.home), "~"))


def test_a_duplicate_name_is_reported_and_the_last_entry_counts(machine: Machine) -> None:
    machine.write(machine.project / ".mcp.json", '{"db": {"command": "a"}, "db": {"command": "b"}}')
    found = machine.load()
    assert [server.command for server in found.servers] == ["b"]
    assert "'db' appears twice" in found.problems[0]


def test_flags_name_files_or_json_and_may_exclude_everything_else(machine: Machine) -> None:
    machine.write(machine.project / ".mcp.json", {"shared": RUN})
    machine.write(machine.project / "more.json", {"mcpServers": {"more": {"command": "run", "env": {"A": "${B}"}}}})
    machine.environ = {"B": "b"}
    assert machine.states(configs=["more.json"], trusted=False) == {
        "shared@.mcp.json": NOT_TRUSTED,
        "more@more.json": "",
    }
    assert machine.states(configs=["more.json"], strict=True) == {"more@more.json": ""}
    assert machine.states(strict=True) == {}
    assert machine.server("more", configs=["more.json"]).env == {"A": "b"}
    with pytest.raises(ConfigError, match=r"there is no file .*gone.json"):
        machine.load(configs=["gone.json"])
    with pytest.raises(ConfigError, match="--mcp-config:1: not JSON"):
        machine.load(configs=["{x"])


def test_no_file_means_no_servers(machine: Machine) -> None:
    assert not may_have_servers(machine.context, [])
    assert machine.load() == ParsedServers()
