"""Where a pattern ends: inside brackets a delimiter may be one of the characters they stand for."""

import re
from itertools import product

_CLASS = re.compile(r"\[([:.=])[^\]\n]{1,32}?\1\]")


def end_of_pattern(text: str, start: int, delimiter: str) -> int | None:
    """Return where the delimiter of a pattern stands that begins at ``start``; ``None`` when that is not certain.

    Programs disagree on what a backslash, a first ``]`` and ``[:`` are inside brackets, so every reading must end at
    the same place. A program that knows no brackets at all finds a pattern there that is none, and stops.
    """
    plain = re.compile(rf"(?:[^\\\n\[{re.escape(delimiter)}]|\\[^\n])*").match(text, start)
    if plain is not None and text[plain.end() : plain.end() + 1] == delimiter:
        return plain.end()
    ends = {_end(text, start, delimiter, *reading) for reading in product((False, True), repeat=3)}
    return ends.pop() if len(ends) == 1 else None


def _end(text: str, at: int, delimiter: str, escapes: bool, first: bool, classes: bool) -> int | None:
    """Read it in one way: whether backslashes count in brackets, a first ``]`` is itself, and ``[:alpha:]`` is one."""
    inside = False
    while at < len(text) and text[at] != "\n":
        sign = text[at]
        if sign == "\\" and (escapes or not inside):
            if text[at + 1 : at + 2] == "\n":
                return None
            at += 2
            continue
        if not inside:
            if sign == delimiter:
                return at
            inside = sign == "["
            at += inside and text.startswith("^", at + 1)
            at += inside and first and text.startswith("]", at + 1)
        elif classes and sign == "[" and text[at + 1 : at + 2] in {":", ".", "="}:
            found = _CLASS.match(text, at)
            if found is None:
                return None
            at = found.end()
            continue
        elif sign == "]":
            inside = False
        at += 1
    return None
