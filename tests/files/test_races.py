"""Races with other processes, and crashes: no path leaves the root, and no file is written in part."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.files.programs import crash_in_write, increment, swap_folder
from vaka.core.types.errors import FileError, FileRefused
from vaka.files.disk import DiskFiles
from vaka.files.safe_open import OpenerName
from vaka.testing.files import WRITE_FAILPOINTS, sha256_digest

OPENERS: tuple[OpenerName, ...] = ("openat2", "walk")
SECRET = b"secret"


def command_for(module: object, *arguments: object) -> list[str]:
    return [sys.executable, str(getattr(module, "__file__", "")), *map(str, arguments)]


@contextmanager
def swap_in_background(folder: Path, outside: Path) -> Generator[subprocess.Popen[bytes]]:
    """Run a process that repeatedly swaps a folder for a link to a folder outside the root."""
    command = command_for(swap_folder, folder, outside)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        try:
            yield other
        finally:
            other.communicate(b"stop\n")
    assert other.returncode == 0


async def attempt_operation(files: DiskFiles, number: int) -> str:
    """Read, write or list a path that alternates between inside and outside the root; return the outcome."""
    path = "shared/file"
    try:
        match number % 4:
            case 0 | 1:
                data = (await files.read(path)).data
                assert data == b"inside"
            case 2:
                await files.write(f"shared/new{number % 3}", b"written")
            case _:
                assert "marker" in [info.path.rpartition("/")[2] for info in await files.entries("shared")]
    except FileRefused:
        return "refused"
    except FileError as error:
        assert "keeps changing" in str(error)  # noqa: PT017  # the only other message that is allowed
        return "busy"
    return "done"


async def run_race(tmp_path: Path, way: OpenerName, times: int) -> Counter[str]:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder, text in ((root / "shared", b"inside"), (outside, SECRET)):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(text)
    (root / "shared" / "marker").touch()
    files = DiskFiles(root, opener=way)
    with swap_in_background(root / "shared", outside):
        came = Counter([await attempt_operation(files, number) for number in range(times)])
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"file": SECRET}
    return came


@pytest.mark.parametrize("way", OPENERS)
async def test_a_folder_swapped_for_a_link_leaks_nothing(tmp_path: Path, way: OpenerName) -> None:
    came = await run_race(tmp_path, way, 2_000)
    assert came.total() == 2_000
    assert came["done"] > 0


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", OPENERS)
async def test_a_folder_swapped_for_a_link_leaks_nothing_in_twenty_thousand_tries(
    tmp_path: Path, way: OpenerName
) -> None:
    came = await run_race(tmp_path, way, 20_000)
    assert came.total() == 20_000
    assert came["done"] > 100
    assert came["refused"] > 100


async def test_the_race_would_find_a_leak(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder, text in ((root / "shared", b"inside"), (outside, SECRET)):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(text)
    target = root / "shared" / "file"
    with swap_in_background(root / "shared", outside):
        for _ in range(1_000_000):
            try:
                leaked = target.resolve().is_relative_to(root) and target.read_bytes() == SECRET
            except OSError:
                continue
            if leaked:
                return
    pytest.fail("looking first and opening then did not leak: the race is none")


@pytest.mark.parametrize("place", WRITE_FAILPOINTS)
@pytest.mark.parametrize("old", [b"old" * 100_000, None], ids=["replaced", "new"])
async def test_a_write_that_is_killed_leaves_the_old_or_the_new(tmp_path: Path, place: str, old: bytes | None) -> None:
    new = b"new!" * 200_000
    if old is not None:
        (tmp_path / "file").write_bytes(old)
    done = subprocess.run(command_for(crash_in_write, tmp_path, "file", place), input=new, check=False)
    assert done.returncode == -9
    renamed = place in {"write.after_rename", "write.before_return"}
    found = (tmp_path / "file").read_bytes() if (tmp_path / "file").exists() else None
    assert found == (new if renamed else old)
    left = [name for name in os.listdir(tmp_path) if name != "file"]  # noqa: PTH208  # names are wanted
    assert len(left) == (0 if renamed else 1)

    files = DiskFiles(tmp_path)
    assert [info.path for info in await files.entries("")] == (["file"] if found is not None else [])
    await files.write("other", b"x")
    assert {path.name for path in tmp_path.iterdir()} == {"other"} | ({"file"} if found is not None else set())


async def test_the_temporary_file_of_a_running_writer_is_not_removed(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    await asyncio.gather(*(DiskFiles(tmp_path).write(f"file{number}", b"x" * 100_000) for number in range(40)))
    assert len(await files.entries("")) == 40


async def test_an_empty_folder_is_deleted_with_stale_temporary_files(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    subprocess.run(command_for(crash_in_write, tmp_path, "folder/file", "write.after_data"), input=b"x", check=False)
    await DiskFiles(tmp_path).delete("folder")
    assert list(tmp_path.iterdir()) == []


async def test_concurrent_writes_with_known_lose_no_update(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    command = command_for(increment, tmp_path, "number", 40)
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "120"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


async def test_a_locked_file_is_replaced_when_the_lock_is_released(tmp_path: Path) -> None:
    files, path = DiskFiles(tmp_path), tmp_path / "file"
    path.write_text("x")
    holding = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", holding, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        writing = asyncio.create_task(files.write("file", b"y", known=sha256_digest(b"x")))
        assert path.read_text() == "x"
        other.communicate(b"")
    await writing
    assert path.read_text() == "y"
