"""A folder of this machine as a tree of files."""

import asyncio
import os
import stat
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import ParamSpec, TypeVar

from vaka.core.ports.files import FileBytes, FileInfo, FileKind
from vaka.core.types.errors import FileChanged, FileError, FileMissing, FileRefused
from vaka.core.types.ids import Digest
from vaka.files import atomic_write, paths, safe_open
from vaka.files.safe_open import IdentityGuard, OpenedFile, OpenerName, ProtectedFiles
from vaka.files.walk import GITIGNORE, MAX_GITIGNORE_BYTES, FolderListing, WalkMethod, scan_folders

T = TypeVar("T")
P = ParamSpec("P")

_CHUNK_BYTES = 1 << 20
_path_of = attrgetter("path")
_MAX_CLEANED_FOLDERS = 4096
"""Folders remembered as cleaned of stale temporary files."""


class DiskFiles(WalkMethod):
    """The files beneath a folder of this machine, and nothing else.

    Links that stay beneath it are followed for reading, unless ``strict``; nothing is written through a link. The work
    is done in threads, on descriptors.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        protected: ProtectedFiles | Iterable[str] = (),
        strict: bool = False,
        opener: OpenerName = "auto",
    ) -> None:
        self.protected = protected if isinstance(protected, ProtectedFiles) else ProtectedFiles(protected)
        self.strict = strict
        self._root = safe_open.open_root(root)
        weakref.finalize(self, os.close, self._root.fd)
        self._opener = safe_open.select_opener(opener, self._root)
        self._cleaned_folders: set[tuple[int, int]] = set()

    @property
    def root(self) -> str:
        """The folder, with links resolved."""
        return self._root.path

    @property
    def spellings(self) -> tuple[tuple[str, ...], ...]:
        """The names from ``/`` to the folder: as given, and with links resolved."""
        return tuple(tuple(map(paths.decode_name, names)) for names in self._root.spellings)

    @property
    def identity(self) -> tuple[int, int]:
        """The device and inode of the folder."""
        return _identity_of(os.fstat(self._root.fd))

    async def stat(self, path: str) -> FileInfo:
        """Return the information about a path; links inside the root are followed."""
        return await asyncio.to_thread(self._call, path, self._stat, paths.parts_of(path))

    async def stat_many(self, paths: Sequence[str]) -> Sequence[FileInfo | None]:
        """Return the information about many paths at once; ``None`` where ``stat`` would fail."""
        return await asyncio.to_thread(lambda: [self._stat_or_none(path) for path in paths])

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return the entries of a folder, sorted by name; links are not followed."""
        return await asyncio.to_thread(self._call, path, self._entries, paths.parts_of(path))

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return at most ``size`` bytes of a file from ``start`` on."""
        paths.check_range(start, size)
        return await asyncio.to_thread(self._call, path, self._read, paths.parts_of(path), start, size)

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file atomically, keeping its mode and owner; missing folders are made."""
        paths.check_write(path, known, new=new)
        parts = paths.parts_of(path)
        return await asyncio.to_thread(self._call, path, self._write, parts, bytes(data), known, new)

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        await asyncio.to_thread(self._call, path, self._delete, paths.deletable_parts_of(path))

    async def lookup(self, path: str) -> FileInfo | None:
        """Return the information about a path without following links, ``None`` if nothing is there."""
        return await asyncio.to_thread(self._call, path, self._lookup, paths.parts_of(path))

    async def write_link(self, path: str, target: str) -> None:
        """Create a link; missing folders are made."""
        await asyncio.to_thread(self._call, path, self._write_link, paths.deletable_parts_of(path), target)

    async def set_executable(self, path: str, executable: bool) -> None:
        """Set or clear the bits of a regular file that allow running it."""
        await asyncio.to_thread(self._call, path, self._set_executable, paths.parts_of(path), executable)

    async def allow_changes(self, path: str) -> None:
        """Give the owner of a path, and of the folder that it is in, the rights to change them."""
        await asyncio.to_thread(self._call, path, self._allow_changes, paths.deletable_parts_of(path))

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[FolderListing]:
        """List the first of these folders, at least one."""

        def list_folder(folder: str) -> FolderListing:
            return self._call(folder, self._list_folder, folder, paths.parts_of(folder), details=details, links=links)

        return await asyncio.to_thread(scan_folders, folders, list_folder)

    def _call(self, path: str, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        with paths.translate_os_errors(path):
            if not os.fstat(self._root.fd).st_nlink:
                raise FileMissing(f"the root {paths.quote_path(self.root)} is no longer there")
            return work(*arguments, **keywords)

    @contextmanager
    def _open(self, parts: Sequence[str], flags: int, *, links: bool = True) -> Generator[OpenedFile]:
        opened = self._opener(self._root, parts, flags, links=links and not self.strict)
        try:
            yield opened
        finally:
            os.close(opened.fd)

    def _stat(self, parts: tuple[str, ...]) -> FileInfo:
        with self._open(parts, safe_open.LOOK_FLAGS) as opened:
            return info_of(paths.join_names(parts), opened.stat)

    def _stat_or_none(self, path: str) -> FileInfo | None:
        try:
            return self._call(path, self._stat, paths.parts_of(path))
        except FileError:
            return None

    def _read(self, parts: tuple[str, ...], start: int, size: int | None) -> FileBytes:
        path = paths.join_names(parts)
        with self._open(parts, safe_open.READ_FLAGS) as opened:
            if stat.S_ISDIR(opened.stat.st_mode):
                raise paths.not_a_file_error(path)
            wanted = paths.check_size(path, opened.stat.st_size - start, size)
            return FileBytes(data=_read_range(opened.fd, start, wanted), info=info_of(path, opened.stat))

    def _entries(self, parts: tuple[str, ...]) -> list[FileInfo]:
        return list(self._list_folder(paths.join_names(parts), parts, details=True, links=True).entries)

    def _list_folder(self, path: str, parts: tuple[str, ...], *, details: bool, links: bool) -> FolderListing:
        try:
            with self._open(parts, safe_open.LIST_FLAGS, links=links) as opened:
                entries, ignore = _list_entries(opened.fd, path, details=details)
                return FolderListing(path, entries, ignore, _identity_of(opened.stat))
        except NotADirectoryError:
            with self._open(parts, safe_open.LOOK_FLAGS, links=links):
                raise paths.not_a_folder_error(path) from None

    def _write(self, parts: tuple[str, ...], data: bytes, known: Digest | None, new: bool) -> FileInfo:
        path = paths.join_names(parts)
        if not parts:
            raise paths.not_a_file_error(path)
        self.protected.check(parts)
        guard = IdentityGuard(self.protected, self._root, self._opener) if self.protected else None
        try:
            folder = self._open_parent(parts[:-1], guard, make=known is None)
        except FileNotFoundError:
            paths.check_unchanged(path, None, known, new=new)
            raise
        try:
            self._remove_stale_files_once(folder)
            change = atomic_write.FileWrite(folder, parts[-1], path, data, known, new)
            return info_of(path, atomic_write.write_atomically(change, guard))
        finally:
            os.close(folder)

    def _open_parent(self, parts: tuple[str, ...], guard: IdentityGuard | None, *, make: bool) -> int:
        """Open the folder to write to; with ``make``, create it if it is missing."""
        if guard is None:
            try:
                return self._opener(self._root, parts, safe_open.FOLDER_FLAGS, links=False).fd
            except (FileNotFoundError, NotADirectoryError):
                pass  # made below, or refused with a better message
        return atomic_write.open_or_make_folder(self._root, parts, guard, make=make)

    def _remove_stale_files_once(self, folder: int) -> None:
        """Remove temporary files of killed writers, the first time a folder is written to."""
        identity = _identity_of(os.fstat(folder))
        if identity in self._cleaned_folders:
            return
        if len(self._cleaned_folders) >= _MAX_CLEANED_FOLDERS:
            self._cleaned_folders.clear()
        self._cleaned_folders.add(identity)
        atomic_write.remove_stale_temp_files(folder)

    def _delete(self, parts: tuple[str, ...]) -> None:
        path = paths.join_names(parts)
        self.protected.check(parts)
        with self._open(parts[:-1], safe_open.FOLDER_FLAGS, links=False) as folder:
            found = atomic_write.lstat_name(folder.fd, parts[-1])
            if found is None:
                raise paths.missing_error(path)
            safe_open.check_file_kind(found, path)
            if self.protected:
                IdentityGuard(self.protected, self._root, self._opener).check(found, path)
            self._remove(folder.fd, parts, found)
            atomic_write.sync_folder(folder.fd)

    def _lookup(self, parts: tuple[str, ...]) -> FileInfo | None:
        if not parts:
            return self._stat(parts)
        try:
            with self._open(parts[:-1], safe_open.FOLDER_FLAGS, links=False) as folder:
                found = atomic_write.lstat_name(folder.fd, parts[-1])
                if found is None:
                    return None
                name = paths.encode_name(parts[-1])
                target = os.readlink(name, dir_fd=folder.fd) if stat.S_ISLNK(found.st_mode) else b""
        except (FileNotFoundError, NotADirectoryError, FileRefused):
            return None  # a folder of the path is missing, a file or a link
        return info_of(paths.join_names(parts), found, paths.decode_name(target))

    def _write_link(self, parts: tuple[str, ...], target: str) -> None:
        self.protected.check(parts)
        folder = atomic_write.open_or_make_folder(self._root, parts[:-1], None, make=True)
        try:
            os.symlink(os.fsencode(paths.encode_name(target)), paths.encode_name(parts[-1]), dir_fd=folder)
            atomic_write.sync_folder(folder)
        except FileExistsError as error:
            name = paths.quote_path(paths.join_names(parts))
            raise FileChanged(f"{name} exists already; expected nothing there") from error
        finally:
            os.close(folder)

    def _set_executable(self, parts: tuple[str, ...], executable: bool) -> None:
        self.protected.check(parts)
        with self._open(parts, safe_open.READ_FLAGS, links=False) as opened:
            mode = stat.S_IMODE(opened.stat.st_mode)
            readers = (mode & 0o444) >> 2
            os.fchmod(opened.fd, mode | readers if executable else mode & ~0o111)

    def _allow_changes(self, parts: tuple[str, ...]) -> None:
        self.protected.check(parts)
        for place in (parts[:-1], parts):
            with suppress(FileNotFoundError), self._open(place, safe_open.READ_FLAGS, links=False) as opened:
                mode = stat.S_IMODE(opened.stat.st_mode)
                wanted = mode | (0o700 if stat.S_ISDIR(opened.stat.st_mode) else 0o600)
                if wanted != mode:
                    os.fchmod(opened.fd, wanted)

    def _remove(self, folder: int, parts: tuple[str, ...], found: os.stat_result) -> None:
        name = paths.encode_name(parts[-1])
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=folder)
            return
        with self._open(parts, safe_open.FOLDER_FLAGS, links=False) as inner:
            atomic_write.remove_stale_temp_files(inner.fd)
        os.rmdir(name, dir_fd=folder)


def info_of(path: str, status: os.stat_result, target: str = "") -> FileInfo:
    kind, size = _KINDS.get(stat.S_IFMT(status.st_mode), "other"), status.st_size if stat.S_ISREG(status.st_mode) else 0
    mode = stat.S_IMODE(status.st_mode)
    return FileInfo(path=path, kind=kind, size=size, modified=status.st_mtime_ns, mode=mode, target=target)


def _list_entries(fd: int, path: str, *, details: bool) -> tuple[list[FileInfo], bytes]:
    """Return the entries of an open folder, sorted, and its ``.gitignore``."""
    found: list[FileInfo] = []
    ignore, prefix = b"", paths.child_path(path, "")
    with os.scandir(fd) as entries:
        for entry in entries:
            name = paths.normalize_listed_name(entry.name)
            if name.startswith(".") and atomic_write.is_temp_name(name):
                continue
            info = _entry_info(fd, entry, prefix + name, details=details)
            if info is None:
                continue
            found.append(info)
            if name == GITIGNORE and info.kind == "file":
                ignore = _read_gitignore(fd)
    found.sort(key=_path_of)
    return found, ignore


def _entry_info(fd: int, entry: os.DirEntry[str], path: str, *, details: bool) -> FileInfo | None:
    try:
        if entry.is_symlink():
            target = os.readlink(os.fsencode(entry.name), dir_fd=fd)
            return info_of(path, entry.stat(follow_symlinks=False), paths.decode_name(target))
        if details:
            return info_of(path, entry.stat(follow_symlinks=False))
    except OSError:
        return None  # removed while the folder was listed
    if entry.is_file(follow_symlinks=False):
        return FileInfo(path=path, kind="file")
    return FileInfo(path=path, kind="folder" if entry.is_dir(follow_symlinks=False) else "other")


def _read_gitignore(folder: int) -> bytes:
    """Return the ``.gitignore`` of a folder, nothing if it cannot be read or is a link."""
    with suppress(OSError):
        fd = os.open(GITIGNORE, safe_open.READ_FLAGS | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            return os.pread(fd, MAX_GITIGNORE_BYTES, 0)
        finally:
            os.close(fd)
    return b""


def _read_range(fd: int, start: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (piece := os.pread(fd, min(size, _CHUNK_BYTES), start)):
        pieces.append(piece)
        start, size = start + len(piece), size - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


_KINDS: dict[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
