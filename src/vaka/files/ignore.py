"""What a ``.gitignore`` leaves out, as git reads it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from vaka.files.glob import Matcher, matcher

_MOST = 10_000
"""Lines of one file that are read."""
_REMEMBERED = 20_000
"""Names of which it is remembered what the lines say."""


class _Rule(NamedTuple):
    """A line: what it matches, and what it says about that."""

    segments: tuple[Matcher | None, ...]
    """One for each name; ``None`` for ``**``."""
    anchored: bool
    folders: bool
    ignored: bool


class Rules:
    """The lines of one file. The last one that matches decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _read(line))]
        numbered = list(enumerate(self._rules))[::-1]
        self._loose = [(number, rule) for number, rule in numbered if not rule.anchored]
        self._anchored = [(number, rule) for number, rule in numbered if rule.anchored]
        self._known: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decide(self, names: Sequence[str], *, folder: bool) -> bool | None:
        """Return whether a path from the file's folder on is left out; ``None`` when no line speaks of it."""
        best = self._by_name(names[-1], folder=folder)
        for number, rule in self._anchored:
            if number < best:
                break
            if (folder or not rule.folders) and _path(rule.segments, names):
                return rule.ignored
        return self._rules[best].ignored if best >= 0 else None

    def _by_name(self, name: str, *, folder: bool) -> int:
        """Return the number of the last line that goes by the name alone; names come again and again."""
        known = self._known[folder]
        best = known.get(name)
        if best is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            best = known[name] = next(self._matching(name, folder=folder), -1)
        return best

    def _matching(self, name: str, *, folder: bool) -> Iterator[int]:
        for number, rule in self._loose:
            only = rule.segments[0]
            if (folder or not rule.folders) and (only is None or only(name)):
                yield number


def read_rules(data: bytes) -> Rules | None:
    """Return the rules of a file, ``None`` when it has none."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    rules = Rules(line.removesuffix("\r") for line in text.split("\n", _MOST)[:_MOST])
    return rules or None


class Stack:
    """The rules that hold in a folder: those of the files above it, the nearest last."""

    def __init__(self, layers: tuple[tuple[int, Rules], ...] = ()) -> None:
        self._layers = layers

    def __bool__(self) -> bool:
        return bool(self._layers)

    def under(self, depth: int, rules: Rules | None, *, fresh: bool = False) -> "Stack":
        """Return the rules with those of a folder ``depth`` names below the root; ``fresh`` forgets the others."""
        layers = () if fresh else self._layers
        return Stack(layers if rules is None else (*layers, (depth, rules)))

    def ignores(self, names: Sequence[str], *, folder: bool) -> bool:
        """Tell whether a path from the root on is left out, its folders not being so."""
        for depth, rules in reversed(self._layers):
            decided = rules.decide(names[depth:], folder=folder)
            if decided is not None:
                return decided
        return False


def _read(line: str) -> _Rule | None:
    if line.startswith("#"):
        return None
    line = _stripped(line)
    ignored = not line.startswith("!")
    line = line if ignored else line[1:]
    folders = line.endswith("/")
    line = line[:-1] if folders else line
    anchored = "/" in line
    names = line.removeprefix("/").split("/")
    if not line or (names == [""]):
        return None
    if names[0] == "**" and len(names) == 2 and names[1] != "**":
        return _Rule((matcher(names[1]),), False, folders, ignored)  # the same, and quicker
    segments = tuple(None if name == "**" and anchored else matcher(name) for name in names)
    return _Rule(segments, anchored, folders, ignored)


def _stripped(line: str) -> str:
    """Return a line without the blanks at its end, but for those behind a backslash."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and len(bare) < len(line) else bare


def _path(segments: Sequence[Matcher | None], names: Sequence[str]) -> bool:
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
