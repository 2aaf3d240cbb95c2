"""``vaka permissions``: decisions of the rules, without running anything."""

import json
from typing import Any

import pytest

from tests.cli.shell import CommandResult, Shell, call_line, say_line


def check_call(shell: Shell, tool: str, arguments: Any, *words: str) -> CommandResult:
    return shell.vaka("permissions", "check", "--tool", tool, "--input", json.dumps(arguments), *words)


def check_batch(shell: Shell, *lines: Any, words: tuple[str, ...] = ()) -> CommandResult:
    data = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    return shell.vaka("permissions", "check", "--batch", *words, input=data)


def settings_json(**lists: Any) -> str:
    return json.dumps({"permissions": lists})


def test_a_decision_is_one_object_with_its_rule_and_layer(shell: Shell) -> None:
    done = check_call(shell, "Read", {"file_path": ".env"}, "--deny", "Read(.env)")
    assert (done.code, done.err) == (0, "")
    assert done.json == {
        "decision": "deny",
        "rule": "Read(.env)",
        "layer": "flag",
        "reason": f"the rule Read(.env) denies {shell.folder}/.env",
        "subcommands": [],
    }


def test_each_part_of_a_command_has_its_decision(shell: Shell) -> None:
    done = check_call(shell, "Bash", {"command": "git push && ls"}, "--confirm", "Bash(git push:*)")
    found = done.json
    assert (found["decision"], found["rule"], found["layer"]) == ("ask", "Bash(git push:*)", "flag")
    assert [(part["command"], part["decision"], part["rule"]) for part in found["subcommands"]] == [
        ("git push", "ask", "Bash(git push:*)"),
        ("ls", "allow", "read-only"),
    ]
    assert set(found["subcommands"][0]) == {"command", "decision", "rule", "layer", "reason"}


def test_non_interactive_turns_ask_into_deny(shell: Shell) -> None:
    asked = check_call(shell, "Write", {"file_path": "a"}).json
    assert (asked["decision"], asked["rule"], asked["layer"]) == ("ask", "default", "mode")
    alone = check_call(shell, "Write", {"file_path": "a"}, "--non-interactive").json
    assert (alone["decision"], alone["rule"]) == ("deny", "default")
    assert alone["reason"].endswith("no person can be asked")
    assert check_call(shell, "Write", {"file_path": "a"}, "--mode", "acceptEdits").json["decision"] == "allow"


def test_files_of_every_layer_count(shell: Shell) -> None:
    shell.write_file("home/.claude/settings.json", settings_json(deny=["Bash(curl:*)"], ask=["Read(/notes)"]))
    shell.write_file(".claude/settings.json", settings_json(deny=["Read(/secrets/**)"], allow=["Bash(make:*)"]))
    shell.write_file(".claude/settings.local.json", settings_json(ask=["WebSearch"]))
    strict = shell.write_file("strict.json", settings_json(deny=["WebFetch"], defaultMode="plan"))

    def decide(tool: str, arguments: Any, *words: str) -> tuple[str, str, str]:
        found = check_call(shell, tool, arguments, *words).json
        return found["decision"], found["rule"], found["layer"]

    assert decide("Bash", {"command": "curl x"}) == ("deny", "Bash(curl:*)", "user")
    assert decide("Read", {"path": "~/.claude/notes"}) == ("ask", "Read(/notes)", "user")
    assert decide("Read", {"path": "secrets/a"}) == ("deny", "Read(/secrets/**)", "project")
    assert decide("WebSearch", {"query": "x"}) == ("ask", "WebSearch", "local")
    assert decide("WebFetch", {"url": "https://a.io"}, "--settings", str(strict)) == (
        "deny",
        "WebFetch",
        "settings",
    )
    assert decide("Write", {"path": "a"}, "--settings", "strict.json") == ("deny", "plan", "mode")
    assert decide("Bash", {"command": "make"}) == ("ask", "default", "mode"), "the folder is not trusted"
    assert decide("Bash", {"command": "make"}, "--trust") == ("allow", "Bash(make:*)", "project")
    note = check_call(shell, "Bash", {"command": "make"}).err
    assert note.count("\n") == 1
    assert "allow rule 'Bash(make:*)' does not count: this folder is not trusted; --trust counts it" in note


def test_another_folder_need_not_exist(shell: Shell) -> None:
    done = check_call(shell, "Read", {"file_path": "a"}, "--cwd", "/no/such/folder")
    assert done.json["decision"] == "allow"
    assert "/no/such/folder/a" in done.json["reason"]
    assert (
        check_call(shell, "Read", {"file_path": str(shell.folder / "a")}, "--cwd", "/no/such").json["decision"] == "ask"
    )


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ([], 2, "give --tool NAME and --input JSON, or --batch"),
        (["--tool", "Bash", "--input", "{"], 2, "--input:1: not JSON"),
        (["--tool", "Bash", "--input", "[]"], 2, "--input: expected an object, not a list"),
        (["--tool", "Bash", "--input", '{"command": "ls", "command": "rm x"}'], 2, "'command' appears twice"),
        (["--batch", "--tool", "Bash"], 2, "leave out --tool and --input"),
        (["--tool", "Bash", "--deny", "Bash("], 2, "--deny (flag): deny rule 'Bash(': expected Tool or Tool(pattern)"),
        (["--tool", "Bash", "--mode", "yolo"], 2, "yolo"),
        (["--tool", "Bash", "--settings", "none.json"], 3, "none.json: there is no such file"),
        (["--tool", "Bash", "--settings", "agent.py"], 3, "agent.py:2: not JSON"),
    ],
)
def test_invalid_input_is_one_line_and_an_exit_code(shell: Shell, words: list[str], code: int, why: str) -> None:
    done = shell.vaka("permissions", "check", *words)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert why in done.err


def test_a_wrong_rule_of_a_project_is_left_out_only_if_that_tightens(shell: Shell) -> None:
    shell.write_file(".claude/settings.json", settings_json(allow=["Bash("]))
    done = check_call(shell, "Bash", {"command": "make"}, "--trust")
    assert (done.code, done.json["decision"]) == (0, "ask")
    assert "allow rule 'Bash(' does not count" in done.err
    shell.write_file(".claude/settings.json", settings_json(deny=["Bash("]))
    done = check_call(shell, "Bash", {"command": "make"})
    assert (done.code, done.out) == (3, "")
    assert ".claude/settings.json:1 (project): deny rule 'Bash('" in done.err


# -------------------------------------------------------------------------------- many at once


def test_each_line_is_answered_by_one_line(shell: Shell) -> None:
    deny = {"permissions": {"deny": ["Read(.env)"]}}
    done = check_batch(
        shell,
        {"tool": "Read", "input": {"file_path": ".env"}},
        {"tool": "Read", "input": {"file_path": ".env"}, "settings": deny},
        {"tool": "Write", "input": {"file_path": "a"}, "mode": "acceptEdits"},
        {"tool": "Write", "input": {"file_path": "a"}, "non_interactive": True},
        {"tool": "Read", "input": {"file_path": "/x/a"}, "cwd": "/x"},
        {"tool": "Bash", "input": {"command": "git status"}, "settings": {"permissions": {"deny": ["Bash(git:*)"]}}},
        {"tool": "mcp__git__push", "input": {}, "settings": {"permissions": {"allow": ["mcp__git"]}, "other": 1}},
        {"tool": "TodoWrite"},
    )
    assert (done.code, done.err) == (0, "")
    assert [(line["decision"], line["rule"], line["layer"]) for line in done.lines] == [
        ("allow", "default", "mode"),
        ("deny", "Read(.env)", "settings"),
        ("allow", "acceptEdits", "mode"),
        ("deny", "default", "mode"),
        ("allow", "default", "mode"),
        ("deny", "Bash(git:*)", "settings"),
        ("allow", "mcp__git", "settings"),
        ("allow", "default", "mode"),
    ]


def test_an_invalid_line_does_not_affect_the_others(shell: Shell) -> None:
    good = {"tool": "Read", "input": {"file_path": "a"}}
    done = check_batch(
        shell,
        good,
        b"{",
        b"[]",
        b"\xff",
        b"",
        {"tol": "Read"},
        {"tool": 5},
        {"tool": "Read", "input": []},
        {"tool": "Read", "mode": "yolo"},
        {"tool": "Read", "settings": {"permissions": {"deny": ["Read("]}}},
        {"tool": "Read", "settings": {"permissions": {"deny": "Read"}}},
        b'{"tool": "Read", "tool": "Bash"}',
        good,
        {"tool": "Read", "input": {"file_path": "\ud800"}},
    )
    assert done.code == 2
    assert [line.get("decision", "error") for line in done.lines] == ["allow", *["error"] * 10, "allow", "ask"]
    assert all(set(line) == {"error"} and line["error"] for line in done.lines[1:11])
    assert "deny rule 'Read(': expected Tool" in done.lines[8]["error"]
    assert "did you mean" in done.lines[7]["error"] or "the modes are" in done.lines[7]["error"]


def test_flags_and_files_apply_to_every_line(shell: Shell) -> None:
    shell.write_file("strict.json", settings_json(deny=["WebFetch"]))
    calls = [{"tool": "WebFetch", "input": {"url": "https://a.example"}}, {"tool": "Write", "input": {"path": "a"}}]
    words = ("--settings", "strict.json", "--mode", "plan", "--non-interactive")
    done = check_batch(shell, *calls, {**calls[1], "mode": "acceptEdits"}, words=words)
    assert [(line["decision"], line["rule"]) for line in done.lines] == [
        ("deny", "WebFetch"),
        ("deny", "plan"),
        ("allow", "acceptEdits"),
    ]


def test_checking_runs_and_stores_nothing(shell: Shell) -> None:
    before = sorted(str(path) for path in shell.folder.rglob("*"))
    done = check_batch(shell, {"tool": "Bash", "input": {"command": "touch made"}, "mode": "bypassPermissions"})
    assert done.lines[0]["decision"] == "allow"
    shell.env["VAKA_STORE"] = "nonsense:"
    assert check_call(shell, "Write", {"file_path": "made"}, "--mode", "bypassPermissions").json["decision"] == "allow"
    assert sorted(str(path) for path in shell.folder.rglob("*")) == before


def test_an_empty_batch_prints_nothing(shell: Shell) -> None:
    done = check_batch(shell)
    assert (done.code, done.out, done.err) == (0, "", "")


# -------------------------------------------------------------------------------- the rules themselves


def test_rules_are_listed_with_where_they_come_from(shell: Shell) -> None:
    user = shell.write_file(
        "home/.claude/settings.json", settings_json(deny=["Bash(curl:*)"], additionalDirectories=["~/lib"])
    )
    project = shell.write_file(".claude/settings.json", settings_json(allow=["Bash"], ask=["Edit(/x)"], denny=[]))
    done = shell.vaka("permissions", "list", "--json", "--deny", "WebFetch", "--mode", "plan")
    assert done.json == {
        "mode": "plan",
        "directories": [str(shell.folder), f"{shell.folder}/home/lib"],
        "rules": [
            {"kind": "deny", "rule": "Bash(curl:*)", "layer": "user", "origin": f"{user}:1"},
            {"kind": "ask", "rule": "Edit(/x)", "layer": "project", "origin": f"{project}:1"},
            {"kind": "deny", "rule": "WebFetch", "layer": "flag", "origin": "--deny"},
        ],
        "notes": [
            f"{project}:1: permissions.denny is not known; did you mean 'permissions.deny'?",
            f"{project}:1 (project): allow rule 'Bash' does not count: this folder is not trusted; --trust counts it",
        ],
    }
    table = shell.vaka("permissions", "list")
    assert [line.split()[:3] for line in table.out.splitlines()] == [
        ["KIND", "RULE", "LAYER"],
        ["deny", "Bash(curl:*)", "user"],
        ["ask", "Edit(/x)", "project"],
    ]
    assert "mode default; working directories: " in table.err


# -------------------------------------------------------------------------------- in a run


def test_a_run_keeps_to_the_rules_of_every_layer(shell: Shell) -> None:
    shell.write_script(call_line("add", a=1, b=2), say_line("Done."))

    def denied(*words: str) -> list[str]:
        done = shell.run("Add.", "--output", "json", "--ephemeral", *words)
        return [denial["name"] for denial in done.json["denials"]]

    assert denied() == []
    assert denied("--deny", "add(a:1)") == ["add"]
    assert denied("--deny", "add(a:2)") == []
    shell.write_file("strict.json", settings_json(deny=["add"]))
    assert denied("--settings", "strict.json") == ["add"]
    shell.write_file(".claude/settings.json", settings_json(deny=["add(b:2)"], allow=["add"]))
    assert denied() == ["add"]


def test_broken_settings_stop_a_run_and_nothing_else(shell: Shell) -> None:
    shell.write_file("home/.claude/settings.json", settings_json(deny=["Bash("]))
    done = shell.run("Add.", model=shell.write_script(say_line("Hi.")))
    assert done.code == 3
    assert "home/.claude/settings.json:1 (user): deny rule 'Bash('" in done.err
    assert shell.vaka("sessions", "list").code == 0


def test_an_invalid_folder_fails_its_own_line_only(shell: Shell) -> None:
    call = {"tool": "Bash", "input": {"command": "ls"}}
    done = check_batch(shell, {**call, "cwd": "a\0b"}, {**call, "cwd": "a/" * 5000}, {**call, "cwd": "\ud800"}, call)
    assert done.code == 2
    assert [line.get("decision", line.get("error", "")[:4]) for line in done.lines] == ["cwd ", "cwd ", "cwd ", "allow"]


def test_an_invalid_line_is_named_and_the_rest_are_answered(shell: Shell) -> None:
    call = {"tool": "Read", "input": {"file_path": "a"}}
    done = check_batch(
        shell, b"\xef\xbb\xbf" + json.dumps(call).encode(), b"", b"{", b'{"tool": "Read", "input": NaN}', b"\xff", call
    )
    assert done.code == 2
    assert [json.loads(line).get("decision") or json.loads(line) for line in done.out.splitlines()] == [
        "allow",
        {"error": "line 3:1: not JSON: Expecting property name enclosed in double quotes (column 2)"},
        {"error": "line 4: not JSON: NaN is not a number"},
        {"error": "line 5 is not UTF-8: invalid start byte at byte 0"},
        "allow",
    ]
