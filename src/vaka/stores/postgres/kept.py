"""What is kept beside the logs: folded states, blobs, small values."""

import hashlib
from collections.abc import Sequence

import msgspec

from vaka.core.types.errors import Corrupt, InvalidInput, NotFound
from vaka.core.types.ids import JSON, Digest, SessionId
from vaka.stores.postgres.database import Database
from vaka.stores.postgres.rows import DIGEST
from vaka.stores.postgres.text import beyond, place, raw, short, text

# States of another fold are of no use to the one that is saving now.
_SAVE = (
    "with old as (delete from vaka.snapshots where namespace = $1 and session = $2 and version <> $3) "
    "insert into vaka.snapshots (namespace, session, version, seq, body) "
    "select $1, $2, $3, $4, $5 from vaka.sessions where namespace = $1 and id = $2 "
    "on conflict (namespace, session, version, seq) do update set body = excluded.body"
)
_LOAD = (
    "select seq, body from vaka.snapshots where namespace = $1 and session = $2 and version = $3 "
    "and ($4::bigint is null or seq <= $4) order by seq desc limit 1"
)
_PUT_BLOB = (
    "insert into vaka.blobs (namespace, digest, body, put) values ($1, $2, $3, now()) "
    "on conflict (namespace, digest) do update set put = now()"
)
_GET_BLOB = "select body from vaka.blobs where namespace = $1 and digest = $2"
_GET = "select body from vaka.vals where namespace = $1 and digest = $2"
_PUT = (
    "insert into vaka.vals (namespace, digest, key, body) values ($1, $2, $3, $4) "
    "on conflict (namespace, digest) do update set body = excluded.body"
)
_REMOVE = "delete from vaka.vals where namespace = $1 and digest = $2"
_KEYS = (
    "select key from vaka.vals where namespace = $1 and substring(key from 1 for 256) >= $2 "
    "and ($3::bytea is null or substring(key from 1 for 256) < $3) order by key"
)
_INDEXED = 256
_read = msgspec.json.Decoder().decode


class Snapshots:
    """Folded states kept so that reopening costs only the tail."""

    def __init__(self, namespace: bytes, database: Database) -> None:
        self._namespace, self._database = namespace, database

    async def save(self, session: SessionId, *, seq: int, version: str, data: bytes) -> None:
        """Keep the state of a session as of ``seq``, made by fold ``version``."""
        where = place(self._namespace, session)
        await self._database.fetch(_SAVE, where.namespace, where.session, short(version), seq, data)

    async def load(self, session: SessionId, *, version: str, upto: int | None = None) -> tuple[int, bytes] | None:
        """Return the newest state of this fold version (not after ``upto``) and its seq."""
        where = place(self._namespace, session)
        row = await self._database.row(_LOAD, where.namespace, where.session, short(version), upto)
        return None if row is None else (row["seq"], row["body"])


class Blobs:
    """Bytes by their SHA-256."""

    def __init__(self, namespace: bytes, database: Database) -> None:
        self._namespace, self._database = namespace, database

    async def put(self, data: bytes) -> Digest:
        """Keep ``data``, durable on return, and return its digest."""
        digest = Digest(hashlib.sha256(data).hexdigest())
        await self._database.fetch(_PUT_BLOB, self._namespace, raw(digest), data)
        return digest

    async def get(self, digest: Digest) -> bytes:
        """Return the bytes; ``NotFound`` when they are not kept (any more), ``Corrupt`` when they do not match."""
        row = None
        if len(digest) == DIGEST:
            row = await self._database.row(_GET_BLOB, self._namespace, raw(digest))
        if row is None:
            raise NotFound(f"there is no blob {digest[:DIGEST]!r}")
        body: bytes = row["body"]
        if hashlib.sha256(body).hexdigest() != digest:
            raise Corrupt(f"blob {digest!r}: its bytes were changed")
        return body


class Values:
    """Small JSON values by name."""

    def __init__(self, namespace: bytes, database: Database) -> None:
        self._namespace, self._database = namespace, database

    async def get(self, key: str) -> JSON:
        """Return the value, ``None`` when there is none."""
        row = await self._database.row(_GET, self._namespace, short(key))
        try:
            return None if row is None else _read(row["body"])
        except msgspec.MsgspecError as error:
            raise Corrupt(f"the value of {key[:60]!r} is not what was put: {error}") from error

    async def put(self, key: str, value: JSON) -> None:
        """Keep the value, durable on return; ``None`` removes it."""
        if value is None:
            await self._database.fetch(_REMOVE, self._namespace, short(key))
            return
        try:
            body = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidInput(f"the value of {key[:60]!r} is not JSON: {error}") from error
        await self._database.fetch(_PUT, self._namespace, short(key), raw(key), body)

    async def keys(self, prefix: str = "") -> Sequence[str]:
        """Return the names that begin with ``prefix``, sorted."""
        first = raw(prefix)
        rows = await self._database.fetch(_KEYS, self._namespace, first[:_INDEXED], beyond(first[:_INDEXED]))
        return [text(row["key"]) for row in rows if row["key"].startswith(first)]
