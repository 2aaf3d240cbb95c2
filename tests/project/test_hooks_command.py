"""Hooks of settings files decide in ``vaka run``, and ``vaka hooks`` lists and tests them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell, call_line, say_line
from vaka.cli.kit.bootstrap import load_flag_settings
from vaka.cli.settings_source import CommandSettings


def hook_settings(event: str, command: str, matcher: str = "", **more: Any) -> str:
    return json.dumps(
        {"hooks": {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]}, **more}
    )


def test_hooks_of_every_layer_are_listed_with_their_origin_and_what_is_wrong(shell: Shell) -> None:
    shell.write_file("home/.claude/settings.json", hook_settings("PreToolUse", "user-check", "Bash"))
    project = shell.write_file(".claude/settings.json", hook_settings("PreTolUse", "typo"))
    done = shell.vaka("hooks", "list", "--json", "--trust")
    assert done.code == 0
    assert [(hook["event"], hook["command"], hook["known"]) for hook in done.json] == [
        ("PreToolUse", "user-check", True),
        ("PreTolUse", "typo", False),
    ]
    assert f"{project}: hooks.PreTolUse" in done.err
    assert "did you mean PreToolUse?" in done.err
    table = shell.vaka("hooks", "list")
    rows = [line.split() for line in table.out.splitlines()]
    assert [(row[-1], row[4]) for row in rows[1:]] == [("user-check", "always"), ("typo", "never")]
    assert "not trusted" in table.err


def test_the_hooks_of_an_event_can_be_tried_without_a_session(shell: Shell) -> None:
    """A project can put them into the sandbox, also one that is not trusted."""
    refuse = 'touch .claude/made; grep -q "git push" && { echo "not today" >&2; exit 2; }; exit 0'
    shell.write_file("home/.claude/settings.json", hook_settings("PreToolUse", refuse, "Bash"))
    shell.write_file(".claude/settings.json", "{}")
    words = ("hooks", "test", "PreToolUse", "--tool", "Bash", "--input")
    done = shell.vaka(*words, '{"command": "git push"}')
    assert (done.code, done.json["permission"], done.json["reason"]) == (2, "deny", "not today")
    made = shell.folder / ".claude" / "made"
    made.unlink()
    shell.write_file(".claude/settings.json", json.dumps({"sandbox": {"hooks": True}}))
    assert shell.vaka(*words, '{"command": "git status"}').json == {"permission": ""}
    assert not made.exists()
    assert shell.vaka("hooks", "test", "PreToolUse").code == 2
    assert shell.vaka(*words, "[1]").code == 2


def test_a_run_obeys_the_hooks_of_trusted_settings_only_and_switches_turn_them_off(shell: Shell) -> None:
    lines = [call_line("Read", file_path="notes.txt"), say_line("done")]
    script = shell.write_script(*lines)
    shell.write_file("notes.txt", "hello")
    shell.write_file(".claude/settings.json", hook_settings("PreToolUse", "echo 'closed today' >&2; exit 2", "Read"))

    def read_result(*words: str) -> str:
        done = shell.vaka("run", "Go.", "--model", script, "--output", "stream-json", *words)
        events = [json.loads(line) for line in done.out.splitlines()]
        ended = next(event for event in events if event["type"] in ("tool.completed", "tool.failed"))
        return str(ended["data"]["result"]["content"][0]["text"])

    assert "closed today" in read_result("--trust")
    assert "hello" in read_result()
    shell.write_file("home/.claude/settings.json", json.dumps({"disableAllHooks": True}))
    assert "hello" in read_result("--trust")


def test_the_hooks_of_plugins_skills_and_agents_are_listed_with_their_origin(shell: Shell) -> None:
    head = "hooks:\n  PreToolUse:\n    - matcher: Bash\n      hooks:\n        - command: {}\n"
    skill = shell.write_file(".claude/skills/a/SKILL.md", f"---\nname: a\ndescription: A.\n{head.format('a')}---\n")
    shell.write_file("home/.claude/agents/b.md", f"---\nname: b\ndescription: B.\n{head.format('b')}---\n")
    shell.write_file("home/.claude/plugins/c/.claude-plugin/plugin.json", '{"name": "c"}')
    plugin = shell.write_file(
        "home/.claude/plugins/c/hooks/hooks.json", hook_settings("Stop", "${CLAUDE_PLUGIN_ROOT}/c")
    )
    done = shell.vaka("hooks", "list", "--json", "--trust")
    assert [(hook["event"], hook["command"], hook["component"]) for hook in done.json] == [
        ("Stop", f"{plugin.parents[1]}/c", ""),
        ("PreToolUse", "a", "skill a"),
        ("PreToolUse", "b", "agent b"),
    ]
    assert [hook["origin"] for hook in done.json][:2] == [str(plugin), str(skill)]
    shell.write_file("home/.claude/settings.json", json.dumps({"disableAllHooks": True}))
    off = shell.vaka("hooks", "list", "--json", "--trust")
    assert [hook["disabled"] for hook in off.json] == ["settings switch hooks off"] * 3
    assert "3 hooks of plugins, skills, commands and agents are switched off" in off.err


def test_a_run_obeys_the_hooks_of_a_plugin(shell: Shell) -> None:
    shell.write_file("home/.claude/plugins/c/.claude-plugin/plugin.json", '{"name": "c"}')
    shell.write_file("home/.claude/plugins/c/refuse.sh", "cat >&2; exit 2")
    command = 'sh "$CLAUDE_PLUGIN_ROOT/refuse.sh"'
    shell.write_file("home/.claude/plugins/c/hooks/hooks.json", hook_settings("PreToolUse", command, "Read"))
    shell.write_file("notes.txt", "hello")
    script = shell.write_script(call_line("Read", file_path="notes.txt"), say_line("done"))
    done = shell.vaka("run", "Go.", "--model", script, "--output", "stream-json")
    failed = next(event for event in map(json.loads, done.out.splitlines()) if event["type"] == "tool.failed")
    assert '"tool_name":"Read"' in failed["data"]["result"]["content"][0]["text"]


def test_hooks_of_plugin_folders_stay_when_settings_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    hooks = tmp_path / "guard/hooks/hooks.json"
    hooks.parent.mkdir(parents=True)
    hooks.write_text(hook_settings("PreToolUse", "check"))
    for trust in (True, False):
        flags = {"plugin_dir": (str(tmp_path / "guard"),), "trust": trust}
        loaded = CommandSettings(load_flag_settings(flags)).load()
        assert [(hook.command, hook.disabled == "") for hook in loaded.hooks] == [("check", trust)]
        assert loaded.trusted is trust
