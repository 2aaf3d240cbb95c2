"""An erasure and transactions that put blobs at the same time wait for each other."""

import asyncio

import asyncpg
import pytest

from vaka.core.types.control import InputAdded
from vaka.core.types.errors import ErasedSession
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Image
from vaka.stores.postgres import PostgresStore
from vaka.testing.stores.sealed_events import write_session

PATIENCE = 60.0
_COUNT_WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


async def _wait_for_lock(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Return as soon as a statement waits for a lock of another transaction."""
    async with asyncio.timeout(PATIENCE):
        while not await connection.fetchval(_COUNT_WAITING):
            pass


async def test_an_erasure_waits_for_the_session_that_puts_the_blob(store: PostgresStore, postgres_dsn: str) -> None:
    digest = await store.blobs.put(b"both", session="s")
    await write_session(store, "s", InputAdded(key="k", content=(Image(blob=digest),)))
    connection = await asyncpg.connect(postgres_dsn)
    async with connection.transaction():
        await connection.execute("update vaka.blobs set put = now()")
        await connection.execute(
            "insert into vaka.blob_refs (namespace, session, digest) values ('', 't', $1)", digest.encode()
        )
        erasure = asyncio.create_task(store.erase([SessionId("s")]))
        await _wait_for_lock(connection)
    await connection.close()
    result = await erasure
    assert (result.sessions, result.blobs) == (("s",), 0)
    assert await store.blobs.get(digest) == b"both"


async def test_a_blob_that_is_put_while_it_is_erased_is_stored_again(store: PostgresStore, postgres_dsn: str) -> None:
    digest = await store.blobs.put(b"both", session="s")
    connection = await asyncpg.connect(postgres_dsn)
    async with connection.transaction():
        await connection.execute("delete from vaka.blobs")
        put = asyncio.create_task(store.blobs.put(b"both", session="t"))
        await _wait_for_lock(connection)
    await connection.close()
    assert await put == digest
    assert await store.blobs.get(digest) == b"both"


async def test_a_blob_for_a_session_that_is_being_erased_is_refused(store: PostgresStore, postgres_dsn: str) -> None:
    await write_session(store, "s")
    connection = await asyncpg.connect(postgres_dsn)
    async with connection.transaction():
        await connection.fetchrow("select from vaka.sessions where id = 's' for update")
        put = asyncio.create_task(store.blobs.put(b"late", session="s"))
        await _wait_for_lock(connection)
        await connection.execute("update vaka.sessions set erased = head + 1 where id = 's'")
    with pytest.raises(ErasedSession):
        await put
    assert await connection.fetchval("select count(*) from vaka.blobs") == 0
    await connection.close()
