"""Matrices of vectors: what is loaded, followed and dropped; damaged rows; and a Python without numpy."""

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from vaka.core.ports.vectors import VectorQuery, VectorRecord
from vaka.core.types.errors import ConfigError, Corrupt
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.stores.vectors import (
    LOAD_ROWS,
    RETAINED_CHANGES,
    THREAD_NUMBERS,
    ExactSearch,
    MatrixChanges,
    MatrixRow,
    ScopeKey,
    encode_vector,
)

QUERY = VectorQuery(vector=(1.0, 0.0), top_k=1)


def records(first: int, count: int) -> list[VectorRecord]:
    return [VectorRecord(id=f"r{number}", vector=(float(number), 1000.0)) for number in range(first, first + count)]


async def find(store: SqliteStore) -> str:
    (match,) = await store.vectors.query("c", "s", QUERY)
    return match.record.id


async def test_a_matrix_that_is_far_behind_is_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "vaka.db"
    store, other = SqliteStore(path, durability="process"), SqliteStore(path, durability="process")
    await store.vectors.upsert("c", "s", records(1, 3))
    assert await find(store) == await find(other) == "r3"
    await other.vectors.upsert("c", "s", records(10, LOAD_ROWS + 5), delete=["r3"])
    assert await find(store) == await find(other) == f"r{LOAD_ROWS + 14}"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:  # as after very many writes
        connection.execute("delete from vectors where id <> 'r1'")
        connection.execute("update vector_scopes set change = change + ?", (RETAINED_CHANGES + 1,))
    assert await find(store) == "r1"
    await store.close()
    await other.close()


async def test_damaged_rows_are_named(tmp_path: Path) -> None:
    path = tmp_path / "vaka.db"
    store = SqliteStore(path, durability="process")
    await store.vectors.upsert("c", "s", [VectorRecord(id=id, vector=(1.0, 2.0)) for id in ("text", "short", "vector")])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("update vectors set metadata = 'x' where id = 'text'")
        connection.execute("update vectors set vector = x'00' where id = 'vector'")
    for id in ("text", "vector"):
        with pytest.raises(Corrupt, match=f"'{id}'"):
            await store.vectors.get("c", "s", [id], with_vectors=True)
    assert await store.vectors.delete("c", "s", ["text", "vector"]) == 2
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("update vectors set vector = x'0000', vector_checksum = 1104745215")
    with pytest.raises(Corrupt, match="number"):
        await store.vectors.query("c", "s", QUERY)
    await store.close()


class OneRow:
    """Scopes of one row each, that count how often they were loaded."""

    def __init__(self, dimension: int) -> None:
        self.dimension, self.loads = dimension, 0

    async def read_changes(self, key: ScopeKey, after: int) -> MatrixChanges:
        return MatrixChanges(1, self.dimension, complete=after == 1)

    async def read_rows(self, key: ScopeKey, change: int, number: int) -> Sequence[MatrixRow]:
        if number >= 0:
            return ()
        self.loads += 1
        return [MatrixRow(1, 1, encode_vector([1.0] * self.dimension))]


async def test_matrices_beyond_the_limit_are_dropped_the_least_recently_used_first() -> None:
    source, query = OneRow(1000), encode_vector([1.0] * 1000)
    search = ExactSearch(max_bytes=150_000)  # two of them
    for scope in ("a", "b", "a", "c", "a"):
        assert [number for number, _ in await search.rank(source, ("", "c", scope), query, 1)] == [1]
    assert source.loads == 3
    await search.rank(source, ("", "c", "b"), query, 1)
    assert source.loads == 4


async def test_a_large_matrix_is_searched_in_a_thread(tmp_path: Path) -> None:
    dimension = 16_000
    store = SqliteStore(tmp_path / "vaka.db", durability="process")
    count = THREAD_NUMBERS // dimension + 1
    rows = [VectorRecord(id=f"r{at}", vector=(float(at), *([1.0] * (dimension - 1)))) for at in range(count)]
    await store.vectors.upsert("c", "s", rows)
    query = VectorQuery(vector=(1.0, *([0.0] * (dimension - 1))), top_k=1)
    assert [match.record.id for match in await store.vectors.query("c", "s", query)] == [f"r{count - 1}"]
    await store.close()


async def test_without_numpy_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await store.vectors.upsert("c", "s", records(1, 1))
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "vaka.stores.vector_matrix", raising=False)
    with pytest.raises(ConfigError, match=r"vaka\[embeddings\]"):
        await store.vectors.query("c", "s", QUERY)


async def test_namespaces_of_one_database_share_the_matrices_and_not_the_rows(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "vaka.db", durability="process")
    for number in range(3):
        tenant = store.with_namespace(f"tenant {number}")
        await tenant.vectors.upsert("c", "s", [VectorRecord(id=f"r{number}", vector=(1.0, float(number)))])
    for _ in range(2):
        for number in range(3):
            (match,) = await store.with_namespace(f"tenant {number}").vectors.query("c", "s", QUERY)
            assert match.record.id == f"r{number}"
        assert await store.vectors.query("c", "s", QUERY) == []
    await store.close()
