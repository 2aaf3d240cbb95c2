"""System calls for files: paths without links, and renames that do not replace."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vaka.system import openat2, syscalls


@pytest.mark.parametrize("opened", [openat2.open_without_links, openat2.open_without_links_by_steps])
def test_a_path_with_a_link_in_it_is_not_opened(opened: Callable[[str, int], int], tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "other").symlink_to("file")
    for path, kind in (
        (tmp_path / "real", os.O_DIRECTORY),
        (tmp_path / "real" / "file", 0),
        (Path("/"), os.O_DIRECTORY),
    ):
        found = opened(str(path), os.O_PATH | kind)
        assert os.fstat(found).st_ino == path.stat().st_ino
        os.close(found)
    before = syscalls.list_open_fds()
    for name, number in (("link", 40), ("link/file", 40), ("real/other", 40), ("real/gone", 2), ("real/file/x", 20)):
        with pytest.raises(OSError) as error:
            opened(str(tmp_path / name), os.O_PATH | os.O_DIRECTORY * (name == "link"))
        assert error.value.errno == number
    assert syscalls.list_open_fds() == before


def test_a_link_itself_is_opened_where_the_folders_above_are_not_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").symlink_to(".")
    descriptor = openat2.open_link_itself(str(tmp_path / "link"), os.O_PATH)
    assert os.fstat(descriptor).st_ino == (tmp_path / "link").lstat().st_ino
    os.close(descriptor)
    with pytest.raises(OSError, match="folder"):
        openat2.open_link_itself(str(tmp_path / "folder" / "link"), os.O_PATH)


def test_a_rename_does_not_replace_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "taken").write_text("taken")
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(FileExistsError):
            openat2.rename_noreplace(folder, b"old", b"taken")
        assert openat2.rename_noreplace(folder, b"old", b"new")
    finally:
        os.close(folder)
    assert ((tmp_path / "new").read_text(), (tmp_path / "taken").read_text()) == ("old", "taken")
