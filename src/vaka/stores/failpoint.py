"""The places where a test may stop a store half-way. Nothing happens there unless a test says so.

The names, in order: ``append.before_begin``, ``append.after_rows``, ``append.after_commit``, ``append.before_ack``.
They are passed once for each transaction that appends or offers.
"""

from collections.abc import Callable

hit: Callable[[str], None] | None = None
"""What to do at a place; only ``vaka.testing.failpoints`` sets it."""
