"""Path rules: gitignore patterns, their anchors, every name of a file, and protected paths."""

import fnmatch
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.tables import each_row
from vaka.matching.sensitive_paths import control_part_of, protected_part_of
from vaka.policy.decision import DecisionKind
from vaka.policy.paths import (
    ANY_CHILD,
    PathAnchors,
    PathPattern,
    absolute_path,
    exact_path_pattern,
    is_inside,
    names_of,
    split_path,
)

KINDS: tuple[DecisionKind, ...] = ("allow", "ask", "deny")
PLACE = PathAnchors(cwd="/site/app", home="/home/kim", folder="/site")


def pattern_covers(pattern: str, path: str, kind: DecisionKind = "allow", place: PathAnchors = PLACE) -> bool:
    return PathPattern(pattern, kind, place).covers(split_path(path))


# -------------------------------------------------------------------------------- anchors


@each_row(
    [
        ("//etc/hosts", "/etc/hosts", True),
        ("//etc/hosts", "/site/app/etc/hosts", False),
        ("//etc/**", "/etc/ssh/config", True),
        ("//**", "/anything/at/all", True),
        ("//", "/anything", True),
        ("~/notes/*.md", "/home/kim/notes/a.md", True),
        ("~/notes/*.md", "/home/ann/notes/a.md", False),
        ("~/notes/*.md", "/home/kim/notes/old/a.md", False),
        ("~", "/home/kim/x", True),
        ("~/", "/home/kim/x", True),
        ("/src/**", "/site/src/a.py", True),
        ("/src/**", "/site/app/src/a.py", False),
        ("/src/**", "/src/a.py", False),
        ("/", "/site/anything", True),
        ("./src/a.py", "/site/app/src/a.py", True),
        ("src/a.py", "/site/app/src/a.py", True),
        ("src/a.py", "/site/app/lib/src/a.py", False),
        ("./a.py", "/site/app/a.py", True),
        (".", "/site/app/deep/a.py", True),
        ("./", "/site/app/deep/a.py", True),
        (".", "/site/other", False),
        ("../docs/**", "/site/docs/a.md", True),
        ("../docs/**", "/site/app/docs/a.md", False),
        ("a/../b/x", "/site/app/b/x", True),
        ("//etc/../srv/x", "/srv/x", True),
        ("../../../..", "/anything", True),
    ]
)
def test_a_pattern_is_anchored_by_its_first_characters(pattern: str, path: str, expected: bool) -> None:
    assert pattern_covers(pattern, path) is expected
    assert pattern_covers(pattern, path, "deny") is expected


@each_row(
    [
        # a name alone: at any depth, but to allow only in the working directory
        (".env", "/site/app/.env", True, True),
        (".env", "/site/app/deep/.env", True, True),
        (".env", "/site/.env", False, True),
        ("*.pem", "/srv/key.pem", False, True),
        # with ./ it is in the working directory: to allow directly in it, to deny anywhere below
        ("./.env", "/site/app/.env", True, True),
        ("./.env", "/site/app/deep/.env", False, True),
        ("./.env", "/site/.env", False, False),
        # a folder: to allow the one in the working directory, to deny any of that name
        ("src/**", "/site/app/src/a", True, True),
        ("src/**", "/site/app/lib/src/a", False, True),
        ("src/**", "/srv/src/a", False, True),
        ("src/", "/site/app/src/a", True, True),
        ("src/", "/site/app/lib/src/a", False, True),
        ("src/*", "/site/app/lib/src/a", False, True),
        ("./src/**", "/site/app/lib/src/a", False, True),
        ("./src/**", "/site/src/a", False, False),
        ("src/**", "/site/app/src", False, False),
        ("src/", "/site/app/src", False, True),
        # two folders are a path, for every kind of rule
        ("src/gen/**", "/site/app/src/gen/a", True, True),
        ("src/gen/**", "/site/app/lib/src/gen/a", False, False),
        ("**/gen/**", "/site/app/lib/src/gen/a", True, True),
        # case
        ("Secret.txt", "/site/app/secret.TXT", False, True),
        ("stra\u00dfe", "/site/app/STRASSE", False, True),
        ("caf\u00e9", "/site/app/cafe\u0301", False, True),
    ]
)
def test_a_pattern_matches_more_to_deny_than_to_allow(pattern: str, path: str, allow: bool, deny: bool) -> None:
    assert (
        pattern_covers(pattern, path),
        pattern_covers(pattern, path, "deny"),
        pattern_covers(pattern, path, "ask"),
    ) == (allow, deny, deny)


# -------------------------------------------------------------------------------- wildcards


@each_row(
    [
        ("//a/*/c", "/a/b/c", True),
        ("//a/*/c", "/a/b/b/c", False),
        ("//a/**/c", "/a/c", True),
        ("//a/**/c", "/a/b/b/c", True),
        ("//a/**/c/**/e", "/a/c/x/c/d/e", True),
        ("//a/**/c/**/e", "/a/c/d", False),
        ("//**/c", "/c", True),
        ("//a/**", "/a", False),
        ("//a/**", "/a/b/c", True),
        ("//a/*", "/a/b/c", True),
        ("//a", "/a/b/c", True),
        ("//a", "/ab", False),
        ("//a/b", "/a", False),
        ("//*.py", "/x.py", True),
        ("//*.py", "/x.pyc", False),
        ("//a*b*c", "/a1b2c", True),
        ("//a*b*c", "/acb", False),
        ("//a?c", "/abc", True),
        ("//a?c", "/ac", False),
        ("//a[0-9]c", "/a5c", True),
        ("//a[0-9]c", "/axc", False),
        ("//a[!0-9]c", "/axc", True),
        ("//a[^0-9]c", "/a5c", False),
        ("//a[]]c", "/a]c", True),
        ("//a[a-]c", "/a-c", True),
        ("//a[\\]x]c", "/axc", True),
        ("//a\\*c", "/a*c", True),
        ("//a\\*c", "/abc", False),
        ("//a\\?", "/a?", True),
        ("//*[0-9]?z", "/abc12z", True),
        ("//*[0-9]?z", "/abcz", False),
        ("//a**b", "/axxb", True),
        ("//a**b", "/a/b", False),
        ("//*", "/.hidden", True),
        ("//a ", "/a", True),
        ("//a\\ ", "/a ", True),
    ]
)
def test_wildcards_match_within_and_across_folders(pattern: str, path: str, expected: bool) -> None:
    for kind in KINDS:
        assert pattern_covers(pattern, path, kind) is expected, kind


@each_row(
    [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("!src", "cannot cancel"),
        ("~ann/x", "expected ~/ for your own home"),
        ("*/../x", "'..' cannot follow a wildcard"),
        ("a[b", "'[' is never closed"),
        ("a[b-", "'[' is never closed"),
        ("a\\", "ends in a backslash"),
    ]
)
def test_an_invalid_pattern_raises_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        PathPattern(pattern, "deny", PLACE)
    assert why in str(caught.value)


def test_a_search_is_covered_by_a_pattern_for_the_content_of_its_folder() -> None:
    def covers_search(pattern: str, folder: str) -> bool:
        return PathPattern(pattern, "allow", PLACE).covers((*split_path(folder), ANY_CHILD))

    assert covers_search("src/**", "/site/app/src")
    assert covers_search("src/", "/site/app/src")
    assert covers_search("./**", "/site/app")
    assert not covers_search("src/*.py", "/site/app/src")
    assert covers_search("src/*.py", "/site/app/src/a.py")


def test_a_pattern_of_many_stars_is_not_slow() -> None:
    """A backtracking matcher would take exponential time."""
    assert not pattern_covers("//" + "*a" * 40 + "[b]", "/" + "a" * 200)
    assert not pattern_covers("//" + "**/a/" * 40 + "b", "/a" * 200)
    assert not pattern_covers("//" + "*a" * 40 + "b", "/" + "a" * 5000)


@given(st.text("ab*?[]!-", min_size=1, max_size=8), st.text("ab-]", min_size=1, max_size=6))
def test_one_part_of_a_pattern_matches_like_fnmatch(part: str, name: str) -> None:
    try:
        covers = pattern_covers(f"//{part}", f"/{name}")
    except ValueError:
        return  # fnmatch accepts an unclosed bracket as a literal
    if "[" not in part and part != "**":
        assert covers is fnmatch.fnmatchcase(name, part)


@given(st.text("ab/.*?[]\\-~! ", max_size=12), st.lists(st.sampled_from("ab*"), max_size=4))
def test_any_text_is_a_pattern_or_an_error_and_never_allows_more_than_it_denies(text: str, path: list[str]) -> None:
    try:
        allow, deny = PathPattern(text, "allow", PLACE), PathPattern(text, "deny", PLACE)
    except ValueError:
        return
    for start in ((), ("site", "app")):
        assert deny.covers((*start, *path)) or not allow.covers((*start, *path))


# -------------------------------------------------------------------------------- names


def test_a_path_is_resolved_as_tools_resolve_it() -> None:
    assert absolute_path("a", "/site", "/home/kim") == "/site/a"
    assert absolute_path("/a", "/site", "/home/kim") == "/a"
    assert absolute_path("~/a", "/site", "/home/kim") == "/home/kim/a"
    assert absolute_path("~", "/site", "/home/kim") == "/home/kim"
    assert absolute_path("~ann/a", "/site", "/home/kim") == "/site/~ann/a"
    assert absolute_path("a/../b", "/site", "/home/kim") == "/site/a/../b"


def test_every_name_of_a_file_is_returned(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    (root / "real").mkdir()
    (root / "real" / "file").write_text("")
    (root / "second").symlink_to("real")
    (root / "first").symlink_to(root / "second")
    assert names_of(str(root / "real" / "file")) == (str(root / "real" / "file"),)
    assert names_of(str(root / "first" / "file")) == tuple(
        str(root / folder / "file") for folder in ("first", "second", "real")
    )
    assert names_of(str(root / "first" / "missing" / "x"))[-1] == str(root / "real" / "missing" / "x")


def test_a_parent_after_a_link_is_resolved_as_the_kernel_does(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    (root / "a" / "b").mkdir(parents=True)
    (root / "link").symlink_to("a/b")
    names = names_of(str(root / "link" / ".." / "x"))
    assert str(root / "x") in names, "as it is written"
    assert str(root / "a" / "x") in names, "as it is opened"


def test_circular_and_dangling_links_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "gone").symlink_to("/nowhere/at/all")
    assert names_of(str(tmp_path / "a" / "x"))
    assert names_of(str(tmp_path / "gone"))[-1] == "/nowhere/at/all"


@each_row(["/a\0b", "/\ud800"])
def test_an_invalid_path_raises(path: str) -> None:
    with pytest.raises(ValueError):
        names_of(path)


def test_proc_self_is_resolved_like_other_links() -> None:
    assert str(Path.cwd().resolve() / "x") in names_of("/proc/self/cwd/x")


@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(str.strip))
def test_the_exact_pattern_of_a_path_matches_only_that_path(name: str) -> None:
    if name in (".", "..") or name != name.rstrip():
        return
    path = f"/srv/{name}"
    assert pattern_covers(exact_path_pattern(path), path)
    assert not pattern_covers(exact_path_pattern(path), f"{path}x")


def test_is_inside_compares_whole_names() -> None:
    assert is_inside(("a", "b"), ("a",))
    assert is_inside(("a",), ("a",))
    assert not is_inside(("ab",), ("a",))


# ---------------------------------------- paths that decide what runs or what is allowed


@each_row(
    [
        "/w/.git/config",
        "/w/.git/hooks/pre-commit",
        "/w/.git",
        "/w/sub/.git/HEAD",
        "/w/.vscode/tasks.json",
        "/w/.idea/workspace.xml",
        "/w/.claude/settings.json",
        "/w/.claude/settings.local.json",
        "/w/.claude/hooks/x.sh",
        "/w/.claude",
        "/w/vaka.toml",
        "/w/.mcp.json",
        "/home/kim/.bashrc",
        "/home/kim/.gitconfig",
        "/home/kim/.config/vaka/config.toml",
        "/etc/vaka/managed-settings.json",
        "/w/.husky/pre-commit",
        "/w/.devcontainer/devcontainer.json",
        "/w/.vaka/x",
        "/w/.envrc",
        # as other file systems see them
        "/w/.GIT/config",
        "/w/.Git/config",
        "/w/.git./config",
        "/w/.git /config",
        "/w/.git::$INDEX/config",
        "/w/.g\u200cit/config",
        "/w/\uff0egit/config",
        "/w/GIT~1/config",
        "/w/.CLAUDE/Settings.json",
        "/w/VAKA.TOML",
        "/w/.claude/settings.json.",
        "/w/.vs\u200bcode/x",
    ]
)
def test_a_path_that_decides_what_runs_is_protected(path: str) -> None:
    assert control_part_of(split_path(path))
    assert protected_part_of(split_path(path))


@each_row(
    [
        "/w/.claude/commands/fix.md",
        "/w/.claude/agents/a.md",
        "/w/.claude/skills/s/SKILL.md",
        "/w/.npmrc",
        "/w/.github/workflows/ci.yml",
        "/w/sub/.github/workflows/ci.yml",
        "/w/.GitHub/Workflows/ci.yml",
        "/w/.circleci/config.yml",
        "/w/.gitlab-ci.yml",
        "/w/.pre-commit-config.yaml",
        "/w/.cargo/config.toml",
        "/w/.cursor/mcp.json",
        "/w/.pdbrc",
        "/w/.helix/languages.toml",
        "/w/mise.toml",
        "/w/.venv/pip.conf",
        "/w/sitecustomize.py",
        "/w/sub/usercustomize.py",
        "/w/.nvim.lua",
        "/w/.githooks/pre-commit",
        "/w/sub/.yarnrc.yml",
        "/home/kim/.local/bin/x",
        "/home/kim/.config/autostart/x.desktop",
        "/home/kim/.config/systemd/user/x.service",
        "/home/kim/.config/fish/config.fish",
        "/home/kim/.vimrc",
        "/home/kim/.ssh/authorized_keys",
        "/home/kim/.bash_aliases",
        "/home/kim/.config/git/config",
    ]
)
def test_other_paths_that_decide_what_runs_are_protected_but_not_from_the_mode_that_bypasses(path: str) -> None:
    assert protected_part_of(split_path(path))
    assert control_part_of(split_path(path)) == ""


@each_row(
    [
        "/w/src/a.py",
        "/w/.github/dependabot.yml",
        "/w/.gitignore",
        "/w/.gitattributes",
        "/w/git/config",
        "/w/x.git/config",
        "/w/vaka.toml/x",
        "/w/.config/x",
        "/w/bin/x",
        "/w/package.json",
        "/w/settings.json",
        "/w/.local/share/x",
        "/w/src/vaka/core.py",
        "/w/.vscode.md",
        "/w/docs/vaka.toml.md",
        "/w/.env",
        "/",
    ]
)
def test_an_ordinary_path_is_not_protected(path: str) -> None:
    assert protected_part_of(split_path(path)) == ""


def test_the_protected_part_of_a_path_is_returned() -> None:
    assert protected_part_of(split_path("/w/.git/config")) == ".git"
    assert protected_part_of(split_path("/w/.claude/settings.json")) == ".claude/settings.json"
    assert protected_part_of(split_path("/w/vaka.toml")) == "vaka.toml"
