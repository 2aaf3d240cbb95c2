"""The files port: one tree of files, in any storage."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from vaka.core.types.ids import Digest

FileKind: TypeAlias = Literal["file", "folder", "link", "other"]

POSIX_LOCKED_FILES: Counter[tuple[int, int]] = Counter()
"""Files on which this process holds POSIX locks, by device and inode, with the number of holders.

POSIX locks belong to the process: closing any other descriptor of the file drops them, and the holder may lose its
writes. Code that opens files by a path from outside must check here first.
"""


class FileInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a file, folder or link."""

    path: str
    """Relative to the root, with slashes; ``""`` is the root itself."""
    kind: FileKind
    size: int = 0
    modified: int = 0
    """Nanoseconds since 1970."""
    mode: int = 0
    target: str = ""
    """The target of a link, as stored in it."""


class FileBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file and its metadata, read from one descriptor."""

    data: bytes
    info: FileInfo


class Files(Protocol):
    """A tree of files under one root.

    Paths are relative to the root. ``FileRefused``: the path leaves the root, also through a link, or is not a regular
    file or folder. ``FileMissing``: nothing exists there. ``FileChanged``: it has changed since the caller read it.
    ``FileError``: any other failure. A path is resolved and used in one step: a folder that is replaced by a link in
    between is not followed.
    """

    @property
    def root(self) -> str:
        """The absolute path of the tree on this machine, ``""`` when it has none."""
        ...

    async def stat(self, path: str) -> FileInfo:
        """Return the metadata of a path; links inside the root are followed."""
        ...

    async def entries(self, path: str) -> Sequence[FileInfo]:
        """Return the entries of a folder, sorted by name; links are not followed."""
        ...

    async def read(self, path: str, *, start: int = 0, size: int | None = None) -> FileBytes:
        """Return bytes of a file from ``start`` on, at most ``size``."""
        ...

    async def write(self, path: str, data: bytes, *, known: Digest | None = None, new: bool = False) -> FileInfo:
        """Replace a file atomically, keeping its mode and owner; missing parent folders are created.

        ``known``: the digest of the content the caller has read; other content is ``FileChanged``. ``new``: the file
        must not exist. Links are not written through.
        """
        ...

    async def delete(self, path: str) -> None:
        """Remove a file, a link or an empty folder."""
        ...


@runtime_checkable
class WalkableFiles(Protocol):
    """Files that can list a whole tree faster than folder by folder."""

    def walk(
        self, start: str = "", *, ignore: bool = True, hidden: bool = False, details: bool = False
    ) -> AsyncGenerator[FileInfo]:
        """Yield everything below a folder, parents first; links are listed and not followed.

        ``ignore``: leave out ``.git`` and what git ignores. ``hidden``: also list names that begin with a dot.
        ``details``: with sizes and times. Folders that cannot be listed are a ``FileError`` at the very end.
        """
        ...


@runtime_checkable
class BatchStat(Protocol):
    """Files that can stat many paths at once."""

    async def stat_many(self, paths: Sequence[str]) -> Sequence[FileInfo | None]:
        """Return the result of ``stat`` for each path, ``None`` where it would fail."""
        ...


@runtime_checkable
class MultiRootFiles(Protocol):
    """Files in several folders of this machine."""

    @property
    def roots(self) -> Sequence[str]: ...


@runtime_checkable
class PartlyLocalFiles(Protocol):
    """Files of which some are not below the root folder."""

    def is_local(self, path: str) -> bool:
        """Whether everything below a path is in folders of this machine, so that other programs can search it."""
        ...


@runtime_checkable
class LinkFiles(Protocol):
    """Files that have links and a bit for programs."""

    async def lookup(self, path: str) -> FileInfo | None:
        """Return the metadata of a path without following links, ``None`` if nothing is there."""
        ...

    async def write_link(self, path: str, target: str) -> None:
        """Create a link. ``FileChanged`` if the path exists; missing parent folders are created."""
        ...

    async def set_executable(self, path: str, executable: bool) -> None:
        """Set or clear the bits of a regular file that allow running it."""
        ...

    async def allow_changes(self, path: str) -> None:
        """Give the owner of a path, and of the folder that it is in, the rights to change them."""
        ...
