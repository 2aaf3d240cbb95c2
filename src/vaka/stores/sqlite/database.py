"""The connection of a store: reads at once, writes one transaction per tick of the event loop.

A write waits in the event loop for its commit, with all others of its tick: that is faster than any thread while the
disk is fast and nobody else writes. When the database is locked, the disk is slow or the batch is large, the
transaction goes through the writer thread instead; only one is under way at any time.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from vaka.core.types.errors import Busy, Closed
from vaka.stores import failpoint
from vaka.stores.sqlite.connection import Durability, connect
from vaka.stores.sqlite.faults import ERRORS, is_locked, translate
from vaka.stores.sqlite.thread import WriterThread
from vaka.stores.sqlite.transaction import Failed, Outcome, Transactions, Work

T = TypeVar("T")

MOST_JOBS = 64
MOST_ROWS = 512
MOST_BYTES = 1 << 20
"""More than this is written by the thread."""


class Job:
    """A piece of work, who waits for it, and what is to be done once it is committed."""

    __slots__ = ("appends", "done", "future", "rows", "size", "work")

    def __init__(
        self, work: Work, future: "asyncio.Future[Any]", rows: int, size: int, *, appends: bool,
        done: Callable[[Any], None] | None,
    ) -> None:  # fmt: skip
        self.work, self.future, self.rows, self.size, self.appends, self.done = work, future, rows, size, appends, done

    def settle(self, outcome: Outcome) -> None:
        """Tell whoever waits, if anyone still does."""
        if isinstance(outcome, Failed):
            if not self.future.done():
                self.future.set_exception(outcome.error)
            return
        if not self.future.done():
            self.future.set_result(outcome)
        if self.done is not None:  # who wrote goes on first, and knows its head when those who wait for it wake
            self.done(outcome)


class Database:
    """One SQLite file, opened on first use."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        self._durability: Durability = durability
        self.transactions = Transactions()
        self._connection: sqlite3.Connection | None = None
        self._thread = WriterThread(partial(connect, path, durability, wait=True))
        self._pending: deque[Job] = deque()
        self._scheduled = False
        self._handed: asyncio.Future[list[Outcome]] | None = None
        self._hurried: asyncio.Task[Any] | None = None
        self._closed = False

    @property
    def waiting(self) -> bool:
        """Whether a transaction is in the writer thread's hands."""
        return self._handed is not None

    async def ask(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what ``work`` reads."""
        connection = await self._open()
        try:
            return work(connection)
        except ERRORS as error:
            if not is_locked(error):
                raise translate(error) from error
        return await self.aside(work)

    async def aside(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what ``work`` does in the writer thread, with patience for other processes."""
        self._check_open()
        try:
            return await self._thread.run(work)
        except ERRORS as error:
            raise translate(error) from error

    async def write(
        self, work: Callable[[sqlite3.Connection], T], *, rows: int = 1, size: int = 0, appends: bool = False,
        done: Callable[[T], None] | None = None,
    ) -> T:  # fmt: skip
        """Return what ``work`` returned, once it is durable; ``done`` is called with it even if nobody waits any more.

        It must check before it writes: what raises after that is undone, together with its transaction.
        """
        if self._connection is None or self._closed:
            await self._open()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._pending.append(Job(work, future, rows, size, appends=appends, done=done))
        self._schedule(loop)
        return await future

    def append_now(self, work: Callable[[sqlite3.Connection], T], size: int) -> "T | Failed | None":
        """Commit an append of a handle's only writer without a round of the event loop; ``None``: give it to ``write``.

        Within a tick only one task may do so: what another brings shares a transaction with all that come after it.
        """
        connection, task = self._connection, asyncio.current_task()
        if connection is None or self._closed or self._pending or self._handed is not None:
            return None
        if self._hurried not in {None, task} or self.transactions.slow or size > MOST_BYTES:
            return None
        try:
            outcome: T | Failed = self.transactions.run(connection, (work,), appends=True)[0]
        except sqlite3.Error:
            return None
        if self._hurried is None:
            self._hurried = task
            asyncio.get_running_loop().call_soon(self._next_tick)
        if failpoint.hit is not None:
            failpoint.hit("append.before_ack")
        return outcome

    def look(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return what ``work`` reads, ``None`` while the database is not open or locked."""
        if self._connection is None:
            return None
        try:
            return work(self._connection)
        except ERRORS as error:
            if not is_locked(error):
                raise translate(error) from error
        return None

    async def close(self) -> None:
        """Finish what was given, and let go of the file."""
        while self._pending or self._handed is not None:
            if self._handed is not None:
                await asyncio.wait([self._handed])
            else:
                self._flush()
            await asyncio.sleep(0)
        self._closed = True
        await self._thread.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _open(self) -> sqlite3.Connection:
        for _ in range(5):
            self._check_open()
            if self._connection is not None:
                return self._connection
            try:
                self._connection = connect(self.path, self._durability, wait=False)
            except sqlite3.Error:  # locked: the thread can wait, and opens it too
                await self.aside(_nothing)
        raise Busy(f"the database {str(self.path)!r} is locked by another process; try again")

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the store was closed")

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled and self._handed is None and self._pending:
            self._scheduled = True
            loop.call_soon(self._flush)

    def _next_tick(self) -> None:
        self._hurried = None

    def _flush(self) -> None:
        """Commit what this tick has brought."""
        self._scheduled = False
        connection = self._connection
        jobs = self._take()
        if jobs and connection is not None:
            works, appends = [job.work for job in jobs], any(job.appends for job in jobs)
            if self.transactions.slow or sum(job.size for job in jobs) > MOST_BYTES:
                self._hand_over(jobs, works, appends)
                return
            try:
                outcomes = self.transactions.run(connection, works, appends=appends)
            except sqlite3.Error:
                self._hand_over(jobs, works, appends)
                return
            except BaseException as error:
                _settle(jobs, [Failed(RuntimeError(f"a bug in the store: {error!r}"))] * len(jobs))
                raise
            _settle(jobs, outcomes)
        self._schedule(asyncio.get_running_loop())

    def _take(self) -> list[Job]:
        jobs: list[Job] = []
        rows = 0
        while self._pending and len(jobs) < MOST_JOBS and (not jobs or rows + self._pending[0].rows <= MOST_ROWS):
            job = self._pending.popleft()
            if not job.future.done():  # cancelled before it began: it never happens
                rows += job.rows
                jobs.append(job)
        return jobs

    def _hand_over(self, jobs: list[Job], works: list[Work], appends: bool) -> None:
        """Let the thread commit, and go on when it has."""
        loop = asyncio.get_running_loop()
        self._handed = self._thread.run(partial(self.transactions.run, works=works, appends=appends))

        def handed_back(future: "asyncio.Future[list[Outcome]]") -> None:
            self._handed = None
            error = future.exception()
            if error is None:
                _settle(jobs, future.result())
            else:
                _settle(jobs, [Failed(translate(error) if isinstance(error, ERRORS) else error)] * len(jobs))  # type: ignore[arg-type]  # an Exception
            self._schedule(loop)

        self._handed.add_done_callback(handed_back)


def _settle(jobs: list[Job], outcomes: list[Outcome]) -> None:
    if failpoint.hit is not None and any(job.appends for job in jobs):
        failpoint.hit("append.before_ack")
    for job, outcome in zip(jobs, outcomes, strict=True):
        job.settle(outcome)


def _nothing(_: sqlite3.Connection) -> None:
    """Open the connection, that is all."""
