"""Changed, torn and foreign bytes: an error or a shorter log, never a different one."""

import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from vaka.core.ports.store import SessionInfo, SessionQuery
from vaka.core.session.index_rows import replace_fields
from vaka.core.types.errors import ConfigError, Corrupt, VakaError
from vaka.core.types.ids import Digest, SessionId
from vaka.stores.sqlite import SqliteStore
from vaka.testing.stores.sealed_events import (
    approval_requested,
    begin_session,
    input_added,
    question_asked,
    read_log,
    write_session,
)

SESSIONS = ("alpha", "beta", "gamma")
FRAME, HEADER = 4096 + 24, 32


class WrittenData:
    """The written data, as it must be read."""

    def __init__(self) -> None:
        self.logs: dict[str, list[bytes]] = {}
        self.rows: dict[str, SessionInfo | None] = {}
        self.decisions: list[Any] = []
        self.blob = Digest("")

    async def check(self, path: Path) -> int:
        """Read everything; return the number of events. ``AssertionError`` for data that was not written."""
        store = SqliteStore(path, durability="process")
        try:
            return sum([await self._check_log(store, name) for name in self.logs])
        finally:
            await self._check_rest(store)
            await store.close()

    async def _check_log(self, store: SqliteStore, name: str) -> int:
        try:
            stored = await read_log(store, name)
        except VakaError:
            return 0
        assert stored == self.logs[name][: len(stored)]
        return len(stored)

    async def _check_rest(self, store: SqliteStore) -> None:
        whole = {name: len(stored) for name, stored in self.logs.items()}
        with suppress(VakaError):
            assert await store.values.get("value") in (None, {"a": "b" * 50})
        with suppress(VakaError):
            assert await store.snapshots.load(SessionId("alpha"), version="1") in (None, (3, b"state" * 20))
        with suppress(VakaError):
            assert await store.blobs.get(self.blob) == b"blob" * 100
        with suppress(VakaError):
            for info in (await store.sessions.list(SessionQuery())).sessions:
                assert info == self.rows[info.id] or info.head < whole[info.id]
            assert all(row in self.decisions for row in await store.sessions.decisions())


async def _write_database(path: Path) -> WrittenData:
    written = WrittenData()
    store = SqliteStore(path, durability="process")
    for number, name in enumerate(SESSIONS):
        bodies = [input_added(f"word {name} {index}" * 4, f"k{index}") for index in range(6)]
        await write_session(store, name, approval_requested(f"a{number}"), *bodies, question_asked(f"q{number}"))
        written.logs[name] = await read_log(store, name)
        written.rows[name] = await store.sessions.find(SessionId(name))
    await store.values.put("value", {"a": "b" * 50})
    await store.snapshots.save(SessionId("alpha"), seq=3, version="1", data=b"state" * 20)
    written.blob = await store.blobs.put(b"blob" * 100)
    written.decisions = list(await store.sessions.decisions())
    await store.close()
    return written


async def _flip_bytes(tmp_path: Path, offsets: "range | list[int]", mask: int) -> None:
    path, copy = tmp_path / "vaka.db", tmp_path / "copy.db"
    written = await _write_database(path)
    assert await written.check(path) == 24
    pristine = path.read_bytes()
    for offset in offsets:
        if offset >= len(pristine):
            break
        data = bytearray(pristine)
        data[offset] ^= mask
        for suffix in ("-wal", "-shm"):
            copy.with_name(f"copy.db{suffix}").unlink(missing_ok=True)
        copy.write_bytes(data)
        await written.check(copy)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
async def test_a_flipped_byte_never_changes_a_log_silently(tmp_path: Path, mask: int) -> None:
    await _flip_bytes(tmp_path, sorted(random.Random(mask).sample(range(80_000), 400)), mask)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mask", [0x01, 0x20, 0xFF])
async def test_no_flipped_byte_changes_a_log_silently(tmp_path: Path, mask: int) -> None:
    await _flip_bytes(tmp_path, range(1 << 20), mask)


class TornDatabase:
    """A database whose last writes are only in its write-ahead log, and the head acknowledged at each length of it."""

    def __init__(self, path: Path) -> None:
        self.path, self.written = path, WrittenData()
        self.acknowledged: list[tuple[int, int]] = []

    @property
    def wal(self) -> Path:
        return self.path.with_name(f"{self.path.name}-wal")

    async def write(self) -> None:
        source = self.path.with_name("source.db")
        store = SqliteStore(source)
        log, term = await begin_session(store, "s")
        for number in range(12):
            await log.append_to(
                store, term, input_added(f"{number}" * (300 * number), f"{number}a"), input_added("x", f"{number}b")
            )
            self.acknowledged.append((source.with_name("source.db-wal").stat().st_size, log.head))
        self.written.logs["s"] = log.stored
        found = await store.sessions.find(SessionId("s"))
        assert found is not None
        self.written.rows["s"] = replace_fields(found, live=False)
        shutil.copy(source, self.path)
        self.log = source.with_name("source.db-wal").read_bytes()
        await store.close()

    async def read(self, wal: bytes) -> int:
        """Return the number of events with this write-ahead log."""
        self.path.with_name(f"{self.path.name}-shm").unlink(missing_ok=True)
        copy = self.path.read_bytes()
        self.wal.write_bytes(wal)
        try:
            return await self.written.check(self.path)
        finally:
            self.path.write_bytes(copy)

    def acknowledged_at(self, length: int) -> int:
        """Return how many events were acknowledged when the write-ahead log was that long."""
        return max((head for size, head in self.acknowledged if size <= length), default=0)


@pytest.fixture
async def torn(tmp_path: Path) -> TornDatabase:
    torn = TornDatabase(tmp_path / "torn.db")
    await torn.write()
    return torn


async def test_acknowledged_events_survive_a_write_ahead_log_cut_at_frame_edges(torn: TornDatabase) -> None:
    whole = len(torn.log)
    edges = [edge + step for edge in range(HEADER, whole, FRAME) for step in (0, 1, FRAME // 2, FRAME - 1)]
    for length in [0, 1, HEADER - 1, *edges, whole]:
        assert await torn.read(torn.log[:length]) >= torn.acknowledged_at(length)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
async def test_acknowledged_events_survive_a_write_ahead_log_cut_anywhere(torn: TornDatabase) -> None:
    for length in range(0, len(torn.log) + 1, 61):
        assert await torn.read(torn.log[:length]) >= torn.acknowledged_at(length)


async def test_a_flipped_byte_in_the_write_ahead_log_cuts_it_there(torn: TornDatabase) -> None:
    for offset in sorted(random.Random(7).sample(range(len(torn.log)), 100)):
        data = bytearray(torn.log)
        data[offset] ^= 0x10
        assert await torn.read(bytes(data)) >= torn.acknowledged_at(offset - FRAME)


async def test_garbage_after_the_write_ahead_log_is_ignored(torn: TornDatabase) -> None:
    noise = random.Random(1).randbytes(FRAME * 2 + 5)
    for tail in (b"garbage" * 1000, bytes(FRAME * 3), torn.log[-FRAME * 4 :], noise):
        assert await torn.read(torn.log + tail) == torn.acknowledged[-1][1]


async def test_a_file_that_is_not_a_database_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"my diary, most dear to me\n" * 400)
    store = SqliteStore(path)
    with pytest.raises(Corrupt):
        await store.sessions.find(SessionId("s"))
    await store.close()
    assert path.read_bytes() == b"my diary, most dear to me\n" * 400


async def test_a_database_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table recipes (name text)")
    before = path.read_bytes()
    store = SqliteStore(path)
    with pytest.raises(ConfigError, match="another program"):
        await write_session(store, "s")
    await store.close()
    assert path.read_bytes() == before


async def test_a_database_of_a_newer_vaka_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vaka.db"
    store = SqliteStore(path)
    await write_session(store, "s")
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version = 99")
    store = SqliteStore(path)
    with pytest.raises(ConfigError, match="newer vaka"):
        await store.sessions.find(SessionId("s"))
    await store.close()


async def test_a_database_without_its_tables_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "vaka.db"
    store = SqliteStore(path)
    await write_session(store, "s")
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("drop table events")
    store = SqliteStore(path)
    with pytest.raises(Corrupt):
        await read_log(store, "s")
    await store.close()
