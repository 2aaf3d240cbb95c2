"""One transaction for many: each piece of work gets its own outcome."""

import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from vaka.core.types.errors import VakaError
from vaka.stores import failpoint
from vaka.stores.sqlite.faults import ERRORS, is_locked, translate, translate_commit

Work: TypeAlias = Callable[[sqlite3.Connection], Any]
Outcome: TypeAlias = Any
"""What the work returned, or ``Failed``."""

SLOW = 0.001
FAST = 0.0005
_SAMPLE = 31


class Failed:
    """The outcome of work that raised."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Spoiled(Exception):
    """A piece of work failed after it had written something."""


class Transactions:
    """Commits, and knows how long the disk has taken for it lately."""

    def __init__(self) -> None:
        self.slow = False
        """Whether the disk is too slow to wait for it in the event loop."""
        self._recent: deque[float] = deque(maxlen=_SAMPLE)
        self._count = 0

    def run(self, connection: sqlite3.Connection, works: Sequence[Work], *, appends: bool) -> list[Outcome]:
        """Run all works in one transaction and return their outcomes; what fails leaves its neighbours alone.

        Raises ``sqlite3.OperationalError`` when the database is locked; then nothing has happened.
        """
        hit = failpoint.hit if appends else None
        if hit is not None:
            hit("append.before_begin")
        connection.execute("begin immediate")
        try:
            outcomes = [_attempt(connection, work) for work in works]
        except (*ERRORS, _Spoiled) as error:
            _rollback(connection)
            if len(works) == 1:
                return [Failed(error.__cause__ if isinstance(error, _Spoiled) else translate(error))]  # type: ignore[arg-type]  # raised from a VakaError
            return [self._alone(connection, work, appends=appends) for work in works]
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
            return [Failed(translate_commit(error))] * len(works)
        self.took(time.perf_counter() - begun)
        if hit is not None:
            hit("append.after_commit")
        return outcomes

    def _alone(self, connection: sqlite3.Connection, work: Work, *, appends: bool) -> Outcome:
        try:
            return self.run(connection, [work], appends=appends)[0]
        except sqlite3.Error as error:
            return Failed(translate(error))

    def took(self, seconds: float) -> None:
        """Learn how long a commit has taken: slow is a median over 1 ms, fast again one under 0.5."""
        self._recent.append(seconds)
        self._count += 1
        if len(self._recent) == _SAMPLE and self._count % 8 == 0:
            median = sorted(self._recent)[_SAMPLE // 2]
            if self.slow != (median > (FAST if self.slow else SLOW)):
                self.slow = not self.slow
                self._recent.clear()


def _attempt(connection: sqlite3.Connection, work: Work) -> Outcome:
    before = connection.total_changes
    try:
        return work(connection)
    except VakaError as error:
        if connection.total_changes != before:
            raise _Spoiled from error
        return Failed(error)


def _rollback(connection: sqlite3.Connection) -> None:
    """End the transaction; SQLite may have done so already."""
    if connection.in_transaction:
        try:
            connection.execute("rollback")
        except sqlite3.Error as error:
            if is_locked(error):
                raise
