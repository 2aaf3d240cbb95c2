"""Standard output has the result of a command alone; what modules and tools print goes to stderr."""

import pytest

from tests.cli.shell import Shell, call_line, say_line

NOISY_FILE = '''
import atexit, os, subprocess, sys, threading
import vaka

print("printed at import")
atexit.register(lambda: print("printed at exit"))


@vaka.tool(effect="read")
def shout() -> str:
    """Print in every way there is."""
    print("printed in a thread")
    sys.__stdout__.write("printed on the first stdout\\n")
    os.write(1, b"written to descriptor 1\\n")
    thread = threading.Thread(target=print, args=["printed in a thread of its own"])
    thread.start()
    thread.join()
    subprocess.run([sys.executable, "-c", "print('printed by a child process')"], check=True)
    return "quiet"


@vaka.tool(effect="read")
async def murmur() -> str:
    """Print on the event loop."""
    print("printed on the event loop")
    return "quiet"
'''
PRINTED = [
    "printed at import",
    "printed at exit",
    "printed in a thread",
    "printed on the first stdout",
    "written to descriptor 1",
    "printed in a thread of its own",
    "printed by a child process",
    "printed on the event loop",
]


@pytest.fixture
def noisy(shell: Shell) -> Shell:
    shell.write_file("noisy.py", NOISY_FILE)
    shell.write_script(call_line("shout"), call_line("murmur"), say_line("Done."))
    return shell


def test_prints_of_tools_and_modules_are_not_part_of_the_result(noisy: Shell) -> None:
    words = ("run", "Go.", "--tools", "noisy.py", "--model", "scripted:script.jsonl")
    streamed = noisy.vaka(*words, "--output", "stream-json")
    assert (streamed.code, streamed.lines[0]["type"], streamed.lines[-1]["type"]) == (0, "session", "result")
    assert set(PRINTED) <= set(streamed.err.splitlines())
    assert noisy.vaka(*words).out == "Done.\n"


def test_a_tool_call_prints_its_result_alone(noisy: Shell) -> None:
    called = noisy.vaka("tools", "call", "shout", "{}", "--tools", "noisy.py")
    assert (called.code, "quiet" in str(called.json)) == (0, True)
    listed = noisy.vaka("tools", "list", "--json", "--tools", "noisy.py")
    assert "shout" in listed.out
    assert listed.json
    assert "printed at import" in listed.err


def test_prints_do_no_harm_when_stderr_is_closed(noisy: Shell) -> None:
    line = "python -m vaka run Go. --tools noisy.py --model scripted:script.jsonl --output json 2>&-"
    done = noisy.bash(line)
    assert (done.code, done.json["status"]) == (0, "completed")


def test_a_module_that_closes_stdout_does_not_lose_the_result(noisy: Shell) -> None:
    noisy.write_file(
        "closing.py", NOISY_FILE.replace("atexit.register", "sys.stdout.close(); sys.stdout = None; print")
    )
    noisy.write_script(say_line("Done."))
    done = noisy.vaka("run", "Go.", "--tools", "closing.py", "--model", "scripted:script.jsonl", "--output", "json")
    assert (done.code, done.json["status"]) == (0, "completed")
