"""Which version of which file a session has read, in its state: unread content is never overwritten.

The records are spread over small buckets, so that a record costs the same however many there are; the oldest of a bucket are dropped.
"""

import hashlib

import msgspec

from vaka.core.ports.files import FileInfo
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileChanged
from vaka.core.types.ids import Digest

BUCKETS = 256
RECORDS_PER_BUCKET = 8
"""Notes on one shelf; with fewer files than ``SHELVES`` in play none is lost but by rare chance."""


class ReadRecord(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was when the session last read or wrote it."""

    path: str
    modified: int
    size: int
    digest: Digest | None = None
    """Of the whole content; none for a file too large to be read whole."""

    def matches(self, info: FileInfo, digest: Digest | None) -> bool:
        """Tell whether this is the file: by content, and where that is not known by time and size."""
        if self.digest is not None and digest is not None:
            return self.digest == digest
        return (self.modified, self.size) == (info.modified, info.size)


def find_record(context: ToolContext, path: str) -> ReadRecord | None:
    """Return how the session knows a file."""
    name = _encode_path(path)
    return next((note for note in _load_bucket(context, name) if note.path == name), None)


def save_record(context: ToolContext, info: FileInfo, digest: Digest | None) -> None:
    """Put down that the session knows this of a file from now on."""
    name = _encode_path(info.path)
    fresh, shelf = ReadRecord(name, info.modified, info.size, digest), _load_bucket(context, name)
    if fresh not in shelf:
        others = [other for other in shelf if other.path != name]
        context.set_state(_bucket_key(name), msgspec.to_builtins([*others, fresh][-RECORDS_PER_BUCKET:]))


def check_unchanged(context: ToolContext, info: FileInfo, digest: Digest | None) -> ReadRecord:
    """Return how the session knows a file that is still so. Raises ``FileChanged`` when it does not, or no longer."""
    known = find_record(context, info.path)
    if known is None:
        raise FileChanged(f"{info.path!r} has not been read in this session; Read it first, then change it")
    if not known.matches(info, digest):
        raise FileChanged(f"{info.path!r} has changed since it was read; Read it again, then change it")
    return known


def _load_bucket(context: ToolContext, name: str) -> list[ReadRecord]:
    try:
        return msgspec.convert(context.get_state(_bucket_key(name)) or [], list[ReadRecord])
    except msgspec.ValidationError:
        return []  # somebody else's value: what is not known must be read


def _encode_path(path: str) -> str:
    """Return a path as JSON can carry it: one that is no UTF-8 by its bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "\0" + path.encode("utf-8", "surrogatepass").hex()
    return path


def _bucket_key(name: str) -> str:
    return f"files.seen.{hashlib.sha256(name.encode()).digest()[0] % BUCKETS:02x}"


def digest_of(data: bytes) -> Digest:
    """Return the digest of a whole content."""
    return Digest(hashlib.sha256(data).hexdigest())
