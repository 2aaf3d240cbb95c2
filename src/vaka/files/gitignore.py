"""``.gitignore`` rules as git reads them, and their name patterns (``*``, ``?``, ``[…]``), never slow to match."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

_MAX_REGEX_STARS = 2
"""Stars a regular expression is trusted with; more are matched here, piece by piece."""

_CHARACTER_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": " \\t-\\r", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip

NameMatcher: TypeAlias = Callable[[str], bool]


@lru_cache(maxsize=4096)
def compile_name_pattern(pattern: str) -> NameMatcher:
    """Return what tells whether a name matches a pattern. One that cannot be read matches nothing."""
    if not any(letter in pattern for letter in "*?[\\"):
        return pattern.__eq__
    if pattern.startswith("*") and not any(letter in pattern[1:] for letter in "*?[\\"):
        ending = pattern[1:]
        return lambda name: name.endswith(ending)
    pieces = _split_at_stars(pattern)
    if pieces is None:
        return lambda _: False
    if len(pieces) <= _MAX_REGEX_STARS + 1:
        whole = re.compile(".*".join(pieces), re.DOTALL)
        return lambda name: whole.fullmatch(name) is not None
    return _PieceMatcher(pieces).match


class _PieceMatcher:
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


def _split_at_stars(pattern: str) -> list[str] | None:
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
            found = _parse_bracket(pattern, at)
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


def _parse_bracket(pattern: str, at: int) -> tuple[str, int] | None:
    """Read ``[…]`` after its bracket; return the regular expression and where it ends."""
    negated = pattern[at : at + 1] in {"!", "^"}
    at += negated
    body, first = "", True
    while at < len(pattern) and (first or pattern[at] != "]"):
        first = False
        if pattern.startswith("[:", at) and (end := pattern.find(":]", at)) > 0:
            if pattern[at + 2 : end] not in _CHARACTER_CLASSES:
                return None
            body, at = body + _CHARACTER_CLASSES[pattern[at + 2 : end]], end + 2
            continue
        low, at = _read_character(pattern, at)
        high = low
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in {"", "]"}:
            high, at = _read_character(pattern, at + 1)
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


_MAX_LINES = 10_000
"""Lines of one file that are read."""

_MAX_CACHED_NAMES = 20_000
"""Names of which it is remembered what the lines say."""


class _IgnoreRule(NamedTuple):
    """A line: what it matches, and what it says about that."""

    segments: tuple[NameMatcher | None, ...]
    """One for each name; ``None`` for ``**``."""
    anchored: bool
    folders_only: bool
    ignored: bool


class IgnoreRules:
    """The lines of one file. The last one that matches decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _parse_line(line))]
        numbered = list(enumerate(self._rules))[::-1]
        self._name_rules = [(number, rule) for number, rule in numbered if not rule.anchored]
        self._path_rules = [(number, rule) for number, rule in numbered if rule.anchored]
        self._last_rule_by_name: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decide(self, names: Sequence[str], *, is_folder: bool) -> bool | None:
        """Return whether a path from the file's folder on is left out; ``None`` when no line speaks of it."""
        best = self._find_last_rule(names[-1], is_folder=is_folder)
        for number, rule in self._path_rules:
            if number < best:
                break
            if (is_folder or not rule.folders_only) and _matches_path(rule.segments, names):
                return rule.ignored
        return self._rules[best].ignored if best >= 0 else None

    def _find_last_rule(self, name: str, *, is_folder: bool) -> int:
        """Return the number of the last line that goes by the name alone; names come again and again."""
        known = self._last_rule_by_name[is_folder]
        best = known.get(name)
        if best is None:
            if len(known) >= _MAX_CACHED_NAMES:
                known.clear()
            best = known[name] = next(self._matching_rule_numbers(name, is_folder=is_folder), -1)
        return best

    def _matching_rule_numbers(self, name: str, *, is_folder: bool) -> Iterator[int]:
        for number, rule in self._name_rules:
            only = rule.segments[0]
            if (is_folder or not rule.folders_only) and (only is None or only(name)):
                yield number


def parse_ignore_rules(data: bytes) -> IgnoreRules | None:
    """Return the rules of a file, ``None`` when it has none."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    rules = IgnoreRules(line.removesuffix("\r") for line in text.split("\n", _MAX_LINES)[:_MAX_LINES])
    return rules or None


class IgnoreStack:
    """The rules that hold in a folder: those of the files above it, the nearest last."""

    def __init__(self, layers: tuple[tuple[int, IgnoreRules], ...] = ()) -> None:
        self._layers = layers

    def __bool__(self) -> bool:
        return bool(self._layers)

    def with_rules(self, depth: int, rules: IgnoreRules | None, *, reset: bool = False) -> "IgnoreStack":
        """Return the rules with those of a folder ``depth`` names below the root; ``fresh`` forgets the others."""
        layers = () if reset else self._layers
        return IgnoreStack(layers if rules is None else (*layers, (depth, rules)))

    def ignores(self, names: Sequence[str], *, is_folder: bool) -> bool:
        """Tell whether a path from the root on is left out, its folders not being so."""
        for depth, rules in reversed(self._layers):
            decided = rules.decide(names[depth:], is_folder=is_folder)
            if decided is not None:
                return decided
        return False


def _parse_line(line: str) -> _IgnoreRule | None:
    if line.startswith("#"):
        return None
    line = _strip_trailing_blanks(line)
    ignored = not line.startswith("!")
    line = line if ignored else line[1:]
    folders = line.endswith("/")
    line = line[:-1] if folders else line
    anchored = "/" in line
    names = line.removeprefix("/").split("/")
    if not line or (names == [""]):
        return None
    if names[0] == "**" and len(names) == 2 and names[1] != "**":
        return _IgnoreRule((compile_name_pattern(names[1]),), False, folders, ignored)  # the same, and quicker
    segments = tuple(None if name == "**" and anchored else compile_name_pattern(name) for name in names)
    return _IgnoreRule(segments, anchored, folders, ignored)


def _strip_trailing_blanks(line: str) -> str:
    """Return a line without the blanks at its end, but for those behind a backslash."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and len(bare) < len(line) else bare


def _matches_path(segments: Sequence[NameMatcher | None], names: Sequence[str]) -> bool:
    """Match names one by one; ``**`` takes any number of them, at the end at least one."""
    if len(segments) > len(names) and None not in segments:
        return False
    at, back, resume, position = 0, -1, 0, 0
    while position < len(names):
        if at < len(segments):
            segment = segments[at]
            if segment is None:
                if at == len(segments) - 1:
                    return True
                back, resume, at = at, position, at + 1
                continue
            if segment(names[position]):
                at, position = at + 1, position + 1
                continue
        if back < 0:
            return False
        resume += 1
        at, position = back + 1, resume
    return at == len(segments)
