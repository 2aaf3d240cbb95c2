"""Vectors in SQLite: exact search in matrices that follow the writes of all processes."""

import itertools
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from vaka.core.ports.vectors import VectorMatch, VectorQuery, VectorRecord
from vaka.core.types.ids import JSON
from vaka.stores.sqlite.hub import OpenSqliteStore, SqlitePort
from vaka.stores.vectors import (
    LOAD_ROWS,
    RETAINED_CHANGES,
    MatrixChanges,
    MatrixRow,
    ScopeKey,
    StoredVector,
    check_dimension,
    check_erased_scope,
    check_place,
    check_records,
    damaged_record,
    decode_record,
    dimension_of,
    find_nearest,
    first_change,
    is_far_behind,
    matches_filter,
    may_write,
    record_checksum,
    search_of,
)

SCAN_ROWS = 256
MAX_NUMBERS = 500
"""Rows that are read by number with one query."""

_IN_SCOPE = "namespace = ? and collection = ? and scope = ?"
_SELECT_DIMENSION = "select dimension from vector_collections where namespace = ? and collection = ?"
_INSERT_COLLECTION = "insert or ignore into vector_collections (namespace, collection, dimension) values (?,?,?)"
_NEXT_CHANGE = (
    "insert into vector_scopes (namespace, collection, scope, change) values (?,?,?,?) "
    "on conflict (namespace, collection, scope) do update set change = change + 1 returning change"
)
_SELECT_CHANGE = f"select change from vector_scopes where {_IN_SCOPE}"  # noqa: S608  # nosec B608  # constants
_SELECT_VERSION = f"select version from vectors where {_IN_SCOPE} and id = ?"  # noqa: S608  # nosec B608  # constants
_UPSERT_VECTOR = (
    "insert into vectors (namespace, collection, scope, id, text, metadata, checksum, vector, vector_checksum, change, "
    "version) values (?,?,?,?,?,?,?,?,?,?,1) on conflict (namespace, collection, scope, id) do update set "
    "text = excluded.text, metadata = excluded.metadata, checksum = excluded.checksum, vector = excluded.vector, "
    "vector_checksum = excluded.vector_checksum, change = excluded.change, version = version + 1"
)
_UPDATE_RECORD = (
    f"update vectors set text = ?, metadata = ?, checksum = ?, version = version + 1 where {_IN_SCOPE} and id = ?"  # noqa: S608  # nosec B608  # constants
)
_DELETE_VECTOR = f"delete from vectors where {_IN_SCOPE} and id = ? returning number"  # noqa: S608  # nosec B608  # constants
_INSERT_DELETION = (
    "insert or ignore into vector_deletions (namespace, collection, scope, change, number) values (?,?,?,?,?)"
)
_TRIM_DELETIONS = f"delete from vector_deletions where {_IN_SCOPE} and change <= ?"  # noqa: S608  # nosec B608  # constants
_SELECT_DELETIONS = f"select number from vector_deletions where {_IN_SCOPE} and change > ?"  # noqa: S608  # nosec B608  # constants
_SELECT_ROWS = f"select change, number, id, vector, vector_checksum from vectors where {_IN_SCOPE}"  # noqa: S608  # nosec B608  # constants
_SELECT_CHANGED = f"{_SELECT_ROWS} and change > ? limit ?"
_SELECT_NEXT_ROWS = f"{_SELECT_ROWS} and (change, number) > (?, ?) order by change, number limit ?"
_RECORD_COLUMNS = "number, id, text, metadata, checksum, vector, vector_checksum, version"
_SELECT_BY_ID = f"select {_RECORD_COLUMNS} from vectors where {_IN_SCOPE} and id = ?"  # noqa: S608  # nosec B608  # constants
_SELECT_BY_NUMBER = (
    f"select number, id, text, metadata, checksum, null, 0, version from vectors where {_IN_SCOPE} and number in "  # noqa: S608  # nosec B608  # constants
)
_SELECT_PAGE = f"select {_RECORD_COLUMNS} from vectors where {_IN_SCOPE} and id > ? order by id limit ?"  # noqa: S608  # nosec B608  # constants
_UNDER = "namespace = ? and (scope = ? or (scope >= ? and scope < ?))"
_SELECT_SCOPES = (
    "select scope from vector_scopes s where namespace = ?1 and collection = ?2 and "
    "(?3 = '' or scope = ?3 or (scope >= ?3 || '/' and scope < ?3 || '0')) and exists (select 1 from vectors v "
    "where v.namespace = s.namespace and v.collection = s.collection and v.scope = s.scope) order by scope"
)
_SELECT_ERASED = f"select collection, scope from vector_scopes where {_UNDER}"  # noqa: S608  # nosec B608  # constants
_COUNT_RECORDS = f"select count(*) from vectors where {_IN_SCOPE}"  # noqa: S608  # nosec B608  # constants


class SqliteVectors(SqlitePort):
    """The vectors of one namespace."""

    def __init__(self, store: OpenSqliteStore) -> None:
        super().__init__(store)
        self._search = search_of(self._hub)

    async def upsert(
        self, collection: str, scope: str, records: Sequence[VectorRecord], *, delete: Sequence[str] = ()
    ) -> bool:
        key, stored = self._scope_key(collection, scope), check_records(records)
        size = sum(len(record.vector) + len(record.metadata) + len(record.text) for record in stored)
        write = self._database.write
        if all(record.version is None for record in stored):
            write = self._database.write_again
        return await write(partial(_upsert, key, stored, list(delete)), rows=len(stored) + len(delete), size=size)

    async def delete(self, collection: str, scope: str, ids: Sequence[str]) -> int:
        work = partial(_delete, self._scope_key(collection, scope), list(ids))
        return await self._database.write(work, rows=len(ids))

    async def query(self, collection: str, scope: str, query: VectorQuery) -> Sequence[VectorMatch]:
        key = self._scope_key(collection, scope)
        return await find_nearest(query, partial(self._search.rank, self, key), partial(self._read_records, key))

    async def get(
        self, collection: str, scope: str, ids: Sequence[str], *, with_vectors: bool = False
    ) -> Sequence[VectorRecord]:
        key = self._scope_key(collection, scope)

        def read(connection: sqlite3.Connection) -> list[Any]:
            found = [connection.execute(_SELECT_BY_ID, (*key, id)).fetchone() for id in ids]
            return [row for row in found if row is not None]

        return [_parse_record(row, with_vector=with_vectors) for row in await self._database.read(read)]

    async def scan(
        self,
        collection: str,
        scope: str,
        *,
        filter: Mapping[str, JSON] = {},
        after: str = "",
        limit: int = 256,
        with_vectors: bool = False,
    ) -> Sequence[VectorRecord]:
        key = self._scope_key(collection, scope)
        found: list[VectorRecord] = []
        while len(found) < limit:
            page = await self._fetch(_SELECT_PAGE, *key[1:], after, SCAN_ROWS)
            records = [_parse_record(row, with_vector=with_vectors) for row in page]
            found += [record for record in records if matches_filter(record.metadata, filter)]
            if len(page) < SCAN_ROWS:
                break
            after = records[-1].id
        return found[:limit]

    async def scopes(self, collection: str, under: str = "") -> Sequence[str]:
        found = await self._fetch(_SELECT_SCOPES, *check_place(collection, under))
        return [scope for (scope,) in found]

    async def erase(self, scope: str, *, dry_run: bool = False) -> int:
        place = (self._namespace, check_erased_scope(scope))
        if dry_run:
            return await self._database.run_in_thread(partial(_count_erased, *place))
        return await self._database.write(partial(_erase, *place))

    async def read_changes(self, key: ScopeKey, after: int) -> MatrixChanges:
        return await self._database.read(partial(_read_changes, key, after))

    async def read_rows(self, key: ScopeKey, change: int, number: int) -> Sequence[MatrixRow]:
        def read(connection: sqlite3.Connection) -> list[MatrixRow]:
            with closing(connection.execute(_SELECT_NEXT_ROWS, (*key, change, number, LOAD_ROWS))) as rows:
                return [_parse_row(row) for row in rows]

        return await self._database.run_in_thread(read)

    async def _read_records(self, key: ScopeKey, numbers: Sequence[int]) -> Mapping[int, VectorRecord]:
        records: dict[int, VectorRecord] = {}
        # A filter that few records match reads very many, which is too slow for the event loop.
        read = self._database.read if len(numbers) <= MAX_NUMBERS else self._database.run_in_thread
        for first in range(0, len(numbers), MAX_NUMBERS):
            records |= await read(partial(_read_records, key, numbers[first : first + MAX_NUMBERS]))
        return records

    def _scope_key(self, collection: str, scope: str) -> ScopeKey:
        return self._namespace, *check_place(collection, scope)


def _upsert(
    key: ScopeKey, records: Sequence[StoredVector], delete: Sequence[str], connection: sqlite3.Connection
) -> bool:
    found = connection.execute(_SELECT_DIMENSION, key[:2]).fetchone()
    check_dimension(key[1], found[0] if found else None, records)
    for record in records:
        version = connection.execute(_SELECT_VERSION, (*key, record.id)).fetchone()
        if not may_write(record, version[0] if version else 0):
            return False
    if dimension := dimension_of(records):
        connection.execute(_INSERT_COLLECTION, (*key[:2], dimension))
        change = _next_change(connection, key)
    else:
        change = 0
    for record in records:
        checksum = record_checksum(record.id, record.text, record.metadata)
        if record.vector:
            values = (record.text, record.metadata, checksum, record.vector, zlib.crc32(record.vector), change)
            connection.execute(_UPSERT_VECTOR, (*key, record.id, *values))
        else:
            connection.execute(_UPDATE_RECORD, (record.text, record.metadata, checksum, *key, record.id))
    _delete(key, delete, connection)
    return True


def _next_change(connection: sqlite3.Connection, key: ScopeKey) -> int:
    (change,) = connection.execute(_NEXT_CHANGE, (*key, first_change())).fetchall()[
        0
    ]  # fetchone would leave the statement open
    return int(change)


def _delete(key: ScopeKey, ids: Sequence[str], connection: sqlite3.Connection) -> int:
    numbers = [row[0] for id in ids for row in connection.execute(_DELETE_VECTOR, (*key, id)).fetchall()]
    _record_deletions(connection, key, numbers)
    return len(numbers)


def _record_deletions(connection: sqlite3.Connection, key: ScopeKey, numbers: Sequence[int]) -> None:
    if numbers:
        change = _next_change(connection, key)
        connection.executemany(_INSERT_DELETION, [(*key, change, number) for number in numbers])
        connection.execute(_TRIM_DELETIONS, (*key, change - RETAINED_CHANGES))


def _erase(namespace: str, scope: str, connection: sqlite3.Connection) -> int:
    connection.execute("pragma secure_delete = on").close()
    try:
        erased = _find_erased(namespace, scope, connection)
        for key, table in itertools.product(erased, ("vectors", "vector_deletions", "vector_scopes")):
            connection.execute(f"delete from {table} where {_IN_SCOPE}", key).close()  # noqa: S608  # nosec B608  # constants
        return sum(erased.values())
    finally:
        connection.execute("pragma secure_delete = fast").close()


def _count_erased(namespace: str, scope: str, connection: sqlite3.Connection) -> int:
    return sum(_find_erased(namespace, scope, connection).values())


def _find_erased(namespace: str, scope: str, connection: sqlite3.Connection) -> dict[ScopeKey, int]:
    """Return a scope and the scopes below it, in every collection, with the numbers of their records."""
    found = connection.execute(_SELECT_ERASED, (namespace, scope, f"{scope}/", f"{scope}0")).fetchall()
    keys = [(namespace, *place) for place in found]
    return {key: connection.execute(_COUNT_RECORDS, key).fetchone()[0] for key in keys}


def _read_changes(key: ScopeKey, after: int, connection: sqlite3.Connection) -> MatrixChanges:
    connection.execute("begin")  # one snapshot for all statements
    try:
        dimension = connection.execute(_SELECT_DIMENSION, key[:2]).fetchone()
        found = connection.execute(_SELECT_CHANGE, key).fetchone()
        change, length = found[0] if found else 0, dimension[0] if dimension else 0
        if is_far_behind(change, after):
            return MatrixChanges(change, length, complete=False)
        if change == after:
            return MatrixChanges(change, length)
        removed = [number for (number,) in connection.execute(_SELECT_DELETIONS, (*key, after)).fetchall()]
        rows = connection.execute(_SELECT_CHANGED, (*key, after, LOAD_ROWS + 1)).fetchall()
        if len(rows) > LOAD_ROWS:
            return MatrixChanges(change, length, complete=False)
        return MatrixChanges(change, length, removed, [_parse_row(row) for row in rows])
    finally:
        if connection.in_transaction:
            connection.execute("commit")


def _read_records(key: ScopeKey, numbers: Sequence[int], connection: sqlite3.Connection) -> dict[int, VectorRecord]:
    statement = f"{_SELECT_BY_NUMBER}({','.join('?' * len(numbers))})"
    return {row[0]: _parse_record(row) for row in connection.execute(statement, (*key, *numbers)).fetchall()}


def _parse_row(row: tuple[Any, ...]) -> MatrixRow:
    change, number, id, vector, checksum = row
    if not isinstance(vector, bytes) or zlib.crc32(vector) != checksum:
        raise damaged_record(id)
    return MatrixRow(change, number, vector)


def _parse_record(row: tuple[Any, ...], *, with_vector: bool = False) -> VectorRecord:
    _, id, text, metadata, checksum, vector, vector_checksum, version = row
    if not (isinstance(id, str) and isinstance(text, str) and isinstance(metadata, bytes)):
        raise damaged_record(id)
    if record_checksum(id, text, metadata) != checksum:
        raise damaged_record(id)
    if with_vector and (not isinstance(vector, bytes) or zlib.crc32(vector) != vector_checksum):
        raise damaged_record(id)
    return decode_record(StoredVector(id, text, metadata, vector, version), with_vector=with_vector)
