"""The record of the files before and after a command, in a tree of many files, compared with ``git status``."""

import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.row import Row
from vaka.core.types.ids import CallId, SessionId
from vaka.files.command_changes import CommandRecorder
from vaka.stores.memory import MemoryStore

TARGET = 4.0
"""Times ``git status``, for the two records of one command."""
_REPEATS = 5


def make_repository(root: Path, files: int) -> None:
    """Make a repository of small files with one commit."""
    for number in range(files):
        folder = root / f"package{number % 200}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}.txt").write_text(f"line {number}\n" * 10)
    for arguments in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True)


def time_status(root: Path) -> float:
    start = time.perf_counter()
    subprocess.run(["git", "--no-optional-locks", "status", "--porcelain"], cwd=root, check=True, capture_output=True)
    return (time.perf_counter() - start) * 1000


async def time_command(recorder: CommandRecorder, change: Callable[[], object]) -> float:
    """Return the milliseconds of both records of a command, without the command."""
    start = time.perf_counter()
    begun = await recorder.begin_command(CallId("c"), "command")
    before = time.perf_counter() - start
    change()
    start = time.perf_counter()
    await recorder.end_command(begun, SessionId("s"))
    return (before + time.perf_counter() - start) * 1000


async def measure(files: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "work")
        make_repository(root, files)
        recorder = CommandRecorder([str(root)], Path(folder, "records"), MemoryStore().blobs)
        first = await time_command(recorder, lambda: None)
        plain: list[float] = []
        recorded: list[float] = []
        for number in range(_REPEATS):
            plain.append(time_status(root))
            recorded.append(await time_command(recorder, partial((root / "new.txt").write_text, str(number))))
    raw, value = statistics.median(plain), statistics.median(recorded)
    return [
        Row(name=f"record of the first command, {files:,} files", value=first, unit="ms", note="once for a folder"),
        Row(
            name=f"records of a command / git status, {files:,} files",
            value=value / raw,
            unit="×",
            target=TARGET,
            raw=raw,
            ratio=value / raw,
            note=f"{value:.0f} ms",
        ),
    ]


def measure_records(quick: bool) -> list[Row]:
    return asyncio.run(measure(2_000 if quick else 20_000))
