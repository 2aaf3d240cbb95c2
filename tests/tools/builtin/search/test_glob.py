"""Glob: files by name, newest first, never outside the workspace."""

import glob as standard
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.builtin.harness import ToolHarness, value_of
from vaka.core.types.errors import InvalidInput
from vaka.tools.builtin.search.glob import Wildcard, expand_braces

pytestmark = pytest.mark.every_loop


@pytest.fixture
def bench(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path)


def write_files(bench: ToolHarness, *paths: str) -> None:
    """Write files, each newer than the one before."""
    for at, path in enumerate(paths):
        os.utime(bench.write(path, ""), ns=(at * 10**9, at * 10**9))


async def glob_files(bench: ToolHarness, pattern: str, **more: Any) -> list[str]:
    return value_of(await bench.call("Glob", pattern=pattern, **more))["files"]  # type: ignore[no-any-return]  # JSON


async def test_files_are_found_in_all_folders_newest_first(bench: ToolHarness) -> None:
    write_files(bench, "a.py", "src/b.py", "src/deep/er/c.py", "src/d.ts", "src/e.tsx", ".github/ci.yml")
    (bench.root / "dir.py").mkdir()
    assert await glob_files(bench, "**/*.py") == ["src/deep/er/c.py", "src/b.py", "a.py"]
    assert await glob_files(bench, "*.py") == ["a.py"]
    assert await glob_files(bench, "src/**/*.{ts,tsx}") == ["src/e.tsx", "src/d.ts"]
    assert await glob_files(bench, "src/**") == ["src/e.tsx", "src/d.ts", "src/deep/er/c.py", "src/b.py"]
    assert await glob_files(bench, "{src/b,a}.py") == ["src/b.py", "a.py"]
    assert await glob_files(bench, "**/[bd].??") == ["src/d.ts", "src/b.py"]
    assert await glob_files(bench, "**/*.yml") == [".github/ci.yml"]
    assert await glob_files(bench, "*.py", path="src") == ["src/b.py"]
    assert await glob_files(bench, f"{bench.root}/src/*.py") == ["src/b.py"]
    assert await glob_files(bench, "~/src/*.py") == ["src/b.py"]
    assert await glob_files(bench, "./src/./b.py") == ["src/b.py"]
    assert (await bench.call("Glob", pattern="**/*.py")).text == "src/deep/er/c.py\nsrc/b.py\na.py"


async def test_no_match_is_a_success_with_a_hint(bench: ToolHarness) -> None:
    write_files(bench, "src/b.py")
    assert (await bench.call("Glob", pattern="*.py")).text == (
        "no files match '*.py'; **/*.py looks in all folders below"
    )
    assert (await bench.call("Glob", pattern="nowhere/*.py", path="src")).text == (
        "no files match 'nowhere/*.py' in src"
    )
    assert (await bench.call("Glob", pattern="src/b.py/*.py")).text == "no files match 'src/b.py/*.py'"
    assert (await bench.call("Glob", pattern="*", path="nowhere")).failed


async def test_ignored_files_are_skipped_at_every_level(bench: ToolHarness) -> None:
    write_files(bench, "a.log", "keep.log", "build/x.py", "src/build/y.py", "src/gen/z.py", "src/z.py", ".git/config")
    bench.write(".gitignore", "*.log\n!keep.log\nbuild/\n")
    bench.write("src/.gitignore", "/gen\n")
    assert sorted(await glob_files(bench, "**/*")) == [".gitignore", "keep.log", "src/.gitignore", "src/z.py"]
    assert await glob_files(bench, "**/*.py", path="src") == ["src/z.py"]


async def test_at_most_a_hundred_files_are_returned_with_a_note(bench: ToolHarness) -> None:
    write_files(bench, *[f"d{n % 7}/f{n:05}.txt" for n in range(2500)])
    result = await bench.call("Glob", pattern="**/*.txt")
    data = value_of(result)
    assert (data["count"], data["total"], data["truncated"]) == (100, 2500, True)
    assert data["files"] == [f"d{n % 7}/f{n:05}.txt" for n in range(2499, 2399, -1)]
    assert result.text.endswith("[the 100 newest of 2500 files; use a narrower pattern or path for the others]")


async def test_links_are_not_followed_and_no_outside_file_is_listed(bench: ToolHarness) -> None:
    write_files(bench, "in/a.txt")
    (bench.root / "out").symlink_to("/etc")
    (bench.root / "loop").symlink_to(".")
    (bench.root / "in/link.txt").symlink_to("a.txt")
    assert await glob_files(bench, "**/*") == ["in/a.txt"]
    for pattern, path in [("/etc/*", ""), ("*", "/etc"), ("../*", ""), ("*", ".."), ("out/*", ""), ("*", "out")]:
        result = await bench.call("Glob", pattern=pattern, path=path)
        assert "passwd" not in result.text
        assert result.failed


async def test_ten_thousand_files_and_names_that_are_not_utf8_are_listed(
    bench: ToolHarness,
) -> None:
    for n in range(10_000):
        (bench.root / f"f{n}").touch()
    (bench.root / os.fsdecode(b"caf\xe9.txt")).touch()
    assert value_of(await bench.call("Glob", pattern="*"))["total"] == 10_001
    assert (await bench.call("Glob", pattern="*.txt")).text == "caf\ufffd.txt"


async def test_other_roots_are_searched_by_their_full_paths(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").touch()
    (tmp_path / "ws").mkdir()
    bench = ToolHarness(tmp_path / "ws", other)
    assert await glob_files(bench, f"{other}/**/*.txt") == [f"{other}/b.txt"]
    assert await glob_files(bench, "*.txt", path=str(other)) == [f"{other}/b.txt"]


@pytest.mark.parametrize("pattern", ["", "a" * 2000, "{a,b}" * 12, "[z-a]"])
async def test_invalid_patterns_are_errors(bench: ToolHarness, pattern: str) -> None:
    result = await bench.call("Glob", pattern=pattern)
    assert result.failed
    assert "InvalidInput" in result.text


@pytest.mark.parametrize(
    ("pattern", "patterns"),
    [
        ("a{b,c}d", ["abd", "acd"]),
        ("{a,{b,c}}", ["a", "b", "c"]),
        ("{a}", ["{a}"]),
        ("{a,b", ["{a,b"]),
        ("\\{a,b}", ["\\{a,b}"]),
        ("{a,}", ["a", ""]),
        ("{{a,b}", ["{a", "{b"]),
        ("x{1,2}{3,4}", ["x13", "x14", "x23", "x24"]),
    ],
)
def test_braces_expand_to_several_patterns(pattern: str, patterns: list[str]) -> None:
    assert expand_braces(pattern) == patterns


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("**/a/**/b", ["a/b", "x/a/b", "x/a/y/z/b", "a/a/b"], ["a", "b", "a/b/c", "ab"]),
        ("a*b?c", ["abxc", "axxbxc"], ["abc", "axbxd"]),
        ("[!a]*", ["b", "bc"], ["a", "ab"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[", ["["], ["a"]),
        ("\\*.py", ["*.py"], ["a.py"]),
        ("a/**/**/b", ["a/b", "a/x/b"], ["a/x"]),
        ("*", ["a", ".a"], ["a/b"]),
    ],
)
def test_wildcards_match_names_and_paths(pattern: str, yes: list[str], no: list[str]) -> None:
    wildcard = Wildcard(pattern)
    assert [path for path in [*yes, *no] if wildcard.match(path)] == yes


def test_a_pattern_with_many_stars_is_fast() -> None:
    assert not Wildcard("*a" * 200 + "b").match("a" * 255)
    assert not Wildcard("**/a/" * 100 + "b").match("/".join(["a"] * 500))
    with pytest.raises(InvalidInput):
        Wildcard("{a,b}" * 200)


@given(
    st.text("ab*?/.", min_size=1, max_size=12), st.lists(st.text("ab.", min_size=1, max_size=4), min_size=1, max_size=4)
)
def test_wildcards_agree_with_the_standard_library(pattern: str, names: list[str]) -> None:
    path = "/".join(names)
    plain = "/".join(name for name in pattern.split("/") if name not in {"", "."})
    if not plain or "." in names or "***" in pattern or any("**" in name and name != "**" for name in plain.split("/")):
        return
    reference = _matches_reference(plain.split("/"), names)
    assert Wildcard(plain).match(path) == reference


def _matches_reference(way: list[str], names: list[str]) -> bool:
    """Reference implementation in exponential time."""
    if not way:
        return not names
    if way[0] == "**":
        return any(_matches_reference(way[1:], names[at:]) for at in range(len(names) + 1))
    return bool(names) and _matches_name(way[0], names[0]) and _matches_reference(way[1:], names[1:])


def _matches_name(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(_matches_name(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in {"?", name[0]} and _matches_name(pattern[1:], name[1:])


def test_names_escaped_by_the_standard_library_match_themselves() -> None:
    assert Wildcard(standard.escape("a*[b]?")).match("a*[b]?")
