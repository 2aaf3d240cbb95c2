"""The sources of the prompt. A run does not wait for a silent pipe, unless - is given."""

import os
import subprocess

import pytest

from tests.cli.shell import TIMEOUT, Shell, say_line
from vaka.cli.turn.input import MAX_STDIN_BYTES, append_stdin

ECHO = {"text": "heard", "repeat": True}


@pytest.fixture
def prompt(shell: Shell) -> Shell:
    shell.write_script(ECHO)
    return shell


def read_prompt_of(shell: Shell, session: str = "s") -> str:
    """Return the prompt that a session recorded."""
    added = next(event for event in shell.events(session) if event["type"] == "input.added")
    text: str = added["data"]["content"][0]["text"]
    return text


def test_a_pipe_is_the_prompt_when_there_is_no_argument(prompt: Shell) -> None:
    assert prompt.run("--session", "s", input=b"Tell me.\n").code == 0
    assert read_prompt_of(prompt) == "Tell me.\n"


def test_a_dash_reads_the_prompt_too(prompt: Shell) -> None:
    assert prompt.run("-", "--session", "s", input=b"Tell me.").code == 0
    assert read_prompt_of(prompt) == "Tell me."


def test_beside_an_argument_a_pipe_is_context(prompt: Shell) -> None:
    assert prompt.run("Review.", "--session", "s", input=b"a = 1\n").code == 0
    assert read_prompt_of(prompt) == "Review.\n\nInput from stdin:\n```\na = 1\n```"


def test_a_file_beside_an_argument_is_context(prompt: Shell) -> None:
    prompt.write_file("notes.txt", "one\ntwo\n")
    with (prompt.folder / "notes.txt").open() as notes:
        assert prompt.start_run("Sum up.", "--session", "s", stdin=notes).wait_result().code == 0
    assert read_prompt_of(prompt).endswith("```\none\ntwo\n```")


def test_an_empty_pipe_beside_an_argument_changes_nothing(prompt: Shell) -> None:
    assert prompt.run("Hello.", "--session", "s", input=b"").code == 0
    assert read_prompt_of(prompt) == "Hello."


def test_the_fence_cannot_be_forged() -> None:
    assert append_stdin("Do.", "x\n````\ny").splitlines()[3] == "`````"


def test_an_empty_stdin_without_an_argument_is_a_usage_error(prompt: Shell) -> None:
    for data in (b"", b" \n"):
        done = prompt.run(input=data)
        assert (done.code, done.err) == (
            2,
            "error: the prompt is empty: stdin had no text (see `vaka run --help`)\n",
        )


def test_a_closed_stdin_has_no_prompt(prompt: Shell) -> None:
    done = prompt.bash("python -m vaka run --model scripted:script.jsonl <&-")
    assert (done.code, done.err) == (2, "error: no prompt; write one, or pipe it in (see `vaka run --help`)\n")
    assert prompt.bash("python -m vaka run Hi. --model scripted:script.jsonl <&-").out == "heard\n"


def test_a_stdin_that_is_too_large_is_refused_with_advice(prompt: Shell) -> None:
    prompt.write_file("large", "x" * (MAX_STDIN_BYTES + 1))
    for words in (["-"], ["Sum up."]):
        with (prompt.folder / "large").open() as large:
            done = prompt.start_run(*words, stdin=large).wait_result()
        assert done.code == 2
        assert "larger than 10 MB" in done.err


def test_an_open_silent_pipe_is_not_waited_for(prompt: Shell) -> None:
    read, write = os.pipe()
    try:
        assert prompt.start_run("Hello.", "--session", "s", stdin=read).wait_result().code == 0
    finally:
        os.close(read)
        os.close(write)
    assert read_prompt_of(prompt) == "Hello."


def test_an_open_pipe_that_falls_silent_is_read_so_far(prompt: Shell) -> None:
    read, write = os.pipe()
    try:
        os.write(write, b"some words")
        done = prompt.start_run("Hello.", "--session", "s", stdin=read).wait_result()
    finally:
        os.close(read)
        os.close(write)
    assert (done.code, "with its 10 bytes" in done.err) == (0, True)
    assert "some words" in read_prompt_of(prompt)


def test_a_dash_beside_an_argument_waits_for_the_end(prompt: Shell) -> None:
    running = prompt.start_run("Hello.", "-", "--session", "s", stdin=subprocess.PIPE)
    out, _ = running.process.communicate(b"late words", timeout=TIMEOUT)
    assert running.process.returncode == 0
    assert b"late words" in out


def test_bytes_that_are_not_utf8_are_replaced(prompt: Shell) -> None:
    assert prompt.run("--session", "s", input=b"\xef\xbb\xbfa\xffb\xed\xa0\x80").code == 0
    assert read_prompt_of(prompt).startswith("a\ufffdb")


def test_more_than_one_prompt_is_a_usage_error(shell: Shell) -> None:
    shell.write_script(say_line("never"))
    assert "put it in quotes" in shell.run("one", "two").err
    assert shell.run("one", "-", "-").code == 2
