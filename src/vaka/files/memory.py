"""A tree of files that lives as long as its process."""

import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

import msgspec

from vaka.core.ports.files import FileBytes, FileInfo
from vaka.core.types.errors import FileError, FileMissing, FileRefused
from vaka.core.types.ids import Digest
from vaka.files.checks import check_known, check_range, check_size, check_write, is_file, is_folder
from vaka.files.listing import IGNORE, LARGEST_IGNORE, Listing
from vaka.files.names import below, join, parts_of, shown
from vaka.files.walk import walk

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755
_ENTRIES = 4096
"""Entries after which a scan returns what it has."""


class _File(msgspec.Struct, frozen=True):
    data: bytes
    modified: int


class _Folder:
    def __init__(self, modified: int) -> None:
        self.modified = modified
        self.held: dict[str, _Node] = {}


_Node: TypeAlias = _File | _Folder


class MemoryFiles:
    """Files and folders in dictionaries; no links, nothing special, no owner."""

    root = ""

    def __init__(self, contents: "dict[str, bytes] | None" = None, *, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._top = _Folder(now())
        for path, data in (contents or {}).items():
            self._put(parts_of(path), data)

    async def stat(self, path: str) -> FileInfo:
        """Look at what a path names."""
        parts = parts_of(path)
        return _info(join(parts), self._find(parts))

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return what a folder holds, sorted by name."""
        return self._entries(path)

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return bytes of a file from ``start`` on, at most ``size``."""
        check_range(start, size)
        parts = parts_of(path)
        node = self._find(parts)
        if isinstance(node, _Folder):
            raise is_folder(path)
        wanted = check_size(path, len(node.data) - start, size)
        return FileBytes(data=node.data[start : start + wanted], info=_info(join(parts), node))

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file whole; folders on the way are made."""
        check_write(path, known, new=new)
        parts = parts_of(path)
        try:
            old = self._find(parts)
        except FileMissing:
            old = None
        if isinstance(old, _Folder):
            raise is_folder(path)
        current = None if old is None else Digest(hashlib.sha256(old.data).hexdigest())
        check_known(path, current, known, new=new)
        return _info(join(parts), self._put(parts, bytes(data)))

    async def delete(self, path: str) -> None:
        """Remove a file or an empty folder."""
        parts = parts_of(path)
        if not parts:
            raise FileRefused("the root itself is not deleted")
        node, folder = self._find(parts), self._find(parts[:-1])
        if isinstance(node, _Folder) and node.held:
            raise FileError(f"{shown(path)}: the folder is not empty")
        if isinstance(folder, _Folder):
            del folder.held[parts[-1]]
            folder.modified = self._now()

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[Listing]:
        """Return what the first of these folders hold, at least of one."""
        found: list[Listing] = []
        seen = 0
        for folder in folders:
            try:
                entries = self._entries(folder)
            except FileError as error:
                found.append(Listing(folder, error=error))
                continue
            found.append(Listing(folder, entries, self._ignore(folder)))
            seen += len(entries)
            if seen >= _ENTRIES:
                break
        return found

    def walk(
        self, start: str = "", *, ignore: bool = True, hidden: bool = False, details: bool = False
    ) -> AsyncGenerator[FileInfo]:
        """Yield what lies beneath a folder, as ``vaka.files.walk.walk`` does."""
        return walk(self, start, ignore=ignore, hidden=hidden, details=details)

    def _entries(self, path: str) -> list[FileInfo]:
        parts = parts_of(path)
        node = self._find(parts)
        if isinstance(node, _File):
            raise is_file(path)
        return [_info(below(join(parts), name), held) for name, held in sorted(node.held.items())]

    def _ignore(self, folder: str) -> bytes:
        try:
            node = self._find((*parts_of(folder), IGNORE))
        except FileMissing:
            return b""
        return node.data[:LARGEST_IGNORE] if isinstance(node, _File) else b""

    def _find(self, parts: Sequence[str]) -> _Node:
        node: _Node = self._top
        for part in parts:
            held = node.held.get(part) if isinstance(node, _Folder) else None
            if held is None:
                raise FileMissing(f"{shown(join(parts))}: there is no such file or folder")
            node = held
        return node

    def _put(self, parts: Sequence[str], data: bytes) -> _File:
        now, folder = self._now(), self._top
        if not parts:
            raise is_folder("")
        for depth, part in enumerate(parts[:-1], 1):
            if part not in folder.held:
                folder.modified = now
            inner = folder.held.setdefault(part, _Folder(now))
            if isinstance(inner, _File):
                raise FileError(f"{shown(join(parts[:depth]))} is not a folder, so nothing can be put into it")
            folder = inner
        made = folder.held[parts[-1]] = _File(data, now)
        folder.modified = now
        return made


def _info(path: str, node: _Node) -> FileInfo:
    if isinstance(node, _Folder):
        return FileInfo(path=path, kind="folder", modified=node.modified, mode=_FOLDER_MODE)
    return FileInfo(path=path, kind="file", size=len(node.data), modified=node.modified, mode=_FILE_MODE)
