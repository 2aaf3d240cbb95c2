"""Damaged index rows are detected, and rebuilt from the logs."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from vaka.core.ports.store import Retention, SessionQuery
from vaka.core.types.errors import Busy, Corrupt
from vaka.core.types.ids import SessionId
from vaka.stores.sqlite import SqliteStore
from vaka.testing.stores.sealed_events import (
    approval_requested,
    begin_session,
    input_added,
    offer_event,
    read_log,
    turn_events,
    write_session,
)

S = SessionId("s")
LATER = "9999-01-01T00:00:00.000Z"


def _execute_sql(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement, values)


CHANGED_COLUMNS = {
    "head": 1,
    "hash": "0" * 64,
    "epoch": 2,
    "term": 7,
    "title": "another",
    "agent": "x",
    "turn": "t",
    "inputs": 9,
    "pending": 9,
    "closed": 1,
    "created": "1999",
    "updated": "1999",
    "origin": "x",
    "owner": "0" * 32,
    "minute": "1999",
    "state": "paused",
    "version": 9,
    "checksum": 1,
}


@pytest.mark.parametrize("column", CHANGED_COLUMNS)
async def test_a_changed_row_is_corrupt_and_reindex_rebuilds_it(store: SqliteStore, path: Path, column: str) -> None:
    log = await write_session(store, "s", input_added("hello"), approval_requested("a1"))
    before = await store.sessions.find(S)
    assert before is not None
    _execute_sql(path, f"update sessions set {column} = ?", CHANGED_COLUMNS[column])
    with pytest.raises(Corrupt, match="reindex"):
        await store.sessions.find(S)
    with pytest.raises(Corrupt):
        await store.sessions.list(SessionQuery())
    with pytest.raises(Corrupt):
        await read_log(store, "s")
    with pytest.raises(Corrupt):
        await store.events.claim(S)
    with pytest.raises(Corrupt):
        await offer_event(store, input_added("x", "o"))
    assert await store.reindex() == 1
    found = await store.sessions.find(S)
    assert found is not None
    assert found.term > (7 if column == "term" else 1)
    assert msgspec.structs.replace(found, term=1) == before
    assert await read_log(store, "s") == log.stored
    term = await store.events.claim(S)
    assert await log.append_to(store, term, input_added("on", "k2")) == 3


async def test_a_row_value_of_another_type_is_corrupt(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s")
    for value in (b"\xff\xfe", None, 1.5, "x"):
        try:
            _execute_sql(path, "update sessions set head = ?", value)
        except sqlite3.IntegrityError:
            continue
        with pytest.raises(Corrupt):
            await store.sessions.find(S)


async def test_empty_bytes_are_not_an_empty_text(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s")
    _execute_sql(path, "update sessions set turn = ?", b"")
    with pytest.raises(Corrupt):
        await store.sessions.find(S)


async def test_reindex_restores_a_lost_row(store: SqliteStore, path: Path) -> None:
    log = await write_session(store, "s", input_added("hello"), approval_requested("a1"))
    await write_session(store, "t")
    rows, decisions = await store.sessions.list(SessionQuery()), await store.sessions.decisions()
    for table in ("sessions", "names", "decisions"):
        _execute_sql(path, f"delete from {table} where session = 's'")
    for what in (store.sessions.find(S), read_log(store, "s"), store.events.claim(S)):
        with pytest.raises(Corrupt):
            await what
    assert await store.reindex() == 2
    again = await store.sessions.list(SessionQuery())
    assert [msgspec.structs.replace(info, term=1) for info in again.sessions] == list(rows.sessions)
    assert await store.sessions.decisions() == decisions
    assert await offer_event(store, input_added("again")) == 1
    assert await read_log(store, "s") == log.stored


async def test_reindex_keeps_the_row_of_a_damaged_log_and_rebuilds_the_others(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s", input_added("a", "a"), input_added("b", "b"))
    await write_session(store, "t")
    await write_session(store, "u", input_added("a", "a"), input_added("b", "b"))
    _execute_sql(path, "delete from events where session = 's' and seq = 1")
    _execute_sql(path, "delete from events where session = 'u' and seq = 2")
    _execute_sql(path, "delete from sessions where session = 't'")
    with pytest.raises(Corrupt, match="2 of 3 sessions"):
        await store.reindex()
    assert [info.head for info in (await store.sessions.list(SessionQuery())).sessions] == [2, 2, 1]


async def test_a_row_without_a_log_is_removed(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s")
    await write_session(store, "t")
    _execute_sql(path, "update sessions set title = 'x' where session = 's'")
    _execute_sql(path, "delete from events where session = 's'")
    assert await store.reindex() == 1
    assert [info.id for info in (await store.sessions.list(SessionQuery())).sessions] == ["t"]


async def test_a_writer_continues_after_a_reindex_unless_its_row_was_lost(store: SqliteStore, path: Path) -> None:
    log, term = await begin_session(store, "s")
    other = SqliteStore(path)
    assert await other.reindex() == 1
    assert await log.append_to(store, term, input_added("two", "k2")) == 2
    _execute_sql(path, "delete from sessions")
    assert await other.reindex() == 1
    later = await other.events.claim(S)
    assert later > term
    assert await log.append_to(other, later, input_added("three", "k3")) == 3
    await other.close()


async def test_a_damaged_session_can_be_deleted(store: SqliteStore, path: Path) -> None:
    for name, damage in (("s", "delete from sessions"), ("s", "update sessions set title = 'x'")):
        await write_session(store, name)
        _execute_sql(path, damage)
        await store.sessions.delete(SessionId(name))
        assert await read_log(store, name) == []
    await begin_session(store, "s")
    _execute_sql(path, "update sessions set title = 'x'")
    with pytest.raises(Busy):
        await store.sessions.delete(S)


async def test_a_changed_decision_row_is_corrupt(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s", input_added("x"), approval_requested("a1"), approval_requested("a2"))
    for change in ("seq = 1", "seq = 9", "hash = 'x'", "decision = 'b'"):
        _execute_sql(path, f"update decisions set {change} where decision = 'a1'")
        with pytest.raises(Corrupt):
            await store.sessions.decisions()
        await store.reindex()
        assert [row.id for row in await store.sessions.decisions(S)] == ["a1", "a2"]


async def test_a_changed_key_row_is_corrupt(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s", input_added("x", "a"), input_added("y", "b"))
    _execute_sql(path, "update names set seq = 2 where name = 'a'")
    with pytest.raises(Corrupt):
        await offer_event(store, input_added("x", "a"))


async def test_a_changed_value_is_corrupt_and_a_changed_snapshot_ignored(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s")
    await store.values.put("a", {"b": 1})
    digest = await store.blobs.put(b"blob")
    for seq in (1, 2):
        await store.snapshots.save(S, seq=seq, version="1", data=b"%d" % seq)
    _execute_sql(path, "update pairs set value = ?", b'{"b":2}')
    _execute_sql(path, "update blobs set data = ?", b"blub")
    _execute_sql(path, "update snapshots set data = ? where seq = 2", b"3")
    with pytest.raises(Corrupt):
        await store.values.get("a")
    with pytest.raises(Corrupt):
        await store.blobs.get(digest)
    assert await store.snapshots.load(S, version="1") == (1, b"1")
    assert await store.blobs.put(b"blob") == digest
    assert await store.blobs.get(digest) == b"blob"


async def test_a_wait_raises_corrupt_when_the_row_was_changed(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s")
    other = SqliteStore(path)
    _execute_sql(path, "update sessions set title = 'x'")
    with pytest.raises(Corrupt):
        await other.events.wait(S, after=1)
    await other.reindex()
    waiting = asyncio.create_task(other.events.wait(S, after=1))
    await asyncio.sleep(0)
    _execute_sql(path, "update sessions set title = 'y'")
    with pytest.raises(Corrupt):
        await waiting
    await other.close()


async def test_gc_shrinks_the_file(store: SqliteStore, path: Path) -> None:
    start, end = turn_events()
    for number in range(5):
        await write_session(store, f"s{number}", input_added("x" * 200_000), start, end)
    _execute_sql(path, "pragma wal_checkpoint(truncate)")
    before = path.stat().st_size
    removed = await store.gc(Retention(idle_before=LATER))
    assert len(removed.sessions) == 5
    assert removed.bytes > 1_000_000
    assert path.stat().st_size < before - 1_000_000
    assert path.with_name("vaka.db-wal").stat().st_size == 0


async def test_gc_stops_at_a_changed_row(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s")
    _execute_sql(path, "update sessions set inputs = 0")
    with pytest.raises(Corrupt):
        await store.gc(Retention(idle_before=LATER))
    assert len(await _stored_bodies(path)) == 1


async def _stored_bodies(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("select body from events").fetchall()


async def test_titles_are_found_case_insensitively_in_every_script(store: SqliteStore) -> None:
    await write_session(store, "s", input_added("Über ÄPFEL und Straße"))
    for text in ("über", "äpfel", "STRASSE"):
        assert [info.id for info in (await store.sessions.list(SessionQuery(text=text))).sessions] == ["s"]
