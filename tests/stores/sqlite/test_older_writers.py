"""A process of an older version, which makes no message rows, writes to a database that a newer one has open."""

import sqlite3
from contextlib import closing
from pathlib import Path

from vaka.core.ports.messages import MessageQuery
from vaka.stores.sqlite import SqliteStore
from vaka.testing.stores.message_search import find_sessions
from vaka.testing.stores.messages import list_texts
from vaka.testing.stores.sealed_events import begin_session, input_added, write_session

KEPT_COLUMNS = (
    "namespace, session, head, hash, epoch, term, title, agent, turn, inputs, pending, closed, created, updated, "
    "origin, owner, checksum"
)


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


def _query_rows(path: Path, query: str) -> list[tuple[str]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(query).fetchall()
