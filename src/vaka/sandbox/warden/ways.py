"""The ways to protected places: what has to be held so that nobody changes what is there, or puts something else there.

A place is held itself, and so is every folder on the way to it; a link on the way is held as it is, and then what it
leads to. Git has links of its own: a file ``.git`` names the folder that a work tree's repository is in.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable

from vaka.sandbox.warden.holding import Held, Kind, hold, look, made
from vaka.sandbox.warden.order import Refused

_MOST_LINKS = 40
"""What the kernel follows."""
_GIT = ".git"
_GIT_FILE, _GIT_COMMON = "gitdir:", "commondir"
_MOST_READ = 4096


class Ways:
    """What is to be held for the protected places of one command."""

    def __init__(self, writable: list[str], kept: dict[str, Held | None]) -> None:
        """``kept`` is given what was made to be held, and what is locked."""
        self._writable, self._kept = writable, kept
        self.folders: set[str] = set()
        """On the way: what is in them may change."""
        self.links: set[str] = set()
        self.held: set[str] = set()

    def protect(self, place: str, kind: Kind) -> None:
        """Have a place held that is in a writable folder; it is made as ``kind``, if nothing is there."""
        root = max((one for one in self._writable if within(place, [one])), key=len)
        if place == root:
            self.held.add(root)
            return
        self._follow(root, _names(place.removeprefix(root)), kind, links=0)

    def lead_to(self, place: str) -> None:
        """Have the folders held that are on the way to a place, which no link leads to."""
        while (place := place.rpartition("/")[0]) not in self._writable and within(place, self._writable):
            self.folders.add(place)

    def _follow(self, at: str, names: list[str], kind: Kind, *, links: int) -> None:
        """Go on from a folder that has no link in it."""
        if links > _MOST_LINKS:
            raise Refused(f"{at!r} cannot be protected: too many links lead to it")
        for number, name in enumerate(names):
            rest = names[number + 1 :]
            if name == "..":
                at = at.rpartition("/")[0]
                continue
            inner = f"{at}/{name}"
            changeable = inner not in self._writable and within(inner, self._writable)
            found = _found(inner)
            if found is not None and stat.S_ISLNK(found.st_mode):
                self.links.update([inner] if changeable else [])
                target = os.readlink(inner)  # noqa: PTH115  # a string, as it is
                start = "" if target.startswith("/") else at
                self._follow(start, [*_names(target), *rest], kind, links=links + 1)
                return
            if not rest or found is None or not stat.S_ISDIR(found.st_mode) or made(found):
                at = inner
                if changeable:
                    self._end(inner, rest, "folder" if rest else kind)
                    self._repository(inner, rest, kind, links=links + 1)
                break
            self.folders.update([inner] if changeable else [])
            at = inner
        if links and any(within(one, [at or "/"]) for one in self._writable):
            raise Refused(f"a protected link leads to {at or '/'!r}, which the command is to work in")

    def _end(self, inner: str, rest: list[str], kind: Kind) -> None:
        if ".." in rest:
            raise Refused(f"a protected link leads by way of {inner!r}, which is no folder")
        if inner not in self._kept:
            at, _, name = inner.rpartition("/")
            try:
                self._kept[inner] = hold(at, name, kind=kind, others=self._kept.values())
            except OSError as error:
                if _out_of_reach(error, at):
                    return
                raise Refused(f"{inner!r} cannot be protected: {error.strerror}") from error
        self.held.add(inner)

    def _repository(self, inner: str, rest: list[str], kind: Kind, *, links: int) -> None:
        """Protect the same in the folder that a file of git names, and in the one which that one has things from."""
        at, _, name = inner.rpartition("/")
        named = _line(inner) if name == _GIT and rest else ""
        if not named.startswith(_GIT_FILE):
            return
        own = os.path.join(at, named.removeprefix(_GIT_FILE).strip())  # noqa: PTH118  # strings in, strings out
        for place in (own, os.path.join(own, _line(f"{own}/{_GIT_COMMON}"))):  # noqa: PTH118  # strings in, strings out
            self._follow("", [*_names(place), *rest], kind, links=links)


def within(path: str, roots: Iterable[str]) -> bool:
    """Whether a path is one of some folders, or in one of them."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _found(path: str) -> os.stat_result | None:
    """Return what is at a path; ``None`` also where one cannot look, and the command neither."""
    try:
        return look(path)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.ENOTDIR, errno.ENAMETOOLONG):
            return None
        raise


def _out_of_reach(error: OSError, folder: str) -> bool:
    """Whether nobody can make anything in a folder, the command no more than this process; its owner could allow it."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return os.lstat(folder).st_uid != os.geteuid()
    return error.errno == errno.EROFS


def _line(path: str) -> str:
    """Return the beginning of a small file of git, nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return os.fsdecode(os.read(descriptor, _MOST_READ)).rstrip("\r\n")
        finally:
            os.close(descriptor)
    return ""
