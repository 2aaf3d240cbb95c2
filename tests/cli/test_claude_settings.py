"""``.claude`` settings in the command line: model, environment, the mode in force, and their validation."""

import json
from typing import Any

from tests.cli.shell import Shell, call_line, say_line


def write_settings(shell: Shell, name: str = ".claude/settings.json", **document: Any) -> str:
    return str(shell.write_file(name, json.dumps(document)))


def test_the_mode_in_force_is_shown_with_the_file_that_sets_it(shell: Shell) -> None:
    path = write_settings(shell, permissions={"defaultMode": "plan"})
    shown = shell.vaka("config", "show", "--origin", "--json").json
    assert shown["permission_mode"] == {"value": "plan", "layer": "project", "origin": f"{path}:1"}
    assert shell.vaka("config", "get", "permission_mode").out.strip() == "plan"
    assert shell.vaka("config", "show", "--json", "--permission-mode", "dontAsk").json["permission_mode"] == "dontAsk"


def test_the_model_of_claude_settings_counts_unless_vaka_has_one(shell: Shell) -> None:
    write_settings(shell, "home/.claude/settings.json", model="claude-opus-4-8")
    assert shell.vaka("config", "get", "model").out.strip() == "anthropic/claude-opus-4-8"
    assert shell.vaka("config", "get", "model", VAKA_MODEL="local").out.strip() == "local"
    write_settings(shell, "home/.claude/settings.json", model="opus")
    assert shell.vaka("config", "get", "model").out.strip() == ""
    shell.write_file("vaka.toml", '[tiers]\nhigh = "local"\n')
    assert shell.vaka("config", "get", "model").out.strip() == "high"


def test_the_environment_of_trusted_settings_reaches_commands(shell: Shell) -> None:
    write_settings(shell, env={"GREETING": "hello from settings"})
    script = shell.write_script(call_line("Bash", command="echo [$GREETING]"), say_line("done"))

    def output(*words: str) -> str:
        done = shell.vaka("run", "Go.", "--model", script, "--output", "stream-json", *words)
        ended = next(line for line in done.lines if line["type"] in ("tool.completed", "tool.failed"))
        return str(ended["data"]["result"]["content"][0]["text"])

    assert "[hello from settings]" in output("--trust")
    assert "[]" in output()


def test_the_environment_of_a_project_does_not_change_where_keys_are_sent(shell: Shell) -> None:
    write_settings(shell, env={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "HTTPS_PROXY": "http://127.0.0.1:9"})
    script = shell.write_script(call_line("Bash", command="echo [$OPENAI_BASE_URL$HTTPS_PROXY]"), say_line("done"))
    done = shell.vaka("run", "Go.", "--model", script, "--output", "stream-json", "--trust")
    ended = next(line for line in done.lines if line["type"] in ("tool.completed", "tool.failed"))
    assert "127.0.0.1:9" not in ended["data"]["result"]["content"][0]["text"]


def test_every_problem_of_settings_is_reported_with_a_near_name(shell: Shell) -> None:
    ask = ["Redd", "BASH(rm:*)", "Bash(regex:^rm:)"]
    rules = {"deny": ["Redd(x)", "Bash(rm:*"], "ask": ask, "allow": ["file_read"]}
    path = write_settings(shell, permissions=rules, hooks={"Stop": [{"hooks": [{"type": "command"}]}]})
    for words in ((path,), (".",)):
        done = shell.vaka("config", "validate", *words)
        assert done.code == 3
        for text in (
            "did you mean Read(x)?",
            "'Bash(rm:*'",
            "has no command",
            "did you mean 'Read'?",
            "did you mean 'Bash'?",
            "has no regular expression",
        ):
            assert text in done.err, text
    write_settings(shell, permissions={"deny": ["Read(.env)"]})
    assert shell.vaka("config", "validate", ".").code == 0


def test_native_names_of_tools_are_accepted_in_rules(shell: Shell) -> None:
    words = ("permissions", "check", "--tool", "Read", "--input", '{"file_path": "a"}', "--deny", "file_read")
    assert shell.vaka(*words).json["decision"] == "deny"


def test_auto_compact_of_trusted_settings_counts_unless_vaka_says_otherwise(shell: Shell) -> None:
    write_settings(shell, autoCompactEnabled=False)

    def compaction(*words: str) -> str:
        return str(shell.vaka("config", "get", "compaction", *words).out.strip())

    assert compaction() == ""
    assert compaction("--trust") == "enabled = false"
    shell.write_file("vaka.toml", "[compaction]\nenabled = true\n")
    assert compaction("--trust") == "enabled = true"
