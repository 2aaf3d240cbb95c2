"""The store contract for the SQLite store."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from vaka.core.ports.messages import MessageSearch, SearchPage
from vaka.core.ports.store import Store
from vaka.stores.sqlite import SqliteStore
from vaka.stores.sqlite.message_words import index_waiting
from vaka.stores.sqlite.messages import SqliteMessages
from vaka.testing.stores import ChainContract, ErasureChainContract, MessageSearchContract, StoreContract


class TestSqlite(StoreContract, ChainContract, ErasureChainContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = SqliteStore(tmp_path / "vaka.db", durability="process")
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, tmp_path: Path) -> AsyncIterator[Store]:
        other = SqliteStore(tmp_path / "vaka.db", durability="process")
        yield other
        await other.close()

    @pytest.fixture
    def tamper(self, tmp_path: Path) -> Callable[[str, int, bytes | None], Awaitable[None]]:
        async def tamper(session: str, seq: int, stored: bytes | None) -> None:
            with closing(sqlite3.connect(tmp_path / "vaka.db", isolation_level=None)) as connection:
                if stored is None:
                    connection.execute("delete from events where session = ? and seq = ?", (session, seq))
                else:
                    connection.execute(
                        "update events set body = ? where session = ? and seq = ?", (stored, session, seq)
                    )

        return tamper


class IndexingMessages(SqliteMessages):
    """Messages whose words are all indexed before each search."""

    async def search(self, query: MessageSearch) -> SearchPage:
        while await index_waiting(self._database):
            pass
        return await super().search(query)


class IndexingStore(SqliteStore):
    @property
    def messages(self) -> IndexingMessages:
        return IndexingMessages(self)

    def with_namespace(self, namespace: str) -> "IndexingStore":
        return IndexingStore(self.path, durability="process", namespace=namespace, hub=self.hub)


class TestSqliteWords(MessageSearchContract):
    """Searches in the word index, which follows the messages in batches: ``TestSqlite`` searches those that wait."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = IndexingStore(tmp_path / "vaka.db", durability="process")
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, tmp_path: Path) -> AsyncIterator[Store]:
        other = IndexingStore(tmp_path / "vaka.db", durability="process")
        yield other
        await other.close()
