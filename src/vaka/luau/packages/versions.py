"""Versions and version ranges after semver 2.0, and strict JSON documents that contain them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import total_ordering
from typing import Any, TypeVar, cast

import msgspec

from vaka.luau.packages.errors import PackageError, quote_text

MAX_VERSION_CHARS = 128

NUMBER_PATTERN = r"(?:0|[1-9][0-9]*)"

_IDENTIFIER_PATTERN = rf"(?:{NUMBER_PATTERN}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"

TAIL_PATTERN = rf"(?:-(?P<pre>{_IDENTIFIER_PATTERN}(?:\.{_IDENTIFIER_PATTERN})*))?(?:\+(?P<build>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"

_VERSION_PATTERN = re.compile(
    rf"(?P<major>{NUMBER_PATTERN})\.(?P<minor>{NUMBER_PATTERN})\.(?P<patch>{NUMBER_PATTERN}){TAIL_PATTERN}"
)

Identifiers = tuple[int | str, ...]


@total_ordering
class Version:
    """One version. Build metadata is kept for people and plays no part in order or equality."""

    __slots__ = ("_order", "build", "core", "pre")

    def __init__(self, major: int, minor: int, patch: int, pre: Identifiers = (), build: str = "") -> None:
        self.core = (major, minor, patch)
        self.pre = pre
        self.build = build
        # A release comes after its pre-releases; numbers before words, fewer parts before more.
        parts = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in pre)
        self._order = (self.core, not pre, parts)

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Read ``MAJOR.MINOR.PATCH[-PRE][+BUILD]``. Raises ``PackageError``."""
        found = _VERSION_PATTERN.fullmatch(text) if len(text) <= MAX_VERSION_CHARS else None
        if found is None:
            raise PackageError(
                f"{quote_text(text)} is not a version{_find_version_problem(text)}; "
                "expected MAJOR.MINOR.PATCH such as '1.2.0' or '1.2.0-rc.1'"
            )
        numbers = (int(found["major"]), int(found["minor"]), int(found["patch"]))
        return cls(*numbers, parse_identifiers(found["pre"]), found["build"] or "")

    @property
    def without_build(self) -> str:
        """The version without build metadata: what tells two versions apart, and names files and folders."""
        pre = f"-{'.'.join(map(str, self.pre))}" if self.pre else ""
        return f"{'.'.join(map(str, self.core))}{pre}"

    def __str__(self) -> str:
        return f"{self.without_build}+{self.build}" if self.build else self.without_build

    def __repr__(self) -> str:
        return f"Version({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self._order == other._order if isinstance(other, Version) else NotImplemented

    def __lt__(self, other: "Version") -> bool:
        return self._order < other._order

    def __hash__(self) -> int:
        return hash(self._order)


def parse_identifiers(text: str | None) -> Identifiers:
    """Return the parts of a pre-release that was matched before."""
    return tuple(int(part) if part.isdigit() else part for part in text.split(".")) if text else ()


def _find_version_problem(text: str) -> str:
    if len(text) > MAX_VERSION_CHARS:
        return f": it has more than {MAX_VERSION_CHARS} characters"
    if text != text.strip():
        return ": it has spaces around it"
    if text[:1] in {"v", "V", "="} and _VERSION_PATTERN.fullmatch(text[1:]):
        return f": leave out the {text[0]!r}"
    if re.fullmatch(rf"{NUMBER_PATTERN}(\.{NUMBER_PATTERN})?", text):
        return ": it has fewer than three numbers"
    if re.search(r"(^|[.-])0[0-9]+($|[.+-])", text):
        return ": a number starts with a zero"
    return ""


MAX_RANGE_CHARS = 256

_EXPECTED_FORMS = "expected something like '^1.2.0', '~1.2', '>=1.0 <2', '1.x', '1.2.0 || 2.0.0', 'latest' or '*'"

_COMPARATOR = re.compile(r"[\s,]*(?P<sign>\^|~|>=|<=|!=|>|<|=)?\s*(?P<version>[^\s,<>=!^~|]+)[\s,]*")

_PART = rf"(?:[xX*]|{NUMBER_PATTERN})"

_PARTIAL = re.compile(rf"(?P<a>{_PART})(?:\.(?P<b>{_PART})(?:\.(?P<c>{_PART}){TAIL_PATTERN})?)?")

_LOWEST_PRERELEASE: tuple[int] = (0,)  # the pre-release that comes before all others


@dataclass(frozen=True, slots=True)
class _Interval:
    """Versions from ``low`` up to ``high``; each end may be open or absent."""

    low: Version | None = None
    high: Version | None = None
    after_low: bool = False
    with_high: bool = False

    def contains(self, version: Version) -> bool:
        if self.low is not None and (version < self.low or (self.after_low and version == self.low)):
            return False
        return self.high is None or version < self.high or (self.with_high and version == self.high)


@dataclass(frozen=True, slots=True)
class _Alternative:
    """One side of ``||``: in every span, in no hole, and a pre-release only of a version it names one of."""

    spans: tuple[_Interval, ...]
    holes: tuple[_Interval, ...]
    named: frozenset[tuple[int, int, int]]

    def contains(self, version: Version) -> bool:
        if version.pre and version.core not in self.named:
            return False
        return all(span.contains(version) for span in self.spans) and not any(
            hole.contains(version) for hole in self.holes
        )


@dataclass(frozen=True, slots=True)
class _PartialVersion:
    """A version of which the last numbers may be missing."""

    numbers: tuple[int, ...]
    pre: tuple[int | str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return len(self.numbers) == 3

    @property
    def lowest_version(self) -> Version:
        return _make_version(self.numbers, self.pre)

    def upper_bound(self, keep: int) -> Version:
        """Return the version that all which share the first ``keep`` numbers come before."""
        return _make_version(_increment_last(self.numbers[:keep]), _LOWEST_PRERELEASE)


class Range:
    """The versions that suit somebody. Equal when they are written alike."""

    __slots__ = ("_choices", "text")

    def __init__(self, text: str) -> None:
        """Read a range. Raises ``PackageError``."""
        if len(text) > MAX_RANGE_CHARS:
            raise PackageError(f"range {quote_text(text)} has more than {MAX_RANGE_CHARS} characters")
        self.text = " ".join(text.split())
        self._choices = tuple(_parse_alternative(choice, text) for choice in text.split("||"))

    def __contains__(self, version: Version) -> bool:
        return any(choice.contains(version) for choice in self._choices)

    def highest_version(self, versions: Iterable[Version]) -> Version | None:
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


def _parse_alternative(text: str, range_text: str) -> _Alternative:
    spans: list[_Interval] = []
    holes: list[_Interval] = []
    named: set[tuple[int, int, int]] = set()
    position = 0
    while position < len(text) or not spans + holes:
        found = _COMPARATOR.match(text, position)
        if found is None:
            wrong = (
                f"{quote_text(text[position:].strip())} is not a range"
                if text[position:].strip()
                else "nothing is asked"
            )
            raise PackageError(f"range {quote_text(range_text)}: {wrong}; {_EXPECTED_FORMS}")
        sign, partial = found["sign"] or "=", _parse_partial(found["version"], found["sign"], range_text)
        if sign == "!=":
            holes.append(_excluded_interval(partial, range_text))
        else:
            spans.append(_interval_of(sign, partial, range_text))
            if partial.pre:
                named.add(partial.lowest_version.core)
        position = found.end()
    return _Alternative(tuple(spans), tuple(holes), frozenset(named))


def _parse_partial(text: str, sign: str | None, range_text: str) -> _PartialVersion:
    if text == "latest" and sign is None:
        return _PartialVersion(())
    found = _PARTIAL.fullmatch(text)
    if found is None:
        raise PackageError(
            f"range {quote_text(range_text)}: {quote_text(text)} is not a version or a part of one; {_EXPECTED_FORMS}"
        )
    parts = [part for part in (found["a"], found["b"], found["c"]) if part is not None]
    given = [part for part in parts if part not in "xX*"]
    if parts[: len(given)] != given:
        raise PackageError(f"range {quote_text(range_text)}: {quote_text(text)} has a number after a wildcard")
    if len(given) < 3 and (found["pre"] or found["build"]):
        raise PackageError(
            f"range {quote_text(range_text)}: {quote_text(text)} names a pre-release or build of a wildcard"
        )
    return _PartialVersion(tuple(map(int, given)), parse_identifiers(found["pre"]))


def _interval_of(sign: str, asked: _PartialVersion, range_text: str) -> _Interval:
    if not asked.numbers:
        if sign in {">", "<"}:
            raise PackageError(
                f"range {quote_text(range_text)}: no version is {'above' if sign == '>' else 'below'} all versions"
            )
        return _Interval()
    first, size = asked.lowest_version, len(asked.numbers)
    if sign == "^":
        leading = next((place for place, number in enumerate(asked.numbers, 1) if number), size)
        return _Interval(first, asked.upper_bound(leading))
    if sign == "~":
        return _Interval(first, asked.upper_bound(min(size, 2)))
    if asked.is_complete:
        return {
            "=": _Interval(first, first, with_high=True),
            ">": _Interval(first, after_low=True),
            ">=": _Interval(first),
            "<": _Interval(high=first),
            "<=": _Interval(high=first, with_high=True),
        }[sign]
    return {
        "=": _Interval(first, asked.upper_bound(size)),
        ">": _Interval(_make_version(_increment_last(asked.numbers))),
        ">=": _Interval(first),
        "<": _Interval(high=_make_version(asked.numbers, _LOWEST_PRERELEASE)),
        "<=": _Interval(high=asked.upper_bound(size)),
    }[sign]


def _excluded_interval(asked: _PartialVersion, range_text: str) -> _Interval:
    if not asked.numbers:
        raise PackageError(f"range {quote_text(range_text)}: no version is unlike all versions")
    if asked.is_complete:
        return _Interval(asked.lowest_version, asked.lowest_version, with_high=True)
    return _Interval(_make_version(asked.numbers, _LOWEST_PRERELEASE), asked.upper_bound(len(asked.numbers)))


def _increment_last(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers[:-1], numbers[-1] + 1)


def _make_version(numbers: tuple[int, ...], pre: tuple[int | str, ...] = ()) -> Version:
    major, minor, patch = (*numbers, 0, 0)[:3]
    return Version(major, minor, patch, pre)


ANY_VERSION = Range("*")

T = TypeVar("T", bound=msgspec.Struct)


def decode_document(data: bytes, kind: type[T], where: str) -> T:
    """Read one value. Raises ``PackageError`` that says where, what was wrong and what was expected."""
    try:
        fields: Any = msgspec.json.decode(data)
        if not isinstance(fields, dict):
            raise PackageError(f"{where}: expected an object, not {type(fields).__name__}")
        _check_field_names(cast("dict[str, Any]", fields), kind.__struct_fields__, where)
        return msgspec.convert(fields, kind, dec_hook=_decode_hook)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PackageError(f"{where}: {error}") from error
    except RecursionError as error:
        raise PackageError(f"{where}: nested too deeply") from error


def encode_document(value: msgspec.Struct) -> bytes:
    """Write a value for people and programs: the same value is always the same bytes."""
    return (
        msgspec.json.format(msgspec.json.encode(value, enc_hook=_encode_hook, order="deterministic"), indent=2) + b"\n"
    )


def _check_field_names(fields: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in fields:
        if name not in known:
            close = get_close_matches(name, known, 1)
            advice = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(known)}"
            raise PackageError(f"{where}: unknown key {name!r}; {advice}")


def _decode_hook(kind: type[Any], value: Any) -> Any:
    # A ValueError is told with its place in the document.
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    try:
        return Version.parse(value) if kind is Version else Range(value)
    except PackageError as error:
        raise ValueError(str(error)) from error


def _encode_hook(value: Any) -> str:
    if isinstance(value, Version | Range):
        return str(value)
    raise TypeError(f"{value!r} cannot be written as JSON")
