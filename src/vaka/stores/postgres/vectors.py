"""Vectors in PostgreSQL: exact search in matrices in this process; pgvector, if present, searches large scopes."""

from array import array
from collections.abc import Mapping, Sequence
from functools import partial

from vaka.core.ports.vectors import VectorMatch, VectorQuery, VectorRecord
from vaka.core.types.ids import JSON
from vaka.stores.postgres.database import PostgresConnection, PostgresRecord
from vaka.stores.postgres.encoding import decode_text, encode_text
from vaka.stores.postgres.hub import PostgresHub, PostgresPort
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
    decode_record,
    decode_vector,
    dimension_error,
    dimension_of,
    find_nearest,
    first_change,
    is_far_behind,
    matches_filter,
    may_write,
    search_of,
)

SCAN_ROWS = 256

_ARRAY_HEADER = 20
"""Bytes before the items of a one-dimensional array in PostgreSQL's binary format; each item has 4 bytes of length."""

_IN_SCOPE = "namespace = $1 and collection = $2 and scope = $3"
_UNDER = "(scope = {0} or (scope >= {0} || '/'::bytea and scope < {0} || '0'::bytea))"
_NEXT_CHANGE = (
    "insert into vaka.vector_scopes as s (namespace, collection, scope, change, size) values ($1, $2, $3, $4, 0) "
    "on conflict (namespace, collection, scope) do update set change = s.change + 1 returning change"
)
_RESIZE = f"update vaka.vector_scopes set size = size + $4 where {_IN_SCOPE}"  # noqa: S608  # nosec B608  # constants
_SELECT_SIZE = f"select size from vaka.vector_scopes where {_IN_SCOPE}"  # noqa: S608  # nosec B608  # constants
_SELECT_DIMENSION = "select dimension from vaka.vector_collections where namespace = $1 and collection = $2"
_INSERT_COLLECTION = (
    "insert into vaka.vector_collections (namespace, collection, dimension) values ($1, $2, $3) on conflict do nothing"
)
_SELECT_VERSIONS = f"select id, version from vaka.vectors where {_IN_SCOPE} and id = any ($4::bytea[])"  # noqa: S608  # nosec B608  # constants
_UPSERT_VECTOR = (
    "insert into vaka.vectors as v (namespace, collection, scope, id, text, metadata, vector, change, version) "
    "values ($1, $2, $3, $4, $5, $6, $7, $8, 1) on conflict (namespace, collection, scope, id) do update set "
    "text = excluded.text, metadata = excluded.metadata, vector = excluded.vector, change = excluded.change, "
    "version = v.version + 1"
)
_UPDATE_RECORD = (
    f"update vaka.vectors set text = $5, metadata = $6, version = version + 1 where {_IN_SCOPE} and id = $4"  # noqa: S608  # nosec B608  # constants
)
_DELETE_VECTORS = f"delete from vaka.vectors where {_IN_SCOPE} and id = any ($4::bytea[]) returning number"  # noqa: S608  # nosec B608  # constants
_INSERT_DELETIONS = (
    "insert into vaka.vector_deletions (namespace, collection, scope, change, number) "
    "select $1, $2, $3, $4, number from unnest($5::bigint[]) as number"
)
_TRIM_DELETIONS = f"delete from vaka.vector_deletions where {_IN_SCOPE} and change <= $4"  # noqa: S608  # nosec B608  # constants
_SELECT_DELETIONS = f"select number from vaka.vector_deletions where {_IN_SCOPE} and change > $4"  # noqa: S608  # nosec B608  # constants
_SELECT_STATE = (
    "select c.dimension, coalesce(s.change, 0) as change from vaka.vector_collections c left join vaka.vector_scopes s "
    "on s.namespace = c.namespace and s.collection = c.collection and s.scope = $3 "
    "where c.namespace = $1 and c.collection = $2"
)
_SELECT_ROWS = f"select change, number, array_send(vector) from vaka.vectors where {_IN_SCOPE}"  # noqa: S608  # nosec B608  # constants
_SELECT_CHANGED = f"{_SELECT_ROWS} and change > $4 order by change, number limit $5"
_SELECT_NEXT_ROWS = f"{_SELECT_ROWS} and (change, number) > ($4, $5) order by change, number limit $6"
_RECORD_COLUMNS = "number, id, text, metadata, version"
_SELECT_BY_ID = (
    f"select {_RECORD_COLUMNS}, case when $5 then array_send(vector) end as vector from vaka.vectors "  # noqa: S608  # nosec B608  # constants
    f"where {_IN_SCOPE} and id = any ($4::bytea[])"
)
_SELECT_PAGE = (
    f"select {_RECORD_COLUMNS}, case when $5 then array_send(vector) end as vector from vaka.vectors "  # noqa: S608  # nosec B608  # constants
    f"where {_IN_SCOPE} and id > $4 order by id limit $6"
)
# ``is not distinct from`` cannot use an index: the planner might read the whole scope for a few numbers.
_SELECT_BY_NUMBER = (
    f"select {_RECORD_COLUMNS}, null as vector from vaka.vectors where number = any ($4::bigint[]) "  # noqa: S608  # nosec B608  # constants
    "and (namespace, collection, scope) is not distinct from ($1::bytea, $2::bytea, $3::bytea)"
)
_SELECT_SCOPES = (
    "select scope from vaka.vector_scopes where namespace = $1 and collection = $2 and size > 0 "  # noqa: S608  # nosec B608  # constants
    f"and ($3::bytea = ''::bytea or {_UNDER.format('$3::bytea')}) order by scope"
)
_SELECT_ERASED = (
    f"select collection, scope, size from vaka.vector_scopes where namespace = $1 and {_UNDER.format('$2::bytea')} "  # noqa: S608  # nosec B608  # constants
    "order by collection, scope for update"
)
_SELECT_PGVECTOR = (
    "select quote_ident(n.nspname) from pg_extension e join pg_namespace n on n.oid = e.extnamespace "
    "where e.extname = 'vector' and $1::bytea is not null"
)


class _VersionConflict(Exception):  # not an error: the answer of a conditional write
    """A stored record does not have the version that a write needs."""


class PostgresVectors(PostgresPort):
    """The vectors of one namespace."""

    def __init__(self, namespace: bytes, hub: PostgresHub, max_matrix_rows: int) -> None:
        super().__init__(namespace, hub)
        self._max_matrix_rows = max_matrix_rows
        self._search = search_of(hub)
        self._pgvector: str | None = None
        """The schema of pgvector, ``""`` when the server does not have it; ``None`` before the first query."""

    async def upsert(
        self, collection: str, scope: str, records: Sequence[VectorRecord], *, delete: Sequence[str] = ()
    ) -> bool:
        place, stored = self._place(collection, scope), check_records(records)

        async def work(connection: PostgresConnection) -> None:
            async with connection.transaction():
                await self._write(connection, collection, place, stored, delete)

        try:
            await self._database.run(work, retry=all(record.version is None for record in stored))
        except _VersionConflict:
            return False
        return True

    async def delete(self, collection: str, scope: str, ids: Sequence[str]) -> int:
        place = self._place(collection, scope)

        async def work(connection: PostgresConnection) -> int:
            async with connection.transaction():
                change = await connection.fetchval(_NEXT_CHANGE, *place, first_change())
                return await _delete(connection, place, change, ids)

        return await self._database.run(work)

    async def query(self, collection: str, scope: str, query: VectorQuery) -> Sequence[VectorMatch]:
        key = (decode_text(self._namespace), *check_place(collection, scope))
        return await find_nearest(query, partial(self._rank, key), partial(self._read_records, key))

    async def get(
        self, collection: str, scope: str, ids: Sequence[str], *, with_vectors: bool = False
    ) -> Sequence[VectorRecord]:
        place = self._place(collection, scope)
        rows = await self._fetch(_SELECT_BY_ID, *place[1:], [encode_text(id) for id in ids], with_vectors)
        records = {record.id: record for record in map(_parse_record, rows)}
        return [records[id] for id in ids if id in records]

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
        place = self._place(collection, scope)
        found: list[VectorRecord] = []
        while len(found) < limit:
            page = await self._fetch(_SELECT_PAGE, *place[1:], encode_text(after), with_vectors, SCAN_ROWS)
            records = [_parse_record(row) for row in page]
            found += [record for record in records if matches_filter(record.metadata, filter)]
            if len(page) < SCAN_ROWS:
                break
            after = records[-1].id
        return found[:limit]

    async def scopes(self, collection: str, under: str = "") -> Sequence[str]:
        place = self._place(collection, under)
        return [decode_text(row["scope"]) for row in await self._fetch(_SELECT_SCOPES, *place[1:])]

    async def erase(self, scope: str, *, dry_run: bool = False) -> int:
        name = encode_text(check_erased_scope(scope))

        async def work(connection: PostgresConnection) -> int:
            async with connection.transaction():
                found = await connection.fetch(_SELECT_ERASED, self._namespace, name)
                for collection, below, _ in () if dry_run else found:
                    for table in ("vectors", "vector_deletions", "vector_scopes"):
                        statement = f"delete from vaka.{table} where {_IN_SCOPE}"  # noqa: S608  # nosec B608  # constants
                        await connection.execute(statement, self._namespace, collection, below)
                return sum(row["size"] for row in found)

        return await self._database.run(work)

    async def read_changes(self, key: ScopeKey, after: int) -> MatrixChanges:
        place = self._place(*key[1:])
        state = await self._fetch_row(_SELECT_STATE, *place[1:])
        change, dimension = (state["change"], state["dimension"]) if state is not None else (0, 0)
        if is_far_behind(change, after):
            return MatrixChanges(change, dimension, complete=False)
        if change == after:
            return MatrixChanges(change, dimension)
        removed = [row["number"] for row in await self._fetch(_SELECT_DELETIONS, *place[1:], after)]
        rows = await self._fetch(_SELECT_CHANGED, *place[1:], after, LOAD_ROWS + 1)
        if len(rows) > LOAD_ROWS:
            return MatrixChanges(change, dimension, complete=False)
        return MatrixChanges(change, dimension, removed, [_parse_row(row) for row in rows])

    async def read_rows(self, key: ScopeKey, change: int, number: int) -> Sequence[MatrixRow]:
        rows = await self._fetch(_SELECT_NEXT_ROWS, *self._place(*key[1:])[1:], change, number, LOAD_ROWS)
        return [_parse_row(row) for row in rows]

    async def _write(
        self,
        connection: PostgresConnection,
        collection: str,
        place: tuple[bytes, bytes, bytes],
        records: Sequence[StoredVector],
        delete: Sequence[str],
    ) -> None:
        change = await connection.fetchval(
            _NEXT_CHANGE, *place, first_change()
        )  # locks the scope until the transaction ends
        if dimension := dimension_of(records):
            await connection.execute(_INSERT_COLLECTION, *place[:2], dimension)
        check_dimension(collection, await connection.fetchval(_SELECT_DIMENSION, *place[:2]), records)
        rows = await connection.fetch(_SELECT_VERSIONS, *place, [encode_text(record.id) for record in records])
        versions = {decode_text(row["id"]): row["version"] for row in rows}
        if not all(may_write(record, versions.get(record.id, 0)) for record in records):
            raise _VersionConflict
        texts = {record.id: (encode_text(record.id), encode_text(record.text), record.metadata) for record in records}
        await connection.executemany(
            _UPSERT_VECTOR,
            [(*place, *texts[one.id], decode_vector(one.vector), change) for one in records if one.vector],
        )
        await connection.executemany(
            _UPDATE_RECORD, [(*place, *texts[record.id]) for record in records if not record.vector]
        )
        await connection.execute(_RESIZE, *place, len(records) - len(versions))
        await _delete(connection, place, change, delete)

    async def _rank(self, key: ScopeKey, query: bytes, count: int) -> list[tuple[int, float]]:
        if self._pgvector is None:
            row = await self._fetch_row(_SELECT_PGVECTOR)
            self._pgvector = "" if row is None else row[0]
        if self._pgvector:
            size = await self._fetch_row(_SELECT_SIZE, *self._place(*key[1:])[1:])
            if size is not None and size["size"] > self._max_matrix_rows:
                return await self._rank_on_server(key, query, count)
        return await self._search.rank(self, key, query, count)

    async def _rank_on_server(self, key: ScopeKey, query: bytes, count: int) -> list[tuple[int, float]]:
        """Let pgvector compare the vectors; it uses an index on ``vector::vector(<dimension>)`` if there is one.

        Such an index has the condition on the length: a collection of another length has its own.
        """
        row = await self._fetch_row(_SELECT_STATE, *self._place(*key[1:])[1:])
        dimension = 0 if row is None else int(row["dimension"])
        if dimension * 4 != len(query):
            raise dimension_error(key[1], dimension, len(query) // 4)
        kind = f"{self._pgvector}.vector({dimension})"
        distance = f"vector::{kind} operator({self._pgvector}.<=>) $4::real[]::{kind}"
        statement = (
            f"select number, 1 - ({distance}) as similarity from vaka.vectors where {_IN_SCOPE} "  # noqa: S608  # nosec B608  # no text of users
            f"and array_length(vector, 1) = {dimension} order by {distance} limit $5"
        )
        rows = await self._fetch(statement, *self._place(*key[1:])[1:], decode_vector(query), count)
        return [(row["number"], row["similarity"]) for row in rows]

    async def _read_records(self, key: ScopeKey, numbers: Sequence[int]) -> Mapping[int, VectorRecord]:
        rows = await self._fetch(_SELECT_BY_NUMBER, *self._place(*key[1:])[1:], numbers)
        return {row["number"]: _parse_record(row) for row in rows}

    def _place(self, collection: str, scope: str) -> tuple[bytes, bytes, bytes]:
        collection, scope = check_place(collection, scope)
        return self._namespace, encode_text(collection), encode_text(scope)


async def _delete(
    connection: PostgresConnection, place: tuple[bytes, bytes, bytes], change: int, ids: Sequence[str]
) -> int:
    if not ids:
        return 0
    rows = await connection.fetch(_DELETE_VECTORS, *place, [encode_text(id) for id in ids])
    return await _record_deletions(connection, place, change, [row["number"] for row in rows])


async def _record_deletions(
    connection: PostgresConnection, place: tuple[bytes, bytes, bytes], change: int, numbers: Sequence[int]
) -> int:
    await connection.execute(_INSERT_DELETIONS, *place, change, numbers)
    await connection.execute(_TRIM_DELETIONS, *place, change - RETAINED_CHANGES)
    await connection.execute(_RESIZE, *place, -len(numbers))
    return len(numbers)


def _parse_row(row: PostgresRecord) -> MatrixRow:
    return MatrixRow(row["change"], row["number"], _parse_array(row["array_send"]))


def _parse_array(raw: bytes) -> bytes:
    """Return the 32-bit floats of an array in PostgreSQL's binary format, the lowest byte first."""
    words = array("I")
    words.frombytes(raw[_ARRAY_HEADER:])
    numbers = words[1::2]  # each number follows its length
    numbers.byteswap()
    return numbers.tobytes()


def _parse_record(row: PostgresRecord) -> VectorRecord:
    vector = _parse_array(row["vector"]) if row["vector"] is not None else b""
    stored = StoredVector(
        decode_text(row["id"]), decode_text(row["text"]), bytes(row["metadata"]), vector, row["version"]
    )
    return decode_record(stored, with_vector=bool(vector))
