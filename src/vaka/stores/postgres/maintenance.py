"""Garbage collection, and rebuilding the index from the logs."""

from collections.abc import Sequence
from datetime import UTC, datetime

from vaka.core.ports.store import GcResult, Retention, SessionInfo
from vaka.core.session.hash_chain import HashChain
from vaka.core.session.index_rows import advance_row, replace_fields
from vaka.core.types.decode import decode
from vaka.core.types.errors import Corrupt, InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.stores.postgres.database import PostgresConnection, PostgresDatabase
from vaka.stores.postgres.encoding import (
    IndexEntries,
    decode_text,
    encode_text,
    postgres_key,
    session_columns,
    transpose_rows,
)
from vaka.stores.postgres.message_rows import insert_messages

STATEMENT_TIMEOUT = 3600.0
"""Seconds that one of these statements may take."""
REINDEX_PAGE_SIZE = 256

_DELETE_IDLE_SESSIONS = "select * from vaka.forget($1, null, $2, $3)"
# Of a session that has put blobs and was never written, only their age protects them.
_DELETE_LOOSE_BLOBS = (
    "with loose as (select b.digest, length(b.body) as size from vaka.blobs b where b.namespace = $1 and b.put < $2 "
    "and not exists (select from vaka.blob_refs r "
    "where r.namespace = b.namespace and r.digest = b.digest and r.session <> all ($3::bytea[]) "
    "and exists (select from vaka.events e where e.namespace = r.namespace and e.session = r.session))), "
    "gone as (delete from vaka.blobs b using loose where not $4 and b.namespace = $1 and b.digest = loose.digest "
    "and b.put < $2 returning b.digest), "
    "freed as (delete from vaka.blob_refs r using gone where r.namespace = $1 and r.digest = gone.digest) "
    "select count(*), coalesce(sum(size), 0)::bigint from loose"
)
_DELETE_EXPIRED_VALUES = (
    "with expired as (select digest, length(body) as size from vaka.vals "
    "where namespace = $1 and expires <> '' and expires < $2), "
    "gone as (delete from vaka.vals v using expired where not $3 and v.namespace = $1 and v.digest = expired.digest "
    "and v.expires <> '' and v.expires < $2) "
    "select count(*), coalesce(sum(size), 0)::bigint from expired"
)
_SELECT_SESSION_IDS = (
    "select id from vaka.sessions where namespace = $1 union select session from vaka.events where namespace = $1"
)
_LOCK_SESSION = "select term from vaka.sessions where namespace = $1 and id = $2 for update"
SELECT_EVENTS = (
    "select seq, body from vaka.events where namespace = $1 and session = $2 and seq > $3 order by seq limit $4"
)
SELECT_EVENT = "select body from vaka.events where namespace = $1 and session = $2 and seq = $3"
DELETE_INDEX_ROWS = (
    "delete from vaka.keys where namespace = $1 and session = $2",
    "delete from vaka.decisions where namespace = $1 and session = $2",
    "delete from vaka.messages where namespace = $1 and session = $2",
    "delete from vaka.message_backlog where namespace = $1 and session = $2",
)
_DELETE_SESSION_ROW = "delete from vaka.sessions where namespace = $1 and id = $2"
UPSERT_SESSION_ROW = (
    "insert into vaka.sessions (namespace, id, head, hash, epoch, title, folded, agent, turn, inputs, pending, closed, "
    "created, updated, origin, folder, belongs_to, tags, metadata, state, version, erased, term) values "
    "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23) "
    "on conflict (namespace, id) do update set head = excluded.head, hash = excluded.hash, epoch = excluded.epoch, "
    "title = excluded.title, folded = excluded.folded, agent = excluded.agent, turn = excluded.turn, "
    "inputs = excluded.inputs, pending = excluded.pending, closed = excluded.closed, created = excluded.created, "
    "updated = excluded.updated, origin = excluded.origin, folder = excluded.folder, "
    "belongs_to = excluded.belongs_to, tags = excluded.tags, metadata = excluded.metadata, "
    "state = excluded.state, version = excluded.version, erased = excluded.erased"
)

_INSERT_KEYS = (
    "insert into vaka.keys (namespace, session, key, seq) "
    "select $1, $2, key, seq from unnest($3::bytea[], $4::bigint[]) as k (key, seq) on conflict do nothing"
)
_SETTLE_DECISIONS = (
    "delete from vaka.decisions d using unnest($3::bytea[]) as settled "
    "where d.namespace = $1 and d.session = $2 and (settled is null or d.id = settled)"
)
_INSERT_DECISIONS = (
    "insert into vaka.decisions (namespace, session, id, seq) "
    "select $1, $2, id, seq from unnest($3::bytea[], $4::bigint[]) as d (id, seq) "
    "on conflict (namespace, session, id) do update set seq = excluded.seq"
)
_INSERT_BLOB_NAMES = (
    "insert into vaka.blob_refs (namespace, session, digest) "
    "select $1, $2, digest from unnest($3::bytea[]) as digest on conflict do nothing"
)


async def collect_garbage(database: PostgresDatabase, namespace: bytes, retention: Retention) -> GcResult:
    """Remove idle sessions and unreferenced blobs; never a session with a writer, unfinished work or open decisions."""
    sessions: list[bytes] = []
    blobs = values = size = 0
    if retention.idle_before:
        before = encode_text(retention.idle_before)
        idle = await database.fetch(
            _DELETE_IDLE_SESSIONS, namespace, before, retention.dry_run, timeout=STATEMENT_TIMEOUT
        )
        sessions, size = [session for session, _ in idle], sum(size for _, size in idle)
    if retention.blobs_before:
        before_time = parse_time(retention.blobs_before)
        rows = await database.fetch(
            _DELETE_LOOSE_BLOBS, namespace, before_time, sessions, retention.dry_run, timeout=STATEMENT_TIMEOUT
        )
        blobs, more = rows[0]
        size += more
    if retention.expired_before:
        rows = await database.fetch(
            _DELETE_EXPIRED_VALUES,
            namespace,
            encode_text(retention.expired_before),
            retention.dry_run,
            timeout=STATEMENT_TIMEOUT,
        )
        values, more = rows[0]
        size += more
    found = tuple(SessionId(decode_text(session)) for session in sorted(sessions))
    return GcResult(sessions=found, blobs=blobs, values=values, bytes=size)


async def reindex(database: PostgresDatabase, namespace: bytes) -> int:
    """Rebuild every index row from the logs; return how many. A damaged log raises ``Corrupt`` after all others."""
    count, damaged = 0, None
    for (session,) in await database.fetch(_SELECT_SESSION_IDS, namespace, timeout=STATEMENT_TIMEOUT):

        async def work(connection: PostgresConnection, session: bytes = session) -> bool:
            async with connection.transaction():
                return await _rebuild_session(connection, namespace, session)

        try:
            count += await database.run(work)
        except Corrupt as error:
            damaged = damaged or error
    if damaged is not None:
        raise damaged
    return count


async def _rebuild_session(connection: PostgresConnection, namespace: bytes, session: bytes) -> bool:
    """Rebuild the rows of one session under its row lock; return whether it has a log."""
    name = SessionId(decode_text(session))
    term = await connection.fetchval(_LOCK_SESSION, namespace, session)
    for statement in DELETE_INDEX_ROWS:
        await connection.execute(statement, namespace, session)
    info, chain = SessionInfo(id=name), HashChain(name)
    while rows := await connection.fetch(SELECT_EVENTS, namespace, session, chain.seq, REINDEX_PAGE_SIZE):
        events = [chain.check_next(seq, body) for seq, body in rows]
        info = advance_row(info, events)
        await insert_index_rows(connection, namespace, session, events)
    if chain.erased:
        body = await connection.fetchval(SELECT_EVENT, namespace, session, info.erased)
        chain.check_erased(decode(body) if body is not None else None)
    if not info.head:
        await connection.execute(_DELETE_SESSION_ROW, namespace, session)
        return False
    await connection.execute(
        UPSERT_SESSION_ROW, namespace, session, *session_columns(replace_fields(info, live=False)), term or 1
    )
    return True


async def insert_index_rows(
    connection: PostgresConnection, namespace: bytes, session: bytes, events: Sequence[Event]
) -> None:
    """Insert the keys, decisions, named blobs and messages of events."""
    extras = IndexEntries(SessionId(decode_text(session)), events)
    for statement, columns in (
        (_INSERT_KEYS, transpose_rows(extras.keys, 2)),
        (_SETTLE_DECISIONS, [extras.settled]),
        (_INSERT_DECISIONS, transpose_rows(extras.asked.items(), 2)),
        (_INSERT_BLOB_NAMES, [extras.blobs]),
    ):
        await connection.execute(statement, namespace, session, *columns)
    await insert_messages(connection, postgres_key(namespace, decode_text(session)), events)


def parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{text[:40]!r} is not a time such as 2026-01-31T12:00:00Z") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
