"""Sessions that outlive processes: resumed, killed, suspended, shared, interrupted."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.shell import TIMEOUT, RunningCommand, Shell, call_line, say_line


def make_gate(shell: Shell, name: str = "pipe") -> Path:
    """Make a pipe that a tool can block on."""
    pipe = shell.folder / name
    os.mkfifo(pipe)
    return pipe


def test_a_session_continues_in_another_process(shell: Shell) -> None:
    shell.write_script(say_line("First."), {**say_line("Second."), "expect": {"messages_at_least": 3}})
    assert shell.run("One.", "--session", "s").out == "First.\n"
    second = shell.run("Two.", "--session", "s", "--output", "stream-json")
    assert (second.lines[-1]["text"], second.lines[0]["resumed"], second.lines[0]["cursor"]) == ("Second.", True, "1.8")


def test_the_last_session_can_be_continued_without_naming_it(shell: Shell) -> None:
    shell.write_script(say_line("First."), say_line("Second."))
    shell.run("One.", "--session", "s")
    done = shell.run("Two.", "-c", "--output", "json")
    assert (done.json["text"], done.json["session_id"]) == ("Second.", "s")


def test_resume_with_nothing_unfinished_prints_the_last_result(shell: Shell) -> None:
    shell.write_script(call_line("add", a=1, b=2), say_line("It is 3."))
    shell.run("Add.", "--session", "s")
    for model in ("scripted:script.jsonl", "scripted:gone.jsonl"):
        done = shell.run("--session", "s", "--resume", "--output", "json", model=model)
        assert (done.code, done.json["text"], done.json["steps"]) == (0, "It is 3.", 2)
    assert shell.run("--session", "s", "--resume", "--output", "stream-json").lines[-1]["type"] == "result"
    assert shell.run("--session", "missing", "--resume").code == 2


def test_the_last_result_is_that_of_the_current_branch(shell: Shell) -> None:
    shell.write_script(say_line("First."), say_line("Second."))
    shell.run("One.", "--session", "s")
    head = str(len(shell.events("s")))
    shell.run("Two.", "--session", "s")
    shell.vaka("sessions", "rewind", "s", head)
    assert shell.run("--session", "s", "--resume").out == "First.\n"


def test_a_killed_run_is_resumed_and_reads_are_made_again(shell: Shell) -> None:
    pipe = make_gate(shell)
    shell.write_script(call_line("gate", path="pipe"), say_line("Through."))
    running = shell.start_run("Go.", "--session", "s")
    running.read_until("tool.started")
    running.send_signal(signal.SIGKILL)
    assert running.process.wait(TIMEOUT) == -signal.SIGKILL
    running.wait_result()
    listed = shell.vaka("sessions", "list", "--status", "running", "--json").json["sessions"]
    assert [row["id"] for row in listed] == ["s"]
    resumed = shell.start_run("--resume", "--session", "s")
    resumed.read_until("tool.started")
    pipe.write_text("open")
    done = resumed.wait_result()
    assert (done.code, done.lines[-1]["text"]) == (0, "Through.")
    types = Counter(shell.event_types("s"))
    assert (types["tool.called"], types["tool.started"], types["tool.completed"], types["turn.resumed"]) == (1, 2, 1, 1)


def test_a_message_added_after_a_crash_is_busy_until_the_turn_is_finished(shell: Shell) -> None:
    pipe = make_gate(shell)
    shell.write_script(call_line("gate", path="pipe"), say_line("Through."))
    running = shell.start_run("Go.", "--session", "s")
    running.read_until("tool.started")
    running.send_signal(signal.SIGKILL)
    running.wait_result()
    before = shell.events("s")
    refused = shell.vaka("sessions", "add", "s", "Are you there?", "--id", "u1")
    assert refused.code == 75
    assert "vaka run --session s --resume" in refused.err
    assert shell.events("s") == before
    resumed = shell.start_run("--resume", "--session", "s")
    resumed.read_until("tool.started")
    pipe.write_text("open")
    assert resumed.wait_result().code == 0
    assert shell.vaka("sessions", "add", "s", "Are you there?", "--id", "u1").out == "u1\n"


def test_a_new_prompt_finishes_the_unfinished_turn_first(shell: Shell) -> None:
    pipe = make_gate(shell)
    shell.write_script(call_line("gate", path="pipe"), say_line("Through."), say_line("And on."))
    running = shell.start_run("Go.", "--session", "s")
    running.read_until("tool.started")
    running.send_signal(signal.SIGKILL)
    running.wait_result()
    second = shell.start_run("More.", "--session", "s")
    with pipe.open("w") as opened:
        opened.write("open")
    done = second.wait_result()
    assert (done.code, done.lines[-1]["text"]) == (0, "And on.")
    answers = [e["data"]["text"] for e in shell.events("s") if e["type"] == "turn.completed"]
    assert answers == ["Through.", "And on."]


def test_an_approval_is_left_in_one_process_decided_in_another_and_acted_on_in_a_third(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), say_line("Paid."))
    first = shell.run("Pay.", "--session", "s", "--ask", "suspend", "--output", "json")
    decision = first.json["decisions"][0]
    assert (first.code, first.json["status"], decision["tool"], decision["arguments"]) == (
        5,
        "suspended",
        "pay",
        {"amount": 5},
    )
    assert f"vaka approvals resolve {decision['id']} --approve|--reject" in first.err
    assert shell.run("--session", "s", "--resume", "--ask", "suspend").code == 5
    assert shell.vaka("approvals", "resolve", decision["id"], "--approve").code == 0
    third = shell.run("--session", "s", "--resume")
    assert (third.code, third.out) == (0, "Paid.\n")
    assert (shell.folder / "ledger").read_text() == "5\n"


def test_a_rejection_reaches_the_model(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), say_line("Then not."))
    id = shell.run("Pay.", "--session", "s", "--ask", "suspend", "--output", "json").json["decisions"][0]["id"]
    assert shell.vaka("approvals", "resolve", id, "--reject", "--message", "Too much.").code == 0
    done = shell.run("--session", "s", "--resume", "--output", "json")
    assert (done.code, done.json["denials"][0]["message"]) == (5, "a person refused this call: Too much.")


def test_a_rejection_without_a_reason_ends_the_turn_and_a_new_prompt_continues(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), say_line("Then not."))
    id = shell.run("Pay.", "--session", "s", "--ask", "suspend", "--output", "json").json["decisions"][0]["id"]
    assert shell.vaka("approvals", "resolve", id, "--reject").code == 0
    for _ in range(2):  # the second has nothing left to do, and prints the same
        done = shell.run("--session", "s", "--resume", "--output", "json")
        facts = {name: done.json[name] for name in ("status", "exit_code", "stop", "error")}
        assert facts == {
            "status": "denied",
            "exit_code": 5,
            "stop": "interrupted",
            "error": {"code": "rejected", "message": "a person refused pay and said nothing more"},
        }
        assert done.code == 5
    after = shell.run("Leave it.", "--session", "s")
    assert (after.code, after.out) == (0, "Then not.\n")
    assert not (shell.folder / "ledger").exists()


@pytest.mark.parametrize("output", ["json", "stream-json", "text"])
def test_a_rejected_turn_has_no_structured_output(shell: Shell, output: str) -> None:
    """The missing output is not reported as an error of the model."""
    (shell.folder / "data.json").write_text('{"type": "object"}')
    shell.write_script({"text": "I will pay.", **call_line("pay", amount=5)}, say_line("never"))
    words = ("--session", "s", "--ask", "suspend", "--output-schema", "data.json", "--output")
    id = shell.run("Pay.", *words, "json").json["decisions"][0]["id"]
    assert shell.vaka("approvals", "resolve", id, "--reject").code == 0
    done = shell.run("--resume", *words, output)
    assert (done.code, "a person refused pay and said nothing more" in done.err) == (5, True), done.err
    if output != "text":
        result = json.loads(done.out.splitlines()[-1])
        assert (result["status"], result["exit_code"], result["error"]["code"]) == ("denied", 5, "rejected")


def test_waiting_without_a_terminal_is_ended_by_another_process(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), call_line("colour"), say_line("Done."))
    running = shell.start_run("Pay.", "--session", "s", "--ask", "wait")
    approval = running.read_until("approval.requested")["data"]["approval"]
    assert shell.vaka("approvals", "resolve", approval, "--approve", "--edit", '{"amount": 7}').code == 0
    question = running.read_until("question.asked")["data"]["question"]
    assert [d["kind"] for d in shell.pending_decisions()] == ["question"]
    assert shell.vaka("approvals", "answer", question, "blue").code == 0
    done = running.wait_result()
    assert done.code == 0
    assert f"waiting: {approval} pay" in done.err
    assert (shell.folder / "ledger").read_text() == "7\n"
    results = [e["data"]["result"]["content"][0]["text"] for e in done.lines if e["type"] == "tool.completed"]
    assert results == ["paid 7", "colour blue"]


def test_the_first_decision_counts_and_is_named(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), say_line("Paid."))
    id = shell.run("Pay.", "--session", "s", "--ask", "suspend", "--output", "json").json["decisions"][0]["id"]
    assert shell.vaka("approvals", "resolve", id, "--approve", "--by", "ann").code == 0
    late = shell.vaka("approvals", "resolve", id, "--reject", "--by", "bob")
    assert (late.code, late.err.split(" at ")[0]) == (1, "error: already approved by ann")
    assert shell.vaka("approvals", "answer", id, "x").code == 1


def test_the_outcome_of_a_lost_call_is_asked(shell: Shell) -> None:
    shell.write_file(
        "once.py",
        "import os, signal, vaka\n\n@vaka.tool(timeout=0.05)\ndef shoot() -> str:\n    'Shoot.'\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n",
    )
    model = shell.write_script(call_line("shoot"), say_line("It was shot."))
    command = ("--model", model, "--tools", "once.py", "--session", "s", "--output", "json")
    assert shell.vaka("run", "Shoot.", *command).code == -signal.SIGKILL
    asked = shell.vaka("run", "--resume", *command, "--ask", "suspend").json["decisions"][0]
    assert asked["kind"] == "outcome"
    answer = json.dumps({"outcome": "happened", "result": "bang"})
    assert shell.vaka("approvals", "answer", asked["id"], answer).code == 0
    done = shell.vaka("run", "--resume", *command)
    assert (done.code, done.json["text"], done.json["tool_calls"][0]["status"]) == (0, "It was shot.", "completed")


def test_two_processes_on_one_session_take_turns(shell: Shell) -> None:
    pipe = make_gate(shell)
    shell.write_script(call_line("gate", path="pipe"), say_line("First."), say_line("Second."))
    first = shell.start_run("One.", "--session", "s")
    first.read_until("tool.started")
    second = shell.start_run("Two.", "--session", "s")
    second.read_until("input.added")
    assert shell.run("--resume", "--session", "s").code == 75
    for words, advice in (
        (("sessions", "rewind", "s", "1"), "add --interrupt to stop its turn"),
        (("sessions", "compact", "s"), "add --interrupt to stop its turn"),
        (("sessions", "delete", "s", "--yes"), "end its turn first"),
        (("sessions", "move", "s"), "has a writer"),
        (("sessions", "delete", "s", "--message", "m", "--yes"), "has a writer"),
        (("sessions", "update", "s", "--title", "x"), "has a writer"),
        (("sessions", "add", "s", "x"), "has a writer"),
        (("sessions", "erase", "s", "--yes"), "erase again when the turn that runs has ended"),
    ):
        refused = shell.vaka(*words)
        assert (refused.code, advice in refused.err) == (75, True), (words, refused.err)
    assert shell.vaka("sessions", "erase", "s", "--yes", "--json").json["busy"] == ["s"]
    pipe.write_text("open")
    texts = [running.wait_result().lines[-1]["text"] for running in (first, second)]
    assert texts == ["First.", "Second."]
    seqs = [event["seq"] for event in shell.events("s")]
    assert seqs == list(range(1, len(seqs) + 1))


def test_a_busy_session_is_rewound_after_an_interrupt(shell: Shell) -> None:
    shell.write_script(say_line("First."), call_line("hang"), say_line("never"))
    shell.run("One.", "--session", "s")
    head = len(shell.events("s"))
    running = shell.start_run("Two.", "--session", "s")
    running.read_until("tool.started")
    assert shell.vaka("sessions", "rewind", "s", str(head), "--interrupt").code == 0
    done = running.wait_result()
    assert (done.code, done.lines[-1]["status"]) == (130, "interrupted")
    assert shell.event_types("s")[-1] == "session.reverted"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_interrupts_the_turn_and_is_logged(shell: Shell, number: signal.Signals, code: int) -> None:
    shell.write_script(call_line("hang"), say_line("never"))
    running = shell.start_run("Go.", "--session", "s")
    running.read_until("tool.started")
    running.send_signal(number)
    done = running.wait_result()
    assert (done.code, done.lines[-1]["status"], done.lines[-1]["exit_code"]) == (code, "interrupted", code)
    assert shell.event_types("s")[-2:] == ["tool.failed", "turn.interrupted"]
    assert done.err.splitlines()[-1] == "error: stopped from the command line"


STUBBORN_TOOL = """
import asyncio
import vaka


@vaka.tool(effect="read")
async def stubborn() -> str:
    "Ignores its cancellation."
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
"""


def test_a_tool_that_will_not_stop_does_not_keep_the_process(shell: Shell) -> None:
    shell.write_file("stubborn.py", STUBBORN_TOOL)
    shell.write_script(call_line("stubborn"), say_line("never"))
    running = shell.start_run("Go.", "--tools", "stubborn.py", "--session", "s")
    running.read_until("tool.started")
    running.send_signal(signal.SIGTERM)
    done = running.wait_result()
    assert (done.code, done.lines[-1]["status"], done.err.splitlines()[-1]) == (
        143,
        "interrupted",
        "error: stopped from the command line",
    )


def test_a_second_ctrl_c_exits_at_once(shell: Shell) -> None:
    shell.write_file("stubborn.py", STUBBORN_TOOL)
    shell.write_script(call_line("stubborn"), say_line("never"))
    running = shell.start_run("Go.", "--tools", "stubborn.py", "--session", "s")
    running.read_until("tool.started")
    while running.process.poll() is None:
        running.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(0.3)
    done = running.wait_result()
    assert (done.code, done.lines[-1]["type"], done.lines[-1]["status"]) == (130, "result", "interrupted")
    assert "turn.interrupted" not in shell.event_types("s")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_stdin_is_awaited_still_gives_a_result(shell: Shell, number: signal.Signals, code: int) -> None:
    shell.write_script(say_line("never"))
    command = [sys.executable, "-m", "vaka", "run", "-", "--model", "scripted:script.jsonl", "--output", "stream-json"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=shell.folder, env=shell.env, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    process.stdin.write(b"x" * 300_000)  # more than a pipe buffers: once written, the run is reading
    process.stdin.flush()
    running = RunningCommand(process)
    running.send_signal(number)
    done = running.wait_result()
    assert (done.code, [line["type"] for line in done.lines]) == (code, ["session", "result"])


def test_stopping_a_run_that_waits_does_not_stop_the_turn_of_another_process(shell: Shell) -> None:
    pipe = make_gate(shell)
    shell.write_script(call_line("gate", path="pipe"), say_line("First."), say_line("Second."))
    first = shell.start_run("One.", "--session", "s")
    first.read_until("tool.started")
    second = shell.start_run("Two.", "--session", "s")
    second.read_until("input.added")
    second.send_signal(signal.SIGINT)
    stopped = second.wait_result()
    assert (stopped.code, stopped.lines[-1]["status"]) == (130, "interrupted")
    pipe.write_text("open")
    assert first.wait_result().lines[-1]["text"] == "First."


def test_postgres_serves_the_same_commands(shell: Shell, postgres_dsn: str) -> None:
    shell.env["VAKA_STORE"] = postgres_dsn
    shell.write_script(call_line("pay", amount=5), say_line("Paid."))
    first = shell.run("Pay.", "--session", "s", "--ask", "suspend", "--output", "json")
    assert first.code == 5
    assert shell.vaka("approvals", "resolve", first.json["decisions"][0]["id"], "--approve").code == 0
    assert shell.run("--session", "s", "--resume").out == "Paid.\n"
    assert shell.vaka("sessions", "verify", "--all").code == 0
    assert shell.vaka("doctor").code == 0
