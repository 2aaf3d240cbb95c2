"""What a session has read of which file, in its log: nothing is overwritten that the model does not know.

The notes are spread over small values, so that a note costs the same however many there are; the oldest of a value
give way.
"""

import hashlib

import msgspec

from vaka.core.ports.files import FileInfo
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileChanged
from vaka.core.types.ids import Digest

SHELVES = 256
ROOM = 8
"""Notes on one shelf; with fewer files than ``SHELVES`` in play none is lost but by rare chance."""


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was when the session last read or wrote it."""

    path: str
    modified: int
    size: int
    digest: Digest | None = None
    """Of the whole content; none for a file too large to be read whole."""

    def is_of(self, info: FileInfo, digest: Digest | None) -> bool:
        """Tell whether this is the file: by content, and where that is not known by time and size."""
        if self.digest is not None and digest is not None:
            return self.digest == digest
        return (self.modified, self.size) == (info.modified, info.size)


def seen(context: ToolContext, path: str) -> Seen | None:
    """Return how the session knows a file."""
    name = _name(path)
    return next((note for note in _shelf(context, name) if note.path == name), None)


def note(context: ToolContext, info: FileInfo, digest: Digest | None) -> None:
    """Put down that the session knows this of a file from now on."""
    name = _name(info.path)
    fresh, shelf = Seen(name, info.modified, info.size, digest), _shelf(context, name)
    if fresh not in shelf:
        others = [other for other in shelf if other.path != name]
        context.keep(_key(name), msgspec.to_builtins([*others, fresh][-ROOM:]))


def check(context: ToolContext, info: FileInfo, digest: Digest | None) -> Seen:
    """Return how the session knows a file that is still so. Raises ``FileChanged`` when it does not, or no longer."""
    known = seen(context, info.path)
    if known is None:
        raise FileChanged(f"{info.path!r} has not been read in this session; Read it first, then change it")
    if not known.is_of(info, digest):
        raise FileChanged(f"{info.path!r} has changed since it was read; Read it again, then change it")
    return known


def _shelf(context: ToolContext, name: str) -> list[Seen]:
    try:
        return msgspec.convert(context.kept(_key(name)) or [], list[Seen])
    except msgspec.ValidationError:
        return []  # somebody else's value: what is not known must be read


def _name(path: str) -> str:
    """Return a path as JSON can carry it: one that is no UTF-8 by its bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "\0" + path.encode("utf-8", "surrogatepass").hex()
    return path


def _key(name: str) -> str:
    return f"files.seen.{hashlib.sha256(name.encode()).digest()[0] % SHELVES:02x}"


def digest_of(data: bytes) -> Digest:
    """Return the digest of a whole content."""
    return Digest(hashlib.sha256(data).hexdigest())
