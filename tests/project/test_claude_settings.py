"""Permissions in .claude settings: the files, their order, and errors."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vaka.config.settings import ConfigContext, load_settings
from vaka.core.types.errors import ConfigError
from vaka.core.types.tool import Layer
from vaka.project.claude_settings import (
    MAX_SETTINGS_BYTES,
    hooks_are_disabled,
    load_permissions,
    load_settings_files,
    managed_folders,
    parse_document,
    parse_permission_layer,
    permission_layer_of,
    problems_of,
    project_trust_places,
    read_document,
    read_settings,
    settings_model,
)


@pytest.fixture
def place(tmp_path: Path) -> ConfigContext:
    for folder in ("home/.claude", "app/.claude", "app/.git", "app/sub", "etc/managed-settings.d"):
        (tmp_path / folder).mkdir(parents=True)
    return ConfigContext(cwd=tmp_path / "app", home=tmp_path / "home", environ={})


def write_file(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def load_layers(place: ConfigContext, **more: Any) -> tuple[Layer, ...]:
    layers = load_permissions(place, managed=[place.cwd.parent / "etc"], **more).layers
    return tuple(msgspec.structs.replace(layer, lines={}) for layer in layers)


def read_notes(path: Path, document: object) -> list[str]:
    """Return what every command notes about a settings file."""
    return problems_of(read_settings(write_file(path, json.dumps(document))))[1]


def test_every_layer_is_read_in_its_place(place: ConfigContext) -> None:
    root = place.cwd.parent
    user = write_file(
        place.home / ".claude" / "settings.json", '{"permissions": {"allow": ["Bash(ls)"], "defaultMode": "plan"}}'
    )
    project = write_file(
        place.cwd / ".claude" / "settings.json", '{"permissions": {"deny": ["Read(/x)"]}, "hooks": {"a": 1}}'
    )
    local = write_file(
        place.cwd / ".claude" / "settings.local.json", '{"permissions": {"additionalDirectories": ["../lib"]}}'
    )
    named = write_file(root / "ci.json", '{"permissions": {"ask": ["WebFetch"], "allow": null}}')
    managed = write_file(
        root / "etc" / "managed-settings.json",
        '{"permissions": {"disableBypassPermissionsMode": "disable"}, "allowManagedPermissionRulesOnly": true}',
    )
    for name in ("20-b.json", "10-a.json"):
        write_file(root / "etc" / "managed-settings.d" / name, "{}")
    flags = load_settings(place, {"deny": ["Bash(rm:*)"], "permission_mode": "acceptEdits"})
    assert load_layers(place, settings=Path("../ci.json"), flags=flags, trust=True) == (
        Layer(name="user", origin=str(user), folder=str(user.parent), allow=("Bash(ls)",), mode="plan"),
        Layer(name="project", origin=str(project), folder=str(place.cwd), deny=("Read(/x)",), project=True),
        Layer(name="local", origin=str(local), folder=str(place.cwd), directories=("../lib",), project=True),
        Layer(name="settings", origin=f"{place.cwd}/../ci.json", folder=str(root), ask=("WebFetch",)),
        Layer(name="flag", origin="--deny", deny=("Bash(rm:*)",)),
        Layer(name="flag", origin="--permission-mode", mode="acceptEdits"),
        Layer(name="managed", origin=str(managed), no_bypass=True, exclusive=True),
        Layer(name="managed", origin=str(root / "etc" / "managed-settings.d" / "10-a.json")),
        Layer(name="managed", origin=str(root / "etc" / "managed-settings.d" / "20-b.json")),
    )
    assert named.exists()


def test_a_folder_is_not_trusted_by_default(place: ConfigContext) -> None:
    write_file(place.cwd / ".claude" / "settings.json", '{"permissions": {"allow": ["Bash"]}}')
    (layer,) = load_layers(place)
    assert (layer.trusted, layer.project, layer.allow) == (False, True, ("Bash",))


def test_without_settings_there_are_no_layers(place: ConfigContext) -> None:
    assert load_layers(place, flags=load_settings(place)) == ()


def test_vakas_own_settings_are_layers_of_their_origin(place: ConfigContext) -> None:
    file = write_file(place.cwd / "vaka.toml", 'deny = ["WebFetch"]\nallow = ["Bash"]\npermission_mode = "plan"\n')
    assert load_layers(place, flags=load_settings(place)) == (
        Layer(name="project", origin=f"{file}:1", deny=("WebFetch",), project=True, trusted=False),
        Layer(name="project", origin=f"{file}:3", mode="plan", project=True, trusted=False),
    )
    environ = ConfigContext(cwd=place.cwd / "sub", home=place.home, environ={"VAKA_DENY": "Bash"})
    assert load_layers(environ, flags=load_settings(environ))[0].name == "environment"


def test_a_folder_below_the_projects_has_the_projects_settings(place: ConfigContext, tmp_path: Path) -> None:
    def project_of(cwd: Path) -> Path | None:
        return ConfigContext(cwd=cwd, home=place.home, environ={}).project_folder

    assert project_of(place.cwd / "sub") == place.cwd
    (place.cwd / "sub" / ".claude").mkdir()
    assert project_of(place.cwd / "sub") == place.cwd / "sub"
    (tmp_path / ".claude").mkdir()
    assert project_of(tmp_path / "etc") is None, "outside of a repository nothing further up counts"
    assert project_of(place.home) is None, "the user's own are not a project's"


def test_a_settings_file_is_relative_to_its_folder(place: ConfigContext) -> None:
    def folder(path: Path) -> str:
        write_file(path, "{}")
        return load_layers(place, settings=path)[-1].folder

    assert folder(place.cwd / "sub" / "strict.json") == str(place.cwd / "sub")
    assert folder(place.cwd / ".claude" / "strict.json") == str(place.cwd)
    assert folder(place.home / ".claude" / "strict.json") == str(place.home / ".claude")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", ":1: not JSON: Expecting property name"),
        ('{\n "permissions": {,}}', ":2: not JSON"),
        ("[]", ": expected an object, not a list"),
        ('{"permissions": []}', ": permissions: expected an object, not a list"),
        ('{"permissions": {"deny": "Bash"}}', ": permissions.deny: expected a list of texts, not 'Bash'"),
        ('{"permissions": {"deny": [1]}}', ": permissions.deny: expected a list of texts, not 1"),
        ('{"permissions": {"deny": [null]}}', ": permissions.deny: expected a list of texts, not null"),
        ('{"permissions": {"deny": {}}}', ": permissions.deny: expected a list of texts, not an object"),
        ('{"permissions": {"defaultMode": 5}}', ": permissions.defaultMode: expected a text, not 5"),
        ('{"permissions": {"disableBypassPermissionsMode": "no"}}', "expected 'disable', not 'no'"),
        ('{"permissions": {"deny": ["Bash"], "deny": []}}', ": 'deny' appears twice"),
        ('{"permissions": {"deny": ["Bash"]}, "permissions": {}}', ": 'permissions' appears twice"),
        ("[" * 200_000, ": not JSON: nested too deep"),
        ("\udcff", ": not UTF-8"),
    ],
)
def test_a_broken_file_is_an_error_with_its_name(place: ConfigContext, text: str, why: str) -> None:
    for path in (place.home / ".claude" / "settings.json", place.cwd / ".claude" / "settings.local.json"):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(ConfigError) as caught:
            load_layers(place)
        assert str(caught.value).startswith(str(path))
        assert why in str(caught.value)
        path.unlink()


def test_an_empty_file_a_bom_and_null_set_nothing(place: ConfigContext) -> None:
    path = place.home / ".claude" / "settings.json"
    for text in (
        "",
        "  \n",
        "\ufeff{}",
        '{"permissions": null}',
        '{"permissions": {"deny": null, "defaultMode": null}}',
    ):
        write_file(path, text)
        assert load_layers(place) == (Layer(name="user", origin=str(path), folder=str(path.parent)),)


def test_a_file_that_is_not_regular_is_refused_without_blocking(place: ConfigContext) -> None:
    path = place.cwd / ".claude" / "settings.json"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="cannot be read: it is not a regular file"):
        load_layers(place)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_layers(place)
    path.rmdir()
    path.write_bytes(b" " * (MAX_SETTINGS_BYTES + 1))
    with pytest.raises(ConfigError, match=f"it has more than {MAX_SETTINGS_BYTES} bytes"):
        load_layers(place)


def test_a_file_of_the_settings_flag_must_exist(place: ConfigContext) -> None:
    with pytest.raises(ConfigError, match=r"none\.json: there is no such file"):
        load_layers(place, settings=Path("none.json"))
    assert read_document(place.cwd / "none.json") is None
    assert read_document(place.cwd / "vaka.toml" / "none.json") is None


def test_an_unknown_key_is_noted_with_its_line_if_it_is_nearly_known(tmp_path: Path) -> None:
    path = write_file(tmp_path / "s.json", '{\n "permissions": {\n  "denny": ["Bash"]},\n "modle": "x", "zzz": 1}')
    file = read_settings(path, "user")
    assert permission_layer_of(file).deny == ()
    assert problems_of(file) == (
        [],
        [
            f"{path}:3: permissions.denny is not known; did you mean 'permissions.deny'?",
            f"{path}:4: modle is not known; did you mean 'model'?",
        ],
    )


def test_every_wrong_value_is_reported_with_its_line(place: ConfigContext) -> None:
    user = write_file(place.home / ".claude/settings.json", '{"permissions": {"deny": "Bash",\n"allow": [1]}}')
    local = write_file(place.cwd / ".claude/settings.local.json", '{\n\n"disallowedTools": {}, "env": 5}')
    with pytest.raises(ConfigError) as caught:
        load_layers(place)
    assert str(caught.value).splitlines() == [
        f"{user}:1: permissions.deny: expected a list of texts, not 'Bash'",
        f"{user}:2: permissions.allow: expected a list of texts, not 1",
        f"{local}:3: disallowedTools: expected a list of texts, not an object",
    ]
    assert problems_of(read_settings(local))[1] == [
        f"{local}:3: env: expected an object with texts, not 5; it is ignored"
    ]


def test_comments_and_final_commas_are_read_and_rules_keep_their_lines(place: ConfigContext) -> None:
    text = (
        '// mine\r\n{\r\n "permissions": { /* no */\r\n  "deny": [\r\n   "Read(//x)",\r\n   "Bash",\r\n  ],\r\n },}\r\n'
    )
    path = place.home / ".claude/settings.json"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    file = read_settings(path, "user")
    assert (file.has_comments, file.document) == (True, {"permissions": {"deny": ["Read(//x)", "Bash"]}})
    layer = permission_layer_of(file)
    assert [layer.locate(f"deny {rule}") for rule in layer.deny] == [f"{path}:5", f"{path}:6"]
    for wrong in ("{,}", '{"a": [,]}', '{"a": 1,,}', "/* never ends"):
        with pytest.raises(ConfigError, match="not JSON"):
            read_settings(write_file(path, wrong))


def test_a_duplicate_key_is_an_error_with_its_line(place: ConfigContext) -> None:
    path = write_file(place.home / ".claude/settings.json", '{"a": {"deny": 1},\n "deny": 2,\n "a": 3}')
    with pytest.raises(ConfigError, match=r"settings\.json:3: 'a' appears twice"):
        load_layers(place)
    assert path.exists()


def test_settings_may_be_json_and_overrides_are_weaker_than_managed_ones(place: ConfigContext) -> None:
    write_file(place.cwd.parent / "etc/managed-settings.json", '{"model": "managed"}')
    managed = [place.cwd.parent / "etc"]
    files = load_settings_files(place, settings=' {"model": "flag"}', overrides={"model": "override"}, managed=managed)
    assert [(file.layer, file.document["model"]) for file in files] == [
        ("settings", "flag"),
        ("override", "override"),
        ("managed", "managed"),
    ]
    assert settings_model(files)[0] == "managed"
    with pytest.raises(ConfigError, match="--settings:1: not JSON"):
        load_settings_files(place, settings="{model}")
    assert load_settings_files(place, overrides={"env": {"A": "1"}}, managed=[])[-1].layer == "override"


def test_only_managed_settings_can_be_exclusive() -> None:
    document = parse_document('{"allowManagedPermissionRulesOnly": true}', "s.json")
    assert parse_permission_layer(document, "managed").exclusive
    assert not parse_permission_layer(document, "project").exclusive


def test_managed_folders_do_not_depend_on_variables() -> None:
    assert all(folder.is_absolute() for folder in managed_folders())


def test_an_untrusted_vaka_toml_cannot_loosen_the_users_mode(place: ConfigContext) -> None:
    write_file(place.cwd / "vaka.toml", 'permission_mode = "default"\n')
    (guest,) = load_layers(place, flags=load_settings(place))
    assert (guest.mode, guest.project, guest.trusted) == ("default", True, False)
    user = place.user_file
    user.parent.mkdir(parents=True)
    write_file(user, 'permission_mode = "dontAsk"\n')
    now = ConfigContext(cwd=place.cwd, home=place.home, environ=place.environ)
    settings = load_settings(now)
    assert (settings["permission_mode"], len(settings.notes)) == ("dontAsk", 1)
    assert [(layer.name, layer.mode) for layer in load_layers(now, flags=settings)] == [("user", "dontAsk")]
    assert load_settings(now, trust=True)["permission_mode"] == "default"


def test_disallowed_tools_are_denied_and_allowed_tools_noted(tmp_path: Path) -> None:
    document = {"disallowedTools": ["WebFetch"], "allowedTools": ["Bash"], "permissions": {"deny": ["Read(.env)"]}}
    layer = parse_permission_layer(document, "user", origin="settings.json")
    assert layer.deny == ("Read(.env)", "WebFetch")
    assert layer.allow == ()
    path = tmp_path / "s.json"
    assert read_notes(path, document) == [f"{path}:1: allowedTools does not count; write permissions.allow"]
    with pytest.raises(ConfigError, match=r"settings\.json: disallowedTools: expected a list of texts, not 'Bash'"):
        parse_permission_layer({"disallowedTools": "Bash"}, "user", origin="settings.json")


def test_keys_of_claude_code_are_accepted_without_a_note(tmp_path: Path) -> None:
    document = {
        "$schema": "x",
        "env": {"A": "b"},
        "model": "opus",
        "statusLine": {"type": "command", "command": "date", "padding": 0},
        "hooks": {"Stop": [{"hooks": []}]},
        "enabledPlugins": {"a@b": True},
        "enableAllProjectMcpServers": True,
        "permissions": {"disableAutoMode": "disable", "defaultMode": "delegate", "ask": None},
        "sandbox": {"network": {"httpProxyPort": None}},
        "claudeMdExcludes": ["a"],
        "includeCoAuthoredBy": False,
    }
    assert parse_permission_layer(document, "project").mode == "delegate"
    assert read_notes(tmp_path / "s.json", document) == []


def test_a_folder_that_is_not_trusted_cannot_switch_off_the_hooks_of_the_user(place: ConfigContext) -> None:
    write_file(place.cwd / ".claude/settings.json", '{"disableAllHooks": true}')
    assert not hooks_are_disabled(load_settings_files(place))
    assert hooks_are_disabled(load_settings_files(place, trust=True))
    write_file(place.home / ".claude/settings.json", '{"disableAllHooks": true}')
    assert hooks_are_disabled(load_settings_files(place))


def test_trust_is_asked_for_components_that_may_run_things_too(place: ConfigContext) -> None:
    folder = place.cwd / ".claude"
    for name in ("commands", "rules", "plugins"):
        (folder / name).mkdir()
    file = write_file(folder / "settings.local.json", "{}")
    assert project_trust_places(place) == [file, folder / "commands", folder / "plugins"]


@pytest.mark.parametrize(
    ("sandbox", "keeps"),
    [
        ({"allowUnsandboxedCommands": False}, True),
        ({"failIfUnavailable": True}, True),
        ({"allowUnsandboxedCommands": True, "enabled": True}, False),
        ({"failIfUnavailable": True, "enabled": False}, False),
    ],
)
def test_settings_keep_all_commands_in_the_sandbox_also_those_of_a_folder_without_trust(
    place: ConfigContext, sandbox: dict[str, bool], keeps: bool
) -> None:
    write_file(place.cwd / ".claude/settings.json", json.dumps({"sandbox": sandbox}))
    [layer] = [layer for layer in load_layers(place) if layer.name == "project"]
    assert (layer.trusted, layer.deny) == (False, ("Bash(unsandboxed:*)",) if keeps else ())


def test_the_setting_that_requires_the_sandbox_keeps_all_commands_in_it(place: ConfigContext) -> None:
    for flag, deny in (("on", ("Bash(unsandboxed:*)",)), ("auto", ())):
        layers = load_permissions(place, flags=load_settings(place, {"sandbox": flag}), managed=()).layers
        assert [rule for layer in layers for rule in layer.deny] == list(deny)
