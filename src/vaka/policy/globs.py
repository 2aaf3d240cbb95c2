"""Patterns with ``*`` in them, matched in one pass: no rule can be slow, whatever it is held against."""

from collections.abc import Sequence


def spans(pattern: str, text: str) -> bool:
    """Return whether ``text`` is ``pattern``, where each ``*`` stands for any characters, or none."""
    if "*" not in pattern:
        return pattern == text
    return between(pattern.split("*"), text)


def between(parts: Sequence[str], text: str) -> bool:
    """Return whether ``text`` is ``parts`` in order, with anything between them."""
    first, *middle, last = parts
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def begins(pattern: str, text: str) -> bool:
    """Return whether ``text`` fits, where a last ``" *"`` or ``":*"`` means "with or without more words"."""
    bare = pattern[:-2] if pattern.endswith((" *", ":*")) else None
    if bare is None or "*" in bare:
        return spans(pattern, text)
    return text == bare or text.startswith(f"{bare} ")
