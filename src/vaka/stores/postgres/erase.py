"""Erasing sessions: their data are removed, their hashes stay."""

from collections.abc import Sequence

from vaka.core.ports.erasure import EraseResult
from vaka.core.ports.values import session_values_prefix
from vaka.core.session.hash_chain import HashChain
from vaka.core.session.index_rows import advance_row
from vaka.core.types.errors import Busy, Corrupt, NotFound
from vaka.core.types.ids import SessionId
from vaka.stores.common import current_time, hit_failpoint
from vaka.stores.erased_events import count_erased_bytes, erase_event, seal_erased
from vaka.stores.postgres.database import PostgresConnection
from vaka.stores.postgres.encoding import PostgresKey, encode_text, info_of, postgres_key, session_columns
from vaka.stores.postgres.hub import PostgresPort
from vaka.stores.postgres.maintenance import (
    DELETE_INDEX_ROWS,
    REINDEX_PAGE_SIZE,
    SELECT_EVENTS,
    STATEMENT_TIMEOUT,
    UPSERT_SESSION_ROW,
)

_LOCK_ROW = (
    "select *, (owner is not null and lease_until >= now()) as live from vaka.sessions "
    "where namespace = $1 and id = $2 for update"
)
_UPDATE_EVENTS = (
    "update vaka.events e set body = s.body from unnest($3::bigint[], $4::bytea[]) as s (seq, body) "
    "where e.namespace = $1 and e.session = $2 and e.seq = s.seq"
)
_INSERT_EVENT = "insert into vaka.events (namespace, session, seq, body) values ($1, $2, $3, $4)"
# ``put`` locks the row of its blob: the statement after this one sees every session that has put one of these blobs,
# and a later ``put`` waits until they are deleted, and stores its blob again.
_LOCK_BLOBS = (
    "select from vaka.blobs where namespace = $1 and digest in "
    "(select digest from vaka.blob_refs where namespace = $1 and session = $2) order by digest for update"
)
_DELETE_BLOBS = (
    "with gone as (delete from vaka.blobs b using vaka.blob_refs r where r.namespace = $1 and r.session = $2 "
    "and b.namespace = $1 and b.digest = r.digest and not exists (select from vaka.blob_refs o "
    "where o.namespace = $1 and o.digest = r.digest and o.session <> $2) returning length(b.body) as size) "
    "select count(*), coalesce(sum(size), 0)::bigint from gone"
)
_DELETE_ROWS = (
    *DELETE_INDEX_ROWS,
    "delete from vaka.blob_refs where namespace = $1 and session = $2",
    "delete from vaka.snapshots where namespace = $1 and session = $2",
    "delete from vaka.live_blocks where namespace = $1 and session = $2",
)
# The first bytes of a key are indexed.
_DELETE_VALUES = (
    "delete from vaka.vals where namespace = $1 "
    "and substring(key from 1 for 256) >= substring($2::bytea from 1 for 256) "
    "and substring(key from 1 for 256) <= substring($2::bytea || '\\xff'::bytea from 1 for 256) "
    "and substring(key from 1 for length($2::bytea)) = $2::bytea"
)


class PostgresErasure(PostgresPort):
    """Erases sessions of one namespace."""

    async def erase(self, sessions: Sequence[SessionId], *, by: str = "") -> EraseResult:
        result = EraseResult(overwritten=False)  # until VACUUM, the files have the old rows
        for session in dict.fromkeys(sessions):
            failed = dict(result.failed)
            busy = result.busy
            events = blobs = size = 0
            try:
                events, blobs, size = await self._erase_session(session, by)
            except (Busy, Corrupt, NotFound) as error:
                failed[session] = str(error)
                busy += (session,) if isinstance(error, Busy) else ()
            result = EraseResult(
                sessions=(*result.sessions, *((session,) if events else ())),
                events=result.events + events,
                blobs=result.blobs + blobs,
                bytes=result.bytes + size,
                failed=failed,
                busy=busy,
                overwritten=False,
            )
        return result

    async def _erase_session(self, session: SessionId, by: str) -> tuple[int, int, int]:
        """Erase a session; return the number of events and blobs, and their bytes."""
        where = postgres_key(self._namespace, session)

        async def work(connection: PostgresConnection) -> tuple[int, int, int]:
            hit_failpoint("append.before_begin")
            async with connection.transaction():
                erased = await self._erase_locked(connection, where, session, by)
                hit_failpoint("append.after_rows")
            hit_failpoint("append.after_commit")
            return erased

        erased = await self._database.run(work)
        hit_failpoint("append.before_ack")
        return erased

    async def _erase_locked(
        self, connection: PostgresConnection, where: PostgresKey, session: SessionId, by: str
    ) -> tuple[int, int, int]:
        key = where.namespace, where.session
        row = await connection.fetchrow(_LOCK_ROW, *key)
        if row is None:
            raise NotFound(f"there is no session {session!r}")
        info = info_of(row)
        if info.live:
            raise Busy(f"session {session!r} has a writer; end its turn first")
        if info.erased:
            return 0, 0, 0
        chain = HashChain(session)
        events, size = await _erase_events(connection, key, chain)
        chain.check_end(info.head, info.hash)
        if chain.erased:
            raise Corrupt(f"session {session!r}: data of {chain.erased} events are missing, and no event says why")
        await connection.execute(_LOCK_BLOBS, *key, timeout=STATEMENT_TIMEOUT)
        blobs, blob_size = await connection.fetchrow(_DELETE_BLOBS, *key, timeout=STATEMENT_TIMEOUT) or (0, 0)
        for statement in _DELETE_ROWS:
            await connection.execute(statement, *key)
        await connection.execute(_DELETE_VALUES, key[0], encode_text(session_values_prefix(session)))
        ended = seal_erased(info, events=events, blobs=blobs, by=by, ts=current_time())
        await connection.execute(_INSERT_EVENT, *key, ended.seq, ended.stored)
        await connection.execute(UPSERT_SESSION_ROW, *key, *session_columns(advance_row(info, [ended])), info.term)
        notice = self._hub.followers.head_message(where.key, ended.seq)
        await connection.execute("select pg_notify('vaka', $1)", notice)
        return events, blobs, size + blob_size


async def _erase_events(connection: PostgresConnection, key: tuple[bytes, bytes], chain: HashChain) -> tuple[int, int]:
    """Replace the events of a session by stubs; return their number, and ``count_erased_bytes``."""
    count = size = 0
    while rows := await connection.fetch(SELECT_EVENTS, *key, chain.seq, REINDEX_PAGE_SIZE):
        events = [chain.check_next(seq, body) for seq, body in rows]
        stubs = [erase_event(event) for event in events]
        changed = [stub for stub in stubs if stub.erased]
        await connection.execute(
            _UPDATE_EVENTS, *key, [stub.seq for stub in changed], [stub.stored for stub in changed]
        )
        size += count_erased_bytes(events, stubs)
        count += len(changed)
    return count, size
