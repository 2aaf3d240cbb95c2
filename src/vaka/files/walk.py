"""What lies beneath a folder, without what git ignores; for whoever searches."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from vaka.core.ports.files import FileInfo, Files
from vaka.core.types.errors import FileError, FileMissing
from vaka.files.checks import is_file
from vaka.files.ignore import Rules, Stack, read_rules
from vaka.files.listing import IGNORE, LARGEST_IGNORE, Listing, listings
from vaka.files.names import below, shown

MOST = 1_000_000
"""Entries a walk looks at, unless told otherwise."""
_FOLDERS = 64
"""Folders asked for at once."""
_TOLD = 5
"""Folders that could not be listed and are named."""
_GIT = ".git"


class _Folder(NamedTuple):
    """A folder that waits to be looked into."""

    path: str
    names: tuple[str, ...]
    stack: Stack
    """The rules of the folders above it."""


async def walk(
    files: Files,
    start: str = "",
    *,
    ignore: bool = True,
    hidden: bool = False,
    follow: bool = False,
    details: bool = False,
    most: int = MOST,
) -> AsyncGenerator[FileInfo]:
    """Yield what lies beneath a folder, folder by folder from the top, each sorted by name.

    ``ignore``: what a ``.gitignore`` on the way from the root says is left out, and so is ``.git``. ``hidden``: also
    names that begin with a dot. ``follow``: links that stay inside are followed, each folder once. ``details``: sizes,
    times and modes are told too. Folders that cannot be listed are named in a ``FileError`` at the very end; there it
    also says when ``most`` entries were not all.
    """
    first = await _begin(files, start, ignore=ignore)
    search = _Search(first, ignore=ignore, hidden=hidden, follow=follow, most=most)
    while folders := search.next():
        found = await listings(files, folders, details=details, links=follow)
        for folder, info in await asyncio.to_thread(search.take, found):
            if follow and info.kind == "link":
                info = await _target(files, info)
                if info.kind == "folder":
                    search.enter(folder, info)
            yield info
    search.end()


class _Search:
    """Which folders wait, and what of a folder is told."""

    def __init__(self, first: _Folder, *, ignore: bool, hidden: bool, follow: bool, most: int) -> None:
        self._first, self._ignore, self._hidden, self._follow, self._most = first, ignore, hidden, follow, most
        self._waiting = deque([first])
        self._seen: set[tuple[int, int]] = set()
        self._left = most
        self._errors: list[FileError] = []

    def next(self) -> list[str]:
        """Return the folders to list next."""
        return [folder.path for folder in islice(self._waiting, _FOLDERS)] if self._left > 0 else []

    def take(self, found: Sequence[Listing]) -> list[tuple[_Folder, FileInfo]]:
        """Take what some of the folders hold; return what is told of it."""
        kept: list[tuple[_Folder, FileInfo]] = []
        for listing in found:
            folder = self._waiting.popleft()
            if listing.error:
                self._failed(folder, listing.error)
            elif self._is_new(listing):
                self._sift(folder, listing, kept)
        return kept

    def enter(self, folder: _Folder, info: FileInfo) -> None:
        """Have a folder looked into, which was found in another one."""
        self._waiting.append(_Folder(info.path, (*folder.names, info.path.rpartition("/")[2]), folder.stack))

    def end(self) -> None:
        """Raise what went wrong on the way."""
        if self._waiting:
            start = shown(self._first.path)
            raise FileError(f"{start} has more than {self._most} entries; the rest was not looked at")
        if self._errors:
            told = "; ".join(str(error) for error in self._errors[:_TOLD])
            more = len(self._errors) - _TOLD
            raise FileError(f"not everything could be looked at: {told}" + (f"; and {more} more" if more > 0 else ""))

    def _failed(self, folder: _Folder, error: FileError) -> None:
        if folder is self._first:
            raise error
        if not isinstance(error, FileMissing):  # else it went away meanwhile, as if it had never been there
            self._errors.append(error)

    def _is_new(self, listing: Listing) -> bool:
        if not self._follow or listing.identity is None:
            return True
        known = listing.identity in self._seen
        self._seen.add(listing.identity)
        return not known

    def _sift(self, folder: _Folder, listing: Listing, kept: list[tuple[_Folder, FileInfo]]) -> None:
        named = [(info.path.rpartition("/")[2], info) for info in listing.entries]
        if self._ignore:
            own = read_rules(listing.ignore) if listing.ignore else None
            fresh = folder is not self._first and any(name == _GIT for name, _ in named)
            folder = folder._replace(stack=folder.stack.under(len(folder.names), own, fresh=fresh))
        rules = folder.stack if self._ignore and folder.stack else None
        for name, info in named:
            if (name.startswith(".") and self._is_hidden(name)) or (
                rules and rules.ignores((*folder.names, name), folder=info.kind == "folder")
            ):
                continue
            self._left -= 1
            if self._left < 0:
                self._waiting.append(folder)
                return
            kept.append((folder, info))
            if info.kind == "folder":
                self._waiting.append(_Folder(info.path, (*folder.names, name), folder.stack))

    def _is_hidden(self, name: str) -> bool:
        return not self._hidden or (self._ignore and name == _GIT)


async def _begin(files: Files, start: str, *, ignore: bool) -> _Folder:
    """Return where to start, with the rules of the folders above."""
    info = await files.stat(start)
    if info.kind != "folder":
        raise is_file(start)
    names, stack = tuple(name for name in info.path.split("/") if name), Stack()
    if not ignore:
        return _Folder(info.path, names, stack)
    top = "/" if info.path.startswith("/") else ""
    for depth in range(len(names) + 1):
        folder = top + "/".join(names[:depth])
        if await _exists(files, below(folder, _GIT)):
            stack = stack.under(depth, await _rules(files, below(folder, f"{_GIT}/info/exclude")), fresh=True)
        if depth < len(names):
            stack = stack.under(depth, await _rules(files, below(folder, IGNORE)))
    return _Folder(info.path, names, stack)


async def _exists(files: Files, path: str) -> bool:
    try:
        await files.stat(path)
    except FileError:
        return False
    return True


async def _rules(files: Files, path: str) -> Rules | None:
    try:
        return read_rules((await files.read(path, size=LARGEST_IGNORE)).data)
    except FileError:
        return None


async def _target(files: Files, link: FileInfo) -> FileInfo:
    """Return what a link leads to under the link's own name; the link itself when it leads nowhere."""
    try:
        return msgspec.structs.replace(await files.stat(link.path), path=link.path)
    except FileError:
        return link
