"""Which tree a path belongs to, and what a folder above several trees lists."""

import pytest

from vaka.core.ports.files import FileInfo
from vaka.core.types.errors import ConfigError, FileError, FileMissing, FileRefused
from vaka.files.composite import CompositeFiles
from vaka.files.memory import MemoryFiles


class FailingFiles(MemoryFiles):
    """A tree that cannot be listed."""

    async def entries(self, path: str) -> list[FileInfo]:
        raise FileError("the disk failed")


def paths_of(entries: object) -> list[str]:
    assert isinstance(entries, list)
    return [info.path for info in entries]


async def test_a_prefix_matches_whole_names() -> None:
    default, memories = MemoryFiles(), MemoryFiles()
    files = CompositeFiles(default, {"/memories/": memories})
    await files.write("memories/x", b"theirs")
    await files.write("memoriesX", b"ours")
    await files.write("/memories/y", b"theirs")
    await files.write("a/memories/x", b"ours")
    assert paths_of(await memories.entries("")) == ["x", "y"]
    assert paths_of(await default.entries("")) == ["a", "memoriesX"]
    assert (await files.read("memories/x")).info.path == "memories/x"


async def test_the_longest_prefix_wins() -> None:
    default = MemoryFiles({"a/b/x": b"default"})
    outer = MemoryFiles({"b/x": b"outer"})
    inner = MemoryFiles({"x": b"inner"})
    files = CompositeFiles(default, {"a": outer, "a/b": inner})
    assert (await files.read("a/b/x")).data == b"inner"
    assert (await files.read("a/c/../b/x")).data == b"inner"
    await files.write("a/bc", b"outer")
    assert (await outer.read("bc")).data == b"outer"


async def test_a_folder_above_prefixes_lists_them_sorted() -> None:
    default = MemoryFiles({"z": b"", "memories": b"a file that is shadowed", "deep/own": b""})
    twice = MemoryFiles({"x": b""})
    files = CompositeFiles(default, {"memories": twice, "again": twice, "deep/er/still": twice, "alone/here": twice})
    for root in ("", ".", "/"):
        assert paths_of(await files.entries(root)) == ["again", "alone", "deep", "memories", "z"]
    assert paths_of(await files.entries("deep")) == ["deep/er", "deep/own"]
    assert paths_of(await files.entries("deep/er")) == ["deep/er/still"]
    assert paths_of(await files.entries("alone")) == ["alone/here"]
    for prefix in ("memories", "again", "deep/er/still", "alone/here"):
        assert paths_of(await files.entries(prefix)) == [f"{prefix}/x"]
        assert (await files.stat(prefix)).kind == "folder"
    for implied in ("alone", "deep/er"):
        assert (await files.stat(implied)) == FileInfo(path=implied, kind="folder")
    with pytest.raises(FileMissing):
        await files.entries("deep/nothing")


async def test_folders_with_mounted_trees_are_neither_written_nor_deleted() -> None:
    files = CompositeFiles(MemoryFiles({"deep/x": b""}), {"deep/er": MemoryFiles()})
    for attempt in (files.write("deep", b""), files.read("deep"), files.write("deep/er", b"")):
        with pytest.raises(FileError):
            await attempt
    for path in ("", "deep", "deep/er"):
        with pytest.raises(FileRefused):
            await files.delete(path)


async def test_an_error_of_a_tree_names_its_prefix() -> None:
    files = CompositeFiles(FailingFiles(), {"deep/er": MemoryFiles(), "bad": FailingFiles()})
    with pytest.raises(FileError, match=r"^the disk failed"):
        await files.entries("")
    with pytest.raises(FileError, match=r"^in 'bad': the disk failed"):
        await files.entries("bad")
    with pytest.raises(FileMissing, match=r"^in 'deep/er': 'x'"):
        await files.read("deep/er/x")


def test_the_root_and_duplicate_prefixes_are_refused() -> None:
    for routes in ({"": MemoryFiles()}, {"a/..": MemoryFiles()}, {"a": MemoryFiles(), "/a/": MemoryFiles()}):
        with pytest.raises(ConfigError, match="prefix"):
            CompositeFiles(MemoryFiles(), routes)
    with pytest.raises(FileRefused):
        CompositeFiles(MemoryFiles(), {"../a": MemoryFiles()})
    assert CompositeFiles(MemoryFiles(), {}).root == ""
