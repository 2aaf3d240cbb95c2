"""Compactions on the command line: their settings, what a run shows of them, and ``vaka sessions compact``."""

import json
from typing import Any

from tests.cli.shell import CommandResult, Shell, call_line, say_line

WORDS = "word " * 700
LINES = (
    {"context_window": 4_000},
    *[say_line(f"Answer {number}.") for number in range(9)],
    *[say_line("<summary>It was about boats.</summary>") | {"agent": "summary"}] * 9,
)


def say(shell: Shell, number: int, *words: str) -> str:
    """Say something long in the session ``s``, and return the progress."""
    script = shell.write_script(*LINES)
    prompt = f"Prompt {number}. {WORDS}"
    done = shell.vaka("run", prompt, "--model", script, "--session", "s", "--builtin-tools", "none", *words)
    assert (done.code, done.out) == (0, f"Answer {number}.\n"), done.err
    return str(done.err)


def test_a_run_shows_that_older_messages_were_summarized(shell: Shell) -> None:
    shell.write_file("vaka.toml", "[compaction]\nratio = 0.6\nopening_messages = 0\n")
    progress = [say(shell, number, "--trust") for number in range(3)]
    assert ["older messages summarized" in text for text in progress] == [False, False, True]
    shown = shell.vaka("sessions", "show", "s").out
    assert "older messages summarized (" in shown
    assert "tokens)" in shown


def test_the_length_of_results_is_a_setting(shell: Shell) -> None:
    shell.write_file(
        "long.py", "import vaka\n\n\n@vaka.tool\ndef long() -> str:\n    'Return much.'\n    return 'x' * 30_000\n"
    )
    script = shell.write_script(call_line("long"), say_line("Done."))
    command = ("run", "Go.", "--model", script, "--tools", "long.py", "--output", "stream-json")

    def result(done: CommandResult) -> dict[str, Any]:
        [ended] = [line for line in done.lines if line["type"] == "tool.completed"]
        part: dict[str, Any] = ended["data"]["result"]["content"][0]
        return part

    assert result(shell.vaka(*command))["type"] == "text"
    cut = result(shell.vaka(*command, VAKA_MAX_RESULT_TOKENS="2000"))
    assert (cut["type"], cut["cut"]) == ("stored", True)
    assert "to see them call read_output with output:" in cut["preview"]
    wrong = shell.vaka(*command, VAKA_MAX_RESULT_TOKENS="20")
    assert (wrong.code, "must be at least 2000" in wrong.err) == (2, True)


def test_auto_compact_of_claude_settings_switches_it_off(shell: Shell) -> None:
    shell.write_file("home/.claude/settings.json", '{"autoCompactEnabled": false}')
    assert not any("summarized" in say(shell, number) for number in range(3))


def test_a_session_is_compacted_on_request_with_the_agent_of_its_last_run(shell: Shell) -> None:
    hook = {"hooks": [{"type": "command", "command": "test ! -e no || { echo 'Not today.' >&2; exit 2; }"}]}
    shell.write_file("home/.claude/settings.json", json.dumps({"hooks": {"PreCompact": [hook]}}))
    nothing = shell.vaka("sessions", "compact", "s")
    assert (nothing.code, "there is no session 's'" in nothing.err) == (2, True)
    for number in range(2):
        say(shell, number)
    shell.write_file("no", "")
    refused = shell.vaka("sessions", "compact", "s")
    assert (refused.code, refused.out) == (1, "not compacted: Not today.\n")
    (shell.folder / "no").unlink()
    done = shell.vaka("sessions", "compact", "s", "--instructions", "Keep the boats.", "--json")
    assert done.code == 0, done.err
    fields = done.json
    assert (fields["session_id"], fields["compacted"], fields["skipped"]) == ("s", True, "")
    assert fields["after"] < fields["before"]
    assert "It was about boats." in fields["summary"]
    again = shell.vaka("sessions", "compact", "s")
    assert again.code == 0, again.err
    say(shell, 2)
    log = [json.loads(line) for line in shell.vaka("sessions", "export", "s").out.splitlines()]
    [event, *_] = [line["data"] for line in log if line["type"] == "context.compacted"]
    assert (event["trigger"], event["instructions"]) == ("manual", "Keep the boats.")
    assert shell.vaka("sessions", "verify", "s").code == 0
    memory = shell.vaka("sessions", "compact", "s", "--store", "memory:")
    assert (memory.code, "end with their process" in memory.err) == (2, True)
