"""The vectors of the store in memory."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vaka.core.ports.vectors import VectorMatch, VectorQuery, VectorRecord
from vaka.core.types.ids import JSON
from vaka.stores.memory import MemoryPort
from vaka.stores.vectors import (
    MatrixRow,
    ScopeKey,
    StoredVector,
    check_dimension,
    check_erased_scope,
    check_place,
    check_query,
    check_records,
    decode_record,
    dimension_error,
    dimension_of,
    find_nearest,
    matches_filter,
    may_write,
    new_matrix,
)

if TYPE_CHECKING:
    from vaka.stores.vector_matrix import VectorMatrix


class _Scope:
    """The records of one scope, by id and by number, and the matrix of their vectors once there was a query."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.rows: dict[int, StoredVector] = {}
        self._last_number = 0
        self._matrix: VectorMatrix | None = None

    def version_of(self, id: str) -> int:
        number = self.numbers.get(id)
        return 0 if number is None else self.rows[number].version or 0

    def put(self, record: StoredVector) -> None:
        version, number = self.version_of(record.id) + 1, self.numbers.get(record.id)
        if number is None:
            number = self.numbers[record.id] = self._last_number = self._last_number + 1
        vector = record.vector or self.rows[number].vector
        self.rows[number] = record._replace(vector=vector, version=version)
        if self._matrix is not None:
            self._matrix.put([MatrixRow(0, number, vector)])

    def remove(self, ids: Sequence[str]) -> int:
        numbers = [self.numbers.pop(id) for id in ids if id in self.numbers]
        for number in numbers:
            del self.rows[number]
        if self._matrix is not None:
            self._matrix.remove(numbers)
        return len(numbers)

    async def rank(self, query: bytes, count: int) -> list[tuple[int, float]]:
        if self._matrix is None:
            self._matrix = new_matrix(len(query) // 4)
            self._matrix.put([MatrixRow(0, number, row.vector) for number, row in self.rows.items()])
        return self._matrix.rank(query, count)

    async def read(self, numbers: Sequence[int]) -> Mapping[int, VectorRecord]:
        return {number: decode_record(self.rows[number]) for number in numbers}


class VectorTables:
    """The vectors that all handles on one memory share."""

    def __init__(self) -> None:
        self.dimensions: dict[tuple[str, str], int] = {}
        self.scopes: dict[ScopeKey, _Scope] = {}


class MemoryVectors(MemoryPort):
    """The vectors of one namespace."""

    async def upsert(
        self, collection: str, scope: str, records: Sequence[VectorRecord], *, delete: Sequence[str] = ()
    ) -> bool:
        tables = self._shared.vectors
        key = self._key(collection, scope)
        stored = check_records(records)
        check_dimension(collection, tables.dimensions.get(key[:2]), stored)
        rows = tables.scopes.get(key) or _Scope()
        if not all(may_write(record, rows.version_of(record.id)) for record in stored):
            return False
        if dimension := dimension_of(stored):
            tables.dimensions[key[:2]] = dimension
        tables.scopes[key] = rows
        for record in stored:
            rows.put(record)
        rows.remove(delete)
        return True

    async def delete(self, collection: str, scope: str, ids: Sequence[str]) -> int:
        return self._scope(collection, scope).remove(ids)

    async def query(self, collection: str, scope: str, query: VectorQuery) -> Sequence[VectorMatch]:
        rows, length = self._scope(collection, scope), len(check_query(query)) // 4
        dimension = self._shared.vectors.dimensions.get((self._namespace, collection), length)
        if dimension != length:
            raise dimension_error(collection, dimension, length)
        return await find_nearest(query, rows.rank, rows.read)

    async def get(
        self, collection: str, scope: str, ids: Sequence[str], *, with_vectors: bool = False
    ) -> Sequence[VectorRecord]:
        rows = self._scope(collection, scope)
        return [
            decode_record(rows.rows[rows.numbers[id]], with_vector=with_vectors) for id in ids if id in rows.numbers
        ]

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
        rows = self._scope(collection, scope)
        found: list[VectorRecord] = []
        for id in sorted(id for id in rows.numbers if id > after):
            record = decode_record(rows.rows[rows.numbers[id]], with_vector=with_vectors)
            if matches_filter(record.metadata, filter):
                found.append(record)
            if len(found) == limit:
                break
        return found

    async def scopes(self, collection: str, under: str = "") -> Sequence[str]:
        namespace, collection, under = self._key(collection, under)
        return sorted(
            scope
            for (space, name, scope), rows in self._shared.vectors.scopes.items()
            if (space, name) == (namespace, collection) and rows.rows and _is_under(scope, under)
        )

    async def erase(self, scope: str, *, dry_run: bool = False) -> int:
        check_erased_scope(scope)
        scopes = self._shared.vectors.scopes
        erased = [key for key in scopes if key[0] == self._namespace and _is_under(key[2], scope)]
        count = sum(len(scopes[key].rows) for key in erased)
        for key in () if dry_run else erased:
            del scopes[key]
        return count

    def _key(self, collection: str, scope: str) -> ScopeKey:
        return self._namespace, *check_place(collection, scope)

    def _scope(self, collection: str, scope: str) -> _Scope:
        return self._shared.vectors.scopes.get(self._key(collection, scope)) or _Scope()


def _is_under(scope: str, above: str) -> bool:
    return not above or scope == above or scope.startswith(f"{above}/")
