"""The transactions of the operations of threads, counted at the failpoints of the store."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.failpoint_counter import count_failpoints
from vaka.stores.sqlite import SqliteStore
from vaka.threads.threads import Threads

COMMIT = "append.after_commit"


@pytest.fixture
def passes() -> Iterator[Counter[str]]:
    with count_failpoints() as counted:
        yield counted


@pytest.fixture
async def threads(tmp_path: Path) -> AsyncIterator[Threads]:
    store: Any = SqliteStore(tmp_path / "s.db", durability="process")
    async with vaka.Runtime(store=store) as runtime:
        yield runtime.threads
    await store.close()


async def test_each_change_of_a_thread_is_one_transaction(threads: Threads, passes: Counter[str]) -> None:
    await threads.create(id="t", title="Pumps")
    assert passes[COMMIT] == 1
    await threads.add_message("t", {"role": "user", "content": "Why is it wet?", "id": "m1"})
    assert passes[COMMIT] == 2
    await threads.append_many("t", [{"role": "assistant", "content": f"Part {n}."} for n in range(50)])
    assert passes[COMMIT] == 3
    await threads.update("t", metadata={"rank": 1})
    assert passes[COMMIT] == 4
    await threads.set_state("t", "paused")
    assert passes[COMMIT] == 5


async def test_reading_a_thread_and_repeating_an_addition_write_nothing(threads: Threads, passes: Counter[str]) -> None:
    await threads.create(id="t")
    await threads.add_message("t", {"role": "user", "content": "Why is it wet?", "id": "m1"})
    passes.clear()
    assert not (await threads.add_message("t", {"role": "user", "content": "Why is it wet?", "id": "m1"})).added
    await threads.get_messages("t")
    await threads.stats("t")
    await threads.search("wet")
    assert passes[COMMIT] == 0
