"""Backups of a SQLite database: read in one transaction, restored as a new file that takes the place of the old one."""

import asyncio
import contextlib
import os
import sqlite3
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from vaka.core.ports.backup import (
    BackupCounts,
    BackupRecord,
    SavedBlob,
    SavedEvents,
    SavedReference,
    SavedSession,
    SavedValue,
    SavedVector,
)
from vaka.core.session.hash_chain import HashChain
from vaka.core.types.errors import Busy, Corrupt, NotFound
from vaka.core.types.ids import Digest, SessionId
from vaka.stores.common import check_blob
from vaka.stores.restored_logs import RestoredLog, check_counts, not_empty
from vaka.stores.sqlite import rows
from vaka.stores.sqlite.connection import SQLITE_ERRORS, DatabaseFile, connect, is_locked, translate_error
from vaka.stores.sqlite.writer_lock import WriterLock
from vaka.stores.vectors import record_checksum

T = TypeVar("T")

_BESIDE = ("-wal", "-shm", "-journal")
"""The ends of the names of the files that SQLite keeps beside a database."""

_BATCH = 64
"""Records that one call of the thread returns."""

_SELECT_BLOBS = "select namespace, digest, created, data from blobs order by namespace, digest"
_SELECT_REFERENCES = "select namespace, session, name from names where kind = 'blob' order by 1, 2, 3"
_SELECT_SESSIONS = (
    "select namespace, session from sessions union select namespace, session from events order by namespace, session"
)
_SELECT_VALUES = "select namespace, key, checksum, value, expires from pairs order by namespace, key"
_SELECT_VECTORS = (
    "select namespace, collection, scope, id, text, metadata, checksum, vector, vector_checksum, version from vectors "
    "order by namespace, collection, scope, number"
)
_IS_EMPTY = (
    "select not exists (select 1 from events) and not exists (select 1 from blobs) "
    "and not exists (select 1 from pairs) and not exists (select 1 from vectors)"
)
_INSERT_BLOB = "insert into blobs (namespace, digest, created, data) values (?,?,?,?)"
_INSERT_REFERENCE = "insert or ignore into names (namespace, session, kind, name, seq) values (?,?,'blob',?,0)"
_INSERT_VALUE = "insert into pairs (namespace, key, checksum, value, expires) values (?,?,?,?,?)"
_INSERT_COLLECTION = "insert or ignore into vector_collections (namespace, collection, dimension) values (?,?,?)"
_INSERT_SCOPE = "insert or ignore into vector_scopes (namespace, collection, scope, change) values (?,?,?,1)"
_INSERT_VECTOR = (
    "insert into vectors (namespace, collection, scope, id, text, metadata, checksum, vector, vector_checksum, change, "
    "version) values (?,?,?,?,?,?,?,?,?,1,?)"
)


def read_records(connection: sqlite3.Connection) -> Iterator[BackupRecord]:
    """Yield the data of a database as of now, verified. Raises ``Corrupt``."""
    connection.execute("begin")
    for namespace, digest, created, data in connection.execute(_SELECT_BLOBS):
        yield SavedBlob(namespace, digest, created, check_blob(Digest(digest), data))
    for row in connection.execute(_SELECT_REFERENCES):
        yield SavedReference(*row)
    for namespace, session in connection.execute(_SELECT_SESSIONS):
        yield from _read_session(connection, (namespace, SessionId(session)))
    for namespace, key, crc, value, expires in connection.execute(_SELECT_VALUES):
        if not isinstance(value, bytes) or rows.checksum(namespace, key, value) != crc:
            raise Corrupt(f"the stored value of {key!r} is damaged")
        yield SavedValue(namespace, key, value, expires)
    for namespace, collection, scope, id, text, metadata, crc, vector, vector_crc, version in connection.execute(
        _SELECT_VECTORS
    ):
        if record_checksum(id, text, metadata) != crc or zlib.crc32(vector) != vector_crc:
            raise Corrupt(f"the stored vector {id!r} is damaged")
        yield SavedVector(namespace, collection, scope, id, text, metadata, vector, version)
    connection.execute("commit")


def _read_session(connection: sqlite3.Connection, key: rows.SqliteKey) -> Iterator[BackupRecord]:
    row = rows.load_row(connection, key)
    if row is None:
        return
    chain = HashChain(key[1])
    yield SavedSession(*key, row.info.term)
    while events := rows.read_chunk(connection, key, chain, row.info.head):
        yield SavedEvents([event.stored for event in events])
    if chain.erased:
        rows.check_erased(connection, key, chain)
    chain.check_end(row.info.head, row.info.hash)


class SqliteBackup:
    """Backups of one SQLite file. Its connection is used in a thread of its own."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{self.path}"

    async def dump(self) -> AsyncGenerator[BackupRecord]:
        """Yield everything as of one moment."""
        if not self.path.exists():
            raise NotFound(f"there is no database {str(self.path)!r}")
        with ThreadPoolExecutor(1, "vaka-backup") as thread:
            run = partial(_run_in, thread)
            connection = await run(partial(connect, self.path, "power", DatabaseFile(self.path), wait=True))
            try:
                records = read_records(connection)
                while batch := await run(partial(_take, records)):
                    for record in batch:
                        yield record
            finally:
                await run(connection.close)

    async def load(self, records: AsyncIterator[BackupRecord], *, made: str, replace: bool) -> BackupCounts:
        """Write a new file beside the database, verify it, and give it the name of the database."""
        if not replace and self.path.exists() and not await self._is_empty():
            raise not_empty(self.url)
        with WriterLock(self.path).hold_exclusively("restore"), ThreadPoolExecutor(1, "vaka-restore") as thread:
            run = partial(_run_in, thread)
            new = self.path.with_name(f"{self.path.name}.restore")
            _remove_database(new)
            if self.path.exists():
                await run(partial(_require_unused, self.path))  # at once, not only when the new file is complete
            try:
                counts = await self._fill(new, records, made, run)
                await run(partial(_put_in_place, new, self.path))
            finally:
                _remove_database(new)
        return counts

    async def _is_empty(self) -> bool:
        with ThreadPoolExecutor(1) as thread:
            connection = await _run_in(thread, partial(connect, self.path, "power", DatabaseFile(self.path), wait=True))
            try:
                found = await _run_in(thread, lambda: connection.execute(_IS_EMPTY).fetchone())
            finally:
                await _run_in(thread, connection.close)
        return bool(found[0])

    @staticmethod
    async def _fill(new: Path, records: AsyncIterator[BackupRecord], made: str, run: "Run") -> BackupCounts:
        file = DatabaseFile(new)
        connection = await run(partial(connect, new, "process", file, wait=True))
        try:
            await run(partial(connection.execute, "pragma synchronous = off"))  # nothing is seen before it is synced
            await run(partial(connection.execute, "begin immediate"))
            loader = _Loader(connection, made)
            batch: list[BackupRecord] = []
            async for record in records:
                batch.append(record)
                if len(batch) >= _BATCH:
                    await run(partial(loader.add, batch))
                    batch = []
            await run(partial(loader.add, batch))
            await run(loader.finish)
            check_counts(loader.counts, await run(partial(_count_records, connection)))
        finally:
            await run(connection.close)
        return loader.counts


Run = Callable[[Callable[[], Any]], Any]


async def _run_in(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, work)
    except SQLITE_ERRORS as error:
        raise translate_error(error) from error


def _take(records: Iterator[BackupRecord]) -> list[BackupRecord]:
    """Return the next records: some short ones, or a large one."""
    batch: list[BackupRecord] = []
    for record in records:
        batch.append(record)
        if len(batch) >= _BATCH or isinstance(record, SavedBlob | SavedEvents):
            break
    return batch


def _count_records(connection: sqlite3.Connection) -> BackupCounts:
    counts = BackupCounts()
    for record in read_records(connection):
        counts.add(record)
    return counts


class _Loader:
    """Inserts the records of a backup into an empty database."""

    def __init__(self, connection: sqlite3.Connection, made: str) -> None:
        self._connection, self._made = connection, made
        self._log: RestoredLog | None = None
        self.counts = BackupCounts()
        """The verified content of the database afterwards."""

    def add(self, records: list[BackupRecord]) -> None:
        for record in records:
            self.counts.add(record)
            self._add(record)

    def finish(self) -> None:
        """End the last log and commit."""
        self._end_log()
        self._connection.execute("commit")

    def _add(self, record: BackupRecord) -> None:
        execute = self._connection.execute
        match record:
            case SavedBlob(namespace, digest, put, data):
                execute(_INSERT_BLOB, (namespace, digest, put, check_blob(Digest(digest), data)))
            case SavedReference(namespace, session, digest):
                execute(_INSERT_REFERENCE, (namespace, session, digest))
            case SavedSession():
                self._end_log()
                self._log = RestoredLog(record)
            case SavedEvents(bodies):
                self._add_events(bodies)
            case SavedValue(namespace, key, value, expires):
                execute(_INSERT_VALUE, (namespace, key, rows.checksum(namespace, key, value), value, expires))
            case SavedVector():
                self._add_vector(record)

    def _add_events(self, bodies: list[bytes]) -> None:
        if self._log is None:
            raise Corrupt("the backup has events before the first session")
        events = self._log.add(bodies)
        rows.insert_events(self._connection, (self._log.namespace, self._log.id), events)

    def _add_vector(self, record: SavedVector) -> None:
        place = record.namespace, record.collection, record.scope
        self._connection.execute(_INSERT_COLLECTION, (*place[:2], len(record.vector) // 4))
        self._connection.execute(_INSERT_SCOPE, place)
        values = (
            *place,
            record.id,
            record.text,
            record.metadata,
            record_checksum(record.id, record.text, record.metadata),
            record.vector,
            zlib.crc32(record.vector),
            record.version,
        )
        self._connection.execute(_INSERT_VECTOR, values)

    def _end_log(self) -> None:
        log, self._log = self._log, None
        if log is None:
            return
        key = log.namespace, log.id
        events = log.begin_epoch(self._made)
        rows.insert_events(self._connection, key, events)
        if events:
            self.counts.add(SavedEvents([event.stored for event in events]))
        rows.insert_row(self._connection, key, log.info, "")


def _put_in_place(new: Path, path: Path) -> None:
    """Give a complete database the name of another one, which no process may use."""
    _sync(new)
    with contextlib.ExitStack() as stack:
        if path.exists():
            stack.enter_context(_hold_unused(path))
        for suffix in _BESIDE:  # of a database that was moved away: SQLite would apply its log to this one
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        new.replace(path)
        _sync(path.parent)


def _require_unused(path: Path) -> None:
    with _hold_unused(path):
        pass


@contextlib.contextmanager
def _hold_unused(path: Path) -> Generator[None]:
    """Lock a database against all others. Raises ``Busy`` while another connection to it is open."""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        # Only the last connection can end the write-ahead log, and a restored file must not find an old one.
        mode = connection.execute("pragma journal_mode = delete").fetchone()[0]
        if mode != "delete":
            raise Busy(_in_use(path))
        connection.execute("begin exclusive")
        yield
    except sqlite3.Error as error:
        raise Busy(_in_use(path)) if is_locked(error) else translate_error(error) from error
    finally:
        connection.close()


def _in_use(path: Path) -> str:
    return f"the database {str(path)!r} is used by another process; stop it, and try again. Nothing was changed"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_database(path: Path) -> None:
    for suffix in ("", *_BESIDE):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


__all__ = ["SqliteBackup"]
