"""The store in one SQLite file."""

from pathlib import Path

from vaka.core.ports import store
from vaka.core.ports.store import Removed, Retention
from vaka.core.types.errors import Closed, ConfigError
from vaka.stores.sqlite.blobs import Blobs
from vaka.stores.sqlite.connection import Durability
from vaka.stores.sqlite.events import Events
from vaka.stores.sqlite.hub import Hub
from vaka.stores.sqlite.live import Live
from vaka.stores.sqlite.sessions import Sessions
from vaka.stores.sqlite.snapshots import Snapshots
from vaka.stores.sqlite.upkeep import Upkeep
from vaka.stores.sqlite.values import Values


class SqliteStore:
    """One namespace of one SQLite file.

    ``durability``: what an acknowledged event survives, a ``power`` cut or the death of the ``process``.
    """

    def __init__(
        self, path: str | Path, *, durability: Durability = "power", namespace: str = "", hub: Hub | None = None
    ) -> None:
        if durability not in {"power", "process"}:
            raise ConfigError(f"durability {durability!r} must be 'power' or 'process'")
        self.path, self.namespace, self.closed = Path(path).absolute(), namespace, False
        self.url = f"sqlite:///{self.path}"
        self._durability: Durability = durability
        self._scoped = hub is not None
        self.hub = hub or Hub(self.path, durability)
        self.events: store.EventStore = Events(self)
        self.sessions: store.Sessions = Sessions(self)
        self.snapshots: store.Snapshots = Snapshots(self)
        self.blobs: store.Blobs = Blobs(self)
        self.values: store.KeyValue = Values(self)
        self.live: store.Live = Live(self)

    def scoped(self, namespace: str) -> "SqliteStore":
        """Return a handle on another namespace of the same file; it ends with this one."""
        return SqliteStore(self.path, durability=self._durability, namespace=namespace, hub=self.hub)

    async def gc(self, retention: Retention) -> Removed:
        """Remove what may go."""
        return await self._upkeep().gc(retention)

    async def reindex(self) -> int:
        """Rebuild every index row from the logs."""
        return await self._upkeep().reindex()

    async def close(self) -> None:
        """End all claims of this handle and let go of the file."""
        if self.closed:
            return
        self.closed = True
        if self._scoped:
            await self.hub.release([key for key, claim in self.hub.claims.items() if claim.by is self])
        else:
            await self.hub.close()

    def _upkeep(self) -> Upkeep:
        if self.closed:
            raise Closed("the store was closed")
        return Upkeep(self.hub.database, self.namespace, self.hub.writes)
