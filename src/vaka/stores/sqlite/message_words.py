"""The word index of messages: it follows the message rows in batches."""

import asyncio
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import msgspec

from vaka.core.ports.messages import MessageRow
from vaka.core.session.hash_chain import hash_of
from vaka.core.types.decode import decode, decode_batch
from vaka.core.types.errors import Corrupt
from vaka.core.types.ids import Digest
from vaka.core.types.message import Content
from vaka.core.types.progress import ToolCalled
from vaka.stores.message_pages import decode_intact, name_word, scope_word, words_of
from vaka.stores.message_rows import (
    MESSAGE_ROLES,
    content_of,
    indexed_blobs_of,
    message_of,
    select_messages,
)
from vaka.stores.sqlite import rows
from vaka.stores.sqlite.database import SqliteDatabase
from vaka.stores.sqlite.rows import SqliteKey
from vaka.text.search import join_words
from vaka.text.words import unspaced_characters

BACKLOG_EVENTS = 2048
"""Events of an older session that get message rows in one transaction."""

SLICE_ROWS, SLICE_BYTES = 64, 64 * 1024
"""Limits of the messages whose words are split at once."""

BATCH_ROWS, BATCH_BYTES = 128, 16 * 1024
"""Limits of the messages whose words are inserted in one transaction: it takes about two milliseconds.

A long message, whose words far exceed the limit, is inserted in the writer thread.
"""

MERGED_PAGES = 4
"""Pages of the word index that are merged for each page of words: each is merged again three or four times."""
_PAGE_BYTES = 4096

_THREAD_SIZE = 1 << 30
"""A size that sends work to the writer thread."""

_SELECT_WAITING = (
    "select m.number, m.checksum, m.namespace, m.session, m.id, e.body from messages m left join events e "
    "on e.namespace = m.namespace and e.session = m.session and e.seq = m.seq where m.number > ? order by m.number "
    "limit ?"
)
_SELECT_WAITING_CHECKSUMS = "select number, checksum from messages where number > ? order by number"
_SELECT_CALL = (
    "select e.body from events e where e.namespace = ?1 and e.session = ?2 and e.seq = (select m.seq from messages m "
    "where m.namespace = ?1 and m.session = ?2 and m.seq < ?3 and m.role = 'call' and m.id = ?4 "
    "order by m.seq desc limit 1)"
)
"""The call of a result: it is one of the last calls before it."""
_SELECT_CHECKSUMS = "select number, checksum from messages where number > ? and number <= ?"
_INSERT_WORDS = "insert or replace into message_words (rowid, scope, words, characters) values (?,?,?,?)"
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


def read_indexed(connection: sqlite3.Connection) -> int:
    """Return the number of the last message whose words are indexed."""
    record = connection.execute("select indexed from message_progress").fetchone()
    if record is None or not isinstance(record[0], int):
        raise Corrupt("the progress of the message index is damaged; rebuild it with `vaka doctor --reindex`")
    return record[0]


def repair_words(connection: sqlite3.Connection) -> None:
    """Rebuild the word index if it is damaged, and restore its progress."""
    if connection.execute("select 1 from message_progress where typeof(indexed) = 'integer'").fetchone() is None:
        connection.execute("delete from message_progress")
        connection.execute("insert into message_progress values (0)")
    try:
        connection.execute("insert into message_words (message_words) values ('integrity-check')")
    except sqlite3.DatabaseError:
        connection.execute("insert into message_words (message_words) values ('rebuild')")


def read_waiting(after: int, connection: sqlite3.Connection) -> list[WaitingMessage]:
    """Return the next messages after a number, with their words: so few that it takes less than a millisecond."""
    found: list[Any] = []
    size = 0
    with closing(connection.execute(_SELECT_WAITING, (after, SLICE_ROWS))) as records:
        for record in records:
            found.append(record)
            size += len(record[-1] or b"")
            if size > SLICE_BYTES:
                break
    return split_messages(connection, found)


class WaitingWords:
    """The messages that wait for their words to be indexed, split once for all searches of a handle."""

    def __init__(self) -> None:
        self._known: dict[int, WaitingMessage] = {}

    def read(self, connection: sqlite3.Connection) -> list[WaitingMessage]:
        """Return the messages that wait, newest first."""
        indexed = read_indexed(connection)
        found: dict[int, int] = dict(connection.execute(_SELECT_WAITING_CHECKSUMS, (indexed,)).fetchall())
        known = {number: one for number, one in self._known.items() if found.get(number) == one.checksum}
        missing = [number for number in found if number not in known]
        if missing:
            records = connection.execute(_SELECT_WAITING, (missing[0] - 1, len(found))).fetchall()
            new = split_messages(connection, [record for record in records if record[0] not in known])
            known |= {one.number: one for one in new}
        self._known = known
        return sorted(known.values(), reverse=True)


def split_messages(connection: sqlite3.Connection, found: Sequence[tuple[Any, ...]]) -> list[WaitingMessage]:
    """Return the messages of ``_SELECT_WAITING`` with their words; a damaged one has none: listing it reports that."""
    intact = [
        body if isinstance(body, bytes) and zlib.crc32(body) == checksum else None for _, checksum, *_, body in found
    ]
    waiting: list[WaitingMessage] = []
    for (number, checksum, namespace, session, id, _), event in zip(found, decode_intact(intact), strict=True):
        words: Sequence[str] = ()
        if event is not None and type(event.data) in MESSAGE_ROLES:
            words = words_of(event, load_blobs(connection, namespace, content_of(event)))
        within = f"{scope_word('n', namespace)} {scope_word('s', namespace, session)}"
        scope = f"{within} {name_word('i', namespace, session, id)}"
        waiting.append(WaitingMessage(number, checksum, scope, join_words(words)))
    return waiting


def load_messages(
    connection: sqlite3.Connection, key: SqliteKey, records: Sequence[tuple[int, int, object]]
) -> list[MessageRow]:
    """Return the messages that stored events are; ``Corrupt`` when one is not what its row was made of.

    A record has the seq and the checksum of the row, and the body of the event.
    """
    bodies = [rows.check_body(key, seq, body) for seq, _, body in records]
    for (seq, checksum, _), body in zip(records, bodies, strict=True):
        if zlib.crc32(body) != checksum:
            raise _damage_error(key, seq)
    found: list[MessageRow] = []
    for (seq, _, _), event in zip(records, decode_batch(bodies), strict=True):
        message = message_of(key[1], event)
        if message is None or message.seq != seq:
            raise _damage_error(key, seq)
        found.append(message if message.role != "tool" else _with_tool_name(connection, key, message))
    return found


def load_message(connection: sqlite3.Connection, key: SqliteKey, seq: int, checksum: int, body: object) -> MessageRow:
    """Return the message that one stored event is; see ``load_messages``."""
    return load_messages(connection, key, [(seq, checksum, body)])[0]


def _damage_error(key: SqliteKey, seq: int) -> Corrupt:
    return Corrupt(
        f"session {key[1]!r}: event {seq} or its row in the message index is damaged; check the session with "
        "`vaka sessions verify`, or rebuild the index with `vaka doctor --reindex`"
    )


def _with_tool_name(connection: sqlite3.Connection, key: SqliteKey, message: MessageRow) -> MessageRow:
    found = connection.execute(_SELECT_CALL, (*key, message.seq, message.id)).fetchone()
    call = decode(rows.check_body(key, message.seq, found[0])).data if found else None
    return msgspec.structs.replace(message, name=call.call.name) if isinstance(call, ToolCalled) else message


def load_blobs(connection: sqlite3.Connection, namespace: str, content: Content) -> dict[Digest, bytes]:
    """Return the texts of a message that are stored as blobs, without missing and damaged texts."""
    found: dict[Digest, bytes] = {}
    for digest in indexed_blobs_of(content):
        record = connection.execute(
            "select data from blobs where namespace = ? and digest = ?", (namespace, digest)
        ).fetchone()
        if record is not None and isinstance(record[0], bytes) and hash_of(record[0]) == digest:
            found[digest] = record[0]
    return found


async def index_waiting(database: SqliteDatabase) -> bool:
    """Index the words of one batch of messages; false when there is none left, or other processes do so.

    The words are split before the transaction begins, in slices between which other tasks run. In the writer thread
    they would cost three times as much: both threads would wait for the interpreter's lock.
    """
    indexed = after = await database.read(read_indexed)
    batch: list[WaitingMessage] = []
    size = 0
    while len(batch) < BATCH_ROWS and size < BATCH_BYTES:
        if not (found := await database.read(partial(read_waiting, after))):
            break
        batch += found
        size, after = sum(len(one.scope) + len(one.words) for one in batch), batch[-1].number
        await asyncio.sleep(0)
    work = partial(_insert_words, indexed, batch, 1 + MERGED_PAGES * size // _PAGE_BYTES)
    if not batch:
        return False
    return await database.write(work, rows=len(batch), size=_THREAD_SIZE if size > 4 * BATCH_BYTES else size)


async def index_batches(database: SqliteDatabase, rest: int, is_closing: Callable[[], bool]) -> None:
    """Index batches until at most ``rest`` messages wait, the store closes, or no process makes progress."""
    waiting = await database.read(rows.count_waiting)
    while waiting > rest and not is_closing():
        indexed = await index_waiting(database)
        before, waiting = waiting, await database.read(rows.count_waiting)
        if not indexed and waiting >= before:
            return


def _insert_words(indexed: int, batch: list[WaitingMessage], pages: int, connection: sqlite3.Connection) -> bool:
    """Insert the words of messages that still exist; nothing when others have been indexed or inserted meanwhile.

    Then merge parts of the index, up to ``pages`` pages.
    """
    words = {one.number: one for one in batch}
    found = dict(connection.execute(_SELECT_CHECKSUMS, (indexed, batch[-1].number)))
    is_known = all(number in words and words[number].checksum == checksum for number, checksum in found.items())
    if read_indexed(connection) != indexed or not is_known:
        return False
    connection.executemany(
        _INSERT_WORDS,
        [(one.number, one.scope, one.words, unspaced_characters(one.words)) for one in batch if one.number in found],
    )
    connection.execute("update message_progress set indexed = ?", (max(found, default=indexed),))
    connection.execute("insert into message_words (message_words, rank) values ('merge', ?)", (pages,))
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
    rows.insert_messages(
        connection, key, select_messages(event for event in decode_intact([body for _, body in found]) if event)
    )
    if len(found) == BACKLOG_EVENTS:
        statement = "update message_backlog set seq = ? where namespace = ? and session = ?"
        connection.execute(statement, (found[-1][0], *key))
    else:
        connection.execute("delete from message_backlog where namespace = ? and session = ?", key)
