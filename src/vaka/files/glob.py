"""Wildcards in one name: ``*``, ``?`` and ``[…]``, matched in time that no pattern can blow up."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

_STARS = 2
"""Stars a regular expression is trusted with; more are matched here, piece by piece."""
_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": " \\t-\\r", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip

Matcher: TypeAlias = Callable[[str], bool]


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Matcher:
    """Return what tells whether a name matches a pattern. One that cannot be read matches nothing."""
    if not any(letter in pattern for letter in "*?[\\"):
        return pattern.__eq__
    if pattern.startswith("*") and not any(letter in pattern[1:] for letter in "*?[\\"):
        ending = pattern[1:]
        return lambda name: name.endswith(ending)
    pieces = _pieces(pattern)
    if pieces is None:
        return lambda _: False
    if len(pieces) <= _STARS + 1:
        whole = re.compile(".*".join(pieces), re.DOTALL)
        return lambda name: whole.fullmatch(name) is not None
    return _Pieces(pieces).match


class _Pieces:
    """What lies between the stars. The first place where a piece fits is as good as any later one."""

    def __init__(self, pieces: Sequence[str]) -> None:
        first, *middle, last = pieces
        self._first = re.compile(first, re.DOTALL)
        self._middle = [re.compile(piece, re.DOTALL) for piece in middle]
        self._last = re.compile(f"(?:{last})\\Z", re.DOTALL)

    def match(self, name: str) -> bool:
        """Tell whether a name matches."""
        found = self._first.match(name)
        for piece in self._middle:
            if found is None:
                return False
            found = piece.search(name, found.end())
        return found is not None and self._last.search(name, found.end()) is not None


def _pieces(pattern: str) -> list[str] | None:
    """Return regular expressions for what lies between the stars, ``None`` for a pattern that makes no sense."""
    pieces, at = [""], 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == "*":
            pieces.append("")
            continue
        if letter == "?":
            pieces[-1] += "."
        elif letter == "[":
            found = _set(pattern, at)
            if found is None:
                return None
            text, at = found
            pieces[-1] += text
        elif letter == "\\":
            if at == len(pattern):
                return None
            pieces[-1] += re.escape(pattern[at])
            at += 1
        else:
            pieces[-1] += re.escape(letter)
    return pieces


def _set(pattern: str, at: int) -> tuple[str, int] | None:
    """Read ``[…]`` after its bracket; return the regular expression and where it ends."""
    negated = pattern[at : at + 1] in {"!", "^"}
    at += negated
    body, first = "", True
    while at < len(pattern) and (first or pattern[at] != "]"):
        first = False
        if pattern.startswith("[:", at) and (end := pattern.find(":]", at)) > 0:
            if pattern[at + 2 : end] not in _CLASSES:
                return None
            body, at = body + _CLASSES[pattern[at + 2 : end]], end + 2
            continue
        low, at = _letter(pattern, at)
        high = low
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in {"", "]"}:
            high, at = _letter(pattern, at + 1)
        body += f"\\U{ord(low):08x}-\\U{ord(max(low, high)):08x}"
    if at >= len(pattern):
        return None
    if not body:
        return ("." if negated else "(?!)"), at + 1
    return f"[{'^' if negated else ''}{body}]", at + 1


def _letter(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at] == "\\" and at + 1 < len(pattern):
        at += 1
    return pattern[at], at + 1
