"""A tree of files in memory."""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from vaka.core.ports.files import FileBytes, FileInfo
from vaka.core.types.errors import FileError, FileMissing
from vaka.core.types.ids import Digest
from vaka.files import paths
from vaka.files.walk import GITIGNORE, MAX_GITIGNORE_BYTES, FolderListing, WalkMethod, scan_folders

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755


class _File(msgspec.Struct, frozen=True):
    data: bytes
    modified: int


class _Folder:
    def __init__(self, modified: int) -> None:
        self.modified = modified
        self.children: dict[str, _Node] = {}


_Node: TypeAlias = _File | _Folder


class MemoryFiles(WalkMethod):
    """Files and folders in dictionaries, without links, special files or owners."""

    root = ""

    def __init__(self, contents: "dict[str, bytes] | None" = None, *, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._root_folder = _Folder(now())
        for path, data in (contents or {}).items():
            self._put(paths.parts_of(path), data)

    async def stat(self, path: str) -> FileInfo:
        parts = paths.parts_of(path)
        return _info_of(paths.join_names(parts), self._find(parts))

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return the entries of a folder, sorted by name."""
        return self._list_entries(path)

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return at most ``size`` bytes of a file from ``start`` on."""
        paths.check_range(start, size)
        parts = paths.parts_of(path)
        node = self._find(parts)
        if isinstance(node, _Folder):
            raise paths.not_a_file_error(path)
        wanted = paths.check_size(path, len(node.data) - start, size)
        return FileBytes(data=node.data[start : start + wanted], info=_info_of(paths.join_names(parts), node))

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file; missing folders are made."""
        paths.check_write(path, known, new=new)
        parts = paths.parts_of(path)
        try:
            old = self._find(parts)
        except FileMissing:
            old = None
        if isinstance(old, _Folder):
            raise paths.not_a_file_error(path)
        current = None if old is None else Digest(hashlib.sha256(old.data).hexdigest())
        paths.check_unchanged(path, current, known, new=new)
        return _info_of(paths.join_names(parts), self._put(parts, bytes(data)))

    async def delete(self, path: str) -> None:
        """Remove a file or an empty folder."""
        parts = paths.deletable_parts_of(path)
        node, folder = self._find(parts), self._find(parts[:-1])
        if isinstance(node, _Folder) and node.children:
            raise FileError(f"{paths.quote_path(path)}: the folder is not empty")
        if isinstance(folder, _Folder):
            del folder.children[parts[-1]]
            folder.modified = self._now()

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[FolderListing]:
        """List the first of these folders, at least one."""
        return scan_folders(
            folders, lambda path: FolderListing(path, self._list_entries(path), self._read_gitignore(path))
        )

    def _list_entries(self, path: str) -> list[FileInfo]:
        parts = paths.parts_of(path)
        node = self._find(parts)
        if isinstance(node, _File):
            raise paths.not_a_folder_error(path)
        return [
            _info_of(paths.child_path(paths.join_names(parts), name), held)
            for name, held in sorted(node.children.items())
        ]

    def _read_gitignore(self, folder: str) -> bytes:
        try:
            node = self._find((*paths.parts_of(folder), GITIGNORE))
        except FileMissing:
            return b""
        return node.data[:MAX_GITIGNORE_BYTES] if isinstance(node, _File) else b""

    def _find(self, parts: Sequence[str]) -> _Node:
        node: _Node = self._root_folder
        for part in parts:
            held = node.children.get(part) if isinstance(node, _Folder) else None
            if held is None:
                raise paths.missing_error(paths.join_names(parts))
            node = held
        return node

    def _put(self, parts: Sequence[str], data: bytes) -> _File:
        now, folder = self._now(), self._root_folder
        if not parts:
            raise paths.not_a_file_error("")
        for depth, part in enumerate(parts[:-1], 1):
            if part not in folder.children:
                folder.modified = now
            inner = folder.children.setdefault(part, _Folder(now))
            if isinstance(inner, _File):
                raise paths.blocked_folder_error(paths.join_names(parts[:depth]))
            folder = inner
        file = folder.children[parts[-1]] = _File(data, now)
        folder.modified = now
        return file


def _info_of(path: str, node: _Node) -> FileInfo:
    if isinstance(node, _Folder):
        return FileInfo(path=path, kind="folder", modified=node.modified, mode=_FOLDER_MODE)
    return FileInfo(path=path, kind="file", size=len(node.data), modified=node.modified, mode=_FILE_MODE)
