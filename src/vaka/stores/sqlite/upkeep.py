"""Removing what may go, and making the index anew."""

import sqlite3
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from vaka.core.ports.store import Removed, Retention, SessionInfo
from vaka.core.session.chain import Chain
from vaka.core.session.index import advance, replace
from vaka.core.types.errors import Corrupt
from vaka.core.types.ids import SessionId
from vaka.stores.sqlite import logs, rows
from vaka.stores.sqlite.database import Database
from vaka.stores.sqlite.rows import Key, Row

_IDLE = (
    "select session from sessions where namespace = ? and updated < ? and turn = '' and inputs = 0 and pending = 0 "
    "order by session"
)
_SIZE = "select coalesce(sum(length(body)), 0) from events where namespace = ? and session = ?"
_BLOBS = "select digest, length(data) from blobs where namespace = ? and created < ?"
_NAMED = "select name, session from names where namespace = ? and kind = 'blob'"
_REMOVE = "delete from blobs where namespace = ? and digest = ?"
_LONG = 1 << 30
"""The size of work that belongs in the writer thread."""


class Upkeep:
    """The housekeeping of one namespace."""

    def __init__(self, database: Database, namespace: str, writes: Callable[[Key, str], bool]) -> None:
        self._database, self._namespace, self._writes = database, namespace, writes

    async def gc(self, retention: Retention) -> Removed:
        """Remove what may go."""
        sessions = await self._sessions(retention)
        blobs = await self._database.aside(partial(self._blobs, before=retention.blobs_before, gone=set(sessions)))
        if not retention.dry_run:
            if blobs:
                blobs = await self._database.write(partial(self._forget_blobs, retention.blobs_before), size=_LONG)
            await self._database.aside(_shrink)
        return Removed(sessions=tuple(sessions), blobs=len(blobs), bytes=sum(sessions.values()) + sum(blobs.values()))

    async def reindex(self) -> int:
        """Make every index row anew from the logs, one session after the other; ``Corrupt`` names those that cannot."""
        names = await self._database.ask(self._names)
        damaged: list[str] = []
        made = 0
        for name in names:
            try:
                made += await self._database.write(partial(_rebuild, (self._namespace, name)), size=_LONG)
            except Corrupt as error:
                damaged.append(str(error))
        if damaged:
            raise Corrupt(f"{len(damaged)} of {len(names)} sessions cannot be indexed: {'; '.join(damaged[:20])}")
        return made

    async def _sessions(self, retention: Retention) -> dict[SessionId, int]:
        """Remove the sessions that may go, or only look; return them with their sizes."""
        found = await self._database.ask(lambda connection: connection.execute(
            _IDLE, (self._namespace, retention.idle_before)
        ).fetchall())  # fmt: skip
        removed: dict[SessionId, int] = {}
        for (session,) in found:
            work = partial(self._forget, (self._namespace, session), retention.idle_before, retention.dry_run)
            size = await (self._database.ask(work) if retention.dry_run else self._database.write(work))
            if size is not None:
                removed[session] = size
        return removed

    def _forget(self, key: Key, before: str, dry: bool, connection: sqlite3.Connection) -> int | None:
        """Remove a session if it still may go, and return its size."""
        row = rows.load(connection, key)
        if row is None or not _done(connection, key, row.info, before) or self._writes(key, row.owner):
            return None
        size: int = connection.execute(_SIZE, key).fetchone()[0]
        if not dry:
            logs.remove(connection, key)
        return size

    def _blobs(self, connection: sqlite3.Connection, before: str, gone: Collection[str]) -> dict[str, int]:
        """Return the blobs nobody names but sessions that are gone, with their sizes."""
        sizes: dict[str, int] = dict(connection.execute(_BLOBS, (self._namespace, before)))
        if sizes:
            for digest, session in connection.execute(_NAMED, (self._namespace,)):
                if session not in gone:
                    sizes.pop(digest, None)
        return sizes

    def _forget_blobs(self, before: str, connection: sqlite3.Connection) -> dict[str, int]:
        """Remove the blobs nobody names: looked up again, now that nobody else writes."""
        blobs = self._blobs(connection, before, ())
        connection.executemany(_REMOVE, [(self._namespace, digest) for digest in blobs])
        return blobs

    def _names(self, connection: sqlite3.Connection) -> list[SessionId]:
        query = (
            "select session from events where namespace = ?1 union select session from sessions where namespace = ?1"
        )
        return [session for (session,) in connection.execute(query, (self._namespace,))]


def _done(connection: sqlite3.Connection, key: Key, info: SessionInfo, before: str) -> bool:
    """Whether nothing is unfinished in a session, and nothing has happened since."""
    query = "select 1 from decisions where namespace = ? and session = ?"
    unfinished = info.turn or info.inputs or info.pending or connection.execute(query, key).fetchone()
    return info.updated < before and not unfinished


def _shrink(connection: sqlite3.Connection) -> None:
    connection.executescript("pragma incremental_vacuum")  # execute would free one page only
    connection.execute("pragma wal_checkpoint(truncate)").fetchall()


def _rebuild(key: Key, connection: sqlite3.Connection) -> bool:
    """Make the rows of one session anew; false when it has no events, and so does not exist.

    A row that is intact must agree with its log; a damaged one counts no more.
    """
    old = _old(connection, key)
    info = SessionInfo(id=key[1], term=old.info.term)
    chain = Chain(key[1])
    for table in ("names", "decisions", "sessions"):
        connection.execute(f"delete from {table} where namespace = ? and session = ?", key)  # noqa: S608  # nosec B608  # constants
    while events := logs.more(connection, key, chain, (1 << 63) - 1):
        info = advance(info, events)
        logs.derive(connection, key, events)
    if old.info.head:
        chain.end(old.info.head, old.info.hash)
    return chain.seq > 0 and rows.insert(connection, key, info, old.owner)


def _old(connection: sqlite3.Connection, key: Key) -> Row:
    """Return the row as it was; of a damaged one only the term is taken, so that the next is higher."""
    found: Any = connection.execute("select term from sessions where namespace = ? and session = ?", key).fetchone()
    try:
        row = rows.load(connection, key) if found else None
    except Corrupt:
        row = None
    if row is not None:
        return row
    term = found[0] if found and isinstance(found[0], int) and 0 <= found[0] < 1 << 53 else 0
    return Row(replace(SessionInfo(id=key[1]), term=term + 1), "")
