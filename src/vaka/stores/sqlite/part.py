"""What every socket of a SQLite store has at hand."""

from typing import Protocol

from vaka.core.types.errors import Closed
from vaka.core.types.ids import SessionId
from vaka.stores.sqlite.database import Database
from vaka.stores.sqlite.hub import Hub
from vaka.stores.sqlite.rows import Key


class Opened(Protocol):
    """The store a socket belongs to."""

    namespace: str
    hub: Hub
    closed: bool


class Part:
    """One socket of a store."""

    def __init__(self, store: Opened) -> None:
        self._store, self._hub, self._namespace = store, store.hub, store.namespace

    @property
    def _database(self) -> Database:
        if self._store.closed:
            raise Closed("the store was closed")
        return self._hub.database

    def _key(self, session: SessionId) -> Key:
        return self._namespace, session
