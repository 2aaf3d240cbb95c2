"""Versions are parsed strictly and ordered as in semver 2.0."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.luau.packages.versions import PackageError, Version

NUMBERS = st.integers(0, 10**20)
WORDS = st.from_regex(r"[0-9]*[A-Za-z-][0-9A-Za-z-]{0,5}", fullmatch=True)
VERSIONS = st.builds(
    Version,
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.lists(st.one_of(st.integers(0, 12), WORDS), max_size=3).map(tuple),
)


def precedes_by_spec(one: Version, other: Version) -> bool:
    """Return whether ``one`` comes first, clause by clause of the standard."""
    if one.core != other.core:
        return one.core < other.core
    if not one.pre or not other.pre:
        return bool(one.pre) and not other.pre
    for left, right in zip(one.pre, other.pre, strict=False):
        if left == right:
            continue
        if isinstance(left, int) and isinstance(right, int):
            return left < right
        if isinstance(left, str) and isinstance(right, str):
            return left.encode("ascii") < right.encode("ascii")
        return isinstance(left, int)
    return len(one.pre) < len(other.pre)


def test_versions_are_ordered_as_in_the_standard() -> None:
    ordered = [
        "0.0.0-0",
        "0.0.0",
        "0.9.10",
        "1.0.0-1",
        "1.0.0-2",
        "1.0.0-10",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.2.0",
        "1.10.0",
        "2.0.0",
    ]
    assert all(Version.parse(low) < Version.parse(high) for low, high in pairwise(ordered))
    assert [str(version) for version in sorted(map(Version.parse, reversed(ordered)))] == ordered


@given(VERSIONS, VERSIONS)
def test_comparison_agrees_with_the_standard(one: Version, other: Version) -> None:
    assert (one < other, one > other) == (precedes_by_spec(one, other), precedes_by_spec(other, one))
    assert (one == other) == (not precedes_by_spec(one, other) and not precedes_by_spec(other, one))
    assert one != other or hash(one) == hash(other)


@given(VERSIONS, VERSIONS, VERSIONS)
def test_the_order_is_transitive(one: Version, two: Version, three: Version) -> None:
    low, middle, high = sorted([one, two, three])
    assert low <= middle <= high
    assert low <= high


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS), st.lists(st.one_of(NUMBERS, WORDS), max_size=3).map(tuple))
def test_the_text_of_a_version_parses_to_the_same_version(
    core: tuple[int, int, int], pre: tuple[int | str, ...]
) -> None:
    version = Version(*core, pre, "build.007")
    again = Version.parse(str(version))
    assert (again.core, again.pre, again.build) == (core, pre, "build.007")
    assert again == version


def test_build_metadata_does_not_affect_equality() -> None:
    one, other = Version.parse("1.0.0-rc.1+linux.01"), Version.parse("1.0.0-rc.1")
    assert one == other
    assert hash(one) == hash(other)
    assert (str(one), one.without_build, repr(other)) == ("1.0.0-rc.1+linux.01", "1.0.0-rc.1", "Version('1.0.0-rc.1')")


def test_a_version_is_not_equal_to_its_text() -> None:
    assert Version.parse("1.0.0") != "1.0.0"


INVALID_VERSIONS = [
    "",
    " ",
    "1",
    "1.2",
    "1.2.3.4",
    "v1.2.3",
    "=1.2.3",
    " 1.2.3",
    "1.2.3 ",
    "1.2.3\n",
    "01.2.3",
    "1.02.3",
    "1.2.03",
    "1.2.3-",
    "1.2.3-01",
    "1.2.3-a..b",
    "1.2.3-a.",
    "1.2.3+",
    "1.2.3+a..b",
    "1.2.3-ä",
    "1.2.3+ü",
    "-1.2.3",
    "1.-2.3",
    "1,2,3",
    "1.2.x",
    "*",
    "latest",
    "a.b.c",
    "1.2.3-a_b",
    "1.2.3/../..",
    "1.2.3\0",
    "١.٢.٣",
    "1.2.3-¹",
    "1e3.0.0",
    "0x1.0.0",
    "1.2.3-rc 1",
    "1" * 200 + ".0.0",
    "1.2.3-" + "a." * 4000,
    "../1.2.3",
    "NaN.0.0",
    "1.2.3--+",
    "1_0.0.0",
]


def is_accepted(text: str) -> bool:
    try:
        Version.parse(text)
    except PackageError as error:
        assert re.search(r"is not a version.*expected MAJOR\.MINOR\.PATCH", str(error))  # noqa: PT017
        return False
    return True


def test_invalid_versions_are_refused() -> None:
    assert [text for text in INVALID_VERSIONS if is_accepted(text)] == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("v1.2.3", "leave out the 'v'"),
        ("1.2", "fewer than three numbers"),
        ("1.02.3", "a number starts with a zero"),
        (" 1.2.3", "spaces around it"),
        ("1" * 200, "more than 128 characters"),
    ],
)
def test_the_error_explains_common_mistakes(text: str, hint: str) -> None:
    with pytest.raises(PackageError, match=hint) as error:
        Version.parse(text)
    assert len(str(error.value)) < 260


@given(st.text(max_size=20))
def test_any_text_is_a_version_with_the_same_text_or_a_package_error(text: str) -> None:
    try:
        version = Version.parse(text)
    except PackageError:
        return
    assert str(version) == text
