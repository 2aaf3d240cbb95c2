"""Recall by meaning over 50,000 vectors of 384 numbers: exact search in each store, compared with bare numpy."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.measure import percentile, raised_priority
from bench.row import Row
from bench.stores import MEMORY, POSTGRES, POWER, StoreKind, run_postgres, temporary_folder
from vaka.core.ports.store import Store
from vaka.core.ports.vectors import VectorQuery, VectorRecord
from vaka.runtime.open_store import open_store

DIMENSION = 384
TOP_K = 5
BATCH = 1000
TARGET_MS = 20.0


def make_vectors(count: int) -> npt.NDArray[np.float32]:
    """Return random vectors of length 1."""
    vectors: Any = np.random.default_rng(1).standard_normal((count, DIMENSION)).astype(np.float32)
    made: npt.NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return made


async def fill(store: Store, vectors: npt.NDArray[np.float32]) -> None:
    """Store all vectors in one scope, and some in that of another user."""
    for first in range(0, len(vectors), BATCH):
        records = [
            VectorRecord(id=f"m{first + at:06}", text=f"memory {at}", vector=tuple(row), metadata={"n": at})
            for at, row in enumerate(vectors[first : first + BATCH].tolist())
        ]
        await store.vectors.upsert("memories", "users/a", records)
        if not first:
            await store.vectors.upsert("memories", "users/b", records[:100])


async def time_queries(store: Store, scope: str, queries: npt.NDArray[np.float32], write: bool) -> list[float]:
    """Return the milliseconds of each query; with ``write``, another memory is stored before each of them."""
    taken: list[float] = []
    for at, query in enumerate(queries.tolist()):
        if write:
            await store.vectors.upsert("memories", scope, [VectorRecord(id=f"new{at}", vector=tuple(query))])
        begun = time.perf_counter()
        await store.vectors.query("memories", scope, VectorQuery(vector=tuple(query), top_k=TOP_K))
        taken.append((time.perf_counter() - begun) * 1e3)
    return taken


def time_numpy(vectors: npt.NDArray[np.float32], queries: npt.NDArray[np.float32]) -> list[float]:
    """Return the milliseconds of each product of the matrix with a query, and of the selection of the best."""
    taken: list[float] = []
    for query in queries:
        begun = time.perf_counter()
        np.argpartition(np.einsum("ij,j->i", vectors, query), -TOP_K)[-TOP_K:].tolist()
        taken.append((time.perf_counter() - begun) * 1e3)
    return taken


@asynccontextmanager
async def open_temporarily(kind: StoreKind, url: str) -> AsyncGenerator[Store]:
    store = open_store(url, durability=kind.durability)
    try:
        yield store
    finally:
        await store.close()


async def measure_store(kind: StoreKind, url: str, count: int, repeats: int) -> list[Row]:
    """Measure the queries of a store, with and without writes between them, and the first one of a process."""
    vectors, queries = make_vectors(count), make_vectors(repeats)[::-1]
    async with open_temporarily(kind, url) as store:
        await fill(store, vectors)
        first = (await time_queries(store, "users/a", queries[:1], write=False))[0]
        # A server in another process would wait for this one.
        with raised_priority() if kind is not POSTGRES else nullcontext("among others") as how:
            raw = percentile(time_numpy(vectors, queries), 0.95)
            quiet = percentile(await time_queries(store, "users/a", queries, write=False), 0.95)
            busy = percentile(await time_queries(store, "users/a", queries, write=True), 0.95)
            small = percentile(await time_queries(store, "users/b", queries, write=False), 0.95)
    what = f"recall, {count:,} × {DIMENSION}"
    return [
        kind.row(f"{what}, p95", quiet, "ms", target=TARGET_MS, raw=raw, ratio=quiet / raw, note=f"raw: numpy; {how}"),
        kind.row(f"{what}, a write before each, p95", busy, "ms", target=TARGET_MS, raw=raw, ratio=busy / raw),
        kind.row("recall, 100 beside them, p95", small, "ms"),
        kind.row(f"{what}, the first of a process", first, "ms", note="loads the vectors"),
    ]


async def measure(quick: bool) -> list[Row]:
    """Measure each store."""
    count, repeats = (5_000, 50) if quick else (50_000, 200)
    rows = await measure_store(MEMORY, "memory:", count, repeats)
    with temporary_folder() as folder:
        rows += await measure_store(POWER, f"sqlite:///{folder / 'vaka.db'}", count, repeats)
    with run_postgres() as dsn:
        if dsn is None:
            return [*rows, POSTGRES.missing_row("recall")]
        return [*rows, *await measure_store(POSTGRES, dsn, count, repeats)]


def measure_recall(quick: bool) -> list[Row]:
    """Measure recall."""
    return asyncio.run(measure(quick))
