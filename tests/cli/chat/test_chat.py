"""Conversations with ``vaka chat``, as a person at a terminal has them."""

import os
from pathlib import Path

import pytest

from tests.cli.chat.chat_terminal import CTRL_C, CTRL_D, CTRL_O, ENTER, ESCAPE, SHIFT_TAB, ChatTerminal
from tests.cli.shell import Shell, call_line, say_line

MARKDOWN = "# Boats\n\nThere are **two** kinds:\n\n- canoes\n- ships\n\n```py\nx = 1\n```\n\nThat is all."


def open_chat(shell: Shell, *words: str, columns: int = 80, rows: int = 30, **env: str) -> ChatTerminal:
    chat = ChatTerminal(shell, "--model", "scripted:script.jsonl", *words, columns=columns, rows=rows, **env)
    return chat.expect_prompt("❯" if "LC_ALL" not in env else "\n>")


def open_gate(shell: Shell) -> None:
    """Let the tool ``gate`` return; waits until it reads the pipe."""
    with (shell.folder / "go").open("w") as pipe:
        pipe.write("open")


@pytest.fixture
def project(shell: Shell) -> Shell:
    """A project with a file that the model changes and a command that it runs."""
    shell.write_file("boat.py", "def speed():\n    knots = 5\n    return knots\n")
    shell.write_script(
        call_line("Read", file_path="boat.py"),
        call_line("Edit", file_path="boat.py", old_string="knots = 5", new_string="knots = 8"),
        say_line("It is faster now."),
    )
    return shell


def test_an_answer_is_shown_as_formatted_text(shell: Shell) -> None:
    pieces = [MARKDOWN[start : start + 7] for start in range(0, len(MARKDOWN), 7)]
    shell.write_script({"chunks": pieces})
    with open_chat(shell, "--session", "s", columns=60, rows=20) as chat:
        chat.say("Tell me about boats.")
        chat.expect("That is all.")
        chat.send(CTRL_D)
        assert chat.wait_exit() == 0
        shown = chat.text
    expected = [
        "❯ Tell me about boats.",
        "",
        "Boats",
        "",
        "There are two kinds:",
        "",
        " • canoes",
        " • ships",
        "",
        "  x = 1",
        "",
        "That is all.",
        "",
    ]
    assert "\n".join(expected) in shown
    assert "continue with: vaka chat --session s" in shown


def test_a_change_is_shown_as_a_diff_and_made_after_the_approval(project: Shell) -> None:
    with open_chat(project) as chat:
        chat.say("Make it faster.")
        chat.expect("Approve Edit?")
        chat.expect("-    knots = 5")
        chat.expect("     return knots")
        chat.send("y")
        chat.expect("It is faster now.")
        chat.expect("● Edit boat.py\n  │    1   def speed():\n  │    2 -     knots = 5\n  │    2 +     knots = 8")
        chat.expect("Approve", gone=True)
    assert "knots = 8" in (project.folder / "boat.py").read_text()


def test_undo_takes_back_the_turn_and_the_file(project: Shell) -> None:
    with open_chat(project, "--permission-mode", "acceptEdits") as chat:
        chat.say("Make it faster.")
        chat.expect("It is faster now.")
        chat.say("/undo")
        chat.expect("taken back")
    assert "knots = 5" in (project.folder / "boat.py").read_text()


def test_three_approvals_at_once_are_a_list_answered_one_by_one_or_together(shell: Shell) -> None:
    calls = [{"name": "pay", "arguments": {"amount": amount}} for amount in (1, 2, 3)]
    shell.write_script({"tool_calls": calls}, say_line("All done."))
    editor = shell.write_file("editor", "#!/bin/sh\necho '{\"amount\": 7}' > $1\n")
    editor.chmod(0o755)
    with open_chat(shell, "--agent", "agent.py", EDITOR=str(editor)) as chat:
        chat.say("Pay.")
        chat.expect("3 approvals are open:")
        chat.expect("> 1. pay amount: 1\n  2. pay amount: 2\n  3. pay amount: 3")
        chat.send("a")
        chat.expect("2 approvals are open:")
        chat.send("*")
        chat.expect("All 2:")
        chat.send("n")
        chat.expect("Reason")
        chat.say("too much")
        chat.expect("All done.")
        assert chat.text.count("refused by kim: pay") == 2
    assert (shell.folder / "ledger").read_text() == "7\n"


def test_an_approval_that_is_given_elsewhere_disappears(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=3), say_line("Paid."))
    with open_chat(shell, "--agent", "agent.py") as chat:
        chat.say("Pay.")
        chat.expect("Approve pay?")
        (row,) = shell.pending_decisions()
        assert shell.vaka("approvals", "resolve", row["id"], "--approve").code == 0
        chat.expect("Paid.")
        chat.expect("Approve", gone=True)


def test_escape_interrupts_the_turn_and_the_conversation_goes_on(shell: Shell) -> None:
    shell.write_script(call_line("hang"), say_line("Here I am."))
    with open_chat(shell, "--agent", "agent.py", "--allow", "hang") as chat:
        chat.say("Wait for long.")
        chat.expect("○ hang")
        chat.send(ESCAPE)
        chat.expect("interrupted")
        chat.say("Hello?")
        chat.expect("Here I am.")


def test_an_input_joins_the_running_turn(shell: Shell) -> None:
    os.mkfifo(shell.folder / "go")
    shell.write_script(call_line("gate", path="go"), {"text": "Seen.", "expect": {"last_user_contains": "And hurry"}})
    with open_chat(shell, "--agent", "agent.py", "--allow", "gate") as chat:
        chat.say("Wait for it.")
        chat.expect("○ gate")
        chat.say("And hurry.")
        chat.expect("❯ And hurry.\n\n")  # in the scroll-back, not in the input
        open_gate(shell)
        chat.expect("Seen.")


def test_two_terminals_show_the_same_session(shell: Shell) -> None:
    shell.write_script(say_line("The first answer."), say_line("The second answer."))
    with open_chat(shell, "--session", "s") as first:
        first.say("One.")
        first.expect("The first answer.")
        with open_chat(shell, "--session", "s") as second:
            second.expect("The first answer.")
            second.say("Two.")
            second.expect("The second answer.")
            first.expect("❯ Two.")
            first.expect("The second answer.")


def test_a_killed_chat_goes_on_where_it_was(shell: Shell) -> None:
    os.mkfifo(shell.folder / "go")
    shell.write_script(call_line("gate", path="go"), say_line("It is done."))
    with open_chat(shell, "--agent", "agent.py", "--allow", "gate", "--session", "s") as chat:
        chat.say("Wait for it.")
        chat.expect("○ gate")
        chat.kill()
    with open_chat(shell, "--agent", "agent.py", "--allow", "gate", "--session", "s") as chat:
        chat.expect("unfinished work")
        assert "❯ Wait for it." in chat.text
        chat.say("/resume")
        open_gate(shell)
        chat.expect("It is done.")


def test_text_of_the_model_cannot_control_the_terminal(shell: Shell) -> None:
    shell.write_script(say_line("red \x1b[31m title \x1b]0;owned\x07 back \x1b[2J and \u202eevil"))
    with open_chat(shell) as chat:
        chat.say("Go.")
        chat.expect("\\u202eevil")
        assert "❯ Go." in chat.text
        assert chat.screen.title != "owned"


def test_the_permission_mode_is_changed_by_a_key_and_shown(project: Shell) -> None:
    with open_chat(project) as chat:
        assert "acceptEdits" not in chat.visible
        chat.send(SHIFT_TAB)
        chat.expect(" acceptEdits ")
        chat.say("Make it faster.")
        chat.expect("It is faster now.")


def test_a_long_result_is_shown_in_part_and_whole_on_request(shell: Shell) -> None:
    shell.write_file("long.txt", "".join(f"line {number}\n" for number in range(1, 31)))
    shell.write_script(call_line("Read", file_path="long.txt"), say_line("Read."))
    with open_chat(shell, rows=50) as chat:
        chat.say("Read it.")
        chat.expect("more lines")
        chat.expect("Read.")
        assert "line 30" not in chat.text
        chat.send(CTRL_O)
        chat.expect("line 30")


@pytest.mark.parametrize(("columns", "rows"), [(20, 10), (60, 24), (160, 40)])
def test_terminals_of_any_width_show_the_whole_answer(shell: Shell, columns: int, rows: int) -> None:
    words = [f"word{number}" for number in range(40)]
    shell.write_script(say_line(" ".join(words)))
    with open_chat(shell, columns=columns, rows=rows) as chat:
        chat.say("Go.")
        chat.expect("word39")
        lines = chat.text.split("\n")
        assert max(map(len, lines)) <= columns
        assert [word for line in lines for word in line.split() if word.startswith("word")] == words


def test_a_terminal_without_unicode_and_colour_gets_plain_text(shell: Shell) -> None:
    shell.write_script(call_line("Read", file_path="agent.py"), say_line("**Fine.**"))
    with open_chat(shell, LANG="C", LC_ALL="C", NO_COLOR="1") as chat:
        chat.say("Go.")
        chat.expect("Fine.")
        assert chat.text.isascii()
        assert "* Read agent.py" in chat.text


def test_slash_commands_are_listed_and_an_unknown_one_suggests_another(shell: Shell) -> None:
    shell.write_script({"text": "Hello.", "usage": {"input": 1200, "output": 34}})
    with open_chat(shell, rows=60) as chat:
        chat.say("/help")
        chat.expect("/permissions")
        chat.send("/usge ")
        chat.send(ENTER)
        chat.expect("did you mean /usage?")
        chat.say("Hi.")
        chat.expect("Hello.")
        chat.say("/usage")
        chat.expect("1 calls, 1.2k tokens in, 34 out")
        chat.say("/context")
        chat.expect("prompts")
        chat.say("/export talk.md")
        chat.expect("written to")
    assert "Hello." in (shell.folder / "talk.md").read_text()


def test_files_that_are_named_with_an_at_sign_are_attached(shell: Shell) -> None:
    shell.write_file("notes.txt", "The password is swordfish.")
    shell.write_script({"text": "Read it.", "expect": {"last_user_contains": "swordfish"}})
    with open_chat(shell) as chat:
        chat.say("What is in @notes.txt")
        chat.expect("Read it.")


def test_control_c_clears_the_input_then_leaves(shell: Shell) -> None:
    shell.write_script(say_line("Unused."))
    with open_chat(shell) as chat:
        chat.send("half a thought")
        chat.expect("half a thought")
        chat.send(CTRL_C)
        chat.expect("half a thought", gone=True)
        chat.send(CTRL_C)
        assert chat.wait_exit() == 0


def test_without_a_terminal_there_is_an_error_that_names_the_other_command(shell: Shell) -> None:
    result = shell.vaka("chat", "--model", "scripted:script.jsonl")
    assert result.code == 2
    assert "vaka run" in result.err


def test_a_session_is_chosen_from_a_list_and_the_inputs_of_its_project_are_remembered(
    shell: Shell, tmp_path: Path
) -> None:
    shell.write_script(say_line("One."), say_line("Two."))
    with open_chat(shell) as chat:
        chat.say("A first question.")
        chat.expect("One.")
    with open_chat(shell, "--resume") as chat:
        chat.expect("❯ A first question.")
        chat.send(ENTER)
        chat.expect("\n\nOne.")
        chat.send("\x1b[A")
        chat.expect("\n❯ A first question.\n")
    (file,) = (tmp_path / "data" / "vaka" / "history").iterdir()
    assert file.stat().st_mode & 0o077 == 0


def test_a_plain_chat_prints_lines_and_never_draws_them_again(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=3), say_line("**Paid.**"))
    words = ("--model", "scripted:script.jsonl", "--agent", "agent.py", "--builtin-tools", "Bash", "--plain")
    with ChatTerminal(shell, *words) as chat:
        chat.expect("/help")
        chat.send("Pay \\\nthree.\n")
        chat.expect("Approve pay?")
        chat.send("y\n")
        chat.expect("ready")
        chat.send("!echo aye\n")
        chat.expect("│ aye")
        assert "❯" not in chat.text
        chat.send("/sessions\n")
        chat.expect("1. Pay three.")
        chat.send("1\n")
        chat.expect("❯ Pay\n  three.")
        chat.send(CTRL_C)
        assert chat.wait_exit() == 0
        assert "\nPaid.\n" in chat.text
        assert "○ pay" in chat.text
        assert b"\x1b" not in chat.written


def test_a_terminal_that_cannot_move_its_cursor_gets_lines_only(shell: Shell) -> None:
    shell.write_script(say_line("**Fine.**"))
    with ChatTerminal(shell, "--model", "scripted:script.jsonl", TERM="dumb") as chat:
        chat.expect("/help")
        chat.send("Go.\n")
        chat.expect("\nFine.\n")
        chat.expect("ready")
        assert b"\x1b" not in chat.written


def test_an_agent_of_a_definition_answers_and_follows_changes_of_its_files(shell: Shell) -> None:
    script = 'function on_input(ctx, input)\n    ctx.emit({text = "one " .. input.text, eof = true})\nend\n'
    shell.write_script(say_line("A script needs no model."))
    shell.write_file("agents/echo.yaml", "lua_file: scripts/echo.luau\n")
    shell.write_file("scripts/echo.luau", script)
    with ChatTerminal(shell, "--agent", "ecko") as chat:
        chat.expect("there is no agent 'ecko'; did you mean echo?")
        assert chat.wait_exit() == 3
    with open_chat(shell, "--agent", "echo") as chat:
        chat.say("boat")
        chat.expect("one boat")
        shell.write_file("scripts/echo.luau", script.replace("one", "two"))
        chat.say("ship")
        chat.expect("two ship")
        shell.write_file("scripts/echo.luau", "function")
        chat.say("raft")
        chat.expect("two raft")
        assert "the agents stay as they were, since a change of their files cannot be used" in " ".join(
            chat.text.split()
        )
