"""The existing files in a folder that rules for paths match."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from vaka.policy.paths import PathPattern, split_path

MAX_ENTRIES = 100_000
"""Names that are looked at; a larger folder counts as one that may contain any file."""


class FolderTooLarge(Exception):
    """Not every name in a folder was looked at."""


def find_covered_paths(folder: str, patterns: Sequence[PathPattern], limit: int = MAX_ENTRIES) -> Iterator[str]:
    """Yield the topmost paths below a folder that a pattern matches; links are not followed.

    Raises ``FolderTooLarge`` after ``limit`` names.
    """
    pending, count = deque([folder]), 0
    while pending and patterns:
        top = pending.popleft()  # the nearest first
        names = split_path(top)
        parent = names[-1] if names else ""
        for name, is_folder in _list_folder(top):
            count += 1
            if count > limit:
                raise FolderTooLarge(folder)
            path = os.path.join(top, name)  # noqa: PTH118  # many names
            if any(pattern.may_end(parent, name) and pattern.covers((*names, name)) for pattern in patterns):
                yield path
            elif is_folder:
                pending.append(path)


def _list_folder(folder: str) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return []


class CoveredFile(NamedTuple):
    """A file that a pattern matches, relative to the folder; ``""`` when the folder is too large to know."""

    name: str
    pattern: int
    """The index of the pattern."""


def find_selected(folder: str, patterns: Sequence[PathPattern], selects: Callable[[str], bool]) -> CoveredFile | None:
    """Return a file below a folder that a pattern matches and ``selects`` accepts, ``None`` when there is none."""
    try:
        for path in find_covered_paths(folder, patterns):
            name = path[len(folder.rstrip(os.sep)) + 1 :]
            if selects(name) or os.path.isdir(path):  # noqa: PTH112  # a string
                names = split_path(path)
                index = next(index for index, pattern in enumerate(patterns) if pattern.covers(names))
                return CoveredFile(name, index)
    except FolderTooLarge:
        return CoveredFile("", 0)
    return None
