"""Backups of a PostgreSQL database: read from one snapshot, restored in one transaction."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC
from typing import TypeAlias, cast

import asyncpg

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
from vaka.core.types.decode import decode
from vaka.core.types.errors import Busy, Corrupt
from vaka.core.types.event import Event
from vaka.core.types.ids import Digest, SessionId
from vaka.stores.common import check_blob
from vaka.stores.postgres.database import UNREACHABLE_ERRORS, PostgresConnection, PostgresDatabase, PostgresRecord
from vaka.stores.postgres.encoding import decode_text, digest_text, encode_name, encode_text, session_columns
from vaka.stores.postgres.heartbeat import close_connection
from vaka.stores.postgres.maintenance import (
    SELECT_EVENT,
    STATEMENT_TIMEOUT,
    UPSERT_SESSION_ROW,
    insert_index_rows,
    parse_time,
)
from vaka.stores.restored_logs import RestoredLog, check_counts, not_empty
from vaka.stores.vectors import decode_vector, encode_vector

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_PREFETCH = 64
_EVENTS = 256

_TABLES = (
    "sessions",
    "events",
    "keys",
    "decisions",
    "snapshots",
    "blobs",
    "blob_refs",
    "vals",
    "live_blocks",
    "messages",
    "message_backlog",
    "vector_collections",
    "vector_scopes",
    "vectors",
    "vector_deletions",
)
_LOCK_SECONDS = 5

_SELECT_BLOBS = "select namespace, digest, body, put from vaka.blobs order by namespace, digest"
_SELECT_REFERENCES = "select namespace, session, digest from vaka.blob_refs order by 1, 2, 3"
_SELECT_SESSIONS = "select namespace, id, term, head, hash, erased from vaka.sessions order by namespace, id"
_SELECT_EVENTS = "select seq, body from vaka.events where namespace = $1 and session = $2 order by seq"
_SELECT_VALUES = "select namespace, key, body, expires from vaka.vals order by namespace, key"
_SELECT_VECTORS = (
    "select namespace, collection, scope, id, text, metadata, vector, version from vaka.vectors "
    "order by namespace, collection, scope, number"
)
_IS_EMPTY = (
    "select not exists (select from vaka.events) and not exists (select from vaka.blobs) "
    "and not exists (select from vaka.vals) and not exists (select from vaka.vectors)"
)
_COUNT_LEASES = "select count(*) from vaka.sessions where owner is not null and lease_until > now()"
_COUNT_CLIENTS = (
    "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'vaka' "
    "and pid <> pg_backend_pid()"
)
_INSERT_VALUE = "insert into vaka.vals (namespace, digest, key, body, expires) values ($1, $2, $3, $4, $5)"
_INSERT_BLOB = "insert into vaka.blobs (namespace, digest, body, put) values ($1, $2, $3, $4)"
_INSERT_REFERENCE = "insert into vaka.blob_refs (namespace, session, digest) values ($1, $2, $3) on conflict do nothing"
_INSERT_EVENTS = (
    "insert into vaka.events (namespace, session, seq, body) "
    "select $1, $2, seq, body from unnest($3::bigint[], $4::bytea[]) as e (seq, body)"
)
_INSERT_COLLECTION = (
    "insert into vaka.vector_collections (namespace, collection, dimension) values ($1, $2, $3) on conflict do nothing"
)
_COUNT_VECTOR = (
    "insert into vaka.vector_scopes as s (namespace, collection, scope, change, size) values ($1, $2, $3, 1, 1) "
    "on conflict (namespace, collection, scope) do update set size = s.size + 1"
)
_INSERT_VECTOR = (
    "insert into vaka.vectors (namespace, collection, scope, id, text, metadata, vector, change, version) "
    "values ($1, $2, $3, $4, $5, $6, $7, 1, $8)"
)


async def read_records(connection: Connection) -> AsyncGenerator[BackupRecord]:
    """Yield the data of a database in a transaction, verified. Raises ``Corrupt``."""
    async for namespace, digest, body, put in connection.cursor(_SELECT_BLOBS, prefetch=1):
        name = Digest(decode_text(digest))
        moment = put.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        yield SavedBlob(decode_text(namespace), name, moment, check_blob(name, body))
    async for row in connection.cursor(_SELECT_REFERENCES, prefetch=_PREFETCH):
        yield SavedReference(*map(decode_text, row))
    async for row in connection.cursor(_SELECT_SESSIONS, prefetch=_PREFETCH):
        async for record in _read_session(connection, row):
            yield record
    async for namespace, key, body, expires in connection.cursor(_SELECT_VALUES, prefetch=_PREFETCH):
        yield SavedValue(decode_text(namespace), decode_text(key), body, decode_text(expires))
    async for row in connection.cursor(_SELECT_VECTORS, prefetch=_PREFETCH):
        namespace, collection, scope, id, text = map(decode_text, row[:5])
        metadata, vector, version = row[5:]
        yield SavedVector(namespace, collection, scope, id, text, metadata, encode_vector(vector), version)


async def _read_session(connection: Connection, row: PostgresRecord) -> AsyncGenerator[BackupRecord]:
    namespace, session, term, head, hash, erased = row
    chain = HashChain(SessionId(decode_text(session)))
    yield SavedSession(decode_text(namespace), decode_text(session), term)
    bodies: list[bytes] = []
    async for seq, body in connection.cursor(_SELECT_EVENTS, namespace, session, prefetch=_PREFETCH):
        bodies.append(chain.check_next(seq, body).stored)
        if len(bodies) >= _EVENTS:
            yield SavedEvents(bodies)
            bodies = []
    if bodies:
        yield SavedEvents(bodies)
    if chain.erased:
        listing = await connection.fetchval(SELECT_EVENT, namespace, session, erased)
        chain.check_erased(decode(listing) if listing is not None else None)
    chain.check_end(head, hash)


class PostgresBackup:
    """Backups of one PostgreSQL database."""

    def __init__(self, dsn: str, *, patience: float = 10.0) -> None:
        self._database = PostgresDatabase(dsn, "power", patience)
        self.url = self._database.url

    async def dump(self) -> AsyncGenerator[BackupRecord]:
        """Yield everything as of one moment: a snapshot of one transaction."""
        async with (
            self._connect() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            async for record in read_records(connection):
                yield record

    async def load(self, records: AsyncIterator[BackupRecord], *, made: str, replace: bool) -> BackupCounts:
        """Insert everything, and verify it, in one transaction."""
        async with self._connect() as connection, connection.transaction():
            await self._lock_tables(connection)
            if not replace and not await connection.fetchval(_IS_EMPTY):
                raise not_empty(self.url)
            names = ", ".join(f"vaka.{table}" for table in _TABLES)
            await connection.execute(f"truncate {names}")
            loader = _Loader(connection, made)
            async for record in records:
                await loader.add(record)
            await loader.end_log()
            found = BackupCounts()
            async for record in read_records(connection):
                found.add(record)
            check_counts(loader.counts, found)
        return loader.counts

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Connection]:
        """Yield a connection, which no other work of this process uses. Raises vaka's errors."""
        connection = await self._database.try_until_deadline(self._database.connect_alone)
        try:
            yield connection
        except asyncpg.LockNotAvailableError as error:
            raise Busy(self._in_use("it is locked")) from error
        except UNREACHABLE_ERRORS as error:
            raise self._database.unreachable_error(error) from error
        except asyncpg.PostgresError as error:
            raise self._database.server_error(error) from error
        finally:
            await close_connection(connection)

    async def _lock_tables(self, connection: Connection) -> None:
        """Lock the tables against all others. Raises ``Busy`` while another process of vaka is connected."""
        await connection.execute(f"set local lock_timeout = '{_LOCK_SECONDS}s'")
        names = ", ".join(f"vaka.{table}" for table in _TABLES)
        await connection.execute(f"lock table {names} in access exclusive mode")
        if leases := await connection.fetchval(_COUNT_LEASES):
            raise Busy(self._in_use(f"{leases} sessions run"))
        if clients := await connection.fetchval(_COUNT_CLIENTS):
            raise Busy(self._in_use(f"it has {clients} connections to it"))

    def _in_use(self, how: str) -> str:
        return f"the store {self.url} is used by another process: {how}; stop it, and try again. Nothing was changed"


class _Loader:
    """Inserts the records of a backup into empty tables."""

    def __init__(self, connection: Connection, made: str) -> None:
        self._connection, self._made = connection, made
        self._log: RestoredLog | None = None
        self.counts = BackupCounts()
        """The verified content of the database afterwards."""

    async def add(self, record: BackupRecord) -> None:
        """Insert a record."""
        self.counts.add(record)
        match record:
            case SavedBlob(namespace, digest, put, data):
                body = check_blob(Digest(digest), data)
                await self._insert(_INSERT_BLOB, encode_name(namespace), encode_text(digest), body, parse_time(put))
            case SavedReference(namespace, session, digest):
                names = encode_name(namespace), encode_name(session), encode_text(digest)
                await self._insert(_INSERT_REFERENCE, *names)
            case SavedSession():
                await self.end_log()
                self._log = RestoredLog(record)
            case SavedEvents(bodies):
                if self._log is None:
                    raise Corrupt("the backup has events before the first session")
                await self._add_events(self._log, self._log.add(bodies))
            case SavedValue(namespace, key, value, expires):
                place = encode_name(namespace), digest_text(key), encode_text(key)
                await self._insert(_INSERT_VALUE, *place, value, encode_text(expires))
            case SavedVector():
                await self._add_vector(record)

    async def end_log(self) -> None:
        """Write the last event of the log before, and its index row."""
        log, self._log = self._log, None
        if log is None:
            return
        events = log.begin_epoch(self._made)
        if events:
            self.counts.add(SavedEvents([event.stored for event in events]))
            await self._add_events(log, events)
        place = encode_name(log.namespace), encode_name(log.id)
        await self._insert(UPSERT_SESSION_ROW, *place, *session_columns(log.info), log.info.term)

    async def _add_events(self, log: RestoredLog, events: Sequence[Event]) -> None:
        place = encode_name(log.namespace), encode_name(log.id)
        await self._insert(_INSERT_EVENTS, *place, [event.seq for event in events], [event.stored for event in events])
        await insert_index_rows(cast("PostgresConnection", self._connection), *place, events)

    async def _add_vector(self, record: SavedVector) -> None:
        place = encode_text(record.namespace), encode_text(record.collection), encode_text(record.scope)
        await self._insert(_INSERT_COLLECTION, *place[:2], len(record.vector) // 4)
        await self._insert(_COUNT_VECTOR, *place)
        await self._insert(
            _INSERT_VECTOR,
            *place,
            encode_text(record.id),
            encode_text(record.text),
            record.metadata,
            decode_vector(record.vector),
            record.version,
        )

    async def _insert(self, statement: str, *values: object) -> None:
        await self._connection.execute(statement, *values, timeout=STATEMENT_TIMEOUT)


__all__ = ["PostgresBackup"]
