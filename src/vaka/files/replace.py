"""Put new bytes in a file's place: all of them or none, and only over what the caller knew."""

import contextlib
import errno
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Generator
from typing import NamedTuple

from vaka.core.types.errors import FileChanged, FileError, FileRefused
from vaka.core.types.ids import Digest
from vaka.files import failpoint
from vaka.files.folders import settle
from vaka.files.names import raw, shown
from vaka.files.syscalls import rename_new
from vaka.files.temporary import create, lock
from vaka.files.ways import unlocked

_CHUNK = 1 << 20
_PATIENCE = 5.0
"""Seconds to wait for another process that is just replacing the same file."""
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_locks = tuple(threading.Lock() for _ in range(64))


class Change(NamedTuple):
    """What is to be written where."""

    folder: int
    name: str
    path: str
    """How it is told."""
    data: bytes
    known: Digest | None
    new: bool


def replace(change: Change, check: Callable[[os.stat_result, str], None]) -> os.stat_result:
    """Write a file whole or not at all; ``check`` may refuse what is there now."""
    old = look(change.folder, change.name)
    if old is not None:
        _replaceable(change, old)
        check(old, change.path)
    _expected(change, old)
    name, fd = create(change.folder, 0o600 if old else 0o666)
    try:
        failpoint.passed("write.after_create")
        _fill(fd, change.data)
        failpoint.passed("write.after_data")
        if old is not None:
            _adopt(fd, old)
        os.fsync(fd)
        with _alone(change), _unchanged(change):
            failpoint.passed("write.before_rename")
            _rename(change, name)
        failpoint.passed("write.after_rename")
        written = os.fstat(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=change.folder)
        raise
    finally:
        os.close(fd)
    settle(change.folder)
    failpoint.passed("write.before_return")
    return written


def look(folder: int, name: str) -> os.stat_result | None:
    """Return what a folder holds under a name, the link itself if it is one."""
    try:
        return os.stat(raw(name), dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def digest_of(fd: int) -> Digest:
    """Return the SHA-256 of an open file, read piece by piece."""
    seen, at = hashlib.sha256(), 0
    while piece := os.pread(fd, _CHUNK, at):
        seen.update(piece)
        at += len(piece)
    return Digest(seen.hexdigest())


def _replaceable(change: Change, old: os.stat_result) -> None:
    shown_path = shown(change.path)
    if stat.S_ISLNK(old.st_mode):
        raise FileRefused(f"{shown_path} is a link, and links are not written through")
    if stat.S_ISDIR(old.st_mode):
        raise FileError(f"{shown_path} is a folder, not a file")
    if not stat.S_ISREG(old.st_mode):
        raise FileRefused(f"{shown_path} is not a regular file")
    unlocked(old, change.path)
    if change.new:
        return  # told below; it is not going to be written
    try:
        os.close(os.open(raw(change.name), os.O_WRONLY | _NOFOLLOW, dir_fd=change.folder))
    except OSError as error:  # a rename would not ask, but whoever made it read-only meant it
        if error.errno != errno.ETXTBSY:
            raise


def _expected(change: Change, old: os.stat_result | None) -> None:
    if change.new and old is not None:
        raise FileChanged(f"{shown(change.path)} exists already; expected nothing there")
    if change.known is not None and old is None:
        raise FileChanged(f"{shown(change.path)} is no longer there; it was when it was read")


def _fill(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left[:_CHUNK]) :]


def _adopt(fd: int, old: os.stat_result) -> None:
    """Take over owner and mode; the bits that lend rights to whoever runs a file go, as with any write."""
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (old.st_uid, old.st_gid):
        for uid, gid in ((old.st_uid, old.st_gid), (-1, old.st_gid)):
            with contextlib.suppress(PermissionError):
                os.fchown(fd, uid, gid)
                break
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o1777)


@contextlib.contextmanager
def _alone(change: Change) -> Generator[None]:
    """Keep others in this process from replacing the same file between the look and the rename."""
    here = os.fstat(change.folder)
    with _locks[hash((here.st_dev, here.st_ino, change.name)) % len(_locks)]:
        yield


@contextlib.contextmanager
def _unchanged(change: Change) -> Generator[None]:
    """Make sure that what is about to be replaced is what the caller has read, and hold it meanwhile."""
    if change.known is None:
        yield
        return
    try:
        fd = os.open(raw(change.name), os.O_RDONLY | _NOFOLLOW, dir_fd=change.folder)
    except FileNotFoundError as error:
        raise _gone(change) from error
    try:
        _hold(fd, change.path)
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode) or digest_of(fd) != change.known:
            raise _gone(change)
        now, after = look(change.folder, change.name), os.fstat(fd)
        if now is None or not _version(before) == _version(after) == _version(now):
            raise _gone(change)
        yield
    finally:
        os.close(fd)


def _gone(change: Change) -> FileChanged:
    return FileChanged(f"{shown(change.path)} has changed since it was read; read it again")


def _hold(fd: int, path: str) -> None:
    """Have other processes that replace the same file wait until this one has seen what it replaces."""
    until = time.monotonic() + _PATIENCE
    while lock(fd) is False:
        if time.monotonic() > until:
            raise FileError(f"{shown(path)} is locked by another process")
        time.sleep(0.005)


def _version(looked: os.stat_result) -> tuple[int, ...]:
    return looked.st_dev, looked.st_ino, looked.st_size, looked.st_mtime_ns, looked.st_ctime_ns


def _rename(change: Change, name: bytes) -> None:
    folder, target = change.folder, raw(change.name)
    if not change.new:
        os.rename(name, target, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        if not rename_new(folder, name, target):
            os.link(name, target, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(name, dir_fd=folder)
    except FileExistsError as error:
        raise FileChanged(f"{shown(change.path)} exists already; expected nothing there") from error
