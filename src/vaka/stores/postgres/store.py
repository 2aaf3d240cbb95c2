"""The PostgreSQL store: one namespace of one database."""

from vaka.core.ports import store
from vaka.core.ports.store import Removed, Retention
from vaka.core.types.errors import ConfigError
from vaka.stores.postgres import upkeep
from vaka.stores.postgres.database import Database, Durability
from vaka.stores.postgres.events import Events
from vaka.stores.postgres.hub import Hub
from vaka.stores.postgres.kept import Blobs, Snapshots, Values
from vaka.stores.postgres.live import Live
from vaka.stores.postgres.sessions import Sessions
from vaka.stores.postgres.text import name


class Handle:
    """One namespace, over connections shared with others."""

    def __init__(self, hub: Hub, namespace: str) -> None:
        self._hub, self._name = hub, name(namespace)
        self._events = Events(self._name, hub)
        self.namespace, self.url = namespace, hub.database.url
        self.events: store.EventStore = self._events
        self.sessions: store.Sessions = Sessions(self._name, hub.database)
        self.snapshots: store.Snapshots = Snapshots(self._name, hub.database)
        self.blobs: store.Blobs = Blobs(self._name, hub.database)
        self.values: store.KeyValue = Values(self._name, hub.database)
        self.live: store.Live = Live(self._name, hub.database, hub.talk, hub.sharing, hub.pulse)

    def scoped(self, namespace: str) -> "Handle":
        """Return a handle on another namespace of the same database; it lives as long as the store does."""
        return Handle(self._hub, namespace)

    async def gc(self, retention: Retention) -> Removed:
        """Remove what may go; never a session that has a writer, unfinished work or open decisions."""
        return await upkeep.collect(self._hub.database, self._name, retention)

    async def reindex(self) -> int:
        """Rebuild every index row from the logs; return how many sessions there are."""
        return await upkeep.reindex(self._hub.database, self._name)

    async def close(self) -> None:
        """End all claims of this handle."""
        await self._events.close()


class PostgresStore(Handle):
    """Logs in PostgreSQL, for many processes on many machines.

    A claim is a lease of ``lease`` seconds on the server's clock, renewed while the process lives. ``durability``:
    ``"power"`` waits until an append is on the server's disk, ``"process"`` does not. A server out of reach is
    tried again for ``patience`` seconds.
    """

    def __init__(
        self,
        dsn: str,
        *,
        namespace: str = "",
        lease: float = 15.0,
        durability: Durability = "power",
        patience: float = 10.0,
    ) -> None:
        if not 0.1 <= lease <= 3600:
            raise ConfigError(f"lease {lease!r} must be between 0.1 and 3600 seconds")
        super().__init__(Hub(Database(dsn, durability, patience), lease), namespace)

    async def close(self) -> None:
        """End all claims, also of the handles made by ``scoped``, and let go of the connections."""
        await self._hub.close()
