"""Several trees as one: what a path begins with says which of them it belongs to."""

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import NamedTuple

import msgspec

from vaka.core.ports.files import FileBytes, FileInfo, Files, MultiRootFiles, PartlyLocalFiles
from vaka.core.types.errors import ConfigError, FileError, FileMissing, FileRefused
from vaka.core.types.ids import Digest
from vaka.files.paths import child_path, join_names, names_of, parts_of, quote_path
from vaka.files.walk import FolderListing, list_folders, walk


class _Route(NamedTuple):
    """Which tree a path belongs to."""

    files: Files
    prefix: str
    """What the tree hangs under, ``""`` for the default one."""
    path: str
    """The path as that tree knows it."""
    names: tuple[str, ...] | None
    """The path from the common root on; ``None`` for one that only the default tree can read, such as ``~/x``."""


class CompositeFiles:
    """A default tree with others under prefixes of their own.

    The longest prefix wins, and ends where a name ends: ``memories`` has ``memories/x`` and not ``memoriesX``. A folder
    above prefixes shows what the default tree holds there and one folder for each. An error of any tree is an error.
    """

    def __init__(self, default: Files, routes: Mapping[str, Files]) -> None:
        self._default = default
        self._routes: dict[tuple[str, ...], Files] = {}
        for prefix, files in routes.items():
            names = parts_of(prefix.lstrip("/"))
            if not names or names in self._routes:
                raise ConfigError(f"prefix {prefix!r} names the root or was given before")
            self._routes[names] = files
        self._longest_prefix_first = sorted(self._routes, key=lambda names: (-len(names), names))

    @property
    def root(self) -> str:
        """The root of the default tree: a folder of this machine in which some of the files are not, see ``whole``."""
        return self._default.root

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of this machine that are the default tree's."""
        if isinstance(self._default, MultiRootFiles):
            return tuple(self._default.roots)
        return (self._default.root,) if self._default.root else ()

    def is_local(self, path: str) -> bool:
        """Tell whether everything from a path on lies in the folders of this machine."""
        owner = self._route_of(path)
        if owner.prefix or self._mounted_names(owner):
            return False
        return not isinstance(self._default, PartlyLocalFiles) or self._default.is_local(path)

    async def stat(self, path: str) -> FileInfo:
        """Look at what a path names."""
        owner = self._route_of(path)
        try:
            with _name_prefix_in_errors(owner):
                return _translate_info(owner, await owner.files.stat(owner.path))
        except FileMissing:
            if not self._mounted_names(owner):
                raise
            return _folder_info(owner.names or ())

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return what a folder holds, sorted by name, with a folder for each tree that hangs in it."""
        owner = self._route_of(path)
        try:
            with _name_prefix_in_errors(owner):
                found = [_translate_info(owner, info) for info in await owner.files.entries(owner.path)]
        except FileMissing:
            if not self._mounted_names(owner):
                raise
            found = []
        return self._add_mounted_folders(owner, found)

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return bytes of a file from ``start`` on, at most ``size``."""
        owner = self._route_of(path)
        self._check_no_mounts_inside(owner)
        with _name_prefix_in_errors(owner):
            found = await owner.files.read(owner.path, start=start, size=size)
        return FileBytes(data=found.data, info=_translate_info(owner, found.info))

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file whole or not at all, as its tree does it."""
        owner = self._route_of(path)
        self._check_no_mounts_inside(owner)
        with _name_prefix_in_errors(owner):
            return _translate_info(owner, await owner.files.write(owner.path, data, known=known, new=new))

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        owner = self._route_of(path)
        if self._mounted_names(owner):
            raise FileRefused(f"{quote_path(path)} is not deleted: other trees hang in it")
        with _name_prefix_in_errors(owner):
            await owner.files.delete(owner.path)

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[FolderListing]:
        """Return what the first of these folders hold: those in a row that are of one tree."""
        owners = [self._route_of(folder) for folder in folders]
        first = owners[0]
        row = list(takewhile(lambda owner: owner.prefix == first.prefix, owners))
        found = await list_folders(first.files, [owner.path for owner in row], details=details, links=links)
        return [
            self._translate_listing(folder, owner, listing)
            for folder, owner, listing in zip(folders, row, found, strict=False)
        ]  # fmt: skip

    def walk(
        self, start: str = "", *, ignore: bool = True, hidden: bool = False, details: bool = False
    ) -> AsyncGenerator[FileInfo]:
        """Yield what lies beneath a folder, as ``vaka.files.walk.walk`` does."""
        return walk(self, start, ignore=ignore, hidden=hidden, details=details)

    def _translate_listing(self, folder: str, owner: _Route, listing: FolderListing) -> FolderListing:
        beneath = self._mounted_names(owner)
        if listing.error and not (beneath and isinstance(listing.error, FileMissing)):
            return listing._replace(path=folder)
        entries = [_translate_info(owner, info) for info in listing.entries]
        return FolderListing(folder, self._add_mounted_folders(owner, entries), listing.gitignore, listing.identity)

    def _route_of(self, path: str) -> _Route:
        try:
            names = names_of(path.lstrip("/"))
        except FileRefused:
            names = None  # the default tree says what is wrong with it
        for prefix in self._longest_prefix_first if names is not None else ():
            if names is not None and names[: len(prefix)] == prefix:
                return _Route(self._routes[prefix], join_names(prefix), join_names(names[len(prefix) :]), names)
        return _Route(self._default, "", path if names else path.strip("/"), names)

    def _mounted_names(self, owner: _Route) -> list[str]:
        """Return the names in a folder under which other trees hang."""
        names = owner.names
        if names is None:
            return []
        size = len(names)
        return sorted({prefix[size] for prefix in self._routes if len(prefix) > size and prefix[:size] == names})

    def _add_mounted_folders(self, owner: _Route, found: Sequence[FileInfo]) -> list[FileInfo]:
        hung = self._mounted_names(owner)
        if not hung:
            return list(found)
        kept = [info for info in found if info.path.rpartition("/")[2] not in hung]
        return sorted(
            [*kept, *(_folder_info((*(owner.names or ()), name)) for name in hung)], key=lambda info: info.path
        )

    def _check_no_mounts_inside(self, owner: _Route) -> None:
        if self._mounted_names(owner):
            raise FileError(
                f"{quote_path(join_names(owner.names or ()))} is a folder, not a file: other trees hang in it"
            )


def _folder_info(names: Sequence[str]) -> FileInfo:
    return FileInfo(path=join_names(names), kind="folder")


def _translate_info(owner: _Route, info: FileInfo) -> FileInfo:
    if not owner.prefix:
        return info
    return msgspec.structs.replace(info, path=child_path(owner.prefix, info.path) if info.path else owner.prefix)


@contextmanager
def _name_prefix_in_errors(owner: _Route) -> Generator[None]:
    """Say in an error under which prefix it happened, since the tree does not know."""
    try:
        yield
    except FileError as error:
        if not owner.prefix:
            raise
        raise type(error)(f"in {quote_path(owner.prefix)}: {error}") from error
