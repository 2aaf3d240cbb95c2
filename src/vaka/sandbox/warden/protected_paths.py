"""Protected paths of a job: which existing paths and folders are mounted so that they stay, and which are missing."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable

from vaka.sandbox.warden.created_paths import MissingPaths
from vaka.sandbox.warden.job_spec import JobRefused

_MAX_LINKS = 40
"""The kernel's own limit."""

_GIT = ".git"

_GIT_FILE_PREFIX, _GIT_COMMON_DIRECTORY_FILE = "gitdir:", "commondir"

_MAX_GIT_FILE_BYTES = 4096


class ProtectionPlan:
    """The mounted paths, and the missing paths, that keep the protected paths of one command unchanged."""

    def __init__(self, writable: list[str]) -> None:
        self._writable = writable
        self.parent_folders: set[str] = set()
        """Folders above protected paths; their other content may change."""
        self.links: set[str] = set()
        self.existing: set[str] = set()
        self.missing = MissingPaths()

    def protect(self, path: str) -> None:
        """Protect a path inside a writable folder."""
        root = max((folder for folder in self._writable if is_within(path, [folder])), key=len)
        if path == root:
            self.existing.add(root)
            return
        self._protect_along(root, _split_names(path.removeprefix(root)), links=0)
        if path == f"{root}/{_GIT_COMMON_DIRECTORY_FILE}":
            self.missing.keep_plain(root)

    def hold_parents_of(self, path: str) -> None:
        """Hold the folders above a path that has no link in it."""
        while (path := path.rpartition("/")[0]) not in self._writable and is_within(path, self._writable):
            self.parent_folders.add(path)

    def _protect_along(self, at: str, names: list[str], *, links: int) -> None:
        """Protect the path ``names`` below the folder ``at``, which has no link in it; follow links as the kernel does.

        The folders on the way are mounted only if something below them is: an empty one may be removed.
        """
        if links > _MAX_LINKS:
            raise JobRefused(f"{at!r} cannot be protected: too many links lead to it")
        passed: list[str] = []
        for number, name in enumerate(names):
            rest = names[number + 1 :]
            if name == "..":
                at = at.rpartition("/")[0]
                continue
            inner = f"{at}/{name}"
            changeable = inner not in self._writable and is_within(inner, self._writable)
            status = _lstat_if_reachable(inner)
            if status is not None and stat.S_ISLNK(status.st_mode):
                if changeable:
                    self.links.add(inner)
                    self.parent_folders.update(passed)
                target = os.readlink(inner)  # noqa: PTH115  # a string, as it is
                start = "" if target.startswith("/") else at
                self._protect_along(start, [*_split_names(target), *rest], links=links + 1)
                return
            if not rest or status is None or not stat.S_ISDIR(status.st_mode):
                if changeable:
                    self._protect_last(inner, rest, passed if status is not None else None, links=links)
                at = inner
                break
            passed += [inner] if changeable else []
            at = inner
        if links and any(is_within(folder, [at or "/"]) for folder in self._writable):
            raise JobRefused(f"a protected link leads to {at or '/'!r}, which contains a writable folder")

    def _protect_last(self, inner: str, rest: list[str], passed: list[str] | None, *, links: int) -> None:
        """Protect the last existing path on the way, or, if ``passed`` is ``None``, note the first missing one."""
        if ".." in rest:
            raise JobRefused(f"a protected link leads through {inner!r}, which is not a folder")
        if passed is None:
            parent, _, name = inner.rpartition("/")
            self.missing.add(parent, [name, *rest])
            return
        self.existing.add(inner)
        self.parent_folders.update(passed)
        self._protect_git_directories(inner, rest, links=links + 1)

    def _protect_git_directories(self, inner: str, rest: list[str], *, links: int) -> None:
        """Protect the same names in the folder that a ``.git`` file refers to, and in its common directory."""
        parent, _, name = inner.rpartition("/")
        text = _read_git_file(inner) if name == _GIT and rest else ""
        if not text.startswith(_GIT_FILE_PREFIX):
            return
        own = os.path.join(parent, text.removeprefix(_GIT_FILE_PREFIX).strip())  # noqa: PTH118  # strings
        common = os.path.join(own, _read_git_file(f"{own}/{_GIT_COMMON_DIRECTORY_FILE}"))  # noqa: PTH118  # strings
        for folder in (own, common):
            self._protect_along("", [*_split_names(folder), *rest], links=links)


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
