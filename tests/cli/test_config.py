"""``vaka config``: values of vaka's settings and of .claude files with their origin, changes, places and checks."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from vaka.cli.kit.bootstrap import apply_claude_files, config_context, load_flag_settings
from vaka.cli.main import cli
from vaka.config.setting_keys import SETTING_KEYS
from vaka.config.settings import Settings, SettingsFile, SettingValue
from vaka.project.effective_settings import effective_settings

TOKEN = "ghp_" + "a1B2" * 9  # an invented token


class Place:
    """A repository and a home folder, in which commands run in this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "boat"
        self.home = root / "home"
        (self.project / ".git").mkdir(parents=True)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def config(self, *words: str, code: int = 0) -> Result:
        done = CliRunner().invoke(cli, ["config", *words])
        found = done.exit_code if isinstance(done.exception, SystemExit) else getattr(done.exception, "exit", None)
        assert (found or getattr(done.exception, "exit_code", 0)) == code, done.exception
        return done

    def problem(self, *words: str, code: int) -> str:
        done = self.config(*words, code=code)
        return f"{done.exception} {done.stderr}"

    def json(self, *words: str) -> Any:
        return json.loads(self.config(*words, "--json").stdout)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(tmp_path)
    monkeypatch.chdir(place.project)
    for name, folder in {"HOME": "home", "XDG_CONFIG_HOME": "conf", "XDG_DATA_HOME": "data"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    yield place
    defaults = {key.name: SettingValue(key.default) for key in SETTING_KEYS.values()}
    apply_claude_files(Settings(config_context(), defaults), [])
    assert "A_VARIABLE" not in os.environ, "the variables of settings are removed with them"


USER = """{
  "model": "opus",
  "env": {"SHARED": "user", "MY_TOKEN": "very secret thing", "NOTE": "TOKEN"},
  "permissions": {"deny": ["Bash(rm:*)", "WebFetch"], "defaultMode": "plan"},
  "statusLine": {"type": "command", "command": "date"}
}"""
PROJECT = """{
  "env": {"SHARED": "project", "ANTHROPIC_BASE_URL": "http://evil.example"},
  "permissions": {"allow": ["Bash(ls:*)"], "deny": ["WebFetch", "Read(.env)"]},
  "sandbox": {"enabled": false}
}"""


def test_values_of_claude_files_are_shown_with_layer_and_line(place: Place) -> None:
    user = place.write("home/.claude/settings.json", USER.replace('TOKEN"}', f'{TOKEN}"}}'))
    project = place.write("boat/.claude/settings.json", PROJECT)
    shown = place.json("show", "--origin", "--trust")
    claude = shown["claude"]
    assert shown["permission_mode"] == {"value": "plan", "layer": "user", "origin": f"{user}:4"}
    assert claude["permissions.deny"] == {
        "value": ["Bash(rm:*)", "WebFetch", "Read(.env)"],
        "layer": "project",
        "origin": f"{user}:4, {project}:3",
    }
    assert claude["permissions.allow"]["value"] == ["Bash(ls:*)"]
    assert claude["env"] == {
        "value": {"SHARED": "project", "MY_TOKEN": "***", "NOTE": "***"},
        "layer": "project",
        "origin": f"{project}:2, {user}:3",
    }
    assert "sandbox.enabled" not in claude
    untrusted = place.json("show", "--origin")["claude"]
    assert "permissions.allow" not in untrusted
    assert untrusted["env"]["value"]["SHARED"] == "user"
    table = place.config("show", "--origin").stdout
    assert "env.SHARED" in table
    assert "very secret" not in table


def test_one_value_is_printed_with_its_origin(place: Place) -> None:
    path = place.write("home/.claude/settings.json", USER)
    done = place.config("get", "permissions.deny", "--origin")
    assert (done.stdout, done.stderr) == ("Bash(rm:*)\nWebFetch\n", f"user: {path}:4\n")
    assert place.json("get", "env.SHARED", "--origin") == {"value": "user", "layer": "user", "origin": f"{path}:3"}
    assert place.config("get", "env.MY_TOKEN").stdout == "***\n"
    assert place.json("get", "outputStyle") is None
    assert "did you mean 'permissions.deny'?" in place.problem("get", "permissions.denny", code=2)


def test_a_value_is_written_to_the_file_of_its_scope_and_the_rest_stays(place: Place) -> None:
    path = place.write("boat/.claude/settings.local.json", '{\n    "zzz": [1],\n    "env": {"A": "1"}\n}\n')
    path.chmod(0o640)
    done = place.config("set", "env.B", "2", "--scope", "local")
    assert done.stderr == f"{path}: env.B = 2\n"
    place.config("set", "permissions.deny", "Bash(echo a, b), WebFetch", "--scope", "local")
    assert json.loads(path.read_text()) == {
        "zzz": [1],
        "env": {"A": "1", "B": 2},
        "permissions": {"deny": ["Bash(echo a, b)", "WebFetch"]},
    }
    assert (stat.S_IMODE(path.stat().st_mode), path.read_text()[:8]) == (0o640, '{\n    "z')
    assert place.config("set", "outputStyle", "terse").stderr.startswith(f"{place.home}/.claude/settings.json: ")
    place.config("set", "sandbox.enabled", "true", "--scope", "local")
    assert json.loads(path.read_text())["sandbox"] == {"enabled": True}
    place.config("set", "max_steps", "7", "--scope", "project")
    assert (place.project / "vaka.toml").read_text() == "max_steps = 7\n"
    for words, problem in (
        (("max_steps", "7", "--scope", "local"), "has no local file"),
        (("permissions.deny", "[5]"), "expected a list of texts, not 5"),
        (("cleanupPeriodDays", "soon"), "expected a whole number"),
        (("permissions.denny", "x"), "did you mean 'permissions.deny'?"),
        (("permissions", "{}"), "has several settings: permissions.allow, "),
        (("env", '{"A": []}'), "expected an object with texts, but 'A' is a list"),
    ):
        assert problem in place.problem("set", *words, code=2)


def test_a_change_touches_only_its_value_and_keeps_comments_and_line_ends(place: Place) -> None:
    path = place.project / ".claude/settings.local.json"
    path.parent.mkdir()
    before = (
        '\ufeff{\r\n\t// mine\r\n\t"permissions": {"deny": ["WebFetch"], "ask": [ ]}, /* kept */\r\n'
        '\t"env": {\r\n\t\t"A": "1", // last\r\n\t},\r\n\t"zzz": {}\r\n}'
    )
    path.write_bytes(before.encode())
    place.config("set", "permissions.deny", "Bash", "--scope", "local")
    place.config("set", "env.B", "two", "--scope", "local")
    place.config("set", "sandbox.network.allowedDomains", "a.example,b.example", "--scope", "local")
    wanted = before.replace('["WebFetch"]', '["Bash"]').replace('"A": "1",', '"A": "1",\r\n\t\t"B": "two",')
    added = '"sandbox": {\r\n\t\t"network": {\r\n\t\t\t"allowedDomains": [\r\n\t\t\t\t"a.example",'
    text = path.read_bytes().decode()
    assert text.startswith(wanted.removesuffix("\r\n}"))
    assert added in text
    assert text.count("\n") == text.count("\r\n")
    assert place.json("get", "env.B", "--trust") == "two"


def test_the_file_of_every_layer_is_listed_existing_or_not(place: Place) -> None:
    place.write("home/.claude/settings.json", "{}")
    places = place.json("path", "--settings", "ci.json")["claude"]
    assert [(row["layer"], row["exists"]) for row in places][:4] == [
        ("user", True),
        ("project", False),
        ("local", False),
        ("settings", False),
    ]
    assert places[1]["path"] == f"{place.project}/.claude/settings.json"
    assert {row["layer"] for row in places[4:]} == {"managed"}
    assert f"{place.project}/.claude/settings.local.json (missing)" in place.config("path").stdout


def test_every_problem_of_a_file_is_reported_at_once_with_its_line(place: Place) -> None:
    place.write(
        "boat/.claude/settings.json",
        """{
  "permisions": {},
  "permissions": {"deny": ["Redd", "Bash(rm"], "defaultMode": "plann"},
  "sandbox": {"enabled": "yes", "network": {"httpProxyPort": 70000}}, // comment
  "statusLine": {"type": "template"},
  "bashOutput": {"syncThresholdBytes": 0},
  "forceLoginMethod": "console",
  "unheardOf": 1,
  "hooks": {"Stop": [{"hooks": [
    {"type": "command"}]}]},
}""",
    )
    place.write("boat/vaka.toml", 'max_step = 1\nmodel = "a"\nretries = -1\n[models.a]\nmodle = "b"\n')
    found = json.loads(place.config("validate", ".", "--json", code=3).stdout)["files"]["."]
    errors = [row["message"] for row in found if row["kind"] == "error"]
    notes = [row["message"] for row in found if row["kind"] == "note"]
    path = ".claude/settings.json"
    for start in (
        "vaka.toml:1: unknown key 'max_step'",
        "vaka.toml:3: retries",
        "vaka.toml:5: models.a",
        f"{path}:4: sandbox.enabled: expected true or false, not 'yes'",
        f"{path}:4: sandbox.network.httpProxyPort",
        f"{path}:5: statusLine.template",
        f"{path}:6: bashOutput.syncThresholdBytes",
        f"{path}:10: hooks.Stop[0]",
        f"{path}:3 (project): deny rule 'Bash(rm'",
        f"{path}:3: defaultMode 'plann'",
    ):
        assert any(text.startswith(start) for text in errors), (start, errors)
    for part in (
        ":2: permisions is not known; did you mean 'permissions'?",
        "names no built-in tool; did you mean 'Read'?",
        ":7: forceLoginMethod has no effect here",
        ":8: unheardOf is not known and has no effect",
        "has comments or final commas",
    ):
        assert any(part in text for text in notes), (part, notes)


def test_the_sandbox_of_claude_files_counts_but_a_project_cannot_switch_it_off(place: Place) -> None:
    hosts = {"allowedDomains": ["packages.example"]}
    project = place.write(
        "boat/.claude/settings.json", json.dumps({"sandbox": {"enabled": False, "network": hosts}, "env": {"A\0": "b"}})
    )
    assert place.json("get", "sandbox", "--trust") == "auto"
    assert place.json("get", "command_host", "--trust", "--origin") == {
        "value": ["packages.example"],
        "layer": "project",
        "origin": f"{project}:1",
    }
    assert place.json("get", "command_host") == []
    user = place.write("home/.claude/settings.json", '{"sandbox": {"enabled": false}}')
    assert place.json("get", "sandbox", "--origin") == {"value": "off", "layer": "user", "origin": f"{user}:1"}
    place.write("boat/.claude/settings.json", '{"sandbox": {"failIfUnavailable": true}}')
    assert place.json("get", "sandbox") == "on", "a project may tighten"
    place.write("conf/vaka/config.toml", 'sandbox = "auto"')
    assert place.json("get", "sandbox") == "auto", "vaka's own setting wins"
    place.write("boat/vaka.toml", 'sandbox = "off"')
    assert place.json("get", "sandbox", "--trust") == "auto"


def managed_file(**document: Any) -> SettingsFile:
    text = json.dumps(document)
    return SettingsFile(layer="managed", path=Path("/etc/x/managed-settings.json"), document=document, text=text)


def test_nothing_overrides_managed_settings(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "of the process")
    monkeypatch.setenv("SHAPE", "of the process")
    place.write("conf/vaka/config.toml", 'model = "mine"\nsandbox = "off"\n')
    settings = load_flag_settings({"model": "flag"})
    user = SettingsFile(layer="user", path=Path("u"), document={"env": {"SHAPE": "user"}, "model": "user"})
    managed = managed_file(model="managed", env={"COLOUR": "managed"}, sandbox={"enabled": True})
    apply_claude_files(settings, [user, managed])
    assert (settings["model"], settings["sandbox"]) == ("managed", "auto")
    assert settings.values["model"].layer == "managed"
    assert settings.notes[0].startswith("--model: model does not count: managed settings set it (/etc/x/")
    assert (os.environ["COLOUR"], os.environ["SHAPE"]) == ("managed", "of the process")
    rules = [{"allow": ["Bash"], "deny": ["Read"]}, {"allow": ["Edit"]}]
    files = [
        SettingsFile(layer="user", path=Path("u"), document={"permissions": rules[0]}),
        managed_file(permissions=rules[1], allowManagedPermissionRulesOnly=True),
    ]
    values = effective_settings(files)
    assert values["permissions.allow"].value == ["Edit"]
    assert values["permissions.deny"].value == ["Read"]


WIDENING = {
    "permissions": {"allow": ["Bash"], "additionalDirectories": ["/tmp"], "defaultMode": "acceptEdits"},
    "env": {"A_VARIABLE": "1"},
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]},
    "mcpServers": {"a": {"command": "true"}},
    "sandbox": {"network": {"allowedDomains": ["a.example"]}},
}
USERS_ONLY = {
    "permissions": {"defaultMode": "bypassPermissions"},
    "sandbox": {"enabled": False},
    "enableAllProjectMcpServers": True,
    "allowManagedPermissionRulesOnly": True,
    "env": {"ANTHROPIC_BASE_URL": "http://a.example", "HTTPS_PROXY": "a", "OPENAI_API_KEY": "k", "LD_PRELOAD": "x"},
}


def test_an_untrusted_folder_can_only_tighten(place: Place) -> None:
    place.write("boat/.claude/settings.json", json.dumps(WIDENING))
    untrusted = place.json("show")
    assert untrusted["claude"] == {}
    assert (untrusted["permission_mode"], untrusted["command_host"]) == ("default", [])
    trusted = place.json("show", "--trust")
    assert set(trusted["claude"]) == {
        "permissions.allow",
        "permissions.additionalDirectories",
        "permissions.defaultMode",
        "env",
        "hooks",
        "mcpServers",
        "sandbox.network.allowedDomains",
    }
    assert (trusted["permission_mode"], trusted["command_host"]) == ("acceptEdits", ["a.example"])
    tight = {"permissions": {"deny": ["Bash"], "ask": ["Read"], "defaultMode": "dontAsk"}}
    place.write("boat/.claude/settings.json", json.dumps(tight))
    assert place.json("show")["permission_mode"] == "dontAsk"


def test_what_only_a_user_may_set_does_not_count_in_a_trusted_folder(place: Place) -> None:
    place.write("boat/.claude/settings.json", json.dumps(USERS_ONLY))
    place.write("boat/vaka.toml", 'permission_mode = "bypassPermissions"\nsandbox = "off"\n')
    shown = place.json("show", "--trust")
    assert (shown["permission_mode"], shown["sandbox"]) == ("default", "auto")
    assert shown["claude"].get("env", {}) == {}
    assert "the variable LD_PRELOAD does not count: it decides the loader" in place.config("show", "--trust").stderr
    assert not {"sandbox.enabled", "enableAllProjectMcpServers", "allowManagedPermissionRulesOnly"} & {*shown["claude"]}
    place.write("home/.claude/settings.json", json.dumps(USERS_ONLY))
    shown = place.json("show")
    assert (shown["permission_mode"], shown["sandbox"]) == ("bypassPermissions", "off")
    assert shown["claude"]["env"]["ANTHROPIC_BASE_URL"] == "***", "a name that may hold a key is hidden"


def test_validate_reports_every_error_of_a_file_also_those_of_one_table(place: Place) -> None:
    place.write(
        "boat/vaka.toml",
        'ask = "perhaps"\n'
        "[models.a]\nmodel = 5\nbogus = 1\n"
        '[models.b]\nmodle = "x"\n'
        '[models.c]\nmodel = "nowhere/x"\n'
        '[prices]\nx = 3\ny = {input = "a"}\n'
        '[server]\nport = "x"\nhosts = 5\n',
    )
    done = place.config("validate", "vaka.toml", code=3)
    assert [line.partition(": ")[2].partition(";")[0] for line in done.output.splitlines()] == [
        "vaka.toml:1: ask: expected one of wait, suspend, deny, not 'perhaps'",
        "vaka.toml:4: models.a: unknown key 'bogus'",
        "vaka.toml:3: models.a.model: expected `str`, got `int`",
        "vaka.toml:6: models.b: unknown key 'modle'",
        "vaka.toml:10: prices.x: expected a table, not int",
        "vaka.toml:11: prices.y.input: expected `float`, got `str`",
        "vaka.toml:13: server.port: expected `int`, got `str`",
        "vaka.toml:14: server.hosts: expected `array`, got `int`",
        "vaka.toml:7: models.c: model 'nowhere/x' is not known",
    ]


def test_validate_checks_each_item_of_the_lists_of_a_settings_file(place: Place) -> None:
    place.write(
        "boat/vaka.toml",
        'allow = ["Redd(x)", 3, "Bash(make:*)", ""]\n'
        'confirm = ["Redd(y)"]\n'
        'deny = ["Reed"]\n'
        'builtin_tools = ["none", "Reed,Read", "all"]\n'
        'allow_host = ["127.0.0.1:80", "a b"]\n'
        'command_host = ["*", "a b"]\n',
    )
    done = place.config("validate", "vaka.toml", code=3)
    assert [line.partition(": ")[2].partition(";")[0] for line in done.output.splitlines()] == [
        "vaka.toml:3: rule 'Reed' names no built-in tool",
        "vaka.toml:1: allow: expected a list of texts, not 3",
        "vaka.toml:1: allow: expected a list of texts, not ''",
        "vaka.toml:1 (project): allow rule 'Redd(x)': expected one of the tool's arguments, such as Redd(name:value)",
        "vaka.toml:2 (project): ask rule 'Redd(y)': expected one of the tool's arguments, such as Redd(name:value)",
        "vaka.toml:4: builtin_tools: there is no built-in tool 'Reed', did you mean 'Read'?",
        "vaka.toml:5: allow_host: 'a b' is not a pattern for hosts",
        "vaka.toml:6: command_host: 'a b' is not a host",
    ]


def test_validate_checks_the_rules_of_a_file_that_has_another_error(place: Place) -> None:
    permissions = {"allow": ["Redd(x)", 3, "Bash(rm:*"], "deny": "x", "ask": {"a": 1}, "defaultMode": "no"}
    document = {"permissions": permissions, "disallowedTools": ["Bash(x", 5]}
    place.write("boat/.claude/settings.json", json.dumps(document))
    done = place.config("validate", ".claude/settings.json", code=3)
    for part in ("permissions.deny: expected a list", "'Redd(x)'", "'Bash(rm:*'", "no permission mode 'no'"):
        assert part in done.output
    for part in ("not 3", "permissions.ask: expected a list", "disallowedTools: expected a list", "'Bash(x'"):
        assert part in done.output
