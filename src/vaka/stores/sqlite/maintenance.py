"""Garbage collection, and rebuilding the index from the logs."""

import sqlite3
from collections.abc import Collection
from functools import partial
from typing import Any

from vaka.core.ports.store import GcResult, Retention, SessionInfo
from vaka.core.session.hash_chain import HashChain
from vaka.core.session.index_rows import advance_row, replace_fields
from vaka.core.types.errors import Corrupt
from vaka.core.types.ids import SessionId
from vaka.stores.sqlite import rows
from vaka.stores.sqlite.hub import SqlitePort
from vaka.stores.sqlite.rows import SessionRow, SqliteKey

_SELECT_IDLE = (
    "select session from sessions where namespace = ? and updated < ? and turn = '' and inputs = 0 and pending = 0 "
    "order by session"
)
_SELECT_DECISION = "select 1 from decisions where namespace = ? and session = ?"
_SELECT_SESSION_IDS = (
    "select session from events where namespace = ?1 union select session from sessions where namespace = ?1"
)
_SELECT_SIZE = "select coalesce(sum(length(body)), 0) from events where namespace = ? and session = ?"
_SELECT_BLOBS = "select digest, length(data) from blobs where namespace = ? and created < ?"
# Of a session that has put blobs and was never written, only their age protects them.
_IS_WRITTEN = "exists (select 1 from events e where e.namespace = n.namespace and e.session = n.session)"
_SELECT_BLOB_NAMES = (
    f"select n.name, n.session from names n where n.namespace = ? and n.kind = 'blob' and {_IS_WRITTEN}"  # noqa: S608  # nosec B608  # constants
)
_DELETE_BLOB_NAMES = (
    f"delete from names as n where n.namespace = ? and n.kind = 'blob' and not {_IS_WRITTEN} "  # noqa: S608  # nosec B608  # constants
    "and not exists (select 1 from blobs b where b.namespace = n.namespace and b.digest = n.name)"
)
_SELECT_EXPIRED = (
    "select count(*), coalesce(sum(length(value)), 0) from pairs where namespace = ? and expires <> '' and expires < ?"
)
_DELETE_EXPIRED = "delete from pairs where namespace = ? and expires <> '' and expires < ?"
_DELETE_BLOB = "delete from blobs where namespace = ? and digest = ?"
_THREAD_SIZE = 1 << 30
"""A size that sends work to the writer thread."""


class SqliteMaintenance(SqlitePort):
    """Garbage collection and reindexing of one namespace."""

    async def gc(self, retention: Retention) -> GcResult:
        sessions = await self._remove_sessions(retention)
        values, values_size = await self._remove_expired_values(retention)
        blobs = await self._database.run_in_thread(
            partial(self._unreferenced_blobs, before=retention.blobs_before, gone=set(sessions))
        )
        if not retention.dry_run:
            if blobs:
                blobs = await self._database.write(
                    partial(self._delete_blobs, retention.blobs_before), size=_THREAD_SIZE
                )
            await self._database.run_in_thread(shrink_file)
        size = sum(sessions.values()) + sum(blobs.values()) + values_size
        return GcResult(sessions=tuple(sessions), blobs=len(blobs), values=values, bytes=size)

    async def reindex(self) -> int:
        """Rebuild every index row from the logs, one session after the other; ``Corrupt`` names the damaged ones."""
        from vaka.stores.sqlite.message_words import repair_words  # noqa: PLC0415  # only for this, and for a search

        await self._database.write(repair_words, size=_THREAD_SIZE)
        names = await self._fetch(_SELECT_SESSION_IDS)
        damaged: list[str] = []
        count = 0
        for (name,) in names:
            try:
                count += await self._database.write(partial(_rebuild_index, self._key(name)), size=_THREAD_SIZE)
            except Corrupt as error:
                damaged.append(str(error))
        await self._hub.index_until(0)
        if damaged:
            raise Corrupt(f"{len(damaged)} of {len(names)} sessions cannot be indexed: {'; '.join(damaged[:20])}")
        return count

    async def _remove_sessions(self, retention: Retention) -> dict[SessionId, int]:
        """Remove idle sessions, or with ``dry_run`` only find them; return them with their sizes."""
        removed: dict[SessionId, int] = {}
        for (session,) in await self._fetch(_SELECT_IDLE, retention.idle_before):
            work = partial(self._remove_session, self._key(session), retention.idle_before, retention.dry_run)
            size = await (self._database.read(work) if retention.dry_run else self._database.write(work))
            if size is not None:
                removed[session] = size
        return removed

    def _remove_session(self, key: SqliteKey, before: str, dry_run: bool, connection: sqlite3.Connection) -> int | None:
        """Remove a session if it is still idle, and return its size."""
        row = rows.load_row(connection, key)
        if row is None or row.info.updated >= before or self._hub.is_written_by(key, row.owner):
            return None
        if row.info.turn or row.info.inputs or row.info.pending or connection.execute(_SELECT_DECISION, key).fetchone():
            return None
        size: int = connection.execute(_SELECT_SIZE, key).fetchone()[0]
        if not dry_run:
            rows.delete_session(connection, key)
        return size

    async def _remove_expired_values(self, retention: Retention) -> tuple[int, int]:
        """Remove expired values, or with ``dry_run`` only count them; return their number and size."""
        key = (self._namespace, retention.expired_before)

        def remove(connection: sqlite3.Connection) -> tuple[int, int]:
            count, size = connection.execute(_SELECT_EXPIRED, key).fetchone()
            if count and not retention.dry_run:
                connection.execute(_DELETE_EXPIRED, key)
            return count, size

        return await (self._database.read(remove) if retention.dry_run else self._database.write(remove))

    def _unreferenced_blobs(self, connection: sqlite3.Connection, before: str, gone: Collection[str]) -> dict[str, int]:
        """Return the blobs that no session outside ``gone`` names, with their sizes."""
        sizes: dict[str, int] = dict(connection.execute(_SELECT_BLOBS, (self._namespace, before)))
        if sizes:
            for digest, session in connection.execute(_SELECT_BLOB_NAMES, (self._namespace,)):
                if session not in gone:
                    sizes.pop(digest, None)
        return sizes

    def _delete_blobs(self, before: str, connection: sqlite3.Connection) -> dict[str, int]:
        """Remove unreferenced blobs: looked up again inside the write transaction."""
        blobs = self._unreferenced_blobs(connection, before, ())
        connection.executemany(_DELETE_BLOB, [(self._namespace, digest) for digest in blobs])
        connection.execute(_DELETE_BLOB_NAMES, (self._namespace,)).close()
        return blobs


def shrink_file(connection: sqlite3.Connection) -> bool:
    """Give unused pages back and empty the write-ahead log; false while another process reads an older state."""
    connection.executescript("pragma incremental_vacuum")  # execute would free one page only
    ((busy, _, _),) = connection.execute("pragma wal_checkpoint(truncate)").fetchall()
    return not busy


def _rebuild_index(key: SqliteKey, connection: sqlite3.Connection) -> bool:
    """Rebuild the rows of one session; false when it has no events, and so does not exist.

    An intact row must agree with its log; a damaged one is replaced.
    """
    old = _previous_row(connection, key)
    info = SessionInfo(id=key[1], term=old.info.term)
    chain = HashChain(key[1])
    rows.delete_messages(connection, key)
    for rows_of in ("names where kind = 'key' and", "decisions where", "sessions where"):  # it may hold blobs, too
        connection.execute(f"delete from {rows_of} namespace = ? and session = ?", key)  # noqa: S608  # nosec B608  # constants
    while events := rows.read_chunk(connection, key, chain, (1 << 63) - 1):
        info = advance_row(info, events)
        rows.insert_index_rows(connection, key, events)
    if chain.erased:
        rows.check_erased(connection, key, chain, info.erased)
    if old.info.head:
        chain.check_end(old.info.head, old.info.hash)
    return chain.seq > 0 and rows.insert_row(connection, key, info, old.owner)


def _previous_row(connection: sqlite3.Connection, key: SqliteKey) -> SessionRow:
    """Return the row; of a damaged one only the term, so that the next term is higher."""
    record: Any = connection.execute("select term from sessions where namespace = ? and session = ?", key).fetchone()
    try:
        row = rows.load_row(connection, key) if record else None
    except Corrupt:
        row = None
    if row is not None:
        return row
    term = record[0] if record and isinstance(record[0], int) and 0 <= record[0] < 1 << 53 else 0
    return SessionRow(replace_fields(SessionInfo(id=key[1]), term=term + 1), "")
