"""The index of a git repository: the paths that it tracks."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

_INDEX_HEADER, _INDEX_ENTRY = struct.Struct(">4sLL"), struct.Struct(">24xL12x20sH")

_SUBMODULE_MODE = 0o160000

_EXTENDED_FLAG, _MAX_INDEX_BYTES = 0x4000, 64 << 20


class UnreadableIndex(Exception):
    """An index whose paths are not known."""


def find_repository(folder: str) -> str:
    """Return the top folder of the git repository that a folder is in, ``""`` if there is none."""
    folders = map(str, (Path(folder), *Path(folder).parents))
    return next((top for top in folders if os.path.lexists(f"{top}/.git")), "")


def find_git_folder(root: str) -> str:
    """Return the folder of git; in a linked work tree and a submodule ``.git`` is a file with its path."""
    git = f"{root}/.git"
    try:
        with open(git, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  # a string
            named = file.read(_MAX_INDEX_BYTES).removeprefix("gitdir:").strip()
        git = named if named.startswith(os.sep) else f"{root}/{named}"
    except OSError:
        pass  # a folder
    return git


def read_index(root: str) -> Iterator[str]:
    """Yield the paths in the index of a repository, of version 2, 3 or 4. Raises ``UnreadableIndex``."""
    return (path for path, _ in _read_entries(root))


def find_submodules(root: str) -> Iterator[str]:
    """Yield the paths of other repositories in the index of a repository. Raises ``UnreadableIndex``."""
    return (path for path, mode in _read_entries(root) if mode == _SUBMODULE_MODE)


def _read_entries(root: str) -> Iterator[tuple[str, int]]:
    path = f"{find_git_folder(root)}/index"
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # a string
            data = file.read(_MAX_INDEX_BYTES + 1)
    except FileNotFoundError:
        return
    except OSError:
        raise UnreadableIndex(path) from None
    if len(data) > _MAX_INDEX_BYTES:
        raise UnreadableIndex(path)
    try:
        yield from _parse_index(data)
    except (struct.error, ValueError, IndexError):
        raise UnreadableIndex(path) from None


def _parse_index(data: bytes) -> Iterator[tuple[str, int]]:
    signature, version, count = _INDEX_HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("it is not an index that is known")
    offset, name = _INDEX_HEADER.size, b""
    for _ in range(count):
        start = offset
        mode, _, flags = _INDEX_ENTRY.unpack_from(data, offset)
        offset += _INDEX_ENTRY.size + (2 if flags & _EXTENDED_FLAG else 0)
        if version == 4:  # a name begins as the previous name, without its last bytes
            removed, offset = _read_variable_number(data, offset)
            end = data.index(b"\0", offset)
            name, offset = name[: len(name) - removed] + data[offset:end], end + 1
        else:
            end = data.index(b"\0", offset)
            name = data[offset:end]
            offset = start + (end - start + 8) // 8 * 8
        yield os.fsdecode(name), mode


def _read_variable_number(data: bytes, offset: int) -> tuple[int, int]:
    value = data[offset] & 127
    while data[offset] & 128:
        offset += 1
        value = (value + 1 << 7) | (data[offset] & 127)
    return value, offset + 1
