"""Walk a tree of files without what git ignores, listing many folders at once."""

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
"""Bytes of a ``.gitignore`` that are looked at."""


class FolderListing(NamedTuple):
    """What a folder holds, or why that cannot be said."""

    path: str
    entries: Sequence[FileInfo] = ()
    gitignore: bytes = b""
    """The folder's ``.gitignore``."""
    identity: tuple[int, int] | None = None
    """What the folder is, whatever way leads to it; ``None`` where no two ways lead to one folder."""
    error: FileError | None = None


@runtime_checkable
class SupportsScan(Protocol):
    """A tree that can list many folders in one go."""

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[FolderListing]:
        """Return what the first of these folders hold, at least of one, in their order.

        Without ``details`` sizes, times and modes may be left out; with ``links`` those on the way are followed.
        """
        ...


async def list_folders(files: Files, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[FolderListing]:
    """Return what the first of these folders hold, with whatever is quickest for the tree."""
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
"""Entries a walk looks at, unless told otherwise."""

_FOLDERS_AT_ONCE = 64
"""Folders asked for at once."""

_MAX_NAMED_ERRORS = 5
"""Folders that could not be listed and are named."""

_GIT = ".git"


class _PendingFolder(NamedTuple):
    """A folder that waits to be looked into."""

    path: str
    names: tuple[str, ...]
    stack: IgnoreStack
    """The rules of the folders above it."""


async def walk(
    files: Files,
    start: str = "",
    *,
    ignore: bool = True,
    hidden: bool = False,
    follow: bool = False,
    details: bool = False,
    max_entries: int = MAX_ENTRIES,
) -> AsyncGenerator[FileInfo]:
    """Yield what lies beneath a folder, folder by folder from the top, each sorted by name.

    ``ignore``: what a ``.gitignore`` on the way from the root says is left out, and so is ``.git``. ``hidden``: also
    names that begin with a dot. ``follow``: links that stay inside are followed, each folder once. ``details``: sizes,
    times and modes are told too. Folders that cannot be listed are named in a ``FileError`` at the very end; there it
    also says when ``most`` entries were not all.
    """
    first = await _prepare_start(files, start, ignore=ignore)
    search = _WalkState(first, ignore=ignore, hidden=hidden, follow=follow, max_entries=max_entries)
    while folders := search.next_folders():
        found = await list_folders(files, folders, details=details, links=follow)
        for folder, info in await asyncio.to_thread(search.accept_listings, found):
            if follow and info.kind == "link":
                info = await _resolve_link(files, info)
                if info.kind == "folder":
                    search.add_folder(folder, info)
            yield info
    search.raise_errors()


class _WalkState:
    """Which folders wait, and what of a folder is told."""

    def __init__(self, first: _PendingFolder, *, ignore: bool, hidden: bool, follow: bool, max_entries: int) -> None:
        self._first, self._ignore, self._hidden, self._follow, self._max_entries = (
            first,
            ignore,
            hidden,
            follow,
            max_entries,
        )
        self._pending_folders = deque([first])
        self._seen_identities: set[tuple[int, int]] = set()
        self._entries_left = max_entries
        self._errors: list[FileError] = []

    def next_folders(self) -> list[str]:
        """Return the folders to list next."""
        return (
            [folder.path for folder in islice(self._pending_folders, _FOLDERS_AT_ONCE)]
            if self._entries_left > 0
            else []
        )

    def accept_listings(self, found: Sequence[FolderListing]) -> list[tuple[_PendingFolder, FileInfo]]:
        """Take what some of the folders hold; return what is told of it."""
        kept: list[tuple[_PendingFolder, FileInfo]] = []
        for listing in found:
            folder = self._pending_folders.popleft()
            if listing.error:
                self._record_error(folder, listing.error)
            elif self._is_new(listing):
                self._select_entries(folder, listing, kept)
        return kept

    def add_folder(self, folder: _PendingFolder, info: FileInfo) -> None:
        """Have a folder looked into, which was found in another one."""
        self._pending_folders.append(
            _PendingFolder(info.path, (*folder.names, info.path.rpartition("/")[2]), folder.stack)
        )

    def raise_errors(self) -> None:
        """Raise what went wrong on the way."""
        if self._pending_folders:
            start = quote_path(self._first.path)
            raise FileError(f"{start} has more than {self._max_entries} entries; the rest was not looked at")
        if self._errors:
            told = "; ".join(str(error) for error in self._errors[:_MAX_NAMED_ERRORS])
            more = len(self._errors) - _MAX_NAMED_ERRORS
            raise FileError(f"not everything could be looked at: {told}" + (f"; and {more} more" if more > 0 else ""))

    def _record_error(self, folder: _PendingFolder, error: FileError) -> None:
        if folder is self._first:
            raise error
        if not isinstance(error, FileMissing):  # else it went away meanwhile, as if it had never been there
            self._errors.append(error)

    def _is_new(self, listing: FolderListing) -> bool:
        if not self._follow or listing.identity is None:
            return True
        known = listing.identity in self._seen_identities
        self._seen_identities.add(listing.identity)
        return not known

    def _select_entries(
        self, folder: _PendingFolder, listing: FolderListing, kept: list[tuple[_PendingFolder, FileInfo]]
    ) -> None:
        named = [(info.path.rpartition("/")[2], info) for info in listing.entries]
        if self._ignore:
            own = parse_ignore_rules(listing.gitignore) if listing.gitignore else None
            fresh = folder is not self._first and any(name == _GIT for name, _ in named)
            folder = folder._replace(stack=folder.stack.with_rules(len(folder.names), own, reset=fresh))
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
            kept.append((folder, info))
            if info.kind == "folder":
                self._pending_folders.append(_PendingFolder(info.path, (*folder.names, name), folder.stack))

    def _is_hidden(self, name: str) -> bool:
        return not self._hidden or (self._ignore and name == _GIT)


async def _prepare_start(files: Files, start: str, *, ignore: bool) -> _PendingFolder:
    """Return where to start, with the rules of the folders above."""
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
    """Return what a link leads to under the link's own name; the link itself when it leads nowhere."""
    try:
        return msgspec.structs.replace(await files.stat(link.path), path=link.path)
    except FileError:
        return link
