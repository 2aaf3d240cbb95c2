"""Holding protected places: what is not there is made, to be mounted on, and taken away by whoever holds it last.

If it went while another command is held by it, the mount of that command would go with it, and so would its protection.
So all who hold a place share a lock on it. What was made has a time of its own, which it loses when somebody writes to
it: that is how others know what it is, also when whoever made it was killed. A socket cannot be locked: for those of a
folder all share one lock on that folder.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from vaka.sandbox.warden.kernel import open_exactly
from vaka.sandbox.warden.order import Refused

_MADE = 402_653_184 * 10**9
"""A moment in 1982 that nothing else is from: whole and even, so that every file system can keep it."""
_SAYING = {".json": b"{}\n", "commondir": b".\n"}
"""What others may read meanwhile should be readable: an empty file is no JSON, and git takes none for a folder."""
_PATIENCE, _PAUSE = 5.0, 0.001

Kind: TypeAlias = Literal["file", "folder", "socket"]
"""What is made: git sees neither of the last two, and for many programs a folder is more than nothing."""


class Held(NamedTuple):
    """A place that is held."""

    folder: int
    name: str
    descriptor: int
    """What the lock is on."""

    def release(self) -> None:
        """Let go of it; take it away if it was made to be held, is as it was, and nobody else holds it."""
        with contextlib.suppress(OSError):
            mine = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
            socket = stat.S_ISSOCK(mine.st_mode)
            if made(mine) and (socket or _same(self.folder, self.name, self.descriptor)):
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISDIR(mine.st_mode):
                    os.rmdir(self.name, dir_fd=self.folder)
                elif socket or mine.st_size == len(_empty(self.name)):
                    os.unlink(self.name, dir_fd=self.folder)
        for descriptor in (self.descriptor, self.folder):
            os.close(descriptor)


def look(path: str) -> os.stat_result | None:
    """Return what is at a path, ``None`` if nothing is."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def made(found: os.stat_result) -> bool:
    """Whether something was made to be held, and is as it was."""
    return found.st_mtime_ns == _MADE


def hold(parent: str, name: str, *, kind: Kind, others: Iterable[Held | None] = ()) -> Held | None:
    """Hold a place, and make what is not there; ``None`` if it need not be held, since nobody takes it away.

    ``others`` are held already, and share their locks. Raises ``Refused`` if somebody keeps it from being held.
    """
    at = open_exactly(parent, os.O_PATH | os.O_DIRECTORY)
    deadline = time.monotonic() + _PATIENCE
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(FileExistsError, FileNotFoundError, BlockingIOError):
                descriptor = _lock(at, name, kind, others)
                if descriptor is not None:
                    return Held(at, name, descriptor)
                os.close(at)
                return None
            time.sleep(_PAUSE)  # somebody takes it away at this moment, or has made it
    except BaseException:
        os.close(at)
        raise
    os.close(at)
    raise Refused(f"{parent}/{name} cannot be protected: somebody holds a lock on it")


def _lock(at: int, name: str, kind: Kind, others: Iterable[Held | None]) -> int | None:
    """Return an open lock on what is there; ``BlockingIOError`` if that is changing just now."""
    try:
        there = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        _make(at, name, kind)
        there = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISSOCK(there.st_mode) and made(there):
        return _lock_folder(at, name, others)
    if not (stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode)):
        return None
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    except PermissionError:
        return None  # what is made can be read
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        if made(there):
            raise
        return None  # somebody else's, with a lock of their own, or where there are no locks
    if not _same(at, name, descriptor):
        os.close(descriptor)
        raise BlockingIOError(errno.EWOULDBLOCK, f"{name!r} is not what it was")
    return descriptor


def _lock_folder(at: int, name: str, others: Iterable[Held | None]) -> int:
    """Return an open lock on a folder in which a socket is; ``BlockingIOError`` if that is taken away just now."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
    for held in others:
        if held is not None and os.path.samestat(os.fstat(held.descriptor), os.fstat(descriptor)):
            os.close(descriptor)
            return os.dup(held.descriptor)  # two locks of one process would keep each other from ending
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.stat(name, dir_fd=at, follow_symlinks=False)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _same(at: int, name: str, descriptor: int) -> bool:
    """Whether a name still is that of what is open."""
    try:
        there = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _empty(name: str) -> bytes:
    return next((said for end, said in _SAYING.items() if name.endswith(end)), b"")


def _make_socket(at: int, name: str) -> bool:
    """Make a socket; ``False`` if that cannot be, as not every file system has such."""
    try:
        os.mknod(name, stat.S_IFSOCK | 0o644, dir_fd=at)
    except FileExistsError:
        raise
    except OSError:
        return False
    os.utime(name, ns=(_MADE, _MADE), dir_fd=at, follow_symlinks=False)
    return True


def _make(at: int, name: str, kind: Kind) -> None:
    if kind == "socket" and _make_socket(at, name):
        return
    if kind != "file":
        os.mkdir(name, 0o755, dir_fd=at)
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=at)
    else:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=at)
        os.write(descriptor, _empty(name))
    os.utime(descriptor, ns=(_MADE, _MADE))
    os.close(descriptor)
