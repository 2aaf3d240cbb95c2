"""Group commit: run many pieces of work in one transaction, each with its own outcome."""

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from vaka.core.types.errors import VakaError
from vaka.stores import failpoint
from vaka.stores.sqlite.connection import SQLITE_ERRORS, is_locked, translate_commit_error, translate_error

Work: TypeAlias = Callable[[sqlite3.Connection], Any]
WorkOutcome: TypeAlias = Any
"""What the work returned, or ``Failed``."""

SLOW_COMMIT_SECONDS = 0.001
FAST_COMMIT_SECONDS = 0.0005
_SAMPLE_SIZE = 31


class FailedWork:
    """The outcome of work that raised."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class _PartialWriteError(Exception):
    """A piece of work failed after it had written something."""


class GroupCommit:
    """Commits, and knows how long the disk has taken for it lately."""

    def __init__(self) -> None:
        self.disk_is_slow = False
        """Whether the disk is too slow to wait for it in the event loop."""
        self._commit_times: deque[float] = deque(maxlen=_SAMPLE_SIZE)
        self._commit_count = 0

    def run(self, connection: sqlite3.Connection, works: Sequence[Work], *, appends: bool) -> list[WorkOutcome]:
        """Run all works in one transaction and return their outcomes; what fails leaves its neighbours alone.

        Raises ``sqlite3.OperationalError`` when the database is locked; then nothing has happened.
        """
        hit = failpoint.hit if appends else None
        if hit is not None:
            hit("append.before_begin")
        connection.execute("begin immediate")
        try:
            outcomes = [_run_work(connection, work) for work in works]
        except (*SQLITE_ERRORS, _PartialWriteError) as error:
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
        """Learn how long a commit has taken: slow is a median over 1 ms, fast again one under 0.5."""
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


def _rollback(connection: sqlite3.Connection) -> None:
    """End the transaction; SQLite may have done so already."""
    if connection.in_transaction:
        try:
            connection.execute("rollback")
        except sqlite3.Error as error:
            if is_locked(error):
                raise
