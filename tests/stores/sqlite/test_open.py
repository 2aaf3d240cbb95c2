"""What opening a session reads, and which changed rows it finds."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.core.session.log_harness import LogHarness, S, write_simple_turn
from vaka.core.loop.prompt import build_messages
from vaka.core.session.snapshot import FOLD_VERSION, reopen
from vaka.core.types.decode import decode
from vaka.core.types.errors import Corrupt
from vaka.stores.common import MAX_ROWS_READ, split_seqs
from vaka.stores.sqlite import SqliteStore
from vaka.testing.stores.sealed_events import read_log


def change_event(path: Path, type: str) -> int:
    """Change one character of the first event of a type; return its seq."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for seq, stored in connection.execute("select seq, body from events order by seq").fetchall():
            if decode(stored).type == type:
                time = decode(stored).ts.encode()
                changed = stored.replace(time, time[:-4] + b"999Z")
                assert changed != stored
                connection.execute("update events set body = ? where seq = ?", (changed, seq))
                return int(seq)
    raise AssertionError(f"there is no {type}")


async def write_turns(path: Path, count: int) -> None:
    store = SqliteStore(path, durability="process")
    harness = LogHarness(store)
    log = await harness.open()
    for number in range(1, count + 1):
        await write_simple_turn(log, number)
    await harness.release(log)
    snapshot = await store.snapshots.load(S, version=FOLD_VERSION)
    assert snapshot is not None
    assert snapshot[0] > log.head / 2
    await store.close()


async def test_an_open_finds_a_change_of_what_a_prompt_is_made_of(tmp_path: Path) -> None:
    await write_turns(tmp_path / "whole.db", 60)
    for type in ("input.added", "turn.started", "message.completed", "tool.called", "tool.completed"):
        path = tmp_path / f"{type}.db"
        shutil.copy(tmp_path / "whole.db", path)
        change_event(path, type)
        store = SqliteStore(path, durability="process")
        with pytest.raises(Corrupt, match="digest"):
            await reopen(store, S)
        await store.close()


async def test_a_change_of_an_event_that_no_prompt_needs_is_found_by_reading_the_whole_log(tmp_path: Path) -> None:
    await write_turns(tmp_path / "vaka.db", 60)
    store = SqliteStore(tmp_path / "vaka.db", durability="process")
    messages = build_messages((await reopen(store, S)).window.events_at(()))
    change_event(tmp_path / "vaka.db", "step.completed")
    assert build_messages((await reopen(store, S)).window.events_at(())) == messages
    with pytest.raises(Corrupt):
        await read_log(store, S)
    await store.close()


@pytest.mark.parametrize("value", ["text", 7, None])
async def test_a_body_that_is_not_bytes_is_corrupt(tmp_path: Path, value: object) -> None:
    await write_turns(tmp_path / "vaka.db", 60)
    with closing(sqlite3.connect(tmp_path / "vaka.db", isolation_level=None)) as connection:
        if value is None:
            connection.execute("delete from events where seq = 1")
        else:
            connection.execute("update events set body = ? where seq = 1", (value,))
    store = SqliteStore(tmp_path / "vaka.db", durability="process")
    with pytest.raises(Corrupt):
        await reopen(store, S)
    await store.close()


def test_rows_between_wanted_ones_are_read_only_where_they_are_few() -> None:
    dense = [seq for seq in range(1, 14_001) if seq % 14 in {1, 2, 4, 6, 8, 11}]
    parts = list(split_seqs(dense))
    assert [seq for part in parts for seq in part] == dense
    assert len(parts) == -(-14_000 // MAX_ROWS_READ)
    sparse = [1, 2, 3, 5_000, 5_001, *range(6_000, 7_000, 9), 9_000]
    parts = list(split_seqs(sparse))
    assert [seq for part in parts for seq in part] == sparse
    assert sum(part[-1] - part[0] + 1 for part in parts) < 4 * len(sparse)
    assert list(split_seqs([])) == []
