"""Replace a file atomically, and only over content the caller knew: temporary files, missing folders, fsync.

The failpoints, in order: ``write.after_create``, ``write.after_data``, ``write.before_rename``,
``write.after_rename``, ``write.before_return``.
"""

import errno
import hashlib
import os
import re
import secrets
import stat
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from vaka.core.types.errors import FileChanged, FileError, FileRefused
from vaka.core.types.ids import Digest
from vaka.files import paths
from vaka.files.safe_open import FOLDER_FLAGS, LIST_FLAGS, IdentityGuard, RootFolder, check_not_locked
from vaka.system.openat2 import rename_noreplace

on_failpoint: Callable[[str], None] | None = None
"""Called with the name of each failpoint; only ``vaka.testing.files`` sets it."""


def reach_failpoint(name: str) -> None:
    if on_failpoint:
        on_failpoint(name)


if sys.platform != "win32":
    import fcntl

_TEMP_NAME = re.compile(r"\.vaka-[0-9a-f]{16}\.tmp")

_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_MAX_TRIES = 64


def is_temp_name(name: str) -> bool:
    return _TEMP_NAME.fullmatch(name) is not None


def create_temp_file(folder: int, mode: int) -> tuple[bytes, int]:
    """Create and lock an empty file in a folder; return its name and descriptor."""
    for _ in range(_MAX_TRIES):
        name = b".vaka-%s.tmp" % secrets.token_hex(8).encode()
        try:
            fd = os.open(name, _CREATE_FLAGS, mode, dir_fd=folder)
        except FileExistsError:
            continue
        if try_lock(fd) is not False and os.fstat(fd).st_nlink:
            return name, fd
        os.close(fd)  # another process removed it as stale
    raise OSError(errno.EBUSY, "no temporary file could be created")


def remove_stale_temp_files(folder: int) -> None:
    """Remove the temporary files of killed writers from a folder."""
    with suppress(OSError):  # stale files in a folder that cannot be listed are harmless
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        try:
            with os.scandir(fd) as entries:
                names = [
                    os.fsencode(entry.name)
                    for entry in entries
                    if is_temp_name(entry.name) and entry.is_file(follow_symlinks=False)
                ]
        finally:
            os.close(fd)
        for name in names:
            with suppress(OSError):
                _remove_if_stale(folder, name)


def _remove_if_stale(folder: int, name: bytes) -> None:
    fd = os.open(name, os.O_RDONLY | _NOFOLLOW, dir_fd=folder)
    try:
        if try_lock(fd):
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool | None:
    """Lock an open file without waiting; ``False`` if it is locked, ``None`` where locks are not supported."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in {errno.EWOULDBLOCK, errno.EACCES} else None
    return True


def open_or_make_folder(root: RootFolder, parts: Sequence[str], guard: IdentityGuard | None, *, make: bool) -> int:
    """Open a folder beneath the root without following links; with ``make``, create missing folders."""
    folder = os.open(b".", FOLDER_FLAGS, dir_fd=root.fd)
    try:
        for depth, part in enumerate(parts, 1):
            inner = _open_or_make_subfolder(folder, part, paths.join_names(parts[:depth]), make=make)
            os.close(folder)
            folder = inner
            if guard:
                guard.check(os.fstat(folder), paths.join_names(parts[:depth]))
    except BaseException:
        os.close(folder)
        raise
    return folder


def sync_folder(folder: int) -> None:
    """Flush the entries of a folder to disk."""
    with suppress(PermissionError):  # fsync needs a descriptor for reading, which a write-only folder does not allow
        fd = os.open(b".", LIST_FLAGS, dir_fd=folder)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _open_or_make_subfolder(folder: int, name: str, path: str, *, make: bool) -> int:
    while True:
        try:
            return os.open(paths.encode_name(name), FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
        except NotADirectoryError as error:
            raise _not_writable_error(folder, name, path) from error
        except FileNotFoundError:
            if not make:
                raise
        with suppress(FileExistsError):  # another process made it meanwhile
            _make_subfolder(folder, paths.encode_name(name))
        sync_folder(folder)
        make = False


def _make_subfolder(folder: int, name: bytes) -> None:
    os.mkdir(name, dir_fd=folder)
    if os.geteuid() == 0:
        made = os.open(name, LIST_FLAGS | _NOFOLLOW, dir_fd=folder)
        try:
            _give_to_owner_of(folder, made)
        finally:
            os.close(made)


def _not_writable_error(folder: int, name: str, path: str) -> FileError:
    status = os.stat(paths.encode_name(name), dir_fd=folder, follow_symlinks=False)
    return _link_error(path) if stat.S_ISLNK(status.st_mode) else paths.blocked_folder_error(path)


def _link_error(path: str) -> FileRefused:
    return FileRefused(f"{paths.quote_path(path)} is a link, and links are not written through")


_CHUNK = 1 << 20

_LOCK_TIMEOUT = 5.0
"""Seconds to wait for another process that replaces the same file."""

_process_locks = tuple(threading.Lock() for _ in range(64))


class FileWrite(NamedTuple):
    folder: int
    name: str
    path: str
    """The path for messages."""
    data: bytes
    known: Digest | None
    new: bool


def write_atomically(write: FileWrite, guard: IdentityGuard | None = None) -> os.stat_result:
    """Write a whole file or nothing; the guard may refuse the file that is replaced."""
    old = lstat_name(write.folder, write.name)
    if old is not None:
        _check_replaceable(write, old)
        if guard:
            guard.check(old, write.path)
    present = None if old is None else write.known or Digest("")  # the digest itself is compared under the lock
    paths.check_unchanged(write.path, present, write.known, new=write.new)
    name, fd = create_temp_file(write.folder, 0o600 if old else 0o666)
    try:
        reach_failpoint("write.after_create")
        _write_all(fd, write.data)
        reach_failpoint("write.after_data")
        if old is not None:
            _copy_owner_and_mode(fd, old)
        elif os.geteuid() == 0:
            _give_to_owner_of(write.folder, fd)
        os.fsync(fd)
        with _process_lock_of(write), _hold_unchanged(write):
            reach_failpoint("write.before_rename")
            _rename_into_place(write, name)
        reach_failpoint("write.after_rename")
        written = os.fstat(fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=write.folder)
        raise
    finally:
        os.close(fd)
    sync_folder(write.folder)
    reach_failpoint("write.before_return")
    return written


def lstat_name(folder: int, name: str) -> os.stat_result | None:
    """Return the status of a name in a folder without following links, ``None`` if it is missing."""
    try:
        return os.stat(paths.encode_name(name), dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def digest_of(fd: int) -> Digest:
    digest, at = hashlib.sha256(), 0
    while chunk := os.pread(fd, _CHUNK, at):
        digest.update(chunk)
        at += len(chunk)
    return Digest(digest.hexdigest())


def _check_replaceable(write: FileWrite, old: os.stat_result) -> None:
    if stat.S_ISLNK(old.st_mode):
        raise _link_error(write.path)
    if stat.S_ISDIR(old.st_mode):
        raise paths.not_a_file_error(write.path)
    if not stat.S_ISREG(old.st_mode):
        raise FileRefused(f"{paths.quote_path(write.path)} is not a regular file")
    check_not_locked(old, write.path)
    if write.new:
        return  # refused below: it is not written to
    try:
        os.close(os.open(paths.encode_name(write.name), os.O_WRONLY | _NOFOLLOW, dir_fd=write.folder))
    except OSError as error:  # a rename would succeed on a read-only file
        if error.errno != errno.ETXTBSY:
            raise


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left[:_CHUNK]) :]


def _give_to_owner_of(folder: int, fd: int) -> None:
    """Give what root has made to the owner of its folder: commands of root run as that user, and may change it then."""
    owner = os.fstat(folder)
    with suppress(PermissionError):  # root of a container may lack the right
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _copy_owner_and_mode(fd: int, old: os.stat_result) -> None:
    """Copy owner and mode without the setuid and setgid bits, which any write clears."""
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        for uid, gid in ((old.st_uid, old.st_gid), (-1, old.st_gid)):
            with suppress(PermissionError):
                os.fchown(fd, uid, gid)
                break
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o1777)


def _process_lock_of(write: FileWrite) -> threading.Lock:
    """Return the lock that keeps other threads from replacing the same file between the check and the rename."""
    folder = os.fstat(write.folder)
    return _process_locks[hash((folder.st_dev, folder.st_ino, write.name)) % len(_process_locks)]


@contextmanager
def _hold_unchanged(write: FileWrite) -> Generator[None]:
    """Lock the file that is replaced. Raises ``FileChanged`` unless it has the digest that the caller knows."""
    if write.known is None:
        yield
        return
    try:
        fd = os.open(paths.encode_name(write.name), os.O_RDONLY | _NOFOLLOW, dir_fd=write.folder)
    except FileNotFoundError as error:
        raise _changed_error(write) from error
    try:
        _wait_for_lock(fd, write.path)
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode) or digest_of(fd) != write.known:
            raise _changed_error(write)
        now, after = lstat_name(write.folder, write.name), os.fstat(fd)
        if now is None or not _version_of(before) == _version_of(after) == _version_of(now):
            raise _changed_error(write)
        yield
    finally:
        os.close(fd)


def _changed_error(write: FileWrite) -> FileChanged:
    return FileChanged(f"{paths.quote_path(write.path)} has changed since it was read; read it again")


def _wait_for_lock(fd: int, path: str) -> None:
    """Lock out other processes that replace the same file. Raises ``FileError`` after ``_LOCK_TIMEOUT``."""
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while try_lock(fd) is False:
        if time.monotonic() > deadline:
            raise FileError(f"{paths.quote_path(path)} is locked by another process")
        time.sleep(0.005)


def _version_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _rename_into_place(write: FileWrite, name: bytes) -> None:
    folder, target = write.folder, paths.encode_name(write.name)
    if not write.new:
        os.rename(name, target, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        if not rename_noreplace(folder, name, target):
            os.link(name, target, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(name, dir_fd=folder)
    except FileExistsError as error:
        raise FileChanged(f"{paths.quote_path(write.path)} exists already; expected nothing there") from error
