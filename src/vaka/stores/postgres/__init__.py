"""The PostgreSQL store: one namespace of one database, shared by many processes and machines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vaka.core.ports import store
from vaka.core.ports.store import GcResult, Retention
from vaka.core.ports.values import BlobStore, KeyValueStore
from vaka.core.types.errors import ConfigError
from vaka.core.types.ids import SessionId
from vaka.stores.common import Durability
from vaka.stores.postgres import maintenance
from vaka.stores.postgres.database import PostgresDatabase
from vaka.stores.postgres.encoding import encode_name
from vaka.stores.postgres.events import PostgresEvents
from vaka.stores.postgres.hub import PostgresHub, PostgresLive
from vaka.stores.postgres.tables import PostgresBlobs, PostgresSessions, PostgresSnapshots, PostgresValues

if TYPE_CHECKING:
    from vaka.core.ports.erasure import EraseResult
    from vaka.core.ports.messages import MessageIndex
    from vaka.core.ports.vectors import VectorStore

MAX_MATRIX_ROWS = 100_000
"""Scopes with more vectors are not loaded into this process if the server has pgvector."""


class PostgresNamespace:
    """One namespace, over connections shared with others."""

    def __init__(self, hub: PostgresHub, namespace: str, max_matrix_rows: int = MAX_MATRIX_ROWS) -> None:
        self._hub = hub
        self._namespace_bytes = encode_name(namespace)
        self._max_matrix_rows = max_matrix_rows
        ports = self._namespace_bytes, hub
        self._events = PostgresEvents(*ports)
        self.namespace, self.url = namespace, hub.database.url
        self.events: store.EventStore = self._events
        self.sessions: store.SessionIndex = PostgresSessions(*ports)
        self.snapshots: store.SnapshotStore = PostgresSnapshots(*ports)
        self.blobs: BlobStore = PostgresBlobs(*ports)
        self.values: KeyValueStore = PostgresValues(*ports)
        self.live: store.LiveChannel = PostgresLive(*ports)
        self._vectors: VectorStore | None = None
        self._messages: MessageIndex | None = None

    @property
    def vectors(self) -> "VectorStore":
        """The vectors of the namespace."""
        if self._vectors is None:
            from vaka.stores.postgres.vectors import PostgresVectors  # noqa: PLC0415  # most programs store none

            self._vectors = PostgresVectors(self._namespace_bytes, self._hub, self._max_matrix_rows)
        return self._vectors

    @property
    def messages(self) -> "MessageIndex":
        """The messages of the sessions."""
        if self._messages is None:
            from vaka.stores.postgres.messages import PostgresMessages  # noqa: PLC0415  # most programs do not search

            self._messages = PostgresMessages(self._namespace_bytes, self._hub)
        return self._messages

    def with_namespace(self, namespace: str) -> "PostgresNamespace":
        """Return a handle on another namespace of the same database; it lives as long as the store does."""
        return PostgresNamespace(self._hub, namespace, self._max_matrix_rows)

    async def gc(self, retention: Retention) -> GcResult:
        """Remove what may go; never a session that has a writer, unfinished work or open decisions."""
        return await maintenance.collect_garbage(self._hub.database, self._namespace_bytes, retention)

    async def erase(self, sessions: Sequence[SessionId], *, by: str = "") -> "EraseResult":
        """Erase what sessions hold; their hashes stay. PostgreSQL reuses the space of the deleted rows after VACUUM."""
        from vaka.stores.postgres.erase import PostgresErasure  # noqa: PLC0415  # most programs erase nothing

        return await PostgresErasure(self._namespace_bytes, self._hub).erase(sessions, by=by)

    async def reindex(self) -> int:
        """Rebuild every index row from the logs; return how many sessions there are."""
        return await maintenance.reindex(self._hub.database, self._namespace_bytes)

    async def close(self) -> None:
        """End all claims of this handle."""
        await self._events.close()


class PostgresStore(PostgresNamespace):
    """Logs in PostgreSQL, for many processes on many machines.

    A claim is a lease of ``lease`` seconds on the server's clock, renewed while the process lives. ``durability``:
    ``"power"`` waits until an append is on the server's disk, ``"process"`` does not. A server out of reach is
    tried again for ``patience`` seconds. Scopes of more than ``max_matrix_rows`` vectors are searched on the server if
    it has pgvector, others in this process.
    """

    def __init__(
        self,
        dsn: str,
        *,
        namespace: str = "",
        lease: float = 15.0,
        durability: Durability = "power",
        patience: float = 10.0,
        max_matrix_rows: int = MAX_MATRIX_ROWS,
    ) -> None:
        if not 0.1 <= lease <= 3600:
            raise ConfigError(f"lease {lease!r} must be between 0.1 and 3600 seconds")
        hub = PostgresHub(PostgresDatabase(dsn, durability, patience), lease)
        super().__init__(hub, namespace, max_matrix_rows)

    async def close(self) -> None:
        """End all claims, also of the handles made by ``with_namespace``, and close the connections."""
        await self._hub.close()


__all__ = ["PostgresStore"]
