"""Removing what may go, and rebuilding the index from the logs."""

from datetime import UTC, datetime

from vaka.core.ports.store import Removed, Retention, SessionInfo
from vaka.core.session.chain import Chain
from vaka.core.session.index import advance, replace
from vaka.core.types.errors import Corrupt, InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.stores.postgres.database import Connection, Database
from vaka.stores.postgres.rows import Extras, columns, columns_of
from vaka.stores.postgres.text import raw, text

LONG = 3600.0
"""Seconds that one of these statements may take."""
PAGE = 256

_FORGET = "select * from vaka.forget($1, null, $2, $3)"
_SWEEP = (
    "with loose as (select b.digest, length(b.body) as size from vaka.blobs b where b.namespace = $1 and b.put < $2 "
    "and not exists (select from vaka.blob_refs r "
    "where r.namespace = b.namespace and r.digest = b.digest and r.session <> all ($3::bytea[]))), "
    "gone as (delete from vaka.blobs b using loose where not $4 and b.namespace = $1 and b.digest = loose.digest "
    "and b.put < $2) "
    "select count(*), coalesce(sum(size), 0)::bigint from loose"
)
_LOGS = "select id from vaka.sessions where namespace = $1 union select session from vaka.events where namespace = $1"
_LOCK = "select term from vaka.sessions where namespace = $1 and id = $2 for update"
_EVENTS = "select seq, body from vaka.events where namespace = $1 and session = $2 and seq > $3 order by seq limit $4"
_UNINDEX = (
    "delete from vaka.keys where namespace = $1 and session = $2",
    "delete from vaka.decisions where namespace = $1 and session = $2",
    "delete from vaka.blob_refs where namespace = $1 and session = $2",
)
_EMPTY = "delete from vaka.sessions where namespace = $1 and id = $2"
_ROW = (
    "insert into vaka.sessions (namespace, id, head, hash, epoch, title, folded, agent, turn, inputs, pending, closed, "
    "created, updated, origin, term) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) "
    "on conflict (namespace, id) do update set head = excluded.head, hash = excluded.hash, epoch = excluded.epoch, "
    "title = excluded.title, folded = excluded.folded, agent = excluded.agent, turn = excluded.turn, "
    "inputs = excluded.inputs, pending = excluded.pending, closed = excluded.closed, created = excluded.created, "
    "updated = excluded.updated, origin = excluded.origin"
)


async def collect(database: Database, namespace: bytes, retention: Retention) -> Removed:
    """Remove what may go; never a session that has a writer, unfinished work or open decisions."""
    sessions: list[bytes] = []
    blobs = size = 0
    if retention.idle_before:
        before = raw(retention.idle_before)
        for session, bytes_of in await database.fetch(_FORGET, namespace, before, retention.dry_run, timeout=LONG):
            sessions.append(session)
            size += bytes_of
    if retention.blobs_before:
        moment = _moment(retention.blobs_before)
        rows = await database.fetch(_SWEEP, namespace, moment, sessions, retention.dry_run, timeout=LONG)
        blobs, more = rows[0]
        size += more
    return Removed(sessions=tuple(SessionId(text(session)) for session in sorted(sessions)), blobs=blobs, bytes=size)


async def reindex(database: Database, namespace: bytes) -> int:
    """Rebuild every index row from the logs; return how many there are. ``Corrupt`` once the others are done."""
    count, broken = 0, None
    for (session,) in await database.fetch(_LOGS, namespace, timeout=LONG):

        async def work(connection: Connection, session: bytes = session) -> bool:
            async with connection.transaction():
                return await _rebuild(connection, namespace, session)

        try:
            count += await database.run(work)
        except Corrupt as error:
            broken = broken or error
    if broken is not None:
        raise broken
    return count


async def _rebuild(connection: Connection, namespace: bytes, session: bytes) -> bool:
    """Write the rows of one session anew while nobody else can; return whether it has a log."""
    name = SessionId(text(session))
    term = await connection.fetchval(_LOCK, namespace, session)
    for statement in _UNINDEX:
        await connection.execute(statement, namespace, session)
    info, chain = SessionInfo(id=name), Chain(name)
    while rows := await connection.fetch(_EVENTS, namespace, session, chain.seq, PAGE):
        events = [chain.take(seq, body) for seq, body in rows]
        info = advance(info, events)
        await _index(connection, namespace, session, events)
    if not info.head:
        await connection.execute(_EMPTY, namespace, session)
        return False
    await connection.execute(_ROW, namespace, session, *columns_of(replace(info, live=False)), term or 1)
    return True


async def _index(connection: Connection, namespace: bytes, session: bytes, events: list[Event]) -> None:
    extras = Extras(SessionId(text(session)), events)
    place = namespace, session
    await connection.execute(
        "insert into vaka.keys (namespace, session, key, seq) "
        "select $1, $2, key, seq from unnest($3::bytea[], $4::bigint[]) as k (key, seq) on conflict do nothing",
        *place,
        *columns(extras.keys, 2),
    )
    await connection.execute(
        "delete from vaka.decisions d using unnest($3::bytea[]) as settled "
        "where d.namespace = $1 and d.session = $2 and (settled is null or d.id = settled)",
        *place,
        extras.settled,
    )
    await connection.execute(
        "insert into vaka.decisions (namespace, session, id, seq) "
        "select $1, $2, id, seq from unnest($3::bytea[], $4::bigint[]) as d (id, seq) "
        "on conflict (namespace, session, id) do update set seq = excluded.seq",
        *place,
        *columns(extras.asked.items(), 2),
    )
    await connection.execute(
        "insert into vaka.blob_refs (namespace, session, digest) "
        "select $1, $2, digest from unnest($3::bytea[]) as digest on conflict do nothing",
        *place,
        extras.blobs,
    )


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{text[:40]!r} is no time such as 2026-01-31T12:00:00Z") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
