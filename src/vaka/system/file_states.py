"""Whether files have changed, by their times and sizes."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

FileStates: TypeAlias = dict[Path, tuple[int, int, int] | None]


def states_of(places: Iterable[Path]) -> FileStates:
    """Return what tells whether files have changed."""
    states: FileStates = {}
    for path in places:
        try:
            found = os.stat(path)  # noqa: PTH116  # before each turn, so without a method of Path
            states[path] = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            states[path] = None
    return states
