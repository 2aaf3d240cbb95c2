"""Wildcards in names and paths (``*``, ``?``, ``[…]``, ``**``), matched without backtracking over the whole pattern."""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

NameMatcher: TypeAlias = Callable[[str], bool]

BracketParser: TypeAlias = Callable[[str, int], "tuple[str, int] | None"]
"""Parses a ``[…]`` from the index after its bracket; returns a regular expression and the index after its end."""

_WILDCARDS = re.compile(r"[*?\[\\]")

_POSIX_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


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
    position, end = len(first), len(text) - len(last)
    for part in middle:
        position = text.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
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
    pieces, index = [""], 0
    while index < len(pattern):
        letter = pattern[index]
        index += 1
        if letter == "*":
            pieces.append("")
            continue
        bracket = parse_bracket(pattern, index) if letter == "[" else None
        if letter == "?":
            pieces[-1] += "."
        elif bracket is not None:
            pieces[-1] += bracket[0]
            index = bracket[1]
        elif letter == "\\" and index < len(pattern):
            pieces[-1] += re.escape(pattern[index])
            index += 1
        elif letter in "[\\" and not lenient:
            raise ValueError("it ends in a backslash" if letter == "\\" else "'[' is never closed")
        else:
            pieces[-1] += re.escape(letter)
    return pieces


def parse_bracket(pattern: str, index: int, *, git: bool = True) -> tuple[str, int] | None:
    """Parse a bracket; ``None`` if it is not closed or not valid.

    As git does: with ``[:alpha:]``, and of a range that runs backwards only the first character matches. Without
    ``git`` there are no such classes, and a range that runs backwards is empty.
    """
    negated = pattern[index : index + 1] in {"!", "^"}
    index += negated
    body, first = "", True
    while index < len(pattern) and (first or pattern[index] != "]"):
        first = False
        if git and pattern.startswith("[:", index) and (end := pattern.find(":]", index)) > 0:
            if pattern[index + 2 : end] not in _POSIX_CLASSES:
                return None
            body, index = body + _POSIX_CLASSES[pattern[index + 2 : end]], end + 2
            continue
        low, index = _read_character(pattern, index)
        high = low
        if pattern[index : index + 1] == "-" and pattern[index + 1 : index + 2] not in {"", "]"}:
            high, index = _read_character(pattern, index + 1)
        if git or low <= high:
            body += f"\\U{ord(low):08x}-\\U{ord(max(low, high)):08x}"
    if index >= len(pattern):
        return None
    if not body:
        return ("." if negated else "(?!)"), index + 1
    return f"[{'^' if negated else ''}{body}]", index + 1


def _read_character(pattern: str, index: int) -> tuple[str, int]:
    if pattern[index] == "\\" and index + 1 < len(pattern):
        index += 1
    return pattern[index], index + 1


def matches_names(patterns: Sequence[NameMatcher | None], names: Sequence[str], *, inside: bool = False) -> bool:
    """Match the names of a path one by one; ``None`` is ``**``, any number of names.

    ``inside``: a ``**`` at the end stands for at least one name.
    """
    if len(patterns) > len(names) and None not in patterns:
        return False
    index = 0
    position = 0
    back = -1
    resume = 0
    while position < len(names):
        pattern = patterns[index] if index < len(patterns) else None
        if pattern is None and index < len(patterns):
            if index == len(patterns) - 1:
                return True
            back = index
            resume = position
            index = index + 1
        elif pattern is not None and pattern(names[position]):
            index, position = index + 1, position + 1
        elif back >= 0:
            resume += 1
            index, position = back + 1, resume
        else:
            return False
    return index == len(patterns) if inside else all(pattern is None for pattern in patterns[index:])
