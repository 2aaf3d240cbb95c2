"""Wildcards in names and paths (``*``, ``?``, ``[…]``, ``**``), matched without backtracking over the whole pattern."""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

NameMatcher: TypeAlias = Callable[[str], bool]

BracketParser: TypeAlias = Callable[[str, int], "tuple[str, int] | None"]
"""Parses a ``[…]`` from the index after its bracket; returns a regular expression and the index after its end."""

_WILDCARDS = re.compile(r"[*?\[\\]")

_POSIX_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": " \\t-\\r", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip


def is_literal(pattern: str) -> bool:
    """Return whether a pattern has no wildcards and no backslash."""
    return not _WILDCARDS.search(pattern)


def matches_wildcards(pattern: str, text: str) -> bool:
    """Return whether ``text`` matches a pattern in which only ``*`` is special."""
    return pattern == text if "*" not in pattern else matches_parts(pattern.split("*"), text)


def matches_parts(parts: Sequence[str], text: str) -> bool:
    """Return whether ``text`` consists of ``parts`` in order, with anything between them."""
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


def compile_name(pattern: str, parse_bracket: BracketParser, *, lenient: bool = False) -> NameMatcher:
    """Return a function that matches one name; a pattern takes linear time, however many stars it has.

    Raises ``ValueError`` for an invalid bracket and for a backslash at the end; with ``lenient`` both are literal.
    """
    if is_literal(pattern):
        return pattern.__eq__
    if pattern.startswith("*") and is_literal(pattern[1:]):
        ending = pattern[1:]
        return lambda name: name.endswith(ending)
    first, *rest = _split_at_stars(pattern, parse_bracket, lenient=lenient)
    start = re.compile(first, re.DOTALL)
    if not rest:
        return lambda name: start.fullmatch(name) is not None
    middle = [re.compile(piece, re.DOTALL) for piece in rest[:-1]]
    end = re.compile(f"(?:{rest[-1]})\\Z", re.DOTALL)

    def match(name: str) -> bool:
        # Each piece has a fixed length, so its first match is as good as any later one.
        found = start.match(name)
        for piece in middle:
            found = piece.search(name, found.end()) if found else None
        return found is not None and end.search(name, found.end()) is not None

    return match


def _split_at_stars(pattern: str, parse_bracket: BracketParser, *, lenient: bool) -> list[str]:
    """Return regular expressions for the parts between the stars."""
    pieces, at = [""], 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == "*":
            pieces.append("")
            continue
        bracket = parse_bracket(pattern, at) if letter == "[" else None
        if letter == "?":
            pieces[-1] += "."
        elif bracket is not None:
            pieces[-1] += bracket[0]
            at = bracket[1]
        elif letter == "\\" and at < len(pattern):
            pieces[-1] += re.escape(pattern[at])
            at += 1
        elif letter in "[\\" and not lenient:
            raise ValueError("it ends in a backslash" if letter == "\\" else "'[' is never closed")
        else:
            pieces[-1] += re.escape(letter)
    return pieces


def parse_bracket(pattern: str, at: int, *, git: bool = True) -> tuple[str, int] | None:
    """Parse a bracket; ``None`` for one that is not closed or not valid.

    As git does: with ``[:alpha:]``, and of a range that runs backwards only the first character matches. Without
    ``git`` there are no such classes, and a range that runs backwards is empty.
    """
    negated = pattern[at : at + 1] in {"!", "^"}
    at += negated
    body, first = "", True
    while at < len(pattern) and (first or pattern[at] != "]"):
        first = False
        if git and pattern.startswith("[:", at) and (end := pattern.find(":]", at)) > 0:
            if pattern[at + 2 : end] not in _POSIX_CLASSES:
                return None
            body, at = body + _POSIX_CLASSES[pattern[at + 2 : end]], end + 2
            continue
        low, at = _read_character(pattern, at)
        high = low
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in {"", "]"}:
            high, at = _read_character(pattern, at + 1)
        if git or low <= high:
            body += f"\\U{ord(low):08x}-\\U{ord(max(low, high)):08x}"
    if at >= len(pattern):
        return None
    if not body:
        return ("." if negated else "(?!)"), at + 1
    return f"[{'^' if negated else ''}{body}]", at + 1


def _read_character(pattern: str, at: int) -> tuple[str, int]:
    if pattern[at] == "\\" and at + 1 < len(pattern):
        at += 1
    return pattern[at], at + 1


def matches_names(patterns: Sequence[NameMatcher | None], names: Sequence[str], *, inside: bool = False) -> bool:
    """Match the names of a path one by one; ``None`` is ``**``, any number of names.

    ``inside``: a ``**`` at the end stands for at least one name.
    """
    if len(patterns) > len(names) and None not in patterns:
        return False
    at, position, back, resume = 0, 0, -1, 0
    while position < len(names):
        pattern = patterns[at] if at < len(patterns) else None
        if pattern is None and at < len(patterns):
            if at == len(patterns) - 1:
                return True
            back, resume, at = at, position, at + 1
        elif pattern is not None and pattern(names[position]):
            at, position = at + 1, position + 1
        elif back >= 0:
            resume += 1
            at, position = back + 1, resume
        else:
            return False
    return at == len(patterns) if inside else all(pattern is None for pattern in patterns[at:])
