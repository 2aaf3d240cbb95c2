"""Versions as semver 2.0 orders them."""

import re
from functools import total_ordering

from vaka.luau.packages.errors import PackageError, shown

LONGEST = 128
NUMBER = r"(?:0|[1-9][0-9]*)"
_WORD = rf"(?:{NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
TAIL = rf"(?:-(?P<pre>{_WORD}(?:\.{_WORD})*))?(?:\+(?P<build>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
_VERSION = re.compile(rf"(?P<major>{NUMBER})\.(?P<minor>{NUMBER})\.(?P<patch>{NUMBER}){TAIL}")

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
        found = _VERSION.fullmatch(text) if len(text) <= LONGEST else None
        if found is None:
            raise PackageError(
                f"{shown(text)} is not a version{_hint(text)}; "
                "expected MAJOR.MINOR.PATCH such as '1.2.0' or '1.2.0-rc.1'"
            )
        numbers = (int(found["major"]), int(found["minor"]), int(found["patch"]))
        return cls(*numbers, identifiers(found["pre"]), found["build"] or "")

    @property
    def bare(self) -> str:
        """The version without build metadata: what tells two versions apart, and names files and folders."""
        pre = f"-{'.'.join(map(str, self.pre))}" if self.pre else ""
        return f"{'.'.join(map(str, self.core))}{pre}"

    def __str__(self) -> str:
        return f"{self.bare}+{self.build}" if self.build else self.bare

    def __repr__(self) -> str:
        return f"Version({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self._order == other._order if isinstance(other, Version) else NotImplemented

    def __lt__(self, other: "Version") -> bool:
        return self._order < other._order

    def __hash__(self) -> int:
        return hash(self._order)


def identifiers(text: str | None) -> Identifiers:
    """Return the parts of a pre-release that was matched before."""
    return tuple(int(part) if part.isdigit() else part for part in text.split(".")) if text else ()


def _hint(text: str) -> str:
    if len(text) > LONGEST:
        return f": it has more than {LONGEST} characters"
    if text != text.strip():
        return ": it has spaces around it"
    if text[:1] in {"v", "V", "="} and _VERSION.fullmatch(text[1:]):
        return f": leave out the {text[0]!r}"
    if re.fullmatch(rf"{NUMBER}(\.{NUMBER})?", text):
        return ": it has fewer than three numbers"
    if re.search(r"(^|[.-])0[0-9]+($|[.+-])", text):
        return ": a number starts with a zero"
    return ""
