"""Walk a tree of files, listing many folders at once, without files that ``.gitignore`` rules exclude."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from vaka.core.ports.files import FileInfo, Files
from vaka.core.types.errors import FileError, FileMissing
from vaka.files.paths import child_path, not_a_folder_error, quote_path
from vaka.matching.globs import NameMatcher, compile_name, matches_names, parse_bracket


@lru_cache(maxsize=4096)
def compile_name_pattern(pattern: str) -> NameMatcher:
    """Return a function that matches a name; an invalid pattern matches nothing, as in git."""
    try:
        return compile_name(pattern, parse_bracket)
    except ValueError:
        return lambda _: False


_MAX_LINES = 10_000

_MAX_CACHED_NAMES = 20_000


class _IgnoreRule(NamedTuple):
    """One line of a file."""

    segments: tuple[NameMatcher | None, ...]
    """A matcher for each name of the path; ``None`` for ``**``."""
    anchored: bool
    folders_only: bool
    ignored: bool


class IgnoreRules:
    """The rules of one file. The last matching rule decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _parse_line(line))]
        numbered = list(enumerate(self._rules))[::-1]
        self._name_rules = [(number, rule) for number, rule in numbered if not rule.anchored]
        self._path_rules = [(number, rule) for number, rule in numbered if rule.anchored]
        self._last_rule_for = lru_cache(_MAX_CACHED_NAMES)(self._find_last_rule)  # names repeat in most folders

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decide(self, names: Sequence[str], *, is_folder: bool) -> bool | None:
        """Return whether a path, relative to the file's folder, is ignored; ``None`` if no rule matches."""
        best = self._last_rule_for(names[-1], is_folder)
        for number, rule in self._path_rules:
            if number < best:
                break
            if (is_folder or not rule.folders_only) and matches_names(rule.segments, names, inside=True):
                return rule.ignored
        return self._rules[best].ignored if best >= 0 else None

    def _find_last_rule(self, name: str, is_folder: bool) -> int:
        """Return the index of the last rule that matches by name alone, -1 for none."""
        for number, rule in self._name_rules:
            only = rule.segments[0]
            if (is_folder or not rule.folders_only) and (only is None or only(name)):
                return number
        return -1


def parse_ignore_rules(data: bytes) -> IgnoreRules | None:
    """Return the rules of a file, ``None`` if it has none."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    rules = IgnoreRules(line.removesuffix("\r") for line in text.split("\n", _MAX_LINES)[:_MAX_LINES])
    return rules or None


class IgnoreStack:
    """The rules that apply in a folder: the rules of the files above it, the nearest last."""

    def __init__(self, layers: tuple[tuple[int, IgnoreRules], ...] = ()) -> None:
        self._layers = layers

    def __bool__(self) -> bool:
        return bool(self._layers)

    def with_rules(self, depth: int, rules: IgnoreRules | None, *, reset: bool = False) -> "IgnoreStack":
        """Return a stack with the rules of a folder ``depth`` names below the root; ``reset`` drops the others."""
        layers = () if reset else self._layers
        return IgnoreStack(layers if rules is None else (*layers, (depth, rules)))

    def ignores(self, names: Sequence[str], *, is_folder: bool) -> bool:
        """Return whether a path from the root on is ignored, given that its folders are not."""
        for depth, rules in reversed(self._layers):
            decided = rules.decide(names[depth:], is_folder=is_folder)
            if decided is not None:
                return decided
        return False


def _parse_line(line: str) -> _IgnoreRule | None:
    if line.startswith("#"):
        return None
    line = _strip_trailing_blanks(line)
    ignored = not line.startswith("!")
    line = line if ignored else line[1:]
    folders = line.endswith("/")
    line = line[:-1] if folders else line
    anchored = "/" in line
    names = line.removeprefix("/").split("/")
    if not line or (names == [""]):
        return None
    if names[0] == "**" and len(names) == 2 and names[1] != "**":
        return _IgnoreRule((compile_name_pattern(names[1]),), False, folders, ignored)  # the same, but faster
    segments = tuple(None if name == "**" and anchored else compile_name_pattern(name) for name in names)
    return _IgnoreRule(segments, anchored, folders, ignored)


def _strip_trailing_blanks(line: str) -> str:
    """Return a line without trailing blanks, except one after a backslash."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and len(bare) < len(line) else bare


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


def scan_folders(folders: Sequence[str], list_folder: Callable[[str], FolderListing]) -> list[FolderListing]:
    """List folders until there are many entries; the listing of a folder that cannot be listed has the error."""
    found: list[FolderListing] = []
    for folder in folders:
        try:
            found.append(list_folder(folder))
        except FileError as error:
            found.append(FolderListing(folder, error=error))
        if sum(len(listing.entries) for listing in found) >= _ENTRIES_PER_SCAN:
            break
    return found


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

_ENTRIES_PER_SCAN = 4096
"""Entries after which a scan returns."""

_MAX_NAMED_ERRORS = 5
"""The most folders, of all that could not be listed, that the error names."""

_GIT = ".git"


class _PendingFolder(NamedTuple):
    """A folder that is still to be listed."""

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


class WalkMethod:
    """The method ``walk`` of all trees of this package."""

    def walk(
        self: Files, start: str = "", *, ignore: bool = True, hidden: bool = False, details: bool = False
    ) -> AsyncGenerator[FileInfo]:
        """Yield everything beneath a folder, as ``vaka.files.walk.walk`` does."""
        return walk(self, start, ignore=ignore, hidden=hidden, details=details)


class _WalkState:
    """The pending folders of a walk, and which entries of a folder are yielded."""

    def __init__(self, first: _PendingFolder, *, ignore: bool, hidden: bool, follow: bool, max_entries: int) -> None:
        self._first = first
        self._ignore = ignore
        self._hidden = hidden
        self._follow = follow
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
            if name.startswith(".") and (not self._hidden or (self._ignore and name == _GIT)):
                continue
            if rules and rules.ignores((*folder.names, name), is_folder=info.kind == "folder"):
                continue
            self._entries_left -= 1
            if self._entries_left < 0:
                self._pending_folders.append(folder)
                return
            selected.append((folder, info))
            if info.kind == "folder":
                self._pending_folders.append(_PendingFolder(info.path, (*folder.names, name), folder.stack))


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
