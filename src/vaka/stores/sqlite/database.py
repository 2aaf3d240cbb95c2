"""The database: its connections, its writer thread, and transactions shared by many writes."""

import asyncio
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from vaka.core.types.errors import Busy, Closed, Unavailable, VakaError
from vaka.stores import common
from vaka.stores.common import Durability
from vaka.stores.sqlite.connection import (
    SQLITE_ERRORS,
    DatabaseFile,
    connect,
    find_replacement,
    is_locked,
    is_lost,
    note_failure,
    translate_commit_error,
    translate_error,
)

Work: TypeAlias = Callable[[sqlite3.Connection], Any]

WorkOutcome: TypeAlias = Any
"""The return value of the work, or ``FailedWork``."""

SLOW_COMMIT_SECONDS = 0.001

FAST_COMMIT_SECONDS = 0.0005

_SAMPLE_SIZE = 31


class FailedWork:
    """The outcome of work that raised an error."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _PartialWriteError(Exception):
    """A piece of work failed after it had written rows."""


class GroupCommit:
    """Runs several pieces of work in one transaction, and measures how long commits take."""

    def __init__(self) -> None:
        self.disk_is_slow = False
        """Whether commits take too long for the event loop and go to the writer thread."""
        self._commit_times: deque[float] = deque(maxlen=_SAMPLE_SIZE)
        self._commit_count = 0

    def run(self, connection: sqlite3.Connection, works: Sequence[Work], *, appends: bool) -> list[WorkOutcome]:
        """Run all works in one transaction and return their outcomes; a failed one does not affect the others.

        Raises ``sqlite3.OperationalError`` when the database is locked; then nothing was written.
        """
        hit = common.on_failpoint if appends else None
        if hit is not None:
            hit("append.before_begin")
        if (replaced := find_replacement(connection)) is not None:
            return [FailedWork(replaced)] * len(works)
        _begin(connection)
        try:
            outcomes = [_run_work(connection, work) for work in works]
        except (*SQLITE_ERRORS, _PartialWriteError) as error:
            note_failure(connection, error)
            _rollback(connection)
            if len(works) == 1:
                cause: Any = error.__cause__ if isinstance(error, _PartialWriteError) else translate_error(error)
                return [FailedWork(cause)]
            return [self._run_alone(connection, work, appends=appends) for work in works]
        except BaseException:
            _rollback(connection)
            raise
        if hit is not None:
            hit("append.after_rows")
        begun = time.perf_counter()
        try:
            connection.execute("commit")
        except sqlite3.Error as error:
            note_failure(connection, error)
            _rollback(connection)
            return [FailedWork(translate_commit_error(error))] * len(works)
        self.record_commit_time(time.perf_counter() - begun)
        if hit is not None:
            hit("append.after_commit")
        return outcomes

    def _run_alone(self, connection: sqlite3.Connection, work: Work, *, appends: bool) -> WorkOutcome:
        try:
            return self.run(connection, [work], appends=appends)[0]
        except sqlite3.Error as error:
            return FailedWork(translate_error(error))

    def record_commit_time(self, seconds: float) -> None:
        """Update ``disk_is_slow``: set by a median over 1 ms, cleared by one under 0.5 ms."""
        self._commit_times.append(seconds)
        self._commit_count += 1
        if len(self._commit_times) == _SAMPLE_SIZE and self._commit_count % 8 == 0:
            median = sorted(self._commit_times)[_SAMPLE_SIZE // 2]
            if self.disk_is_slow != (median > (FAST_COMMIT_SECONDS if self.disk_is_slow else SLOW_COMMIT_SECONDS)):
                self.disk_is_slow = not self.disk_is_slow
                self._commit_times.clear()


def _run_work(connection: sqlite3.Connection, work: Work) -> WorkOutcome:
    before = connection.total_changes
    try:
        return work(connection)
    except VakaError as error:
        if connection.total_changes != before:
            raise _PartialWriteError from error
        return FailedWork(error)


def _begin(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("begin immediate")
    except sqlite3.Error as error:
        note_failure(connection, error)
        raise


def _rollback(connection: sqlite3.Connection) -> None:
    """Roll back unless SQLite has already done so."""
    if connection.in_transaction:
        try:
            connection.execute("rollback")
        except sqlite3.Error as error:
            if is_locked(error):
                raise


T = TypeVar("T")


class WriterThread:
    """A thread that runs work on its own connection, one after the other."""

    def __init__(self, open: Callable[[], sqlite3.Connection]) -> None:
        self._open_connection = open
        self._tasks: queue.SimpleQueue[tuple[Work | None, asyncio.Future[Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[sqlite3.Connection], T]) -> "asyncio.Future[T]":
        """Return a future of the result of ``work``, or of its exception."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._tasks.put((work, future))
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._main, name="vaka-sqlite", daemon=True)
            self._thread.start()
        return future

    async def close(self) -> None:
        """Finish the queued work and end the thread."""
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            ended = asyncio.get_running_loop().create_future()
            self._tasks.put((None, ended))
            await ended
            thread.join()

    def _main(self) -> None:
        connection: sqlite3.Connection | None = None
        work, future = self._tasks.get()
        try:
            while work is not None:
                caught = _CaughtError()
                outcome: WorkOutcome = None
                with caught:
                    connection = _close_if_lost(connection) or self._open_connection()
                    replaced = find_replacement(connection)
                    outcome = work(connection) if replaced is None else FailedWork(replaced)
                if connection is not None and caught.is_unexpected:  # it may be inside a transaction
                    connection.close()
                connection = None if caught.is_unexpected else _close_if_lost(connection)
                _post_outcome(future, outcome if caught.error is None else FailedWork(caught.error))
                work, future = self._tasks.get()
        finally:
            if connection is not None:
                connection.close()
        _post_outcome(future, None)


class _CaughtError:
    """Catches every error of one piece of work, which is raised where its future is awaited: the thread goes on."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        # A future does not take a StopIteration: its caller would wait for ever.
        self.error = RuntimeError(f"{error!r} in the store") if isinstance(error, StopIteration) else error
        return True

    @property
    def is_unexpected(self) -> bool:
        """Whether it is an error of neither the database nor vaka."""
        return self.error is not None and not isinstance(self.error, (VakaError, OSError, *SQLITE_ERRORS))


def _close_if_lost(connection: sqlite3.Connection | None) -> sqlite3.Connection | None:
    """Return a connection that can be used again; close a lost connection."""
    if connection is not None and is_lost(connection):
        connection.close()
        return None
    return connection


def _post_outcome(future: "asyncio.Future[Any]", outcome: WorkOutcome) -> None:
    try:
        future.get_loop().call_soon_threadsafe(_set_outcome, future, outcome)
    except RuntimeError:  # the loop is closed, so no task waits for the outcome
        return


def _set_outcome(future: "asyncio.Future[Any]", outcome: WorkOutcome) -> None:
    if future.done():
        return
    if isinstance(outcome, FailedWork):
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome)


THREAD_CHECKPOINT_PAGES = 1000
"""Pages that groups of writes append to the write-ahead log, about, before a checkpoint in the writer thread.

It is done before the log has ``CHECKPOINT_PAGES``: then a commit makes the checkpoint itself.
"""
_CHECKPOINT_PASSES = 3

MAX_JOBS = 64

MAX_ROWS = 512

MAX_BYTES = 1 << 20
"""Larger writes go to the writer thread."""


class WriteJob:
    """A piece of work, the future of its outcome, and a callback for after its commit."""

    __slots__ = ("appends", "done", "future", "rows", "size", "work")

    def __init__(
        self,
        work: Work,
        future: "asyncio.Future[Any]",
        rows: int,
        size: int,
        *,
        appends: bool,
        done: Callable[[Any], None] | None,
    ) -> None:
        self.work = work
        self.future = future
        self.rows = rows
        self.size = size
        self.appends = appends
        self.done = done

    def set_outcome(self, outcome: WorkOutcome) -> None:
        _set_outcome(self.future, outcome)
        # After the future is set: the writer resumes, and knows its head, before followers wake.
        if self.done is not None and not isinstance(outcome, FailedWork):
            self.done(outcome)


class SqliteDatabase:
    """One SQLite file, opened on first use."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        self._durability: Durability = durability
        self.transactions = GroupCommit()
        self._connection: sqlite3.Connection | None = None
        self._file = DatabaseFile(path)
        self._thread = WriterThread(partial(connect, path, durability, self._file, wait=True))
        self._pending: deque[WriteJob] = deque()
        self._scheduled = False
        self._thread_write: asyncio.Future[list[WorkOutcome]] | None = None
        self._immediate_writer: asyncio.Task[Any] | None = None
        self._pages_in_log = 0
        """About how many pages the write-ahead log has got since the last checkpoint that this handle has begun."""
        self._thread_checkpoint: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def is_replaced(self) -> bool:
        """Whether the file was found to be removed or replaced; then every use is an error."""
        return self._file.replaced is not None

    @property
    def thread_is_writing(self) -> bool:
        return self._thread_write is not None

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of ``work``; a locked database is read in the writer thread, which waits."""
        connection = await self._open()
        self._require_same_file(connection)
        try:
            return work(connection)
        except SQLITE_ERRORS as error:
            note_failure(connection, error)
            self._close_if_lost(connection)
            if not is_locked(error):
                raise translate_error(error) from error
        return await self.run_in_thread(work)

    async def run_in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of ``work`` from the writer thread, which waits for the locks of other processes."""
        self._check_open()
        try:
            return await self._thread.run(work)
        except SQLITE_ERRORS as error:
            raise translate_error(error) from error

    async def write(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        rows: int = 1,
        size: int = 0,
        appends: bool = False,
        on_commit: Callable[[T], None] | None = None,
    ) -> T:
        """Return the result of ``work`` once it is durable; ``on_commit`` gets it even if the caller was cancelled.

        ``work`` must check before it writes: an error after its first write rolls the transaction back.
        """
        if self._connection is None or self._closed:
            await self._open()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._pending.append(WriteJob(work, future, rows, size, appends=appends, done=on_commit))
        self._schedule(loop)
        return await future

    async def write_again(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        rows: int = 1,
        size: int = 0,
        appends: bool = False,
        on_commit: Callable[[T], None] | None = None,
    ) -> T:
        """Write as ``write`` does, and once more after a commit of unknown outcome: for work that may run twice."""
        try:
            return await self.write(work, rows=rows, size=size, appends=appends, on_commit=on_commit)
        except Unavailable:
            return await self.write(work, rows=rows, size=size, appends=appends, on_commit=on_commit)

    def append_now(self, work: Callable[[sqlite3.Connection], T], size: int) -> "T | FailedWork | None":
        """Commit an append of the handle's only writer at once; ``None`` means that the caller must use ``write``.

        Only one task may do so in one tick of the event loop: the appends of others are grouped in one transaction.
        """
        connection, task = self._connection, asyncio.current_task()
        if connection is None or self._closed or self._pending or self._thread_write is not None:
            return None
        if self._immediate_writer not in {None, task} or self.transactions.disk_is_slow or size > MAX_BYTES:
            return None
        try:
            outcome: T | FailedWork = self.transactions.run(connection, (work,), appends=True)[0]
        except sqlite3.Error:
            self._close_if_lost(connection)
            return None
        if isinstance(outcome, FailedWork):
            self._close_if_lost(connection)
        if self._immediate_writer is None:
            self._immediate_writer = task
            asyncio.get_running_loop().call_soon(self._end_tick)
        if common.on_failpoint is not None:
            common.on_failpoint("append.before_ack")
        return outcome

    def try_read(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return the result of ``work``, ``None`` while the database is closed or locked."""
        if self._closed:
            return None
        try:
            connection = self._connection = self._connection or self._connect()
        except sqlite3.Error:  # locked
            return None
        self._require_same_file(connection)
        try:
            return work(connection)
        except SQLITE_ERRORS as error:
            note_failure(connection, error)
            self._close_if_lost(connection)
            if not is_locked(error):
                raise translate_error(error) from error
        return None

    async def close(self) -> None:
        """Finish the queued writes and close the file."""
        while self._pending or self._thread_write is not None:
            if self._thread_write is not None:
                await asyncio.wait([self._thread_write])
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
                self._close_if_lost(self._connection)
            if self._connection is not None:
                return self._connection
            try:
                self._connection = self._connect()
            except sqlite3.Error:  # locked: the thread waits for the lock while it opens its own connection
                await self.run_in_thread(_do_nothing)
        raise Busy(f"the database {str(self.path)!r} is locked by another process; try again")

    def _connect(self) -> sqlite3.Connection:
        return connect(self.path, self._durability, self._file, wait=False)

    def _require_same_file(self, connection: sqlite3.Connection) -> None:
        """Raise an error if the database was removed or replaced: a read would be of the old file."""
        if (replaced := find_replacement(connection)) is not None:
            self._close_if_lost(connection)
            raise replaced

    def _close_if_lost(self, connection: sqlite3.Connection) -> None:
        """Close a connection after an I/O error; the next use opens another, which reads the files again."""
        if is_lost(connection) and self._connection is connection:
            self._connection = None
            connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the store was closed")
        if self._file.replaced is not None:
            raise self._file.replaced

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled and self._thread_write is None and self._pending:
            self._scheduled = True
            loop.call_soon(self._flush)

    def _end_tick(self) -> None:
        self._immediate_writer = None

    def _flush(self) -> None:
        """Commit the writes queued in this tick."""
        self._scheduled = False
        connection = self._connection
        jobs = self._take_jobs()
        if jobs:
            works, appends = [job.work for job in jobs], any(job.appends for job in jobs)
            if (
                connection is None  # an I/O error has ended it: the thread opens its own
                or self.transactions.disk_is_slow
                or sum(job.size for job in jobs) > MAX_BYTES
            ):
                self._write_in_thread(jobs, works, appends)
                return
            try:
                outcomes = self.transactions.run(connection, works, appends=appends)
            except sqlite3.Error:
                self._close_if_lost(connection)
                self._write_in_thread(jobs, works, appends)
                return
            except BaseException as error:
                _set_outcomes(jobs, [FailedWork(RuntimeError(f"a bug in the store: {error!r}"))] * len(jobs))
                raise
            self._close_if_lost(connection)
            _set_outcomes(jobs, outcomes)
            self._count_pages(4 + 2 * sum(job.rows for job in jobs))
        self._schedule(asyncio.get_running_loop())

    def _count_pages(self, pages: int) -> None:
        """Begin a checkpoint in the writer thread when the write-ahead log has grown by about so many pages."""
        self._pages_in_log += pages
        if self._pages_in_log < THREAD_CHECKPOINT_PAGES or self._thread_checkpoint is not None:
            return
        self._pages_in_log = 0
        self._thread_checkpoint = self._thread.run(_checkpoint)
        self._thread_checkpoint.add_done_callback(self._end_checkpoint)

    def _end_checkpoint(self, checkpoint: "asyncio.Future[None]") -> None:
        self._thread_checkpoint = None
        if not checkpoint.cancelled():
            checkpoint.exception()  # the next commit that finds the log too long makes a checkpoint itself

    def _take_jobs(self) -> list[WriteJob]:
        jobs: list[WriteJob] = []
        rows = 0
        while self._pending and len(jobs) < MAX_JOBS and (not jobs or rows + self._pending[0].rows <= MAX_ROWS):
            job = self._pending.popleft()
            if not job.future.done():  # skip work that was cancelled before it began
                rows += job.rows
                jobs.append(job)
        return jobs

    def _write_in_thread(self, jobs: list[WriteJob], works: list[Work], appends: bool) -> None:
        loop = asyncio.get_running_loop()
        self._thread_write = self._thread.run(partial(self.transactions.run, works=works, appends=appends))

        def finish_jobs(future: "asyncio.Future[list[WorkOutcome]]") -> None:
            self._thread_write = None
            error = future.exception()
            if error is None:
                _set_outcomes(jobs, future.result())
            else:
                cause: Any = translate_error(error) if isinstance(error, SQLITE_ERRORS) else error
                _set_outcomes(jobs, [FailedWork(cause)] * len(jobs))
            self._schedule(loop)

        self._thread_write.add_done_callback(finish_jobs)


def _set_outcomes(jobs: list[WriteJob], outcomes: list[WorkOutcome]) -> None:
    if common.on_failpoint is not None and any(job.appends for job in jobs):
        common.on_failpoint("append.before_ack")
    for job, outcome in zip(jobs, outcomes, strict=True):
        job.set_outcome(outcome)


def _checkpoint(connection: sqlite3.Connection) -> None:
    """Copy the write-ahead log into the database; again, if commits have extended it meanwhile.

    When all of it is copied, the next commit begins the log anew.
    """
    for _ in range(_CHECKPOINT_PASSES):
        busy, pages, copied = connection.execute("pragma wal_checkpoint(passive)").fetchone()
        if busy or pages == copied:
            return


def _do_nothing(_: sqlite3.Connection) -> None:
    """Work for the writer thread that only opens its connection."""
