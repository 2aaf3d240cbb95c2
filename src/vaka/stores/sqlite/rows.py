"""Rows of the tables of events and sessions."""

import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple, TypeAlias

import msgspec

from vaka.core.ports.store import SessionInfo
from vaka.core.ports.values import session_values_prefix
from vaka.core.session.hash_chain import HashChain, hash_of
from vaka.core.types.control import key_of
from vaka.core.types.decode import decode
from vaka.core.types.errors import Corrupt, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.stores.blob_references import blobs_of, select_keyed_or_blob_events
from vaka.stores.common import decision_changes, join_tags, split_tags
from vaka.stores.message_rows import MESSAGE_ROLES, message_id_of, message_path_of, select_messages

SqliteKey: TypeAlias = tuple[str, SessionId]
"""A namespace and a session in it."""

_FIELDS = (
    "head",
    "hash",
    "epoch",
    "term",
    "title",
    "agent",
    "turn",
    "inputs",
    "pending",
    "closed",
    "created",
    "updated",
    "origin",
    "owner",
    "folder",
    "minute",
    "checksum",
)

_LABEL_FIELDS = ("belongs_to", "tags", "metadata", "state", "version", "erased")
"""Columns that seldom change; an update of the others leaves them out."""

COLUMNS = ", ".join((*_LABEL_FIELDS, *_FIELDS))

_SELECT_ROW = (
    f"select {COLUMNS} from sessions where namespace = ?1 and session = ?2 "  # noqa: S608  # nosec B608  # constants
    f"union all select {', '.join('null' for _ in COLUMNS.split(','))} from events "
    "where namespace = ?1 and session = ?2 limit 1"
)
"""The row of a session; a row of nulls when only its events are there."""

_INSERT_ROW = (
    f"insert or ignore into sessions ({COLUMNS}, namespace, session, indexed) values ({','.join('?' * 25)}, ?7)"  # noqa: S608
)

_WORK_COLUMNS = ("turn", "inputs", "closed")
"""Columns of the index ``sessions_with_work``."""


def _update_statement(*, work: bool, minute: bool) -> str:
    """Return the statement that changes a row. It leaves out unchanged indexed columns: SQLite then skips the index."""
    left_out = {*(() if work else _WORK_COLUMNS), *(() if minute else ("minute",))}
    sets = ", ".join(f"{name}=?{place}" for place, name in enumerate(_FIELDS, 1) if name not in left_out)
    where = "namespace=?18 and session=?19 and head=?20 and term=?21 and owner=?22"
    return f"update sessions set {sets}, indexed=?1 where {where}"  # noqa: S608  # nosec B608  # constants


_UPDATES = {
    (work, minute): _update_statement(work=work, minute=minute) for work in (True, False) for minute in (True, False)
}

_UPDATE_LABELS = (
    "update sessions set belongs_to=?, tags=?, metadata=?, state=?, version=?, erased=? where namespace=? and session=?"
)

_NO_LABELS = ("", "", "")

_NO_STATE = ("active", 0, 0)

_encode = msgspec.json.Encoder().encode


class SessionRow(NamedTuple):
    """The index row of a session, and the name of the handle that writes it (``""`` for none)."""

    info: SessionInfo
    owner: str


def checksum(*fields: object) -> int:
    """Return a CRC-32 of the fields."""
    return zlib.crc32(_encode(fields))


def minute_of(time: str) -> str:
    """Return a time cut to the minute, by which the index orders sessions."""
    return time[:16]


def _values_of(key: SqliteKey, info: SessionInfo, owner: str) -> tuple[Any, ...]:
    fields = (
        info.head,
        info.hash,
        info.epoch,
        info.term,
        info.title,
        info.agent,
        info.turn,
        info.inputs,
        info.pending,
        int(info.closed),
        info.created,
        info.updated,
        info.origin,
        owner,
        info.folder,
    )
    return (*fields, minute_of(info.updated), _checksum_of(key, fields, _labels_of(info)))


def _labels_of(info: SessionInfo) -> tuple[str, str, str, str, int, int]:
    if not (info.owner or info.tags or info.metadata):
        return (*_NO_LABELS, info.state, info.version, info.erased)
    metadata = _encode(info.metadata).decode() if info.metadata else ""
    return info.owner, join_tags(info.tags), metadata, info.state, info.version, info.erased


def _checksum_of(key: SqliteKey, fields: tuple[Any, ...], labels: tuple[Any, ...]) -> int:
    """Return the CRC-32 of a row; ``folder``, the last field, and labels count only if set."""
    fields = fields if fields[-1] else fields[:-1]
    labels = labels[:3] if labels[3:] == _NO_STATE else labels
    return zlib.crc32(_encode((key, fields) if labels == _NO_LABELS else (key, fields, labels)))


def parse_row(key: SqliteKey, record: tuple[Any, ...]) -> SessionRow:
    """Return the row of a session from its ``COLUMNS``; ``Corrupt`` when they were changed."""
    *_, minute, crc = record
    labels, fields = record[:6], record[6:-2]
    try:
        intact = _checksum_of(key, fields, labels) == crc and bytes not in map(type, record)
    except (msgspec.MsgspecError, TypeError, ValueError):
        intact = False
    if not intact or minute != minute_of(fields[11]):
        raise Corrupt(f"session {key[1]!r}: its index row is damaged; rebuild it with `vaka doctor --reindex`")
    head, hash, epoch, term, title, agent, turn, inputs, pending, closed, created, updated, *rest = fields
    origin, owner, folder = rest
    belongs_to, tags, metadata, state, version, erased = labels
    info = SessionInfo(
        id=key[1],
        head=head,
        hash=hash,
        epoch=epoch,
        term=term,
        title=title,
        agent=agent,
        turn=turn,
        inputs=inputs,
        pending=pending,
        closed=bool(closed),
        created=created,
        updated=updated,
        origin=origin,
        folder=folder,
        owner=belongs_to,
        tags=split_tags(tags),
        metadata=msgspec.json.decode(metadata) if metadata else {},
        state=state,
        version=version,
        erased=erased,
    )
    return SessionRow(info, owner)


def load_row(connection: sqlite3.Connection, key: SqliteKey) -> SessionRow | None:
    """Return the row of a session, ``None`` when there is no such session.

    Raises ``Corrupt`` when the row is damaged, or missing although there are events.
    """
    record = connection.execute(_SELECT_ROW, key).fetchone()
    if record is None:
        return None
    if record[-1] is None:
        raise Corrupt(f"session {key[1]!r}: its index row is missing; rebuild it with `vaka doctor --reindex`")
    return parse_row(key, record)


def insert_row(connection: sqlite3.Connection, key: SqliteKey, info: SessionInfo, owner: str) -> bool:
    """Write the first row of a session; false when there is one already."""
    return connection.execute(_INSERT_ROW, (*_labels_of(info), *_values_of(key, info, owner), *key)).rowcount == 1


def update_row(connection: sqlite3.Connection, key: SqliteKey, info: SessionInfo, owner: str, old: SessionRow) -> bool:
    """Change a row; false if head, term or owner differ from ``old``."""
    was = old.info
    work = info.turn != was.turn or info.inputs != was.inputs or info.closed != was.closed
    statement = _UPDATES[work, minute_of(info.updated) != minute_of(was.updated)]
    values = (*_values_of(key, info, owner), *key, was.head, was.term, old.owner)
    changed = connection.execute(statement, values).rowcount == 1
    if changed and info.version != was.version:
        connection.execute(_UPDATE_LABELS, (*_labels_of(info), *key))
    return changed


CHUNK_ROWS = 256

CHUNK_BYTES = 1 << 20

_SELECT_EVENT = "select body from events where namespace = ? and session = ? and seq = ?"

_SELECT_BODIES = (
    "select body from events where namespace = ? and session = ? and seq between ? and ?"
    " and substr(?, seq - ?, 1) = x'01' order by seq"
)
"""The fifth parameter has a byte for each seq from the third to the fourth: 1 for a wanted seq."""

_SELECT_EVENTS = (
    "select seq, body from events where namespace = ? and session = ? and seq > ? and seq <= ? order by seq limit ?"
)

_INSERT_NAME = "insert or ignore into names (namespace, session, kind, name, seq) values (?,?,?,?,?)"

_SELECT_KEY = "select seq from names where namespace = ? and session = ? and kind = 'key' and name = ?"

_INSERT_MESSAGE = (
    "insert or ignore into messages (namespace, session, seq, role, id, ts, path, size, checksum) "
    "values (?,?,?,?,?,?,?,?,?)"
)

SESSION_TABLES = ("events", "names", "decisions", "snapshots", "sessions")
"""Tables with rows of a session."""


WORDS_BATCH = 256
"""When so many messages wait, the words of half of them are indexed. A search reads those that wait."""

_COUNT_WAITING = "select ifnull((select max(number) from messages) - (select indexed from message_progress), 0)"


def count_waiting(connection: sqlite3.Connection) -> int:
    """Return about how many messages wait for their words to be indexed."""
    count: int = connection.execute(_COUNT_WAITING).fetchone()[0]
    return count


def insert_events(connection: sqlite3.Connection, key: SqliteKey, events: Sequence[Event]) -> int:
    """Insert events and their index rows, except the session's own row; return the number of messages."""
    connection.executemany(
        "insert into events (namespace, session, seq, body) values (?,?,?,?)",
        [(*key, event.seq, event.stored) for event in events],
    )
    return insert_index_rows(connection, key, events)


def insert_index_rows(connection: sqlite3.Connection, key: SqliteKey, events: Sequence[Event]) -> int:
    """Insert the decisions, keys, named blobs and messages of events; return the number of messages."""
    opened, settled, settles_all = decision_changes(key[1], events)
    if settles_all:
        connection.execute("delete from decisions where namespace = ? and session = ?", key)
    elif settled:
        statement = "delete from decisions where namespace = ? and session = ? and decision = ?"
        connection.executemany(statement, [(*key, decision) for decision in settled])
    if opened:
        connection.executemany(
            "insert or replace into decisions (namespace, session, decision, seq, hash) values (?,?,?,?,?)",
            [(*key, row.id, row.seq, row.event.hash) for row in opened],
        )
    names: list[tuple[str, str, str, str, int]] = []
    for event in select_keyed_or_blob_events(events):
        if name := key_of(event.data):
            names.append((*key, "key", name, event.seq))
        names += [(*key, "blob", digest, event.seq) for digest in blobs_of(event)]
    if names:
        connection.executemany(_INSERT_NAME, names)
    if messages := select_messages(events):
        insert_messages(connection, key, messages)
    return len(messages)


def insert_messages(connection: sqlite3.Connection, key: SqliteKey, messages: Sequence[Event]) -> None:
    """Insert the rows of events that are messages; their words follow later (``message_words``)."""
    namespace, session = key
    found = [
        (
            namespace,
            session,
            event.seq,
            MESSAGE_ROLES[type(event.data)],
            message_id_of(event),
            event.ts,
            "/".join(message_path_of(event)),
            len(event.stored),
            zlib.crc32(event.stored),
        )
        for event in messages
    ]
    connection.executemany(_INSERT_MESSAGE, found)


def delete_messages(connection: sqlite3.Connection, key: SqliteKey) -> None:
    """Delete the message rows of a session, and their words."""
    connection.execute(
        "delete from message_words where rowid in (select number from messages where namespace = ? and session = ?)",
        key,
    )
    for table in ("messages", "message_backlog"):
        connection.execute(f"delete from {table} where namespace = ? and session = ?", key)  # noqa: S608  # nosec B608  # constants
    # A new message may get the number of a deleted one.
    connection.execute(
        "update message_progress set indexed = min(indexed, (select ifnull(max(number), 0) from messages))"
    )


def seq_of(connection: sqlite3.Connection, key: SqliteKey, name: str) -> int | None:
    """Return the seq of the first event with a key."""
    record = connection.execute(_SELECT_KEY, (*key, name)).fetchone()
    if record is None:
        return None
    seq: int = record[0]
    if key_of(decode(load_body(connection, key, seq)).data) != name:
        raise Corrupt(f"session {key[1]!r}: the index names a wrong key for event {seq}; run `vaka doctor --reindex`")
    return seq


def load_body(connection: sqlite3.Connection, key: SqliteKey, seq: int) -> bytes:
    """Return the stored bytes of an event; ``Corrupt`` when it is missing."""
    record = connection.execute(_SELECT_EVENT, (*key, seq)).fetchone()
    return check_body(key, seq, record[0] if record else None)


def read_bodies(connection: sqlite3.Connection, key: SqliteKey, seqs: Sequence[int]) -> list[object]:
    """Return the stored bytes of events; ``Corrupt`` when one of them is missing."""
    first, last = seqs[0], seqs[-1]
    wanted = bytearray(last - first + 1)
    for seq in seqs:
        wanted[seq - first] = 1
    with closing(connection.execute(_SELECT_BODIES, (*key, first, last, wanted, first - 1))) as records:
        bodies = [body for (body,) in records]
    if len(bodies) != len(seqs):
        if load_row(connection, key) is None:
            raise NotFound(f"there is no session {key[1]!r}")
        raise Corrupt(f"session {key[1]!r}: one of the events {first} to {last} is missing")
    return bodies


def check_body(key: SqliteKey, seq: int, body: object) -> bytes:
    """Return a body from the database; ``Corrupt`` when it is not bytes."""
    if not isinstance(body, bytes):
        raise Corrupt(f"session {key[1]!r}: event {seq} is missing or damaged")
    return body


def delete_session(connection: sqlite3.Connection, key: SqliteKey) -> None:
    """Delete all rows of a session, and its values."""
    delete_messages(connection, key)
    for table in SESSION_TABLES:
        connection.execute(f"delete from {table} where namespace = ? and session = ?", key)  # noqa: S608  # nosec B608  # constants
    delete_session_values(connection, key)


def delete_session_values(connection: sqlite3.Connection, key: SqliteKey) -> None:
    """Delete the values that belong to a session."""
    prefix = session_values_prefix(key[1])
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    connection.execute("delete from pairs where namespace = ? and key >= ? and key < ?", (key[0], prefix, end))


class LogRead(NamedTuple):
    """The progress of a read: the chain so far, the end to reach, and the events of the last chunk."""

    chain: HashChain
    head: int
    hash: str
    upto: int
    events: list[Event]

    @property
    def is_complete(self) -> bool:
        return self.chain.seq >= self.upto


def begin_read(connection: sqlite3.Connection, key: SqliteKey, after: int, upto: int | None) -> LogRead | None:
    """Read the first events after ``after``, up to the current head; ``None`` when there are none."""
    connection.execute("begin")  # one snapshot for all statements
    try:
        return _read_first_chunk(connection, key, after, upto)
    finally:
        if connection.in_transaction:
            connection.execute("commit")


def _read_first_chunk(connection: sqlite3.Connection, key: SqliteKey, after: int, upto: int | None) -> LogRead | None:
    row = load_row(connection, key)
    end = min(row.info.head, row.info.head if upto is None else upto) if row is not None else 0
    after = max(after, 0)
    if row is None or end <= after:
        return None
    chain = HashChain(key[1], after, hash_of(load_body(connection, key, after)) if after else "")
    return continue_read(connection, key, LogRead(chain, row.info.head, row.info.hash, end, []))


def continue_read(connection: sqlite3.Connection, key: SqliteKey, reading: LogRead) -> LogRead:
    """Read another chunk. Its last event is verified by the next chunk, or by the event after ``upto``."""
    chain, events = reading.chain, reading.events
    chunk = read_chunk(connection, key, chain, reading.upto)
    query = "select 1 from sessions where namespace=? and session=?"
    if not chunk and connection.execute(query, key).fetchone() is None:
        raise NotFound(f"session {key[1]!r} was deleted while it was read")
    if chain.erased:
        check_erased(connection, key, chain)
    events += chunk
    if reading.is_complete and reading.upto < reading.head:
        following = chain.seq + 1
        HashChain(key[1], chain.seq, events[-1].hash).check_next(following, load_body(connection, key, following))
    elif reading.is_complete or not chunk:
        chain.check_end(reading.head, reading.hash)
    return reading


def check_erased(connection: sqlite3.Connection, key: SqliteKey, chain: HashChain, seq: int | None = None) -> None:
    """Raise ``Corrupt`` unless the event that the session's row names, or ``seq``, accounts for erased events."""
    if seq is None:
        row = load_row(connection, key)
        seq = row.info.erased if row is not None else 0
    chain.check_erased(decode(load_body(connection, key, seq)) if seq else None)


def read_chunk(connection: sqlite3.Connection, key: SqliteKey, chain: HashChain, upto: int) -> list[Event]:
    """Return the next events, up to a chunk of them, checked by the chain."""
    events: list[Event] = []
    size = 0
    # A cursor that an exception's traceback keeps alive would hold the connection at an old snapshot.
    with closing(connection.execute(_SELECT_EVENTS, (*key, chain.seq, upto, CHUNK_ROWS))) as records:
        for seq, body in records:
            events.append(chain.check_next(seq, check_body(key, seq, body)))
            size += len(body)
            if size > CHUNK_BYTES:
                break
    return events
