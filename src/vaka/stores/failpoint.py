"""Failpoints: places where a test may kill a process in the middle of a write. In production ``hit`` is ``None``.

The names, in order: ``append.before_begin``, ``append.after_rows``, ``append.after_commit``, ``append.before_ack``.
Each transaction that appends or offers passes each of them once.
"""

from collections.abc import Callable

hit: Callable[[str], None] | None = None
"""Called with the name of each failpoint; only ``vaka.testing.failpoints`` sets it."""
