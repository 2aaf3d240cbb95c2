"""Grep: the limits of results and of time."""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.harness import ToolHarness, child_processes
from vaka.core.types.errors import FileError
from vaka.tools.builtin.regex_worker import MATCH_SECONDS, TIMEOUT_SIGNAL
from vaka.tools.builtin.search.grep import TIMEOUT_SECONDS, GrepEngine, GrepResult, run_grep
from vaka.tools.builtin.search.ripgrep import run_confined

pytestmark = pytest.mark.every_loop
needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")


@pytest.fixture
def bench(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path)


@pytest.fixture(params=["python", pytest.param("ripgrep", marks=needs_ripgrep)])
def engine(request: pytest.FixtureRequest) -> GrepEngine:
    chosen: GrepEngine = request.param
    return chosen


async def grep(bench: ToolHarness, engine: GrepEngine, pattern: str, **more: Any) -> GrepResult:
    return await run_grep(bench.files, {"pattern": pattern, **more}, engine=engine)


async def grep_until_busy(bench: ToolHarness, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]) -> GrepResult:
    """Search with Python, and let the time expire when a pattern has kept the worker busy for a while."""
    limits = record_timeouts(monkeypatch)
    search = asyncio.create_task(run_grep(bench.files, given, engine="python"))
    await asyncio.to_thread(wait_for_work, "regex_worker.py")
    limits[TIMEOUT_SECONDS].reschedule(0.0)
    return await search


def record_timeouts(monkeypatch: pytest.MonkeyPatch) -> dict[float | None, asyncio.Timeout]:
    """Return the time limits that begin from now on, by their length. A loop of uvloop has no clock to set forward."""
    recorded: dict[float | None, asyncio.Timeout] = {}
    start = asyncio.timeout

    def start_recorded(delay: float | None) -> asyncio.Timeout:
        recorded[delay] = start(delay)
        return recorded[delay]

    monkeypatch.setattr(asyncio, "timeout", start_recorded)
    return recorded


def wait_for_work(program: str) -> None:
    """Wait until a child process has used more processor time than its start needs."""
    while not any(has_worked(folder, program) for folder in Path("/proc").iterdir()):
        os.sched_yield()


def has_worked(folder: Path, program: str) -> bool:
    try:
        if program not in (folder / "cmdline").read_text():
            return False
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return False
    return fields[1] == str(os.getpid()) and int(fields[11]) > os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("multiline", [False, True])
async def test_a_pattern_that_never_ends_is_stopped_at_its_limit_of_processor_time(
    bench: ToolHarness, multiline: bool
) -> None:
    assert MATCH_SECONDS == 2.0
    bench.write("a.txt", "aaac\n")
    bench.write("b.txt", "a" * 60 + "b\n")
    given = {"pattern": "(a+)+(?=c)", "multiline": multiline}
    result = await run_grep(bench.files, given, match_seconds=0.1)
    assert "stopped at 'b.txt' after 0.1 s, and files are missing" in result.text
    assert (result.value["files"], result.value["timed_out"]) == (["a.txt"], True)
    assert [command for command in child_processes() if "regex_worker.py" in command] == []


async def test_the_limit_holds_in_a_process_that_ignores_and_blocks_its_signal(bench: ToolHarness) -> None:
    bench.write("a.txt", "a" * 60 + "b\n")
    handler = signal.signal(TIMEOUT_SIGNAL, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {TIMEOUT_SIGNAL})
    try:
        result = await run_grep(bench.files, {"pattern": "(a+)+(?=c)"}, match_seconds=0.1)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(TIMEOUT_SIGNAL, handler)
    assert "stopped at 'a.txt' after 0.1 s" in result.text


async def test_the_limit_of_processor_time_begins_again_for_each_piece_of_a_file(bench: ToolHarness) -> None:
    bench.write("a.txt", ("a" * 19 + "b\n") * 100)
    bench.write("b.txt", "\n" * 3_000_000 + "aaac\n")
    result = await run_grep(bench.files, {"pattern": "a+(?=c)"}, match_seconds=1.0)
    assert result.value["files"] == ["b.txt"]


async def test_a_timeout_kills_the_python_worker(bench: ToolHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("a.txt", "a" * 60 + "b\n")
    result = await grep_until_busy(bench, monkeypatch, {"pattern": "(a+)+$"})
    assert f"stopped at 'a.txt' after {TIMEOUT_SECONDS:g} s, and files are missing" in result.text
    assert (result.value["truncated"], result.value["timed_out"]) == (True, True)
    assert [command for command in child_processes() if "regex_worker.py" in command or "/rg\0" in command] == []


async def test_a_search_that_is_stopped_returns_what_it_has_found(
    bench: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a.txt", "aaa\naaa\n")
    bench.write("b.txt", "a" * 60 + "b\n")
    given = {"pattern": "(a+)+$", "output_mode": "content"}
    result = await grep_until_busy(bench, monkeypatch, given)
    lines = result.text.splitlines()
    assert lines[:2] == ["a.txt:1: aaa", "a.txt:2: aaa"]
    assert "stopped at 'b.txt'" in lines[2]
    assert (result.value["total_matches"], result.value["truncated"]) == (2, True)


async def test_the_time_limit_includes_reading_the_pattern(bench: ToolHarness) -> None:
    bench.write("a.txt", "x\n")
    with pytest.raises(FileError, match="no time to search"):
        await run_grep(bench.files, {"pattern": r"(?=x)\p{L}{3}"}, engine="python", seconds=0.0)


async def test_results_beyond_the_limit_are_announced(bench: ToolHarness, engine: GrepEngine) -> None:
    bench.write("a.txt", "hit\n" * 300)
    result = await grep(bench, engine, "hit", output_mode="content")
    assert (len(result.value["matches"]), result.value["total_matches"], result.value["truncated"]) == (100, 300, True)
    last = await grep(bench, engine, "hit", output_mode="content", offset=200)
    assert (len(last.value["matches"]), last.value["truncated"]) == (100, False)


@needs_ripgrep
@pytest.mark.parametrize(("mode", "multiline"), [("content", False), ("content", True), ("count", False)])
async def test_a_search_with_ripgrep_that_is_stopped_returns_what_it_has_found(
    bench: ToolHarness, monkeypatch: pytest.MonkeyPatch, mode: str, multiline: bool
) -> None:
    bench.write("a.txt", "one hit\nno\nanother hit\n")
    bench.write("b.txt", os.urandom(1 << 22).translate(bytes(97 + number % 2 for number in range(256))))
    given = {"pattern": "hit|[ab]*a[ab]{90}c[ab]{3}", "output_mode": mode, "multiline": multiline}
    limits = record_timeouts(monkeypatch)
    search = asyncio.create_task(run_grep(bench.files, given, engine="ripgrep"))
    await asyncio.to_thread(wait_for_output, "/rg\0")
    limits[TIMEOUT_SECONDS].reschedule(0.0)
    result = await search
    found = {"content": ["a.txt:1: one hit", "a.txt:3: another hit"], "count": ["a.txt: 2"]}
    assert result.text.splitlines()[:-1] == found[mode]
    assert "the search was stopped after 45 s, and files are missing" in result.text
    assert (result.value["total_matches"], result.value["truncated"], result.value["timed_out"]) == (2, True, True)
    assert [command for command in child_processes() if "/rg\0" in command] == []


@pytest.mark.parametrize("turns", range(8))
async def test_a_program_that_is_cancelled_while_it_starts_has_ended_when_the_call_returns(
    tmp_path: Path, turns: int
) -> None:
    with (tmp_path / "out").open("wb") as output:
        run = run_confined(["/bin/sleep", "3599"], ["/"], cwd="/", output=output, errors=output)
        task = asyncio.create_task(run)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [command for command in child_processes() if "sleep\0003599" in command] == []


def wait_for_output(program: str) -> None:
    """Wait until a child process has written to its standard output, which is a file."""
    while not any(has_printed(folder, program) for folder in Path("/proc").iterdir()):
        os.sched_yield()


def has_printed(folder: Path, program: str) -> bool:
    try:
        if program not in (folder / "cmdline").read_text() or not (folder / "fd/1").stat().st_size:
            return False
        return f"\nPPid:\t{os.getpid()}\n" in (folder / "status").read_text()
    except OSError:
        return False


@needs_ripgrep
async def test_a_timeout_kills_ripgrep(bench: ToolHarness) -> None:
    os.mkfifo(bench.root / "fifo")
    bench.write("a.txt", "hit")
    assert (await grep(bench, "ripgrep", "hit")).text == "a.txt"  # a pipe is not opened
    with pytest.raises(FileError, match="there was no time to search: 'hit'"):
        await run_grep(bench.files, {"pattern": "hit"}, engine="ripgrep", seconds=0.0)
    assert [command for command in child_processes() if "regex_worker.py" in command or "/rg\0" in command] == []
