"""The socket for files: one tree, whatever keeps it."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from vaka.core.types.ids import Digest

FileKind: TypeAlias = Literal["file", "folder", "link", "other"]

POSIX_LOCKED_FILES: Counter[tuple[int, int]] = Counter()
"""Files on which this process holds locks of POSIX, by device and inode, and how many hold them.

Such locks are the process's: closing any other descriptor of the file drops them, and whoever relied on them loses what
it writes. So whoever opens files for others looks here first.
"""


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder, looked at."""

    path: str
    """From the root, with slashes and without one at the start; ``""`` is the root itself."""
    kind: FileKind
    size: int = 0
    modified: int = 0
    """Nanoseconds since 1970."""
    mode: int = 0
    target: str = ""
    """Where a link points, as it says."""


class FileBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file and the file they are of, read from one descriptor."""

    data: bytes
    info: FileInfo


class Files(Protocol):
    """A tree of files under one root.

    Paths are relative to the root. ``FileRefused``: the path leaves the root, also by a link, or names no regular file
    or folder. ``FileMissing``: there is nothing. ``FileChanged``: it is not what the caller knew. ``FileError``: it
    could not be done, and why. What was looked at is what is worked on: a folder that is swapped for a link in between
    is never followed.
    """

    @property
    def root(self) -> str:
        """The folder of this machine that the tree is, ``""`` when it is none."""
        ...

    async def stat(self, path: str) -> FileInfo:
        """Look at what a path names; links inside the root are followed."""
        ...

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return what a folder holds, sorted by name; links are told as links."""
        ...

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return bytes of a file from ``start`` on, at most ``size``."""
        ...

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file whole or not at all, keeping its mode and owner; folders on the way are made.

        ``known``: the digest of the content the caller has read; anything else there is ``FileChanged``. ``new``: there
        must be nothing yet. Links are not written through.
        """
        ...

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        ...


@runtime_checkable
class WalkableFiles(Protocol):
    """Files that know their way: quicker through a whole tree than folder by folder."""

    def walk(
        self, start: str = "", *, ignore: bool = True, hidden: bool = False, details: bool = False
    ) -> AsyncGenerator[FileInfo]:
        """Yield what lies beneath a folder, from the top; links are told and not followed.

        ``ignore``: what git ignores is left out, and ``.git``. ``hidden``: also names that begin with a dot.
        ``details``: sizes and times are told too. Folders that cannot be listed are a ``FileError`` at the very end.
        """
        ...


@runtime_checkable
class BatchStat(Protocol):
    """Files that look at many paths in the time that one takes."""

    async def stat_many(self, paths: Sequence[str]) -> Sequence[FileInfo | None]:
        """Return what ``stat`` would for each of these paths, ``None`` for those where it would fail."""
        ...


@runtime_checkable
class MultiRootFiles(Protocol):
    """Files that lie in several folders of this machine."""

    @property
    def roots(self) -> Sequence[str]:
        """The folders."""
        ...


@runtime_checkable
class PartlyLocalFiles(Protocol):
    """Files of which some are not in the folder that is their root."""

    def is_local(self, path: str) -> bool:
        """Tell whether everything from a path on lies in folders of this machine, where others can search it."""
        ...
