"""Approvals across killed processes: requested in one, answered in another, run in a third, exactly once."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.cli.shell import RunningCommand, Shell, call_line, say_line
from tests.unmeasured import without_coverage
from vaka.config.options import Workspace
from vaka.core.types.errors import Suspended
from vaka.project.claude_writer import add_allow_rules
from vaka.runtime.options import Environment
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel
from vaka.testing.models import call as call_of
from vaka.testing.models import say as say_of

MODEL = ("--model", "scripted:script.jsonl")
COMMAND = "echo paid >> ledger"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write_script(call_line("Bash", command=COMMAND), call_line("Bash", command=COMMAND), say_line("Done."))
    return shell


def ask_and_die(shell: Shell) -> str:
    """Kill a process that waits for an approval; return the approval's id."""
    command = [sys.executable, "-m", "vaka", "run", "Pay.", "--session", "s", "--ask", "wait", *MODEL]
    command += ["--output", "stream-json"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=shell.folder, env=without_coverage(shell.env), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    running = RunningCommand(process)
    approval: str = running.read_until("approval.requested")["data"]["approval"]
    running.send_signal(signal.SIGKILL)
    running.wait_result()
    assert process.returncode == -signal.SIGKILL
    return approval


def answer_approval(shell: Shell, approval: str, *options: str) -> None:
    done = shell.vaka("approvals", "resolve", approval, *options)
    assert done.code == 0, done.err


def resume_session(shell: Shell, *words: str) -> Any:
    return shell.vaka("run", "--session", "s", "--resume", "--ask", "suspend", *MODEL, *words)


def count_payments(shell: Shell) -> int:
    ledger = shell.folder / "ledger"
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


def test_an_approval_after_a_kill_runs_the_call_exactly_once(shell: Shell) -> None:
    answer_approval(shell, ask_and_die(shell), "--approve")
    assert resume_session(shell).code == 5, "the second call needs another approval"
    assert count_payments(shell) == 1
    [second] = shell.pending_decisions()
    answer_approval(shell, second["id"], "--reject", "--message", "Once is enough.")
    assert resume_session(shell).out == "Done.\n"
    assert count_payments(shell) == 1
    assert shell.vaka("sessions", "verify", "s").code == 0


def test_an_approval_for_the_session_outlives_both_processes(shell: Shell) -> None:
    answer_approval(shell, ask_and_die(shell), "--approve", "--scope", "session")
    assert resume_session(shell).out == "Done.\n"
    assert count_payments(shell) == 2
    assert shell.event_types("s").count("approval.requested") == 1


def test_an_approval_for_the_project_counts_in_other_sessions(shell: Shell) -> None:
    answer_approval(shell, ask_and_die(shell), "--approve", "--scope", "project")
    assert resume_session(shell).out == "Done.\n"
    assert shell.vaka("run", "Pay.", *MODEL, "--trust").out == "Done.\n"
    assert count_payments(shell) == 4


def test_tightened_settings_ask_again(shell: Shell) -> None:
    first = ask_and_die(shell)
    answer_approval(shell, first, "--approve", "--scope", "session")
    shell.write_file("home/.claude/settings.json", '{"permissions": {"ask": ["Bash(echo:*)"]}}')
    assert resume_session(shell).code == 5
    assert count_payments(shell) == 0
    [again] = shell.pending_decisions()
    assert again["id"] != first
    assert again["rule"] == "Bash(echo:*)"
    answer_approval(shell, again["id"], "--approve", "--scope", "session")
    assert resume_session(shell).out == "Done.\n"
    assert count_payments(shell) == 2


def test_settings_that_deny_the_call_override_an_approval(shell: Shell) -> None:
    answer_approval(shell, ask_and_die(shell), "--approve", "--scope", "user")
    done = resume_session(shell, "--deny", "Bash(echo:*)")
    assert (done.code, done.out) == (5, "Done.\n")
    assert count_payments(shell) == 0


async def test_an_expired_approval_is_refused_in_every_process(shell: Shell) -> None:
    """The approval was requested by a clock of long ago."""
    store = f"sqlite:///{shell.folder}/old.db"
    model = ScriptedModel(call_of("Bash", command=COMMAND), say_of("Done."))
    worker = vaka.Agent("assistant", model=model, tools=["Bash"])
    async with vaka.Runtime(
        store=store,
        permissions=vaka.Permissions(ask="suspend"),
        environment=Environment(clock=FakeClock()),
        workspace=Workspace(cwd=str(shell.folder)),
    ) as runtime:
        with pytest.raises(Suspended) as caught:
            await (await runtime.open(worker, id="s")).run("Pay.")
    [approval] = caught.value.decisions
    for scope in ("once", "project"):
        late = shell.vaka("approvals", "resolve", approval, "--approve", "--scope", scope, "--store", store)
        assert late.code == 2
        assert "without a decision, so it is rejected" in late.err
    shell.write_script(say_line("-"), say_line("Done."))
    assert resume_session(shell, "--store", store).code == 5
    [row] = shell.vaka("approvals", "list", "--all", "--json", "--store", store).json["decisions"]
    assert row["status"] == "expired"
    assert count_payments(shell) == 0


REMEMBER_PROGRAM = """
import sys
from pathlib import Path
from vaka.project.claude_writer import add_allow_rules
for number in range(100_000):
    add_allow_rules(Path(sys.argv[1]), [f"Bash(make {sys.argv[2]} {number})"])
    print(number, flush=True)
"""


def test_settings_stay_valid_when_their_writers_are_killed(tmp_path: Path) -> None:
    path = tmp_path / ".claude/settings.local.json"
    add_allow_rules(path, ["Bash(first)"])
    keepers = [
        subprocess.Popen([sys.executable, "-c", REMEMBER_PROGRAM, str(path), name], stdout=subprocess.PIPE)
        for name in "ab"
    ]
    kept = ["Bash(first)"]
    for name, keeper in zip("ab", keepers, strict=True):
        assert keeper.stdout is not None
        kept += [f"Bash(make {name} {int(keeper.stdout.readline())})" for _ in range(20)]
        keeper.kill()
        rest, _ = keeper.communicate()
        assert keeper.returncode == -signal.SIGKILL
        kept += [f"Bash(make {name} {int(line)})" for line in rest.splitlines()]
    allowed = json.loads(path.read_text())["permissions"]["allow"]
    assert set(kept) <= set(allowed)
    add_allow_rules(path, ["Bash(last)"])
    assert json.loads(path.read_text())["permissions"]["allow"] == [*allowed, "Bash(last)"]
