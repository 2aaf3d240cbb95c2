"""The ports beside the log: sessions, snapshots, blobs and key-value pairs of one namespace."""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from vaka.core.ports.store import PendingDecision, SessionInfo, SessionPage, SessionQuery
from vaka.core.session.index_rows import find_asked_decisions, require_data
from vaka.core.types.decode import decode
from vaka.core.types.errors import Busy, Corrupt, NotFound
from vaka.core.types.ids import JSON, Digest, SessionId
from vaka.stores.common import (
    check_blob,
    encode_present_value,
    encode_value,
    equal_texts,
    metadata_filter,
    page_of,
    parse_cursor,
    sort_decisions,
    tag_pattern,
)
from vaka.stores.postgres.encoding import (
    DIGEST_LENGTH,
    decode_text,
    digest_text,
    encode_casefold,
    encode_name,
    encode_text,
    info_of,
    prefix_end,
)
from vaka.stores.postgres.hub import PostgresPort

_SELECT_SESSION = (
    "select *, (owner is not null and lease_until >= now()) as live from vaka.sessions where namespace = $1 and id = $2"
)

_SESSION_EXISTS = "select from vaka.sessions where namespace = $1 and id = $2"

_DELETE_SESSION = "select * from vaka.forget($1, $2, null, false)"

_SELECT_DECISIONS = (
    "select d.session, e.body from vaka.decisions d join vaka.events e "
    "on e.namespace = d.namespace and e.session = d.session and e.seq = d.seq where d.namespace = $1"
)

_SELECT_SESSIONS = "select *, (owner is not null and lease_until >= now()) as live from vaka.sessions where"

_STATUS_CONDITIONS = {
    "closed": "closed",
    "idle": "not closed and turn = '' and inputs = 0",
    "queued": "not closed and turn = '' and inputs > 0",
    "running": "not closed and turn <> '' and pending = 0",
    "waiting": "not closed and turn <> '' and pending > 0",
}


# The server cannot look for a key in JSON with an escaped NUL, so another character replaces it on both sides.
_HAS_METADATA = (
    "(replace(convert_from(nullif(metadata, ''), 'UTF8'), '\\u0000', '\\ufffd')::json -> {0}::text)::text = "
    "any ({1}::text[])"
)


class PostgresSessions(PostgresPort):
    """The index of one namespace."""

    async def find(self, session: SessionId) -> SessionInfo | None:
        row = await self._fetch_row(_SELECT_SESSION, encode_name(session))
        return None if row is None else info_of(row)

    async def list(self, query: SessionQuery) -> SessionPage:
        statement, arguments = _list_statement(self._namespace, query)
        return page_of([info_of(row) for row in await self._database.fetch(statement, *arguments)], query)

    async def delete(self, session: SessionId) -> None:
        name = encode_name(session)
        if await self._database.run(lambda c: c.fetch(_DELETE_SESSION, self._namespace, name), retry=False):
            return
        if await self._fetch_row(_SESSION_EXISTS, name) is None:
            raise NotFound(f"there is no session {session!r}")
        raise Busy(f"session {session!r} has a writer; end its turn first")

    async def decisions(self, session: SessionId | None = None, *, id: str | None = None) -> Sequence[PendingDecision]:
        query, values = _SELECT_DECISIONS, list[bytes]()
        if session is not None:
            query, values = f"{query} and d.session = $2", [encode_name(session)]
        if id is not None:
            query, values = f"{query} and d.id = ${len(values) + 2}", [*values, digest_text(id)]
        rows = await self._fetch(query, *values)
        return sort_decisions(
            pending
            for name, body in rows
            for pending in find_asked_decisions(SessionId(decode_text(name)), (decode(body),))
        )


def _list_statement(namespace: bytes, query: SessionQuery) -> tuple[str, list[object]]:
    """Return the statement for one page and one more row, with its arguments."""
    after = parse_cursor(query)
    arguments: list[object] = [namespace]
    conditions = ["namespace = $1"]

    def add_condition(condition: str, value: bytes) -> None:
        if value:
            arguments.append(value)
            conditions.append(condition.format(f"${len(arguments)}"))

    if query.status is not None:
        conditions.append(_STATUS_CONDITIONS[query.status])
    prefix = encode_text(query.prefix)
    add_condition("agent = {0}", encode_text(query.agent))
    add_condition("origin = {0}", encode_text(query.origin))
    add_condition("belongs_to = {0} and belongs_to <> ''", encode_text(query.owner))
    active = query.state == "active"
    add_condition("state = {0}" if active else "state = {0} and state <> 'active'", encode_text(query.state))
    add_condition("position({0}::bytea in tags) > 0", encode_text(tag_pattern(query.tag)))
    add_condition(
        "(folder in ('', {0}::bytea) or "
        "substring(folder from 1 for length({0}::bytea) + 1) = {0}::bytea || '/'::bytea)",
        encode_text(query.folder.rstrip("/")),
    )
    add_condition("position({0}::bytea in folded) > 0", encode_casefold(query.text))
    add_condition("id >= {0}", prefix)
    add_condition("id < {0}", prefix_end(prefix) or b"")
    add_condition("updated > {0}", encode_text(query.updated_after))
    add_condition("updated < {0}", encode_text(query.updated_before))
    for key, value in metadata_filter(query).items():
        arguments += [key, [text.replace("\\u0000", "\\ufffd") for text in equal_texts(value)]]
        conditions.append(_HAS_METADATA.format(f"${len(arguments) - 1}", f"${len(arguments)}"))
    if after is not None:
        arguments += [encode_text(after[0]), encode_text(after[1])]
        conditions.append(f"(updated, id) < (${len(arguments) - 1}, ${len(arguments)})")
    arguments.append(query.limit + 1)
    return (
        f"{_SELECT_SESSIONS} {' and '.join(conditions)} order by updated desc, id desc limit ${len(arguments)}",
        arguments,
    )


# Saving removes the snapshots of other fold versions.
_SAVE_SNAPSHOT = (
    "with old as (delete from vaka.snapshots where namespace = $1 and session = $2 and version <> $3) "
    "insert into vaka.snapshots (namespace, session, version, seq, body) "
    "select $1, $2, $3, $4, $5 from vaka.sessions where namespace = $1 and id = $2 "
    "on conflict (namespace, session, version, seq) do update set body = excluded.body"
)

_LOAD_SNAPSHOT = (
    "select seq, body from vaka.snapshots where namespace = $1 and session = $2 and version = $3 "
    "and ($4::bigint is null or seq <= $4) order by seq desc limit 1"
)

# Waits for an erasure of the session to end, but not for its appends. Returns no row if the session was erased.
_PUT_BLOB = (
    "with erased as (select erased from vaka.sessions where namespace = $1 and id = $4 for key share), "
    "held as (insert into vaka.blob_refs (namespace, session, digest) select $1, $4, $2::bytea "
    "where $4 <> ''::bytea and not exists (select from erased where erased > 0) on conflict do nothing) "
    "insert into vaka.blobs (namespace, digest, body, put) select $1, $2, $3::bytea, now() "
    "where not exists (select from erased where erased > 0) "
    "on conflict (namespace, digest) do update set put = now(), "  # equal bytes stay where they are stored
    "body = case when blobs.body = excluded.body then blobs.body else excluded.body end returning digest"
)

_SELECT_MISSING = (
    "select digest from unnest($2::bytea[]) as wanted (digest) where not exists (select from vaka.blobs b "
    "where b.namespace = $1 and b.digest = wanted.digest)"
)

_GET_BLOB = "select body from vaka.blobs where namespace = $1 and digest = $2"

_GET_VALUE = "select body from vaka.vals where namespace = $1 and digest = $2"

_PUT_VALUE = (
    "insert into vaka.vals (namespace, digest, key, body) values ($1, $2, $3, $4) "
    "on conflict (namespace, digest) do update set body = excluded.body, expires = excluded.expires"
)

_INSERT_VALUE = (
    "insert into vaka.vals (namespace, digest, key, body, expires) values ($1, $2, $3, $4, $5) "
    "on conflict do nothing returning body"
)
_REPLACE_VALUE = (
    "update vaka.vals set body = $4, expires = $5 where namespace = $1 and digest = $2 and body = $3 returning body"
)
_DELETE_EQUAL_VALUE = "delete from vaka.vals where namespace = $1 and digest = $2 and body = $3"

# The update changes nothing: it locks the row of another transaction until that has ended, and returns its value.
_PUT_VALUE_IF_ABSENT = (
    "insert into vaka.vals as old (namespace, digest, key, body) values ($1, $2, $3, $4) "
    "on conflict (namespace, digest) do update set body = old.body returning body"
)

_DELETE_VALUE = "delete from vaka.vals where namespace = $1 and digest = $2"

_SELECT_KEYS = (
    "select key from vaka.vals where namespace = $1 and substring(key from 1 for 256) >= $2 "
    "and ($3::bytea is null or substring(key from 1 for 256) < $3) order by key"
)

_INDEXED_BYTES = 256

_decode_value = msgspec.json.Decoder().decode


class PostgresSnapshots(PostgresPort):
    """Folded states, so that reopening a session reads only the events after them."""

    async def save(self, session: SessionId, *, seq: int, version: str, data: bytes) -> None:
        await self._fetch(_SAVE_SNAPSHOT, encode_name(session), digest_text(version), seq, data)

    async def load(self, session: SessionId, *, version: str, upto: int | None = None) -> tuple[int, bytes] | None:
        row = await self._fetch_row(_LOAD_SNAPSHOT, encode_name(session), digest_text(version), upto)
        return None if row is None else (row["seq"], row["body"])


class PostgresBlobs(PostgresPort):
    """Bytes by their SHA-256."""

    async def put(self, data: bytes, *, session: str = "") -> Digest:
        digest = Digest(hashlib.sha256(data).hexdigest())
        if not await self._fetch(_PUT_BLOB, encode_text(digest), data, encode_name(session)):
            require_data(SessionInfo(id=SessionId(session), erased=1))
        return digest

    async def find_missing(self, digests: Iterable[Digest]) -> set[Digest]:
        rows = await self._fetch(_SELECT_MISSING, [encode_text(digest) for digest in digests])
        return {Digest(decode_text(row["digest"])) for row in rows}

    async def get(self, digest: Digest) -> bytes:
        row = None
        if len(digest) == DIGEST_LENGTH:
            row = await self._fetch_row(_GET_BLOB, encode_text(digest))
        return check_blob(digest, None if row is None else row["body"])


class PostgresValues(PostgresPort):
    """Small JSON values by name."""

    async def get(self, key: str) -> JSON:
        row = await self._fetch_row(_GET_VALUE, digest_text(key))
        return None if row is None else _decode_body(key, row["body"])

    async def put(self, key: str, value: JSON) -> None:
        if value is None:
            await self._fetch(_DELETE_VALUE, digest_text(key))
            return
        await self._fetch(_PUT_VALUE, digest_text(key), encode_text(key), encode_value(key, value))

    async def put_if_absent(self, key: str, value: JSON) -> JSON:
        raw = encode_present_value(key, value)
        (row,) = await self._fetch(_PUT_VALUE_IF_ABSENT, digest_text(key), encode_text(key), raw)
        return _decode_body(key, row["body"])

    async def compare_and_set(self, key: str, old: JSON, new: JSON, *, expires: str = "") -> bool:
        digest, until = digest_text(key), encode_text(expires)
        raw_old, raw_new = (None if value is None else encode_value(key, value) for value in (old, new))
        if raw_new is None:
            if raw_old is not None:
                await self._fetch(_DELETE_EQUAL_VALUE, digest, raw_old)
        elif raw_old is None:
            if await self._fetch(_INSERT_VALUE, digest, encode_text(key), raw_new, until):
                return True
        elif await self._fetch(_REPLACE_VALUE, digest, raw_old, raw_new, until):
            return True
        row = await self._fetch_row(_GET_VALUE, digest)
        return (None if row is None else row["body"]) == raw_new

    async def keys(self, prefix: str = "") -> Sequence[str]:
        first = encode_text(prefix)
        rows = await self._fetch(_SELECT_KEYS, first[:_INDEXED_BYTES], prefix_end(first[:_INDEXED_BYTES]))
        return [decode_text(row["key"]) for row in rows if row["key"].startswith(first)]


def _decode_body(key: str, body: bytes) -> JSON:
    try:
        return _decode_value(body)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the stored value of {key[:60]!r} is damaged: {error}") from error
