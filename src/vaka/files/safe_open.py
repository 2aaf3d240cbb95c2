"""Open files beneath a root folder and nothing outside it, even while other processes move files.

Two openers, one with openat2 and one step by step, both on descriptors: what was checked is what is opened. Neither
opens a pipe, a device or a socket.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from vaka.core.ports.files import POSIX_LOCKED_FILES
from vaka.core.types.errors import ConfigError, FileError, FileMissing, FileRefused
from vaka.files.paths import (
    decode_name,
    encode_name,
    fold_name,
    join_names,
    names_of,
    normalize_listed_name,
    parts_of,
    quote_path,
    translate_os_errors,
)
from vaka.system.openat2 import RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, openat2

OpenerName: TypeAlias = Literal["auto", "openat2", "walk"]

LOOK_FLAGS = getattr(os, "O_PATH", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
"""Flags to get a descriptor without opening the file; on systems without O_PATH, to open it without blocking."""

FOLDER_FLAGS = LOOK_FLAGS | getattr(os, "O_DIRECTORY", 0)

LIST_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)

READ_FLAGS = os.O_RDONLY

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)

_NO_BLOCKING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)

_O_PATH = getattr(os, "O_PATH", 0)

_MAX_LINKS = 40
"""The kernel's own limit for one path."""

_MAX_TRIES = 256
"""Retries when a file changes while it is opened."""


class OpenedFile(NamedTuple):
    fd: int
    stat: os.stat_result


class RootFolder(NamedTuple):
    """A folder of this machine, held open."""

    fd: int
    path: str
    spellings: tuple[tuple[bytes, ...], ...]
    """Its names from ``/`` on: as given, and with links resolved."""


class Opener(Protocol):
    def __call__(self, root: RootFolder, parts: Sequence[str], flags: int, *, links: bool) -> OpenedFile:
        """Open a regular file or folder beneath ``root``; with ``links``, links that stay beneath it are followed.

        Raises ``FileRefused`` for a path that leaves the root and for other kinds of files, else ``OSError``.
        """
        ...


def open_root(path: str | os.PathLike[str]) -> RootFolder:
    """Open a folder as a root. Raises ``FileMissing``, and ``FileError`` if it is not a folder."""
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
    """Return the opener of that name; ``auto`` prefers openat2. Raises ``ConfigError`` if it is not supported."""
    if os.open not in os.supports_dir_fd or not _NOFOLLOW:
        raise ConfigError("this system has no openat: files on its disk cannot be opened safely")
    if name == "walk":
        return open_stepwise
    try:
        os.close(openat2(root.fd, b".", FOLDER_FLAGS, RESOLVE_BENEATH))
    except OSError as error:
        if name == "auto":
            return open_stepwise
        raise ConfigError(f"the kernel has no openat2 ({error.strerror}); Linux has it since 5.6") from error
    return open_with_openat2


def open_with_openat2(root: RootFolder, parts: Sequence[str], flags: int, *, links: bool) -> OpenedFile:
    """Open a file with openat2: the kernel refuses paths that leave the root."""
    resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if links else RESOLVE_NO_SYMLINKS)
    name = join_names(parts) or "."
    path = encode_name(name)
    for _ in range(_MAX_TRIES):
        try:
            held = check_opened(openat2(root.fd, path, LOOK_FLAGS | (flags & os.O_DIRECTORY), resolve), name)
            if flags & _O_PATH:
                return held
            os.close(held.fd)
            return check_opened(openat2(root.fd, path, flags | _NO_BLOCKING, resolve), name)
        except OSError as error:
            if error.errno in {errno.EXDEV, errno.ELOOP}:
                break  # a link, perhaps absolute and beneath the root: resolve it step by step
            if error.errno != errno.EAGAIN:
                raise
    return open_stepwise(root, parts, flags, links=links)


def open_stepwise(root: RootFolder, parts: Sequence[str], flags: int, *, links: bool) -> OpenedFile:
    """Open each folder relative to its parent; links are resolved here, never by the kernel."""
    traversal = _PathTraversal(root, parts, links=links)
    try:
        return traversal.traverse(flags)
    finally:
        traversal.close()


class _PathTraversal:
    """The state of a traversal: descriptors of the folders passed, and the names that are left."""

    def __init__(self, root: RootFolder, parts: Sequence[str], *, links: bool) -> None:
        self._root, self._links = root, links
        self._path = join_names(parts)
        self._names_left = deque(map(encode_name, parts))
        self._fds: list[int] = []
        self._links_followed, self._tries = 0, 0

    @property
    def _current_fd(self) -> int:
        return self._fds[-1] if self._fds else self._root.fd

    def traverse(self, flags: int) -> OpenedFile:
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
        while self._fds:
            os.close(self._fds.pop())

    def _open_next(self, name: bytes, flags: int) -> OpenedFile | None:
        """Open a name in the current folder; ``None`` if it was a link or has changed: try the next name."""
        status = os.stat(name, dir_fd=self._current_fd, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            self._follow_link(name)
            return None
        check_file_kind(status, self._path)
        try:
            flags |= _NOFOLLOW | (0 if flags & _O_PATH else _NO_BLOCKING)
            opened = check_opened(os.open(name, flags, dir_fd=self._current_fd), self._path)
        except OSError as error:
            if error.errno != errno.ELOOP and not (error.errno == errno.ENOTDIR and stat.S_ISDIR(status.st_mode)):
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
            raise FileError(f"{quote_path(self._path)} keeps changing while it is opened")
        self._names_left.appendleft(name)

    def _go_up(self) -> None:
        if not self._fds:
            raise FileRefused(f"{quote_path(self._path)} leads out of the root by a link")
        os.close(self._fds.pop())

    def _follow_link(self, name: bytes) -> None:
        """Replace the name of a link by the names of its target."""
        try:
            target = os.readlink(name, dir_fd=self._current_fd)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._retry(name)
            return
        if not self._links:
            raise FileRefused(
                f"{quote_path(self._path)} goes through the link {quote_path(decode_name(name))}, which is not followed"
            )
        self._links_followed += 1
        if self._links_followed > _MAX_LINKS:
            raise FileRefused(f"{quote_path(self._path)} goes through more than {_MAX_LINKS} links")
        names = [part for part in target.split(b"/") if part not in {b"", b"."}]
        if target.startswith(b"/"):
            prefix = next((own for own in self._root.spellings if tuple(names[: len(own)]) == own), None)
            if prefix is None:
                shown = quote_path(decode_name(target))
                raise FileRefused(f"{quote_path(self._path)} leads out of the root by a link to {shown}")
            self.close()
            names = names[len(prefix) :]
        self._names_left.extendleft(reversed(names))


def check_file_kind(status: os.stat_result, path: str) -> None:
    """Raise ``FileRefused`` unless this is a regular file, a folder or a link on a disk."""
    kind = stat.S_IFMT(status.st_mode)
    if kind not in {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}:
        raise FileRefused(
            f"{quote_path(path)} is {_KIND_NAMES.get(kind, 'something else')}, neither a regular file nor a folder"
        )
    if status.st_dev in _PROC_DEVICES:
        raise FileRefused(f"{quote_path(path)} is in /proc, not a file on a disk")
    check_not_locked(status, path)


def check_not_locked(status: os.stat_result, path: str) -> None:
    """Raise ``FileRefused`` for a database of this process: closing any descriptor of it would drop its POSIX locks."""
    if POSIX_LOCKED_FILES and POSIX_LOCKED_FILES[status.st_dev, status.st_ino]:
        raise FileRefused(f"{quote_path(path)} is a database that this program uses; it cannot be opened as a file")


def check_opened(fd: int, path: str) -> OpenedFile:
    """Return the descriptor with its status, or close it and raise ``FileRefused``."""
    try:
        status = os.fstat(fd)
        check_file_kind(status, path)
    except BaseException:
        os.close(fd)
        raise
    return OpenedFile(fd, status)


def _find_proc_devices() -> frozenset[int]:
    """Return the device of ``/proc``, whose files give access to processes, if it is mounted."""
    try:
        device = os.stat("/proc/self/fd").st_dev  # noqa: PTH116  # a number is wanted, not a path
        return frozenset({device} - {os.stat("/").st_dev})  # noqa: PTH116  # as above
    except OSError:
        return frozenset()


_KIND_NAMES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_PROC_DEVICES = _find_proc_devices()


ANYWHERE = "**/"
_MAX_EXAMINED_FILES = 200_000
"""The limit for a search for hard links to protected files."""

FileIdentity = tuple[int, int]


class ProtectedFiles:
    """Paths that cannot be written to or deleted, each with everything below it.

    A path is relative to the root; ``**/.git`` is a ``.git`` in any folder. ``extra_rule`` may protect more.
    Names that some file system treats as a protected one (``.GIT``) are protected as well, and so are hard links to
    protected files.
    """

    def __init__(self, paths: Iterable[str] = (), extra_rule: Callable[[str], bool] | None = None) -> None:
        self.paths = (paths,) if isinstance(paths, str) else tuple(paths)
        self.extra_rule = extra_rule
        self.anchored: list[tuple[str, ...]] = []
        self._rules: list[tuple[tuple[str, ...], str, bool]] = []
        for path in sorted(self.paths, key=lambda path: path.startswith(ANYWHERE)):
            names, anywhere = parts_of(path.removeprefix(ANYWHERE)), path.startswith(ANYWHERE)
            if not names:
                raise FileRefused(f"protected path {path!r} is the root; expected a path below it")
            text = join_names(names)
            self._rules.append((tuple(map(fold_name, names)), ANYWHERE + text if anywhere else text, anywhere))
            self.anchored += [] if anywhere else [names]

    def __bool__(self) -> bool:
        return bool(self._rules or self.extra_rule)

    def rule_for(self, parts: Sequence[str]) -> str:
        """Return the rule that protects a path, ``""`` if none does."""
        names = tuple(map(fold_name, parts))
        for rule, text, anywhere in self._rules:
            starts = range(len(names) - len(rule) + 1) if anywhere else range(1)
            if any(names[start : start + len(rule)] == rule for start in starts):
                return text
        return "the rules" if self.extra_rule and self.extra_rule(join_names(parts)) else ""

    def check(self, parts: Sequence[str]) -> None:
        """Raise ``FileRefused`` for a path that is protected."""
        if rule := self.rule_for(parts):
            raise FileRefused(f"{quote_path(join_names(parts))} is protected by {rule!r} and cannot be changed")

    def search_roots(self) -> list[tuple[str, ...]]:
        """Return the folders that contain all protected files: the root, unless all rules are anchored."""
        return [()] if len(self.anchored) < len(self._rules) or self.extra_rule else list(self.anchored)


class IdentityGuard:
    """Recognizes the protected files and folders that exist now by device and inode, under any name."""

    def __init__(self, protected: ProtectedFiles, root: RootFolder, opener: Opener) -> None:
        self._protected = protected
        self._root = root
        self._opener = opener
        self._protected_identities = dict(self._find_anchored_identities())

    def check(self, status: os.stat_result, path: str) -> None:
        """Raise ``FileRefused`` for a protected file or folder, or a hard link to one."""
        identity = (status.st_dev, status.st_ino)
        protected = self._protected_identities.get(identity)
        if protected is None and stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            protected = next((name for other, name in self._find_hard_linked_files() if other == identity), None)
        if protected is not None:
            raise FileRefused(
                f"{quote_path(path)} is the same file as {quote_path(protected)}, which is protected from changes"
            )

    def _find_anchored_identities(self) -> Iterator[tuple[FileIdentity, str]]:
        for parts in self._protected.anchored:
            try:
                opened = self._opener(self._root, parts, LOOK_FLAGS, links=True)
            except (OSError, FileError):
                continue  # missing or out of reach: its path alone protects it
            os.close(opened.fd)
            yield (opened.stat.st_dev, opened.stat.st_ino), join_names(parts)

    def _find_hard_linked_files(self) -> Iterator[tuple[FileIdentity, str]]:
        """Yield every protected file that has more than one name."""
        examined = 0
        pending = self._protected.search_roots()
        while pending:
            folder = pending.pop()
            for name, status in self._list_folder(folder):
                examined += 1
                if examined > _MAX_EXAMINED_FILES:
                    raise FileRefused(
                        f"it may be a hard link to one of more than {_MAX_EXAMINED_FILES} protected files"
                    )
                if stat.S_ISDIR(status.st_mode):
                    pending.append((*folder, name))
                elif status.st_nlink > 1 and self._protected.rule_for((*folder, name)):
                    yield (status.st_dev, status.st_ino), join_names((*folder, name))

    def _list_folder(self, folder: tuple[str, ...]) -> Iterator[tuple[str, os.stat_result]]:
        try:
            opened = self._opener(self._root, folder, LIST_FLAGS, links=False)
        except (OSError, FileError):
            return  # not a folder, or not readable
        try:
            with os.scandir(opened.fd) as entries:
                for entry in entries:
                    yield normalize_listed_name(entry.name), entry.stat(follow_symlinks=False)
        except OSError:
            return  # removed while it was listed
        finally:
            os.close(opened.fd)
