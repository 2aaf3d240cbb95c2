"""Walk a tree of files without those that git ignores, listing many folders at once."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from vaka.core.ports.files import FileInfo, Files
from vaka.core.types.errors import FileError, FileMissing
from vaka.files.errors import not_a_folder_error
from vaka.files.gitignore import IgnoreRules, IgnoreStack, parse_ignore_rules
from vaka.files.paths import child_path, quote_path

GITIGNORE = ".gitignore"

MAX_GITIGNORE_BYTES = 1 << 20
"""Bytes of a ``.gitignore`` that are read."""


class FolderListing(NamedTuple):
    """The entries of a folder, or the error of listing it."""

    path: str
    entries: Sequence[FileInfo] = ()
    gitignore: bytes = b""
    """The content of the folder's ``.gitignore``."""
    identity: tuple[int, int] | None = None
    """Device and inode of the folder; ``None`` in trees where a folder has only one path."""
    error: FileError | None = None


@runtime_checkable
class SupportsScan(Protocol):
    """A tree that can list many folders in one call."""

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[FolderListing]:
        """List the first of these folders, at least one, in order.

        Without ``details`` sizes, times and modes may be missing; with ``links``, links in the paths are followed.
        """
        ...


async def list_folders(files: Files, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[FolderListing]:
    """List the first of these folders, with ``scan`` if the tree has it."""
    if isinstance(files, SupportsScan):
        return await files.scan(folders, details=details, links=links)
    return [await _list_folder(files, folders[0])]


async def _list_folder(files: Files, folder: str) -> FolderListing:
    try:
        entries = await files.entries(folder)
        ignore = b""
        if any(entry.kind == "file" and entry.path.rpartition("/")[2] == GITIGNORE for entry in entries):
            ignore = (await files.read(child_path(folder, GITIGNORE), size=MAX_GITIGNORE_BYTES)).data
    except FileError as error:
        return FolderListing(folder, error=error)
    return FolderListing(folder, entries, ignore)


MAX_ENTRIES = 1_000_000
"""The default limit of entries of a walk."""

_FOLDERS_AT_ONCE = 64

_MAX_NAMED_ERRORS = 5
"""Folders that are named in the error, of those that could not be listed."""

_GIT = ".git"


class _PendingFolder(NamedTuple):
    """A folder that is still to be listed."""

    path: str
    names: tuple[str, ...]
    stack: IgnoreStack
    """The rules of the folders above it."""


async def walk(
    files: Files, start: str = "", *, ignore: bool = True, hidden: bool = False, follow: bool = False,
    details: bool = False, max_entries: int = MAX_ENTRIES,
) -> AsyncGenerator[FileInfo]:  # fmt: skip
    """Yield everything beneath a folder, folder by folder from the top, each sorted by name.

    ``ignore``: leave out ``.git`` and the files that a ``.gitignore`` from the root down excludes. ``hidden``: include
    names that begin with a dot. ``follow``: follow links that stay inside, each folder once. ``details``: include
    sizes, times and modes. At the end, a ``FileError`` names folders that could not be listed, or reports more than
    ``max_entries`` entries.
    """
    first = await _prepare_start(files, start, ignore=ignore)
    state = _WalkState(first, ignore=ignore, hidden=hidden, follow=follow, max_entries=max_entries)
    while folders := state.next_folders():
        listings = await list_folders(files, folders, details=details, links=follow)
        for folder, info in await asyncio.to_thread(state.accept_listings, listings):
            if follow and info.kind == "link":
                info = await _resolve_link(files, info)
                if info.kind == "folder":
                    state.add_folder(folder, info)
            yield info
    state.raise_errors()


class _WalkState:
    """The pending folders of a walk, and which entries of a folder are yielded."""

    def __init__(self, first: _PendingFolder, *, ignore: bool, hidden: bool, follow: bool, max_entries: int) -> None:
        self._first, self._ignore, self._hidden, self._follow = first, ignore, hidden, follow
        self._max_entries = max_entries
        self._pending_folders = deque([first])
        self._seen_identities: set[tuple[int, int]] = set()
        self._entries_left = max_entries
        self._errors: list[FileError] = []

    def next_folders(self) -> list[str]:
        """Return the folders to list next, none when the walk is complete."""
        if self._entries_left <= 0:
            return []
        return [folder.path for folder in islice(self._pending_folders, _FOLDERS_AT_ONCE)]

    def accept_listings(self, listings: Sequence[FolderListing]) -> list[tuple[_PendingFolder, FileInfo]]:
        """Process the listings of the first pending folders; return the entries to yield."""
        selected: list[tuple[_PendingFolder, FileInfo]] = []
        for listing in listings:
            folder = self._pending_folders.popleft()
            if listing.error:
                self._record_error(folder, listing.error)
            elif self._is_new(listing):
                self._select_entries(folder, listing, selected)
        return selected

    def add_folder(self, folder: _PendingFolder, info: FileInfo) -> None:
        """Add a folder that a link in ``folder`` leads to."""
        names = (*folder.names, info.path.rpartition("/")[2])
        self._pending_folders.append(_PendingFolder(info.path, names, folder.stack))

    def raise_errors(self) -> None:
        """Raise ``FileError`` for folders that could not be listed and for a walk that reached its limit."""
        if self._pending_folders:
            start = quote_path(self._first.path)
            raise FileError(f"{start} has more than {self._max_entries} entries; the others were not listed")
        if self._errors:
            named = "; ".join(str(error) for error in self._errors[:_MAX_NAMED_ERRORS])
            more = len(self._errors) - _MAX_NAMED_ERRORS
            raise FileError(f"some folders could not be listed: {named}" + (f"; and {more} more" if more > 0 else ""))

    def _record_error(self, folder: _PendingFolder, error: FileError) -> None:
        if folder is self._first:
            raise error
        if not isinstance(error, FileMissing):  # removed meanwhile
            self._errors.append(error)

    def _is_new(self, listing: FolderListing) -> bool:
        if not self._follow or listing.identity is None:
            return True
        is_new = listing.identity not in self._seen_identities
        self._seen_identities.add(listing.identity)
        return is_new

    def _select_entries(
        self, folder: _PendingFolder, listing: FolderListing, selected: list[tuple[_PendingFolder, FileInfo]]
    ) -> None:
        named = [(info.path.rpartition("/")[2], info) for info in listing.entries]
        if self._ignore:
            own = parse_ignore_rules(listing.gitignore) if listing.gitignore else None
            nested = folder is not self._first and any(name == _GIT for name, _ in named)
            folder = folder._replace(stack=folder.stack.with_rules(len(folder.names), own, reset=nested))
        rules = folder.stack if self._ignore and folder.stack else None
        for name, info in named:
            if (name.startswith(".") and self._is_hidden(name)) or (
                rules and rules.ignores((*folder.names, name), is_folder=info.kind == "folder")
            ):
                continue
            self._entries_left -= 1
            if self._entries_left < 0:
                self._pending_folders.append(folder)
                return
            selected.append((folder, info))
            if info.kind == "folder":
                self._pending_folders.append(_PendingFolder(info.path, (*folder.names, name), folder.stack))

    def _is_hidden(self, name: str) -> bool:
        return not self._hidden or (self._ignore and name == _GIT)


async def _prepare_start(files: Files, start: str, *, ignore: bool) -> _PendingFolder:
    """Return the first folder with the rules of the folders above it."""
    info = await files.stat(start)
    if info.kind != "folder":
        raise not_a_folder_error(start)
    names, stack = tuple(name for name in info.path.split("/") if name), IgnoreStack()
    if not ignore:
        return _PendingFolder(info.path, names, stack)
    top = "/" if info.path.startswith("/") else ""
    for depth in range(len(names) + 1):
        folder = top + "/".join(names[:depth])
        if await _path_exists(files, child_path(folder, _GIT)):
            stack = stack.with_rules(
                depth, await _read_ignore_file(files, child_path(folder, f"{_GIT}/info/exclude")), reset=True
            )
        if depth < len(names):
            stack = stack.with_rules(depth, await _read_ignore_file(files, child_path(folder, GITIGNORE)))
    return _PendingFolder(info.path, names, stack)


async def _path_exists(files: Files, path: str) -> bool:
    try:
        await files.stat(path)
    except FileError:
        return False
    return True


async def _read_ignore_file(files: Files, path: str) -> IgnoreRules | None:
    try:
        return parse_ignore_rules((await files.read(path, size=MAX_GITIGNORE_BYTES)).data)
    except FileError:
        return None


async def _resolve_link(files: Files, link: FileInfo) -> FileInfo:
    """Return the target of a link under the link's own path; the link itself if it is broken."""
    try:
        return msgspec.structs.replace(await files.stat(link.path), path=link.path)
    except FileError:
        return link
