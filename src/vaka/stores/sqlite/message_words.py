"""The word index of messages: it follows the message rows in batches."""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from vaka.core.ports.messages import MessageRow
from vaka.core.session.hash_chain import hash_of
from vaka.core.session.message_rows import indexed_blobs_of, message_of, select_messages
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Event, decode
from vaka.core.types.ids import Digest
from vaka.stores.message_pages import scope_word, words_of
from vaka.stores.sqlite import rows
from vaka.stores.sqlite.database import SqliteDatabase
from vaka.stores.sqlite.rows import SqliteKey
from vaka.text.search import join_words

BACKLOG_EVENTS = 2048
"""Events of an older session that get message rows in one transaction."""

_THREAD_SIZE = 1 << 30
"""A size that sends work to the writer thread."""

_SELECT_WAITING = (
    "select m.number, m.checksum, m.namespace, m.session, m.seq, e.body from messages m left join events e "
    "on e.namespace = m.namespace and e.session = m.session and e.seq = m.seq where m.number > ? order by m.number "
    "limit ?"
)
_SELECT_CHECKSUMS = "select number, checksum from messages where number > ? and number <= ?"
_INSERT_WORDS = "insert into message_words (rowid, scope, words) values (?,?,?)"
_SELECT_EVENTS = "select seq, body from events where namespace = ? and session = ? and seq > ? order by seq limit ?"
_SELECT_BACKLOG = (
    "select b.namespace, b.session from message_backlog b left join sessions s "
    "on s.namespace = b.namespace and s.session = b.session where b.namespace = ?"
)


class WaitingMessage(NamedTuple):
    """A message whose words are not indexed yet; ``words`` are joined, ``""`` for an event that is damaged."""

    number: int
    checksum: int
    scope: str
    words: str


def read_waiting(connection: sqlite3.Connection, limit: int) -> tuple[int, list[WaitingMessage]]:
    """Return the number of the last message that is indexed, and the next ones with their words."""
    indexed: int = connection.execute("select indexed from message_progress").fetchone()[0]
    return indexed, [
        WaitingMessage(
            number, checksum, f"{scope_word('n', namespace)} {scope_word('s', namespace, session)}",
            _words_of(connection, (namespace, session), seq, checksum, body),
        )
        for number, checksum, namespace, session, seq, body in connection.execute(
            _SELECT_WAITING, (indexed, limit)
        ).fetchall()
    ]  # fmt: skip


def _words_of(connection: sqlite3.Connection, key: SqliteKey, seq: int, checksum: int, body: object) -> str:
    try:
        message = load_message(connection, key, seq, checksum, body)
    except Corrupt:  # listing the session reports it
        return ""
    return join_words(words_of(message, load_blobs(connection, key[0], message)))


def load_message(connection: sqlite3.Connection, key: SqliteKey, seq: int, checksum: int, body: object) -> MessageRow:
    """Return the message that a stored event is; ``Corrupt`` when it is not the one that its row was made of."""
    stored = rows.check_body(key, seq, body)
    message = message_of(decode(stored)) if zlib.crc32(stored) == checksum else None
    if message is None or (message.session, message.seq) != (key[1], seq):
        raise Corrupt(
            f"session {key[1]!r}: event {seq} or its row in the message index is damaged; check the session with "
            "`vaka sessions verify`, or rebuild the index with `vaka doctor --reindex`"
        )
    if message.role != "tool":
        return message
    found = connection.execute(
        "select e.body from names n join events e on e.namespace = n.namespace and e.session = n.session "
        "and e.seq = n.seq where n.namespace = ? and n.session = ? and n.kind = 'call' and n.name = ?",
        (*key, message.id),
    ).fetchone()
    call = message_of(decode(rows.check_body(key, seq, found[0]))) if found else None
    return message_of(decode(stored), name=call.name if call else "") or message


def load_blobs(connection: sqlite3.Connection, namespace: str, message: MessageRow) -> dict[Digest, bytes]:
    """Return the texts of a message that are stored as blobs; without those that are missing or damaged."""
    found: dict[Digest, bytes] = {}
    for digest in indexed_blobs_of(message):
        record = connection.execute(
            "select data from blobs where namespace = ? and digest = ?", (namespace, digest)
        ).fetchone()
        if record is not None and isinstance(record[0], bytes) and hash_of(record[0]) == digest:
            found[digest] = record[0]
    return found


async def index_waiting(database: SqliteDatabase) -> bool:
    """Index the words of one batch of messages; false when there is none left, or other processes do so.

    The words are split before the transaction begins, so that it is short.
    """
    indexed, batch = await database.run_in_thread(partial(read_waiting, limit=rows.WORDS_BATCH))
    return bool(batch) and await database.write(partial(_insert_words, indexed, batch), size=_THREAD_SIZE)


async def index_batches(database: SqliteDatabase, *, rest: int = 0) -> None:
    """Index batches until at most ``rest`` messages wait, or other processes index them."""
    while await database.read(rows.count_waiting) > rest and await index_waiting(database):
        pass


def _insert_words(indexed: int, batch: list[WaitingMessage], connection: sqlite3.Connection) -> bool:
    """Insert the words of messages that still exist; nothing when others have been indexed or inserted meanwhile."""
    words = {one.number: one for one in batch}
    found = dict(connection.execute(_SELECT_CHECKSUMS, (indexed, batch[-1].number)))
    is_current = connection.execute("select indexed from message_progress").fetchone() == (indexed,)
    if not is_current or any(number not in words or words[number].checksum != crc for number, crc in found.items()):
        return False
    connection.executemany(_INSERT_WORDS, [(one.number, one.scope, one.words) for one in batch if one.number in found])
    connection.execute("update message_progress set indexed = ?", (max(found, default=indexed),))
    return True


async def index_backlog(database: SqliteDatabase, namespace: str, session: str | None = None) -> None:
    """Insert the message rows of sessions that were written before the index existed: of one, or of all."""
    query, values = _SELECT_BACKLOG, [namespace]
    if session is not None:
        query, values = f"{_SELECT_BACKLOG} and b.session = ?", [namespace, session]

    def find_next(connection: sqlite3.Connection) -> SqliteKey | None:
        found: SqliteKey | None = connection.execute(f"{query} order by s.updated limit 1", values).fetchone()
        return found

    while (key := await database.read(find_next)) is not None:
        await database.write(partial(_insert_backlog_rows, key), size=_THREAD_SIZE)


def _insert_backlog_rows(key: SqliteKey, connection: sqlite3.Connection) -> None:
    """Insert the message rows of the next events of a session of the backlog; a damaged event is left out."""
    query = "select seq from message_backlog where namespace = ? and session = ?"
    record = connection.execute(query, key).fetchone()
    if record is None:
        return
    found = connection.execute(_SELECT_EVENTS, (*key, record[0], BACKLOG_EVENTS)).fetchall()
    rows.insert_old_messages(connection, key, select_messages(_decode_all(body for _, body in found)))
    if len(found) == BACKLOG_EVENTS:
        statement = "update message_backlog set seq = ? where namespace = ? and session = ?"
        connection.execute(statement, (found[-1][0], *key))
    else:
        connection.execute("delete from message_backlog where namespace = ? and session = ?", key)


def _decode_all(bodies: Iterable[object]) -> Iterator[Event]:
    for body in bodies:
        if isinstance(body, bytes):
            with suppress(Corrupt):
                yield decode(body)
