"""Patterns for names and paths."""

import pytest

from vaka.files.walk import compile_name_pattern
from vaka.matching.globs import compile_name, matches_names, matches_wildcards, parse_bracket


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a*b*c*d*e", ["abcde", "axbxcxdxe", "abcdee"], ["abcd", "xabcde", "abcdex"]),
        ("*a*b*c*", ["abc", "xaybzc!"], ["acb", ""]),
        ("a**b***c", ["abc", "a..b..c"], ["ab"]),
        ("?*?*?", ["abc", "abcd"], ["ab"]),
        ("[[:nope:]]*x", [], ["ax"]),
        ("[[:upper:][:digit:]_]", ["A", "7", "_"], ["a"]),
        ("\\*x", ["*x"], ["ax"]),
        ("x\\", [], ["x", "x\\"]),
        ("*\n", ["a\n"], ["a"]),
        ("a?", ["a\n"], ["a"]),
    ],
)
def test_wildcards_match_names(pattern: str, yes: list[str], no: list[str]) -> None:
    matches = compile_name_pattern(pattern)
    assert [name for name in yes if not matches(name)] == []
    assert [name for name in no if matches(name)] == []


def test_a_pattern_with_many_stars_takes_linear_time() -> None:
    assert not compile_name_pattern("*a" * 100 + "b")("a" * 255)  # a backtracking matcher would not end
    assert compile_name_pattern("*a" * 100)("a" * 255)


def test_an_invalid_pattern_is_an_error_or_literal() -> None:
    for pattern, message in (("a[b", "never closed"), ("a\\", "backslash")):
        with pytest.raises(ValueError, match=message):
            compile_name(pattern, parse_bracket)
        assert compile_name(pattern, parse_bracket, lenient=True)(pattern)


@pytest.mark.parametrize(
    ("pattern", "path", "matches", "matches_inside"),
    [
        ("a/**/b", "a/b", True, True),
        ("a/**/b", "a/x/y/b", True, True),
        ("a/**/b", "a/x", False, False),
        ("**/b", "b", True, True),
        ("a/**", "a", True, False),
        ("a/**", "a/b/c", True, True),
        ("a/**/b/**", "a/b", True, False),
        ("a", "a/b", False, False),
        ("**/a/**/a", "a/x/a/y", False, False),
    ],
)
def test_two_stars_stand_for_any_number_of_names(pattern: str, path: str, matches: bool, matches_inside: bool) -> None:
    patterns = [None if name == "**" else compile_name(name, parse_bracket) for name in pattern.split("/")]
    assert matches_names(patterns, path.split("/")) is matches
    assert matches_names(patterns, path.split("/"), inside=True) is matches_inside


def test_only_stars_are_special_in_plain_wildcards() -> None:
    assert matches_wildcards("a*[b]?", "a--[b]?")
    assert not matches_wildcards("a*b*a", "aba"[:2])
    assert not matches_wildcards("ab*ba", "aba")
    assert matches_wildcards("git:*", "git:status")
