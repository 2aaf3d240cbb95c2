"""The folders of this machine that an agent works in, with paths as people and models write them."""

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

import msgspec

from vaka.core.ports.files import FileBytes, FileInfo
from vaka.core.types.errors import FileError, FileRefused
from vaka.core.types.ids import Digest
from vaka.files.disk import DiskFiles
from vaka.files.paths import encode_name, join_names, name_tree_in_errors, names_of, quote_path
from vaka.files.safe_open import ANYWHERE, OpenerName, ProtectedFiles
from vaka.files.walk import FolderListing, WalkMethod

PathNames = tuple[str, ...]
AnyPath = str | os.PathLike[str]


class WorkspacePath(NamedTuple):
    """A root and a path in it."""

    files: DiskFiles
    path: str


class WorkspaceFiles(WalkMethod):
    """A working folder and other roots as one tree.

    Paths may be absolute, relative to the home (``~/x``) or to the working folder. Results are relative to the working
    folder if they are in it (``src/x``) and absolute otherwise (``/other/x``). A root inside another one is part of it.
    ``protected`` has paths in the same spellings, and ``**/name`` for a name in any folder; a root in it is read-only.
    """

    def __init__(
        self,
        cwd: AnyPath,
        roots: Iterable[AnyPath] = (),
        *,
        home: AnyPath | None = None,
        protected: Iterable[str] = (),
        strict: bool = False,
        opener: OpenerName = "auto",
    ) -> None:
        self.strict = strict
        self._home = _absolute_path("~" if home is None else home)
        self._cwd = _split_names(os.path.realpath(_absolute_path(cwd)))
        self._disks: list[DiskFiles] = []
        rules = [protected] if isinstance(protected, str) else list(protected)
        for root in _outermost_roots([cwd, *roots]):
            protection = self._protection_of(_split_names(os.path.realpath(root)), rules)
            self._disks.append(DiskFiles(root, protected=protection, strict=strict, opener=opener))
        self._spellings = sorted(
            ((names, disk) for disk in self._disks for names in disk.spellings), key=lambda pair: -len(pair[0])
        )

    @property
    def root(self) -> str:
        """The working folder."""
        return _join_absolute(self._cwd)

    @property
    def roots(self) -> tuple[str, ...]:
        """Every folder that paths may be in; the folder with the working folder comes first."""
        return tuple(disk.root for disk in self._disks)

    async def locate(self, path: str) -> WorkspacePath:
        """Return the root of a path and the path in it. Raises ``FileRefused``, naming the roots."""
        names = self._absolute_names_of(path)
        for spelled, disk in self._spellings:
            if names[: len(spelled)] == spelled:
                return WorkspacePath(disk, join_names(names[len(spelled) :]))
        return await asyncio.to_thread(self._find_by_identity, path, names)

    async def stat(self, path: str) -> FileInfo:
        """Return the information about a path; links inside a root are followed."""
        place = await self.locate(path)
        with name_tree_in_errors(self._other_root(place.files)):
            return self._translate_info(place.files, await place.files.stat(place.path))

    async def stat_many(self, paths: Sequence[str]) -> Sequence[FileInfo | None]:
        """Return the information about many paths at once; ``None`` where ``stat`` would fail."""
        if type(self).stat is not WorkspaceFiles.stat:  # a subclass that restricts stat restricts this
            return [await self._stat_or_none(path) for path in paths]
        rows: dict[DiskFiles, list[tuple[int, str]]] = {}
        found: list[FileInfo | None] = [None] * len(paths)
        for at, path in enumerate(paths):
            with suppress(FileError):
                place = await self.locate(path)
                rows.setdefault(place.files, []).append((at, place.path))
        for disk, row in rows.items():
            for (at, _), info in zip(row, await disk.stat_many([path for _, path in row]), strict=True):
                found[at] = info and self._translate_info(disk, info)
        return found

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return the entries of a folder, sorted by name; links are not followed."""
        place = await self.locate(path)
        with name_tree_in_errors(self._other_root(place.files)):
            return [self._translate_entry(place.files, info) for info in await place.files.entries(place.path)]

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return at most ``size`` bytes of a file from ``start`` on."""
        place = await self.locate(path)
        with name_tree_in_errors(self._other_root(place.files)):
            found = await place.files.read(place.path, start=start, size=size)
        return FileBytes(data=found.data, info=self._translate_info(place.files, found.info))

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file atomically, keeping its mode and owner; missing folders are made."""
        place = await self.locate(path)
        with name_tree_in_errors(self._other_root(place.files)):
            return self._translate_info(place.files, await place.files.write(place.path, data, known=known, new=new))

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        place = await self.locate(path)
        if _split_names(place.files.root) + _split_names(place.path) == self._cwd:
            raise FileRefused("the working folder itself cannot be deleted")
        with name_tree_in_errors(self._other_root(place.files)):
            await place.files.delete(place.path)

    async def lookup(self, path: str) -> FileInfo | None:
        """Return the information about a path without following links, ``None`` if nothing is there."""
        place = await self.locate(path)
        with name_tree_in_errors(self._other_root(place.files)):
            found = await place.files.lookup(place.path)
        return found and self._translate_info(place.files, found)

    async def write_link(self, path: str, target: str) -> None:
        """Create a link; missing folders are made."""
        place = await self.locate(path)
        with name_tree_in_errors(self._other_root(place.files)):
            await place.files.write_link(place.path, target)

    async def set_executable(self, path: str, executable: bool) -> None:
        """Set or clear the bits of a regular file that allow running it."""
        place = await self.locate(path)
        with name_tree_in_errors(self._other_root(place.files)):
            await place.files.set_executable(place.path, executable)

    async def allow_changes(self, path: str) -> None:
        """Give the owner of a path, and of the folder that it is in, the rights to change them."""
        place = await self.locate(path)
        with name_tree_in_errors(self._other_root(place.files)):
            await place.files.allow_changes(place.path)

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[FolderListing]:
        """List the first of these folders: as many in a row as belong to one root."""
        places = [await self.locate(folder) for folder in folders]
        disk = places[0].files
        row = [place.path for place in takewhile(lambda place: place.files is disk, places)]
        found = await disk.scan(row, details=details, links=links)
        if not self._other_root(disk):
            return [listing._replace(path=folder) for folder, listing in zip(folders, found, strict=False)]
        return [
            listing._replace(path=folder, entries=[self._translate_entry(disk, info) for info in listing.entries])
            for folder, listing in zip(folders, found, strict=False)
        ]

    async def _stat_or_none(self, path: str) -> FileInfo | None:
        try:
            return await self.stat(path)
        except FileError:
            return None

    def _absolute_names_of(self, path: str) -> PathNames:
        """Return the names of a path from ``/`` on."""
        if path == "~" or path.startswith("~/"):
            whole = self._home + path[1:]
        elif path.startswith("/"):
            whole = path
        else:
            whole = f"{self.root}/{path}"
        names = names_of(whole)
        if names is None:
            raise self._outside_error(path)
        return names

    def _find_by_identity(self, path: str, names: PathNames) -> WorkspacePath:
        """Find the root of a path in another spelling, such as through a link above the root."""
        known = {disk.identity: disk for disk in self._disks}
        for size in range(len(names), -1, -1):
            with suppress(OSError):
                status = os.stat(encode_name(_join_absolute(names[:size])))  # noqa: PTH116  # bytes, as names may not be UTF-8
                if disk := known.get((status.st_dev, status.st_ino)):
                    return WorkspacePath(disk, join_names(names[size:]))
        raise self._outside_error(path)

    def _outside_error(self, path: str) -> FileRefused:
        roots = ", ".join(quote_path(root) for root in self.roots)
        return FileRefused(f"{quote_path(path)} is outside the folders that may be used: {roots}")

    def _other_root(self, disk: DiskFiles) -> str:
        """Return the folder of a root that is not the working folder, else ``""``."""
        return disk.root if _split_names(disk.root) != self._cwd else ""

    def _translate_info(self, disk: DiskFiles, info: FileInfo) -> FileInfo:
        if not self._other_root(disk):
            return info
        names = _split_names(disk.root) + _split_names(info.path)
        inside = names[: len(self._cwd)] == self._cwd
        return msgspec.structs.replace(
            info, path=join_names(names[len(self._cwd) :]) if inside else _join_absolute(names)
        )

    def _translate_entry(self, disk: DiskFiles, info: FileInfo) -> FileInfo:
        """Return an entry with its path; the working folder, listed from above, has its absolute path."""
        entry = self._translate_info(disk, info)
        return entry if entry.path else msgspec.structs.replace(entry, path=self.root)

    def _protection_of(self, root: PathNames, rules: Sequence[str]) -> ProtectedFiles:
        kept: list[str] = []
        for rule in rules:
            if rule.startswith(ANYWHERE):
                kept.append(rule)
                continue
            names = self._absolute_names_of(rule)
            for spelled in {names, _split_names(os.path.realpath(_join_absolute(names)))}:
                if spelled == root:
                    return ProtectedFiles(kept, extra_rule=lambda _: True)
                if spelled[: len(root)] == root:
                    kept.append(join_names(spelled[len(root) :]))
        return ProtectedFiles(kept)


def _absolute_path(path: AnyPath) -> str:
    return os.path.abspath(os.path.expanduser(os.fspath(path)))  # noqa: PTH100, PTH111  # '..' is taken back


def _split_names(path: str) -> PathNames:
    return tuple(name for name in path.split("/") if name)


def _join_absolute(names: PathNames) -> str:
    return "/" + join_names(names)


def _outermost_roots(given: Sequence[AnyPath]) -> list[str]:
    """Return the folders that are not inside another; the folder that contains the first comes first."""
    spelled = {_split_names(os.path.realpath(_absolute_path(root))): _absolute_path(root) for root in reversed(given)}
    kept: list[str] = []
    cwd = _split_names(os.path.realpath(_absolute_path(given[0])))
    for names in reversed(spelled):
        if not any(other != names and names[: len(other)] == other for other in spelled):
            kept.insert(0 if cwd[: len(names)] == names else len(kept), spelled[names])
    return kept
