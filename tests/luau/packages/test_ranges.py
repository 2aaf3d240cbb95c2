"""A range contains the versions of its comparators, and pre-releases only of versions that it names."""

from hypothesis import given
from hypothesis import strategies as st

from vaka.luau.packages.versions import PackageError, Range, Version

SMALL = st.integers(0, 3)
PRE = st.sampled_from([(), (0,), (1,), ("alpha",), ("alpha", 1), ("rc",)])
RELEASES = st.builds(Version, SMALL, SMALL, SMALL)
VERSIONS = st.builds(Version, SMALL, SMALL, SMALL, PRE)
PARTS = st.lists(SMALL, min_size=1, max_size=3).map(tuple)


def range_contains(text: str, version: str) -> bool:
    return Version.parse(version) in Range(text)


MEMBERS = [
    ("^1.2.3", "1.2.3 1.2.4 1.9.0", "1.2.2 2.0.0 0.9.9 1.3.0-rc.1 2.0.0-0 1.2.3-rc.1"),
    ("^0.2.3", "0.2.3 0.2.9", "0.2.2 0.3.0 1.0.0"),
    ("^0.0.3", "0.0.3", "0.0.2 0.0.4 0.1.0"),
    ("^0.0", "0.0.0 0.0.9", "0.1.0"),
    ("^0", "0.0.1 0.9.9", "1.0.0"),
    ("^1.2", "1.2.0 1.9.9", "1.1.9 2.0.0"),
    ("~1.2.3", "1.2.3 1.2.9", "1.2.2 1.3.0"),
    ("~1.2", "1.2.0 1.2.9", "1.3.0"),
    ("~1", "1.0.0 1.9.0", "2.0.0 0.9.0"),
    ("1", "1.0.0 1.9.9", "0.9.9 2.0.0"),
    ("1.2", "1.2.0 1.2.9", "1.3.0"),
    ("1.x", "1.0.0 1.9.9", "2.0.0"),
    ("1.2.*", "1.2.7", "1.3.0"),
    ("1.X.x", "1.2.7", "2.3.0"),
    ("1.2.3", "1.2.3", "1.2.4 1.2.3-rc"),
    ("=1.2.3", "1.2.3 1.2.3+build", "1.2.2"),
    (">1.2.3", "1.2.4 2.0.0", "1.2.3"),
    (">1.2", "1.3.0", "1.2.9 1.2.0"),
    (">1", "2.0.0", "1.9.9"),
    (">=1.2", "1.2.0 3.0.0", "1.1.9"),
    ("<1.2", "1.1.9 0.0.0", "1.2.0 1.2.0-rc"),
    ("<1.2.3", "1.2.2", "1.2.3 1.2.3-rc"),
    ("<=1.2", "1.2.9", "1.3.0"),
    ("<=1.2.3", "1.2.3", "1.2.4"),
    ("!=1.2.3", "1.2.2 1.2.4", "1.2.3"),
    ("!=1.2", "1.1.0 1.3.0", "1.2.0 1.2.9"),
    (">=1.0 <2", "1.0.0 1.9.9", "2.0.0 0.9.9"),
    (">= 1.0, < 2, != 1.5.0", "1.4.9 1.5.1", "1.5.0 2.0.0"),
    ("^1 || ^3.1", "1.5.0 3.2.0", "2.0.0 3.0.9 4.0.0"),
    ("<1 || 2.0.0-rc.1", "0.5.0 2.0.0-rc.1", "2.0.0-rc.2 2.0.0 0.5.0-rc.1"),
    ("latest", "0.0.1 9.9.9", "1.0.0-rc.1"),
    ("*", "0.0.1 9.9.9", "1.0.0-rc.1"),
    ("x", "0.0.1", "1.0.0-rc.1"),
    ("^*", "0.0.1", "1.0.0-rc.1"),
    (">=1.0.0-beta.2", "1.0.0-beta.3 1.0.0 2.0.0", "1.0.0-beta.1 1.0.1-beta.3"),
    ("^1.2.3-beta.2", "1.2.3-beta.2 1.2.3-rc 1.2.3 1.9.0", "1.2.3-beta.1 1.3.0-beta.3 2.0.0-0"),
    ("~1.2.3-beta.2", "1.2.3-beta.11 1.2.9", "1.2.4-beta.2 1.3.0"),
    ("<2.0.0-rc.1", "1.9.9 2.0.0-beta", "2.0.0-rc.1 2.0.0 1.9.9-beta"),
    (">=1.0.0-0 !=1.0.0-rc.1", "1.0.0-rc.2 1.0.0", "1.0.0-rc.1"),
    ("!=1.0.0-rc.1", "1.0.0", "1.0.0-rc.2 1.0.0-rc.1"),
    ("^1.0.0 >=2.0.0-a", "", "1.5.0 2.0.0-b 2.0.0"),
]
"""Ranges, versions inside, versions outside."""


def test_a_range_contains_exactly_the_expected_versions() -> None:
    failures = [
        f"{version} {'is not' if expected else 'is'} in {text}"
        for text, inside, outside in MEMBERS
        for versions, expected in ((inside, True), (outside, False))
        for version in versions.split()
        if range_contains(text, version) != expected
    ]
    assert failures == []


@given(PARTS, RELEASES)
def test_a_caret_fixes_the_leftmost_number_that_is_not_zero(parts: tuple[int, ...], version: Version) -> None:
    low = (*parts, 0, 0)[:3]
    keep = next((place for place, number in enumerate(parts, 1) if number), len(parts))
    expected = version.core >= low and version.core[:keep] == parts[:keep]
    assert (version in Range("^" + ".".join(map(str, parts)))) == expected


@given(PARTS, RELEASES)
def test_a_tilde_fixes_major_and_minor(parts: tuple[int, ...], version: Version) -> None:
    low, keep = (*parts, 0, 0)[:3], min(len(parts), 2)
    expected = version.core >= low and version.core[:keep] == parts[:keep]
    assert (version in Range("~" + ".".join(map(str, parts)))) == expected


@given(PARTS, st.sampled_from(["", "=", "!=", "<", "<=", ">", ">="]), RELEASES)
def test_a_comparison_compares_only_the_numbers_it_names(parts: tuple[int, ...], sign: str, version: Version) -> None:
    prefix = version.core[: len(parts)]
    expected = {
        "": prefix == parts,
        "=": prefix == parts,
        "!=": prefix != parts,
        "<": prefix < parts,
        "<=": prefix <= parts,
        ">": prefix > parts,
        ">=": prefix >= parts,
    }[sign]
    assert (version in Range(sign + ".".join(map(str, parts)))) == expected


@given(VERSIONS, VERSIONS, VERSIONS)
def test_two_comparators_contain_the_versions_between_and_pre_releases_only_of_named_versions(
    low: Version, high: Version, version: Version
) -> None:
    named = {bound.core for bound in (low, high) if bound.pre}
    expected = low <= version < high and (not version.pre or version.core in named)
    assert (version in Range(f">={low} <{high}")) == expected


@given(VERSIONS, VERSIONS)
def test_an_exact_range_contains_only_its_version(one: Version, other: Version) -> None:
    assert (other in Range(str(one))) == (one == other)


@given(st.lists(VERSIONS, max_size=8), PARTS)
def test_the_highest_version_is_the_highest_in_the_range(versions: list[Version], parts: tuple[int, ...]) -> None:
    wanted = Range("^" + ".".join(map(str, parts)))
    assert wanted.highest_version(versions) == max((version for version in versions if version in wanted), default=None)


@given(VERSIONS, PARTS, PARTS)
def test_an_alternative_contains_the_versions_of_both_sides(
    version: Version, one: tuple[int, ...], two: tuple[int, ...]
) -> None:
    left, right = "^" + ".".join(map(str, one)), "~" + ".".join(map(str, two))
    assert (version in Range(f"{left} || {right}")) == (version in Range(left) or version in Range(right))


INVALID_RANGES = [
    "",
    " ",
    "||",
    "^1 ||",
    "|| ^1",
    "^1 | ^2",
    "^",
    ">=",
    "^^1",
    "^v1",
    "v1.0.0",
    "==1.0.0",
    "=>1",
    "><1",
    "1.x.3",
    "x.1",
    "1.2.3.4",
    "01.2.3",
    "1.x-rc",
    "1.2-rc",
    "1.2.x-rc",
    "1.x.x+b",
    "^latest",
    "newest",
    "1.0.0 - 2.0.0",
    ">*",
    "<x",
    "!=*",
    "1..2",
    "1.2.",
    "^1.2.3-",
    "^1.2.3-01",
    "¹",
    "^１",
    "file:../x",
    "https://example.org/x.tgz",
    "^1" * 200,
    "\0",
    "1.0.0\0",
    ", ,",
]


def is_accepted(text: str) -> bool:
    try:
        Range(text)
    except PackageError as error:
        assert str(error).startswith("range ")  # noqa: PT017  # the caller collects accepted texts
        return False
    return True


def test_invalid_ranges_are_refused() -> None:
    assert [text for text in INVALID_RANGES if is_accepted(text)] == []


def test_ranges_are_equal_when_their_texts_are() -> None:
    assert Range(" >=1.0   <2 ") == Range(">=1.0 <2")
    assert len({Range("^1"), Range("^1 "), Range("~1")}) == 2
    assert Range("^1") != "^1"
    assert (str(Range(" ^1 ")), repr(Range("^1"))) == ("^1", "Range('^1')")


@given(st.text("0123456789.^~<>=!|x*-+ ,alb", max_size=24))
def test_any_text_is_a_range_or_a_package_error(text: str) -> None:
    try:
        wanted = Range(text)
    except PackageError:
        return
    assert Range(str(wanted)) == wanted
