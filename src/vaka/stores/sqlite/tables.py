"""The ports beside the log: sessions, snapshots, blobs and key-value pairs of one namespace."""

import hashlib
import itertools
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import msgspec

from vaka.core.ports.store import PendingDecision, SessionInfo, SessionPage, SessionQuery, SessionStatus
from vaka.core.session.hash_chain import hash_of
from vaka.core.session.index_rows import find_asked_decisions, replace_fields, require_data
from vaka.core.types.decode import decode
from vaka.core.types.errors import Busy, Corrupt, NotFound
from vaka.core.types.ids import JSON, DecisionId, Digest, SessionId
from vaka.core.types.message import replace_surrogates
from vaka.stores.common import (
    check_blob,
    current_time,
    encode_present_value,
    encode_value,
    metadata_filter,
    page_of,
    parse_cursor,
    sort_decisions,
    tag_pattern,
)
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
        statement, values = _list_statement(self._namespace, query)

        def work(connection: sqlite3.Connection) -> list[Any]:
            return connection.execute(statement, values).fetchall()

        # A search in titles or metadata reads all rows, which is too slow for the event loop.
        reads_all = query.text or query.metadata
        found = await (self._database.run_in_thread(work) if reads_all else self._database.read(work))
        loaded = [rows.parse_row(self._key(session), tuple(record)) for session, *record in found]
        return page_of([self._info_of(row) for row in loaded], query)

    async def delete(self, session: SessionId) -> None:
        await self._database.write(partial(self._delete_session, self._key(session)), rows=1)

    async def decisions(self, session: SessionId | None = None, *, id: str | None = None) -> Sequence[PendingDecision]:
        query, values = _SELECT_DECISIONS, list[str]()
        if session is not None:
            query, values = f"{query} and d.session = ?", [session]
        if id is not None:
            query, values = f"{query} and d.decision = ?", [*values, replace_surrogates(id)]
        found = await self._fetch(query, *values)
        return sort_decisions(_parse_decision(self._key(SessionId(name)), *record) for name, *record in found)

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
            raise Busy(f"session {key[1]!r} has a writer; end its turn first")
        rows.delete_session(connection, key)


def _list_statement(namespace: str, query: SessionQuery) -> tuple[str, list[object]]:
    """Return the statement for one page and one more row, with its values."""
    after = parse_cursor(query)
    since = query.updated_after
    before = query.updated_before
    conditions, values = ["namespace = ?"], [namespace]
    wanted = metadata_filter(query)

    def add(condition: str, *arguments: str) -> None:
        conditions.append(condition)
        values.extend(arguments)

    if query.status is not None:
        add(_STATUS_CONDITIONS[query.status])
    if query.prefix:
        add("session >= ? and session < ?", query.prefix, f"{query.prefix}\U0010ffff")
    texts: tuple[tuple[str, str], ...] = (
        ("agent = ?", query.agent),
        ("origin = ?", query.origin),
        ("has(title, ?)", query.text),
        ("belongs_to = ? and belongs_to <> ''", query.owner),
        ("instr(tags, ?) > 0", tag_pattern(query.tag)),
        ("has_metadata(metadata, ?)", msgspec.json.encode(wanted).decode() if wanted else ""),
        ("state = ?" if query.state == "active" else "state = ? and state <> 'active'", query.state),
    )
    for condition, value in texts:
        if value:
            add(condition, value)
    if query.folder:
        below = f"{query.folder.rstrip('/')}/"
        add("(folder in ('', ?) or substr(folder, 1, length(?)) = ?)", query.folder, below, below)
    # The index is by minute: the condition on it narrows the rows, the one on ``updated`` is exact.
    if since:
        add("minute >= ? and updated > ?", rows.minute_of(since), since)
    if before:
        add("minute <= ? and updated < ?", rows.minute_of(before), before)
    if after is not None:
        add("minute <= ? and (updated, session) < (?, ?)", rows.minute_of(after[0]), *after)
    order = "order by minute desc, updated desc, session desc limit ?"
    return f"{_SELECT_SESSIONS}{' and '.join(conditions)} {order}", [*values, query.limit + 1]


def _parse_decision(key: SqliteKey, decision: str, seq: int, hash: str, body: bytes | None) -> PendingDecision:
    stored = rows.check_body(key, seq, body)
    if hash_of(stored) == hash:
        for row in find_asked_decisions(key[1], [decode(stored)]):
            if row.id == DecisionId(decision) and row.seq == seq:
                return row
    raise Corrupt(f"session {key[1]!r}: the index row of decision {decision!r} is damaged; run `vaka doctor --reindex`")


_MAX_SEQ = (1 << 63) - 1

_SAVE_SNAPSHOT = (
    "insert or replace into snapshots (namespace, session, version, seq, checksum, data) values (?,?,?,?,?,?)"
)


class SqliteSnapshots(SqlitePort):
    async def save(self, session: SessionId, *, seq: int, version: str, data: bytes) -> None:
        key = self._key(session)

        def save(connection: sqlite3.Connection) -> None:
            connection.execute("delete from snapshots where namespace=? and session=? and version<>?", (*key, version))
            connection.execute(_SAVE_SNAPSHOT, (*key, version, seq, checksum(key, version, seq, data), data))

        await self._database.write(save, size=len(data))

    async def load(self, session: SessionId, *, version: str, upto: int | None = None) -> tuple[int, bytes] | None:
        """Return the newest intact snapshot."""
        key = self._key(session)
        query = (
            "select seq, checksum, data from snapshots "
            "where namespace = ? and session = ? and version = ? and seq <= ? order by seq desc"
        )

        def load(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
            with closing(connection.execute(query, (*key, version, _MAX_SEQ if upto is None else upto))) as found:
                for seq, crc, data in found:
                    if isinstance(data, bytes) and checksum(key, version, seq, data) == crc:
                        return seq, data
            return None

        return await self._database.read(load)


_PUT_BLOB = (
    "insert into blobs (namespace, digest, created, data) values (?,?,?,?) "
    "on conflict (namespace, digest) do update set created = excluded.created, data = excluded.data"
)
# The event that names the blob finds the row there; ``seq`` of a blob is not read.
_HOLD_BLOB = "insert or ignore into names (namespace, session, kind, name, seq) values (?,?,'blob',?,0)"
_SELECT_ERASED = "select erased from sessions where namespace = ? and session = ?"
_SELECT_MISSING = (
    "select value from json_each(?2) where not exists (select 1 from blobs where namespace = ?1 and digest = value)"
)


class SqliteBlobs(SqlitePort):
    async def put(self, data: bytes, *, session: str = "") -> Digest:
        """Store ``data``; a blob that exists gets a new creation time, so that ``gc`` spares it."""
        digest, key = Digest(hashlib.sha256(data).hexdigest()), self._key(SessionId(session))

        def put(connection: sqlite3.Connection) -> None:
            record: Any = connection.execute(_SELECT_ERASED, key).fetchone() if session else None
            if record is not None and record[0]:
                require_data(SessionInfo(id=key[1], erased=record[0]))
            connection.execute(_PUT_BLOB, (self._namespace, digest, current_time(), data)).close()
            if session:
                connection.execute(_HOLD_BLOB, (*key, digest)).close()

        await self._database.write_again(put, size=len(data))
        return digest

    async def find_missing(self, digests: Iterable[Digest]) -> set[Digest]:
        missing = await self._fetch(_SELECT_MISSING, msgspec.json.encode(list(digests)).decode())
        return {digest for (digest,) in missing}

    async def get(self, digest: Digest) -> bytes:
        found = await self._fetch("select data from blobs where namespace = ? and digest = ?", digest)
        return check_blob(digest, found[0][0] if found else None)


_SELECT_VALUE = "select checksum, value from pairs where namespace = ? and key = ?"
_PUT_VALUE = "insert or replace into pairs (namespace, key, checksum, value, expires) values (?,?,?,?,?)"
_DELETE_VALUE = "delete from pairs where namespace = ? and key = ?"


class SqliteValues(SqlitePort):
    async def get(self, key: str) -> JSON:
        found = await self._fetch(_SELECT_VALUE, key)
        return self._decode(key, found[0]) if found else None

    async def put(self, key: str, value: JSON) -> None:
        if value is None:
            await self._write(_DELETE_VALUE, key)
            return
        raw = encode_value(key, value)

        def put(connection: sqlite3.Connection) -> None:
            connection.execute(_PUT_VALUE, self._row_of(key, raw, ""))

        await self._database.write(put, size=len(raw))

    async def put_if_absent(self, key: str, value: JSON) -> JSON:
        raw = encode_present_value(key, value)
        statement = "insert or ignore into pairs (namespace, key, checksum, value) values (?,?,?,?)"
        values = (self._namespace, key, checksum(self._namespace, key, raw), raw)

        def put(connection: sqlite3.Connection) -> Any:
            connection.execute(statement, values).close()
            return connection.execute(_SELECT_VALUE, (self._namespace, key)).fetchone()

        return self._decode(key, await self._database.write_again(put, size=len(raw)))

    async def compare_and_set(self, key: str, old: JSON, new: JSON, *, expires: str = "") -> bool:
        raw_old, raw_new = (None if value is None else encode_value(key, value) for value in (old, new))
        name = (self._namespace, key)

        def load(connection: sqlite3.Connection) -> bytes | None:
            found = connection.execute(_SELECT_VALUE, name).fetchone()
            return found[1] if found else None

        def change(connection: sqlite3.Connection) -> bool:
            stored = load(connection)
            if stored != raw_old:
                return stored == raw_new
            if raw_new is None:
                connection.execute(_DELETE_VALUE, name)
            else:
                connection.execute(_PUT_VALUE, self._row_of(key, raw_new, expires))
            return True

        return await self._database.write_again(change, size=len(raw_new or b""))

    async def keys(self, prefix: str = "") -> Sequence[str]:
        query = "select key from pairs where namespace = ? and key >= ? order by key"

        def list_keys(connection: sqlite3.Connection) -> list[str]:
            with closing(connection.execute(query, (self._namespace, prefix))) as found:
                # sorted by code point: all keys with the prefix come first
                return [key for (key,) in itertools.takewhile(lambda row: row[0].startswith(prefix), found)]

        return await self._database.read(list_keys)

    def _row_of(self, key: str, raw: bytes, expires: str) -> tuple[object, ...]:
        return self._namespace, key, checksum(self._namespace, key, raw), raw, expires

    def _decode(self, key: str, record: tuple[int, object]) -> JSON:
        crc, raw = record
        if not isinstance(raw, bytes) or checksum(self._namespace, key, raw) != crc:
            raise Corrupt(f"the stored value of {key!r} is damaged")
        return msgspec.json.decode(raw)
