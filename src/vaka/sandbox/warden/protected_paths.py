"""Protected paths of a job: which paths and folders must be held, and the placeholders and locks that hold them.

A missing path gets a placeholder to be mounted on; the last process that holds it removes it. All holders share a
lock on it. A placeholder has a fixed modification time, which it loses when it is written to. A socket cannot be
locked: for sockets all holders lock their folder.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from vaka.sandbox.warden.job_spec import JobRefused
from vaka.sandbox.warden.syscalls import open_without_links

_PLACEHOLDER_MTIME_NS = 402_653_184 * 10**9
"""A moment in 1982 that nothing else is from: whole and even, so that every file system can keep it."""

_PLACEHOLDER_TEXTS = {".json": b"{}\n", "commondir": b".\n"}
"""What others may read meanwhile should be readable: an empty file is no JSON, and git takes none for a folder."""

_LOCK_TIMEOUT, _RETRY_PAUSE = 5.0, 0.001

PlaceholderKind: TypeAlias = Literal["file", "folder", "socket"]
"""What is made: git sees neither of the last two, and for many programs a folder is more than nothing."""


class HeldPath(NamedTuple):
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
            if is_placeholder(mine) and (socket or _is_same_file(self.folder, self.name, self.descriptor)):
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISDIR(mine.st_mode):
                    os.rmdir(self.name, dir_fd=self.folder)
                elif socket or mine.st_size == len(_placeholder_text_of(self.name)):
                    os.unlink(self.name, dir_fd=self.folder)
        for descriptor in (self.descriptor, self.folder):
            os.close(descriptor)


def lstat_or_none(path: str) -> os.stat_result | None:
    """Return what is at a path, ``None`` if nothing is."""
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def is_placeholder(status: os.stat_result) -> bool:
    """Whether something was made to be held, and is as it was."""
    return status.st_mtime_ns == _PLACEHOLDER_MTIME_NS


def hold_path(
    parent: str, name: str, *, kind: PlaceholderKind, already_held: Iterable[HeldPath | None] = ()
) -> HeldPath | None:
    """Hold a place, and make what is not there; ``None`` if it need not be held, since nobody takes it away.

    ``others`` are held already, and share their locks. Raises ``Refused`` if somebody keeps it from being held.
    """
    at = open_without_links(parent, os.O_PATH | os.O_DIRECTORY)
    deadline = time.monotonic() + _LOCK_TIMEOUT
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(FileExistsError, FileNotFoundError, BlockingIOError):
                descriptor = _lock_path(at, name, kind, already_held)
                if descriptor is not None:
                    return HeldPath(at, name, descriptor)
                os.close(at)
                return None
            time.sleep(_RETRY_PAUSE)  # somebody takes it away at this moment, or has made it
    except BaseException:
        os.close(at)
        raise
    os.close(at)
    raise JobRefused(f"{parent}/{name} cannot be protected: somebody holds a lock on it")


def _lock_path(at: int, name: str, kind: PlaceholderKind, already_held: Iterable[HeldPath | None]) -> int | None:
    """Return an open lock on what is there; ``BlockingIOError`` if that is changing just now."""
    try:
        there = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        _make_placeholder(at, name, kind)
        there = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISSOCK(there.st_mode) and is_placeholder(there):
        return _lock_folder(at, name, already_held)
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
        if is_placeholder(there):
            raise
        return None  # somebody else's, with a lock of their own, or where there are no locks
    if not _is_same_file(at, name, descriptor):
        os.close(descriptor)
        raise BlockingIOError(errno.EWOULDBLOCK, f"{name!r} is not what it was")
    return descriptor


def _lock_folder(at: int, name: str, already_held: Iterable[HeldPath | None]) -> int:
    """Return an open lock on a folder in which a socket is; ``BlockingIOError`` if that is taken away just now."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
    for held in already_held:
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


def _is_same_file(at: int, name: str, descriptor: int) -> bool:
    """Whether a name still is that of what is open."""
    try:
        there = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _placeholder_text_of(name: str) -> bytes:
    return next((said for end, said in _PLACEHOLDER_TEXTS.items() if name.endswith(end)), b"")


def _make_socket(at: int, name: str) -> bool:
    """Make a socket; ``False`` if that cannot be, as not every file system has such."""
    try:
        os.mknod(name, stat.S_IFSOCK | 0o644, dir_fd=at)
    except FileExistsError:
        raise
    except OSError:
        return False
    os.utime(name, ns=(_PLACEHOLDER_MTIME_NS, _PLACEHOLDER_MTIME_NS), dir_fd=at, follow_symlinks=False)
    return True


def _make_placeholder(at: int, name: str, kind: PlaceholderKind) -> None:
    if kind == "socket" and _make_socket(at, name):
        return
    if kind != "file":
        os.mkdir(name, 0o755, dir_fd=at)
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=at)
    else:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=at)
        os.write(descriptor, _placeholder_text_of(name))
    os.utime(descriptor, ns=(_PLACEHOLDER_MTIME_NS, _PLACEHOLDER_MTIME_NS))
    os.close(descriptor)


_MAX_LINKS = 40
"""What the kernel follows."""

_GIT = ".git"

_GIT_FILE_PREFIX, _GIT_COMMON_DIRECTORY_FILE = "gitdir:", "commondir"

_MAX_GIT_FILE_BYTES = 4096


class ProtectionPlan:
    """What is to be held for the protected places of one command."""

    def __init__(self, writable: list[str], held_by_path: dict[str, HeldPath | None]) -> None:
        """``kept`` is given what was made to be held, and what is locked."""
        self._writable, self._held_by_path = writable, held_by_path
        self.parent_folders: set[str] = set()
        """On the way: what is in them may change."""
        self.links: set[str] = set()
        self.held_paths: set[str] = set()

    def protect(self, place: str, kind: PlaceholderKind) -> None:
        """Have a place held that is in a writable folder; it is made as ``kind``, if nothing is there."""
        root = max((one for one in self._writable if is_within(place, [one])), key=len)
        if place == root:
            self.held_paths.add(root)
            return
        self._hold_along(root, _split_names(place.removeprefix(root)), kind, links=0)

    def hold_parents_of(self, place: str) -> None:
        """Have the folders held that are on the way to a place, which no link leads to."""
        while (place := place.rpartition("/")[0]) not in self._writable and is_within(place, self._writable):
            self.parent_folders.add(place)

    def _hold_along(self, at: str, names: list[str], kind: PlaceholderKind, *, links: int) -> None:
        """Go on from a folder that has no link in it."""
        if links > _MAX_LINKS:
            raise JobRefused(f"{at!r} cannot be protected: too many links lead to it")
        for number, name in enumerate(names):
            rest = names[number + 1 :]
            if name == "..":
                at = at.rpartition("/")[0]
                continue
            inner = f"{at}/{name}"
            changeable = inner not in self._writable and is_within(inner, self._writable)
            found = _lstat_if_reachable(inner)
            if found is not None and stat.S_ISLNK(found.st_mode):
                self.links.update([inner] if changeable else [])
                target = os.readlink(inner)  # noqa: PTH115  # a string, as it is
                start = "" if target.startswith("/") else at
                self._hold_along(start, [*_split_names(target), *rest], kind, links=links + 1)
                return
            if not rest or found is None or not stat.S_ISDIR(found.st_mode) or is_placeholder(found):
                at = inner
                if changeable:
                    self._hold_last(inner, rest, "folder" if rest else kind)
                    self._protect_git_directories(inner, rest, kind, links=links + 1)
                break
            self.parent_folders.update([inner] if changeable else [])
            at = inner
        if links and any(is_within(one, [at or "/"]) for one in self._writable):
            raise JobRefused(f"a protected link leads to {at or '/'!r}, which the command is to work in")

    def _hold_last(self, inner: str, rest: list[str], kind: PlaceholderKind) -> None:
        if ".." in rest:
            raise JobRefused(f"a protected link leads by way of {inner!r}, which is no folder")
        if inner not in self._held_by_path:
            at, _, name = inner.rpartition("/")
            try:
                self._held_by_path[inner] = hold_path(at, name, kind=kind, already_held=self._held_by_path.values())
            except OSError as error:
                if _is_out_of_reach(error, at):
                    return
                raise JobRefused(f"{inner!r} cannot be protected: {error.strerror}") from error
        self.held_paths.add(inner)

    def _protect_git_directories(self, inner: str, rest: list[str], kind: PlaceholderKind, *, links: int) -> None:
        """Protect the same in the folder that a file of git names, and in the one which that one has things from."""
        at, _, name = inner.rpartition("/")
        named = _read_git_file(inner) if name == _GIT and rest else ""
        if not named.startswith(_GIT_FILE_PREFIX):
            return
        own = os.path.join(at, named.removeprefix(_GIT_FILE_PREFIX).strip())  # noqa: PTH118  # strings in, strings out
        for place in (own, os.path.join(own, _read_git_file(f"{own}/{_GIT_COMMON_DIRECTORY_FILE}"))):  # noqa: PTH118  # strings in, strings out
            self._hold_along("", [*_split_names(place), *rest], kind, links=links)


def is_within(path: str, roots: Iterable[str]) -> bool:
    """Whether a path is one of some folders, or in one of them."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _split_names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _lstat_if_reachable(path: str) -> os.stat_result | None:
    """Return what is at a path; ``None`` also where one cannot look, and the command neither."""
    try:
        return lstat_or_none(path)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENOTDIR, errno.ENAMETOOLONG):
            return None
        raise


def _is_out_of_reach(error: OSError, folder: str) -> bool:
    """Whether nobody can make anything in a folder, the command no more than this process; its owner could allow it."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return os.lstat(folder).st_uid != os.geteuid()
    return error.errno == errno.EROFS


def _read_git_file(path: str) -> str:
    """Return the beginning of a small file of git, nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return os.fsdecode(os.read(descriptor, _MAX_GIT_FILE_BYTES)).rstrip("\r\n")
        finally:
            os.close(descriptor)
    return ""
