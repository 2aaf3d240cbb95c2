"""The vector store port: texts with vectors and metadata, by collection and scope, searched by cosine similarity."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from vaka.core.types.ids import JSON


class VectorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A text with its vector and metadata; its id is unique in its scope."""

    id: str
    text: str = ""
    metadata: dict[str, Any] = {}
    vector: tuple[float, ...] = ()
    """Empty in records that were read without vectors; a write without a vector keeps the stored one."""
    version: int | None = None
    """The number of writes to the record. A write of a record that has a version happens only while the stored record
    has the same, 0 for none; ``None`` writes in any case."""


class VectorQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The records to find: the nearest to ``vector`` first."""

    vector: tuple[float, ...]
    top_k: int = 5
    filter: Mapping[str, JSON] = {}
    """Metadata that a record must have; a stored list matches each of its items."""
    threshold: float = -1.0
    """The least similarity, between -1 and 1."""


class VectorMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A record, without its vector, and its cosine similarity."""

    record: VectorRecord
    similarity: float


class VectorStore(Protocol):
    """The vectors of one namespace. The first write to a collection fixes the length of its vectors.

    ``scope`` divides a collection: an operation sees the records of exactly this scope, ``""`` is one like the others.
    A vector of another length, a vector without direction, and metadata that are not JSON raise ``InvalidInput``.
    """

    async def upsert(
        self, collection: str, scope: str, records: Sequence[VectorRecord], *, delete: Sequence[str] = ()
    ) -> bool:
        """Write records and delete others in one transaction, durable on return.

        Returns false, and writes nothing, when a stored record does not have the version that was given, and when
        there is none for a record without a vector.
        """
        ...

    async def delete(self, collection: str, scope: str, ids: Sequence[str]) -> int:
        """Delete records, also damaged ones; return how many there were."""
        ...

    async def query(self, collection: str, scope: str, query: VectorQuery) -> Sequence[VectorMatch]:
        """Return the records nearest to a vector; writes of all processes count. ``Corrupt`` for a damaged record."""
        ...

    async def get(
        self, collection: str, scope: str, ids: Sequence[str], *, with_vectors: bool = False
    ) -> Sequence[VectorRecord]:
        """Return the existing records, in the order of ``ids``. ``Corrupt`` for a damaged record."""
        ...

    async def scan(
        self,
        collection: str,
        scope: str,
        *,
        filter: Mapping[str, JSON] = {},
        after: str = "",
        limit: int = 256,
        with_vectors: bool = False,
    ) -> Sequence[VectorRecord]:
        """Return records in the order of their ids, from after the id ``after``; fewer than ``limit`` at the end."""
        ...

    async def scopes(self, collection: str, under: str = "") -> Sequence[str]:
        """Return the scopes that have records, sorted: ``under`` and scopes below it (``under/…``), all for ``""``."""
        ...

    async def erase(self, scope: str, *, dry_run: bool = False) -> int:
        """Delete a scope and the scopes below it (``scope/…``) in every collection; return the number of their records.

        ``dry_run`` only counts them. ``InvalidInput`` for ``""``, which would be all scopes.
        """
        ...
