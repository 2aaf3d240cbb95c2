"""The quarantine: where entries are moved that a command must not create.

A rename takes effect at once and follows no link; across file systems an entry first loses its name, and is then copied
without following links, and removed.
"""

import contextlib
import errno
import os
import stat
import time
from typing import NamedTuple

MAX_KEPT = 100
"""The most entries that are kept for one command; further entries are deleted, so that a loop cannot fill the disk."""

_MAX_COPIED_BYTES = 64 * 1024 * 1024
_MAX_COPIED_ENTRIES = 2_000
_MAX_DEPTH = 64
"""Limits of a copy to another file system; what exceeds them is not kept."""

_OPEN_ENTRY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_BYTES = 1024 * 1024


class RemovedEntry(NamedTuple):
    """An entry that a command created and must not create."""

    path: str
    kept: str
    """Where it is now, ``""`` if it was not kept."""
    problem: str = ""
    """Why it is still at its path, ``""`` if it is not."""


class Quarantine:
    """The entries removed from the reach of one command. Its folder is made with the first of them."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        """``folders``: where to keep entries; the first that can be written to is used."""
        self._candidates = folders
        self._folder = ""
        self._count = 0

    def remove(self, folder: int, name: str, path: str) -> RemovedEntry | None:
        """Move an entry of an open folder here; ``None`` if there is none. ``path`` is what reports call it."""
        target = self._prepare_place(name)
        try:
            _move(folder, name, target)
        except FileNotFoundError:
            self._discard_place(target)
            return None
        except OSError as error:
            self._discard_place(target)
            return RemovedEntry(path, "", f"it cannot be removed: {error.strerror}")
        if self._count > MAX_KEPT:
            _delete_tree(os.path.dirname(target))  # noqa: PTH120  # a string
        return RemovedEntry(path, target if target and os.path.lexists(target) else "")

    def _prepare_place(self, name: str) -> str:
        """Return a new path in the quarantine, ``""`` where there is no quarantine."""
        if not self._folder:
            self._folder = _make_folder(self._candidates)
        if not self._folder:
            return ""
        self._count += 1
        place = f"{self._folder}/{self._count}"
        os.mkdir(place, 0o700)  # noqa: PTH102  # a string
        return f"{place}/{name}"

    def _discard_place(self, target: str) -> None:
        if target:
            self._count -= 1
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(target))  # noqa: PTH106, PTH120  # strings


def _make_folder(candidates: tuple[str, ...]) -> str:
    """Return a new folder in the first candidate that belongs to this user, ``""`` if there is none."""
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(4).hex()}"
    for candidate in candidates:
        with contextlib.suppress(OSError):
            os.makedirs(candidate, 0o700, exist_ok=True)  # noqa: PTH103  # a string
            status = os.lstat(candidate)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                os.mkdir(f"{candidate}/{name}", 0o700)  # noqa: PTH102  # a string
                return f"{candidate}/{name}"
    return ""


def _move(folder: int, name: str, target: str) -> None:
    """Move an entry to a path in the quarantine; copy it to another file system; delete it if ``target`` is empty."""
    if target:
        try:
            _rename(folder, name, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            return
    unused = f".vaka-removed-{os.urandom(8).hex()}"
    _rename(folder, name, unused, target_folder=folder)  # it loses its name before it is copied
    if target:
        with contextlib.suppress(OSError):
            _Copy().copy(folder, unused, target)
    _delete_tree(unused, folder)


def _rename(folder: int, name: str, target: str, *, target_folder: int | None = None) -> None:
    try:
        os.rename(name, target, src_dir_fd=folder, dst_dir_fd=target_folder)
    except PermissionError:
        _make_accessible(folder, name)  # a folder that cannot be written to cannot be moved to another one
        os.rename(name, target, src_dir_fd=folder, dst_dir_fd=target_folder)


def _make_accessible(folder: int, name: str) -> None:
    """Give the owner of a folder all rights to it; links are not followed."""
    opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            os.chmod(f"/proc/self/fd/{opened}", 0o700)  # noqa: PTH101  # the open folder
    finally:
        os.close(opened)


class _Copy:
    """A copy of one entry, within limits."""

    def __init__(self) -> None:
        self._bytes, self._entries = _MAX_COPIED_BYTES, _MAX_COPIED_ENTRIES

    def copy(self, folder: int, name: str, target: str, depth: int = 0) -> None:
        """Copy files, folders and links; nothing else has content."""
        self._entries -= 1
        if self._entries < 0 or depth > _MAX_DEPTH:
            return
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(name, dir_fd=folder), target)  # noqa: PTH211  # strings
        elif stat.S_ISREG(mode):
            self._copy_file(folder, name, target)
        elif stat.S_ISDIR(mode):
            self._copy_folder(folder, name, target, depth)

    def _copy_file(self, folder: int, name: str, target: str) -> None:
        opened = os.open(name, _OPEN_ENTRY, dir_fd=folder)
        with open(opened, "rb") as source, open(target, "xb") as copy:  # noqa: PTH123  # descriptors and strings
            while self._bytes > 0 and (data := source.read(min(_READ_BYTES, self._bytes))):
                self._bytes -= len(data)
                copy.write(data)

    def _copy_folder(self, folder: int, name: str, target: str, depth: int) -> None:
        opened = os.open(name, _OPEN_FOLDER, dir_fd=folder)
        try:
            os.mkdir(target, 0o700)  # noqa: PTH102  # a string
            for inner in os.listdir(opened):  # noqa: PTH208  # by its descriptor
                with contextlib.suppress(OSError):
                    self.copy(opened, inner, f"{target}/{inner}", depth + 1)
        finally:
            os.close(opened)


def _delete_tree(name: str, folder: int | None = None) -> None:
    """Delete an entry with everything in it as far as possible; links are not followed."""
    import shutil  # noqa: PLC0415  # slow to load, and rarely needed

    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError, RecursionError):
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
