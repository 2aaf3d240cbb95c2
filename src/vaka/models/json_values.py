"""Decoded JSON and token counts of providers, which may be anything. Pure."""

from typing import Any, TypeGuard

import msgspec

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding bytes as JSON raises."""

MAX_TOKENS = 2**53
"""An upper bound for token counts: larger ones do not fit into a log."""


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list | tuple)


def as_object(value: object) -> dict[str, Any]:
    """Return ``value`` if it is an object, else an empty one."""
    return value if is_object(value) else {}


def as_list(value: object) -> list[Any]:
    """Return ``value`` if it is a list, else an empty one."""
    return value if is_list(value) else []


def clamp_tokens(count: int | None) -> int:
    """Return a count within bounds: a negative one would refund a budget, a huge one would break the log."""
    return min(max(count or 0, 0), MAX_TOKENS)


def unused_name(name: str, taken: set[str]) -> str:
    """Return ``name``, with underscores at its end while it is taken."""
    while name in taken:
        name += "_"
    return name
