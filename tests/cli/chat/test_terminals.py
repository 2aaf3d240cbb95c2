"""Terminals that go away, stop the chat, change their size, or get keys before the chat is ready."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.chat.chat_terminal import ChatTerminal
from tests.cli.shell import TIMEOUT, Shell, call_line, say_line

WORDS = ("--model", "scripted:script.jsonl", "--agent", "agent.py", "--allow", "gate", "--session", "s")


def open_gate(shell: Shell) -> None:
    with (shell.folder / "go").open("w") as pipe:
        pipe.write("open")


def test_keys_that_are_typed_before_the_chat_is_ready_are_its_first_input(shell: Shell) -> None:
    shell.write_script(say_line("The answer."))
    with ChatTerminal(shell, *WORDS) as chat:
        chat.send("An early question.\r")
        chat.expect("The answer.")
        assert "❯ An early question." in chat.text


def test_a_closed_terminal_interrupts_the_turn_of_a_chat_which_another_one_continues(shell: Shell) -> None:
    shell.write_script(call_line("hang"), say_line("It is done."))
    with ChatTerminal(shell, *WORDS, "--allow", "hang").expect_prompt("❯") as chat:
        chat.say("Wait for it.")
        chat.expect("○ hang")
        chat.close()
        assert chat.process.wait(TIMEOUT) == 129
    assert shell.event_types("s")[-2:] == ["tool.failed", "turn.interrupted"]
    with ChatTerminal(shell, *WORDS).expect_prompt("❯") as chat:
        chat.say("Go on.")
        chat.expect("It is done.")


def test_a_closed_terminal_ends_a_chat_that_waits_for_a_prompt(shell: Shell) -> None:
    shell.write_script(say_line("Hello."))
    with ChatTerminal(shell, *WORDS).expect_prompt("❯") as chat:
        chat.say("Hello?")
        chat.expect("Hello.")
        chat.close()
        assert chat.process.wait(TIMEOUT) == 129
    assert shell.event_types("s")[-1] == "turn.completed"


def test_a_hang_up_restores_a_terminal_that_stays_open(shell: Shell) -> None:
    shell.write_script(call_line("hang"))
    with ChatTerminal(shell, *WORDS, "--allow", "hang").expect_prompt("❯") as chat:
        chat.say("Wait.")
        chat.expect("○ hang")
        chat.process.send_signal(signal.SIGHUP)
        assert chat.wait_exit() == 129
        assert b"\x1b[?2004l" in chat.written  # pastes are marked no more
    assert shell.event_types("s")[-2:] == ["tool.failed", "turn.interrupted"]


def test_a_closed_terminal_ends_a_run_and_the_command_that_it_runs(shell: Shell) -> None:
    os.mkfifo(shell.folder / "pipe")
    script = "echo started; exec sleep 600 > pipe"
    shell.write_script(call_line("Bash", command=script))
    words = ("Go.", "--model", "scripted:script.jsonl", "--allow", "Bash", "--session", "s")
    with ChatTerminal(shell, *words, command="run") as run:
        run.expect("Bash")
        with (shell.folder / "pipe").open() as pipe:  # opens when the command writes to it
            run.close()
            assert run.process.wait(TIMEOUT) == 129
            assert pipe.read() == ""  # ends when the command has ended
    assert shell.event_types("s")[-2:] == ["tool.failed", "turn.interrupted"]


def test_nohup_keeps_a_run_whose_terminal_is_closed(shell: Shell) -> None:
    os.mkfifo(shell.folder / "go")
    shell.write_script(call_line("gate", path="go"), say_line("It is done."))
    with ChatTerminal(shell, "Go.", *WORDS, command="run", before=["nohup"]) as run:
        run.expect("nohup")
        with (shell.folder / "go").open("w") as pipe:  # opens when the tool reads it
            run.close()
            pipe.write("open")
        assert run.process.wait(TIMEOUT) == 0
    assert "It is done." in (shell.folder / "nohup.out").read_text().splitlines()


def test_a_chat_that_ignores_the_hang_up_ends_with_its_terminal(shell: Shell) -> None:
    shell.write_script(call_line("hang"))
    before = ["env", "--ignore-signal=HUP"]
    with ChatTerminal(shell, *WORDS, "--allow", "hang", before=before).expect_prompt("❯") as chat:
        chat.say("Wait.")
        chat.expect("○ hang")
        chat.close()
        chat.process.wait(TIMEOUT)
    assert "turn.interrupted" in shell.event_types("s")


def test_a_suspended_chat_goes_on_in_the_foreground(shell: Shell) -> None:
    os.mkfifo(shell.folder / "go")
    shell.write_script(call_line("gate", path="go"), say_line("It is done."))
    program = ["bash", "--norc", "--noprofile", "-i"]
    with ChatTerminal(shell, program=program) as terminal:
        terminal.send(f"{sys.executable} -m vaka chat {' '.join(WORDS)}\r")
        terminal.expect("❯")
        terminal.say("Wait for it.")
        terminal.expect("○ gate")
        terminal.send("\x1a")
        terminal.expect("Stopped")
        terminal.say("echo the shell is here")
        terminal.expect("\nthe shell is here")
        terminal.say("fg")
        terminal.expect("○ gate")
        (child,) = Path(f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTSTP)
        terminal.expect("[1]+  Stopped", times=2)
        terminal.say("fg")
        terminal.expect("Esc interrupts")
        open_gate(shell)
        terminal.expect("It is done.")
        terminal.say("/exit")
        terminal.expect("continue with")
        terminal.say("stty -a | grep -o ' echo '")
        terminal.expect("\n echo")


def test_a_storm_of_new_sizes_while_an_answer_streams_loses_nothing(shell: Shell) -> None:
    words = [f"word{number}" for number in range(300)]
    shell.write_script({"chunks": [f"{word} " for word in words]})
    with ChatTerminal(shell, *WORDS).expect_prompt("❯") as chat:
        chat.say("Go.")
        for number in range(60):
            chat.resize(40 + number % 50, 20 + number % 7)
        chat.resize(60, 24)
        chat.expect("word299")
        chat.expect("Esc interrupts", gone=True)
        chat.say("/exit")
        assert chat.wait_exit() == 0


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_chat_in_a_detached_tmux_goes_on_and_keeps_its_place_when_the_window_shrinks(shell: Shell) -> None:
    shell.write_script(say_line("The first answer."), say_line("The second answer."))
    chat = f"{sys.executable} -m vaka chat {' '.join(WORDS)}"
    tmux = ["tmux", "-L", shell.folder.name, "-f", "/dev/null"]
    start = [*tmux, "new-session", "-x", "100", "-y", "20", chat]
    with ChatTerminal(shell, program=start, columns=100, rows=20) as terminal:
        try:
            terminal.expect("❯")
            terminal.say("One.")
            terminal.expect("The first answer.")
            terminal.send("\x02d")
            terminal.expect("detached")
            shell.bash(f"{' '.join(tmux)} send-keys 'Two.' Enter")
            while "The second answer." not in shell.bash(f"{' '.join(tmux)} capture-pane -p").out:
                pass
            with ChatTerminal(shell, program=[*tmux, "attach"], columns=50, rows=20) as again:
                again.expect("The second answer.")
                again.expect(rule := "─" * 50)
                again.expect(f"{rule}\n{rule}", gone=True)  # tmux has wrapped the rule until it is drawn again
                assert again.visible.count(rule) == 1
        finally:
            shell.bash(f"{' '.join(tmux)} kill-server")
