"""A tree of files in memory."""

import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

import msgspec

from vaka.core.ports.files import FileBytes, FileInfo
from vaka.core.types.errors import FileError, FileMissing, FileRefused
from vaka.core.types.ids import Digest
from vaka.files import errors
from vaka.files.paths import child_path, join_names, parts_of, quote_path
from vaka.files.walk import GITIGNORE, MAX_GITIGNORE_BYTES, FolderListing, walk

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755
_ENTRIES_PER_SCAN = 4096
"""Entries after which a scan returns."""


class _File(msgspec.Struct, frozen=True):
    data: bytes
    modified: int


class _Folder:
    def __init__(self, modified: int) -> None:
        self.modified = modified
        self.children: dict[str, _Node] = {}


_Node: TypeAlias = _File | _Folder


class MemoryFiles:
    """Files and folders in dictionaries, without links, special files or owners."""

    root = ""

    def __init__(self, contents: "dict[str, bytes] | None" = None, *, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._root_folder = _Folder(now())
        for path, data in (contents or {}).items():
            self._put(parts_of(path), data)

    async def stat(self, path: str) -> FileInfo:
        parts = parts_of(path)
        return _info_of(join_names(parts), self._find(parts))

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return the entries of a folder, sorted by name."""
        return self._list_entries(path)

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return at most ``size`` bytes of a file from ``start`` on."""
        errors.check_range(start, size)
        parts = parts_of(path)
        node = self._find(parts)
        if isinstance(node, _Folder):
            raise errors.not_a_file_error(path)
        wanted = errors.check_size(path, len(node.data) - start, size)
        return FileBytes(data=node.data[start : start + wanted], info=_info_of(join_names(parts), node))

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file; missing folders are made."""
        errors.check_write(path, known, new=new)
        parts = parts_of(path)
        try:
            old = self._find(parts)
        except FileMissing:
            old = None
        if isinstance(old, _Folder):
            raise errors.not_a_file_error(path)
        current = None if old is None else Digest(hashlib.sha256(old.data).hexdigest())
        errors.check_unchanged(path, current, known, new=new)
        return _info_of(join_names(parts), self._put(parts, bytes(data)))

    async def delete(self, path: str) -> None:
        """Remove a file or an empty folder."""
        parts = parts_of(path)
        if not parts:
            raise FileRefused("the root itself cannot be deleted")
        node, folder = self._find(parts), self._find(parts[:-1])
        if isinstance(node, _Folder) and node.children:
            raise FileError(f"{quote_path(path)}: the folder is not empty")
        if isinstance(folder, _Folder):
            del folder.children[parts[-1]]
            folder.modified = self._now()

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[FolderListing]:
        """List the first of these folders, at least one."""
        found: list[FolderListing] = []
        seen = 0
        for folder in folders:
            try:
                entries = self._list_entries(folder)
            except FileError as error:
                found.append(FolderListing(folder, error=error))
                continue
            found.append(FolderListing(folder, entries, self._read_gitignore(folder)))
            seen += len(entries)
            if seen >= _ENTRIES_PER_SCAN:
                break
        return found

    def walk(
        self, start: str = "", *, ignore: bool = True, hidden: bool = False, details: bool = False
    ) -> AsyncGenerator[FileInfo]:
        """Yield everything beneath a folder, as ``vaka.files.walk.walk`` does."""
        return walk(self, start, ignore=ignore, hidden=hidden, details=details)

    def _list_entries(self, path: str) -> list[FileInfo]:
        parts = parts_of(path)
        node = self._find(parts)
        if isinstance(node, _File):
            raise errors.not_a_folder_error(path)
        return [_info_of(child_path(join_names(parts), name), held) for name, held in sorted(node.children.items())]

    def _read_gitignore(self, folder: str) -> bytes:
        try:
            node = self._find((*parts_of(folder), GITIGNORE))
        except FileMissing:
            return b""
        return node.data[:MAX_GITIGNORE_BYTES] if isinstance(node, _File) else b""

    def _find(self, parts: Sequence[str]) -> _Node:
        node: _Node = self._root_folder
        for part in parts:
            held = node.children.get(part) if isinstance(node, _Folder) else None
            if held is None:
                raise FileMissing(f"{quote_path(join_names(parts))}: there is no such file or folder")
            node = held
        return node

    def _put(self, parts: Sequence[str], data: bytes) -> _File:
        now, folder = self._now(), self._root_folder
        if not parts:
            raise errors.not_a_file_error("")
        for depth, part in enumerate(parts[:-1], 1):
            if part not in folder.children:
                folder.modified = now
            inner = folder.children.setdefault(part, _Folder(now))
            if isinstance(inner, _File):
                blocking = quote_path(join_names(parts[:depth]))
                raise FileError(f"{blocking} is not a folder, so nothing can be written into it")
            folder = inner
        file = folder.children[parts[-1]] = _File(data, now)
        folder.modified = now
        return file


def _info_of(path: str, node: _Node) -> FileInfo:
    if isinstance(node, _Folder):
        return FileInfo(path=path, kind="folder", modified=node.modified, mode=_FOLDER_MODE)
    return FileInfo(path=path, kind="file", size=len(node.data), modified=node.modified, mode=_FILE_MODE)
