"""The SQL of a log: insert events with their index rows, and read them in chunks that the hash chain checks."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from vaka.core.session.hash_chain import HashChain, hash_of
from vaka.core.session.index_rows import blobs_of, select_keyed_or_blob_events
from vaka.core.types.control import key_of
from vaka.core.types.errors import Corrupt, NotFound
from vaka.core.types.event import Event, decode
from vaka.stores.append_checks import decision_changes
from vaka.stores.sqlite import session_rows
from vaka.stores.sqlite.session_rows import SqliteKey

CHUNK_ROWS = 256
CHUNK_BYTES = 1 << 20

_SELECT_EVENT = "select body from events where namespace = ? and session = ? and seq = ?"
_SELECT_EVENTS = (
    "select seq, body from events where namespace = ? and session = ? and seq > ? and seq <= ? order by seq limit ?"
)
_INSERT_NAME = "insert or ignore into names (namespace, session, kind, name, seq) values (?,?,?,?,?)"
_SELECT_KEY = "select seq from names where namespace = ? and session = ? and kind = 'key' and name = ?"
SESSION_TABLES = ("events", "names", "decisions", "snapshots", "sessions")
"""Where a session leaves rows."""


def insert_events(connection: sqlite3.Connection, key: SqliteKey, events: Sequence[Event]) -> None:
    """Insert events and all that is derived from them but the session's row."""
    connection.executemany(
        "insert into events (namespace, session, seq, body) values (?,?,?,?)",
        [(*key, event.seq, event.stored) for event in events],
    )
    insert_index_rows(connection, key, events)


def insert_index_rows(connection: sqlite3.Connection, key: SqliteKey, events: Sequence[Event]) -> None:
    """Insert the decisions, keys and named blobs of events."""
    opened, done, everything = decision_changes(key[1], events)
    if everything:
        connection.execute("delete from decisions where namespace = ? and session = ?", key)
    elif done:
        connection.executemany(
            "delete from decisions where namespace = ? and session = ? and decision = ?",
            [(*key, decision) for decision in done],
        )
    if opened:
        connection.executemany(
            "insert or replace into decisions (namespace, session, decision, seq, hash) values (?,?,?,?,?)",
            [(*key, row.id, row.seq, row.event.hash) for row in opened],
        )
    names: list[tuple[str, str, str, str, int]] = []
    for event in select_keyed_or_blob_events(events):
        name = key_of(event.data)
        if name:
            names.append((*key, "key", name, event.seq))
        names += [(*key, "blob", digest, event.seq) for digest in blobs_of(event)]
    if names:
        connection.executemany(_INSERT_NAME, names)


def seq_of(connection: sqlite3.Connection, key: SqliteKey, name: str) -> int | None:
    """Return the seq of the first event with a key."""
    found = connection.execute(_SELECT_KEY, (*key, name)).fetchone()
    if found is None:
        return None
    seq: int = found[0]
    if key_of(decode(load_body(connection, key, seq)).data) != name:
        raise Corrupt(f"session {key[1]!r}: event {seq} has not the key its index names; see `vaka doctor --reindex`")
    return seq


def load_body(connection: sqlite3.Connection, key: SqliteKey, seq: int) -> bytes:
    """Return the stored bytes of an event that must be there."""
    found = connection.execute(_SELECT_EVENT, (*key, seq)).fetchone()
    return check_body(key, seq, found[0] if found else None)


def check_body(key: SqliteKey, seq: int, body: object) -> bytes:
    """Return a body as it came out of the database, if it is one."""
    if not isinstance(body, bytes):
        raise Corrupt(f"session {key[1]!r}: event {seq} is missing or not what was written")
    return body


def delete_session(connection: sqlite3.Connection, key: SqliteKey) -> None:
    """Delete all rows of a session."""
    for table in SESSION_TABLES:
        connection.execute(f"delete from {table} where namespace = ? and session = ?", key)  # noqa: S608  # nosec B608  # constants


class LogRead(NamedTuple):
    """How far a read has come: what it found, checked, and what it still has to check."""

    chain: HashChain
    head: int
    hash: str
    upto: int
    events: list[Event]

    @property
    def is_complete(self) -> bool:
        """Whether everything that was asked for was read."""
        return self.chain.seq >= self.upto


def begin_read(connection: sqlite3.Connection, key: SqliteKey, after: int, upto: int | None) -> LogRead | None:
    """Read the first events after ``after``, as of now; ``None`` when there is nothing to read."""
    connection.execute("begin")  # one moment for all statements
    try:
        return _read_first_chunk(connection, key, after, upto)
    finally:
        if connection.in_transaction:
            connection.execute("commit")


def _read_first_chunk(connection: sqlite3.Connection, key: SqliteKey, after: int, upto: int | None) -> LogRead | None:
    row = session_rows.load_row(connection, key)
    end = min(row.info.head, row.info.head if upto is None else upto) if row is not None else 0
    after = max(after, 0)
    if row is None or end <= after:
        return None
    chain = HashChain(key[1], after, hash_of(load_body(connection, key, after)) if after else "")
    return continue_read(connection, key, LogRead(chain, row.info.head, row.info.hash, end, []))


def continue_read(connection: sqlite3.Connection, key: SqliteKey, reading: LogRead) -> LogRead:
    """Read some more events. They count only when the one after them was seen, which ``events`` respects."""
    chain, events = reading.chain, reading.events
    found = read_chunk(connection, key, chain, reading.upto)
    if (
        not found
        and connection.execute("select 1 from sessions where namespace=? and session=?", key).fetchone() is None
    ):
        raise NotFound(f"session {key[1]!r} was deleted while it was read")
    events += found
    if reading.is_complete:
        if reading.upto == reading.head:
            chain.check_end(reading.head, reading.hash)
        else:
            HashChain(key[1], chain.seq, events[-1].hash).check_next(
                chain.seq + 1, load_body(connection, key, chain.seq + 1)
            )
    elif not found:
        chain.check_end(reading.head, reading.hash)
    return reading


def read_chunk(connection: sqlite3.Connection, key: SqliteKey, chain: HashChain, upto: int) -> list[Event]:
    """Return the next events, up to a chunk of them, checked by the chain."""
    events: list[Event] = []
    size = 0
    # A cursor that an error keeps alive would keep the connection in the past.
    with closing(connection.execute(_SELECT_EVENTS, (*key, chain.seq, upto, CHUNK_ROWS))) as found:
        for seq, body in found:
            events.append(chain.check_next(seq, check_body(key, seq, body)))
            size += len(body)
            if size > CHUNK_BYTES:
                break
    return events
