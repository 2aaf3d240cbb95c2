"""Versions and version ranges after semver 2.0, and strict JSON documents that contain them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering
from typing import Any, TypeVar, cast

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.keywords import find_near_names

_MAX_QUOTED_CHARS = 80


class PackageError(InvalidInput, code="package"):
    """A version, range, name, manifest or archive is invalid; nothing was changed."""


def quote_text(text: str) -> str:
    """Return a text for an error message: escaped, and truncated if it is long."""
    return repr(text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}…")


MAX_VERSION_CHARS = 128
NUMBER_PATTERN = r"(?:0|[1-9][0-9]*)"
_IDENTIFIER_PATTERN = rf"(?:{NUMBER_PATTERN}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
TAIL_PATTERN = (
    rf"(?:-(?P<pre>{_IDENTIFIER_PATTERN}(?:\.{_IDENTIFIER_PATTERN})*))?"
    r"(?:\+(?P<build>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)

_VERSION_PATTERN = re.compile(
    rf"(?P<major>{NUMBER_PATTERN})\.(?P<minor>{NUMBER_PATTERN})\.(?P<patch>{NUMBER_PATTERN}){TAIL_PATTERN}"
)

Identifiers = tuple[int | str, ...]


@total_ordering
class Version:
    """One version. Build metadata is for people and does not affect order or equality."""

    __slots__ = ("_order", "build", "core", "pre")

    def __init__(self, major: int, minor: int, patch: int, pre: Identifiers = (), build: str = "") -> None:
        self.core = (major, minor, patch)
        self.pre = pre
        self.build = build
        # Order: pre-releases before their release, numbers before words, fewer parts before more.
        parts = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in pre)
        self._order = (self.core, not pre, parts)

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Read ``MAJOR.MINOR.PATCH[-PRE][+BUILD]``. Raises ``PackageError``."""
        match = _VERSION_PATTERN.fullmatch(text) if len(text) <= MAX_VERSION_CHARS else None
        if match is None:
            raise PackageError(
                f"{quote_text(text)} is not a version{_find_version_problem(text)}; "
                "expected MAJOR.MINOR.PATCH such as '1.2.0' or '1.2.0-rc.1'"
            )
        numbers = (int(match["major"]), int(match["minor"]), int(match["patch"]))
        return cls(*numbers, parse_identifiers(match["pre"]), match["build"] or "")

    @property
    def without_build(self) -> str:
        """The version without build metadata, as in the names of files and folders."""
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
    """Return the parts of a valid pre-release."""
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
    """Versions from ``low`` to ``high``; each end may be open or absent."""

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
    """One side of ``||``: the versions in every span and in no hole; pre-releases only of versions in ``named``."""

    spans: tuple[_Interval, ...]
    holes: tuple[_Interval, ...]
    named: frozenset[tuple[int, int, int]]

    def contains(self, version: Version) -> bool:
        if version.pre and version.core not in self.named:
            return False
        in_spans = all(span.contains(version) for span in self.spans)
        return in_spans and not any(hole.contains(version) for hole in self.holes)


@dataclass(frozen=True, slots=True)
class _PartialVersion:
    """A version whose last numbers may be missing."""

    numbers: tuple[int, ...]
    pre: tuple[int | str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return len(self.numbers) == 3

    @property
    def lowest_version(self) -> Version:
        return _make_version(self.numbers, self.pre)

    def upper_bound(self, keep: int) -> Version:
        """Return the lowest version above all versions with the same first ``keep`` numbers."""
        return _make_version(_increment_last(self.numbers[:keep]), _LOWEST_PRERELEASE)


class Range:
    """A set of versions. Ranges are equal if their texts are."""

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
        """Return the highest version in the range, or None."""
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
        match = _COMPARATOR.match(text, position)
        if match is None:
            rest = text[position:].strip()
            problem = f"{quote_text(rest)} is not a range" if rest else "it is empty"
            raise PackageError(f"range {quote_text(range_text)}: {problem}; {_EXPECTED_FORMS}")
        sign, partial = match["sign"] or "=", _parse_partial(match["version"], match["sign"], range_text)
        if sign == "!=":
            holes.append(_excluded_interval(partial, range_text))
        else:
            spans.append(_interval_of(sign, partial, range_text))
            if partial.pre:
                named.add(partial.lowest_version.core)
        position = match.end()
    return _Alternative(tuple(spans), tuple(holes), frozenset(named))


def _parse_partial(text: str, sign: str | None, range_text: str) -> _PartialVersion:
    if text == "latest" and sign is None:
        return _PartialVersion(())
    match, where = _PARTIAL.fullmatch(text), f"range {quote_text(range_text)}: {quote_text(text)}"
    if match is None:
        raise PackageError(f"{where} is not a version or a part of one; {_EXPECTED_FORMS}")
    parts = [part for part in (match["a"], match["b"], match["c"]) if part is not None]
    numbers = [part for part in parts if part not in "xX*"]
    if parts[: len(numbers)] != numbers:
        raise PackageError(f"{where} has a number after a wildcard")
    if len(numbers) < 3 and (match["pre"] or match["build"]):
        raise PackageError(f"{where} names a pre-release or build of a wildcard")
    return _PartialVersion(tuple(map(int, numbers)), parse_identifiers(match["pre"]))


def _interval_of(sign: str, partial: _PartialVersion, range_text: str) -> _Interval:
    numbers = partial.numbers
    first = partial.lowest_version
    size = len(partial.numbers)
    if not numbers:
        if sign in {">", "<"}:
            side = "above" if sign == ">" else "below"
            raise PackageError(f"range {quote_text(range_text)}: no version is {side} all versions")
        return _Interval()
    if sign == "^":
        leading = next((count for count, number in enumerate(numbers, 1) if number), size)
        return _Interval(first, partial.upper_bound(leading))
    if sign == "~":
        return _Interval(first, partial.upper_bound(min(size, 2)))
    if partial.is_complete:
        return {
            "=": _Interval(first, first, with_high=True),
            ">": _Interval(first, after_low=True),
            ">=": _Interval(first),
            "<": _Interval(high=first),
            "<=": _Interval(high=first, with_high=True),
        }[sign]
    return {
        "=": _Interval(first, partial.upper_bound(size)),
        ">": _Interval(_make_version(_increment_last(numbers))),
        ">=": _Interval(first),
        "<": _Interval(high=_make_version(numbers, _LOWEST_PRERELEASE)),
        "<=": _Interval(high=partial.upper_bound(size)),
    }[sign]


def _excluded_interval(partial: _PartialVersion, range_text: str) -> _Interval:
    if not partial.numbers:
        raise PackageError(f"range {quote_text(range_text)}: it excludes every version")
    if partial.is_complete:
        return _Interval(partial.lowest_version, partial.lowest_version, with_high=True)
    return _Interval(_make_version(partial.numbers, _LOWEST_PRERELEASE), partial.upper_bound(len(partial.numbers)))


def _increment_last(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return (*numbers[:-1], numbers[-1] + 1)


def _make_version(numbers: tuple[int, ...], pre: tuple[int | str, ...] = ()) -> Version:
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    return Version(major, minor, patch, pre)


ANY_VERSION = Range("*")

T = TypeVar("T", bound=msgspec.Struct)


def decode_document(data: bytes, kind: type[T], where: str) -> T:
    """Decode a JSON object. Raises ``PackageError``, whose message starts with ``where``."""
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
    """Encode a value as indented JSON; equal values give equal bytes."""
    data = msgspec.json.encode(value, enc_hook=_encode_hook, order="deterministic")
    return msgspec.json.format(data, indent=2) + b"\n"


def _check_field_names(fields: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in fields:
        if name not in known:
            close = find_near_names(name, known, 1)
            advice = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(known)}"
            raise PackageError(f"{where}: unknown key {name!r}; {advice}")


def _decode_hook(kind: type[Any], value: Any) -> Any:
    # msgspec adds the path in the document to a ValueError.
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
