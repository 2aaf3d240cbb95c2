"""Open what lies beneath a root folder and nothing outside it, even while other processes move things.

Two openers, one by openat2 and one step by step, both on descriptors: what was checked is what is opened. Neither
opens a pipe, a device or a socket.
"""

import ctypes
import errno
import os
import stat
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from vaka.core.ports.files import POSIX_LOCKED_FILES
from vaka.core.types.errors import ConfigError, FileError, FileMissing, FileRefused
from vaka.files.errors import translate_os_errors
from vaka.files.paths import decode_name, names_of, quote_path

_OPENAT2 = 437
"""The same number on every architecture that Python runs on, but for one that had numbers of its own."""

_OPEN_HOW_BYTES = 24

RESOLVE_NO_MAGICLINKS = 0x02

RESOLVE_NO_SYMLINKS = 0x04

RESOLVE_BENEATH = 0x08

_RENAME_NOREPLACE = 1


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _load_libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


_c_library = _load_libc()


def openat2(folder: int, path: bytes, flags: int, resolve: int) -> int:
    """Open a path from an open folder on, resolved as told; raises ``OSError``."""
    if _c_library is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    while True:
        opened = _c_library.syscall(
            ctypes.c_long(_OPENAT2), ctypes.c_long(folder), ctypes.c_char_p(path), ctypes.byref(how),
            ctypes.c_size_t(_OPEN_HOW_BYTES),
        )  # fmt: skip
        if opened >= 0:
            return int(opened)
        if (number := ctypes.get_errno()) != errno.EINTR:
            raise OSError(number, os.strerror(number))


def rename_noreplace(folder: int, old: bytes, new: bytes) -> bool:
    """Rename inside a folder unless something has the new name (``FileExistsError``); false when it cannot be asked."""
    rename = getattr(_c_library, "renameat2", None)
    if rename is None:
        return False
    done = rename(
        ctypes.c_int(folder),
        ctypes.c_char_p(old),
        ctypes.c_int(folder),
        ctypes.c_char_p(new),
        ctypes.c_uint(_RENAME_NOREPLACE),
    )
    if done == 0:
        return True
    number = ctypes.get_errno()
    if number in {errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP}:
        return False  # this file system does not know how
    raise OSError(number, os.strerror(number))


OpenerName: TypeAlias = Literal["auto", "openat2", "walk"]

LOOK_FLAGS = getattr(os, "O_PATH", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
"""Flags to hold something without opening it; where there are none, to open it without waiting."""

FOLDER_FLAGS = LOOK_FLAGS | getattr(os, "O_DIRECTORY", 0)

LIST_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)

READ_FLAGS = os.O_RDONLY

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)

_NO_BLOCKING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)

_O_PATH = getattr(os, "O_PATH", 0)

_MAX_LINKS = 40
"""Links on one way, as the kernel has it."""

_MAX_TRIES = 256
"""How often something may change while it is looked at."""


class OpenedFile(NamedTuple):
    """A descriptor and what it is of."""

    fd: int
    stat: os.stat_result


class RootFolder(NamedTuple):
    """A folder of this machine, held open."""

    fd: int
    path: str
    spellings: tuple[tuple[bytes, ...], ...]
    """Its own names from ``/`` on: as it was given, and without links."""


class Opener(Protocol):
    """How to get from a root to a descriptor."""

    def open(self, root: RootFolder, parts: Sequence[bytes], flags: int, *, links: bool) -> OpenedFile:
        """Open a regular file or folder beneath ``root``; with ``links`` those that stay beneath it are followed.

        Raises ``FileRefused``, and ``OSError`` for the rest.
        """
        ...


def open_root(path: str | os.PathLike[str]) -> RootFolder:
    """Hold a folder open. Raises ``FileMissing``, and ``FileError`` when it is no folder."""
    given: str = os.path.abspath(os.fspath(path))  # noqa: PTH100  # Path.absolute keeps '..'
    real = os.path.realpath(given)
    if not Path(real).is_dir():
        kind = FileError if os.path.lexists(real) else FileMissing
        raise kind(f"the root {quote_path(given)} is not a folder")
    with translate_os_errors(given):
        fd = os.open(real, FOLDER_FLAGS | _NOFOLLOW)
    spellings = {tuple(os.fsencode(name) for name in names_of(spelled) or ()) for spelled in (given, real)}
    return RootFolder(fd, real, tuple(sorted(spellings)))


def select_opener(name: OpenerName, root: RootFolder) -> Opener:
    """Return the way of that name; ``auto`` is the kernel's own where it has one."""
    if os.open not in os.supports_dir_fd or not _NOFOLLOW:
        raise ConfigError("this system cannot open files from a folder on, so files on its disk cannot be lent safely")
    if name == "walk":
        return StepwiseOpener()
    try:
        os.close(openat2(root.fd, b".", FOLDER_FLAGS, RESOLVE_BENEATH))
    except OSError as error:
        if name == "auto":
            return StepwiseOpener()
        raise ConfigError(f"the kernel has no openat2 ({error.strerror}); Linux has it since 5.6") from error
    return Openat2Opener()


class Openat2Opener:
    """One call of the kernel, which sees to it that nothing on the way leads out."""

    def open(self, root: RootFolder, parts: Sequence[bytes], flags: int, *, links: bool) -> OpenedFile:
        """Open what is there; what the kernel refuses is looked at once more, to say why."""
        resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if links else RESOLVE_NO_SYMLINKS)
        path = b"/".join(parts) or b"."
        for _ in range(_MAX_TRIES):
            try:
                return self._open(root, path, flags, resolve)
            except OSError as error:
                if error.errno in {errno.EXDEV, errno.ELOOP}:
                    break  # a link; one that names a place beneath the root in full may be followed all the same
                if error.errno != errno.EAGAIN:
                    raise
        return StepwiseOpener().open(root, parts, flags, links=links)

    def _open(self, root: RootFolder, path: bytes, flags: int, resolve: int) -> OpenedFile:
        name = decode_name(path)
        held = check_opened(openat2(root.fd, path, LOOK_FLAGS | (flags & os.O_DIRECTORY), resolve), name)
        if flags & _O_PATH:
            return held
        os.close(held.fd)
        return check_opened(openat2(root.fd, path, flags | _NO_BLOCKING, resolve), name)


class StepwiseOpener:
    """Folder by folder, each from the one before it; links are read and resolved here, never by the kernel."""

    def open(self, root: RootFolder, parts: Sequence[bytes], flags: int, *, links: bool) -> OpenedFile:
        """Open what is there."""
        trail = _PathTraversal(root, parts, links=links)
        try:
            return trail.traverse(flags)
        finally:
            trail.close()


class _PathTraversal:
    """Where a walk stands: the folders it came through, all held open, and the names that are left."""

    def __init__(self, root: RootFolder, parts: Sequence[bytes], *, links: bool) -> None:
        self._root, self._links = root, links
        self._path = decode_name(b"/".join(parts))
        self._names_left = deque(parts)
        self._fds: list[int] = []
        self._links_followed, self._tries = 0, 0

    @property
    def _current_fd(self) -> int:
        return self._fds[-1] if self._fds else self._root.fd

    def traverse(self, flags: int) -> OpenedFile:
        """Go to the end and open what is there."""
        while self._names_left:
            name = self._names_left.popleft()
            if name == b"..":
                self._go_up()
                continue
            opened = self._open_next(name, flags if not self._names_left else FOLDER_FLAGS)
            if opened is None:
                continue
            if not self._names_left:
                return opened
            self._fds.append(opened.fd)
        return check_opened(os.open(b".", flags | _NOFOLLOW, dir_fd=self._current_fd), self._path)

    def close(self) -> None:
        """Let go of the folders."""
        while self._fds:
            os.close(self._fds.pop())

    def _open_next(self, name: bytes, flags: int) -> OpenedFile | None:
        """Open a name in the folder one stands in; ``None`` when it was a link, or changed: look again."""
        looked = os.stat(name, dir_fd=self._current_fd, follow_symlinks=False)
        if stat.S_ISLNK(looked.st_mode):
            self._follow_link(name)
            return None
        check_file_kind(looked, self._path)
        try:
            opened = check_opened(
                os.open(name, flags | _NOFOLLOW | (0 if flags & _O_PATH else _NO_BLOCKING), dir_fd=self._current_fd),
                self._path,
            )
        except OSError as error:
            if error.errno != errno.ELOOP and not (error.errno == errno.ENOTDIR and stat.S_ISDIR(looked.st_mode)):
                raise
        else:
            if not stat.S_ISLNK(opened.stat.st_mode):
                return opened
            os.close(opened.fd)
        self._retry(name)
        return None

    def _retry(self, name: bytes) -> None:
        self._tries += 1
        if self._tries > _MAX_TRIES:
            raise FileError(f"{quote_path(self._path)} keeps changing while it is looked at")
        self._names_left.appendleft(name)

    def _go_up(self) -> None:
        if not self._fds:
            raise FileRefused(f"{quote_path(self._path)} leads out of the root by a link")
        os.close(self._fds.pop())

    def _follow_link(self, name: bytes) -> None:
        """Put the names a link stands for in the place of its own."""
        try:
            target = os.readlink(name, dir_fd=self._current_fd)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._retry(name)
            return
        said = quote_path(decode_name(target))
        if not self._links:
            raise FileRefused(
                f"{quote_path(self._path)} goes through the link {quote_path(decode_name(name))}, which is not followed"
            )
        self._links_followed += 1
        if self._links_followed > _MAX_LINKS:
            raise FileRefused(f"{quote_path(self._path)} goes through more than {_MAX_LINKS} links")
        names = [part for part in target.split(b"/") if part not in {b"", b"."}]
        if target.startswith(b"/"):
            inside = next((own for own in self._root.spellings if tuple(names[: len(own)]) == own), None)
            if inside is None:
                raise FileRefused(f"{quote_path(self._path)} leads out of the root by a link to {said}")
            self.close()
            names = names[len(inside) :]
        self._names_left.extendleft(reversed(names))


def check_file_kind(status: os.stat_result, path: str) -> None:
    """Refuse what is neither a regular file nor a folder of a disk."""
    kind = stat.S_IFMT(status.st_mode)
    if kind not in {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}:
        raise FileRefused(
            f"{quote_path(path)} is {_KIND_NAMES.get(kind, 'something else')}, neither a regular file nor a folder"
        )
    if status.st_dev in _PROC_DEVICES:
        raise FileRefused(f"{quote_path(path)} is a view into the kernel, not a file of a disk")
    check_not_locked(status, path)


def check_not_locked(status: os.stat_result, path: str) -> None:
    """Refuse a file that must not be opened, because closing it would drop the locks others have on it."""
    if POSIX_LOCKED_FILES and POSIX_LOCKED_FILES[status.st_dev, status.st_ino]:
        raise FileRefused(f"{quote_path(path)} is a database that this program works with; it is not opened as a file")


def check_opened(fd: int, path: str) -> OpenedFile:
    """Return the descriptor with what it is of, or close it and refuse."""
    try:
        looked = os.fstat(fd)
        check_file_kind(looked, path)
    except BaseException:
        os.close(fd)
        raise
    return OpenedFile(fd, looked)


def _find_proc_devices() -> frozenset[int]:
    """Return the device of ``/proc``, where files are doors to processes, if it is mounted."""
    try:
        found = os.stat("/proc/self/fd").st_dev  # noqa: PTH116  # a number is wanted, not a path
        return frozenset({found} - {os.stat("/").st_dev})  # noqa: PTH116  # as above
    except OSError:
        return frozenset()


_KIND_NAMES = {
    stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip

_PROC_DEVICES = _find_proc_devices()
