"""Wildcards for paths: ``*``, ``?`` and ``[…]`` in a name, ``**`` for folders, ``{a,b}``; none of them is ever slow."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from vaka.core.types.errors import InvalidInput

MOST = 1_000
"""Patterns that braces may stand for."""
LONGEST = 1_000
_MAGIC = re.compile(r"[*?\[\\]")


class Name:
    """A pattern for one name. What lies between its stars fits at the first place or at none: no going back."""

    def __init__(self, pattern: str) -> None:
        self._literal = pattern if _plain(pattern) else ""
        self._ending = pattern[1:] if pattern[0] == "*" and _plain(pattern[1:]) else ""
        pieces = _pieces(pattern)
        self._stars = len(pieces) - 1
        self._pieces = [re.compile(piece, re.DOTALL) for piece in pieces]
        self._last = re.compile(f"(?:{pieces[-1]})\\Z", re.DOTALL)

    def match(self, name: str) -> bool:
        """Tell whether a name matches."""
        if self._literal:
            return name == self._literal
        if self._ending:
            return name.endswith(self._ending)
        if not self._stars:
            return self._pieces[0].fullmatch(name) is not None
        found = self._pieces[0].match(name)
        for piece in self._pieces[1:-1]:
            found = piece.search(name, found.end()) if found else None
        return found is not None and self._last.search(name, found.end()) is not None


class Wildcard:
    """A pattern for paths from some folder on."""

    def __init__(self, pattern: str) -> None:
        if not pattern or len(pattern) > LONGEST:
            raise InvalidInput(f"a pattern has 1 to {LONGEST} characters, this one has {len(pattern)}")
        self.text = pattern
        written = [[name for name in one.split("/") if name not in {"", "."}] for one in expanded(pattern)]
        self.folder = _common([_literal(names) for names in written])
        """The folders that every path it matches begins with."""
        self._ways = [[None if name == "**" else _name(name) for name in names] for names in written]

    @property
    def depth(self) -> int | None:
        """How many names a path it matches has at most; ``None`` for any number."""
        if any(None in way for way in self._ways):
            return None
        return max(len(way) for way in self._ways)

    def match(self, path: str) -> bool:
        """Tell whether a path matches."""
        names = path.split("/")
        return any(_fits(way, names) for way in self._ways)


@lru_cache(maxsize=1024)
def _name(pattern: str) -> Name:
    return Name(pattern)


def expanded(pattern: str) -> list[str]:
    """Return the patterns that one with braces stands for. Raises ``InvalidInput`` when they are too many."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        found = _braces(text)
        if found is None:
            done.append(text)
        else:
            start, end, options = found
            waiting += [text[:start] + option + text[end:] for option in reversed(options)]
        if len(done) + len(waiting) > MOST:
            raise InvalidInput(f"the braces in {pattern!r} stand for more than {MOST} patterns")
    return done


def _braces(text: str) -> tuple[int, int, list[str]] | None:
    """Return the first braces with a comma in them: where they begin and end, and what they offer."""
    start = _next(text, 0, "{")
    while start is not None:
        options, depth, begun = list[str](), 0, start + 1
        for at in _marks(text, start):
            letter = text[at]
            depth += (letter == "{") - (letter == "}")
            if depth == 0 or (depth == 1 and letter == ","):
                options.append(text[begun:at])
                begun = at + 1
            if depth == 0:
                if len(options) > 1:
                    return start, at + 1, options
                break
        start = _next(text, start + 1, "{")
    return None


def _marks(text: str, at: int) -> Iterator[int]:
    """Yield where braces and commas are that no backslash stands before."""
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] in "{},":
            yield at
        at += 1


def _next(text: str, at: int, wanted: str) -> int | None:
    return next((found for found in _marks(text, at) if text[found] == wanted), None)


def _plain(pattern: str) -> bool:
    return not _MAGIC.search(pattern)


def _literal(names: Sequence[str]) -> list[str]:
    """Return the names at the beginning without wildcards, but for the last name."""
    plain: list[str] = []
    for name in names[:-1]:
        if not _plain(name):
            break
        plain.append(name)
    return plain


def _common(ways: Sequence[list[str]]) -> str:
    first = min(ways)
    last = max(ways)
    count = 0
    while count < len(first) and count < len(last) and first[count] == last[count]:
        count += 1
    return "/".join(first[:count])


def _fits(way: Sequence[Name | None], names: Sequence[str]) -> bool:
    """Match names one by one; ``**`` takes any number of them, and what follows it fits at the first place or none."""
    at, position, back, resume = 0, 0, -1, 0
    while position < len(names):
        part = way[at] if at < len(way) else None
        if part is None and at < len(way):
            back, resume, at = at, position, at + 1
        elif part is not None and part.match(names[position]):
            at, position = at + 1, position + 1
        elif back >= 0:
            resume += 1
            at, position = back + 1, resume
        else:
            return False
    return all(part is None for part in way[at:])


def _pieces(pattern: str) -> list[str]:
    """Return regular expressions for what lies between the stars."""
    pieces, at = [""], 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == "*":
            pieces.append("")
        elif letter == "?":
            pieces[-1] += "."
        elif letter == "[" and (found := _set(pattern, at)):
            text, at = found
            pieces[-1] += text
        else:
            if letter == "\\" and at < len(pattern):
                letter, at = pattern[at], at + 1
            pieces[-1] += re.escape(letter)
    return pieces


def _set(pattern: str, at: int) -> tuple[str, int] | None:
    """Read ``[…]`` behind its bracket; ``None`` when it does not end."""
    negated = pattern[at : at + 1] in {"!", "^"}
    at += negated
    end = pattern.find("]", at + 1)
    if end < 0:
        return None
    inside = re.sub(r"([\[\\&~|^])", r"\\\1", pattern[at:end])
    try:
        re.compile(f"[{inside}]")
    except re.error:
        raise InvalidInput(f"{pattern!r}: {pattern[at - 1 : end + 1]!r} is no set of letters") from None
    return f"[{'^' if negated else ''}{inside}]", end + 1
