"""Which versions somebody asks for: ``^1.2``, ``>=1.0 <2``, ``1.x || 3.0.0-rc.1``."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from vaka.luau.packages.errors import PackageError, shown
from vaka.luau.packages.version import NUMBER, TAIL, Version, identifiers

LONGEST = 256
_FORMS = "expected something like '^1.2.0', '~1.2', '>=1.0 <2', '1.x', '1.2.0 || 2.0.0', 'latest' or '*'"
_COMPARATOR = re.compile(r"[\s,]*(?P<sign>\^|~|>=|<=|!=|>|<|=)?\s*(?P<version>[^\s,<>=!^~|]+)[\s,]*")
_PART = rf"(?:[xX*]|{NUMBER})"
_PARTIAL = re.compile(rf"(?P<a>{_PART})(?:\.(?P<b>{_PART})(?:\.(?P<c>{_PART}){TAIL})?)?")
_LOWEST: tuple[int] = (0,)  # the pre-release that comes before all others


@dataclass(frozen=True, slots=True)
class _Span:
    """Versions from ``low`` up to ``high``; each end may be open or absent."""

    low: Version | None = None
    high: Version | None = None
    after_low: bool = False
    with_high: bool = False

    def holds(self, version: Version) -> bool:
        if self.low is not None and (version < self.low or (self.after_low and version == self.low)):
            return False
        return self.high is None or version < self.high or (self.with_high and version == self.high)


@dataclass(frozen=True, slots=True)
class _Choice:
    """One side of ``||``: in every span, in no hole, and a pre-release only of a version it names one of."""

    spans: tuple[_Span, ...]
    holes: tuple[_Span, ...]
    named: frozenset[tuple[int, int, int]]

    def holds(self, version: Version) -> bool:
        if version.pre and version.core not in self.named:
            return False
        return all(span.holds(version) for span in self.spans) and not any(hole.holds(version) for hole in self.holes)


@dataclass(frozen=True, slots=True)
class _Partial:
    """A version of which the last numbers may be missing."""

    numbers: tuple[int, ...]
    pre: tuple[int | str, ...] = ()

    @property
    def whole(self) -> bool:
        return len(self.numbers) == 3

    @property
    def first(self) -> Version:
        return _version(self.numbers, self.pre)

    def end(self, keep: int) -> Version:
        """Return the version that all which share the first ``keep`` numbers come before."""
        return _version(_next(self.numbers[:keep]), _LOWEST)


class Range:
    """The versions that suit somebody. Equal when they are written alike."""

    __slots__ = ("_choices", "text")

    def __init__(self, text: str) -> None:
        """Read a range. Raises ``PackageError``."""
        if len(text) > LONGEST:
            raise PackageError(f"range {shown(text)} has more than {LONGEST} characters")
        self.text = " ".join(text.split())
        self._choices = tuple(_choice(choice, text) for choice in text.split("||"))

    def __contains__(self, version: Version) -> bool:
        return any(choice.holds(version) for choice in self._choices)

    def best(self, versions: Iterable[Version]) -> Version | None:
        """Return the highest version that suits, or None."""
        return max((version for version in versions if version in self), default=None)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Range({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Range) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)


def _choice(text: str, whole: str) -> _Choice:
    spans: list[_Span] = []
    holes: list[_Span] = []
    named: set[tuple[int, int, int]] = set()
    position = 0
    while position < len(text) or not spans + holes:
        found = _COMPARATOR.match(text, position)
        if found is None:
            wrong = (
                f"{shown(text[position:].strip())} is not a range" if text[position:].strip() else "nothing is asked"
            )
            raise PackageError(f"range {shown(whole)}: {wrong}; {_FORMS}")
        sign, partial = found["sign"] or "=", _partial(found["version"], found["sign"], whole)
        if sign == "!=":
            holes.append(_hole(partial, whole))
        else:
            spans.append(_span(sign, partial, whole))
            if partial.pre:
                named.add(partial.first.core)
        position = found.end()
    return _Choice(tuple(spans), tuple(holes), frozenset(named))


def _partial(text: str, sign: str | None, whole: str) -> _Partial:
    if text == "latest" and sign is None:
        return _Partial(())
    found = _PARTIAL.fullmatch(text)
    if found is None:
        raise PackageError(f"range {shown(whole)}: {shown(text)} is not a version or a part of one; {_FORMS}")
    parts = [part for part in (found["a"], found["b"], found["c"]) if part is not None]
    given = [part for part in parts if part not in "xX*"]
    if parts[: len(given)] != given:
        raise PackageError(f"range {shown(whole)}: {shown(text)} has a number after a wildcard")
    if len(given) < 3 and (found["pre"] or found["build"]):
        raise PackageError(f"range {shown(whole)}: {shown(text)} names a pre-release or build of a wildcard")
    return _Partial(tuple(map(int, given)), identifiers(found["pre"]))


def _span(sign: str, asked: _Partial, whole: str) -> _Span:
    if not asked.numbers:
        if sign in {">", "<"}:
            raise PackageError(
                f"range {shown(whole)}: no version is {'above' if sign == '>' else 'below'} all versions"
            )
        return _Span()
    first, size = asked.first, len(asked.numbers)
    if sign == "^":
        leading = next((place for place, number in enumerate(asked.numbers, 1) if number), size)
        return _Span(first, asked.end(leading))
    if sign == "~":
        return _Span(first, asked.end(min(size, 2)))
    if asked.whole:
        return {
            "=": _Span(first, first, with_high=True),
            ">": _Span(first, after_low=True),
            ">=": _Span(first),
            "<": _Span(high=first),
            "<=": _Span(high=first, with_high=True),
        }[sign]
    return {
        "=": _Span(first, asked.end(size)),
        ">": _Span(_version(_next(asked.numbers))),
        ">=": _Span(first),
        "<": _Span(high=_version(asked.numbers, _LOWEST)),
        "<=": _Span(high=asked.end(size)),
    }[sign]


def _hole(asked: _Partial, whole: str) -> _Span:
    if not asked.numbers:
        raise PackageError(f"range {shown(whole)}: no version is unlike all versions")
    if asked.whole:
        return _Span(asked.first, asked.first, with_high=True)
    return _Span(_version(asked.numbers, _LOWEST), asked.end(len(asked.numbers)))


def _next(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers[:-1], numbers[-1] + 1)


def _version(numbers: tuple[int, ...], pre: tuple[int | str, ...] = ()) -> Version:
    major, minor, patch = (*numbers, 0, 0)[:3]
    return Version(major, minor, patch, pre)


ANY = Range("*")
