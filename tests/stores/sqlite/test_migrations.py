"""A database of an older schema is migrated."""

import sqlite3
from contextlib import closing
from pathlib import Path

from vaka.core.ports.messages import MessageQuery
from vaka.core.ports.store import GcResult, Retention, SessionInfo, SessionQuery
from vaka.core.types.control import InputAdded
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Image
from vaka.stores.sqlite import SqliteStore
from vaka.stores.sqlite.connection import APPLICATION_ID, migration_scripts
from vaka.testing.stores.messages import find_sessions, list_texts
from vaka.testing.stores.sealed_events import (
    approval_requested,
    begin_session,
    input_added,
    offer_event,
    read_log,
    turn_events,
    write_session,
)

LATER = "9999-01-01T00:00:00.000Z"
KEPT_COLUMNS = (
    "namespace, session, head, hash, epoch, term, title, agent, turn, inputs, pending, closed, created, updated, "
    "origin, owner, checksum"
)


def _copy_to_first_schema(path: Path, source: Path) -> None:
    """Copy ``source`` into a database as the first schema has it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(migration_scripts()[0])
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute("pragma user_version = 1")
        connection.execute("attach ? as made", (str(source),))
        connection.execute(f"insert into sessions ({KEPT_COLUMNS}) select {KEPT_COLUMNS} from made.sessions")
        connection.execute("insert into pairs select namespace, key, checksum, value from made.pairs")
        for table in ("events", "decisions", "blobs", "snapshots"):
            connection.execute(f"insert into {table} select * from made.{table}")
        found = "select namespace, session, name, seq from made.names where kind = 'key'"
        connection.execute(f"insert into keys {found}")
        found = "select namespace, session, name from made.names where kind = 'blob'"
        connection.execute(f"insert into refs {found}")


def _write_as_older_process(path: Path, source: Path, head: int) -> None:
    """Write the session of ``source`` to a newer database with the columns that an older version knows."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("attach ? as made", (str(source),))
        connection.execute("insert into events select * from made.events where seq > ?", (head,))
        if head:
            columns = f"select {KEPT_COLUMNS}, minute from made.sessions"
            connection.execute(f"update sessions set ({KEPT_COLUMNS}, minute) = ({columns})")
        else:
            connection.execute(f"insert into sessions ({KEPT_COLUMNS}) select {KEPT_COLUMNS} from made.sessions")
            connection.execute("update sessions set minute = substr(updated, 1, 16)")


async def test_messages_of_processes_of_an_older_version_are_found(tmp_path: Path) -> None:
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    older = SqliteStore(old, durability="process")
    log, term = await begin_session(older, "s")
    await log.append_to(older, term, input_added("a canoe", "k1"))
    store = SqliteStore(new, durability="process")
    assert await find_sessions(store, "canoe") == []
    _write_as_older_process(new, old, 0)
    assert await find_sessions(store, "canoe") == ["s"]
    head = len(log.events)
    await log.append_to(older, term, input_added("a raft", "k2"))
    await older.events.release(log.session, term)
    _write_as_older_process(new, old, head)
    assert await list_texts(store, MessageQuery()) == ["hello", "a canoe", "a raft"]
    assert await find_sessions(store, "raft") == ["s"]
    _query_rows(new, "delete from events")
    _query_rows(new, "delete from sessions")
    assert await find_sessions(store, "raft") == []
    await write_session(store, "s", input_added("a ferry"))
    assert _query_rows(new, "select session from message_backlog") == []
    assert await list_texts(store, MessageQuery()) == ["a ferry"]
    for handle in (older, store):
        await handle.close()


async def _read_everything(
    store: SqliteStore, *names: str
) -> tuple[tuple[SessionInfo, ...], list[list[bytes]], list[str]]:
    listed = (await store.sessions.list(SessionQuery())).sessions
    return listed, [await read_log(store, name) for name in names], [row.id for row in await store.sessions.decisions()]


async def test_data_of_the_first_schema_is_migrated(tmp_path: Path) -> None:
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    store = SqliteStore(new, durability="process")
    digest = await store.blobs.put(b"a picture")
    loose = await store.blobs.put(b"unreferenced")
    await store.values.put("settings", {"a": 1})
    seen = InputAdded(key="seen", content=(Image(blob=digest, media_type="image/png"),))
    await write_session(store, "s", input_added("one", "k1"), approval_requested("a1"), at=100)
    await write_session(store, "t", seen, at=60)
    await write_session(store, "done", input_added("three"), *turn_events(), at=7)
    before = await _read_everything(store, "s", "t", "done")
    await store.close()
    _copy_to_first_schema(old, new)

    store = SqliteStore(old, durability="process")
    assert await _read_everything(store, "s", "t", "done") == before
    assert [info.id for info in (await store.sessions.list(SessionQuery(status="queued"))).sessions] == ["s", "t"]
    assert await offer_event(store, input_added("one", "k1")) == 1
    removed = await store.gc(Retention(idle_before=LATER, blobs_before=LATER))
    assert removed == GcResult(sessions=(SessionId("done"),), blobs=1, bytes=removed.bytes)
    assert await store.blobs.get(digest) == b"a picture"
    assert await store.values.get("settings") == {"a": 1}
    assert loose not in [row[0] for row in _query_rows(old, "select digest from blobs")]
    assert await store.reindex() == 2
    await store.close()
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("pragma user_version").fetchone() == (len(migration_scripts()),)


def _query_rows(path: Path, query: str) -> list[tuple[str]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(query).fetchall()
