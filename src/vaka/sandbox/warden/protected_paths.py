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
from vaka.system.openat2 import open_without_links

_PLACEHOLDER_MTIME_NS = 402_653_184 * 10**9
"""A time in 1982 that no other file has; even seconds, so that every file system can store it."""

_PLACEHOLDER_TEXTS = {".json": b"{}\n", "commondir": b".\n"}
"""Content of placeholders by the end of their name, so that other programs can parse them: an empty file is not JSON,
and git does not accept an empty ``commondir``."""

_LOCK_TIMEOUT, _RETRY_PAUSE = 5.0, 0.001

PlaceholderKind: TypeAlias = Literal["file", "folder", "socket"]
"""The kind of placeholder. Git ignores empty folders and sockets; many programs react to a folder."""


class HeldPath(NamedTuple):
    """A path that is held by a lock."""

    folder: int
    name: str
    descriptor: int
    """The descriptor that is locked."""

    def _is_still_needed(self) -> bool:
        """Return whether git would take the folder for a bare repository without this placeholder.

        Git looks for objects and refs where ``commondir`` says, and stops if it cannot be read.
        """
        return self.name == _GIT_COMMON_DIRECTORY_FILE and all(
            _exists_in(self.folder, name) for name in ("HEAD", "objects", "refs")
        )

    def release(self) -> None:
        """Drop the lock; remove an unchanged placeholder that no other process holds and that is not needed."""
        with contextlib.suppress(OSError):
            status = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
            is_socket = stat.S_ISSOCK(status.st_mode)
            unchanged = is_placeholder(status) and (stat.S_ISREG(status.st_mode) or not self._is_still_needed())
            if unchanged and (is_socket or _is_same_file(self.folder, self.name, self.descriptor)):
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISDIR(status.st_mode):
                    os.rmdir(self.name, dir_fd=self.folder)
                elif is_socket or status.st_size == len(_placeholder_text_of(self.name)):
                    os.unlink(self.name, dir_fd=self.folder)
        for descriptor in (self.descriptor, self.folder):
            os.close(descriptor)


def is_placeholder(status: os.stat_result) -> bool:
    """Return whether a file is a placeholder that has not been written to."""
    return status.st_mtime_ns == _PLACEHOLDER_MTIME_NS


def hold_path(
    parent: str, name: str, *, kind: PlaceholderKind, already_held: Iterable[HeldPath | None] = ()
) -> HeldPath | None:
    """Lock a path, with a placeholder if it is missing; ``None`` if it needs no lock because no sandbox removes it.

    ``already_held`` are the paths of the same job, which share locks. Raises ``JobRefused`` if another process keeps a
    lock on it.
    """
    folder = open_without_links(parent, os.O_PATH | os.O_DIRECTORY)
    deadline = time.monotonic() + _LOCK_TIMEOUT
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(FileExistsError, FileNotFoundError, BlockingIOError):
                descriptor = _lock_path(folder, name, kind, already_held)
                if descriptor is not None:
                    return HeldPath(folder, name, descriptor)
                os.close(folder)
                return None
            time.sleep(_RETRY_PAUSE)  # another process is just removing or making it
    except BaseException:
        os.close(folder)
        raise
    os.close(folder)
    raise JobRefused(f"{parent}/{name} cannot be protected: another process holds a lock on it")


def _lock_path(folder: int, name: str, kind: PlaceholderKind, already_held: Iterable[HeldPath | None]) -> int | None:
    """Return a locked descriptor of a path; ``BlockingIOError`` if the path is just being changed."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        _make_placeholder(folder, name, kind)
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISSOCK(status.st_mode) and is_placeholder(status):
        return _lock_folder(folder, name, already_held)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return None
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except PermissionError:
        return None  # not a placeholder: those are readable
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        if is_placeholder(status):
            raise
        return None  # a file that another program has locked, or a file system without locks
    if not _is_same_file(folder, name, descriptor):
        os.close(descriptor)
        raise BlockingIOError(errno.EWOULDBLOCK, f"{name!r} was replaced")
    return descriptor


def _lock_folder(folder: int, name: str, already_held: Iterable[HeldPath | None]) -> int:
    """Return a locked descriptor of the folder of a socket; ``BlockingIOError`` if the socket is just being removed."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    for held in already_held:
        if held is not None and os.path.samestat(os.fstat(held.descriptor), os.fstat(descriptor)):
            os.close(descriptor)
            return os.dup(held.descriptor)  # a second lock would keep the first from becoming exclusive
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_same_file(folder: int, name: str, descriptor: int) -> bool:
    """Return whether a name still refers to an open file."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _exists_in(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _placeholder_text_of(name: str) -> bytes:
    return next((text for ending, text in _PLACEHOLDER_TEXTS.items() if name.endswith(ending)), b"")


def _make_socket(folder: int, name: str) -> bool:
    """Make a socket; ``False`` where the file system does not support them."""
    try:
        os.mknod(name, stat.S_IFSOCK | 0o644, dir_fd=folder)
    except FileExistsError:
        raise
    except OSError:
        return False
    os.utime(name, ns=(_PLACEHOLDER_MTIME_NS, _PLACEHOLDER_MTIME_NS), dir_fd=folder, follow_symlinks=False)
    return True


def _make_placeholder(folder: int, name: str, kind: PlaceholderKind) -> None:
    if kind == "socket" and _make_socket(folder, name):
        return
    if kind != "file":
        os.mkdir(name, 0o755, dir_fd=folder)
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=folder)
    else:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
        os.write(descriptor, _placeholder_text_of(name))
    os.utime(descriptor, ns=(_PLACEHOLDER_MTIME_NS, _PLACEHOLDER_MTIME_NS))
    os.close(descriptor)


_MAX_LINKS = 40
"""The kernel's own limit."""

_GIT = ".git"

_GIT_FILE_PREFIX, _GIT_COMMON_DIRECTORY_FILE = "gitdir:", "commondir"

_MAX_GIT_FILE_BYTES = 4096


class ProtectionPlan:
    """Which paths must be held so that the protected paths of one command stay as they are."""

    def __init__(self, writable: list[str], held_by_path: dict[str, HeldPath | None]) -> None:
        """``held_by_path`` receives the placeholders and locks."""
        self._writable, self._held_by_path = writable, held_by_path
        self.parent_folders: set[str] = set()
        """Folders above protected paths; their other content may change."""
        self.links: set[str] = set()
        self.held_paths: set[str] = set()

    def protect(self, path: str, kind: PlaceholderKind) -> None:
        """Hold a path inside a writable folder, with a placeholder of this kind if it is missing."""
        root = max((folder for folder in self._writable if is_within(path, [folder])), key=len)
        if path == root:
            self.held_paths.add(root)
            return
        self._hold_along(root, _split_names(path.removeprefix(root)), kind, links=0)

    def hold_parents_of(self, path: str) -> None:
        """Hold the folders above a path that has no link in it."""
        while (path := path.rpartition("/")[0]) not in self._writable and is_within(path, self._writable):
            self.parent_folders.add(path)

    def _hold_along(self, at: str, names: list[str], kind: PlaceholderKind, *, links: int) -> None:
        """Hold the path ``names`` below the folder ``at``, which has no link in it; follow links as the kernel does."""
        if links > _MAX_LINKS:
            raise JobRefused(f"{at!r} cannot be protected: too many links lead to it")
        for number, name in enumerate(names):
            rest = names[number + 1 :]
            if name == "..":
                at = at.rpartition("/")[0]
                continue
            inner = f"{at}/{name}"
            changeable = inner not in self._writable and is_within(inner, self._writable)
            status = _lstat_if_reachable(inner)
            if status is not None and stat.S_ISLNK(status.st_mode):
                self.links.update([inner] if changeable else [])
                target = os.readlink(inner)  # noqa: PTH115  # a string, as it is
                start = "" if target.startswith("/") else at
                self._hold_along(start, [*_split_names(target), *rest], kind, links=links + 1)
                return
            if not rest or status is None or not stat.S_ISDIR(status.st_mode) or is_placeholder(status):
                at = inner
                if changeable:
                    self._hold_last(inner, rest, "folder" if rest else kind)
                    self._protect_git_directories(inner, rest, kind, links=links + 1)
                break
            self.parent_folders.update([inner] if changeable else [])
            at = inner
        if links and any(is_within(folder, [at or "/"]) for folder in self._writable):
            raise JobRefused(f"a protected link leads to {at or '/'!r}, which contains a writable folder")

    def _hold_last(self, inner: str, rest: list[str], kind: PlaceholderKind) -> None:
        if ".." in rest:
            raise JobRefused(f"a protected link leads through {inner!r}, which is not a folder")
        if inner not in self._held_by_path:
            parent, _, name = inner.rpartition("/")
            try:
                self._held_by_path[inner] = hold_path(parent, name, kind=kind, already_held=self._held_by_path.values())
            except OSError as error:
                if _is_out_of_reach(error, parent):
                    return
                raise JobRefused(f"{inner!r} cannot be protected: {error.strerror}") from error
        self.held_paths.add(inner)

    def _protect_git_directories(self, inner: str, rest: list[str], kind: PlaceholderKind, *, links: int) -> None:
        """Protect the same names in the folder that a ``.git`` file refers to, and in its common directory."""
        parent, _, name = inner.rpartition("/")
        text = _read_git_file(inner) if name == _GIT and rest else ""
        if not text.startswith(_GIT_FILE_PREFIX):
            return
        own = os.path.join(parent, text.removeprefix(_GIT_FILE_PREFIX).strip())  # noqa: PTH118  # strings
        common = os.path.join(own, _read_git_file(f"{own}/{_GIT_COMMON_DIRECTORY_FILE}"))  # noqa: PTH118  # strings
        for folder in (own, common):
            self._hold_along("", [*_split_names(folder), *rest], kind, links=links)


def is_within(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path is one of these folders or inside one of them."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _split_names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _lstat_if_reachable(path: str) -> os.stat_result | None:
    """Return the status of a path; ``None`` if it is missing, or out of the reach of this process and the command."""
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENAMETOOLONG):
            return None
        raise


def _is_out_of_reach(error: OSError, folder: str) -> bool:
    """Return whether the command cannot make anything in a folder either; the owner of a folder could."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return os.lstat(folder).st_uid != os.geteuid()
    return error.errno == errno.EROFS


def _read_git_file(path: str) -> str:
    """Return the first line of a ``.git`` or ``commondir`` file, nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return os.fsdecode(os.read(descriptor, _MAX_GIT_FILE_BYTES)).rstrip("\r\n")
        finally:
            os.close(descriptor)
    return ""
