"""A folder of this machine as a tree of files."""

import asyncio
import os
import stat
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import ParamSpec, TypeVar

from vaka.core.ports.files import FileBytes, FileInfo, FileKind
from vaka.core.types.errors import FileError, FileMissing, FileRefused
from vaka.core.types.ids import Digest
from vaka.files.checks import check_known, check_range, check_size, check_write, is_file, is_folder
from vaka.files.folders import enter_folders, settle
from vaka.files.listing import IGNORE, LARGEST_IGNORE, Listing
from vaka.files.names import below, join, listed_name, parts_of, raw, read_name, shown
from vaka.files.protect import Guard, Protected
from vaka.files.replace import Change, look, replace
from vaka.files.temporary import is_temporary, sweep
from vaka.files.trouble import told
from vaka.files.walk import walk
from vaka.files.ways import FOLDER, LIST, LOOK, READ, Opened, WayName, choose, open_root, plain

T = TypeVar("T")
P = ParamSpec("P")

_CHUNK = 1 << 20
_path = attrgetter("path")
_ENTRIES = 4096
"""Entries after which a scan returns what it has."""
_SWEPT = 4096
"""Folders that are remembered as swept."""


class Disk:
    """The files beneath a folder of this machine, and nothing else.

    Links that stay beneath it are followed for reading, with ``strict`` not even then; nothing is written through a
    link. Work is done in threads, on descriptors.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        protected: Protected | Iterable[str] = (),
        strict: bool = False,
        way: WayName = "auto",
    ) -> None:
        self.protected = protected if isinstance(protected, Protected) else Protected(protected)
        self.strict = strict
        self._root = open_root(root)
        weakref.finalize(self, os.close, self._root.fd)
        self._way = choose(way, self._root)
        self._swept: set[tuple[int, int]] = set()

    @property
    def root(self) -> str:
        """The folder, without links."""
        return self._root.path

    @property
    def spellings(self) -> tuple[tuple[str, ...], ...]:
        """The names from ``/`` to the folder: as it was given, and without links."""
        return tuple(tuple(map(read_name, names)) for names in self._root.spellings)

    @property
    def identity(self) -> tuple[int, int]:
        """What the folder is to the system, whatever it is called."""
        return _identity(os.fstat(self._root.fd))

    async def stat(self, path: str) -> FileInfo:
        """Look at what a path names; links inside the root are followed."""
        return await asyncio.to_thread(self._told, path, self._stat, parts_of(path))

    async def look(self, paths: Sequence[str]) -> Sequence[FileInfo | None]:
        """Look at many paths at once; ``None`` for those where ``stat`` would fail."""
        return await asyncio.to_thread(lambda: [self._seen(path) for path in paths])

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return what a folder holds, sorted by name; links are told as links."""
        return await asyncio.to_thread(self._told, path, self._entries, parts_of(path))

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return bytes of a file from ``start`` on, at most ``size``."""
        check_range(start, size)
        return await asyncio.to_thread(self._told, path, self._read, parts_of(path), start, size)

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file whole or not at all, keeping its mode and owner; folders on the way are made."""
        check_write(path, known, new=new)
        parts = parts_of(path)
        return await asyncio.to_thread(self._told, path, self._write, parts, bytes(data), known, new)

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        await asyncio.to_thread(self._told, path, self._delete, parts_of(path))

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[Listing]:
        """Return what the first of these folders hold, at least of one."""
        return await asyncio.to_thread(self._scan, folders, details, links)

    def walk(
        self, start: str = "", *, ignore: bool = True, hidden: bool = False, details: bool = False
    ) -> AsyncGenerator[FileInfo]:
        """Yield what lies beneath a folder, as ``vaka.files.walk.walk`` does."""
        return walk(self, start, ignore=ignore, hidden=hidden, details=details)

    def _told(self, path: str, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        with told(path):
            if not os.fstat(self._root.fd).st_nlink:
                raise FileMissing(f"the root {shown(self.root)} is no longer there")
            return work(*arguments, **named)

    @contextmanager
    def _opened(self, parts: Sequence[str], flags: int, *, links: bool = True) -> Generator[Opened]:
        follow = links and not self.strict
        opened = self._way.open(self._root, [raw(part) for part in parts], flags, links=follow)
        try:
            yield opened
        finally:
            os.close(opened.fd)

    def _stat(self, parts: tuple[str, ...]) -> FileInfo:
        with self._opened(parts, LOOK) as opened:
            return info_of(join(parts), opened.stat)

    def _seen(self, path: str) -> FileInfo | None:
        try:
            return self._told(path, self._stat, parts_of(path))
        except FileError:
            return None

    def _read(self, parts: tuple[str, ...], start: int, size: int | None) -> FileBytes:
        path = join(parts)
        with self._opened(parts, READ) as opened:
            if stat.S_ISDIR(opened.stat.st_mode):
                raise is_folder(path)
            wanted = check_size(path, opened.stat.st_size - start, size)
            return FileBytes(data=_bytes(opened.fd, start, wanted), info=info_of(path, opened.stat))

    def _entries(self, parts: tuple[str, ...]) -> list[FileInfo]:
        return list(self._list(join(parts), parts, details=True, links=True).entries)

    def _list(self, path: str, parts: tuple[str, ...], *, details: bool, links: bool) -> Listing:
        try:
            with self._opened(parts, LIST, links=links) as opened:
                entries, ignore = _listed(opened.fd, path, details=details)
                return Listing(path, entries, ignore, _identity(opened.stat))
        except NotADirectoryError:
            with self._opened(parts, LOOK, links=links):
                raise is_file(path) from None

    def _scan(self, folders: Sequence[str], details: bool, links: bool) -> list[Listing]:
        found: list[Listing] = []
        seen = 0
        for folder in folders:
            try:
                listing = self._told(folder, self._list, folder, parts_of(folder), details=details, links=links)
            except FileError as error:
                listing = Listing(folder, error=error)
            found.append(listing)
            seen += len(listing.entries)
            if seen >= _ENTRIES:
                break
        return found

    def _write(self, parts: tuple[str, ...], data: bytes, known: Digest | None, new: bool) -> FileInfo:
        path = join(parts)
        if not parts:
            raise is_folder(path)
        self.protected.check(parts)
        guard = self.protected.guard(self._root, self._way) if self.protected else None
        try:
            folder = self._folder(parts[:-1], guard, make=known is None)
        except FileNotFoundError:
            check_known(path, None, known, new=new)
            raise
        try:
            self._sweep(folder)
            change = Change(folder, parts[-1], path, data, known, new)
            return info_of(path, replace(change, guard.check if guard else _unguarded))
        finally:
            os.close(folder)

    def _folder(self, parts: tuple[str, ...], guard: Guard | None, *, make: bool) -> int:
        """Open the folder to write to, and make it first if it must be."""
        if guard is None:
            try:
                return self._way.open(self._root, [raw(part) for part in parts], FOLDER, links=False).fd
            except (FileNotFoundError, NotADirectoryError):
                pass  # the other way makes it, or says what stands in its place
        return enter_folders(self._root, parts, guard, make=make)

    def _sweep(self, folder: int) -> None:
        """Clean up after writers that were killed, the first time a folder is written to."""
        identity = _identity(os.fstat(folder))
        if identity in self._swept:
            return
        if len(self._swept) >= _SWEPT:
            self._swept.clear()
        self._swept.add(identity)
        sweep(folder)

    def _delete(self, parts: tuple[str, ...]) -> None:
        path = join(parts)
        if not parts:
            raise FileRefused("the root itself is not deleted")
        self.protected.check(parts)
        with self._opened(parts[:-1], FOLDER, links=False) as folder:
            found = look(folder.fd, parts[-1])
            if found is None:
                raise FileMissing(f"{shown(path)}: there is no such file or folder")
            plain(found, path)
            if self.protected:
                self.protected.guard(self._root, self._way).check(found, path)
            self._remove(folder.fd, parts, found)
            settle(folder.fd)

    def _remove(self, folder: int, parts: tuple[str, ...], found: os.stat_result) -> None:
        name = raw(parts[-1])
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=folder)
            return
        with self._opened(parts, FOLDER, links=False) as inner:
            sweep(inner.fd)
        os.rmdir(name, dir_fd=folder)


def info_of(path: str, looked: os.stat_result, target: str = "") -> FileInfo:
    """Return what the system knows of a file in our words."""
    return FileInfo(
        path=path,
        kind=_KINDS.get(stat.S_IFMT(looked.st_mode), "other"),
        size=looked.st_size if stat.S_ISREG(looked.st_mode) else 0,
        modified=looked.st_mtime_ns,
        mode=stat.S_IMODE(looked.st_mode),
        target=target,
    )


def _listed(fd: int, path: str, *, details: bool) -> tuple[list[FileInfo], bytes]:
    """Return the entries of an open folder, sorted, and its ``.gitignore``."""
    found: list[FileInfo] = []
    ignore, prefix = b"", below(path, "")
    with os.scandir(fd) as entries:
        for entry in entries:
            name = listed_name(entry.name)
            if name.startswith(".") and is_temporary(name):
                continue
            info = _entry(fd, entry, prefix + name, details=details)
            if info is None:
                continue
            found.append(info)
            if name == IGNORE and info.kind == "file":
                ignore = _ignore(fd)
    found.sort(key=_path)
    return found, ignore


def _entry(fd: int, entry: os.DirEntry[str], path: str, *, details: bool) -> FileInfo | None:
    try:
        if entry.is_symlink():
            target = os.readlink(os.fsencode(entry.name), dir_fd=fd)
            return info_of(path, entry.stat(follow_symlinks=False), read_name(target))
        if details:
            return info_of(path, entry.stat(follow_symlinks=False))
    except OSError:
        return None  # it went away while the folder was read
    if entry.is_file(follow_symlinks=False):
        return FileInfo(path=path, kind="file")
    return FileInfo(path=path, kind="folder" if entry.is_dir(follow_symlinks=False) else "other")


def _ignore(folder: int) -> bytes:
    """Return the rules of a folder; none when they cannot be read, and never through a link."""
    try:
        fd = os.open(IGNORE, READ | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return b""
    try:
        return os.pread(fd, LARGEST_IGNORE, 0)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _bytes(fd: int, start: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (piece := os.pread(fd, min(size, _CHUNK), start)):
        pieces.append(piece)
        start, size = start + len(piece), size - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _identity(looked: os.stat_result) -> tuple[int, int]:
    return looked.st_dev, looked.st_ino


def _unguarded(looked: os.stat_result, path: str) -> None:
    """Nothing is protected."""


_KINDS: dict[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
