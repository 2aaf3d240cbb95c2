"""The SQLite store: one namespace of one file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vaka.core.ports import store
from vaka.core.ports.store import GcResult, Retention
from vaka.core.ports.values import BlobStore, KeyValueStore
from vaka.core.types.ids import SessionId
from vaka.stores.common import Durability, check_durability
from vaka.stores.sqlite.events import SqliteEvents
from vaka.stores.sqlite.hub import SqliteHub, SqliteLive
from vaka.stores.sqlite.maintenance import SqliteMaintenance
from vaka.stores.sqlite.tables import SqliteBlobs, SqliteSessions, SqliteSnapshots, SqliteValues

if TYPE_CHECKING:
    from vaka.core.ports.erasure import EraseResult
    from vaka.core.ports.messages import MessageIndex
    from vaka.core.ports.vectors import VectorStore


class SqliteStore:
    """One namespace of one SQLite file.

    ``durability``: what an acknowledged event survives, a ``power`` cut or the death of the ``process``.
    """

    def __init__(
        self, path: str | Path, *, durability: Durability = "power", namespace: str = "", hub: SqliteHub | None = None
    ) -> None:
        check_durability(durability)
        self.path = Path(path).absolute()
        self.namespace = namespace
        self.closed = False
        self.url = f"sqlite:///{self.path}"
        self._durability: Durability = durability
        self._shares_hub = hub is not None
        self.hub = hub or SqliteHub(self.path, durability)
        self.events: store.EventStore = SqliteEvents(self)
        self.sessions: store.SessionIndex = SqliteSessions(self)
        self.snapshots: store.SnapshotStore = SqliteSnapshots(self)
        self.blobs: BlobStore = SqliteBlobs(self)
        self.values: KeyValueStore = SqliteValues(self)
        self.live: store.LiveChannel = SqliteLive(self)
        self._vectors: VectorStore | None = None
        self._messages: MessageIndex | None = None
        self._maintenance = SqliteMaintenance(self)

    @property
    def vectors(self) -> "VectorStore":
        """The vectors of the namespace."""
        if self._vectors is None:
            from vaka.stores.sqlite.vectors import SqliteVectors  # noqa: PLC0415  # most programs store none

            self._vectors = SqliteVectors(self)
        return self._vectors

    @property
    def messages(self) -> "MessageIndex":
        """The messages of the sessions."""
        if self._messages is None:
            from vaka.stores.sqlite.messages import SqliteMessages  # noqa: PLC0415  # most programs do not search

            self._messages = SqliteMessages(self)
        return self._messages

    def with_namespace(self, namespace: str) -> "SqliteStore":
        """Return a handle on another namespace of the same file; it ends with this one."""
        return SqliteStore(self.path, durability=self._durability, namespace=namespace, hub=self.hub)

    async def gc(self, retention: Retention) -> GcResult:
        """Remove idle sessions and unreferenced blobs; never a session with a writer or unfinished work."""
        return await self._maintenance.gc(retention)

    async def erase(self, sessions: Sequence[SessionId], *, by: str = "") -> "EraseResult":
        """Erase what sessions hold and overwrite its bytes in the file; their hashes stay."""
        from vaka.stores.sqlite.erase import SqliteErasure  # noqa: PLC0415  # most programs erase nothing

        return await SqliteErasure(self).erase(sessions, by=by)

    async def reindex(self) -> int:
        """Rebuild every index row from the logs."""
        return await self._maintenance.reindex()

    async def close(self) -> None:
        """End all claims of this handle and close the file."""
        if self.closed:
            return
        self.closed = True
        if self._shares_hub:
            await self.hub.release([key for key, claim in self.hub.claims.items() if claim.by is self])
        else:
            await self.hub.close()


__all__ = ["SqliteStore"]
