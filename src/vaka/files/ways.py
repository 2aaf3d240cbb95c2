"""Two ways to open what lies beneath a folder, and nothing else, whoever moves things meanwhile.

Both work on descriptors: what was looked at is what is opened. Neither ever opens a pipe, a device or a socket.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from vaka.core.ports.files import LOCKED
from vaka.core.types.errors import ConfigError, FileError, FileMissing, FileRefused
from vaka.files.names import names_of, read_name, shown
from vaka.files.syscalls import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, openat2
from vaka.files.trouble import told

WayName: TypeAlias = Literal["auto", "openat2", "walk"]

LOOK = getattr(os, "O_PATH", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
"""Flags to hold something without opening it; where there are none, to open it without waiting."""
FOLDER = LOOK | getattr(os, "O_DIRECTORY", 0)
LIST = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
READ = os.O_RDONLY

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_QUIET = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_HELD = getattr(os, "O_PATH", 0)
_LINKS = 40
"""Links on one way, as the kernel has it."""
_TRIES = 256
"""How often something may change while it is looked at."""


class Opened(NamedTuple):
    """A descriptor and what it is of."""

    fd: int
    stat: os.stat_result


class Root(NamedTuple):
    """A folder of this machine, held open."""

    fd: int
    path: str
    spellings: tuple[tuple[bytes, ...], ...]
    """Its own names from ``/`` on: as it was given, and without links."""


class Way(Protocol):
    """How to get from a root to a descriptor."""

    def open(self, root: Root, parts: Sequence[bytes], flags: int, *, links: bool) -> Opened:
        """Open a regular file or folder beneath ``root``; with ``links`` those that stay beneath it are followed.

        Raises ``FileRefused``, and ``OSError`` for the rest.
        """
        ...


def open_root(path: str | os.PathLike[str]) -> Root:
    """Hold a folder open. Raises ``FileMissing``, and ``FileError`` when it is no folder."""
    given: str = os.path.abspath(os.fspath(path))  # noqa: PTH100  # Path.absolute keeps '..'
    real = os.path.realpath(given)
    if not Path(real).is_dir():
        kind = FileError if os.path.lexists(real) else FileMissing
        raise kind(f"the root {shown(given)} is not a folder")
    with told(given):
        fd = os.open(real, FOLDER | _NOFOLLOW)
    spellings = {tuple(os.fsencode(name) for name in names_of(spelled) or ()) for spelled in (given, real)}
    return Root(fd, real, tuple(sorted(spellings)))


def choose(name: WayName, root: Root) -> Way:
    """Return the way of that name; ``auto`` is the kernel's own where it has one."""
    if os.open not in os.supports_dir_fd or not _NOFOLLOW:
        raise ConfigError("this system cannot open files from a folder on, so files on its disk cannot be lent safely")
    if name == "walk":
        return Walk()
    try:
        os.close(openat2(root.fd, b".", FOLDER, RESOLVE_BENEATH))
    except OSError as error:
        if name == "auto":
            return Walk()
        raise ConfigError(f"the kernel has no openat2 ({error.strerror}); Linux has it since 5.6") from error
    return Openat2()


class Openat2:
    """One call of the kernel, which sees to it that nothing on the way leads out."""

    def open(self, root: Root, parts: Sequence[bytes], flags: int, *, links: bool) -> Opened:
        """Open what is there; what the kernel refuses is looked at once more, to say why."""
        resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if links else RESOLVE_NO_SYMLINKS)
        path = b"/".join(parts) or b"."
        for _ in range(_TRIES):
            try:
                return self._open(root, path, flags, resolve)
            except OSError as error:
                if error.errno in {errno.EXDEV, errno.ELOOP}:
                    break  # a link; one that names a place beneath the root in full may be followed all the same
                if error.errno != errno.EAGAIN:
                    raise
        return Walk().open(root, parts, flags, links=links)

    def _open(self, root: Root, path: bytes, flags: int, resolve: int) -> Opened:
        name = read_name(path)
        held = checked(openat2(root.fd, path, LOOK | (flags & os.O_DIRECTORY), resolve), name)
        if flags & _HELD:
            return held
        os.close(held.fd)
        return checked(openat2(root.fd, path, flags | _QUIET, resolve), name)


class Walk:
    """Folder by folder, each from the one before it; links are read and resolved here, never by the kernel."""

    def open(self, root: Root, parts: Sequence[bytes], flags: int, *, links: bool) -> Opened:
        """Open what is there."""
        trail = _Trail(root, parts, links=links)
        try:
            return trail.follow(flags)
        finally:
            trail.close()


class _Trail:
    """Where a walk stands: the folders it came through, all held open, and the names that are left."""

    def __init__(self, root: Root, parts: Sequence[bytes], *, links: bool) -> None:
        self._root, self._links = root, links
        self._path = read_name(b"/".join(parts))
        self._left = deque(parts)
        self._fds: list[int] = []
        self._hops, self._tries = 0, 0

    @property
    def _here(self) -> int:
        return self._fds[-1] if self._fds else self._root.fd

    def follow(self, flags: int) -> Opened:
        """Go to the end and open what is there."""
        while self._left:
            name = self._left.popleft()
            if name == b"..":
                self._up()
                continue
            opened = self._step(name, flags if not self._left else FOLDER)
            if opened is None:
                continue
            if not self._left:
                return opened
            self._fds.append(opened.fd)
        return checked(os.open(b".", flags | _NOFOLLOW, dir_fd=self._here), self._path)

    def close(self) -> None:
        """Let go of the folders."""
        while self._fds:
            os.close(self._fds.pop())

    def _step(self, name: bytes, flags: int) -> Opened | None:
        """Open a name in the folder one stands in; ``None`` when it was a link, or changed: look again."""
        looked = os.stat(name, dir_fd=self._here, follow_symlinks=False)
        if stat.S_ISLNK(looked.st_mode):
            self._link(name)
            return None
        plain(looked, self._path)
        try:
            opened = checked(os.open(name, flags | _NOFOLLOW | (0 if flags & _HELD else _QUIET), dir_fd=self._here),
                             self._path)  # fmt: skip
        except OSError as error:
            if error.errno != errno.ELOOP and not (error.errno == errno.ENOTDIR and stat.S_ISDIR(looked.st_mode)):
                raise
        else:
            if not stat.S_ISLNK(opened.stat.st_mode):
                return opened
            os.close(opened.fd)
        self._again(name)
        return None

    def _again(self, name: bytes) -> None:
        self._tries += 1
        if self._tries > _TRIES:
            raise FileError(f"{shown(self._path)} keeps changing while it is looked at")
        self._left.appendleft(name)

    def _up(self) -> None:
        if not self._fds:
            raise FileRefused(f"{shown(self._path)} leads out of the root by a link")
        os.close(self._fds.pop())

    def _link(self, name: bytes) -> None:
        """Put the names a link stands for in the place of its own."""
        try:
            target = os.readlink(name, dir_fd=self._here)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._again(name)
            return
        said = shown(read_name(target))
        if not self._links:
            raise FileRefused(
                f"{shown(self._path)} goes through the link {shown(read_name(name))}, which is not followed"
            )
        self._hops += 1
        if self._hops > _LINKS:
            raise FileRefused(f"{shown(self._path)} goes through more than {_LINKS} links")
        names = [part for part in target.split(b"/") if part not in {b"", b"."}]
        if target.startswith(b"/"):
            inside = next((own for own in self._root.spellings if tuple(names[: len(own)]) == own), None)
            if inside is None:
                raise FileRefused(f"{shown(self._path)} leads out of the root by a link to {said}")
            self.close()
            names = names[len(inside) :]
        self._left.extendleft(reversed(names))


def plain(looked: os.stat_result, path: str) -> None:
    """Refuse what is neither a regular file nor a folder of a disk."""
    kind = stat.S_IFMT(looked.st_mode)
    if kind not in {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}:
        raise FileRefused(f"{shown(path)} is {_KINDS.get(kind, 'something else')}, neither a regular file nor a folder")
    if looked.st_dev in _KERNEL:
        raise FileRefused(f"{shown(path)} is a view into the kernel, not a file of a disk")
    unlocked(looked, path)


def unlocked(looked: os.stat_result, path: str) -> None:
    """Refuse a file that must not be opened, because closing it would drop the locks others have on it."""
    if LOCKED and LOCKED[looked.st_dev, looked.st_ino]:
        raise FileRefused(f"{shown(path)} is a database that this program works with; it is not opened as a file")


def checked(fd: int, path: str) -> Opened:
    """Return the descriptor with what it is of, or close it and refuse."""
    try:
        looked = os.fstat(fd)
        plain(looked, path)
    except BaseException:
        os.close(fd)
        raise
    return Opened(fd, looked)


def _kernel() -> frozenset[int]:
    """Return the device of ``/proc``, where files are doors to processes, if it is mounted."""
    try:
        found = os.stat("/proc/self/fd").st_dev  # noqa: PTH116  # a number is wanted, not a path
        return frozenset({found} - {os.stat("/").st_dev})  # noqa: PTH116  # as above
    except OSError:
        return frozenset()


_KINDS = {
    stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
_KERNEL = _kernel()
