"""The folders of this machine that an agent works in, by the paths that people and models write."""

import asyncio
import os
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import NamedTuple

import msgspec

from vaka.core.ports.files import FileBytes, FileInfo
from vaka.core.types.errors import FileError, FileRefused
from vaka.core.types.ids import Digest
from vaka.files.disk import Disk
from vaka.files.listing import Listing
from vaka.files.names import join, names_of, raw, shown
from vaka.files.protect import ANYWHERE, Protected
from vaka.files.walk import walk
from vaka.files.ways import WayName

Names = tuple[str, ...]
AnyPath = str | os.PathLike[str]


class Place(NamedTuple):
    """Where a path leads: to one of the roots, and to a path in it."""

    files: Disk
    path: str


class Workspace:
    """A working folder and other roots as one tree.

    Paths may be absolute, begin at the home (``~/x``) or at the working folder. What lies in the working folder is told
    from there on (``src/x``), the rest in full (``/other/x``). A root inside another one is part of it. ``protected``
    has paths as they are written here, and ``**/name`` for a name in any folder; a root given there is read-only.
    """

    def __init__(
        self,
        cwd: AnyPath,
        roots: Iterable[AnyPath] = (),
        *,
        home: AnyPath | None = None,
        protected: Iterable[str] = (),
        strict: bool = False,
        way: WayName = "auto",
    ) -> None:
        self._home = _absolute("~" if home is None else home)
        self._cwd = _names(os.path.realpath(_absolute(cwd)))
        self._disks: list[Disk] = []
        rules = [protected] if isinstance(protected, str) else list(protected)
        self._disks = [
            Disk(root, protected=self._protected(_names(os.path.realpath(root)), rules), strict=strict, way=way)
            for root in _outermost([cwd, *roots])
        ]
        self._spellings = sorted(
            ((names, disk) for disk in self._disks for names in disk.spellings), key=lambda pair: -len(pair[0])
        )

    @property
    def root(self) -> str:
        """The working folder."""
        return _full(self._cwd)

    @property
    def roots(self) -> tuple[str, ...]:
        """Every folder that paths may lead into, the one with the working folder first."""
        return tuple(disk.root for disk in self._disks)

    async def place(self, path: str) -> Place:
        """Return the root a path leads into and the path there. Raises ``FileRefused``, naming the roots."""
        names = self._read(path)
        for spelled, disk in self._spellings:
            if names[: len(spelled)] == spelled:
                return Place(disk, join(names[len(spelled) :]))
        return await asyncio.to_thread(self._recognized, path, names)

    async def stat(self, path: str) -> FileInfo:
        """Look at what a path names; links inside a root are followed."""
        place = await self.place(path)
        with self._named(place):
            return self._outward(place.files, await place.files.stat(place.path))

    async def look(self, paths: Sequence[str]) -> Sequence[FileInfo | None]:
        """Look at many paths at once; ``None`` for those where ``stat`` would fail."""
        if type(self).stat is not Workspace.stat:  # who narrows what may be looked at means this, too
            return [await self._seen(path) for path in paths]
        rows: dict[Disk, list[tuple[int, str]]] = {}
        found: list[FileInfo | None] = [None] * len(paths)
        for at, path in enumerate(paths):
            with suppress(FileError):
                place = await self.place(path)
                rows.setdefault(place.files, []).append((at, place.path))
        for disk, row in rows.items():
            for (at, _), info in zip(row, await disk.look([path for _, path in row]), strict=True):
                found[at] = info and self._outward(disk, info)
        return found

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return what a folder holds, sorted by name; links are told as links."""
        place = await self.place(path)
        with self._named(place):
            return [self._listed(place.files, info) for info in await place.files.entries(place.path)]

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return bytes of a file from ``start`` on, at most ``size``."""
        place = await self.place(path)
        with self._named(place):
            found = await place.files.read(place.path, start=start, size=size)
        return FileBytes(data=found.data, info=self._outward(place.files, found.info))

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file whole or not at all, keeping its mode and owner; folders on the way are made."""
        place = await self.place(path)
        with self._named(place):
            return self._outward(place.files, await place.files.write(place.path, data, known=known, new=new))

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        place = await self.place(path)
        if _names(place.files.root) + _names(place.path) == self._cwd:
            raise FileRefused("the working folder itself is not deleted")
        with self._named(place):
            await place.files.delete(place.path)

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[Listing]:
        """Return what the first of these folders hold: those in a row that are of one root."""
        places = [await self.place(folder) for folder in folders]
        disk = places[0].files
        row = [place.path for place in takewhile(lambda place: place.files is disk, places)]
        found = await disk.scan(row, details=details, links=links)
        if not self._renames(disk):
            return [listing._replace(path=folder) for folder, listing in zip(folders, found, strict=False)]
        return [
            listing._replace(path=folder, entries=[self._listed(disk, info) for info in listing.entries])
            for folder, listing in zip(folders, found, strict=False)
        ]

    def walk(
        self, start: str = "", *, ignore: bool = True, hidden: bool = False, details: bool = False
    ) -> AsyncGenerator[FileInfo]:
        """Yield what lies beneath a folder, as ``vaka.files.walk.walk`` does."""
        return walk(self, start, ignore=ignore, hidden=hidden, details=details)

    async def _seen(self, path: str) -> FileInfo | None:
        try:
            return await self.stat(path)
        except FileError:
            return None

    def _read(self, path: str) -> Names:
        """Return the names from ``/`` on that a path stands for."""
        if path == "~" or path.startswith("~/"):
            whole = self._home + path[1:]
        elif path.startswith("/"):
            whole = path
        else:
            whole = f"{self.root}/{path}"
        names = names_of(whole)
        if names is None:
            raise self._outside(path)
        return names

    def _recognized(self, path: str, names: Names) -> Place:
        """Find a root that was written in a way we did not know, such as through a link above it."""
        known = {disk.identity: disk for disk in self._disks}
        for size in range(len(names), -1, -1):
            with suppress(OSError):
                looked = os.stat(raw(_full(names[:size])))  # noqa: PTH116  # bytes, for names that are no UTF-8
                if disk := known.get((looked.st_dev, looked.st_ino)):
                    return Place(disk, join(names[size:]))
        raise self._outside(path)

    def _outside(self, path: str) -> FileRefused:
        roots = ", ".join(shown(root) for root in self.roots)
        return FileRefused(f"{shown(path)} is outside of what may be touched here: {roots}")

    def _renames(self, disk: Disk) -> bool:
        return _names(disk.root) != self._cwd

    def _outward(self, disk: Disk, info: FileInfo) -> FileInfo:
        if not self._renames(disk):
            return info
        names = _names(disk.root) + _names(info.path)
        inside = names[: len(self._cwd)] == self._cwd
        return msgspec.structs.replace(info, path=join(names[len(self._cwd) :]) if inside else _full(names))

    def _listed(self, disk: Disk, info: FileInfo) -> FileInfo:
        """Return what a folder holds as it is told; the working folder, seen from above, by its name."""
        told = self._outward(disk, info)
        return told if told.path else msgspec.structs.replace(told, path=self.root)

    @contextmanager
    def _named(self, place: Place) -> Generator[None]:
        """Say in an error which root it is about, where that is not the working folder."""
        try:
            yield
        except FileError as error:
            if not self._renames(place.files):
                raise
            raise type(error)(f"in {shown(place.files.root)}: {error}") from error

    def _protected(self, root: Names, rules: Sequence[str]) -> Protected:
        kept: list[str] = []
        for rule in rules:
            if rule.startswith(ANYWHERE):
                kept.append(rule)
                continue
            names = self._read(rule)
            for spelled in {names, _names(os.path.realpath(_full(names)))}:
                if spelled == root:
                    return Protected(kept, also=lambda _: True)
                if spelled[: len(root)] == root:
                    kept.append(join(spelled[len(root) :]))
        return Protected(kept)


def _absolute(path: AnyPath) -> str:
    return os.path.abspath(os.path.expanduser(os.fspath(path)))  # noqa: PTH100, PTH111  # '..' is taken back


def _names(path: str) -> Names:
    return tuple(name for name in path.split("/") if name)


def _full(names: Names) -> str:
    return "/" + join(names)


def _outermost(given: Sequence[AnyPath]) -> list[str]:
    """Return the folders that lie in no other, the one with the first of them first."""
    spelled = {_names(os.path.realpath(_absolute(root))): _absolute(root) for root in reversed(given)}
    kept: list[str] = []
    cwd = _names(os.path.realpath(_absolute(given[0])))
    for names in reversed(spelled):
        if not any(other != names and names[: len(other)] == other for other in spelled):
            kept.insert(0 if cwd[: len(names)] == names else len(kept), spelled[names])
    return kept
