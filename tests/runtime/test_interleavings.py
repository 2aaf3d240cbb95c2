"""Two runtimes, as two processes have, on one session: random interleavings of callers keep the rules of the log."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from tests.runtime.interleaving import TickingEvents, interleave, run_skipping
from vaka.stores.memory import MemoryStore
from vaka.stores.postgres import PostgresStore
from vaka.stores.sqlite import SqliteStore

TALK = ("run", "stream", "steer", "interrupt", "send")
EVERYTHING = (
    *TALK,
    "cancel",
    "leave",
    "reject",
    "replace",
    "resume",
    "checkpoint",
    "rewind",
    "fork",
    "close",
)
SETS = pytest.mark.parametrize(
    "operations", [TALK, EVERYTHING, (*EVERYTHING, "shutdown")], ids=["talk", "everything", "shutdown"]
)
FAILED_SEEDS = (0, 1, 2, 3, 6, 10, 14, 18, 22, 24, 26, 33, 41, 93, 104, 110, 170, 171, 2021)
"""Seeds that have found a fault before."""
ROUNDS = 400 if os.environ.get("HYPOTHESIS_PROFILE") == "exhaustive" else 10
SEEDS = sorted({*FAILED_SEEDS, *range(1000, 1000 + ROUNDS)})


def interleave_in_memory(seed: int, operations: tuple[str, ...]) -> None:
    async def run_round() -> None:
        store = MemoryStore()
        stores = [store, store.open_handle()]
        for number, handle in enumerate(stores):
            handle.events = TickingEvents(handle.events, random.Random(f"{seed} {number}"))
        await interleave(seed, stores, operations)

    run_skipping(run_round)


@SETS
def test_callers_interleave_on_a_memory_store(operations: tuple[str, ...]) -> None:
    for seed in SEEDS:
        interleave_in_memory(seed, operations)


def test_an_input_is_withdrawn_or_taken_by_a_turn() -> None:
    for seed in (29, 71, 94, *range(1000, 1006)):
        interleave_in_memory(seed, (*TALK, "withdraw", "withdraw"))


@SETS
def test_callers_interleave_on_a_sqlite_store(operations: tuple[str, ...], tmp_path: Path) -> None:
    for seed in SEEDS:

        async def run_round(seed: int = seed) -> None:
            stores = [SqliteStore(tmp_path / f"{seed}.db", durability="process") for _ in range(2)]
            await interleave(seed, stores, operations)

        run_skipping(run_round)


@SETS
def test_callers_interleave_on_a_postgres_store(operations: tuple[str, ...], postgres_dsn: str) -> None:
    for seed in SEEDS[:: max(1, len(SEEDS) // 6)]:

        async def run_round(seed: int = seed) -> None:
            stores = [PostgresStore(postgres_dsn, namespace=f"{seed}") for _ in range(2)]
            await interleave(seed, stores, operations)

        asyncio.run(run_round())
