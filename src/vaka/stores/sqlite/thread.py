"""The one thread that waits where the event loop must not: for a lock, for a slow disk, for long work."""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from vaka.core.types.errors import StoreError, VakaError
from vaka.stores.sqlite.faults import ERRORS

T = TypeVar("T")


class _Task(NamedTuple):
    work: Callable[[sqlite3.Connection], Any] | None
    """``None``: it is time to end."""
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class WriterThread:
    """Runs work on a connection of its own, one after the other."""

    def __init__(self, open: Callable[[], sqlite3.Connection]) -> None:
        self._open = open
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[sqlite3.Connection], T]) -> "asyncio.Future[T]":
        """Return the future result of ``work``; it raises what the work raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._tasks.put(_Task(work, future, loop))
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._main, name="vaka-sqlite", daemon=True)
            self._thread.start()
        return future

    async def close(self) -> None:
        """Let it finish what it was given, and end."""
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            loop = asyncio.get_running_loop()
            end = _Task(None, loop.create_future(), loop)
            self._tasks.put(end)
            await end.future
            thread.join()

    def _main(self) -> None:
        connection: sqlite3.Connection | None = None
        task = self._tasks.get()
        try:
            while task.work is not None:
                result: Any = None
                error: Exception | None = StoreError("the writer thread has failed")
                try:
                    connection = connection or self._open()
                    result, error = task.work(connection), None
                except (VakaError, OSError, *ERRORS) as met:
                    error = met
                finally:
                    _hand_back(task, result, error)
                task = self._tasks.get()
        finally:
            if connection is not None:
                connection.close()
        _hand_back(task, None, None)


def _hand_back(task: _Task, result: object, error: Exception | None) -> None:
    try:
        task.loop.call_soon_threadsafe(_settle, task.future, result, error)
    except RuntimeError:  # the loop is gone, and whoever waited with it
        return


def _settle(future: "asyncio.Future[Any]", result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
