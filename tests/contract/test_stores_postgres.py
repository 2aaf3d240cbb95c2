"""The store contract for the PostgreSQL store."""

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from vaka.core.ports.store import Store
from vaka.stores.postgres import PostgresStore
from vaka.testing.stores import ChainContract, ErasureChainContract, StoreContract


class TestPostgres(StoreContract, ChainContract, ErasureChainContract):
    @pytest.fixture
    async def store(self, postgres_dsn: str) -> AsyncIterator[Store]:
        store = PostgresStore(postgres_dsn)
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, postgres_dsn: str) -> AsyncIterator[Store]:
        other = PostgresStore(postgres_dsn)
        yield other
        await other.close()

    @pytest.fixture
    def tamper(self, postgres_dsn: str) -> Callable[[str, int, bytes | None], Awaitable[None]]:
        async def tamper(session: str, seq: int, stored: bytes | None) -> None:
            connection = await asyncpg.connect(postgres_dsn)
            try:
                if stored is None:
                    statement = "delete from vaka.events where session = $1 and seq = $2"
                    await connection.execute(statement, session.encode(), seq)
                else:
                    statement = "update vaka.events set body = $3 where session = $1 and seq = $2"
                    await connection.execute(statement, session.encode(), seq, stored)
            finally:
                await connection.close()

        return tamper
