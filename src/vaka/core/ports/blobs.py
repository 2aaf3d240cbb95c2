"""The port of blobs: bytes by their digest, beside the logs, in the same store."""

from collections.abc import Iterable
from typing import Protocol

from vaka.core.types.ids import Digest


class BlobStore(Protocol):
    """Bytes by their SHA-256, for data that is too large for an event or may have to be erased."""

    async def put(self, data: bytes, *, session: str = "") -> Digest:
        """Store ``data``, durable on return, and return its digest.

        ``session``: the session whose next events name the blob. As long as it exists, no erasure of another session
        removes the blob; ``ErasedSession`` if it was erased itself. Without one, only its age protects a blob that no
        event names yet, and only from ``gc``.
        """
        ...

    async def find_missing(self, digests: Iterable[Digest]) -> set[Digest]:
        """Return the digests of which no blob is stored."""
        ...

    async def get(self, digest: Digest) -> bytes:
        """Return the bytes; ``NotFound`` when they are not stored, ``Corrupt`` when they do not match."""
        ...
