"""``.gitignore`` rules as git reads them."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from vaka.matching.globs import NameMatcher, compile_name, matches_names, parse_git_bracket


@lru_cache(maxsize=4096)
def compile_name_pattern(pattern: str) -> NameMatcher:
    """Return a function that matches a name; an invalid pattern matches nothing, as in git."""
    try:
        return compile_name(pattern, parse_git_bracket)
    except ValueError:
        return lambda _: False


_MAX_LINES = 10_000

_MAX_CACHED_NAMES = 20_000


class _IgnoreRule(NamedTuple):
    """One line of a file."""

    segments: tuple[NameMatcher | None, ...]
    """A matcher for each name of the path; ``None`` for ``**``."""
    anchored: bool
    folders_only: bool
    ignored: bool


class IgnoreRules:
    """The rules of one file. The last one that matches decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in lines if (rule := _parse_line(line))]
        numbered = list(enumerate(self._rules))[::-1]
        self._name_rules = [(number, rule) for number, rule in numbered if not rule.anchored]
        self._path_rules = [(number, rule) for number, rule in numbered if rule.anchored]
        self._last_rule_by_name: tuple[dict[str, int], dict[str, int]] = ({}, {})

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decide(self, names: Sequence[str], *, is_folder: bool) -> bool | None:
        """Return whether a path, relative to the file's folder, is ignored; ``None`` if no rule matches."""
        best = self._find_last_rule(names[-1], is_folder=is_folder)
        for number, rule in self._path_rules:
            if number < best:
                break
            if (is_folder or not rule.folders_only) and matches_names(rule.segments, names, inside=True):
                return rule.ignored
        return self._rules[best].ignored if best >= 0 else None

    def _find_last_rule(self, name: str, *, is_folder: bool) -> int:
        """Return the index of the last rule that matches by name alone, -1 for none; cached, as names repeat."""
        cache = self._last_rule_by_name[is_folder]
        best = cache.get(name)
        if best is None:
            if len(cache) >= _MAX_CACHED_NAMES:
                cache.clear()
            best = cache[name] = next(self._matching_rule_numbers(name, is_folder=is_folder), -1)
        return best

    def _matching_rule_numbers(self, name: str, *, is_folder: bool) -> Iterator[int]:
        for number, rule in self._name_rules:
            only = rule.segments[0]
            if (is_folder or not rule.folders_only) and (only is None or only(name)):
                yield number


def parse_ignore_rules(data: bytes) -> IgnoreRules | None:
    """Return the rules of a file, ``None`` if it has none."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    rules = IgnoreRules(line.removesuffix("\r") for line in text.split("\n", _MAX_LINES)[:_MAX_LINES])
    return rules or None


class IgnoreStack:
    """The rules that apply in a folder: those of the files above it, the nearest last."""

    def __init__(self, layers: tuple[tuple[int, IgnoreRules], ...] = ()) -> None:
        self._layers = layers

    def __bool__(self) -> bool:
        return bool(self._layers)

    def with_rules(self, depth: int, rules: IgnoreRules | None, *, reset: bool = False) -> "IgnoreStack":
        """Return a stack with the rules of a folder ``depth`` names below the root; ``reset`` drops the others."""
        layers = () if reset else self._layers
        return IgnoreStack(layers if rules is None else (*layers, (depth, rules)))

    def ignores(self, names: Sequence[str], *, is_folder: bool) -> bool:
        """Return whether a path from the root on is ignored, given that its folders are not."""
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
        return _IgnoreRule((compile_name_pattern(names[1]),), False, folders, ignored)  # the same, but faster
    segments = tuple(None if name == "**" and anchored else compile_name_pattern(name) for name in names)
    return _IgnoreRule(segments, anchored, folders, ignored)


def _strip_trailing_blanks(line: str) -> str:
    """Return a line without trailing blanks, except one after a backslash."""
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and len(bare) < len(line) else bare
