"""Folders on the way to a file that is about to be written."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress

from vaka.core.types.errors import FileError, FileRefused
from vaka.files.names import join, raw, shown
from vaka.files.protect import Guard
from vaka.files.ways import FOLDER, LIST, Root


def enter_folders(root: Root, parts: Sequence[str], guard: Guard | None, *, make: bool) -> int:
    """Open a folder beneath the root and, if told so, make those that are missing; no link is followed."""
    here = os.open(b".", FOLDER, dir_fd=root.fd)
    try:
        for depth, part in enumerate(parts, 1):
            inner = _enter(here, part, join(parts[:depth]), make=make)
            os.close(here)
            here = inner
            if guard:
                guard.check(os.fstat(here), join(parts[:depth]))
    except BaseException:
        os.close(here)
        raise
    return here


def settle(folder: int) -> None:
    """Have the disk keep the names in a folder, where the system lets one ask."""
    with suppress(PermissionError):  # it may be written to but not read, and then it cannot be asked for this
        fd = os.open(b".", LIST, dir_fd=folder)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _enter(folder: int, name: str, path: str, *, make: bool) -> int:
    flags = FOLDER | os.O_NOFOLLOW
    try:
        return os.open(raw(name), flags, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):  # somebody else was quicker
            os.mkdir(raw(name), dir_fd=folder)
        settle(folder)
    except NotADirectoryError as error:
        raise _no_folder(folder, name, path) from error
    try:
        return os.open(raw(name), flags, dir_fd=folder)
    except NotADirectoryError as error:
        raise _no_folder(folder, name, path) from error


def _no_folder(folder: int, name: str, path: str) -> FileError:
    looked = os.stat(raw(name), dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(looked.st_mode):
        return FileRefused(f"{shown(path)} is a link, and links are not written through")
    return FileError(f"{shown(path)} is not a folder, so nothing can be put into it")
