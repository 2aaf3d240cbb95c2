"""The translation of patterns: both engines match the same."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.core.types.errors import InvalidInput
from vaka.tools.builtin.search.grep_query import translate_pattern

LINES = [
    "",
    " ",
    "a",
    "A",
    "ab",
    "aab",
    "b",
    "abc",
    "a b",
    "a\tb",
    "foo",
    "Foo bar",
    "foo_bar",
    "foobar",
    "foo(bar)",
    "foo[0]",
    "interface{}",
    "struct { a int }",
    "x{2}",
    "xx",
    "a.b",
    "a*b",
    "a+b",
    "a|b",
    "a-b",
    "a&b",
    "a~b",
    "$x",
    "x$",
    "^x",
    "\\d",
    "\\",
    "/",
    "a/b",
    '"quoted"',
    "'it'",
    "#1",
    "12",
    "3.14",
    "0x1F",
    "ä",
    "Ä",
    "äöü",
    "naïve",
    "日本",
    "🙂",
    "½",
    "x²",
    "e\u0301",
    "Ⓐ",
    "\x1c",
    "\x85",
    "\u3000",
    "क्षि",
    "_",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    "a,b",
    "@x",
    "<b>",
    "x=1",
    "x == 1",
    "-v",
    "--help",
    "tab\there",
    "line end ",
]

PATTERNS = [
    "a",
    "a.b",
    "^a",
    "b$",
    "^a$",
    "a|b",
    "(a|b)c?",
    "a*",
    "a+b",
    "a?b",
    "ab{1,2}",
    "a{2}",
    "a{1,}b",
    r"\d+",
    r"\D",
    r"\w+",
    r"\W",
    r"\s",
    r"\S+$",
    r"\bfoo\b",
    r"\Bbar",
    r"\.",
    r"\*",
    r"\+",
    r"\(",
    r"\[",
    r"\{",
    r"\}",
    r"\|",
    r"\\",
    r"\/",
    r"\"",
    r"\'",
    r"\-",
    r"\#",
    r"\@",
    r"\,",
    r"\$x",
    r"x\$",
    r"\^x",
    "interface{}",
    "{",
    "}",
    "x{",
    r"struct \{",
    "[abc]",
    "[^abc]",
    "[a-c]",
    "[]a]",
    "[^]a]",
    "[[]",
    "[]]",
    r"[\[\]]",
    r"[\w.]+",
    r"[\d\s]",
    "[[:alpha:]]+",
    "[[:digit:]_]",
    "[^[:space:]]",
    "[[:upper:]]",
    "[a&&b]",
    "[a~~b]",
    "[a|b]",
    "[-a]",
    "[a-]",
    "[.]",
    "[$]",
    "[*+?]",
    r"[\-a]",
    r"\x41",
    r"\x{e4}",
    r"\u00e4",
    r"\u{1F642}",
    r"\U0001F642",
    r"[\x41-\x43]",
    r"\p{L}",
    r"\pN+",
    r"\P{L}",
    r"\p{Lu}",
    r"[\p{L}_]+",
    "(?i)foo",
    "(?i:FOO) bar",
    "foo(?i)BAR",
    "a(?i)B|C",
    "(?P<n>a)b",
    "(?<n>a)b",
    "(?:a|b)+",
    "(?s)a.b",
    "(?m)^a",
    "(?#words)a",
    r"\Aa",
    r"b\z",
    r"b\Z",
    r"\<foo",
    r"foo\>",
    "a,b",
    "x == 1",
    "äöü",
    "日本",
    "[ä-ü]",
    "(?-i)a",
    "((a))",
    "a||b",
    "-v",
    "--help",
    "/",
    "#1",
    "a*?b",
    "a+?",
    "a??b",
    "a{1,2}?",
    r"\t",
    "foo (bar)?",
    ".",
    ".*",
    "(?i)ä",
    "(?i)[a-c]",
    "^",
]


def match_with_python(pattern: str) -> list[str]:
    translated = re.compile(translate_pattern(pattern).exact_python())
    return [line for line in LINES if translated.search(line)]


def match_with_ripgrep(program: str, pattern: str) -> list[str]:
    command = [program, "--no-config", "--crlf", f"--regexp={translate_pattern(pattern).rust}", "-"]
    process = subprocess.run(command, input="\n".join(LINES) + "\n", capture_output=True, text=True, check=False)
    return [*process.stderr.splitlines(), *process.stdout.split("\n")[:-1]]


def test_both_engines_find_the_same_lines() -> None:
    program = shutil.which("rg")
    if program is None:
        pytest.skip("ripgrep is not installed; scripts/system.sh ripgrep installs it")
    assert [pattern for pattern in PATTERNS if translate_pattern(pattern).rust is None] == []
    rows = [(pattern, match_with_python(pattern), match_with_ripgrep(program, pattern)) for pattern in PATTERNS]
    assert [row for row in rows if row[1] != row[2]] == []


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        (r"(a)\1", ["aab"]),
        (r"foo(?=bar)", ["foobar"]),
        (r"(?<=foo)_", ["foo_bar"]),
        (r"^(?!.*o)f", []),
        (r"(?P<x>a)(?P=x)", ["aab"]),
        ("a++b", ["ab", "aab"]),
        ("(?>a+)b", ["ab", "aab"]),
        ("a{1,2}+b", ["ab", "aab"]),
    ],
)
def test_features_only_python_has_rule_ripgrep_out(pattern: str, lines: list[str]) -> None:
    assert translate_pattern(pattern).rust is None
    translated = re.compile(translate_pattern(pattern).python)
    assert [line for line in ("ab", "aab", "foobar", "foo_bar") if translated.search(line)] == lines


@pytest.mark.parametrize(
    "pattern",
    ["$", "^$", "a*$", r"\s*$", ".*$", r"\z", "(a)?$", "a|$", r"\b$", r"\B$", r"\r", "a\r", r"\x0d", r"[\r ]"],
)
def test_patterns_on_which_ripgrep_may_hang_are_left_to_python(pattern: str) -> None:
    assert translate_pattern(pattern).rust is None


@pytest.mark.parametrize("pattern", [r"a[^\n]*", r"a[^\r\n]*b", r"a\s*$", "a$"])
def test_a_negated_set_does_not_count_as_a_line_end(pattern: str) -> None:
    assert (translate_pattern(pattern).lines, translate_pattern(pattern).rust is not None) == (False, True)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("", "1 to 10000 characters"),
        ("a" * 10_001, "1 to 10000 characters"),
        ("(", "is not a regular expression"),
        (")", "is not a regular expression"),
        ("*a", "is not a regular expression"),
        ("[a", "does not end"),
        ("[", "does not end"),
        ("a\\", "ends with a backslash"),
        ("[a\\", "ends inside a set"),
        (r"\q", "is not known"),
        (r"[\b]", "inside a set"),
        (r"\p{Klingon}", "is not known"),
        (r"[\P{L}]", "inside a set"),
        ("(?z)a", "flags are i, m and s"),
        ("{2}a", "is not a regular"),
        (r"\x{110000}", "no character"),
        ("[[:^alpha:]]", "is not known"),
        (r"(?P<1>a)", "is not a regular expression"),
        ("[z-a]", "is not a regular expression"),
        ("[a--b]", "is not a regular expression"),
        ("(" * 5000, "is not a regular expression"),
    ],
)
def test_an_invalid_pattern_is_a_clear_error(pattern: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        translate_pattern(pattern)


def test_a_line_end_in_a_pattern_is_recognized_in_every_spelling() -> None:
    assert [
        translate_pattern(pattern).lines for pattern in ("a", r"a\n", "a\n", r"\x0a", r"[^\n]", "[\n]", r"\s", r"\\n")
    ] == [
        False,
        True,
        True,
        True,
        False,
        True,
        False,
        False,
    ]


def test_a_pattern_without_metacharacters_is_literal() -> None:
    assert [translate_pattern(pattern).literal for pattern in ("plain words", "a.b", "a\\b", "ä/ö")] == [
        "plain words",
        "",
        "",
        "ä/ö",
    ]


@given(st.text(r"ab(|)[]^$.*+?{}\\-:12,xwdsnpPiU<>=!#&~", max_size=20))
def test_any_text_is_a_pattern_or_invalid_input(text: str) -> None:
    try:
        translated = translate_pattern(text)
    except InvalidInput:
        return
    re.compile(translated.python)
