"""Several trees as one: the prefix of a path selects the tree."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from vaka.core.ports.files import FileBytes, FileInfo, Files, MultiRootFiles, PartlyLocalFiles
from vaka.core.types.errors import ConfigError, FileError, FileMissing, FileRefused
from vaka.core.types.ids import Digest
from vaka.files.paths import child_path, join_names, name_tree_in_errors, names_of, parts_of, quote_path
from vaka.files.walk import FolderListing, WalkMethod, list_folders


class _Route(NamedTuple):
    """The tree that a path belongs to."""

    files: Files
    prefix: str
    """The prefix of the tree, ``""`` for the default one."""
    path: str
    """The path inside that tree."""
    names: tuple[str, ...] | None
    """The names from the common root on; ``None`` for a path that only the default tree can parse, such as ``~/x``."""


class CompositeFiles(WalkMethod):
    """A default tree with other trees mounted under prefixes.

    The longest prefix wins and matches whole names: ``memories`` has ``memories/x`` and not ``memoriesX``. A folder
    above prefixes lists the entries of the default tree and one folder for each prefix. Errors of any tree are raised.
    """

    def __init__(self, default: Files, routes: Mapping[str, Files]) -> None:
        self._default = default
        self._routes: dict[tuple[str, ...], Files] = {}
        for prefix, files in routes.items():
            names = parts_of(prefix.lstrip("/"))
            if not names or names in self._routes:
                raise ConfigError(
                    f"prefix {prefix!r} is the root or a duplicate; expected a different folder for each tree"
                )
            self._routes[names] = files
        self._longest_prefix_first = sorted(self._routes, key=lambda names: (-len(names), names))

    @property
    def root(self) -> str:
        """The root folder of the default tree; files of other trees are not in it, see ``is_local``."""
        return self._default.root

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of this machine that belong to the default tree."""
        if isinstance(self._default, MultiRootFiles):
            return tuple(self._default.roots)
        return (self._default.root,) if self._default.root else ()

    @property
    def strict(self) -> bool:
        """Whether no tree follows links."""
        return all(getattr(tree, "strict", True) for tree in (self._default, *self._routes.values()))

    def is_local(self, path: str) -> bool:
        """Return whether everything at and below a path is in folders of this machine."""
        route = self._route_of(path)
        if route.prefix or self._mounted_names(route):
            return False
        return not isinstance(self._default, PartlyLocalFiles) or self._default.is_local(path)

    async def stat(self, path: str) -> FileInfo:
        route = self._route_of(path)
        try:
            with name_tree_in_errors(route.prefix):
                return _translate_info(route, await route.files.stat(route.path))
        except FileMissing:
            if not self._mounted_names(route):
                raise
            return _folder_info(route.names or ())

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return the entries of a folder, sorted by name, with a folder for each tree mounted in it."""
        route = self._route_of(path)
        try:
            with name_tree_in_errors(route.prefix):
                found = [_translate_info(route, info) for info in await route.files.entries(route.path)]
        except FileMissing:
            if not self._mounted_names(route):
                raise
            found = []
        return self._add_mounted_folders(route, found)

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return at most ``size`` bytes of a file from ``start`` on."""
        route = self._route_of(path)
        self._check_no_mounts_inside(route)
        with name_tree_in_errors(route.prefix):
            found = await route.files.read(route.path, start=start, size=size)
        return FileBytes(data=found.data, info=_translate_info(route, found.info))

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file as its tree does."""
        route = self._route_of(path)
        self._check_no_mounts_inside(route)
        with name_tree_in_errors(route.prefix):
            return _translate_info(route, await route.files.write(route.path, data, known=known, new=new))

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        route = self._route_of(path)
        if self._mounted_names(route):
            raise FileRefused(f"{quote_path(path)} cannot be deleted: other trees are mounted in it")
        with name_tree_in_errors(route.prefix):
            await route.files.delete(route.path)

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[FolderListing]:
        """List the first of these folders: as many in a row as belong to one tree."""
        routes = [self._route_of(folder) for folder in folders]
        first = routes[0]
        row = list(takewhile(lambda route: route.prefix == first.prefix, routes))
        found = await list_folders(first.files, [route.path for route in row], details=details, links=links)
        return [
            self._translate_listing(folder, route, listing)
            for folder, route, listing in zip(folders, row, found, strict=False)
        ]

    def _translate_listing(self, folder: str, route: _Route, listing: FolderListing) -> FolderListing:
        beneath = self._mounted_names(route)
        if listing.error and not (beneath and isinstance(listing.error, FileMissing)):
            return listing._replace(path=folder)
        entries = [_translate_info(route, info) for info in listing.entries]
        return FolderListing(folder, self._add_mounted_folders(route, entries), listing.gitignore, listing.identity)

    def _route_of(self, path: str) -> _Route:
        try:
            names = names_of(path.lstrip("/"))
        except FileRefused:
            names = None  # the default tree raises the error
        for prefix in self._longest_prefix_first if names is not None else ():
            if names is not None and names[: len(prefix)] == prefix:
                return _Route(self._routes[prefix], join_names(prefix), join_names(names[len(prefix) :]), names)
        return _Route(self._default, "", path if names else path.strip("/"), names)

    def _mounted_names(self, route: _Route) -> list[str]:
        """Return the names in a folder under which other trees are mounted."""
        names = route.names
        if names is None:
            return []
        size = len(names)
        return sorted({prefix[size] for prefix in self._routes if len(prefix) > size and prefix[:size] == names})

    def _add_mounted_folders(self, route: _Route, found: Sequence[FileInfo]) -> list[FileInfo]:
        mounted = self._mounted_names(route)
        if not mounted:
            return list(found)
        entries = [info for info in found if info.path.rpartition("/")[2] not in mounted]
        entries += [_folder_info((*(route.names or ()), name)) for name in mounted]
        return sorted(entries, key=lambda info: info.path)

    def _check_no_mounts_inside(self, route: _Route) -> None:
        if self._mounted_names(route):
            raise FileError(
                f"{quote_path(join_names(route.names or ()))} is a folder, not a file: other trees are mounted in it"
            )


def _folder_info(names: Sequence[str]) -> FileInfo:
    return FileInfo(path=join_names(names), kind="folder")


def _translate_info(route: _Route, info: FileInfo) -> FileInfo:
    if not route.prefix:
        return info
    return msgspec.structs.replace(info, path=child_path(route.prefix, info.path) if info.path else route.prefix)
