"""``vaka run`` without a terminal: output, streams and exit codes."""

import json
import os
import re
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.cli.shell import Shell, call_line, say_line

ADD = (call_line("add", a=1, b=2), say_line("It is 3."))


def test_the_answer_goes_to_stdout_and_progress_to_stderr(shell: Shell) -> None:
    shell.write_script({"text": "Let me **add**.", **call_line("add", a=5, b=6)}, call_line("boom"), ADD[1])
    done = shell.run("Add.")
    assert (done.code, done.out) == (0, "It is 3.\n")
    *progress, last = done.err.splitlines()
    shown = ["Let me **add**.", "→ add a: 5, b: 6", "  │ 11", "→ boom", "  ✗ ValueError: boom"]
    assert progress[: len(shown)] == shown
    assert re.fullmatch(r"\d+ tokens · continue with: vaka run --session ses_cli_\w+", last)


def test_quiet_prints_only_the_answer(shell: Shell) -> None:
    shell.write_script(*ADD)
    done = shell.run("Add.", "-q")
    assert (done.out, done.err) == ("It is 3.\n", "")


def test_verbose_prints_steps_and_tokens(shell: Shell) -> None:
    shell.write_script(*ADD)
    done = shell.run("Add.", "-v")
    assert "step 1 (scripted)" in done.err
    assert "tokens in" in done.err


def test_json_is_one_object_with_everything_a_program_asks(shell: Shell) -> None:
    shell.write_script({**ADD[0], "usage": {"input": 10, "output": 2, "cost": 0.25}}, {**ADD[1], "usage": {"input": 5}})
    done = shell.run("Add.", "--output", "json", "--session", "s")
    result = done.json
    assert all(isinstance(result["durations"][name], float) for name in ("total_ms", "ttft_ms"))
    assert result["turn_id"].startswith("trn_")
    result["turn_id"], result["durations"] = "trn", {}
    assert result == snapshot(
        {
            "status": "completed",
            "exit_code": 0,
            "text": "It is 3.",
            "structured_output": None,
            "session_id": "s",
            "turn_id": "trn",
            "stop": "end",
            "limit": None,
            "usage": {
                "input": 15,
                "output": 2,
                "cache_read": 0,
                "cache_write": 0,
                "reasoning": 0,
                "cost": 0.25,
                "total": 17,
            },
            "models": {
                "scripted": {
                    "input": 15,
                    "output": 2,
                    "cache_read": 0,
                    "cache_write": 0,
                    "reasoning": 0,
                    "cost": 0.25,
                    "total": 17,
                }
            },
            "cost": 0.25,
            "steps": 2,
            "tool_calls": [{"id": "call_1", "name": "add", "arguments": {"a": 1, "b": 2}, "status": "completed"}],
            "denials": [],
            "decisions": [],
            "durations": {},
            "error": None,
        }
    )


def test_stream_json_is_the_session_then_the_stored_bytes_then_the_result(shell: Shell) -> None:
    shell.write_script(*ADD)
    done = shell.run("Add.", "--output", "stream-json", "--session", "s")
    lines = done.lines
    assert [line["type"] for line in lines] == snapshot(
        [
            "session",
            "session.opened",
            "input.added",
            "turn.started",
            "step.started",
            "message.started",
            "tool.args.delta",
            "message.completed",
            "usage",
            "tool.called",
            "tool.started",
            "tool.completed",
            "step.completed",
            "step.started",
            "message.started",
            "text.delta",
            "text.delta",
            "text.delta",
            "message.completed",
            "usage",
            "step.completed",
            "turn.completed",
            "result",
        ]
    )
    first = lines[0]
    assert first.pop("store") == f"sqlite:///{shell.folder}/data/vaka/vaka.db"
    assert first.pop("version")
    assert first == snapshot(
        {
            "type": "session",
            "session_id": "s",
            "cursor": "1.0",
            "resumed": False,
            "agent": "payer",
            "ask": "deny",
        }
    )
    durable = [raw for raw in done.raw_out.splitlines(keepends=True)[1:-1] if b'"seq"' in raw]
    assert b"".join(durable) == shell.vaka("sessions", "export", "s").raw_out


def test_the_last_line_of_the_stream_is_the_object_json_prints(shell: Shell) -> None:
    shell.write_script(*ADD)
    stream = shell.run("Add.", "--output", "stream-json").lines[-1]
    assert stream.pop("type") == "result"
    assert set(stream) == set(shell.run("Add.", "--output", "json").json)


def run_failing(shell: Shell, *words: str, **more: Any) -> tuple[int, str]:
    """Run with stream-json; check the first and last line; return the exit code and the error's code."""
    done = shell.run("Go.", *words, "--output", "stream-json", **more)
    lines = done.lines
    assert lines[0]["type"] == "session"
    assert lines[-1]["type"] == "result"
    assert lines[-1]["exit_code"] == done.code
    assert done.err.splitlines()[-1].startswith(("error: ", "waiting: ", "then continue"))
    return done.code, (lines[-1]["error"] or {"code": lines[-1]["status"]})["code"]


def test_a_failed_task_is_1(shell: Shell) -> None:
    shell.write_script(say_line("never"))
    assert run_failing(shell, agent="agent.py:broken") == (1, "middleware")


def test_invalid_arguments_exit_with_2(shell: Shell) -> None:
    shell.write_script(say_line("never"))
    assert run_failing(shell, "--session", " padded ") == (2, "invalid_input")
    assert run_failing(shell, "--fork", "missing@3") == (2, "not_found")
    assert run_failing(shell, "--allow", "*") == (2, "invalid_input")
    assert run_failing(shell, "-o", "no/such/folder") == (2, "usage")


def test_configuration_is_3(shell: Shell) -> None:
    assert run_failing(shell, model="missing/none") == (3, "config")
    assert run_failing(shell, "--store", "mysql://x") == (3, "config")
    assert run_failing(shell, agent="missing.py") == (3, "config")
    shell.write_file("vaka.toml", "modle = 'x'\n")
    assert run_failing(shell) == (3, "config")


def test_authentication_is_4(shell: Shell) -> None:
    done = shell.vaka("run", "Go.", "--agent", "agent.py:locked", "--output", "json")
    assert (done.code, done.json["error"]["code"]) == (4, "authentication")


def test_a_refused_approval_is_5(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), say_line("I could not."))
    assert run_failing(shell) == (5, "denied")
    assert not (shell.folder / "ledger").exists()


def test_a_turn_that_recovers_from_a_refusal_is_0(shell: Shell) -> None:
    shell.write_script(call_line("pay", amount=5), call_line("add", a=1, b=1), say_line("Added instead."))
    done = shell.run("Go.", "--output", "json")
    assert (done.code, done.json["status"], len(done.json["denials"])) == (0, "completed", 1)


def test_a_model_that_refuses_is_6_and_one_to_try_again_is_75(shell: Shell) -> None:
    shell.write_script({"error": {"status": 400, "message": "no"}})
    assert run_failing(shell) == (6, "model_refused")
    shell.write_script({"error": {"status": 529, "message": "full"}})
    assert run_failing(shell) == (75, "model_unavailable")


@pytest.mark.parametrize(
    ("flags", "limit"),
    [
        (["--max-steps", "1"], "steps"),
        (["--max-turns", "1"], "steps"),
        (["--max-tokens", "5"], "tokens"),
        (["--max-budget-usd", "0.5"], "cost"),
    ],
)
def test_a_limit_is_7_and_keeps_what_was_said(shell: Shell, flags: list[str], limit: str) -> None:
    first = {**call_line("add", a=1, b=2), "text": "Let me see.", "usage": {"input": 10, "cost": 1.0}}
    shell.write_script(first, say_line("never"))
    done = shell.run("Go.", *flags, "--output", "json")
    assert (done.code, done.json["status"], done.json["limit"]) == (7, "limit", limit)
    assert done.json["text"] == "Let me see."
    assert done.err.splitlines()[-1] == f"error: limit reached: {limit}"


def test_a_timeout_is_7(shell: Shell) -> None:
    shell.write_script(call_line("hang"), say_line("never"))
    done = shell.run("Go.", "--timeout", "0.2s", "--output", "json")
    assert (done.code, done.json["limit"]) == (7, "time")


def test_the_answer_can_go_to_a_file_too(shell: Shell) -> None:
    shell.write_script(say_line("Hello."))
    assert shell.run("Hi.", "-o", "answer.txt").out == "Hello.\n"
    assert (shell.folder / "answer.txt").read_text() == "Hello."


def test_instructions_come_as_text_or_from_a_file(shell: Shell) -> None:
    model = shell.write_script({**say_line("ok"), "repeat": True})
    shell.write_file("how.md", "Be brief and kind.")
    for instructions in ("Be brief and kind.", "@how.md"):
        done = shell.run("Hi.", "--instructions", instructions, "--output", "stream-json", model=model)
        step = next(line for line in done.lines if line["type"] == "step.started")
        assert step["data"]["system"]
    assert shell.run("Hi.", "--instructions", "@missing.md").code == 2


def test_tools_come_from_files(shell: Shell) -> None:
    model = shell.write_script(*ADD, name="add.jsonl")
    done = shell.vaka("run", "Add.", "--tools", "agent.py", "--model", model, "--output", "json")
    assert (done.json["text"], done.json["tool_calls"][0]["status"]) == ("It is 3.", "completed")
    denied = shell.vaka("run", "Add.", "--tools", "agent.py", "--model", model, "--deny", "add", "--output", "json")
    assert (denied.code, denied.json["tool_calls"][0]["status"]) == (5, "failed")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import vaka\n\ndef add(:\n", "bad.py:3: SyntaxError"),
        ("import vaka\n\nx = 1 / 0\n", "bad.py:3: ZeroDivisionError"),
        ("import sys\nsys.exit(9)\n", "bad.py:2: SystemExit"),
        ("import nowhere_at_all\n", "bad.py:1: ModuleNotFoundError"),
        ("x = 1\n", "bad.py: no tools; mark functions with @vaka.tool"),
        ("import vaka\n\n@vaka.tool\ndef add(a: int) -> int:\n    return a\n", "bad.py:3: InvalidInput"),
    ],
)
def test_a_tool_file_that_is_wrong_is_named_with_its_line(shell: Shell, text: str, expected: str) -> None:
    shell.write_file("bad.py", text)
    done = shell.vaka("run", "Hi.", "--tools", "bad.py", "--model", shell.write_script(say_line("x")))
    assert done.code == 3
    assert expected in done.err
    assert done.err.count("\n") == 1


def test_a_file_with_several_agents_needs_an_object_name(shell: Shell) -> None:
    shell.write_file("two.py", "import vaka\na = vaka.Agent('a')\nb = vaka.Agent('b')\n")
    model = shell.write_script(say_line("ok"))
    assert "expected one vaka.Agent, not a, b" in shell.run("Hi.", agent="two.py").err
    assert "no vaka.Agent named 'c'; it has a, b" in shell.run("Hi.", agent="two.py:c").err
    assert shell.run("Hi.", agent="two.py:b", model=model).code == 0
    shell.write_file("one.py", "import vaka\nonly = vaka.Agent('solo')\n")
    done = shell.run("Hi.", "--output", "stream-json", agent="one.py", model=model)
    assert done.lines[0]["agent"] == "solo"


def test_a_verbose_error_shows_where_it_came_from(shell: Shell) -> None:
    done = shell.run("Hi.", "-v", agent="missing.py")
    assert "Traceback" in done.err
    assert done.err.splitlines()[-1] == "error: missing.py: there is no such file"


def test_an_ephemeral_run_leaves_nothing(shell: Shell) -> None:
    shell.write_script(say_line("Hello."))
    done = shell.run("Hi.", "--ephemeral", "--output", "stream-json")
    assert (done.code, done.lines[0]["store"]) == (0, "memory:")
    assert not (shell.folder / "data").exists()
    assert shell.run("Hi.", "--ephemeral", "--store", "memory:").code == 2
    assert shell.run("Hi.", "--ephemeral", "--ask", "suspend").code == 2


def test_paths_are_meant_from_cwd(shell: Shell) -> None:
    shell.write_file("elsewhere/hello.jsonl", json.dumps(say_line("From there.")))
    done = shell.vaka("run", "Hi.", "--cwd", "elsewhere", "--model", "scripted:hello.jsonl")
    assert done.out == "From there.\n"
    assert shell.vaka("run", "Hi.", "--cwd", "nowhere").code == 2


def test_secrets_of_the_environment_never_reach_the_log(shell: Shell) -> None:
    shell.write_script(say_line("It is sk-very-secret, you know."))
    shell.run("My key is sk-very-secret.", "--session", "s", OPENAI_API_KEY="sk-very-secret")
    assert b"sk-very-secret" not in shell.vaka("sessions", "export", "s").raw_out


@pytest.mark.parametrize(
    "words",
    [
        ["--resume"],
        ["--resume", "Hi.", "--session", "s"],
        ["Hi.", "--last", "--session", "s"],
        ["one", "two"],
        ["Hi.", "--output", "xml"],
        ["Hi.", "--timeout", "soon"],
        ["Hi.", "--max-steps", "0"],
        ["Hi.", "--last"],
        ["", "-q"],
        ["--resume", "--session", "missing"],
        ["Hi.", "--permission-mode", "yolo"],
    ],
)
def test_usage_errors_are_2_in_one_line(shell: Shell, words: list[str]) -> None:
    shell.write_script(say_line("never"))
    done = shell.run(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1


def test_a_closed_pipe_ends_the_run_without_output(shell: Shell) -> None:
    shell.write_script(call_line("add", a=1, b=2), say_line("word " * 20_000))
    run = "python -m vaka run Go. --agent agent.py --model scripted:script.jsonl -q --output stream-json"
    done = shell.bash(f'{run} | head -1; echo "${{PIPESTATUS[0]}}"')
    first, code = done.out.splitlines()
    assert json.loads(first)["type"] == "session"
    assert code == "141"
    assert done.err == ""


def test_an_output_that_is_closed_or_full_does_no_harm(shell: Shell) -> None:
    shell.write_script({**say_line("Hello."), "repeat": True})
    run = "python -m vaka run Hi. --agent agent.py --model scripted:script.jsonl"
    closed = shell.bash(f"{run} >&- 2>&-")
    assert (closed.code, closed.out, closed.err) == (0, "", "")
    full = shell.bash(f"{run} > /dev/full")
    assert (full.code, full.err) == (1, "error: [Errno 28] No space left on device\n")


def test_a_file_name_that_is_not_utf8_can_be_printed(shell: Shell) -> None:
    done = shell.bash("python -m vaka run Hi. --agent $'\\xff.py' --output json")
    assert (done.code, json.loads(done.out)["error"]["code"]) == (3, "config")


def test_output_is_utf8_whatever_the_locale(shell: Shell) -> None:
    shell.write_script(say_line("Grüße, 世界 🌊"))
    for locale in ("C", "POSIX", "en_US.ISO-8859-1"):
        done = shell.run("Hallo ß", "--session", locale, LC_ALL=locale, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert (done.code, done.out) == (0, "Grüße, 世界 🌊\n")


def test_no_colours_without_a_terminal(shell: Shell) -> None:
    shell.write_script(*ADD)
    assert "\x1b" not in shell.run("Add.").err


def test_settings_of_the_project_and_environment_count(shell: Shell) -> None:
    shell.write_script(say_line("Hello."))
    shell.write_file("vaka.toml", 'model = "scripted:script.jsonl"\noutput = "json"\nmax_steps = 3\n')
    assert shell.vaka("run", "Hi.").json["text"] == "Hello."
    assert shell.vaka("run", "Hi.", VAKA_OUTPUT="text").out == "Hello.\n"
    assert shell.vaka("run", "Hi.", "--output", "text", VAKA_OUTPUT="json").out == "Hello.\n"


def test_a_folder_cannot_allow_itself_things(shell: Shell) -> None:
    shell.write_script(say_line("Hello."))
    shell.write_file("vaka.toml", 'permission_mode = "bypassPermissions"\nallow = ["pay"]\n')
    done = shell.run("Hi.")
    assert done.code == 0
    assert done.err.count("does not count") == 2
    assert shell.run("Hi.", "--trust").err.count("does not count") == 1


def test_the_run_is_over_when_a_thread_hangs(shell: Shell) -> None:
    os.mkfifo(shell.folder / "pipe")
    shell.write_script(call_line("gate", path="pipe"), say_line("never"))
    done = shell.run("Go.", "--timeout", "1", "--output", "json")
    assert (done.code, done.json["limit"]) == (7, "time")
