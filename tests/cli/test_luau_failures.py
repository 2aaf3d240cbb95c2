"""Scripts that fail, hang, exhaust memory or return invalid values: one line with the place, and exit code 1."""

import signal
import subprocess
import sys
from typing import IO

import pytest

from tests.cli.shell import TIMEOUT, Shell
from vaka.luau.program import INSTALL_PYLUAU


@pytest.mark.parametrize("where", [[], ["--untrusted"]])
@pytest.mark.parametrize(
    ("source", "limits", "message"),
    [
        ("local x = nil\nprint(x.y)", "", "a.luau:3: attempt to index nil with 'y'"),
        ("error('no luck')", "", "a.luau:2: no luck"),
        ("error({ code = 7 })", "", 'a.luau:2: {"code":7}'),
        ("require('nowhere')", "", "a.luau:2: require: module 'nowhere' not found"),
        ("ctx.invoke('t', {})", "", "a.luau:2: invoke is not available here"),
        ("local function f() return f() + 1 end f()", "seconds=60", "a.luau:2: stack overflow"),
        ("while true do end", "seconds=0.2", "a.luau:2: out of time: more than 0.2 seconds"),
        ("pcall(ctx.sleep, 3600)", "seconds=0.2", "a.luau: out of time: it has slept for 0.2 seconds"),
        ("pcall(function() while true do end end)", "seconds=0.2", "a.luau:2: out of time"),
        ("string.find(string.rep('a', 3e5), string.rep('.-', 50) .. 'b')", "seconds=0.2", "a.luau:2: out of time"),
        ("for i = 1, 1e6 do end", "instructions=1000", "a.luau:2: out of instructions"),
        ("local t = {} for i = 1, 1e9 do t[i] = i .. ' ' end", "memory=8M,seconds=60", "a.luau:2: out of memory"),
        ("return string.rep('x', 1e9)", "memory=8M,seconds=60", "a.luau:2: out of memory"),
        (
            "local t = {} for i = 1, 99 do t[i] = coroutine.create(print) end",
            "coroutines=50",
            "a.luau:2: too many coroutines",
        ),
    ],
)
def test_a_failing_script_prints_its_file_and_line(
    shell: Shell, source: str, limits: str, message: str, where: list[str]
) -> None:
    shell.write_file("a.luau", f"print('before')\n{source}")
    done = shell.vaka("luau", "a.luau", "--limits", limits, *where)
    assert (done.code, done.out) == (1, "before\n")
    assert done.err.startswith(f"script error: {message}")
    assert done.err.count("\n") == 1


def test_verbose_prints_the_traceback(shell: Shell) -> None:
    shell.write_file("a.luau", "function inner()\n\terror('no luck')\nend\ninner()\n")
    assert shell.vaka("luau", "a.luau").err == "script error: a.luau:2: no luck\n"
    first, *frames = shell.vaka("luau", "a.luau", "-v").err.splitlines()
    assert first == "script error: a.luau:2: no luck"
    assert frames == ["[C] function error", "a.luau:2 function inner", "a.luau:4"]


def test_a_script_that_does_not_compile_is_not_run(shell: Shell) -> None:
    shell.write_file("a.luau", "print('before')\nlocal = 1")
    done = shell.vaka("luau", "a.luau")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("script error: a.luau:2: ")
    (shell.folder / "a.luau").write_bytes(b"print('a')\n\xff")
    assert shell.vaka("luau", "a.luau").err == "script error: a.luau:2: the script is not UTF-8\n"


def test_an_error_cannot_control_the_terminal(shell: Shell) -> None:
    shell.write_file("a.luau", "error('\\27]0;gotcha\\7\\nscript error: b.luau:1: a lie')")
    assert shell.vaka("luau", "a.luau").err.count("\n") == 1
    assert "\x1b" not in shell.vaka("luau", "a.luau", "-v").err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nowhere.luau"], "'nowhere.luau' does not exist"),
        (["."], "is a directory"),
        (["a.luau", "--mode", "other"], "'other' is not one of"),
        (["a.luau", "--limits", "memory=1X"], "limit 'memory=1X'"),
        (["a.luau", "--limits", "seconds=0"], "seconds must be a number above 0"),
        (["a.luau", "--input", "{"], "--input: '{' is not JSON"),
        (["a.luau", "--mode", "tool", "--input", "nope"], "--input: 'nope' is not JSON"),
        (["a.luau", "--allow-host", "a b"], "--allow-host: 'a b' is not a pattern for hosts"),
        (["a.luau", "--untrusted", "--limits", "memory=none"], "needs a limit of memory"),
        ([], "Missing argument 'FILE'"),
    ],
)
def test_invalid_flags_exit_with_2(shell: Shell, words: list[str], why: str) -> None:
    shell.write_file("a.luau", "print('ran')")
    done = shell.vaka("luau", *words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert why in done.err


@pytest.mark.parametrize("input", [b"{", b'{"a": 1', b"nope", b'{"a": "', b"]"])
def test_arguments_on_stdin_that_are_not_json_exit_with_2(shell: Shell, input: bytes) -> None:
    shell.write_file("a.luau", "rt:output(1)")
    done = shell.vaka("luau", "a.luau", "--mode", "tool", input=input)
    assert (done.code, done.out) == (2, "")
    assert "expected the arguments of the tool as JSON" in done.err


def test_without_pyluau_the_error_names_what_to_install(shell: Shell) -> None:
    shell.write_file("a.luau", "print('ran')")
    shell.write_file("absent/pyluau.py", "raise ImportError('not here')")
    done = shell.vaka("luau", "a.luau", PYTHONPATH=str(shell.folder / "absent"))
    assert (done.code, done.err) == (3, f"error: Luau needs pyluau: {INSTALL_PYLUAU}\n")


@pytest.mark.parametrize(
    "source",
    [
        "function run(ctx) while true do pcall(ctx.emit, { text = 'y\\n' }) end end",
        "function run(ctx) while true do pcall(ctx.log.info, 'y') end end",
    ],
)
def test_an_agent_ends_when_its_output_is_closed(shell: Shell, source: str) -> None:
    shell.write_file("yes.luau", source)
    done = shell.bash("vaka luau yes.luau --mode agent --limits seconds=none 2>&1 | head -2; echo ${PIPESTATUS[0]}")
    assert done.out.replace("info: ", "") == "y\ny\n141\n"


def test_a_plain_script_ends_when_its_output_is_closed(shell: Shell) -> None:
    shell.write_file("yes.luau", "while true do pcall(print, 'y') end")
    done = shell.bash("vaka luau yes.luau --limits seconds=none | head -2; echo ${PIPESTATUS[0]}")
    assert (done.out, done.err) == ("y\ny\n141\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("source", ["print('on') while true do end", "print('on') ctx.sleep(1e6)"])
def test_a_signal_ends_a_script_at_once(shell: Shell, source: str, number: signal.Signals) -> None:
    shell.write_file("a.luau", source)
    command = [sys.executable, "-m", "vaka", "luau", "a.luau", "--limits", "seconds=none"]
    process = subprocess.Popen(
        command,
        cwd=shell.folder,
        env=shell.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        out: IO[bytes] = process.stdout
        assert out.readline() == b"on\n"
        process.send_signal(number)
        code = process.wait(TIMEOUT)
        assert (code, process.stderr.read()) == (130 if number == signal.SIGINT else 143, b"")
