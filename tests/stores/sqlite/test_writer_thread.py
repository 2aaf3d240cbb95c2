"""The writer thread: an error of its work reaches the caller, whatever it is, and the thread goes on."""

import asyncio
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from vaka.stores.sqlite.database import WriterThread


def fail(connection: sqlite3.Connection) -> None:
    """Fail inside a transaction, with an error that no code expects."""
    connection.execute("begin immediate")
    connection.execute("create table half (a)")
    raise ZeroDivisionError("a fault of the store")


def count_tables(connection: sqlite3.Connection) -> Any:
    return connection.execute("select count(*) from sqlite_master").fetchone()[0]


async def test_an_unexpected_error_reaches_its_caller_and_later_work_is_done(path: Path) -> None:
    thread = WriterThread(partial(sqlite3.connect, path, isolation_level=None))
    failing, later = thread.run(fail), thread.run(count_tables)
    with pytest.raises(ZeroDivisionError, match="a fault of the store"):
        await failing
    assert await later == 0, "what the failed work had begun is rolled back"
    async with asyncio.timeout(30):
        await thread.close()


async def test_an_error_that_a_future_does_not_take_reaches_its_caller_as_another_one(path: Path) -> None:
    def take_first(connection: sqlite3.Connection) -> Any:
        return next(iter(()))

    thread = WriterThread(partial(sqlite3.connect, path, isolation_level=None))
    with pytest.raises(RuntimeError, match=r"StopIteration\(\) in the store"):
        async with asyncio.timeout(30):
            await thread.run(take_first)
    assert await thread.run(count_tables) == 0
    await thread.close()


async def test_closing_does_not_wait_for_ever_after_an_unexpected_error(path: Path) -> None:
    thread = WriterThread(partial(sqlite3.connect, path, isolation_level=None))
    failing = thread.run(fail)
    async with asyncio.timeout(30):
        await thread.close()
    with pytest.raises(ZeroDivisionError):
        await failing


async def test_a_connection_that_cannot_be_opened_fails_the_work_only(tmp_path: Path) -> None:
    folders = iter([tmp_path / "missing" / "vaka.db", tmp_path / "vaka.db"])
    thread = WriterThread(lambda: sqlite3.connect(next(folders), isolation_level=None))
    with pytest.raises(sqlite3.OperationalError):
        await thread.run(count_tables)
    assert await thread.run(count_tables) == 0
    await thread.close()
