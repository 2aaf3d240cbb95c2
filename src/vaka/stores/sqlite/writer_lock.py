"""The lock file of a store handle: the handle is alive as long as its process holds the lock.

One file per handle, in a folder beside the database. The operating system releases the lock when the process ends, so
the handle's claims end with it.
"""

import contextlib
import errno
import os
import sys
import uuid
from collections.abc import Generator
from functools import cache
from pathlib import Path

from vaka.core.types.errors import Busy, CannotOpen, ReadOnlyStore, StoreError

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, *, shared: bool) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int, *, shared: bool) -> None:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _try_lock(descriptor: int, *, shared: bool) -> bool:
    """Take the lock if it is free; ``is_alive`` takes it shared, so that concurrent checks do not collide."""
    try:
        _lock(descriptor, shared=shared)
    except OSError:
        return False
    return True


_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_held_descriptors: set[int] = set()
"""Descriptors of the locks of this process."""


def _close_inherited_locks() -> None:
    """Close the parent's locks in a forked child, so that they end with the parent."""
    for descriptor in _held_descriptors:
        os.close(descriptor)
    _held_descriptors.clear()


@cache
def _register_fork_hook() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_close_inherited_locks)


class WriterLock:
    """The name and lock of this handle; also tells whether other names are alive."""

    def __init__(self, database: Path) -> None:
        self.folder = database.with_name(f"{database.name}-live")
        self.name = ""
        """Empty until ``acquire``."""
        self._descriptor = -1
        self._path = ""
        """The lock file while it is held; a string, since it is looked at in each turn."""
        self._identity: tuple[int, int] | None = None

    def acquire(self) -> None:
        """Create a lock file with a new name and lock it; ``StoreError`` when the folder cannot be used."""
        try:
            while not self.name:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._try_acquire(uuid.uuid4().hex)
        except OSError as error:
            message = f"no session can be claimed: the folder {str(self.folder)!r} cannot be used: {error.strerror}"
            raise (ReadOnlyStore if error.errno == errno.EROFS else StoreError)(message) from error
        self.remove_stale_files()

    @contextlib.contextmanager
    def hold_exclusively(self, work: str) -> Generator[None]:
        """Hold a lock under which only one process does a piece of work. Raises ``Busy``."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self.folder / work, os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o600)
        except OSError as error:
            raise CannotOpen(f"the folder {str(self.folder)!r} cannot be used: {error.strerror}") from error
        try:
            if not _try_lock(descriptor, shared=False):
                raise Busy(f"another process does a {work} of this database; try again when it has ended")
            yield
        finally:
            os.close(descriptor)

    def is_held(self) -> bool:
        """Whether the lock file still exists under its name: without it other handles believe this one dead."""
        return self._descriptor >= 0 and file_identity(self._path) == self._identity

    def restore(self) -> bool:
        """Make the lock file again under the same name; return whether that succeeded.

        The new file is locked before it gets the name, so no other handle finds it free.
        """
        if self._descriptor not in _held_descriptors:
            return False
        file = self._lock_file(self.name)
        new, descriptor = file.with_suffix(".new"), -1
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | _CLOEXEC, 0o600)
            _lock(descriptor, shared=False)
            new.replace(file)
        except OSError:
            if descriptor >= 0:
                os.close(descriptor)
            return False
        _held_descriptors.discard(self._descriptor)
        os.close(self._descriptor)
        self._hold(self.name, descriptor)
        return True

    def is_alive(self, name: str) -> bool:
        """Whether the handle of that name is alive, in this or another process."""
        if not _is_owner_name(name):
            return False
        try:
            descriptor = _open_lock_file(self._lock_file(name))
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            return not _try_lock(descriptor, shared=True)
        finally:
            os.close(descriptor)

    def remove_stale_files(self) -> None:
        """Remove the files of dead handles."""
        names = {file.stem for file in self.folder.iterdir() if file.suffix in {".lock", ".sock"}}
        for name in names:
            if _is_owner_name(name) and name != self.name and not self.is_alive(name):
                self._remove_files(name)

    def release(self) -> None:
        """Remove the lock file; the handle's claims end."""
        if self._descriptor in _held_descriptors:
            self._remove_files(self.name)
            _held_descriptors.discard(self._descriptor)
            os.close(self._descriptor)
            self.name, self._descriptor = "", -1

    def _try_acquire(self, name: str) -> None:
        file = self._lock_file(name)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | _CLOEXEC, 0o600)
        # Between open and lock another handle may sweep: then the file is removed, or locked for a moment.
        if _try_lock(descriptor, shared=False) and file.exists() and file.stat().st_ino == os.fstat(descriptor).st_ino:
            self._hold(name, descriptor)
        else:
            os.close(descriptor)

    def _hold(self, name: str, descriptor: int) -> None:
        self.name, self._descriptor = name, descriptor
        self._path = str(self._lock_file(name))
        found = os.fstat(descriptor)
        self._identity = found.st_dev, found.st_ino
        _register_fork_hook()
        _held_descriptors.add(descriptor)

    def _lock_file(self, name: str) -> Path:
        return self.folder / f"{name}.lock"

    def _remove_files(self, name: str) -> None:
        for suffix in (".lock", ".sock"):
            with contextlib.suppress(OSError):
                (self.folder / f"{name}{suffix}").unlink()


def _open_lock_file(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | _CLOEXEC)
    except OSError as error:
        if error.errno not in {errno.EROFS, errno.EACCES}:
            raise
    return os.open(path, os.O_RDONLY | _CLOEXEC)  # enough for a shared lock


def file_identity(path: Path | str) -> tuple[int, int] | None:
    """Return the device and the inode of a file, ``None`` when it does not exist."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_owner_name(name: str) -> bool:
    return len(name) == 32 and name.isalnum() and name.isascii()
