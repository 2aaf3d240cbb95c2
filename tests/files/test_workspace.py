"""Paths as people and models write them lead to the right root, or are refused with the roots named."""

import os
from pathlib import Path

import pytest

from vaka.core.ports.files import FileInfo
from vaka.core.types.errors import FileError, FileMissing, FileRefused
from vaka.files.workspace import WorkspaceFiles


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for folder in ("home/project/src", "home/notes", "other", "outside"):
        (tmp_path / folder).mkdir(parents=True)
    for path in ("home/project/src/x", "home/notes/n", "other/o", "outside/secret"):
        (tmp_path / path).write_text(path)
    return tmp_path / "home"


@pytest.fixture
def files(home: Path) -> WorkspaceFiles:
    return WorkspaceFiles(home / "project", [home / "notes", home.parent / "other"], home=home)


async def test_every_spelling_of_a_path_is_accepted(files: WorkspaceFiles, home: Path) -> None:
    for path in (
        "src/x",
        "./src/x",
        f"{home}/project/src/x",
        "~/project/src/x",
        "../project/src/x",
        "src/../src//x",
        f"{home}/./project/src/../src/x",
    ):
        found = await files.read(path)
        assert (found.data, found.info.path) == (b"home/project/src/x", "src/x")
    for path in ("~/notes/n", "../notes/n", f"{home}/notes/n", "src/../../notes/n"):
        found = await files.read(path)
        assert (found.data, found.info.path) == (b"home/notes/n", f"{home}/notes/n")


async def test_paths_in_results_are_accepted_again(files: WorkspaceFiles, home: Path) -> None:
    for folder in ("", "src", "~/notes", str(home.parent / "other")):
        for info in await files.entries(folder):
            assert await files.stat(info.path) == info


async def test_stat_many_equals_single_stats(files: WorkspaceFiles, home: Path) -> None:
    paths = [
        "src/x",
        "~/notes/n",
        "src",
        "nothing",
        "../outside/secret",
        f"{home.parent}/other/o",
        "src/x/y",
        "a\0b",
        "",
    ]
    alone: list[FileInfo | None] = []
    for path in paths:
        try:
            alone.append(await files.stat(path))
        except FileError:
            alone.append(None)
    assert await files.stat_many(paths) == alone
    assert [info is None for info in alone] == [False, False, False, True, True, False, True, True, False]


async def test_a_path_outside_the_roots_is_refused_and_the_roots_are_named(files: WorkspaceFiles, home: Path) -> None:
    outside = [
        "../../outside/secret",
        str(home.parent / "outside" / "secret"),
        "/etc/passwd",
        "~",
        "~/.ssh/id",
        "..",
        "/",
    ]
    outside += [f"{home}/project-sibling", f"{home}/projec", "/proc/self/cwd/../x", "/" + "../" * 50 + "etc/passwd"]
    roots = (str(home / "project"), str(home / "notes"), str(home.parent / "other"))
    assert files.roots == roots
    for path in outside:
        for attempt in (
            files.read(path),
            files.stat(path),
            files.entries(path),
            files.write(path, b""),
            files.delete(path),
        ):
            with pytest.raises(FileRefused) as caught:
                await attempt
            assert all(repr(root) in str(caught.value) for root in roots)


async def test_a_tilde_that_is_not_the_home_is_a_name(files: WorkspaceFiles, home: Path) -> None:
    await files.write("~user/x", b"1")
    await files.write("a/~/x", b"2")
    assert (home / "project" / "~user" / "x").read_bytes() == b"1"
    assert (home / "project" / "a" / "~" / "x").read_bytes() == b"2"


async def test_a_root_may_be_written_through_links_above_it(files: WorkspaceFiles, home: Path) -> None:
    (home.parent / "link").symlink_to(home)
    (home.parent / "direct").symlink_to(home / "project")
    for path in (f"{home.parent}/link/project/src/x", f"{home.parent}/direct/src/x"):
        assert (await files.read(path)).info.path == "src/x"
        await files.write(path, b"through")
    assert (home / "project" / "src" / "x").read_bytes() == b"through"
    with pytest.raises(FileRefused):
        await files.read(f"{home.parent}/link/secret")


async def test_a_working_folder_given_through_a_link_is_known_by_both_names(home: Path) -> None:
    (home / "link").symlink_to("project")
    files = WorkspaceFiles(home / "link", home=home)
    assert files.root == str(home / "project")
    for path in ("src/x", f"{home}/link/src/x", f"{home}/project/src/x"):
        assert (await files.read(path)).info.path == "src/x"


async def test_a_root_inside_another_is_part_of_it(home: Path) -> None:
    (home / "project" / "up").symlink_to("../notes")
    files = WorkspaceFiles(home / "project", [home / "project" / "src", home], home=home)
    assert (files.root, files.roots) == (str(home / "project"), (str(home),))
    assert [info.path for info in await files.entries("")] == ["src", "up"]
    assert [info.path for info in await files.entries("..")] == [f"{home}/notes", f"{home}/project"]
    assert (await files.read("up/n")).data == b"home/notes/n"
    assert (await files.write("~/new", b"x")).path == f"{home}/new"
    assert (await files.write("new", b"x")).path == "new"
    with pytest.raises(FileRefused, match="working folder"):
        await files.delete(".")


async def test_errors_name_the_root(files: WorkspaceFiles, home: Path) -> None:
    with pytest.raises(FileMissing, match=r"^in '.*/notes': 'gone'"):
        await files.read("~/notes/gone")
    with pytest.raises(FileMissing, match=r"^'gone'"):
        await files.read("gone")


async def test_protected_paths_may_have_any_spelling(home: Path) -> None:
    rules = ["**/.git", "vaka.toml", "~/notes/keep", str(home.parent / "other"), "/elsewhere"]
    files = WorkspaceFiles(home / "project", [home / "notes", home.parent / "other"], home=home, protected=rules)
    refused = [
        ".git/config",
        "a/.git/x",
        "vaka.toml",
        "~/notes/.git/x",
        "~/notes/keep",
        "~/notes/keep/x",
        f"{home.parent}/other/o",
        f"{home.parent}/other/new",
    ]
    for path in refused:
        with pytest.raises(FileRefused, match="protected"):
            await files.write(path, b"")
    for path in ("a/vaka.toml", "~/notes/vaka.toml", "~/notes/kept"):
        await files.write(path, b"")
    assert (await files.read(f"{home.parent}/other/o")).data == b"other/o"


def test_the_working_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(FileMissing):
        WorkspaceFiles(tmp_path / "gone")
    (tmp_path / "file").touch()
    with pytest.raises(FileError):
        WorkspaceFiles(tmp_path, [tmp_path.parent / "gone"])


async def test_names_above_the_root_may_not_be_utf_8(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    files = WorkspaceFiles(odd)
    assert (await files.write("x", b"1")).path == "x"
    assert (await files.read(f"{odd}/x")).data == b"1"
    with pytest.raises(FileRefused) as caught:
        await files.read("/etc/passwd")
    str(caught.value).encode()
