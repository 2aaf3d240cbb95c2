"""The ports of data beside the logs, in the same store: small JSON values by name, and blobs by their digest."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from vaka.core.types.ids import JSON, Digest


def session_values_prefix(session: str) -> str:
    """Return the prefix of the keys of values that belong to a session: they are deleted with it.

    The length makes prefixes unique: no session's prefix begins with the prefix of another session.
    """
    return f"session/{len(session.encode('utf-8', 'surrogatepass'))}/{session}/"


class KeyValueStore(Protocol):
    """Small JSON values by name; see ``session_values_prefix`` for the values of one session."""

    async def get(self, key: str) -> JSON:
        """Return the value, ``None`` when there is none."""
        ...

    async def put(self, key: str, value: JSON) -> None:
        """Store the value, durable on return; ``None`` removes it."""
        ...

    async def put_if_absent(self, key: str, value: JSON) -> JSON:
        """Store the value unless the key has one, durable on return; return the value that the key has then.

        Of several callers at once one stores its value and all get that one. A caller that must know whether the value
        is its own puts something unique into it. ``InvalidInput`` for ``None``.
        """
        ...

    async def compare_and_set(self, key: str, old: JSON, new: JSON, *, expires: str = "") -> bool:
        """Store ``new`` if the key has the value ``old``, durable on return; return whether the key has ``new`` then.

        ``None`` stands for no value, on both sides. Of several callers at once with different new values, one gets
        true. From ``expires`` on (RFC 3339, UTC) ``gc`` may remove the value; ``get`` does not look at it. ``put``
        clears the time of expiry.
        """
        ...

    async def keys(self, prefix: str = "") -> Sequence[str]:
        """Return the names that begin with ``prefix``, sorted."""
        ...


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
