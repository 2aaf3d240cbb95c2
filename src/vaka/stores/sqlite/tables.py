"""The ports beside the log: sessions, snapshots, blobs and key-value pairs of one namespace."""

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from vaka.core.ports.store import PendingDecision, SessionInfo, SessionPage, SessionQuery, SessionStatus
from vaka.core.session.hash_chain import hash_of
from vaka.core.session.index_rows import find_asked_decisions, replace_fields
from vaka.core.types.errors import Busy, Corrupt, InvalidInput, NotFound
from vaka.core.types.event import decode
from vaka.core.types.ids import JSON, DecisionId, Digest, SessionId
from vaka.stores.common import cursor_of, parse_cursor
from vaka.stores.sqlite import rows
from vaka.stores.sqlite.hub import SqlitePort
from vaka.stores.sqlite.rows import SessionRow, SqliteKey, checksum

_HAS_WORK = "closed = 0 and (turn <> '' or inputs > 0)"
"""The condition of the partial index ``sessions_with_work``, so that SQLite uses it."""

_STATUS_CONDITIONS: dict[SessionStatus, str] = {
    "closed": "closed = 1",
    "idle": "closed = 0 and turn = '' and inputs = 0",
    "queued": f"{_HAS_WORK} and turn = ''",
    "running": f"{_HAS_WORK} and turn <> '' and pending = 0",
    "waiting": f"{_HAS_WORK} and turn <> '' and pending > 0",
}

_SELECT_SESSIONS = f"select session, {rows.COLUMNS} from sessions where "  # noqa: S608  # nosec B608  # constants

_SELECT_DECISIONS = (
    "select d.session, d.decision, d.seq, d.hash, e.body from decisions d "
    "left join events e on e.namespace = d.namespace and e.session = d.session and e.seq = d.seq where d.namespace = ?"
)


class SqliteSessions(SqlitePort):
    async def find(self, session: SessionId) -> SessionInfo | None:
        row = await self._database.read(partial(rows.load_row, key=self._key(session)))
        return self._info_of(row) if row is not None else None

    async def list(self, query: SessionQuery) -> SessionPage:
        work = partial(_list_sessions, namespace=self._namespace, query=query, after=parse_cursor(query))
        # A title search reads all rows, which is too slow for the event loop.
        found = await (self._database.run_in_thread(work) if query.text else self._database.read(work))
        page = found[: query.limit]
        cursor = cursor_of(page[-1].info) if len(found) > len(page) else ""
        return SessionPage(sessions=tuple(self._info_of(row) for row in page), next=cursor)

    async def delete(self, session: SessionId) -> None:
        await self._database.write(partial(self._delete_session, self._key(session)), rows=1)

    async def decisions(self, session: SessionId | None = None) -> Sequence[PendingDecision]:
        found = await self._database.read(partial(_list_decisions, namespace=self._namespace, session=session))
        return sorted(found, key=lambda row: (row.event.ts, row.session, row.seq))

    def _info_of(self, row: SessionRow) -> SessionInfo:
        live = bool(row.owner) and self._hub.is_written_by(self._key(row.info.id), row.owner)
        return replace_fields(row.info, live=True) if live else row.info

    def _delete_session(self, key: SqliteKey, connection: sqlite3.Connection) -> None:
        query = "select owner from sessions where namespace = ? and session = ?"  # does not parse: it may be damaged
        record = connection.execute(query, key).fetchone()
        if record is None:
            query = "select 1 from events where namespace = ? and session = ? limit 1"
            if connection.execute(query, key).fetchone() is None:
                raise NotFound(f"there is no session {key[1]!r}")
        elif self._hub.is_written_by(key, str(record[0])):
            raise Busy(f"session {key[1]!r} has a writer")
        rows.delete_session(connection, key)


def _list_sessions(
    connection: sqlite3.Connection, namespace: str, query: SessionQuery, after: tuple[str, str] | None
) -> "list[SessionRow]":
    conditions: list[tuple[str, tuple[Any, ...]]] = [("namespace = ?", (namespace,))]
    if query.status is not None:
        conditions.append((_STATUS_CONDITIONS[query.status], ()))
    if query.prefix:
        conditions.append(("session >= ? and session < ?", (query.prefix, f"{query.prefix}\U0010ffff")))
    texts = {"agent = ?": query.agent, "origin = ?": query.origin, "has(title, ?)": query.text}
    conditions += [(condition, (value,)) for condition, value in texts.items() if value]
    # The index is by minute: the condition on it narrows the rows, the one on ``updated`` is exact.
    since, before = query.updated_after, query.updated_before
    if since:
        conditions.append(("minute >= ? and updated > ?", (rows.minute_of(since), since)))
    if before:
        conditions.append(("minute <= ? and updated < ?", (rows.minute_of(before), before)))
    if after is not None:
        conditions.append(("minute <= ? and (updated, session) < (?, ?)", (rows.minute_of(after[0]), *after)))
    where = " and ".join(condition for condition, _ in conditions)
    values = [value for _, parameters in conditions for value in parameters]
    statement = f"{_SELECT_SESSIONS}{where} order by minute desc, updated desc, session desc limit ?"
    found = connection.execute(statement, (*values, query.limit + 1)).fetchall()
    return [rows.parse_row((namespace, session), tuple(record)) for session, *record in found]


def _list_decisions(
    connection: sqlite3.Connection, namespace: str, session: SessionId | None
) -> "list[PendingDecision]":
    if session is None:
        found = connection.execute(_SELECT_DECISIONS, (namespace,)).fetchall()
    else:
        found = connection.execute(f"{_SELECT_DECISIONS} and d.session = ?", (namespace, session)).fetchall()
    return [_parse_decision((namespace, SessionId(name)), *record) for name, *record in found]


def _parse_decision(key: SqliteKey, decision: str, seq: int, hash: str, body: bytes | None) -> PendingDecision:
    stored = rows.check_body(key, seq, body)
    if hash_of(stored) == hash:
        for row in find_asked_decisions(key[1], [decode(stored)]):
            if row.id == DecisionId(decision) and row.seq == seq:
                return row
    raise Corrupt(f"session {key[1]!r}: the index row of decision {decision!r} is damaged; run `vaka doctor --reindex`")


_MAX_SEQ = (1 << 63) - 1


class SqliteSnapshots(SqlitePort):
    async def save(self, session: SessionId, *, seq: int, version: str, data: bytes) -> None:
        await self._database.write(partial(_save_snapshot, self._key(session), seq, version, data), size=len(data))

    async def load(self, session: SessionId, *, version: str, upto: int | None = None) -> tuple[int, bytes] | None:
        return await self._database.read(partial(_load_snapshot, key=self._key(session), version=version, upto=upto))


def _save_snapshot(key: SqliteKey, seq: int, version: str, data: bytes, connection: sqlite3.Connection) -> None:
    connection.execute("delete from snapshots where namespace = ? and session = ? and version <> ?", (*key, version))
    connection.execute(
        "insert or replace into snapshots (namespace, session, version, seq, checksum, data) values (?,?,?,?,?,?)",
        (*key, version, seq, checksum(key, version, seq, data), data),
    )


def _load_snapshot(
    connection: sqlite3.Connection, key: SqliteKey, version: str, upto: int | None
) -> tuple[int, bytes] | None:
    found = connection.execute(
        "select seq, checksum, data from snapshots "
        "where namespace = ? and session = ? and version = ? and seq <= ? order by seq desc",
        (*key, version, _MAX_SEQ if upto is None else upto),
    )
    for seq, crc, data in found:
        if isinstance(data, bytes) and checksum(key, version, seq, data) == crc:
            return seq, data
    return None


class SqliteBlobs(SqlitePort):
    async def put(self, data: bytes) -> Digest:
        """Store ``data``; a blob that exists gets a new creation time, so that ``gc`` spares it."""
        digest = Digest(hashlib.sha256(data).hexdigest())
        await self._database.write(partial(_put_blob, self._namespace, digest, data), size=len(data))
        return digest

    async def get(self, digest: Digest) -> bytes:
        return await self._database.read(partial(_get_blob, namespace=self._namespace, digest=digest))


def current_time() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _put_blob(namespace: str, digest: Digest, data: bytes, connection: sqlite3.Connection) -> None:
    connection.execute(
        "insert into blobs (namespace, digest, created, data) values (?,?,?,?) "
        "on conflict (namespace, digest) do update set created = excluded.created, data = excluded.data",
        (namespace, digest, current_time(), data),
    )


def _get_blob(connection: sqlite3.Connection, namespace: str, digest: Digest) -> bytes:
    query = "select data from blobs where namespace = ? and digest = ?"
    found = connection.execute(query, (namespace, digest)).fetchone()
    if found is None:
        raise NotFound(f"there is no blob {digest[:64]!r}")
    data: object = found[0]
    if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != digest:
        raise Corrupt(f"blob {digest!r}: its bytes do not match its digest")
    return data


class SqliteValues(SqlitePort):
    async def get(self, key: str) -> JSON:
        return await self._database.read(partial(_get_value, namespace=self._namespace, key=key))

    async def put(self, key: str, value: JSON) -> None:
        try:
            raw = None if value is None else msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidInput(f"value of {key!r} is not JSON: {error}") from error
        await self._database.write(partial(_put_value, self._namespace, key, raw), size=len(raw or b""))

    async def keys(self, prefix: str = "") -> Sequence[str]:
        return await self._database.read(partial(_list_keys, namespace=self._namespace, prefix=prefix))


def _get_value(connection: sqlite3.Connection, namespace: str, key: str) -> JSON:
    query = "select checksum, value from pairs where namespace = ? and key = ?"
    found = connection.execute(query, (namespace, key)).fetchone()
    if found is None:
        return None
    crc, raw = found
    if not isinstance(raw, bytes) or checksum(namespace, key, raw) != crc:
        raise Corrupt(f"the stored value of {key!r} is damaged")
    return msgspec.json.decode(raw)


def _put_value(namespace: str, key: str, raw: bytes | None, connection: sqlite3.Connection) -> None:
    if raw is None:
        connection.execute("delete from pairs where namespace = ? and key = ?", (namespace, key))
    else:
        connection.execute(
            "insert or replace into pairs (namespace, key, checksum, value) values (?,?,?,?)",
            (namespace, key, checksum(namespace, key, raw), raw),
        )


def _list_keys(connection: sqlite3.Connection, namespace: str, prefix: str) -> list[str]:
    names: list[str] = []
    query = "select key from pairs where namespace = ? and key >= ? order by key"
    with closing(connection.execute(query, (namespace, prefix))) as found:
        for (key,) in found:
            if not key.startswith(prefix):  # sorted by code point: all keys with the prefix come first
                break
            names.append(key)
    return names
