"""The places where a test may stop a write half-way. Nothing happens there unless a test says so.

The names, in order: ``write.after_create``, ``write.after_data``, ``write.before_rename``, ``write.after_rename``,
``write.before_return``.
"""

from collections.abc import Callable

hit: Callable[[str], None] | None = None
"""What to do at a place; only ``vaka.testing.files`` sets it."""


def passed(place: str) -> None:
    """Say that a write has come to a place."""
    if hit:
        hit(place)
