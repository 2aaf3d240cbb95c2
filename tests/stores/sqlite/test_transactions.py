"""The number of transactions for the appends of one tick of the event loop, counted at the failpoints."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.failpoint_counter import count_failpoints
from vaka.core.types.errors import ConflictError, HeadMoved
from vaka.core.types.event import Body
from vaka.stores.sqlite import SqliteStore
from vaka.stores.sqlite.connection import CHECKPOINT_PAGES
from vaka.testing.stores.sealed_events import (
    EventSealer,
    begin_session,
    find_session,
    input_added,
    offer_event,
    read_log,
    write_session,
)

PAGE_BYTES = 4096


@pytest.fixture
def passes() -> Iterator[Counter[str]]:
    with count_failpoints() as counted:
        yield counted


def _finishes_without_loop(work: Coroutine[Any, Any, int]) -> bool:
    """Whether the coroutine finishes without the event loop."""
    try:
        work.send(None)
    except StopIteration:
        return True
    work.close()
    return False


async def test_the_only_writer_commits_without_the_event_loop(store: SqliteStore, passes: Counter[str]) -> None:
    log, term = await begin_session(store, "s")
    passes.clear()
    assert _finishes_without_loop(log.append_to(store, term, input_added("two", "k2")))
    assert passes == dict.fromkeys(
        ("append.before_begin", "append.after_rows", "append.after_commit", "append.before_ack"), 1
    )
    assert await read_log(store, "s") == log.stored


async def test_several_writers_share_one_commit(store: SqliteStore, passes: Counter[str]) -> None:
    logs = [await begin_session(store, f"s{number}") for number in range(5)]
    passes.clear()
    heads = await asyncio.gather(*[log.append_to(store, term, input_added("two", "k2")) for log, term in logs])
    assert heads == [2] * 5
    assert passes["append.after_commit"] == 1


async def test_idle_appends_of_one_tick_share_one_commit(store: SqliteStore, passes: Counter[str]) -> None:
    logs = [await write_session(store, f"s{number}") for number in range(5)]
    infos = [await find_session(store, log.session) for log in logs]
    passes.clear()
    await asyncio.gather(
        *[
            store.events.append_idle(info, log.seal(input_added("two", "k2")))
            for info, log in zip(infos, logs, strict=True)
        ]
    )
    assert passes["append.after_commit"] == 1


async def test_the_write_ahead_log_begins_anew_while_many_sessions_write(store: SqliteStore, path: Path) -> None:
    async def write(number: int) -> None:
        log, term = await begin_session(store, f"s{number}")
        for n in range(150):
            await log.append_to(store, term, input_added(f"message {n} " * 40, f"k{n}"))

    await asyncio.gather(*map(write, range(16)))
    wal = path.with_name(f"{path.name}-wal").stat().st_size
    assert path.stat().st_size > CHECKPOINT_PAGES * PAGE_BYTES / 8  # most of what was written is in the database
    assert wal < 2 * CHECKPOINT_PAGES * PAGE_BYTES


async def test_a_failed_checkpoint_does_not_fail_the_writes(store: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        await write_session(store, "first")
        reader.execute("begin")
        reader.execute("select count(*) from events").fetchone()  # keeps checkpoints from copying what follows
        logs = await asyncio.gather(*[write_session(store, f"s{n}", *_many_inputs(40)) for n in range(30)])
        for log in logs:
            assert await read_log(store, log.session) == log.stored


def _many_inputs(count: int) -> list[Body]:
    return [input_added(f"message {n}", f"k{n}") for n in range(count)]


async def test_only_the_first_task_of_a_tick_commits_at_once(store: SqliteStore, passes: Counter[str]) -> None:
    log, term = await begin_session(store, "s")
    await asyncio.sleep(0)
    passes.clear()
    offers = [EventSealer("s", at=number) for number in range(4)]
    first = asyncio.create_task(log.append_to(store, term, input_added("two", "k2")))
    rest = [asyncio.create_task(other.append_to(store, term, input_added("x"))) for other in offers]
    assert await first == 2
    for outcome in await asyncio.gather(*rest, return_exceptions=True):
        assert isinstance(outcome, HeadMoved)
    assert passes["append.after_commit"] == 2


async def test_an_invalid_append_of_the_only_writer_fails_at_once(store: SqliteStore) -> None:
    log, term = await begin_session(store, "s")
    behind = EventSealer("s")
    with pytest.raises(HeadMoved):
        await behind.append_to(store, term, input_added("other", "o"))
    await log.append_to(store, term, input_added("two", "k2"), release=True)
    with pytest.raises(ConflictError):
        await log.append_to(store, term, input_added("three", "k3"))
    await write_session(store, "t")


async def test_a_waiting_writer_learns_of_earlier_offers(store: SqliteStore, path: Path) -> None:
    log, _ = await begin_session(store, "s")
    other = SqliteStore(path, durability="process")
    for number, handle in enumerate((other, store), 2):
        key = f"o{number}"
        assert await offer_event(handle, input_added("x", key)) == number
        async with asyncio.timeout(20):
            assert await store.events.wait(log.session, after=number - 1) == number
    await other.close()


async def test_a_writer_whose_append_was_refused_reads_the_new_head(store: SqliteStore) -> None:
    log, term = await begin_session(store, "s")
    await offer_event(store, input_added("x", "o"))
    with pytest.raises(HeadMoved):
        await log.append_to(store, term, input_added("two", "k2"))
    assert await store.events.wait(log.session, after=1) == 2
