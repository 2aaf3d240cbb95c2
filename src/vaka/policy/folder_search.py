"""The names below folders, the nearest first and names in dependencies last, up to a limit."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vaka.matching.generated_folders import GENERATED_FOLDERS

MAX_EXPANDED = 20_000
"""Names that are looked at before each command; where there are more, a person is asked about each command."""

GIT = ".git"

SEARCHED_LAST = GENERATED_FOLDERS | {GIT}
"""Folders whose names do not count for the question."""


class FolderEntry(NamedTuple):
    folder: str
    name: str
    is_folder: bool
    counts: bool
    """Whether it is outside of folders of dependencies."""

    @property
    def path(self) -> str:
        return os.path.join(self.folder, self.name)  # noqa: PTH118  # many names


class FolderSearch:
    """The names below some folders, the nearest first, up to a limit; the caller says which folders to look into."""

    def __init__(self, folders: Iterable[str], limit: int) -> None:
        self._pending, self._later = deque(folders), deque[str]()
        self._left = limit
        self.exceeded = False
        """Whether names were left out that count."""

    def __iter__(self) -> Iterator[FolderEntry]:
        while self._pending or self._later:
            counts = bool(self._pending)
            folder = (self._pending or self._later).popleft()
            for name, is_folder in _list_folder(folder):
                self._left -= 1
                if self._left < 0:
                    self.exceeded = counts
                    return
                yield FolderEntry(folder, name, is_folder, counts)

    def enter(self, entry: FolderEntry) -> None:
        """Look into a folder as well."""
        pending = self._pending if entry.counts and entry.name not in SEARCHED_LAST else self._later
        pending.append(entry.path)


def is_too_large(folders: Iterable[str], limit: int = MAX_EXPANDED) -> bool:
    """Return whether folders have more names than are looked at; names in dependencies are not counted."""
    search = FolderSearch(folders, limit)
    for entry in search:
        if entry.is_folder and entry.name not in SEARCHED_LAST:
            search.enter(entry)
    return search.exceeded


def _list_folder(folder: str) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return []
