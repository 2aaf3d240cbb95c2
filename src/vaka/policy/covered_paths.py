"""The existing files in a folder, or in the index of a git repository, that rules for paths match."""

import os
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from vaka.policy.decision import FolderUse
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

    def describe(self, use: FolderUse) -> str:
        """Return what a command does with it, after the folder or word that it was found by."""
        if use.scope == "anywhere":
            return f"may be {self.name or 'any file'}"
        return f"contains {self.name}" if self.name else "is too large to know what it contains"


def find_selected(folder: str, patterns: Sequence[PathPattern], use: FolderUse) -> CoveredFile | None:
    """Return a file that a pattern matches and a command uses, ``None`` when there is none."""
    if use.scope == "anywhere":
        for index, pattern in enumerate(patterns):
            path = pattern.literal_path
            if os.path.lexists(path) and (use.selects(path) or os.path.isdir(path)):  # noqa: PTH112  # a string
                return CoveredFile(path, index)
    top = folder.rstrip(os.sep) + os.sep
    try:
        for path in (find_tracked_paths if use.scope == "tracked" else find_covered_paths)(folder, patterns):
            name = path.removeprefix(top)
            if use.selects(name) or (use.scope != "tracked" and os.path.isdir(path)):  # noqa: PTH112  # a string
                names = split_path(path)
                index = next(index for index, pattern in enumerate(patterns) if pattern.covers(names))
                return CoveredFile(name, index)
    except FolderTooLarge:
        return CoveredFile("", 0)
    return None


# ------------------------------------------------------------------------------------------- git


_INDEX_HEADER, _INDEX_ENTRY = struct.Struct(">4sLL"), struct.Struct(">40x20sH")

_EXTENDED_FLAG, _MAX_INDEX_BYTES = 0x4000, 64 << 20


def find_tracked_paths(folder: str, patterns: Sequence[PathPattern]) -> Iterator[str]:
    """Yield the paths in the index of the git repository of a folder that a pattern matches.

    Raises ``FolderTooLarge`` for an index that cannot be read.
    """
    folders = map(str, (Path(folder), *Path(folder).parents))
    root = next((top for top in folders if os.path.lexists(f"{top}/.git")), "")
    top = split_path(root)
    for path in _read_index(_index_of(root)) if root else ():
        if any(pattern.covers((*top, *path.split("/"))) for pattern in patterns):
            yield f"{root}/{path}"


def _index_of(root: str) -> str:
    """Return the path of the index; in a linked work tree and a submodule ``.git`` is a file with a path."""
    git = f"{root}/.git"
    try:
        with open(git, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  # a string
            named = file.read(_MAX_INDEX_BYTES).removeprefix("gitdir:").strip()
        git = named if named.startswith(os.sep) else f"{root}/{named}"
    except OSError:
        pass  # a folder
    return f"{git}/index"


def _read_index(path: str) -> Iterator[str]:
    """Yield the paths in an index of version 2, 3 or 4."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # a string
            data = file.read(_MAX_INDEX_BYTES + 1)
    except FileNotFoundError:
        return
    except OSError:
        raise FolderTooLarge(path) from None
    if len(data) > _MAX_INDEX_BYTES:
        raise FolderTooLarge(path)
    try:
        yield from _parse_index(data)
    except (struct.error, ValueError, IndexError):
        raise FolderTooLarge(path) from None


def _parse_index(data: bytes) -> Iterator[str]:
    signature, version, count = _INDEX_HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("it is not an index that is known")
    offset, name = _INDEX_HEADER.size, b""
    for _ in range(count):
        start = offset
        _, flags = _INDEX_ENTRY.unpack_from(data, offset)
        offset += _INDEX_ENTRY.size + (2 if flags & _EXTENDED_FLAG else 0)
        if version == 4:  # a name begins as the one before it, without its last bytes
            removed, offset = _read_variable_number(data, offset)
            end = data.index(b"\0", offset)
            name, offset = name[: len(name) - removed] + data[offset:end], end + 1
        else:
            end = data.index(b"\0", offset)
            name = data[offset:end]
            offset = start + (end - start + 8) // 8 * 8
        yield os.fsdecode(name)


def _read_variable_number(data: bytes, offset: int) -> tuple[int, int]:
    value = data[offset] & 127
    while data[offset] & 128:
        offset += 1
        value = (value + 1 << 7) | (data[offset] & 127)
    return value, offset + 1
