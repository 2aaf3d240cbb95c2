"""Approvals on the command line: the prompt at a terminal, batches, and the history."""

import json
import os
import sys
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.cli.chat.chat_terminal import ChatTerminal
from tests.cli.shell import Shell, Terminal, call_line, say_line

CHOICES = "[y] once · [s] session · [p] project · [u] always · [e] edit rule · [a] edit arguments"
PROMPT = f"{CHOICES} · [n] no, with feedback > "
LIST_PROMPT = f"{CHOICES} · [*] all of these · [1] [2] … another · [n] no, with feedback > "
MODEL = ("--model", "scripted:script.jsonl")


def run_at_terminal(shell: Shell, *words: str, **env: str) -> Terminal:
    return shell.terminal("run", "Go.", *MODEL, *words, **env)


def bash_line(command: str, **more: Any) -> dict[str, Any]:
    return call_line("Bash", command=command, **more)


def parallel_calls(*lines: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [one for line in lines for one in line["tool_calls"]]}


def allow_rules(shell: Shell, name: str) -> Any:
    return json.loads((shell.folder / name).read_text())["permissions"]["allow"]


# -------------------------------------------------------------------------------- the view of a call


def test_a_command_is_shown_with_its_agent_risk_sandbox_and_rule(shell: Shell) -> None:
    shell.write_script(bash_line("touch made && ls", description="Make it"), say_line("Done."))
    screen = run_at_terminal(shell, "--sandbox", "off", NO_COLOR="1")
    screen.expect("Approve Bash?\r\n")
    shown = screen.expect(PROMPT).split("\r\n")
    assert shown[0] == (
        "  agent assistant · risk it may change something; only files of the workspace can be restored · "
        "sandbox none: it would run with all your permissions"
    )
    assert shown[1:3] == ["  │ touch made && ls", "  │ description: Make it"]
    assert shown[3].startswith("  Why: ")
    assert shown[4] == "  Rule: Bash(touch made)"
    screen.send_line("y")
    screen.expect("Done.")
    assert screen.wait_exit() == 0
    assert "\x1b" not in screen.screen
    assert (shell.folder / "made").exists()


def test_a_command_runs_in_the_sandbox_that_was_named(shell: Shell) -> None:
    shell.write_script(bash_line("touch made"), say_line("Done."))
    screen = run_at_terminal(shell)
    named = screen.expect(" with feedback > ").partition("· sandbox ")[2].partition(":")[0]
    assert named in shell.vaka("doctor", "--json").out or "none" in named
    screen.send_line("n not now")
    screen.expect("Done.")
    assert screen.wait_exit() == 5


def test_a_command_can_neither_control_the_terminal_nor_imitate_the_prompt(shell: Shell) -> None:
    fake = "make\nApprove Bash?\r[y] once\x1b[2K\x1b]0;x\x07 \u202etxt.exe\u202c \u200b"
    shell.write_script(bash_line(fake), say_line("Done."))
    screen = run_at_terminal(shell, NO_COLOR="1")
    screen.expect("Approve Bash?\r\n")
    shown = screen.expect("  Why: ")
    assert "  │ make\r\n  │ Approve Bash?\\r[y] once\\u001b[2K\\u001b]0;x\\u0007 \\u202etxt.exe\\u202c \\u200b" in shown
    screen.expect("[y] once · [a] edit arguments · [n] no, with feedback > ")
    screen.send_line("n \x1b[31mno\x07")
    screen.expect("Done.")
    screen.wait_exit()
    assert "\x1b" not in screen.screen
    assert "\u202e" not in screen.screen


def test_a_long_command_is_shown_whole(shell: Shell) -> None:
    words = [f"word{number}" for number in range(1200)]
    shell.write_script(bash_line(f"touch {' '.join(words)}"), say_line("Done."))
    screen = run_at_terminal(shell, "--quiet", COLUMNS="40")
    assert " ".join(words) in screen.expect("Rule: ")
    screen.expect("> ")
    screen.send_line("n no")
    screen.expect("Done.")
    screen.wait_exit()


def test_a_change_of_a_file_is_shown_as_a_diff(shell: Shell) -> None:
    shell.write_file("a.txt", "one\ntwo\nthree\n")
    shell.write_script(call_line("Write", file_path="a.txt", content="one\n2\nthree\n"), say_line("Done."))
    screen = run_at_terminal(shell, NO_COLOR="1")
    screen.expect("Approve Write?")
    shown = screen.expect("  Why: ")
    assert "\r\n  │ a.txt\r\n" in shown
    assert "\r\n  │ -two\r\n  │ +2\r\n" in shown
    screen.expect(PROMPT)
    screen.send_line("n")
    screen.expect("Reason for the model")
    screen.send_line("Leave it.")
    screen.expect("Done.")
    assert screen.wait_exit() == 5
    assert (shell.folder / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_a_new_file_and_an_edit_are_shown_as_diffs_too(shell: Shell) -> None:
    shell.write_file("a.txt", "one two\n")
    edit = call_line("Edit", file_path="a.txt", old_string="one", new_string="1", replace_all=True)
    shell.write_script(
        parallel_calls(call_line("Write", file_path="b.txt", content="new\x1b[31m\n"), edit), say_line("Done.")
    )
    screen = run_at_terminal(shell, NO_COLOR="1")
    for tool, lines in (
        ("Write", "  │ b.txt (a new file)\r\n  │ @@ -0,0 +1 @@\r\n  │ +new\\u001b[31m\r\n"),
        ("Edit", "  │ a.txt (everywhere in it)\r\n  │ @@ -1 +1 @@\r\n  │ -one two\r\n  │ +1 two\r\n"),
    ):
        screen.expect(f"Approve {tool}?")
        assert lines in screen.expect("  Why: ")
        screen.expect("no, with feedback > ")
        screen.send_line("n no")
    screen.expect("Done.")
    screen.wait_exit()


# -------------------------------------------------------------------------------- scopes


def test_an_approval_for_the_session_covers_what_its_rule_matches(shell: Shell) -> None:
    shell.write_script(bash_line("touch a"), bash_line("touch a"), bash_line("touch b"), say_line("Done."))
    screen = run_at_terminal(shell, "--session", "s")
    screen.expect(PROMPT)
    screen.send_line("s")
    screen.expect("Rule: Bash(touch b)")
    screen.expect(PROMPT)
    screen.send_line("n not b")
    screen.expect("Done.")
    screen.wait_exit()
    assert not (shell.folder / "b").exists()
    assert not (shell.folder / ".claude").exists()


def test_an_approval_for_the_project_is_stored_there_and_applies_to_later_runs(shell: Shell) -> None:
    shell.write_script(bash_line("touch a"), bash_line("touch a"), say_line("Done."))
    screen = run_at_terminal(shell)
    screen.expect(PROMPT)
    screen.send_line("p")
    screen.expect("Bash(touch a) is stored in ")
    screen.expect("settings.local.json\r\n")
    screen.expect("Done.")
    assert screen.wait_exit() == 0
    assert allow_rules(shell, ".claude/settings.local.json") == ["Bash(touch a)"]
    shown = shell.vaka("permissions", "list", "--json").json["rules"]
    assert [(rule["rule"], rule["layer"]) for rule in shown] == [("Bash(touch a)", "local")]
    again = shell.vaka("config", "show", "--permissions", "--json").json["rules"]
    assert again == shown
    assert "Bash(touch a)  local" in shell.vaka("config", "show", "--permissions").out
    assert shell.vaka("run", "Go.", *MODEL).code == 0
    later = run_at_terminal(shell)
    later.expect("Done.")
    assert (later.wait_exit(), "Trust this folder?" in later.screen) == (0, False)
    shell.write_script(bash_line("touch b"), say_line("Done."))
    shell.write_file(".claude/settings.json", '{"permissions": {"allow": ["Bash(touch b)"]}}')
    assert shell.vaka("run", "Go.", *MODEL).code == 5, "nothing else of the folder is trusted"


def test_an_approval_for_the_user_stores_the_edited_rule_in_their_settings(shell: Shell) -> None:
    shell.write_script(bash_line("touch a && mkdir b"), say_line("Done."))
    screen = run_at_terminal(shell)
    screen.expect("Rule: Bash(touch a)\r\n  Rule: Bash(mkdir b)\r\n")
    screen.expect(PROMPT)
    screen.send_line("e Bash(touch:*)")
    screen.expect("error: the rule 'Bash(touch:*)' does not mean this call")
    screen.expect(PROMPT)
    screen.send_line("e")
    screen.expect("Rule, now Bash(touch a) (Enter keeps it, - drops it) > ")
    screen.send_line("Bash(touch:*)")
    screen.expect("Rule, now Bash(mkdir b) (Enter keeps it, - drops it) > ")
    screen.send_line("")
    screen.expect("  Rule: Bash(touch:*)\r\n  Rule: Bash(mkdir b)\r\n")
    screen.expect(PROMPT)
    screen.send_line("u")
    screen.expect("Done.")
    assert screen.wait_exit() == 0
    assert allow_rules(shell, "home/.claude/settings.json") == ["Bash(touch:*)", "Bash(mkdir b)"]
    shell.write_script(bash_line("touch other"), say_line("Again."))
    assert shell.vaka("run", "Go.", *MODEL).code == 0


def test_settings_that_cannot_be_written_leave_the_question_open(shell: Shell) -> None:
    shell.vaka("trust", "--no")
    shell.write_file(".claude/settings.local.json", "{}")
    shell.write_script(bash_line("touch a"), say_line("Done."))
    screen = run_at_terminal(shell)
    screen.expect(PROMPT)
    shell.write_file(".claude/settings.local.json", "{broken")
    screen.send_line("p")
    screen.expect("settings.local.json:1: not JSON")
    screen.expect(PROMPT)
    screen.send_line("y")
    screen.expect("Done.")
    assert screen.wait_exit() == 0
    assert (shell.folder / ".claude/settings.local.json").read_text() == "{broken"


def test_only_scopes_that_would_apply_are_offered(shell: Shell) -> None:
    shell.write_script(
        bash_line("touch a"), call_line("Write", file_path=".git/config", content="x"), say_line("Done.")
    )
    screen = run_at_terminal(shell, "--confirm", "Bash(touch:*)", NO_COLOR="1")
    screen.expect("\r\n[y] once · [s] session · [e] edit rule · [a] edit arguments · [n] no, with feedback > ")
    screen.send_line("p")
    screen.expect("Answer with one of the keys in brackets: y, s, e, a, n.")
    screen.expect("with feedback > ")
    screen.send_line("y")
    screen.expect("risk high: it changes what runs later, or what is allowed")
    screen.expect("\r\n[y] once · [a] edit arguments · [n] no, with feedback > ")
    screen.send_line("n no")
    screen.expect("Done.")
    screen.wait_exit()


# -------------------------------------------------------------------------------- several


def test_several_approvals_are_prompted_one_by_one_and_counted(shell: Shell) -> None:
    shell.write_script(
        parallel_calls(bash_line("touch a"), bash_line("touch b"), bash_line("touch a; ls")), say_line("Done.")
    )
    screen = run_at_terminal(shell, NO_COLOR="1")
    screen.expect("3 approvals are open:\r\n> 1. Bash touch a\r\n  2. Bash touch b\r\n  3. Bash touch a; ls\r\n")
    screen.expect("Approve Bash? (1 of 3)")
    screen.expect(LIST_PROMPT)
    screen.send_line("s")
    screen.expect("for the session: Bash(touch a)")
    screen.expect("  │ touch b")
    screen.expect(PROMPT)
    screen.send_line("n no")
    screen.expect("Done.")
    screen.wait_exit()
    assert "│ touch a; ls" not in screen.screen, "the third is covered by the answer to the first"


def test_all_open_approvals_are_answered_together_and_arguments_are_edited_in_an_editor(shell: Shell) -> None:
    calls = [bash_line(f"touch {name}") for name in ("a", "b", "c")]
    shell.write_script(parallel_calls(*calls), bash_line("touch d"), say_line("Done."))
    second, first = '{"command": "touch f"}', '{"command": oops}'
    editor = shell.write_file(
        "editor", f"#!/bin/sh\n[ -f seen ] && echo '{second}' > $1 && exit\n>seen; echo '{first}' > $1\n"
    )
    editor.chmod(0o755)
    screen = run_at_terminal(shell, "--session", "s", NO_COLOR="1", VISUAL=str(editor))
    screen.expect(LIST_PROMPT)
    screen.send_line("3")
    screen.expect("> 3. Bash touch c\r\n")
    screen.expect(LIST_PROMPT)
    screen.send_line("* s")
    screen.expect("  │ touch d")
    screen.expect(PROMPT)
    screen.send_line("a")
    screen.expect("error: expected a JSON object: line 1, column 13: Expecting value")
    screen.expect("[Enter] edit again")
    screen.send_line("")
    screen.expect("Done.")
    assert screen.wait_exit() == 0
    assert {name for name in "abcdf" if (shell.folder / name).exists()} == {"a", "b", "c", "f"}
    resolved = [e["data"] for e in shell.events("s") if e["type"] == "approval.resolved"]
    rules = {(answer["scope"], answer["rule"]) for answer in resolved[:3]}
    assert rules == {("session", f"Bash(touch {name})") for name in ("a", "b", "c")}


def test_a_question_is_asked_on_the_controlling_terminal_when_stdin_is_a_pipe(shell: Shell) -> None:
    shell.write_script({**bash_line("touch a"), "expect": {"last_user_contains": "two commits"}}, say_line("Done."))
    run = f"{sys.executable} -m vaka run Summarise. --model scripted:script.jsonl --session s"
    shell.write_file("pipe.sh", f"echo two commits | {run} | cat > out")
    with ChatTerminal(shell, program=("bash", "pipe.sh"), columns=100) as screen:
        screen.expect("Approve Bash?")
        screen.expect("with feedback >")
        screen.send("y\n")
        assert screen.wait_exit() == 0
        assert "Approve" not in screen.visible, "an answered question leaves the screen"
        assert "approved by kim: Bash touch a" in screen.text
    assert ((shell.folder / "out").read_text(), (shell.folder / "a").exists()) == ("Done.\n", True)


def test_ctrl_c_at_the_prompt_interrupts_the_turn(shell: Shell) -> None:
    shell.write_script(parallel_calls(bash_line("touch a"), bash_line("touch b")), say_line("Done."))
    screen = run_at_terminal(shell, "--session", "s")
    screen.expect(LIST_PROMPT)
    screen.process.send_signal(2)
    assert screen.wait_exit() == 130
    assert shell.event_types("s")[-1] == "turn.interrupted"
    assert shell.pending_decisions() == []


# -------------------------------------------------------------------------------- without a terminal


def test_without_a_terminal_the_call_is_refused_and_the_exit_code_is_5(shell: Shell) -> None:
    shell.write_script(bash_line("touch a"), say_line("I could not."))
    done = shell.vaka("run", "Go.", *MODEL, "--session", "s")
    assert (done.code, done.out) == (5, "I could not.\n")
    failed = next(e["data"]["result"] for e in shell.events("s") if e["type"] == "tool.failed")
    assert failed["content"][0]["text"].endswith("no person can be asked here, so it was not run")
    assert "allow it with --allow 'Bash(touch a)', or leave the question open with --ask suspend" in done.err
    assert not (shell.folder / "a").exists()


def test_a_turn_that_recovered_from_a_rejection_completes(shell: Shell) -> None:
    shell.write_script(bash_line("touch a"), bash_line("ls"), say_line("Looked instead."))
    assert shell.vaka("run", "Go.", *MODEL).code == 0


# -------------------------------------------------------------------------------- from another terminal


@pytest.fixture
def waiting(shell: Shell) -> Shell:
    """A turn that waits for three approvals."""
    shell.write_script(
        parallel_calls(bash_line("touch a"), bash_line("touch b"), bash_line("touch c")), say_line("Done.")
    )
    assert shell.vaka("run", "Go.", *MODEL, "--session", "s", "--ask", "suspend").code == 5
    return shell


def resume_run(shell: Shell) -> Any:
    return shell.vaka("run", "--session", "s", "--resume", *MODEL, "--ask", "suspend")


def test_several_approvals_are_resolved_at_once_each_with_its_outcome(waiting: Shell) -> None:
    first, second, third = [row["id"] for row in waiting.pending_decisions()]
    assert waiting.vaka("approvals", "resolve", second, "--reject", "--message", "Not b.", "--by", "ann").code == 0
    done = waiting.vaka("approvals", "resolve", first, second, "apr_none", third, "--approve", "--by", "bob")
    assert done.code == 1
    lines = done.err.splitlines()
    assert [line.partition(";")[0].partition(" at ")[0] for line in lines[:2]] == [
        "approved",
        "error: already rejected by ann",
    ]
    assert "there is no open decision 'apr_none'" in lines[2]
    assert lines[3].startswith("approved;")
    assert resume_run(waiting).code == 0
    assert sorted(path.name for path in waiting.folder.glob("?")) == ["a", "c"]
    failed = next(e["data"]["result"] for e in waiting.events("s") if e["type"] == "tool.failed")
    assert failed["content"][0]["text"] == "a person refused this call: Not b."


def test_all_approvals_of_a_session_are_resolved_at_once(waiting: Shell) -> None:
    rule = ("--scope", "session", "--rule", "Bash(touch:*)")
    done = waiting.vaka("approvals", "resolve", "--all", "--session", "s", "--approve", *rule)
    assert done.code == 0, done.err
    assert "approved for the session: Bash(touch:*)" in done.err
    assert waiting.pending_decisions() == []
    assert (
        "nothing waits in session s" in waiting.vaka("approvals", "resolve", "--all", "--session", "s", "--reject").err
    )
    assert waiting.vaka("approvals", "resolve", "--all", "--session", "t", "--reject").code == 2
    assert resume_run(waiting).code == 0


def test_an_approval_with_a_ttl_prints_until_when_it_applies(waiting: Shell) -> None:
    id = waiting.pending_decisions()[0]["id"]
    done = waiting.vaka("approvals", "resolve", id, "--approve", "--scope", "session", "--ttl", "1h")
    assert done.code == 0, done.err
    row = next(row for row in waiting.vaka("approvals", "list", "--all", "--json").json["decisions"] if row["id"] == id)
    span = datetime.fromisoformat(row["until"]) - datetime.fromisoformat(row["decided"])
    assert timedelta(minutes=59) < span < timedelta(minutes=61)
    assert f"approved for the session until {row['until']}: Bash(touch a)" in done.err
    assert f": {id} for the session until {row['until']}: Bash(touch a)" in waiting.vaka("sessions", "show", "s").out


def test_at_the_terminal_only_an_approval_for_the_session_takes_a_time(shell: Shell) -> None:
    shell.write_script(bash_line("touch a"), bash_line("touch a"), say_line("Done."))
    screen = run_at_terminal(shell, "--session", "s")
    for word, why in (
        ("y please", "expected nothing after the key"),
        ("s soon", "expected a time span such as 90, 5m"),
    ):
        screen.expect(PROMPT)
        screen.send_line(word)
        screen.expect(why)
    screen.expect(PROMPT)
    screen.send_line("s 5m")
    screen.expect("Done.")
    assert screen.wait_exit() == 0
    [resolved] = [e["data"] for e in shell.events("s") if e["type"] == "approval.resolved"]
    assert resolved["until"]


def test_arguments_that_do_not_fit_are_refused_and_the_question_stays(waiting: Shell) -> None:
    id = waiting.pending_decisions()[0]["id"]
    for edit in ('{"command": 7}', '{"comand": "x"}', "{}"):
        done = waiting.vaka("approvals", "resolve", id, "--approve", "--edit", edit)
        assert (done.code, "Bash does not take these arguments" in done.err) == (2, True), done.err
    assert waiting.vaka("approvals", "resolve", id, "--approve", "--edit", f'{{"x": {"[" * 5000}').code == 2
    assert waiting.vaka("approvals", "resolve", id, "--approve", "--edit", f"{'[' * 500}{']' * 500}").code == 2
    assert len(waiting.pending_decisions()) == 3
    assert waiting.vaka("approvals", "resolve", id, "--approve", "--edit", '{"command": "touch d"}').code == 0


def test_rejecting_all_approvals_of_a_running_turn_without_a_reason_ends_it(shell: Shell) -> None:
    shell.write_script(
        parallel_calls(bash_line("touch a"), bash_line("touch b"), bash_line("touch c")), say_line("never")
    )
    screen = run_at_terminal(shell, "--session", "s")
    screen.expect(LIST_PROMPT)
    done = shell.vaka("approvals", "resolve", "--all", "--session", "s", "--reject")
    assert done.code == 0, done.err
    screen.expect("a person refused Bash and said nothing more")
    assert screen.wait_exit() == 5
    assert list(shell.folder.glob("?")) == []


def test_a_rule_that_does_not_fit_is_refused_and_nothing_is_decided(waiting: Shell) -> None:
    id = waiting.pending_decisions()[0]["id"]
    done = waiting.vaka("approvals", "resolve", id, "--approve", "--scope", "user", "--rule", "Bash(rm:*)")
    assert done.code == 2
    assert "does not mean this call of Bash; 'Bash(touch a)' does" in done.err
    assert len(waiting.pending_decisions()) == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["apr_1"], "add --approve or --reject"),
        (["--approve"], "name approvals by their ids, or all of a session"),
        (["apr_1", "--all", "--session", "s", "--approve"], "name approvals by their ids, or all of a session"),
        (["--all", "--approve"], "name approvals by their ids, or all of a session"),
        (["apr_1", "--session", "s", "--approve"], "name approvals by their ids, or all of a session"),
        (["apr_1", "--reject", "--rule", "Bash"], "--edit, --scope and --rule go with --approve"),
        (["apr_1", "--approve", "--rule", "Bash"], "--rule needs --scope"),
        (["apr_1", "apr_2", "--approve", "--edit", "{}"], "--edit is for one approval"),
        (["apr_1", "--approve", "--ttl", "1h"], "--ttl goes with --scope session"),
        (["apr_1", "--approve", "--scope", "user", "--ttl", "1h"], "--ttl goes with --scope session"),
        (["apr_1", "--approve", "--scope", "session", "--ttl", "soon"], "expected a time span such as 90, 5m"),
        (["apr_1", "--approve", "--scope", "ever"], "'ever' is not one of"),
    ],
)
def test_contradicting_flags_are_usage_errors(shell: Shell, words: list[str], why: str) -> None:
    done = shell.vaka("approvals", "resolve", *words)
    assert done.code == 2
    assert why in done.err


def test_the_history_has_author_time_source_and_rule_of_each_decision(waiting: Shell) -> None:
    first, second, third = [row["id"] for row in waiting.pending_decisions()]
    waiting.vaka("approvals", "resolve", first, "--approve", "--scope", "project", "--by", "ann")
    waiting.vaka("approvals", "resolve", second, "--reject", "--message", "Not b.", "--by", "bob")
    rows = waiting.vaka("approvals", "list", "--all", "--json").json["decisions"]
    facts = [(row["id"], row["status"], row["by"], row["scope"], row["rules"], row["answer"]) for row in rows]
    assert facts == [
        (first, "approved", "ann", "project", ["Bash(touch a)"], None),
        (second, "rejected", "bob", "once", [], "Not b."),
        (third, "waiting", None, None, [], None),
    ]
    assert all(row["decided"] > row["asked"] and ", process " in row["source"] for row in rows[:2])
    table = waiting.vaka("approvals", "list", "--all", "--session", "s").out
    assert "approved (project)" in table
    assert "Bash(touch a)" in table
    shown = waiting.vaka("sessions", "show", "s").out
    assert f": {first} for the project: Bash(touch a)" in shown
    assert f": {second} (Not b.)" in shown
    assert waiting.vaka("approvals", "list", "--all", "--session", "none").code == 2


def test_messages_and_names_cannot_control_the_terminal_or_add_lines(waiting: Shell) -> None:
    first, second, third = [row["id"] for row in waiting.pending_decisions()]
    why, by = "\x1b[2Jno\u202e\x07\nApprove Bash?", "ann\x1b[31m\napproved by root"
    assert waiting.vaka("approvals", "resolve", first, "--reject", "--message", why, "--by", by).code == 0
    for output in (
        waiting.vaka("approvals", "resolve", first, "--approve").err,
        waiting.vaka("approvals", "list", "--all").out,
        waiting.vaka("sessions", "show", "s").out,
    ):
        assert not {"\x1b", "\u202e", "\x07"} & set(output)
        assert not any(line.startswith(("approved by root", "Approve Bash?")) for line in output.splitlines())
    broken = os.fsdecode(b"no\xff")
    assert waiting.vaka("approvals", "resolve", second, "--reject", "--message", broken, "--by", broken).code == 0
    rows = {row["id"]: row for row in waiting.vaka("approvals", "list", "--all", "--json").json["decisions"]}
    assert (rows[first]["answer"], rows[first]["by"]) == (why, by)
    assert (rows[second]["answer"], rows[third]["status"]) == ("no\ufffd", "waiting")


def test_an_approval_of_an_interrupted_turn_is_listed_as_dropped(shell: Shell) -> None:
    shell.write_script(bash_line("touch a"), say_line("Done."))
    screen = run_at_terminal(shell, "--session", "s")
    screen.expect(PROMPT)
    screen.process.send_signal(2)
    screen.wait_exit()
    [row] = shell.vaka("approvals", "list", "--all", "--json").json["decisions"]
    assert row["status"] == "dropped"


def test_a_call_that_waits_for_a_client_is_not_listed(shell: Shell) -> None:
    shell.write_script(call_line("pick_file", kind="map"), say_line("A fine map."))
    program = "from vaka import Agent, tools\n\nagent = Agent('guide', tools=[tools.ClientTool('pick_file')])\n"
    shell.write_file("guide.py", program)
    done = shell.vaka("run", "Go.", "--agent", "guide.py", *MODEL, "--ask", "suspend", "--session", "s")
    assert done.code == 5, done.err
    assert shell.vaka("approvals", "list", "--json").json == {"decisions": []}
    [asked] = shell.vaka("approvals", "list", "--all", "--json").json["decisions"]
    assert asked["kind"] == "result"
