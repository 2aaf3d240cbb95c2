"""``vaka run --server``: a turn of a server looks like one of this process, with the same exit codes."""

import signal
import subprocess
import sys

from tests.cli.remote.conftest import ServerShell
from tests.cli.shell import TIMEOUT, RunningCommand, measure_once


def test_a_turn_prints_its_answer_and_the_session_goes_on(served: ServerShell) -> None:
    proxy = {"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}
    first = served.on_server("Hi.", "--agent", "talker", "--session", "talk", **proxy)
    assert (first.code, first.out) == (0, "Hello.\n")
    assert f"continue with: vaka run --server {served.url} --session talk" in first.err
    second = served.on_server("And?", "--session", "talk", "--output", "json").json
    assert (second["status"], second["text"], second["session_id"]) == ("completed", "Again.", "talk")
    lines = served.on_server("--resume", "--session", "talk", "--output", "stream-json").lines
    assert lines[0] | {"cursor": "", "version": ""} == {
        "type": "session",
        "session_id": "talk",
        "server": served.url,
        "resumed": True,
        "agent": "talker",
        "ask": "deny",
        "cursor": "",
        "version": "",
    }
    assert "message.completed" in [line["type"] for line in lines]
    assert lines[-1] | {"durations": {}} == second | {"type": "result", "durations": {}}


def test_a_long_answer_is_printed_whole(served: ServerShell) -> None:
    result = served.on_server("Write.", "--agent", "writer", "-q")
    assert (result.code, result.out) == (0, "long " * 100_000 + "\n")


def test_without_a_terminal_a_call_is_refused_or_stays_open(served: ServerShell) -> None:
    refused = served.on_server("Pay.", "--agent", "payer")
    assert (refused.code, refused.out) == (5, "All done.\n")
    assert "error: refused: pay" in refused.err
    left = served.on_server("Pay.", "--agent", "payer", "--session", "left", "--ask", "suspend")
    assert left.code == 5
    assert f"decide it at {served.url}" in left.err
    assert f"then continue with: vaka run --server {served.url} --session left --resume" in left.err
    (decision,) = [each for each in served.pending_decisions() if each["session_id"] == "left"]
    assert served.vaka("approvals", "resolve", decision["id"], "--approve").code == 0
    resumed = served.on_server("--session", "left", "--resume")
    assert (resumed.code, resumed.out) == (0, "All done.\n")


def test_decisions_are_made_at_the_terminal(served: ServerShell) -> None:
    screen = served.terminal("run", "Pay.", "--server", served.url, "--agent", "payer", "--session", "paid")
    screen.expect("Approve pay?")
    screen.expect("with feedback > ")
    screen.send_line("a {")
    screen.expect("expected a JSON object")
    screen.expect("with feedback > ")
    screen.send_line("s 1h")
    screen.expect("takes no time limit")
    screen.expect("with feedback > ")
    screen.send_line('a {"amount": 7}')
    screen.expect("paid 7")
    screen.expect("All done.")
    assert screen.wait_exit() == 0
    screen = served.terminal("run", "Paint.", "--server", served.url, "--agent", "painter")
    screen.expect("[2] blue")
    screen.expect("> ")
    screen.send_line("2")
    screen.expect("colour blue")
    assert screen.wait_exit() == 0


def test_ctrl_c_cancels_the_turn_on_the_server(served: ServerShell) -> None:
    command = [
        "run",
        "Hang.",
        "--server",
        served.url,
        "--agent",
        "hanger",
        "--session",
        "hung",
        "--output",
        "stream-json",
    ]
    env = measure_once(served.env, command, "background")
    process = subprocess.Popen(
        [sys.executable, "-m", "vaka", *command],
        cwd=served.folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    run = RunningCommand(process)
    run.read_until("tool.started")
    run.send_signal(signal.SIGINT)
    result = run.wait_result()
    assert result.code == 130
    assert (result.lines[-1]["status"], result.lines[-1]["exit_code"]) == ("interrupted", 130)
    assert served.event_types("hung")[-1] == "turn.interrupted"
    assert process.wait(TIMEOUT) == 130


def test_what_cannot_work_says_so_with_the_exit_code_of_its_kind(served: ServerShell) -> None:
    served.write_file("wrong.key", "ak_none_none\n")
    served.write_file("bad.key", "two\nlines\n")
    assert served.on_server("Hi.", "--agent", "talker", "--session", "taken").code == 0
    for words, code, problem in (
        (("--tools", "x.py"), 2, "--tools does not go with --server"),
        (("--last",), 2, "--last does not go with --server"),
        (("--input", "stream-json"), 2, "--input stream-json does not go with --server"),
        (("--resume",), 2, "--resume takes a --session and no prompt"),
        (("--agent", "absent"), 2, "'absent'"),
        (("--agent", "writer", "--session", "taken"), 2, "belongs to agent 'talker', not to 'writer'"),
        (("--api-key-file", "none"), 3, "No such file"),
        (("--api-key-file", "bad.key"), 3, "expected one line with a key"),
        (("--api-key-file", "wrong.key"), 4, "VAKA_API_KEY or with --api-key-file"),
    ):
        result = served.on_server("Hi.", *words)
        assert result.code == code, result.err
        assert problem in result.err
    for url, code, problem in (
        ("ftp://host", 2, "expected an address such as"),
        ("http://k:v@host", 2, "not in the address"),
        (f"{served.url}/console/login?x", 2, "expected an address such as"),
        (f"{served.url}/docs", 2, "there is no"),
        ("http://127.0.0.1:1", 75, "the server http://127.0.0.1:1 cannot be reached"),
    ):
        result = served.vaka("run", "Hi.", "--server", url)
        assert (result.code, problem in result.err) == (code, True), result.err
    alone = served.vaka("run", "Hi.", "--api-key-file", "wrong.key")
    assert (alone.code, "--api-key-file goes with --server" in alone.err) == (2, True)
