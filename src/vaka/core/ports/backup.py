"""Backups: the data of a store, with all its namespaces, as records that every store can write and read.

Index rows, folded states and open blocks are left out: they follow from the logs.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol, TypeAlias

import msgspec


class SavedBlob(msgspec.Struct, frozen=True, array_like=True, tag="blob"):
    """A blob, and when it was last put (RFC 3339)."""

    namespace: str
    digest: str
    put: str
    data: bytes


class SavedReference(msgspec.Struct, frozen=True, array_like=True, tag="reference"):
    """A session has put a blob."""

    namespace: str
    session: str
    digest: str


class SavedSession(msgspec.Struct, frozen=True, array_like=True, tag="session"):
    """A session; its events follow."""

    namespace: str
    id: str
    term: int


class SavedEvents(msgspec.Struct, frozen=True, array_like=True, tag="events"):
    """The stored bytes of the next events of the session before."""

    bodies: list[bytes]


class SavedValue(msgspec.Struct, frozen=True, array_like=True, tag="value"):
    """A value as JSON, and when it expires."""

    namespace: str
    key: str
    value: bytes
    expires: str


class SavedVector(msgspec.Struct, frozen=True, array_like=True, tag="vector"):
    """A record with its vector: 32-bit floats, the lowest byte first; ``metadata`` are JSON."""

    namespace: str
    collection: str
    scope: str
    id: str
    text: str
    metadata: bytes
    vector: bytes
    version: int


BackupRecord: TypeAlias = SavedBlob | SavedReference | SavedSession | SavedEvents | SavedValue | SavedVector


class BackupCounts(msgspec.Struct, kw_only=True):
    """How much a backup has."""

    sessions: int = 0
    events: int = 0
    blobs: int = 0
    values: int = 0
    vectors: int = 0
    bytes: int = 0
    """The bytes of events, blobs, values and vectors."""

    def add(self, record: BackupRecord) -> None:
        """Count a record."""
        match record:
            case SavedBlob():
                self.blobs, self.bytes = self.blobs + 1, self.bytes + len(record.data)
            case SavedSession():
                self.sessions += 1
            case SavedEvents():
                self.events += len(record.bodies)
                self.bytes += sum(map(len, record.bodies))
            case SavedValue():
                self.values, self.bytes = self.values + 1, self.bytes + len(record.value)
            case SavedVector():
                self.vectors, self.bytes = self.vectors + 1, self.bytes + len(record.vector)
            case SavedReference():
                pass


class StoreBackup(Protocol):
    """Writes and restores backups of one database."""

    url: str
    """Its URL, without a password."""

    def dump(self) -> AsyncGenerator[BackupRecord]:
        """Yield everything as of one moment, while others write; blobs and their references come first.

        Raises ``Corrupt`` for bytes that do not match their hashes, and ``NotFound`` when there is no database.
        """
        ...

    async def load(self, records: AsyncIterator[BackupRecord], *, made: str, replace: bool) -> BackupCounts:
        """Fill an empty database with a backup that was ``made`` then, all of it or nothing; return what it has then.

        Each log gets one more event, whose epoch is one higher: followers with an older cursor read it from the start.
        Every hash is verified before the data can be seen. With ``replace``, what the database has is removed. Raises
        ``AlreadyExists`` when it is not empty, and ``Busy`` while another process uses it.
        """
        ...
