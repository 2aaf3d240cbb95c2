"""Erasing sessions: their data are overwritten, their hashes stay."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from vaka.core.ports.erasure import EraseResult
from vaka.core.ports.store import SessionInfo
from vaka.core.session.hash_chain import HashChain
from vaka.core.session.index_rows import advance_row
from vaka.core.types.errors import Busy, Corrupt, NotFound, StoreError
from vaka.core.types.ids import SessionId
from vaka.stores.common import current_time
from vaka.stores.erased_events import count_erased_bytes, erase_event, seal_erased
from vaka.stores.sqlite import rows
from vaka.stores.sqlite.connection import LOCK_TIMEOUT, is_locked
from vaka.stores.sqlite.hub import OpenSqliteStore, SqlitePort
from vaka.stores.sqlite.maintenance import shrink_file
from vaka.stores.sqlite.rows import SessionRow, SqliteKey

MAX_VACUUM_BYTES = 256 * 1024 * 1024
"""Files up to this size are written anew in a few seconds, for which other writers wait."""
_BATCH_SESSIONS = 32
"""Sessions of one transaction: each transaction reads once which blobs all other sessions refer to."""
BATCH_EVENTS = 20_000
"""Events after which a transaction erases no further session: other writers wait for its end."""
_THREAD_SIZE = 1 << 30
"""A size that sends work to the writer thread."""
_ERASED_TABLES = ("names", "decisions", "snapshots")
_UPDATE_BODY = "update events set body = ? where namespace = ? and session = ? and seq = ?"
_SELECT_BLOB_NAMES = "select name, session from names where namespace = ? and kind = 'blob'"
_SELECT_NAMED = "select name from names where namespace = ? and session = ? and kind = 'blob'"
_DELETE_BLOB = "delete from blobs where namespace = ? and digest = ? returning length(data)"


class _ErasedLog(NamedTuple):
    """A session whose events are stubs already, and whose row is not changed yet."""

    row: SessionRow
    events: int
    bytes: int


class _Batch(NamedTuple):
    """The outcome of one transaction."""

    seen: int
    """The number of sessions that it looked at."""
    infos: dict[SqliteKey, SessionInfo]
    failed: dict[SessionId, StoreError | NotFound]
    events: int
    blobs: int
    bytes: int


class SqliteErasure(SqlitePort):
    """Erases sessions of one namespace. A file of more than ``max_bytes`` is not written anew afterwards."""

    def __init__(
        self, store: OpenSqliteStore, *, max_bytes: int = MAX_VACUUM_BYTES, batch_events: int = BATCH_EVENTS
    ) -> None:
        super().__init__(store)
        self._max_bytes, self._batch_events = max_bytes, batch_events

    async def erase(self, sessions: Sequence[SessionId], *, by: str = "") -> EraseResult:
        result, unique = EraseResult(), list(dict.fromkeys(sessions))
        while unique:
            keys = [self._key(session) for session in unique[:_BATCH_SESSIONS]]
            batch = await self._database.write(
                partial(self._erase_batch, keys, by), size=_THREAD_SIZE, appends=True, on_commit=self._announce
            )
            unique = unique[batch.seen :]
            result = EraseResult(
                sessions=(*result.sessions, *(info.id for info in batch.infos.values())),
                events=result.events + batch.events,
                blobs=result.blobs + batch.blobs,
                bytes=result.bytes + batch.bytes,
                failed=result.failed | {session: str(error) for session, error in batch.failed.items()},
                busy=(*result.busy, *(session for session, error in batch.failed.items() if isinstance(error, Busy))),
            )
        await self._database.write(_merge_words, size=_THREAD_SIZE)
        overwritten = await self._database.run_in_thread(partial(_overwrite, max_bytes=self._max_bytes))
        return replace(result, overwritten=overwritten)

    def _announce(self, batch: _Batch) -> None:
        for key, info in batch.infos.items():
            self._hub.mark_stale(key)
            self._hub.notify_head(key, info.head)

    def _erase_batch(self, keys: Sequence[SqliteKey], by: str, connection: sqlite3.Connection) -> _Batch:
        connection.execute("pragma secure_delete = on").close()
        try:
            seen, logs, failed = self._erase_logs(connection, keys)
            blobs = _find_blobs(connection, self._namespace, [key[1] for key in logs])
            infos: dict[SqliteKey, SessionInfo] = {}
            size = sum(log.bytes for log in logs.values())
            for key, log in logs.items():
                own = [digest for digest, session in blobs.items() if session == key[1]]
                for digest in own:
                    size += sum(length for (length,) in connection.execute(_DELETE_BLOB, (key[0], digest)).fetchall())
                infos[key] = _end_log(connection, key, log, len(own), by)
            return _Batch(seen, infos, failed, sum(log.events for log in logs.values()), len(blobs), size)
        finally:
            connection.execute("pragma secure_delete = fast").close()

    def _erase_logs(
        self, connection: sqlite3.Connection, keys: Sequence[SqliteKey]
    ) -> tuple[int, dict[SqliteKey, _ErasedLog], dict[SessionId, StoreError | NotFound]]:
        """Erase the events of the first sessions; return how many, those erased now, and why others could not be."""
        logs: dict[SqliteKey, _ErasedLog] = {}
        failed: dict[SessionId, StoreError | NotFound] = {}
        seen = 0
        for key in keys:
            seen += 1
            connection.execute("savepoint session")
            try:
                log = self._erase_log(connection, key)
            except (StoreError, NotFound) as error:
                connection.execute("rollback to session")
                failed[key[1]] = error
            else:
                if log is not None:
                    logs[key] = log
            finally:
                connection.execute("release session")
            if sum(log.events for log in logs.values()) >= self._batch_events:
                break
        return seen, logs, failed

    def _erase_log(self, connection: sqlite3.Connection, key: SqliteKey) -> _ErasedLog | None:
        row = rows.load_row(connection, key)
        if row is None:
            raise NotFound(f"there is no session {key[1]!r}")
        if self._hub.is_written_by(key, row.owner):
            raise Busy(f"session {key[1]!r} has a writer; end its turn first")
        if row.info.erased:
            return None
        chain = HashChain(key[1])
        count = 0
        size = 0
        while events := rows.read_chunk(connection, key, chain, row.info.head):
            stubs = [erase_event(event) for event in events]
            size += count_erased_bytes(events, stubs)
            changed = [(stub.stored, *key, stub.seq) for stub in stubs if stub.erased]
            connection.executemany(_UPDATE_BODY, changed)
            count += len(changed)
        chain.check_end(row.info.head, row.info.hash)
        if chain.erased:
            raise Corrupt(f"session {key[1]!r}: data of {chain.erased} events are missing, and no event says why")
        return _ErasedLog(row, count, size)


def _merge_words(connection: sqlite3.Connection) -> None:
    """Merge the parts of the word index: until then it has the words of deleted messages."""
    connection.execute("insert into message_words (message_words) values ('optimize')").close()


def _overwrite(connection: sqlite3.Connection, max_bytes: int) -> bool:
    """Write the file anew, without the bytes that balancing its trees has left in unused parts of pages.

    Return whether no such bytes are left. They are while another process reads an older state of the database.
    """
    ((pages,),), ((size,),) = (connection.execute(f"pragma {name}").fetchall() for name in ("page_count", "page_size"))
    is_small = pages * size <= max_bytes
    if is_small:
        try:
            connection.execute("vacuum").close()
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
            is_small = False
    connection.execute("pragma busy_timeout = 500").close()  # a reader may stay for hours
    try:
        return shrink_file(connection) and is_small
    finally:
        connection.execute(f"pragma busy_timeout = {int(LOCK_TIMEOUT * 1000)}").close()


def _find_blobs(connection: sqlite3.Connection, namespace: str, sessions: Sequence[SessionId]) -> dict[str, SessionId]:
    """Return the blobs that only these sessions refer to, each with a session that does."""
    blobs: dict[str, SessionId] = {}
    for session in sessions:
        blobs |= {digest: session for (digest,) in connection.execute(_SELECT_NAMED, (namespace, session)).fetchall()}
    if blobs:
        erased = set(sessions)
        for digest, session in connection.execute(_SELECT_BLOB_NAMES, (namespace,)):
            if session not in erased:
                blobs.pop(digest, None)
    return blobs


def _end_log(connection: sqlite3.Connection, key: SqliteKey, log: _ErasedLog, blobs: int, by: str) -> SessionInfo:
    """Append the event that ends an erased log, and delete everything beside the log."""
    old = log.row
    event = seal_erased(old.info, events=log.events, blobs=blobs, by=by, ts=current_time())
    info = advance_row(old.info, [event])
    rows.update_row(connection, key, info, "", old)
    for table in _ERASED_TABLES:
        connection.execute(f"delete from {table} where namespace = ? and session = ?", key)  # noqa: S608  # nosec B608  # constants
    rows.delete_session_values(connection, key)
    rows.delete_messages(connection, key)
    rows.insert_events(connection, key, [event])
    return info
