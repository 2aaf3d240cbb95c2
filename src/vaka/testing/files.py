"""The contract suite of file trees: subclass ``FilesContract`` and give it your files.

::

    class TestMyFiles(FilesContract):
        @pytest.fixture
        def files(self) -> Files: ...

A tree that is a folder of this machine also takes ``FolderContract``, with a fixture ``folder`` that returns its path.
``kill_at_failpoint`` kills this process at a failpoint of a write.
"""
# ruff: noqa: S101  # a contract suite is made of asserts

import asyncio
import hashlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vaka.core.ports.files import FileInfo, Files, WalkableFiles
from vaka.core.types.errors import FileChanged, FileError, FileMissing, FileRefused, InvalidInput
from vaka.core.types.ids import Digest
from vaka.files import atomic_write

WRITE_FAILPOINTS = (
    "write.after_create",
    "write.after_data",
    "write.before_rename",
    "write.after_rename",
    "write.before_return",
)
"""Failpoints of a write, in order."""

UNUSUAL_NAMES = [
    "a..b",
    "...",
    "..a",
    "-rf",
    "a b",
    " a",
    "a ",
    "a\nb",
    "~",
    "~root",
    "%41",
    "%",
    "*",
    "?",
    "[x]",
    "{a,b}",
    "\\",
    "C:",
    "CON",
    "é",
    "e\u0301",
    "日本",
    "🛶",
    "\u202e",
    "'; rm -rf $HOME",
    "A",
    "a",
    "caf\udce9",
    "x" * 255,
    "é" * 127,
]
"""Unusual names that are valid."""

IMPOSSIBLE_PATHS = ["a\0b", "x" * 256, "é" * 128, "/".join(["x" * 200] * 30), "half \ud800", "a/b\0"]
"""Paths that no file can have."""

PathAction = Callable[[str], Awaitable[object]]


def kill_at_failpoint(failpoint_name: str) -> None:
    """From now on, kill this process (``SIGKILL``) when a write reaches a failpoint."""
    if failpoint_name not in WRITE_FAILPOINTS:
        raise InvalidInput(f"a write has no failpoint {failpoint_name!r}; expected one of {WRITE_FAILPOINTS}")

    def hit(name: str) -> None:
        if name == failpoint_name:
            os.kill(os.getpid(), signal.SIGKILL)

    atomic_write.on_failpoint = hit


def sha256_digest(data: bytes) -> Digest:
    """Return the digest of content, for ``known``."""
    return Digest(hashlib.sha256(data).hexdigest())


def path_actions(files: Files) -> list[PathAction]:
    """Return every operation on a path; ``delete`` is the last."""
    return [files.stat, files.entries, files.read, lambda path: files.write(path, b"leaked"), files.delete]


async def expect_error(error: type[Exception], actions: Iterable[PathAction], *paths: str) -> None:
    """Assert that every action on every path raises ``error``."""
    for path in paths:
        for action in actions:
            with pytest.raises(error):
                await action(path)


class FilesContract:
    """The contract of every tree. ``prefix`` is what its paths begin with, such as ``memories/``."""

    prefix = ""

    def path_in_tree(self, path: str) -> str:
        """Return a path with the prefix of this tree."""
        return (self.prefix + path) if path else self.prefix.rstrip("/")

    async def list_names(self, files: Files, path: str = "") -> list[str]:
        return [info.path.rpartition("/")[2] for info in await files.entries(self.path_in_tree(path))]

    @pytest.mark.parametrize(
        "data", [b"", b"hello", bytes(range(256)), b"\r\n\0", "🛶".encode() * 9, os.urandom(700_000)], ids=len
    )
    async def test_written_data_is_read(self, files: Files, data: bytes) -> None:
        path = self.path_in_tree("a/b/file.bin")
        written = await files.write(path, data)
        found = await files.read(path)
        assert found.data == data
        assert found.info == written == await files.stat(path)
        assert (written.path, written.kind, written.size, written.target) == (path, "file", len(data), "")
        assert written.modified > 1_500_000_000_000_000_000

    async def test_a_second_write_replaces_the_whole_file(self, files: Files) -> None:
        path = self.path_in_tree("a")
        first = await files.write(path, b"x" * 300_000)
        second = await files.write(path, b"short")
        assert (await files.read(path)).data == b"short"
        assert second.modified >= first.modified

    @pytest.mark.parametrize("size", [10, 500_000])
    async def test_a_range_of_a_file_is_read(self, files: Files, size: int) -> None:
        path, data = self.path_in_tree("ranges"), os.urandom(size)
        await files.write(path, data)
        for start in (0, 1, size // 2, size - 1, size, size + 5):
            for count in (None, 0, 1, size // 3, size, size * 2):
                found = await files.read(path, start=start, size=count)
                assert found.data == data[start : None if count is None else start + count]
                assert found.info.size == size

    async def test_a_negative_range_is_invalid_input(self, files: Files) -> None:
        await files.write(self.path_in_tree("a"), b"x")
        for start, size in ((-1, None), (0, -1)):
            with pytest.raises(InvalidInput):
                await files.read(self.path_in_tree("a"), start=start, size=size)

    async def test_a_path_that_does_not_exist_is_missing(self, files: Files) -> None:
        await files.write(self.path_in_tree("there/file"), b"x")
        paths = map(self.path_in_tree, ("gone", "there/gone", "gone/x/y", "there/file/x"))
        await expect_error(FileMissing, (files.stat, files.entries, files.read, files.delete), *paths)

    async def test_a_folder_is_not_a_file_and_a_file_is_not_a_folder(self, files: Files) -> None:
        await files.write(self.path_in_tree("folder/file"), b"x")
        for attempt in (
            files.read(self.path_in_tree("folder")),
            files.read(self.path_in_tree("")),
            files.entries(self.path_in_tree("folder/file")),
            files.write(self.path_in_tree("folder"), b""),
            files.write(self.path_in_tree(""), b""),
            files.write(self.path_in_tree("folder/file/x"), b""),
        ):
            with pytest.raises(FileError) as caught:
                await attempt
            assert not isinstance(caught.value, FileMissing | FileChanged)
        assert (await files.read(self.path_in_tree("folder/file"))).data == b"x"

    async def test_the_root_is_a_folder_from_the_start(self, files: Files) -> None:
        info = await files.stat(self.path_in_tree(""))
        assert (info.path, info.kind) == (self.path_in_tree(""), "folder")
        assert await self.list_names(files) == []

    async def test_entries_are_sorted_and_have_their_whole_path(self, files: Files) -> None:
        for path in ("b/2", "b/10", "b/1", "a", "c/d/e", "B"):
            await files.write(self.path_in_tree(path), path.encode())
        assert await self.list_names(files) == ["B", "a", "b", "c"]
        found = await files.entries(self.path_in_tree("b"))
        assert [(info.path, info.kind, info.size) for info in found] == [
            (self.path_in_tree("b/1"), "file", 3),
            (self.path_in_tree("b/10"), "file", 4),
            (self.path_in_tree("b/2"), "file", 3),
        ]
        kinds = [info.kind for info in await files.entries(self.path_in_tree(""))]
        assert kinds == ["file", "file", "folder", "folder"]
        for info in found:
            assert await files.stat(info.path) == info

    async def test_a_write_with_a_stale_known_digest_is_refused(self, files: Files) -> None:
        path = self.path_in_tree("a/known")
        await files.write(path, b"one")
        await files.write(path, b"two", known=sha256_digest(b"one"))
        with pytest.raises(FileChanged):
            await files.write(path, b"three", known=sha256_digest(b"one"))
        assert (await files.read(path)).data == b"two"
        assert await self.list_names(files, "a") == ["known"]

    async def test_a_write_with_a_known_digest_of_a_missing_file_is_refused(self, files: Files) -> None:
        for path in ("gone", "no/folder"):
            with pytest.raises(FileChanged):
                await files.write(self.path_in_tree(path), b"x", known=sha256_digest(b""))
        assert await self.list_names(files) == []

    async def test_a_write_with_new_requires_that_no_file_exists(self, files: Files) -> None:
        path = self.path_in_tree("a/new")
        await files.write(path, b"one", new=True)
        with pytest.raises(FileChanged):
            await files.write(path, b"two", new=True)
        assert (await files.read(path)).data == b"one"
        with pytest.raises(InvalidInput):
            await files.write(path, b"two", new=True, known=sha256_digest(b"one"))

    @pytest.mark.parametrize("known", [True, False])
    async def test_of_concurrent_writes_with_one_known_digest_one_succeeds(self, files: Files, known: bool) -> None:
        path = self.path_in_tree("contested")
        if known:
            await files.write(path, b"start")
        expected = sha256_digest(b"start") if known else None

        async def attempt(number: int) -> int | None:
            try:
                await files.write(path, b"%d" % number, known=expected, new=not known)
            except FileChanged:
                return None
            return number

        won = [number for number in await asyncio.gather(*map(attempt, range(12))) if number is not None]
        assert len(won) == 1
        assert (await files.read(path)).data == b"%d" % won[0]

    async def test_a_reader_never_sees_half_a_file(self, files: Files) -> None:
        path, whole = self.path_in_tree("whole"), [b"a" * 400_000, b"b" * 390_000]
        await files.write(path, whole[0])

        async def write() -> None:
            for number in range(6):
                await files.write(path, whole[number % 2])

        writing = asyncio.create_task(write())
        while not writing.done():
            assert (await files.read(path)).data in whole
            await asyncio.sleep(0)
        await writing

    async def test_a_deleted_file_is_gone(self, files: Files) -> None:
        await files.write(self.path_in_tree("a/one"), b"1")
        await files.write(self.path_in_tree("a/two"), b"2")
        await files.delete(self.path_in_tree("a/one"))
        assert await self.list_names(files, "a") == ["two"]
        with pytest.raises(FileMissing):
            await files.delete(self.path_in_tree("a/one"))

    async def test_only_empty_folders_are_deleted(self, files: Files) -> None:
        await files.write(self.path_in_tree("a/b/c"), b"1")
        await expect_error(FileError, [files.delete], *map(self.path_in_tree, ("a", "a/b")))
        await files.delete(self.path_in_tree("a/b/c"))
        for path in ("a/b", "a"):
            try:
                await files.delete(self.path_in_tree(path))
            except FileMissing:
                continue  # a tree whose folders vanish with their last file
        assert await self.list_names(files) == []

    async def test_the_root_cannot_be_deleted(self, files: Files) -> None:
        with pytest.raises(FileRefused):
            await files.delete(self.path_in_tree(""))

    async def test_a_path_that_leaves_the_root_is_refused(self, files: Files) -> None:
        await files.write(self.path_in_tree("a/x"), b"x")
        up = "../" * (self.prefix.count("/") + 1)
        relative = map(self.path_in_tree, (f"{up}x", f"a/../{up}x", f"a/{up}../etc/passwd"))
        absolute = ("/etc/passwd", "//x", "/proc/self/environ", "/proc/self/cwd/x", "/../x")
        await expect_error(FileRefused, path_actions(files), *relative, *absolute)

    @pytest.mark.parametrize("path", IMPOSSIBLE_PATHS, ids=repr)
    async def test_an_impossible_path_is_refused(self, files: Files, path: str) -> None:
        for action in path_actions(files):
            with pytest.raises(FileRefused) as caught:
                await action(self.path_in_tree(path))
            str(caught.value).encode()  # the message has no lone surrogate
            assert len(str(caught.value)) < 1000

    async def test_different_spellings_of_a_path_are_one_path(self, files: Files) -> None:
        path = self.path_in_tree("a/b")
        await files.write(path, b"x")
        for way in ("a//b", "./a/b", "a/./b", "a/b/", "a/c/../b", "a/../a/b", "x/y/../../a/b"):
            assert (await files.read(self.path_in_tree(way))).info.path == path

    async def test_unusual_names_are_only_names(self, files: Files) -> None:
        for name in UNUSUAL_NAMES:
            await files.write(self.path_in_tree(f"odd/{name}"), repr(name).encode())
        assert await self.list_names(files, "odd") == sorted(UNUSUAL_NAMES)
        for name in UNUSUAL_NAMES:
            assert (await files.read(self.path_in_tree(f"odd/{name}"))).data == repr(name).encode()
            assert (await files.stat(self.path_in_tree(f"odd/{name}"))).path == self.path_in_tree(f"odd/{name}")
            await files.delete(self.path_in_tree(f"odd/{name}"))

    async def test_names_that_are_not_utf_8_appear_safely_in_messages(self, files: Files) -> None:
        await files.write(self.path_in_tree("caf\udce9/x"), b"1")
        assert await self.list_names(files) == ["caf\udce9"]
        assert (await files.read(self.path_in_tree("caf\udce9/x"))).data == b"1"
        with pytest.raises(FileMissing) as caught:
            await files.read(self.path_in_tree("caf\udce9/y"))
        assert "caf" in str(caught.value).encode().decode()

    async def test_escaped_utf_8_bytes_are_decoded(self, files: Files) -> None:
        await files.write(self.path_in_tree("caf\udcc3\udca9"), b"1")
        assert await self.list_names(files) == ["café"]

    async def test_a_walk_finds_everything_that_git_would_not_ignore(self, files: Files) -> None:
        for path in ("a/one", "a/b/two", "a/b/two.log", ".hidden", "skipped/x", "c/keep.log"):
            await files.write(self.path_in_tree(path), b"12345")
        await files.write(self.path_in_tree(".gitignore"), b"*.log\n/skipped/\n")
        await files.write(self.path_in_tree("c/.gitignore"), b"!keep.log\n")
        assert isinstance(files, WalkableFiles)
        found = [info async for info in files.walk(self.path_in_tree(""), details=True)]
        found_files = sorted((info.path, info.kind, info.size) for info in found if info.kind == "file")
        assert found_files == [(self.path_in_tree(path), "file", 5) for path in ("a/b/two", "a/one", "c/keep.log")]
        folders = sorted(info.path for info in found if info.kind == "folder")
        assert folders == [self.path_in_tree(path) for path in ("a", "a/b", "c")]
        everything = [info.path async for info in files.walk(self.path_in_tree(""), ignore=False, hidden=True)]
        assert len(everything) == 12
        assert [info.path async for info in files.walk(self.path_in_tree("a/b"))] == [self.path_in_tree("a/b/two")]

    async def test_a_path_of_100_folders_is_written(self, files: Files) -> None:
        path = self.path_in_tree("/".join(["d"] * 100))
        await files.write(path, b"deep")
        assert (await files.read(path)).data == b"deep"


@contextmanager
def make_special_files(folder: Path) -> Generator[list[str]]:
    """Create a pipe and a socket in a folder."""
    os.mkfifo(folder / "pipe")
    cwd = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(folder)  # the address of a socket must be short
        try:
            listening.bind("socket")
        finally:
            os.chdir(cwd)
        yield ["pipe", "socket"]


class FolderContract(FilesContract):
    """The contract of a tree that is a folder of this machine. ``folder`` is its path, empty at first."""

    @pytest.fixture
    def outside(self, tmp_path: Path) -> Iterator[Path]:
        """A folder beside the root that must stay as it is."""
        outside = tmp_path / "outside"
        (outside / "inner").mkdir(parents=True)
        (outside / "secret").write_text("secret")
        (outside / "inner" / "secret").write_text("secret")
        yield outside
        found = {str(path.relative_to(outside)) for path in outside.rglob("*")}
        assert found == {"secret", "inner", "inner/secret"}
        assert [(outside / name).read_text() for name in ("secret", "inner/secret")] == ["secret", "secret"]

    async def test_links_that_stay_inside_are_followed_for_reading(self, files: Files, folder: Path) -> None:
        (folder / "real").mkdir()
        (folder / "real" / "file").write_text("inside")
        links = {
            "file": "real/file",
            "folder": "real",
            "up": "real/../real/file",
            "absolute": str(folder / "real" / "file"),
            "chain": "file",
            "real/back": "../real/./file",
            "whole": ".",
            "absolute-folder": str(folder / "real"),
        }
        for link, target in links.items():
            (folder / link).symlink_to(target)
        for path in (
            "file",
            "folder/file",
            "up",
            "absolute",
            "chain",
            "real/back",
            "whole/whole/file",
            "folder/back",
            "absolute-folder/file",
            "whole/absolute-folder/back",
        ):
            assert (await files.read(self.path_in_tree(path))).data == b"inside"
            info = await files.stat(self.path_in_tree(path))
            assert (info.path, info.kind, info.size) == (self.path_in_tree(path), "file", 6)
        assert await self.list_names(files, "folder") == ["back", "file"]
        entries = {info.path: (info.kind, info.target) for info in await files.entries(self.path_in_tree(""))}
        assert entries[self.path_in_tree("file")] == ("link", "real/file")
        assert entries[self.path_in_tree("folder")] == ("link", "real")

    async def test_nothing_is_written_through_a_link(self, files: Files, folder: Path) -> None:
        (folder / "real").mkdir()
        (folder / "real" / "file").write_text("inside")
        (folder / "file").symlink_to("real/file")
        (folder / "folder").symlink_to("real")
        (folder / "nowhere").symlink_to("real/not-yet")
        paths = map(self.path_in_tree, ("file", "folder/file", "folder/new", "folder/deep/new", "nowhere", "folder"))
        await expect_error(FileRefused, [lambda path: files.write(path, b"changed")], *paths)
        await expect_error(FileRefused, [files.delete], self.path_in_tree("folder/file"))
        assert (folder / "real" / "file").read_text() == "inside"
        assert os.listdir(folder / "real") == ["file"]  # noqa: PTH208  # also files that the tree does not list

    async def test_a_link_is_deleted_and_not_what_it_leads_to(self, files: Files, folder: Path, outside: Path) -> None:
        (folder / "real").write_text("inside")
        for name, target in (("in", "real"), ("out", str(outside)), ("nowhere", "gone")):
            (folder / name).symlink_to(target)
            await files.delete(self.path_in_tree(name))
        assert await self.list_names(files) == ["real"]

    async def test_links_that_leave_the_root_are_refused(self, files: Files, folder: Path, outside: Path) -> None:
        (folder / "inside").mkdir()
        leaving: dict[str, Path | str] = {
            "file": outside / "secret",
            "folder": outside,
            "not-yet": outside / "not-yet",
            "passwd": "/etc/passwd",  # nosec B105  # a path
            "up": "../" * 60 + "etc/passwd",
            "parent": "..",
            "chain": "folder/secret",
            "inside/out": "../../outside/secret",
            "root": "/",
            "self": "/proc/self/environ",
            "cwd": "/proc/self/cwd",
            "sly": str(folder) + "/../outside/secret",
            "near": str(folder) + "-sibling",
            "fd": "/dev/fd/0",
        }
        for link, target in leaving.items():
            (folder / link).symlink_to(target)
        await expect_error(FileRefused, path_actions(files)[:-1], *map(self.path_in_tree, leaving))
        behind = ("folder/secret", "folder/new", "folder/inner/secret", "parent/outside/secret", "root/etc/passwd")
        await expect_error(FileRefused, path_actions(files), *map(self.path_in_tree, behind))
        assert {info.kind for info in await files.entries(self.path_in_tree(""))} == {"link", "folder"}

    async def test_circular_links_are_refused(self, files: Files, folder: Path) -> None:
        (folder / "a").symlink_to("b")
        (folder / "b").symlink_to("a")
        (folder / "me").symlink_to("me/me")
        for number in range(60):
            (folder / f"hop{number}").symlink_to(f"hop{number + 1}")
        paths = map(self.path_in_tree, ("a", "me", "a/x", "hop0"))
        await expect_error(FileRefused, (files.stat, files.entries, files.read), *paths)

    async def test_special_files_are_refused_without_blocking(self, files: Files, folder: Path) -> None:
        with make_special_files(folder) as names:
            (folder / "link").symlink_to("pipe")
            await expect_error(FileRefused, path_actions(files), *map(self.path_in_tree, names))
            await expect_error(FileRefused, path_actions(files)[:-1], self.path_in_tree("link"))
            kinds = {info.path: info.kind for info in await files.entries(self.path_in_tree(""))}
        expected = {"link": "link", "pipe": "other", "socket": "other"}
        assert kinds == {self.path_in_tree(name): kind for name, kind in expected.items()}

    async def test_a_write_preserves_the_mode(self, files: Files, folder: Path) -> None:
        for mode in (0o600, 0o644, 0o755, 0o640, 0o664):
            (folder / "file").write_text("old")
            (folder / "file").chmod(mode)
            info = await files.write(self.path_in_tree("file"), b"new")
            assert (info.mode, (folder / "file").stat().st_mode & 0o7777) == (mode, mode)

    async def test_new_files_have_the_default_mode(self, files: Files, folder: Path) -> None:
        (folder / "theirs").write_text("made by them")
        await files.write(self.path_in_tree("ours"), b"made by us")
        assert (folder / "ours").stat().st_mode == (folder / "theirs").stat().st_mode

    async def test_a_write_clears_setuid_and_setgid(self, files: Files, folder: Path) -> None:
        (folder / "file").write_text("old")
        (folder / "file").chmod(0o6755)
        assert (await files.write(self.path_in_tree("file"), b"new")).mode == 0o755

    async def test_changes_by_other_programs_are_seen(self, files: Files, folder: Path) -> None:
        (folder / "theirs").write_bytes(b"1")
        info: FileInfo = (await files.read(self.path_in_tree("theirs"))).info
        (folder / "theirs").write_bytes(b"22")
        with pytest.raises(FileChanged):
            await files.write(self.path_in_tree("theirs"), b"3", known=sha256_digest(b"1"))
        os.utime(folder / "theirs", ns=(1, info.modified + 1))
        assert (await files.stat(self.path_in_tree("theirs"))).modified == info.modified + 1

    async def test_a_huge_file_is_read_by_ranges_only(self, files: Files, folder: Path) -> None:
        with (folder / "sparse").open("wb") as file:
            file.seek(1 << 40)
            file.write(b"end")
        assert (await files.stat(self.path_in_tree("sparse"))).size == (1 << 40) + 3
        assert (await files.read(self.path_in_tree("sparse"), start=1 << 40)).data == b"end"
        assert (await files.read(self.path_in_tree("sparse"), start=5, size=4)).data == bytes(4)
        with pytest.raises(FileError, match="ranges"):
            await files.read(self.path_in_tree("sparse"))

    async def test_a_refused_write_leaves_nothing_behind(self, files: Files, folder: Path) -> None:
        (folder / "file").write_text("old")
        for attempt in (
            files.write(self.path_in_tree("file"), b"x", known=sha256_digest(b"other")),
            files.write(self.path_in_tree("file"), b"x", new=True),
        ):
            with pytest.raises(FileChanged):
                await attempt
        assert os.listdir(folder) == ["file"]  # noqa: PTH208  # also files that the tree does not list

    async def test_a_folder_of_ten_thousand_is_listed(self, files: Files, folder: Path) -> None:
        (folder / "many").mkdir()
        for number in range(10_000):
            (folder / "many" / f"{number:05}").touch()
        assert await self.list_names(files, "many") == [f"{number:05}" for number in range(10_000)]
