"""Disks that are full, read-only, locked or slow."""

import asyncio
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.stores.sqlite.conftest import Spawn
from vaka.core.ports.store import SessionQuery, Store
from vaka.core.types.errors import Busy, ConfigError, InvalidInput, StoreError, Unavailable
from vaka.core.types.ids import SessionId
from vaka.stores.sqlite import SqliteStore
from vaka.stores.sqlite.connection import translate_commit_error
from vaka.stores.sqlite.database import FailedWork, GroupCommit
from vaka.testing.stores import StoreContract
from vaka.testing.stores.sealed_events import (
    EventSealer,
    begin_session,
    input_added,
    offer_event,
    read_log,
    write_session,
)

S = SessionId("s")


async def test_files_are_created_on_first_use_and_private(tmp_path: Path) -> None:
    path = tmp_path / "new" / "vaka.db"
    path.parent.mkdir(mode=0o700)
    store = SqliteStore(path)
    assert not list(path.parent.iterdir())
    await begin_session(store, "s")
    modes = {file.name.removeprefix("vaka.db"): stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"": 0o600, "-wal": 0o600, "-shm": 0o600, "-live": 0o700}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.with_name("vaka.db-live").iterdir()} == {0o600}
    await store.close()


async def test_the_url_opens_the_same_file_again(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s")
    assert store.url == f"sqlite:///{path}"
    again = SqliteStore(store.url.removeprefix("sqlite:///"))
    assert len(await read_log(again, "s")) == 1
    await again.close()


async def test_an_unknown_durability_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="'power' or 'process'"):
        SqliteStore(path, durability="luck")  # type: ignore[arg-type]  # what a configuration may hold


async def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with pytest.raises(StoreError, match="cannot be opened"):
        await store.sessions.find(S)
    await store.close()


async def test_a_failed_write_leaves_nothing_and_the_next_one_works(spawn: Spawn) -> None:
    child = await spawn("limited", 500_000)
    assert await child.read_to_end() == ["refused StoreError True", "kept True", "again 2"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    if (
        not shutil.which("mount")
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("this user cannot mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_full_disk_loses_nothing_and_writes_continue_afterwards(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "vaka.db")
    log, term = await begin_session(store, "s")
    other, other_term = await begin_session(store, "t")
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    stored = log.stored
    big = EventSealer("s", log.events[0])
    with pytest.raises(StoreError, match="disk is full"):
        await big.append_to(store, term, input_added("x" * 300_000, "big"))
    assert await read_log(store, "s") == stored
    ballast.unlink()
    assert await log.append_to(store, term, input_added("two", "k2")) == 2
    assert await other.append_to(store, other_term, input_added("two", "k2")) == 2
    assert await read_log(store, "s") == log.stored
    await store.close()


async def test_a_path_without_write_permission_is_a_store_error(path: Path, spawn: Spawn) -> None:
    store = SqliteStore(path)
    await write_session(store, "s")
    await store.close()
    for place in (path, path.parent):
        place.chmod(0o555)
    try:
        child = await spawn("locked_out")
        assert await child.read_to_end() == ["CannotOpen True"] * 3
    finally:
        path.parent.chmod(0o755)


class LockHolder:
    """Another program that holds the database's write lock."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("begin immediate")

    def end(self) -> None:
        self.connection.execute("rollback")
        self.connection.close()


async def test_writes_wait_for_a_lock_without_blocking_the_loop(store: SqliteStore, path: Path) -> None:
    logs = [await begin_session(store, f"s{number}") for number in range(5)]
    lock = LockHolder(path)
    writes = [asyncio.create_task(log.append_to(store, term, input_added("two", "k2"))) for log, term in logs]
    ticks = 0
    while ticks < 50:
        await asyncio.sleep(0)
        ticks += 1
    assert not any(write.done() for write in writes)
    assert len(await read_log(store, "s0")) == 1
    lock.end()
    assert await asyncio.gather(*writes) == [2] * 5
    for log, _ in logs:
        assert await read_log(store, log.session) == log.stored


async def test_the_outcome_of_a_cancelled_write_is_in_the_log(store: SqliteStore, path: Path) -> None:
    log, term = await begin_session(store, "s")
    lock = LockHolder(path)
    behind = EventSealer("s", log.events[-1])
    write = asyncio.create_task(behind.append_to(store, term, input_added("two", "k2")))
    await _wait_for_thread_write(store)
    write.cancel()
    await asyncio.gather(write, return_exceptions=True)
    lock.end()
    assert await store.events.wait(S, after=1) == 2
    await log.catch_up(store)
    assert await log.append_to(store, term, input_added("three", "k3")) == 3


async def _wait_for_thread_write(store: SqliteStore) -> None:
    """Return when the writer thread has a write."""
    for _ in range(100):
        await asyncio.sleep(0)
        if store.hub.database.thread_is_writing:
            return
    pytest.fail("nothing waits for the lock")


async def test_a_claim_cancelled_while_waiting_can_be_repeated(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s")
    lock = LockHolder(path)
    claim = asyncio.create_task(store.events.claim(S))
    await _wait_for_thread_write(store)
    with pytest.raises(Busy):
        await store.events.claim(S)
    claim.cancel()
    await asyncio.gather(claim, return_exceptions=True)
    lock.end()
    await store.values.put("a", 1)  # behind it
    assert not [info for info in (await store.sessions.list(SessionQuery())).sessions if info.live]
    assert await store.events.claim(S) == 3


async def test_closing_waits_for_queued_writes(store: SqliteStore, path: Path) -> None:
    log, term = await begin_session(store, "s")
    lock = LockHolder(path)
    write = asyncio.create_task(log.append_to(store, term, input_added("two", "k2")))
    await _wait_for_thread_write(store)
    closing_ = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    lock.end()
    await closing_
    assert await write == 2
    other = SqliteStore(path)
    assert len(await read_log(other, "s")) == 2
    await other.close()


async def test_opening_waits_while_another_process_creates_the_database(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("begin exclusive")
    store = SqliteStore(path)
    write = asyncio.create_task(write_session(store, "s"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not write.done()
    connection.execute("rollback")
    connection.close()
    log = await write
    assert await read_log(store, "s") == log.stored
    await store.close()


async def test_reading_waits_for_an_exclusive_lock(store: SqliteStore, path: Path) -> None:
    log = await write_session(store, "s")
    await store.close()
    alone = sqlite3.connect(path, isolation_level=None)
    alone.execute("pragma locking_mode = exclusive")
    alone.execute("begin exclusive")
    reader = SqliteStore(path)
    reading = asyncio.create_task(read_log(reader, "s"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not reading.done()
    alone.execute("rollback")
    alone.close()
    assert await reading == log.stored
    await reader.close()


def test_a_slow_disk_moves_commits_to_the_thread_and_a_fast_one_back() -> None:
    transactions = GroupCommit()
    slow: list[bool] = []
    for seconds in (0.0009, 0.002, 0.0007, 0.0001):
        for _ in range(40):
            transactions.record_commit_time(seconds)
        slow.append(transactions.disk_is_slow)
    assert slow == [False, True, True, False]


def test_one_slow_commit_among_fast_ones_changes_nothing() -> None:
    transactions = GroupCommit()
    for _ in range(20):
        for seconds in (0.5, 0.0001, 0.0001):
            transactions.record_commit_time(seconds)
    assert not transactions.disk_is_slow


def test_a_commit_that_failed_in_an_unknown_way_has_an_unknown_outcome() -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    assert isinstance(translate_commit_error(error), Unavailable)
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    assert not isinstance(translate_commit_error(error), Unavailable)


def test_work_that_fails_after_writing_is_rolled_back_alone(tmp_path: Path) -> None:
    def good(connection: sqlite3.Connection) -> str:
        connection.execute("insert into t values (1)")
        return "good"

    def bad(connection: sqlite3.Connection) -> None:
        connection.execute("insert into t values (2)")
        raise InvalidInput("too late")

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("insert into t values (3)")
        connection.execute("insert into nowhere values (3)")

    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        connection.execute("create table t (n)")
        outcomes = GroupCommit().run(connection, [good, bad, broken, good], appends=False)
        assert [
            type(outcome.error).__name__ if isinstance(outcome, FailedWork) else outcome for outcome in outcomes
        ] == ["good", "InvalidInput", "Corrupt", "good"]
        assert connection.execute("select n from t").fetchall() == [(1,), (1,)]


async def test_names_that_sqlite_cannot_store_are_refused(store: SqliteStore) -> None:
    await write_session(store, "s")
    with pytest.raises(InvalidInput):
        await store.sessions.find(SessionId("\ud800"))
    with pytest.raises(InvalidInput):
        await store.values.put("\ud800", 1)
    with pytest.raises(InvalidInput):
        await store.snapshots.load(S, version="1", upto=1 << 70)
    assert len(await read_log(store, "s")) == 1


class TestInTheThread(StoreContract):
    """The store contract when every commit goes through the writer thread."""

    @pytest.fixture
    async def store(self, path: Path) -> AsyncIterator[Store]:
        store = SqliteStore(path, durability="process")
        store.hub.database.transactions.disk_is_slow = True
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, path: Path) -> AsyncIterator[Store]:
        other = SqliteStore(path, durability="process")
        other.hub.database.transactions.disk_is_slow = True
        yield other
        await other.close()


async def test_offers_on_a_slow_disk_share_commits(store: SqliteStore, path: Path) -> None:
    await write_session(store, "s")
    lock = LockHolder(path)
    offers = [asyncio.create_task(offer_event(store, input_added("x", f"o{number}"))) for number in range(200)]
    await _wait_for_thread_write(store)
    lock.end()
    assert sorted(await asyncio.gather(*offers)) == list(range(2, 202))
