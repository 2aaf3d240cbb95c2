"""Tables of cases: one test runs every row, and reports all rows that fail."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each_row(rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make one test of a function and a table: the function is called with each row, a tuple as several arguments."""

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def run_table() -> None:
            failures = [failure for row in rows if (failure := _run_row(check, row))]
            assert not failures, f"{len(failures)} rows fail:\n" + "\n".join(failures)

        run_table.__name__ = check.__name__
        run_table.__doc__ = check.__doc__
        run_table.__module__ = check.__module__
        return run_table

    return decorate


def _run_row(check: Callable[..., None], row: Any) -> str:
    try:
        check(*row) if isinstance(row, tuple) else check(row)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # every row that fails is reported
        return f"{row!r}: {type(error).__name__}: {error}"
    return ""


def split_table(table: str) -> list[str]:
    """Return the commands of a table: one per line, with ``⏎`` for a line end inside one and ``⇥`` for a tab."""
    rows = [line.strip() for line in table.strip().splitlines()]
    return [row.replace("⏎", "\n").replace("⇥", "\t") for row in rows if row]
