"""Missing protected paths of a running command: what appears at one of them is moved to the quarantine at once.

The kernel cannot keep a name from being created without something at that name. So the folders in which the names are
missing are watched, from outside of the sandbox, and looked at once more when the command ends. The supervisor, and not
the command, moves the entry, relative to an open folder. A new repository may have settings and sample hooks that run
no program, so that ``git init`` works.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from vaka.sandbox.warden.new_repository import SAMPLE_SUFFIX, is_harmless_config
from vaka.sandbox.warden.quarantine import Quarantine, RemovedEntry
from vaka.system.inotify import IN_CREATE, IN_IGNORED, IN_MODIFY, IN_MOVED_TO, IN_QUEUE_OVERFLOW, FolderEvents
from vaka.system.openat2 import open_without_links

NameTree: TypeAlias = "dict[str, NameTree]"
"""Missing names of a folder, each with the names that are missing inside of it; ``{}``: protect the name itself."""

REPOSITORY_MARKERS = ("HEAD", "refs", "objects")
"""Git takes a folder that has all of these for a bare repository, if its ``.git`` is damaged."""

_GIT = ".git"

_APPEARED = IN_CREATE | IN_MOVED_TO

_MAX_ANNOUNCED = 1_000
"""The most announced paths of one command, so that a long command does not collect them without end."""

_MAX_FOLDERS = 4_096
"""The most watched folders of one command; further folders are only looked at from time to time."""


class MissingPaths:
    """The missing protected paths of one command."""

    def __init__(self) -> None:
        self.by_folder: dict[str, NameTree] = {}
        """The missing names by the existing folder that they are missing in."""
        self.absent_markers: dict[str, tuple[str, ...]] = {}
        """By folder that must not become a repository, the parts of a repository that it lacks."""

    def add(self, folder: str, names: Sequence[str]) -> None:
        """Add the path ``names`` below a folder; a path inside of a protected one is protected with it."""
        tree = self.by_folder.setdefault(folder, {})
        for index, name in enumerate(names):
            is_last = index == len(names) - 1
            if name in tree and (is_last or not tree[name]):
                tree[name] = {}
                return
            tree = tree.setdefault(name, {})

    def find_ways(self) -> "dict[str, set[str]]":
        """Return by folder the names of folders in it that lead to missing paths; each folder on a way is added."""
        ways: dict[str, set[str]] = {}
        for path in list(self.by_folder):
            above = [path]
            while above[-1]:
                above.append(above[-1].rpartition("/")[0])
            top = max((number for number, folder in enumerate(above) if folder in self.by_folder), default=0)
            for inner, folder in itertools.pairwise(above[: top + 1]):
                self.by_folder.setdefault(folder, {})
                ways.setdefault(folder, set()).add(inner.rpartition("/")[2])
        return ways

    def keep_plain(self, folder: str) -> None:
        """Keep a folder from becoming a bare repository."""
        absent = tuple(name for name in REPOSITORY_MARKERS if not os.path.lexists(f"{folder}/{name}"))
        if absent:
            self.absent_markers[folder] = absent
            self.by_folder.setdefault(folder, {})


class _WatchedFolder(NamedTuple):
    path: str
    identity: tuple[int, int]
    names: "NameTree | None"
    """The missing names in it; ``None`` for the hooks of a new repository."""


class CreatedPaths:
    """Watches the missing protected paths of one command, and moves what appears there."""

    def __init__(self, missing: MissingPaths, quarantine: Quarantine) -> None:
        self._missing, self._quarantine = missing, quarantine
        self._folders: dict[int, _WatchedFolder] = {}
        self._announced: list[str] = []
        self._all_watched = True
        self._events: FolderEvents | None = None
        with contextlib.suppress(OSError):
            self._events = FolderEvents()
        self._ways = missing.find_ways()
        for path, names in missing.by_folder.items():
            try:
                with _open_folder(path) as folder:
                    self._watch(path, folder, names)
            except OSError:
                self._all_watched = False

    @property
    def descriptor(self) -> int:
        """Readable when something has appeared; negative if nothing can be watched."""
        return self._events.descriptor if self._events is not None else -1

    @property
    def must_poll(self) -> bool:
        """Whether a folder is not watched, so that only ``scan`` finds what appears in it."""
        return self._events is None or not self._all_watched

    def announce(self, path: str) -> None:
        """Leave what appears at a path, inside or around it: another program than the command is about to create it."""
        if len(self._announced) < _MAX_ANNOUNCED and path not in self._announced:
            self._announced.append(path)

    def read(self) -> list[RemovedEntry]:
        """Handle the events that have arrived; return what was removed."""
        removed: list[RemovedEntry] = []
        for event in self._events.read() if self._events is not None else ():
            if event.mask & IN_QUEUE_OVERFLOW:
                return [*removed, *self.scan()]
            if event.mask & IN_IGNORED:  # the folder was deleted
                self._folders.pop(event.watch, None)
            elif event.watch in self._folders:
                removed += self._handle_event(self._folders[event.watch], event.name)
        return removed

    def scan(self) -> list[RemovedEntry]:
        """Look at all missing paths; return what was removed."""
        removed: list[RemovedEntry] = []
        for path, names in self._missing.by_folder.items():
            removed += self._check_folder(path, names)
        return removed

    def close(self) -> None:
        """Stop watching."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _watch(self, path: str, folder: int, names: "NameTree | None") -> None:
        if self._events is None or len(self._folders) >= _MAX_FOLDERS:
            self._all_watched = False
            return
        status = os.fstat(folder)
        is_git = path.endswith(f"/{_GIT}")
        number = self._events.add(folder, _APPEARED | (IN_MODIFY if is_git else 0))
        self._folders[number] = _WatchedFolder(path, (status.st_dev, status.st_ino), names)

    def _handle_event(self, watched: _WatchedFolder, name: str) -> list[RemovedEntry]:
        if name in self._ways.get(watched.path, ()):
            return self._look_again(f"{watched.path}/{name}")
        if watched.names is not None and name not in watched.names and name not in REPOSITORY_MARKERS:
            return []
        with contextlib.suppress(OSError), _open_folder(watched.path) as folder:
            status = os.fstat(folder)
            if (status.st_dev, status.st_ino) != watched.identity:  # it has another name now
                return []
            if watched.names is None:
                return self._check_hooks(watched.path, folder)
            return self._check_names(watched.path, folder, watched.names, [name])
        return []

    def _look_again(self, place: str) -> list[RemovedEntry]:
        """Watch the folders at and below a place, which something new has taken; return what was removed."""
        removed: list[RemovedEntry] = []
        for path, names in sorted(self._missing.by_folder.items()):  # a folder comes before its subfolders
            if _is_related(path, place) and len(path) >= len(place):
                with contextlib.suppress(OSError), _open_folder(path) as folder:
                    self._watch(path, folder, names)  # first, so that nothing is missed
                removed += self._check_folder(path, names)
        return removed

    def _check_folder(self, path: str, names: NameTree) -> list[RemovedEntry]:
        """Check all names of a folder; return what was removed, also a link in place of a folder that leads to one."""
        try:
            with _open_folder(path) as folder:
                return self._check_names(path, folder, names, names)
        except FileNotFoundError:
            return []
        except OSError:
            self._all_watched = False
            return self._remove_link_on(path) if _leads_to_one(path, names) else []

    def _remove_link_on(self, path: str) -> list[RemovedEntry]:
        """Remove the first link on the way to a folder."""
        place = path
        while (above := place.rpartition("/")[0]) in self._missing.by_folder and not Path(place).is_symlink():
            place = above
        if not Path(place).is_symlink():
            return []
        with contextlib.suppress(OSError), _open_folder(above) as folder:
            return self._remove(place, folder, place.rpartition("/")[2])
        return []

    def _check_names(self, path: str, folder: int, tree: NameTree, names: Iterable[str]) -> list[RemovedEntry]:
        """Check some names of an open folder; return what was removed."""
        removed: list[RemovedEntry] = []
        for name in names:
            if name in tree:
                removed += self._check_name(path, folder, name, tree[name])
        absent = self._missing.absent_markers.get(path)
        if absent and all(_exists(folder, name) for name in REPOSITORY_MARKERS):
            removed += self._remove(f"{path}/{absent[0]}", folder, absent[0])
        return removed

    def _check_name(self, parent: str, folder: int, name: str, inside: NameTree) -> list[RemovedEntry]:
        path = f"{parent}/{name}"
        try:
            is_folder = stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except OSError:
            return []
        if parent.endswith(f"/{_GIT}") and name == "config" and is_harmless_config(folder, name):
            return []
        are_hooks = parent.endswith(f"/{_GIT}") and name == "hooks"
        if not is_folder or not (inside or are_hooks):
            return self._remove(path, folder, name)
        try:
            with _open_inner_folder(folder, name) as opened:
                self._watch(path, opened, None if are_hooks else inside)  # first, so that nothing is missed
                return self._check_hooks(path, opened) if are_hooks else self._check_names(path, opened, inside, inside)
        except OSError:
            self._all_watched = False
        return []

    def _check_hooks(self, path: str, folder: int) -> list[RemovedEntry]:
        """Remove hooks from the folder of a new repository; git's templates have only samples."""
        removed: list[RemovedEntry] = []
        for name in os.listdir(folder):  # by its descriptor
            if not name.endswith(SAMPLE_SUFFIX):
                removed += self._remove(f"{path}/{name}", folder, name)
        return removed

    def _remove(self, path: str, folder: int, name: str) -> list[RemovedEntry]:
        if any(_is_related(path, known) for known in self._announced):
            return []
        removed = self._quarantine.remove(folder, name, path)
        return [removed] if removed is not None else []


def _leads_to_one(path: str, names: NameTree) -> bool:
    """Return whether one of the missing names exists now, if links are followed."""
    return any(
        _leads_to_one(f"{path}/{name}", inside) if inside else os.path.lexists(f"{path}/{name}")
        for name, inside in names.items()
    )


def _is_related(path: str, other: str) -> bool:
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


@contextlib.contextmanager
def _open_folder(path: str) -> Generator[int]:
    descriptor = open_without_links(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _open_inner_folder(folder: int, name: str) -> Generator[int]:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True
