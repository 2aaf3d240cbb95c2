"""Compactions on the command line: their settings, what a run shows of them, and ``vaka sessions compact``."""

from tests.cli.shell import Shell, say_line

WORDS = "word " * 700
LINES = (
    {"context_window": 4_000}, *[say_line(f"Answer {number}.") for number in range(9)],
    *[say_line("<summary>It was about boats.</summary>") | {"agent": "summary"}] * 9,
)  # fmt: skip


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


def test_auto_compact_of_claude_settings_switches_it_off(shell: Shell) -> None:
    shell.write_file("home/.claude/settings.json", '{"autoCompactEnabled": false}')
    assert not any("summarized" in say(shell, number) for number in range(3))
