"""Reindexing and garbage collection while sessions are written."""

import asyncio

import asyncpg
import pytest

from vaka.core.ports.store import Retention, SessionQuery
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import Corrupt, InvalidInput, NotFound
from vaka.core.types.event import Custom
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Image
from vaka.stores.postgres import PostgresStore
from vaka.testing.stores.sealed_events import (
    approval_requested,
    approval_resolved,
    begin_session,
    input_added,
    offer_event,
    read_log,
    turn_events,
    write_session,
)

S = SessionId("s")
LATER = "9999-01-01T00:00:00Z"


async def _execute_sql(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def test_reindex_rebuilds_a_lost_index(store: PostgresStore, postgres_dsn: str) -> None:
    blob = await store.blobs.put(b"named")
    start, end = turn_events()
    image = InputAdded(key="k", content=(Image(blob=blob),))
    await write_session(store, "s", image, start, approval_requested("a1"), approval_requested("a2"), turn="t")
    await write_session(store, "long", *(Custom(name="n", value=n) for n in range(600)), input_added("last"))
    await write_session(store, "done", input_added("x"), start, approval_requested("a3"), end, turn="t")
    await offer_event(store, approval_resolved("a1"))
    await store.events.release(S, await store.events.claim(S))
    rows, decisions = (await store.sessions.list(SessionQuery())).sessions, await store.sessions.decisions()
    await _execute_sql(
        postgres_dsn,
        "delete from vaka.sessions where id <> 's'",
        "update vaka.sessions set head = 1, title = 'nonsense', pending = 99",
        "delete from vaka.keys",
        "delete from vaka.blob_refs",
        "update vaka.decisions set id = 'x'",
        "insert into vaka.sessions select namespace, 'empty', head, hash, epoch, title, folded, agent, turn, inputs, "
        "pending, closed, created, updated, origin, term from vaka.sessions where id = 's'",
    )
    assert await store.reindex() == 3
    found = (await store.sessions.list(SessionQuery())).sessions
    assert {row.id: (row.term, row.head) for row in found} == {"s": (2, 5), "long": (1, 601), "done": (1, 4)}
    assert [(row.id, row.hash, row.title, row.inputs) for row in found] == [
        (row.id, row.hash, row.title, row.inputs) for row in rows
    ]
    assert await store.sessions.decisions() == decisions
    assert await offer_event(store, approval_resolved("a1")) == 5
    assert (await store.gc(Retention(blobs_before=LATER))).blobs == 0
    assert await store.events.claim(SessionId("long")) == 2


async def test_reindex_raises_corrupt_after_the_other_sessions(store: PostgresStore, postgres_dsn: str) -> None:
    for name in ("a", "b", "c"):
        await write_session(store, name)
    await _execute_sql(
        postgres_dsn,
        "update vaka.events set body = 'nonsense' where session = 'a'",
        "update vaka.sessions set title = 'lost'",
    )
    with pytest.raises(Corrupt):
        await store.reindex()
    assert {info.id: info.title for info in (await store.sessions.list(SessionQuery())).sessions} == {
        "a": "lost",
        "b": "hello",
        "c": "hello",
    }


async def test_a_writer_continues_during_a_reindex(store: PostgresStore, other: PostgresStore) -> None:
    log, term = await begin_session(store, "s")

    async def write() -> None:
        for n in range(30):
            await log.append_to(store, term, input_added("x", f"k{n}"))

    async def rebuild() -> None:
        for _ in range(5):
            assert await other.reindex() == 1

    await asyncio.gather(write(), rebuild())
    assert await read_log(other, "s") == log.stored
    found = await other.sessions.find(S)
    assert found is not None
    assert (found.head, found.inputs, found.live) == (31, 31, True)


async def test_an_invalid_time_is_refused(store: PostgresStore) -> None:
    with pytest.raises(InvalidInput):
        await store.gc(Retention(blobs_before="yesterday"))
    assert (await store.gc(Retention(blobs_before="2020-01-01"))).blobs == 0


async def test_a_session_deleted_while_it_is_read_is_not_found(store: PostgresStore, other: PostgresStore) -> None:
    await write_session(store, "s", *(Custom(name="n", value=n) for n in range(600)))
    reading = store.events.read(S)
    assert (await anext(reading)).seq == 1
    await other.sessions.delete(S)
    with pytest.raises(NotFound):
        assert [event.seq async for event in reading] == []


async def test_a_log_without_the_event_at_after_is_corrupt(store: PostgresStore, postgres_dsn: str) -> None:
    await write_session(store, "s", input_added("a", "a"), input_added("b", "b"), input_added("c", "c"))
    await _execute_sql(postgres_dsn, "delete from vaka.events where seq = 2")
    with pytest.raises(Corrupt):
        await read_log(store, "s", after=2)


async def test_a_writer_of_a_deleted_session_gets_a_conflict(store: PostgresStore, postgres_dsn: str) -> None:
    log, term = await begin_session(store, "s")
    await _execute_sql(postgres_dsn, "delete from vaka.sessions")
    outcomes = [
        await asyncio.gather(store.events.append(S, [], head=9, term=term), return_exceptions=True),
        await asyncio.gather(log.append_to(store, term, input_added("x", "x")), return_exceptions=True),
    ]
    assert [type(outcome[0]).__name__ for outcome in outcomes] == ["ConflictError", "ConflictError"]
