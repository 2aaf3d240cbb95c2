"""An agent with the built-in tools works in a repository, from the command line, inside the sandbox."""

import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import CommandResult, Shell, call_line, say_line

BUG = "def add(a, b):\n    return a - b\n"
TEST = """import unittest
from calc import add

class Adding(unittest.TestCase):
    def test_two_numbers(self):
        self.assertEqual(add(2, 3), 5)
"""
RUN = "python3 -B -m unittest -q"
ALLOWED = ("--permission-mode", "acceptEdits", "--allow", f"Bash({RUN})")


@pytest.fixture
def repository(shell: Shell) -> Shell:
    """A repository with a bug that its test finds."""
    shell.folder /= "repository"
    shell.write_file("calc.py", BUG)
    shell.write_file("test_calc.py", TEST)
    shell.bash("git init -q . && git add . && git -c user.name=k -c user.email=k@example.org commit -qm first")
    return shell


def run_in_repository(shell: Shell, *words: str, **more: Any) -> CommandResult:
    return shell.vaka("run", *words, "--model", "scripted:../script.jsonl", "--session", "s", **more)


def write_answers(shell: Shell, *lines: dict[str, Any]) -> None:
    shell.write_file("../script.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def tool_results(shell: Shell) -> list[Any]:
    return [
        event["data"]["result"] for event in shell.events("s") if event["type"] in ("tool.completed", "tool.failed")
    ]


def text(result: Any) -> str:
    return "".join(part.get("text", part.get("preview", "")) for part in result["content"])


def test_an_agent_finds_a_bug_fixes_it_and_runs_the_tests(repository: Shell) -> None:
    write_answers(
        repository,
        call_line("Bash", command=RUN),
        call_line("Grep", pattern="def add", output_mode="content"),
        call_line("Read", file_path="calc.py"),
        call_line("Edit", file_path="calc.py", old_string="a - b", new_string="a + b"),
        call_line("Bash", command=RUN),
        call_line("Bash", command="git diff --stat"),
        say_line("add subtracted; it adds now, and the tests pass."),
    )
    done = run_in_repository(repository, "Make the tests pass.", *ALLOWED, "--sandbox", "on")
    assert (done.code, done.out) == (0, "add subtracted; it adds now, and the tests pass.\n")
    assert (repository.folder / "calc.py").read_text() == BUG.replace("-", "+")
    before, found, read, edited, after, difference = (text(result) for result in tool_results(repository))
    assert "AssertionError: -1 != 5" in before
    assert "calc.py:1:" in found
    assert "return a - b" in read
    assert "+    return a + b" in edited
    assert "OK" in after
    assert "calc.py | 2 +-" in difference
    types = repository.event_types("s")
    assert [types.count(kind) for kind in ("tool.called", "tool.started", "tool.returned")] == [6, 6, 0]
    assert repository.vaka("sessions", "verify", "s").code == 0


def test_git_sees_neither_mounts_of_protected_paths_nor_what_a_command_created_there(repository: Shell) -> None:
    repository.write_file("attack.sh", "echo x > vaka.toml || mkdir vaka.toml/x || rm -rf .mcp.json || mv .envrc other")
    commit = (
        "git add -A; git -c user.name=k -c user.email=k@example.org commit -qm more; git show --name-only --format="
    )
    removed = "until [ ! -e vaka.toml ]; do sleep 0.01; done"
    write_answers(
        repository,
        call_line("Bash", command=f"bash attack.sh 2> said; {removed}; git status --short; {commit}"),
        say_line("Done."),
    )
    assert (
        run_in_repository(repository, "Commit it.", "--permission-mode", "bypassPermissions", "--sandbox", "on").code
        == 0
    )
    output, note, *_ = text(tool_results(repository)[0]).split("\n[")
    assert output == "?? attack.sh\n?? said\nattack.sh\nsaid"
    assert note.startswith(f"{repository.folder}/vaka.toml appeared while the command ran and was moved to ")
    assert sorted(path.name for path in repository.folder.iterdir()) == [
        ".git",
        "attack.sh",
        "calc.py",
        "said",
        "test_calc.py",
    ]


def test_a_log_that_lies_in_the_workspace_can_neither_be_replaced_nor_given_a_journal(repository: Shell) -> None:
    store = ("--store", "sqlite:///kept/log.db")
    (repository.folder / "kept").mkdir()
    attack = (
        "echo x > kept/log.db-journal || mv kept other || mv kept/log.db-journal x || echo x > kept/log.db || ls kept"
    )
    write_answers(
        repository,
        call_line("Bash", command=f"({attack}) 2> /dev/null"),
        call_line("Write", file_path="kept/log.db-journal", content="x"),
        say_line("Done."),
    )
    assert (
        run_in_repository(repository, "Go.", "--permission-mode", "bypassPermissions", "--sandbox", "on", *store).code
        == 0
    )
    assert repository.vaka("sessions", "verify", "s", *store).code == 0
    lines = repository.vaka("sessions", "export", "s", *store).out
    assert "log.db-journal' is protected" in lines
    assert sorted(path.name for path in (repository.folder / "kept").glob("log.db*")) == ["log.db", "log.db-live"]


def test_a_rewind_restores_the_files_the_agent_changed(repository: Shell) -> None:
    edit = call_line("Edit", file_path="calc.py", old_string="a - b", new_string="a + b")
    write_answers(
        repository,
        call_line("Read", file_path="calc.py"),
        edit,
        call_line("Write", file_path="n/new.txt", content="x"),
        say_line("."),
    )
    assert run_in_repository(repository, "Mend it.", "--permission-mode", "acceptEdits").code == 0
    back = repository.vaka("sessions", "rewind", "s@1", "--files")
    assert (back.code, back.out) == (0, "restored calc.py\nremoved n/new.txt\n")
    assert (repository.folder / "calc.py").read_text() == BUG
    assert not (repository.folder / "n/new.txt").exists()


def test_files_that_must_not_be_read_are_not_found_either(repository: Shell) -> None:
    repository.write_file("secrets/key.txt", "canary")
    write_answers(
        repository, call_line("Grep", pattern="canary"), call_line("Glob", pattern="**/*.txt"), say_line("Nothing.")
    )
    assert run_in_repository(repository, "Look.", "--deny", "Read(secrets/**)").code == 0
    assert ["key.txt" in text(result) for result in tool_results(repository)] == [False, False]


def test_a_call_without_approval_is_refused_and_reported(repository: Shell) -> None:
    write_answers(
        repository,
        call_line("Bash", command="rm calc.py"),
        call_line("Write", file_path="n.txt", content="x"),
        say_line("No."),
    )
    done = run_in_repository(repository, "Remove it.")
    assert (done.code, (repository.folder / "calc.py").exists(), (repository.folder / "n.txt").exists()) == (
        5,
        True,
        False,
    )
    assert [result["reason"] for result in tool_results(repository)] == ["denied", "denied"]


def test_commands_cannot_leave_the_sandbox(repository: Shell, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/id").write_text("canary")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        attack = (
            "echo x > ../outside; echo x > ~/outside; echo x > .git/hooks/pre-commit; echo x > vaka.toml;"
            f"cat ~/.ssh/id; env; (exec 3<>/dev/tcp/127.0.0.1/{port}) && echo connected; cat ../data/vaka/vaka.db;"
            "echo x > inside; true"
        )
        repository.write_file("attack.sh", attack)  # rules cannot see its content
        write_answers(repository, call_line("Bash", command="bash attack.sh"), say_line("Tried."))
        words = ("--permission-mode", "bypassPermissions", "--sandbox", "on")
        done = run_in_repository(repository, "Try.", *words, OPENAI_API_KEY="sk-canary-1")
    assert done.code == 0
    shown = text(tool_results(repository)[0])
    assert "canary" not in shown
    assert "connected" not in shown
    assert "SQLite format" not in shown
    made = [
        tmp_path / "outside",
        tmp_path / "home/outside",
        *(repository.folder / p for p in (".git/hooks/pre-commit", "vaka.toml")),
    ]
    assert [path for path in made if path.exists()] == []
    assert (repository.folder / "inside").read_text() == "x\n"


def test_a_turn_killed_in_a_command_resumes_and_leaves_no_process(repository: Shell) -> None:
    write_answers(
        repository,
        call_line("Bash", command=f"{RUN} 2>&1; echo $$ > pid; mkfifo gate; cat gate"),
        say_line("It was cut off."),
    )
    run = repository.start_run(
        "Go.",
        "--session",
        "s",
        "--permission-mode",
        "bypassPermissions",
        model="scripted:../script.jsonl",
        agent="assistant",
    )
    run.read_until("tool.started")
    while not (repository.folder / "gate").exists() and run.process.poll() is None:
        continue
    run.send_signal(signal.SIGKILL)
    run.wait_result()
    again = run_in_repository(repository, "--resume", "--permission-mode", "bypassPermissions", "--ask", "deny")
    assert again.out == "It was cut off.\n"
    assert tool_results(repository)[0]["reason"] == "outcome_unknown"
