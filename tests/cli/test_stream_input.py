"""``vaka run --input stream-json``: a program sends messages and decisions as lines of JSON."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from scripts import schema
from tests.cli.shell import Shell, call_line, say_line
from vaka.cli.turn.stream_input import MAX_LINE_BYTES, parse_line
from vaka.core.types.errors import InvalidInput

FLAGS = ("--input", "stream-json", "-q", "--agent", "agent.py", "--model", "scripted:script.jsonl")


def user_line(content: Any, **more: Any) -> str:
    return json.dumps({"type": "user", "message": {"role": "user", "content": content}, **more})


def run_lines(shell: Shell, *lines: str, flags: tuple[str, ...] = ()) -> Any:
    return shell.vaka("run", *FLAGS, *flags, input="".join(f"{line}\n" for line in lines).encode())


def lines_of(done: Any, kind: str) -> Iterator[Any]:
    return (line for line in done.lines if line["type"] == kind)


def test_bad_lines_are_reported_and_the_others_count(shell: Shell) -> None:
    shell.write_script(call_line("add", a=1, b=2), say_line("It is 3."), say_line("You are welcome."))
    done = run_lines(
        shell,
        "not json",
        '{"type": "fly"}',
        user_line("x" * MAX_LINE_BYTES),
        user_line(" "),
        "",
        user_line("Add."),
        '{"type": "approval", "id": "apr_0", "decision": "approve"}',
        '{"type": "approval", "decision": "approve"}',
        user_line([{"type": "text", "text": "Thanks."}], session_id="of another program"),
        '{"type": "end"}',
        user_line("This comes too late."),
    )
    assert (done.code, done.err) == (0, "")
    first, last = done.lines[0], done.lines[-1]
    assert (first["type"], last["type"], last["text"]) == ("session", "result", "You are welcome.")
    assert [result["text"] for result in lines_of(done, "result")] == ["It is 3.", "You are welcome."]
    errors = {line["line"]: line["error"] for line in lines_of(done, "error")}
    assert {number: error["code"] for number, error in errors.items()} == {
        1: "invalid_input",
        2: "invalid_input",
        3: "invalid_input",
        4: "invalid_input",
        7: "not_found",
        8: "invalid_input",
    }
    assert "user, approval, answer, interrupt or end" in errors[2]["message"]
    assert "more than 10 MB" in errors[3]["message"]
    assert len([*lines_of(done, "input.added")]) == 2


def test_an_end_of_input_during_an_approval_leaves_it_open_and_a_later_run_takes_the_decision(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), say_line("Paid."))
    done = run_lines(shell, user_line("Pay."), flags=("--session", "s"))
    (result,) = lines_of(done, "result")
    (decision,) = result["decisions"]
    assert (done.code, result["status"], decision["reason"]) == (5, "suspended", "money is involved")
    approve = json.dumps({"type": "approval", "id": decision["id"], "decision": "approve", "edit": {"amount": 7}})
    again = run_lines(shell, approve, flags=("--session", "s", "--resume"))
    assert (again.code, again.lines[-1]["text"]) == (0, "Paid.")
    assert (shell.folder / "ledger").read_text() == "7\n"


def test_a_program_decides_answers_and_interrupts(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), call_line("colour"), call_line("hang"), say_line("Unused."))
    command = ["vaka", "run", *FLAGS, "--allow", "colour", "--allow", "hang"]
    with subprocess.Popen(
        command, cwd=shell.folder, env=shell.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{user_line('Go.')}\n")
        seen: list[str] = []
        event: Any = None
        for line in process.stdout:
            process.stdin.flush()
            event = json.loads(line)
            seen.append(event["type"])
            reply: dict[str, Any] | None = None
            if event["type"] == "approval.requested":
                reply = {"type": "approval", "id": event["data"]["approval"], "decision": "reject", "message": "No."}
            elif event["type"] == "question.asked":
                reply = {"type": "answer", "id": event["data"]["question"], "answer": "blue"}
            elif event["type"] == "tool.started" and event["data"]["call"]["name"] == "hang":
                reply = {"type": "interrupt", "note": "enough"}
            elif event["type"] == "result":
                process.stdin.close()
                break
            if reply is not None:
                process.stdin.write(f"{json.dumps(reply)}\n")
                process.stdin.flush()
        assert (process.wait(), event["status"], event["error"]["message"]) == (130, "interrupted", "enough")
    assert {"approval.resolved", "question.answered", "turn.interrupted"} <= set(seen)
    assert not (shell.folder / "ledger").exists()


def test_the_flags_that_cannot_go_with_it_are_named(shell: Shell) -> None:
    done = shell.vaka("run", *FLAGS, "--output", "text")
    assert (done.code, "leave --output out" in done.err) == (2, True)
    nothing = run_lines(shell)
    assert (nothing.code, nothing.lines[-1]["error"]["code"]) == (2, "usage")
    assert "stdin had no message" in nothing.err


VALID = [
    {"type": "user", "message": {"content": "Hi."}},
    {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "Hi."}]}, "on_busy": "steer"},
    {"type": "user", "message": {"content": [{"type": "image", "source": {"type": "url", "url": "https://x.org"}}]}},
    {"type": "approval", "id": "apr_1", "decision": "approve", "scope": "session", "rule": "Bash(ls)", "ttl": 60},
    {"type": "answer", "id": "qst_1", "answer": {"outcome": "happened"}},
    {"type": "interrupt"},
    {"type": "end"},
]
INVALID = [
    {"type": "user"},
    {"type": "user", "message": {"content": 5}},
    {"type": "user", "message": {"role": "system"}},
    {"type": "approval", "id": "", "decision": "approve"},
    {"type": "approval", "id": "x", "decision": "maybe"},
    {"type": "end", "now": True},
    {"type": "fly"},
    [],
    "end",
    None,
]


def test_the_schema_says_what_is_accepted() -> None:
    validator = jsonschema.Draft202012Validator(json.loads((schema.FOLDER / "input.schema.json").read_text()))
    for line in VALID:
        parse_line(json.dumps(line).encode())
        validator.validate(line)
    for bad in INVALID:
        with pytest.raises(InvalidInput):
            parse_line(json.dumps(bad).encode())
        assert not validator.is_valid(bad), bad
