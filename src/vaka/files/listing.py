"""Many folders at once: what a walk asks a tree for."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from vaka.core.ports.files import FileInfo, Files
from vaka.core.types.errors import FileError
from vaka.files.names import below

IGNORE = ".gitignore"
LARGEST_IGNORE = 1 << 20
"""Bytes of a ``.gitignore`` that are looked at."""


class Listing(NamedTuple):
    """What a folder holds, or why that cannot be said."""

    path: str
    entries: Sequence[FileInfo] = ()
    ignore: bytes = b""
    """The folder's ``.gitignore``."""
    identity: tuple[int, int] | None = None
    """What the folder is, whatever way leads to it; ``None`` where no two ways lead to one folder."""
    error: FileError | None = None


@runtime_checkable
class Scans(Protocol):
    """A tree that can list many folders in one go."""

    async def scan(self, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[Listing]:
        """Return what the first of these folders hold, at least of one, in their order.

        Without ``details`` sizes, times and modes may be left out; with ``links`` those on the way are followed.
        """
        ...


async def listings(files: Files, folders: Sequence[str], *, details: bool, links: bool) -> Sequence[Listing]:
    """Return what the first of these folders hold, with whatever is quickest for the tree."""
    if isinstance(files, Scans):
        return await files.scan(folders, details=details, links=links)
    return [await _listing(files, folders[0])]


async def _listing(files: Files, folder: str) -> Listing:
    try:
        entries = await files.entries(folder)
        ignore = b""
        if any(entry.kind == "file" and entry.path.rpartition("/")[2] == IGNORE for entry in entries):
            ignore = (await files.read(below(folder, IGNORE), size=LARGEST_IGNORE)).data
    except FileError as error:
        return Listing(folder, error=error)
    return Listing(folder, entries, ignore)
