"""The statements of a log: its events, and the index rows that go with them."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from vaka.core.session.chain import Chain, hash_of
from vaka.core.session.index import blobs_of, marked
from vaka.core.types.control import key_of
from vaka.core.types.errors import Corrupt, NotFound
from vaka.core.types.event import Event, decode
from vaka.stores.batch import decisions
from vaka.stores.sqlite import rows
from vaka.stores.sqlite.rows import Key

CHUNK_ROWS = 256
CHUNK_BYTES = 1 << 20

_ONE = "select body from events where namespace = ? and session = ? and seq = ?"
_SOME = "select seq, body from events where namespace = ? and session = ? and seq > ? and seq <= ? order by seq limit ?"
_NAME = "insert or ignore into names (namespace, session, kind, name, seq) values (?,?,?,?,?)"
_KEY = "select seq from names where namespace = ? and session = ? and kind = 'key' and name = ?"
TABLES = ("events", "names", "decisions", "snapshots", "sessions")
"""Where a session leaves rows."""


def write(connection: sqlite3.Connection, key: Key, events: Sequence[Event]) -> None:
    """Insert events and all that is derived from them but the session's row."""
    connection.executemany(
        "insert into events (namespace, session, seq, body) values (?,?,?,?)",
        [(*key, event.seq, event.stored) for event in events],
    )
    derive(connection, key, events)


def derive(connection: sqlite3.Connection, key: Key, events: Sequence[Event]) -> None:
    """Insert the decisions, keys and named blobs of events."""
    opened, done, everything = decisions(key[1], events)
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
    for event in marked(events):
        name = key_of(event.data)
        if name:
            names.append((*key, "key", name, event.seq))
        names += [(*key, "blob", digest, event.seq) for digest in blobs_of(event)]
    if names:
        connection.executemany(_NAME, names)


def seq_of(connection: sqlite3.Connection, key: Key, name: str) -> int | None:
    """Return the seq of the first event with a key."""
    found = connection.execute(_KEY, (*key, name)).fetchone()
    if found is None:
        return None
    seq: int = found[0]
    if key_of(decode(body_of(connection, key, seq)).data) != name:
        raise Corrupt(f"session {key[1]!r}: event {seq} has not the key its index names; see `vaka doctor --reindex`")
    return seq


def body_of(connection: sqlite3.Connection, key: Key, seq: int) -> bytes:
    """Return the stored bytes of an event that must be there."""
    found = connection.execute(_ONE, (*key, seq)).fetchone()
    return bytes_of(key, seq, found[0] if found else None)


def bytes_of(key: Key, seq: int, body: object) -> bytes:
    """Return a body as it came out of the database, if it is one."""
    if not isinstance(body, bytes):
        raise Corrupt(f"session {key[1]!r}: event {seq} is missing or not what was written")
    return body


def remove(connection: sqlite3.Connection, key: Key) -> None:
    """Delete all rows of a session."""
    for table in TABLES:
        connection.execute(f"delete from {table} where namespace = ? and session = ?", key)  # noqa: S608  # nosec B608  # constants


class Reading(NamedTuple):
    """How far a read has come: what it found, checked, and what it still has to check."""

    chain: Chain
    head: int
    hash: str
    upto: int
    events: list[Event]

    @property
    def ended(self) -> bool:
        """Whether everything that was asked for was read."""
        return self.chain.seq >= self.upto


def begin(connection: sqlite3.Connection, key: Key, after: int, upto: int | None) -> Reading | None:
    """Read the first events after ``after``, as of now; ``None`` when there is nothing to read."""
    connection.execute("begin")  # one moment for all statements
    try:
        return _begin(connection, key, after, upto)
    finally:
        if connection.in_transaction:
            connection.execute("commit")


def _begin(connection: sqlite3.Connection, key: Key, after: int, upto: int | None) -> Reading | None:
    row = rows.load(connection, key)
    end = min(row.info.head, row.info.head if upto is None else upto) if row is not None else 0
    after = max(after, 0)
    if row is None or end <= after:
        return None
    chain = Chain(key[1], after, hash_of(body_of(connection, key, after)) if after else "")
    return go_on(connection, key, Reading(chain, row.info.head, row.info.hash, end, []))


def go_on(connection: sqlite3.Connection, key: Key, reading: Reading) -> Reading:
    """Read some more events. They count only when the one after them was seen, which ``events`` respects."""
    chain, events = reading.chain, reading.events
    found = more(connection, key, chain, reading.upto)
    if (
        not found
        and connection.execute("select 1 from sessions where namespace=? and session=?", key).fetchone() is None
    ):
        raise NotFound(f"session {key[1]!r} was deleted while it was read")
    events += found
    if reading.ended:
        if reading.upto == reading.head:
            chain.end(reading.head, reading.hash)
        else:
            Chain(key[1], chain.seq, events[-1].hash).take(chain.seq + 1, body_of(connection, key, chain.seq + 1))
    elif not found:
        chain.end(reading.head, reading.hash)
    return reading


def more(connection: sqlite3.Connection, key: Key, chain: Chain, upto: int) -> list[Event]:
    """Return the next events, up to a chunk of them, checked by the chain."""
    events: list[Event] = []
    size = 0
    # A cursor that an error keeps alive would keep the connection in the past.
    with closing(connection.execute(_SOME, (*key, chain.seq, upto, CHUNK_ROWS))) as found:
        for seq, body in found:
            events.append(chain.take(seq, bytes_of(key, seq, body)))
            size += len(body)
            if size > CHUNK_BYTES:
                break
    return events
