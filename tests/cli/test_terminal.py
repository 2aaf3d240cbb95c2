"""At a terminal: prompts for approvals, streamed answers, Ctrl-C."""

import os
import sys

import pytest

from tests.cli.chat.chat_terminal import ChatTerminal
from tests.cli.shell import TIMEOUT, Shell, Terminal, call_line, say_line
from vaka.cli.display.turn_display import find_rich_renderer


def run_at_terminal(shell: Shell, *words: str, **env: str) -> Terminal:
    return shell.terminal("run", *words, "--agent", "agent.py", "--model", "scripted:script.jsonl", **env)


@pytest.fixture
def paying(shell: Shell) -> Shell:
    shell.write_script(call_line("pay", amount=5), say_line("All done."))
    return shell


def test_an_approved_call_runs(paying: Shell) -> None:
    screen = run_at_terminal(paying, "Pay.", "--session", "s")
    screen.expect("Approve pay?")
    assert '"amount": 5' in screen.expect("[y] once")
    screen.expect("> ")
    screen.send_line("y")
    screen.expect("All done.")
    assert screen.wait_exit() == 0
    assert (paying.folder / "ledger").read_text() == "5\n"
    resolved = next(e["data"] for e in paying.events("s") if e["type"] == "approval.resolved")
    assert (resolved["decision"], resolved["by"]) == ("approve", "kim")


def test_a_run_ends_when_its_terminal_is_closed_at_an_approval(paying: Shell) -> None:
    screen = run_at_terminal(paying, "Pay.", "--session", "s")
    screen.expect("with feedback > ")
    os.close(screen.master)
    assert screen.process.wait(TIMEOUT) != 0
    assert not (paying.folder / "ledger").exists()


def test_a_rejection_reaches_the_model_with_its_reason(paying: Shell) -> None:
    screen = run_at_terminal(paying, "Pay.", "--session", "s")
    screen.expect("with feedback > ")
    screen.send_line("what?")
    screen.expect("Answer with one of the keys in brackets: y, s, e, a, n.")
    screen.expect("with feedback > ")
    screen.send_line("n")
    screen.expect("Reason for the model")
    screen.expect("> ")
    screen.send_line("Too much.")
    screen.expect("All done.")
    assert screen.wait_exit() == 5
    failed = next(e["data"]["result"] for e in paying.events("s") if e["type"] == "tool.failed")
    assert failed["content"][0]["text"] == "a person refused this call: Too much."


def test_arguments_can_be_edited(paying: Shell) -> None:
    screen = run_at_terminal(paying, "Pay.")
    screen.expect("with feedback > ")
    screen.send_line("a no json")
    screen.expect("expected a JSON object")
    screen.expect("with feedback > ")
    screen.send_line("a")
    screen.expect("Arguments as JSON > ")
    screen.send_line('{"amount": 7}')
    screen.expect("All done.")
    assert screen.wait_exit() == 0
    assert (paying.folder / "ledger").read_text() == "7\n"


def test_an_approval_for_the_session_is_prompted_once(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), call_line("pay", amount=6), say_line("Both."))
    screen = run_at_terminal(shell, "Pay twice.")
    screen.expect("with feedback > ")
    screen.send_line("s")
    screen.expect("Both.")
    assert screen.wait_exit() == 0
    assert (shell.folder / "ledger").read_text() == "5\n6\n"


def test_two_calls_at_once_are_asked_about_one_after_the_other(shell: Shell) -> None:
    both = {"tool_calls": [{"name": "pay", "arguments": {"amount": n}} for n in (5, 6)]}
    shell.write_script(both, say_line("Both."))
    screen = run_at_terminal(shell, "Pay twice.")
    for word in ("y", "n not that one"):
        screen.expect("with feedback > ")
        screen.send_line(word)
    screen.expect("Both.")
    screen.wait_exit()
    assert len((shell.folder / "ledger").read_text().splitlines()) == 1


def test_another_process_may_answer_first(paying: Shell) -> None:
    screen = run_at_terminal(paying, "Pay.")
    screen.expect("with feedback > ")
    id = paying.pending_decisions()[0]["id"]
    assert paying.vaka("approvals", "resolve", id, "--approve", "--by", "ann\x1b[2J").code == 0
    screen.expect("approved by ann\\u001b[2J: pay")
    screen.expect("All done.")
    assert screen.wait_exit() == 0


def test_a_resumed_turn_prompts_for_its_pending_approval(paying: Shell) -> None:
    paying.run("Pay.", "--session", "s", "--ask", "suspend")
    screen = run_at_terminal(paying, "--resume", "--session", "s")
    screen.expect("with feedback > ")
    screen.send_line("y")
    screen.expect("All done.")
    assert screen.wait_exit() == 0


def test_questions_are_answered_by_number_or_in_words(shell: Shell) -> None:
    shell.write_script(call_line("colour"), call_line("colour"), say_line("Nice."))
    screen = run_at_terminal(shell, "Ask.", "--session", "s")
    screen.expect("[2] blue")
    screen.expect("> ")
    screen.send_line("2")
    screen.expect("[1] red")
    screen.expect("> ")
    screen.send_line("green")
    screen.expect("Nice.")
    assert screen.wait_exit() == 0
    results = [e["data"]["result"] for e in shell.events("s") if e["type"] == "tool.completed"]
    assert [result["content"][0]["text"] for result in results] == ["colour blue", "colour green"]


def test_a_rejection_without_a_reason_ends_the_turn_and_a_new_prompt_continues(paying: Shell) -> None:
    screen = run_at_terminal(paying, "Pay.", "--session", "s")
    screen.expect("with feedback > ")
    screen.send_line("n")
    screen.expect("Enter for none, which ends the turn")
    screen.expect("> ")
    screen.send_line("")
    screen.expect("error: a person refused pay and said nothing more; send another prompt to continue")
    assert screen.wait_exit() == 5
    assert paying.event_types("s")[-1] == "turn.interrupted"
    done = paying.run("Then do not.", "--session", "s")
    assert (done.code, done.out) == (0, "All done.\n")
    assert not (paying.folder / "ledger").exists()


def test_the_end_of_input_is_a_rejection_without_a_reason(paying: Shell) -> None:
    screen = run_at_terminal(paying, "Pay.")
    screen.expect("with feedback > ")
    os.write(screen.master, b"\x04")
    screen.expect("Reason for the model")
    os.write(screen.master, b"\x04")
    screen.expect("said nothing more")
    assert screen.wait_exit() == 5


def test_ask_deny_prompts_for_nothing(paying: Shell) -> None:
    screen = run_at_terminal(paying, "Pay.", "--ask", "deny")
    screen.expect("no person can be asked here")
    screen.expect("All done.")
    assert screen.wait_exit() == 5


def test_ctrl_c_interrupts_a_waiting_turn(paying: Shell) -> None:
    screen = run_at_terminal(paying, "Pay.", "--session", "s")
    screen.expect("with feedback > ")
    screen.process.send_signal(2)
    assert screen.wait_exit() == 130
    assert paying.event_types("s")[-1] == "turn.interrupted"


def test_the_answer_appears_as_it_comes_and_only_once(shell: Shell) -> None:
    os.mkfifo(shell.folder / "pipe")
    shell.write_script(
        {"chunks": ["Let me ", "look."], "tool_calls": [{"name": "gate", "arguments": {"path": "pipe"}}]},
        {"chunks": ["There ", "it is."]},
    )
    screen = run_at_terminal(shell, "Look.")
    screen.expect("Let me look.")
    (shell.folder / "pipe").write_text("x")
    screen.expect("There it is.")
    assert screen.wait_exit() == 0
    assert screen.screen.count("There it is.") == 1


def test_colours_are_for_terminals_that_want_them(shell: Shell) -> None:
    shell.write_script(call_line("add", a=1, b=2), say_line("It is 3."))
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        screen = run_at_terminal(shell, "Add.", **env)
        screen.wait_exit()
        assert ("\x1b[" in screen.screen) is coloured


def test_a_run_shows_what_is_running_and_then_each_thing_once(shell: Shell) -> None:
    shell.write_file("boat.py", "def speed():\n    knots = 5\n    return knots\n")
    os.mkfifo(shell.folder / "go")
    shell.write_script(
        {"text": "I **look** first.", **call_line("Read", file_path="boat.py")},
        call_line("Edit", file_path="boat.py", old_string="knots = 5", new_string="knots = 8"),
        call_line("Bash", command="echo under sail; cat go"),
        say_line("# Faster\n\nIt is `8` now."),
    )
    flags = ("--model", "scripted:script.jsonl", "--permission-mode", "acceptEdits", "--allow", "Bash(*)")
    words = ("Make it faster.", "--session", "s", "--sandbox", "off", *flags)
    with ChatTerminal(shell, *words, command="run") as screen:
        screen.expect("  │ under sail")
        assert "○ Bash echo under sail; cat go" in screen.visible
        screen.expect("Ctrl-C interrupts")
        (shell.folder / "go").write_text("there\n")
        assert screen.wait_exit() == 0
        shown = screen.text.rstrip().split("\n")
    assert shown[0] == "I look first."
    for line in ("● Read boat.py", "  │    2 -     knots = 5", "  │    2 +     knots = 8", "  │ there", "It is 8 now."):
        assert shown.count(line) == 1, line
    assert not [line for line in shown if "interrupts" in line or "○" in line]
    assert "tokens · continue with: vaka run --session s" in shown[-1]


def test_without_the_library_for_colours_the_text_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_rich_renderer() is not None
    monkeypatch.delitem(sys.modules, "vaka.cli.display.rich_renderer")
    monkeypatch.setitem(sys.modules, "rich.cells", None)
    assert find_rich_renderer() is None


def test_model_output_cannot_control_the_terminal(shell: Shell) -> None:
    shell.write_script(say_line("red \x1b[31malert\x07"))
    screen = run_at_terminal(shell, "Hi.")
    screen.wait_exit()
    assert "\x1b[31m" not in screen.screen
    assert "\\u001b[31malert\\u0007" in screen.screen


def test_without_a_prompt_a_terminal_is_not_read(shell: Shell) -> None:
    shell.write_script(say_line("never"))
    screen = run_at_terminal(shell)
    screen.expect("error: no prompt; write one, or pipe it in")
    assert screen.wait_exit() == 2


def test_deleting_asks_first(shell: Shell) -> None:
    shell.write_script(say_line("Hello."))
    shell.run("Hi.", "--session", "s")
    screen = shell.terminal("sessions", "delete", "s")
    screen.expect("Delete session s for good?")
    screen.send_line("n")
    assert screen.wait_exit() == 130
    screen = shell.terminal("sessions", "delete", "s")
    screen.expect("Delete session s for good?")
    screen.send_line("y")
    screen.expect("deleted s")
    assert screen.wait_exit() == 0


def test_tables_are_cut_at_the_edge(shell: Shell) -> None:
    shell.write_script(say_line("Hello."))
    shell.run("word " * 30, "--session", "s")
    screen = shell.terminal("sessions", "list", COLUMNS="60")
    screen.wait_exit()
    assert max(map(len, screen.screen.splitlines())) <= 60
