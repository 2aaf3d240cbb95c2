"""A walk yields the files that git would list, in every kind of tree."""

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vaka.core.ports.files import FileBytes, FileInfo, Files
from vaka.core.types.errors import FileError, FileMissing
from vaka.core.types.ids import Digest
from vaka.files.composite import CompositeFiles
from vaka.files.disk import DiskFiles
from vaka.files.memory import MemoryFiles
from vaka.files.walk import walk
from vaka.files.workspace import WorkspaceFiles


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8", newline="")


def run_git(folder: Path, *arguments: str) -> bytes:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, check=True).stdout


def init_and_list(folder: Path) -> list[str]:
    """Make a folder a repository and return the files that git does not ignore."""
    run_git(folder, "init", "-q")
    return list_not_ignored(folder)


def list_not_ignored(folder: Path) -> list[str]:
    listed = run_git(folder, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted(os.fsdecode(name) for name in listed.split(b"\0") if name)


async def list_walked(files: Files, start: str = "", *, hidden: bool = True, follow: bool = False) -> list[str]:
    async with aclosing(walk(files, start, hidden=hidden, follow=follow)) as entries:
        return sorted([info.path async for info in entries if info.kind in {"file", "link"}])


async def collect_into(seen: list[str], entries: AsyncGenerator[FileInfo]) -> None:
    async for info in entries:
        seen.append(info.path)  # noqa: PERF401  # entries before an error count


def count_open_fds() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


IGNORE_CASES: list[tuple[dict[str, str], list[str]]] = [
    ({".gitignore": "*.log\n!keep.log\n"}, ["a.log", "keep.log", "d/b.log", "d/keep.log"]),
    ({".gitignore": "build/\n"}, ["build/x", "a/build/x", "a/b/build", "builds/x"]),
    ({".gitignore": "/build\n"}, ["build/x", "a/build/x", "buildx"]),
    ({".gitignore": "a/b\n"}, ["a/b/x", "c/a/b/x", "a/bc"]),
    ({".gitignore": "a/**/z\n"}, ["a/z", "a/b/z", "a/b/c/z/x", "a/zz", "b/a/z"]),
    ({".gitignore": "**/deep\n"}, ["deep", "a/deep/x", "a/b/deep", "a/deeper"]),
    ({".gitignore": "logs/**\n!logs/keep\n"}, ["logs/a", "logs/keep", "logs/b/c", "x/logs/a"]),
    ({".gitignore": "**/a/**\n"}, ["a/x", "b/a/x/y", "c/d"]),
    ({".gitignore": "out/\n!out/keep\n"}, ["out/keep", "out/x"]),
    ({".gitignore": "*\n!*/\n!*.py\n"}, ["a.py", "a.txt", "d/b.py", "d/b.txt"]),
    ({".gitignore": "# comment\n\\#file\n\\!bang\n"}, ["#file", "!bang", "comment"]),
    ({".gitignore": "trailing   \nkept\\ \n"}, ["trailing", "kept ", "kept"]),
    (
        {".gitignore": "[abc].txt\n[!x]y\n[a-c]z\n[[:digit:]]n\n[]]q\n"},
        ["a.txt", "d.txt", "xy", "ay", "bz", "dz", "1n", "an", "]q"],
    ),
    ({".gitignore": "x?z\n*mid*\n"}, ["xyz", "xz", "x/z", "amidb", "mid", "d/amid"]),
    ({".gitignore": "crlf\r\nother\r\n"}, ["crlf", "other", "x"]),
    ({".gitignore": "\ufeffbom\n"}, ["bom", "x"]),
    ({".gitignore": "unclosed[\n\\\n/\n!\n//\n   \n"}, ["unclosed[", "\\", "a/b", "   "]),
    ({".gitignore": "*.a\n", "d/.gitignore": "!x.a\n*.b\n"}, ["x.a", "x.b", "d/x.a", "d/y.a", "d/x.b", "d/e/x.b"]),
    ({".gitignore": "d/\n", "d/.gitignore": "!*\n"}, ["d/x", "x"]),
    ({"d/.gitignore": "/x\ne/y\n"}, ["x", "d/x", "d/e/x", "d/e/y", "e/y", "d/f/e/y"]),
    ({".gitignore": "a**b\nc/**d\n"}, ["aXb", "ab", "a/b", "c/d", "c/xd", "c/x/d"]),
    ({".gitignore": "***\n!z\n"}, ["a", "z", "d/z"]),
    ({".gitignore": "foo/*\n!foo/bar\nfoo/bar/*\n!foo/bar/baz\n"}, ["foo/x", "foo/bar/x", "foo/bar/baz"]),
    ({".gitignore": "é\n日*\n"}, ["é", "日本", "e"]),
    ({".gitignore": "[\\]]x\n[a\\-z]y\n[z-a]w\n[^b]v\n"}, ["]x", "-y", "my", "zw", "av", "bv"]),
    ({".gitignore": "**\n!a\n"}, ["a", "b/a", "b/c"]),
    ({".gitignore": "a/\n**/\n!b/\n"}, ["a/x", "b/x", "c"]),
    ({".gitignore": ".*\n"}, [".hidden", "a/.hidden", "shown"]),
]


@pytest.mark.parametrize(("ignores", "paths"), IGNORE_CASES, ids=lambda value: repr(value)[:60])
async def test_files_that_git_ignores_are_left_out(tmp_path: Path, ignores: dict[str, str], paths: list[str]) -> None:
    write_files(tmp_path, {**dict.fromkeys(paths, ""), **ignores})
    expected = init_and_list(tmp_path)
    assert await list_walked(DiskFiles(tmp_path)) == expected
    assert await list_walked(WorkspaceFiles(tmp_path)) == expected
    memory = MemoryFiles({**dict.fromkeys(paths, b""), **{path: text.encode() for path, text in ignores.items()}})
    assert await list_walked(memory) == expected


# git is inconsistent about `**` beside other letters, so it is generated as a whole name only.
PATTERN_PIECES = st.sampled_from(["a", "b", "ab", "*", "?", "[ab]", "[!a]", "\\a", "a*", "*b", "#", " "])
NAMES = st.just("**") | st.lists(PATTERN_PIECES, max_size=3).map("".join)
PATTERNS = st.tuples(
    st.sampled_from(["", "", "/", "!"]), st.lists(NAMES, min_size=1, max_size=4), st.sampled_from(["", "/"])
)
LINES = st.lists(PATTERNS.map(lambda drawn: drawn[0] + "/".join(drawn[1]) + drawn[2]), max_size=6).map("\n".join)
PATHS = [
    "a",
    "b/a",
    "ab/b",
    "ab/a/b",
    "b/b/a",
    "b/ab",
    "c",
    "b/c/a",
    "b/c/ab",
    "ba",
    "aa/b",
    "aab",
    "b/aab",
    "#",
    "!a",
    "a b",
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    write_files(folder, dict.fromkeys(PATHS, ""))
    run_git(folder, "init", "-q")
    return folder


@given(top=LINES, deeper=LINES)
@example(top="a/**/**/b\n!**", deeper="/**")
@example(top="", deeper="**/**")
async def test_generated_rules_match_as_in_git(repository: Path, top: str, deeper: str) -> None:
    write_files(repository, {".gitignore": top, "b/.gitignore": deeper})
    assert await list_walked(DiskFiles(repository)) == list_not_ignored(repository)


async def test_rules_above_the_start_apply_but_not_to_the_start_itself(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        {".gitignore": "*.log\nvendor/\n", "src/a.log": "", "src/a.py": "", "vendor/x.py": "", "vendor/y.log": ""},
    )
    assert await list_walked(DiskFiles(tmp_path), "src") == ["src/a.py"]
    assert await list_walked(DiskFiles(tmp_path), "vendor") == ["vendor/x.py"]


async def test_the_exclude_file_of_a_clone_applies(tmp_path: Path) -> None:
    write_files(tmp_path, {"a": "", "b": "", "d/a": ""})
    run_git(tmp_path, "init", "-q")
    write_files(tmp_path, {".git/info/exclude": "a\n"})
    assert await list_walked(DiskFiles(tmp_path)) == ["b"]


async def test_a_nested_repository_has_only_its_own_rules(tmp_path: Path) -> None:
    write_files(
        tmp_path, {".gitignore": "*.log\n", "inner/.git/HEAD": "ref", "inner/a.log": "", "inner/.gitignore": "*.txt\n"}
    )
    write_files(tmp_path, {"inner/b.txt": "", "a.log": ""})
    assert await list_walked(DiskFiles(tmp_path)) == [".gitignore", "inner/.gitignore", "inner/a.log"]


async def test_without_ignore_everything_is_yielded(tmp_path: Path) -> None:
    write_files(tmp_path, {".gitignore": "*\n", ".git/HEAD": "", "a/b": "", ".h/c": ""})
    async with aclosing(walk(DiskFiles(tmp_path), ignore=False, hidden=True)) as entries:
        everything = [(info.path, info.kind) async for info in entries]
    assert everything == [
        (".git", "folder"),
        (".gitignore", "file"),
        (".h", "folder"),
        ("a", "folder"),
        (".git/HEAD", "file"),
        (".h/c", "file"),
        ("a/b", "file"),
    ]
    assert await list_walked(MemoryFiles({".h": b"", "a": b"", ".d/x": b""}), hidden=False) == ["a"]


async def test_links_are_followed_only_with_follow(tmp_path: Path) -> None:
    write_files(tmp_path, {"real/x": "x"})
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "loop").symlink_to("..")
    (tmp_path / "file").symlink_to("real/x")
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "nowhere").symlink_to("gone")
    assert await list_walked(DiskFiles(tmp_path)) == ["file", "link", "nowhere", "out", "real/loop", "real/x"]
    async with aclosing(walk(DiskFiles(tmp_path), follow=True)) as entries:
        kinds = {info.path: info.kind async for info in entries}
    assert kinds == {
        "real": "folder",
        "link": "folder",
        "file": "file",
        "out": "link",
        "nowhere": "link",
        "real/x": "file",
        "real/loop": "folder",
    }


async def test_details_are_those_of_stat(tmp_path: Path) -> None:
    write_files(tmp_path, {"a/b": "x" * 100, "c": "y"})
    for files in (DiskFiles(tmp_path), WorkspaceFiles(tmp_path / "a", [tmp_path]), MemoryFiles({"a/b": b"x"})):
        async with aclosing(walk(files, details=True)) as entries:
            async for info in entries:
                assert await files.stat(info.path) == info


async def test_a_walk_with_too_many_entries_is_an_error_at_the_end(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{number % 7}/{number}": "" for number in range(50)})
    seen: list[str] = []
    with pytest.raises(FileError, match="more than 20 entries"):
        await collect_into(seen, walk(DiskFiles(tmp_path), max_entries=20))
    assert len(seen) == 20
    assert len([info async for info in walk(DiskFiles(tmp_path), max_entries=57)]) == 57


class BrokenFiles:
    """A tree without ``scan``, in which some folders cannot be listed."""

    root = ""

    def __init__(self, inner: Files, broken: Mapping[str, FileError]) -> None:
        self.inner, self.broken = inner, broken

    async def stat(self, path: str) -> FileInfo:
        return await self.inner.stat(path)

    async def entries(self, path: str) -> Sequence[FileInfo]:
        if path in self.broken:
            raise self.broken[path]
        return await self.inner.entries(path)

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        return await self.inner.read(path, start=start, size=size)

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        return await self.inner.write(path, data, known=known, new=new)

    async def delete(self, path: str) -> None:
        await self.inner.delete(path)


async def test_folders_that_cannot_be_listed_are_named_at_the_end() -> None:
    inner = MemoryFiles(
        {".gitignore": b"*.o\n", **{f"{name}/{file}": b"" for name in "abcdefgh" for file in ("x", "y.o")}}
    )
    broken = {name: FileError(f"'{name}': permission denied") for name in "bcdefg"}
    files = BrokenFiles(inner, {**broken, "a": FileMissing("'a' went away")})
    seen: list[str] = []
    with pytest.raises(FileError, match=r"'b': permission denied;.*; and 1 more") as caught:
        await collect_into(seen, walk(files))
    assert "went away" not in str(caught.value)
    assert [path for path in seen if "/" in path] == ["h/x"]


async def test_a_start_that_is_not_a_folder_is_an_error_at_once(tmp_path: Path) -> None:
    write_files(tmp_path, {"file": ""})
    for start, kind in (("file", FileError), ("gone", FileMissing)):
        with pytest.raises(kind):
            await list_walked(DiskFiles(tmp_path), start)
    with pytest.raises(FileError, match="denied"):
        await list_walked(BrokenFiles(MemoryFiles(), {"": FileError("denied")}))


async def test_a_walk_can_be_closed_at_any_time(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{number}/{number}": "" for number in range(200)})
    before = count_open_fds()
    entries = walk(DiskFiles(tmp_path))
    assert (await anext(entries)).path == "0"
    await entries.aclose()

    async def endless() -> None:
        while True:
            await list_walked(DiskFiles(tmp_path))

    walking = asyncio.create_task(endless())
    for _ in range(20):
        await asyncio.sleep(0)
    walking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walking
    await list_walked(DiskFiles(tmp_path))
    assert count_open_fds() <= before + 1  # the last thread may still have one open


async def test_several_trees_are_walked_as_one(tmp_path: Path) -> None:
    write_files(tmp_path, {"a/b": "", ".gitignore": "*.o\n", "a/c.o": "", "memories/shadowed": ""})
    inner = MemoryFiles({"note": b"", "note.o": b"", "d/.gitignore": b"x\n", "d/x": b"", "d/y": b""})
    files = CompositeFiles(DiskFiles(tmp_path), {"memories": inner, "a/deep/er": MemoryFiles({"z": b""})})
    assert await list_walked(files, hidden=False) == ["a/b", "a/deep/er/z", "memories/d/y", "memories/note"]
    assert await list_walked(files, "memories") == ["memories/d/.gitignore", "memories/d/y", "memories/note"]
    assert await list_walked(files, "a/deep") == ["a/deep/er/z"]


async def test_a_walk_of_a_workspace_has_its_paths(tmp_path: Path) -> None:
    write_files(tmp_path, {"repo/cwd/x": "", "repo/y": "", "other/z": ""})
    files = WorkspaceFiles(tmp_path / "repo" / "cwd", [tmp_path / "repo", tmp_path / "other"])
    assert [info.path async for info in files.walk()] == ["x"]
    assert await list_walked(files, "..") == [f"{tmp_path}/repo/y", "x"]
    assert await list_walked(files, f"{tmp_path}/other") == [f"{tmp_path}/other/z"]
