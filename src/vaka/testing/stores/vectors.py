"""Contract of vectors."""

# ruff: noqa: S101  # a contract suite is made of asserts

import asyncio
import math
from typing import Any

import pytest

from vaka.core.ports.store import Store
from vaka.core.ports.vectors import VectorQuery, VectorRecord
from vaka.core.types.errors import InvalidInput
from vaka.testing.stores.values import HOSTILE_KEYS

NAMES = [name[:300] for name in HOSTILE_KEYS]


def record(id: str, *vector: float, version: int | None = None, **metadata: object) -> VectorRecord:
    return VectorRecord(id=id, text=f"text of {id}", metadata=metadata, vector=vector, version=version)


async def nearest(store: Store, scope: str, *vector: float, top_k: int = 5, **filter: object) -> list[str]:
    """Return the ids of the nearest records."""
    found = await store.vectors.query("c", scope, VectorQuery(vector=vector, top_k=top_k, filter=filter))
    return [match.record.id for match in found]


class VectorsContract:
    """Vectors by collection and scope."""

    async def test_the_nearest_vectors_are_found_with_their_similarity(self, store: Store) -> None:
        assert await nearest(store, "s", 1, 0) == []
        assert await store.vectors.upsert("c", "s", [record("a", 2, 0), record("b", 0, 3), record("c", 1, 1, n=1)])
        found = await store.vectors.query("c", "s", VectorQuery(vector=(5.0, 0.1), top_k=2))
        assert [match.record.id for match in found] == ["a", "c"]
        assert found[1].record == VectorRecord(id="c", text="text of c", metadata={"n": 1}, version=1)
        assert math.isclose(found[0].similarity, 5 / math.hypot(5, 0.1), abs_tol=1e-5)
        near = await store.vectors.query("c", "s", VectorQuery(vector=(-1.0, 0.0), threshold=0.0))
        assert [match.record.id for match in near] == ["b"]
        assert await nearest(store, "other", 1, 0) == []
        with pytest.raises(InvalidInput, match="top_k"):
            await nearest(store, "s", 1, 0, top_k=0)

    async def test_a_query_sees_the_writes_and_deletions_of_other_handles(self, store: Store, other: Store) -> None:
        await store.vectors.upsert("c", "s", [record("a", 1, 0), record("b", 0.9, 0.1), record("c", 0, 1)])
        assert await nearest(store, "s", 1, 0) == await nearest(other, "s", 1, 0) == ["a", "b", "c"]
        assert await other.vectors.delete("c", "s", ["a", "never"]) == 1
        assert await nearest(store, "s", 1, 0) == ["b", "c"]
        assert await other.vectors.upsert("c", "s", [record("c", 1, 0), record("d", 0, 1)], delete=["b"])
        assert await nearest(store, "s", 1, 0) == await nearest(other, "s", 1, 0) == ["c", "d"]
        await store.vectors.upsert("c", "s", [record(f"n{number}", number, 1) for number in range(100)])
        assert await nearest(other, "s", 1, 0, top_k=3) == ["c", "n99", "n98"]
        assert await other.vectors.erase("s") == 102
        assert await nearest(store, "s", 1, 0) == []

    async def test_metadata_filter_the_result_however_far_the_matches_are(self, store: Store) -> None:
        records = [record(f"r{number:03}", 1, number / 100, even=number % 2 == 0, n=number) for number in range(90)]
        await store.vectors.upsert("c", "s", [*records, record("far", -1, 0, n=None, tags=["x", 1])])
        assert await nearest(store, "s", 1, 0, top_k=2, even=False) == ["r001", "r003"]
        assert await nearest(store, "s", 1, 0, n=77) == ["r077"]
        assert await nearest(store, "s", 1, 0, tags="x") == await nearest(store, "s", 1, 0, tags=["x", 1]) == ["far"]
        assert await nearest(store, "s", 1, 0, n=7, even=True) == []
        found = await store.vectors.scan("c", "s", filter={"even": True}, after="r080")
        assert [row.id for row in found] == ["r082", "r084", "r086", "r088"]

    async def test_records_are_read_by_id_and_scanned_in_pages(self, store: Store) -> None:
        records = [record(f"r{number:03}", 1, number, n=number) for number in range(300)]
        await store.vectors.upsert("c", "s", records)
        first = await store.vectors.scan("c", "s", limit=200)
        rest = await store.vectors.scan("c", "s", limit=200, after=first[-1].id)
        assert [row.id for row in (*first, *rest)] == [row.id for row in records]
        assert first[0] == VectorRecord(id="r000", text="text of r000", metadata={"n": 0}, version=1)
        with_vector = await store.vectors.scan("c", "s", after="r298", with_vectors=True)
        assert [row.vector for row in with_vector] == [(1.0, 299.0)]
        got = await store.vectors.get("c", "s", ["r007", "none", "r001"], with_vectors=True)
        assert [(row.id, row.vector) for row in got] == [("r007", (1.0, 7.0)), ("r001", (1.0, 1.0))]
        assert await store.vectors.get("c", "other", ["r007"]) == []

    async def test_metadata_keep_their_types(self, store: Store, other: Store) -> None:
        metadata: dict[str, Any] = {
            "int": 3,
            "float": 1.0,
            "bool": True,
            "none": None,
            "list": [1, "é🛶\x00"],
            "deep": {"": [{}]},
        }
        await store.vectors.upsert("c", "s", [VectorRecord(id="a", metadata=metadata, vector=(1.0,))])
        got = (await other.vectors.get("c", "s", ["a"]))[0].metadata
        assert got == metadata
        assert [type(value) for value in got.values()] == [type(value) for value in metadata.values()]

    async def test_a_write_without_a_vector_keeps_the_stored_one(self, store: Store, other: Store) -> None:
        await store.vectors.upsert("c", "s", [record("a", 1, 0)])
        changed = VectorRecord(id="a", text="new", metadata={"x": 1})
        assert await other.vectors.upsert("c", "s", [changed])
        (got,) = await store.vectors.get("c", "s", ["a"], with_vectors=True)
        assert got == VectorRecord(id="a", text="new", metadata={"x": 1}, vector=(1.0, 0.0), version=2)
        assert await nearest(store, "s", 1, 0, x=1) == ["a"]
        assert not await store.vectors.upsert("c", "s", [changed, VectorRecord(id="unknown")])
        assert [row.version for row in await store.vectors.scan("c", "s")] == [2]

    async def test_of_concurrent_writes_to_one_version_exactly_one_happens(self, store: Store, other: Store) -> None:
        assert await store.vectors.upsert("c", "s", [record("a", 1, version=0)])
        assert not await other.vectors.upsert("c", "s", [record("a", 2, version=0), record("b", 1)])
        assert await store.vectors.get("c", "s", ["b"]) == []
        writes = [
            handle.vectors.upsert("c", "s", [record("a", 1, version=1, by=number)])
            for number, handle in enumerate([store, other] * 4)
        ]
        done = await asyncio.gather(*writes)
        (got,) = await other.vectors.get("c", "s", ["a"])
        assert sum(done) == 1
        assert (got.version, got.metadata) == (2, {"by": done.index(True)})
        assert not await store.vectors.upsert("c", "s", [record("a", 1, version=1)], delete=["a"])
        assert await store.vectors.upsert("c", "s", [], delete=["a"])
        assert await other.vectors.scan("c", "s") == []

    async def test_the_first_write_fixes_the_length_of_the_vectors(self, store: Store, other: Store) -> None:
        await store.vectors.upsert("c", "s", [record("a", 1, 0)])
        for write in (
            other.vectors.upsert("c", "t", [record("x", 1, 2, 3)]),
            other.vectors.query("c", "s", VectorQuery(vector=(1.0,))),
        ):
            with pytest.raises(InvalidInput, match="'c' has vectors of 2 numbers"):
                await write
        await other.vectors.delete("c", "s", ["a"])
        with pytest.raises(InvalidInput, match="the embedder that made"):
            await store.vectors.upsert("c", "s", [record("a", 1, 2, 3)])
        assert await other.vectors.upsert("d", "s", [record("a", 1, 2, 3)])
        assert await nearest(store, "s", 1, 0) == []

    async def test_invalid_records_are_refused_and_nothing_is_written(self, store: Store) -> None:
        nan, good = float("nan"), record("good", 1)
        for bad in (
            record("zero", 0),
            record("nan", nan),
            record("large", 1e300),
            record("", 1),
            record("x" * 301, 1),
            record("\ud800", 1),
            record("good", 2),
            record("two", 1, 2),
            record("data", 1, value=object()),
            VectorRecord(id="text", vector=("1",)),  # type: ignore[arg-type]  # as an untyped caller may
            record("long", *([1.0] * 16_385)),
        ):
            with pytest.raises(InvalidInput):
                await store.vectors.upsert("c", "s", [good, bad])
        for collection, scope in (("", "s"), ("c" * 101, "s"), ("c", "s" * 801), ("c", "\udfff")):
            with pytest.raises(InvalidInput):
                await store.vectors.upsert(collection, scope, [good])
        for query in ((), (nan,), (0.0,)):
            with pytest.raises(InvalidInput):
                await nearest(store, "s", *query)
        assert await store.vectors.scan("c", "s") == []

    async def test_hostile_names_are_only_names(self, store: Store) -> None:
        for name in NAMES:
            await store.vectors.upsert("c", name, [record(id, 1, at) for at, id in enumerate(NAMES)])
        assert await store.vectors.scopes("c") == sorted(NAMES)
        for name in NAMES:
            assert [row.id for row in await store.vectors.scan("c", name)] == sorted(NAMES)
            assert [row.id for row in await store.vectors.get("c", name, NAMES)] == NAMES
        for at, name in enumerate(NAMES, 1):
            assert await store.vectors.erase(name) >= len(NAMES) or name not in await store.vectors.scopes("c")
            assert not set(NAMES[:at]) & set(await store.vectors.scopes("c"))
        with pytest.raises(InvalidInput, match="empty scope"):
            await store.vectors.erase("")

    async def test_erasing_a_scope_removes_those_below_it_in_every_collection(self, store: Store, other: Store) -> None:
        scopes = ["", "users/a", "users/a/projects/p", "users/ab", "users/a0", "users/b", "users"]
        for scope in scopes:
            for collection in ("c", "d"):
                await store.vectors.upsert(collection, scope, [record("x", 1)])
        assert await store.vectors.scopes("c", "users/a") == ["users/a", "users/a/projects/p"]
        assert await nearest(other, "users/a", 1) == ["x"]
        assert await store.vectors.erase("users/a", dry_run=True) == 4
        assert await store.vectors.erase("users/a") == 4
        assert await store.vectors.erase("users/a") == 0
        for collection in ("c", "d"):
            assert await other.vectors.scopes(collection) == ["", "users", "users/a0", "users/ab", "users/b"]
        assert await nearest(other, "", 1) == ["x"]
        await store.vectors.upsert("c", "users/a", [record("y", 1)])
        assert await nearest(other, "users/a", 1) == ["y"]
        await store.vectors.erase("users/a")
        assert await nearest(other, "users/a", 1) == []

    async def test_namespaces_have_their_own_vectors(self, store: Store, other: Store) -> None:
        tenant = store.with_namespace("tenant")
        await store.vectors.upsert("c", "s", [record("mine", 1, 0)])
        await tenant.vectors.upsert("c", "s", [record("theirs", 1, 0, 0)])
        assert await nearest(other, "s", 1, 0) == ["mine"]
        assert await nearest(other.with_namespace("tenant"), "s", 1, 0, 0) == ["theirs"]
        assert await store.vectors.delete("c", "s", ["theirs"]) == 0
        assert await store.vectors.erase("s") == 1
        assert await nearest(tenant, "s", 1, 0, 0) == ["theirs"]
