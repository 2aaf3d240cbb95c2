"""Properties of every command and every rule, checked against the words of a real bash."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.policy.bash.bash_cases import make_rules
from tests.policy.bash.test_hidden_commands import HIDDEN
from tests.policy.bash.test_profile_allows import READING
from tests.policy.bash.test_profile_asks import BEYOND
from tests.policy.tables import each_row
from vaka.policy.bash import ShellScript, judge_script, matches_command, read_script

STRICT = {"allow": 0, "ask": 1, "deny": 2}
COMMANDS = st.sampled_from([*READING, *BEYOND, *HIDDEN])
PATTERNS = st.sampled_from(
    [
        None,
        "*",
        "ls",
        "ls:*",
        "git:*",
        "git log *",
        "git push:*",
        "curl:*",
        "cat *",
        "* x",
        "rm *",
        "sort:*",
        "echo:*",
        "find:*",
        "bash:*",
        "sudo *",
        "npm run test:*",
        "x",
        "*a*",
        "sed -i *",
        "",
        "'",
        "a'b",
        "\\",
        "(",
        "$x",
        "awk:*",
        ":*",
    ]
)
RULES = st.lists(PATTERNS, max_size=4)


# ---------------------------------------------------------------------------- rules


@given(COMMANDS, RULES, RULES, RULES, PATTERNS)
def test_adding_a_deny_never_widens(
    command: str, allow: list[str | None], ask: list[str | None], deny: list[str | None], more: str | None
) -> None:
    script = read_script(command)
    before = judge_script(script, make_rules(allow, ask, deny)).decision
    after = judge_script(script, make_rules(allow, ask, [*deny, more])).decision
    assert STRICT[after] >= STRICT[before]
    asked = judge_script(script, make_rules(allow, [*ask, more], deny)).decision
    assert STRICT[asked] >= STRICT[before]
    allowed = judge_script(script, make_rules([*allow, more], ask, deny)).decision
    assert STRICT[allowed] <= STRICT[before]


@given(COMMANDS, RULES, RULES, RULES)
def test_the_order_of_rules_does_not_matter(
    command: str, allow: list[str | None], ask: list[str | None], deny: list[str | None]
) -> None:
    script = read_script(command)
    rules = make_rules(allow, ask, deny)
    assert judge_script(script, rules).decision == judge_script(script, rules[::-1]).decision


@given(COMMANDS, COMMANDS, RULES, RULES)
def test_a_command_beside_another_is_judged_as_strictly_as_alone(
    one: str, other: str, allow: list[str | None], deny: list[str | None]
) -> None:
    rules = make_rules(allow, (), deny)
    if "<<" in one or "#" in one or not isinstance(read_script(one), ShellScript):
        return
    together = judge_script(read_script(f"{one}\n{other}"), rules).decision
    assert STRICT[together] >= STRICT[judge_script(read_script(one), rules).decision] or "() {" in one + other


@given(PATTERNS, st.lists(st.text(alphabet="ab *'\"\\$", max_size=6), max_size=5))
def test_matching_never_raises(pattern: str | None, words: list[str]) -> None:
    assert matches_command(pattern, words) in {True, False}


@given(st.lists(st.text(alphabet="ab-/. é", min_size=1, max_size=5), min_size=1, max_size=5))
def test_a_quoted_rule_matches_exactly_its_words(words: list[str]) -> None:
    pattern = " ".join(f"'{word}'" for word in words)
    assert matches_command(pattern, words)
    assert not matches_command(pattern, [*words, "more"])
    assert not matches_command(pattern, words[:-1])


# ---------------------------------------------------------------------------- quotes


def _quote_plainly(word: str) -> str:
    return word


def _quote_single(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _quote_double(word: str) -> str:
    return '"' + "".join("\\" + sign if sign in '"\\$`' else sign for sign in word) + '"'


def _quote_escaped(word: str) -> str:
    return "".join("\\" + sign if sign.isascii() and not sign.isalnum() else sign for sign in word)


def _quote_ansi(word: str) -> str:
    return "$'" + "".join(f"\\x{ord(sign):02x}" if sign.isascii() else sign for sign in word) + "'"


def _quote_mixed(word: str) -> str:
    middle = len(word) // 2
    return _quote_single(word[:middle]) + _quote_double(word[middle:])


def _quote_continued(word: str) -> str:
    return _quote_escaped(word[:1]) + "\\\n" + _quote_escaped(word[1:])


STYLES: list[Callable[[str], str]] = [
    _quote_single,
    _quote_double,
    _quote_escaped,
    _quote_ansi,
    _quote_mixed,
    _quote_continued,
]
WORDS = st.lists(
    st.sampled_from(
        [
            "ls",
            "-la",
            "sort",
            "-o",
            "x",
            "--output=x",
            "git",
            "log",
            "push",
            "find",
            ".",
            "-delete",
            "-name",
            "*.py",
            "sed",
            "-i",
            "s/a/b/",
            "1p",
            "awk",
            "{print}",
            "curl",
            "rm",
            "-rf",
            "/",
            "a b",
            "echo",
            "sudo",
            "env",
            "A=1",
            "timeout",
            "5",
            "bash",
            "-c",
            "curl x",
            "cat",
            "$x",
            "é",
            "~",
            "#",
            "uniq",
            "a",
            "b",
        ]
    ),
    min_size=1,
    max_size=6,
)


def write_command(words: list[str], styles: list[int]) -> str:
    return " ".join(STYLES[styles[index % len(styles)] % len(STYLES)](word) for index, word in enumerate(words))


ARGV = "import os, sys; os.write(int(sys.argv[1]), b'\\0'.join(map(os.fsencode, sys.argv[2:])))"


def run_argv(command: str, folder: Path) -> list[str]:
    """Return the words of a command as a real bash sees them."""
    reading, writing = os.pipe()
    script = f'command_not_found_handle() {{ "$PYTHON" -c "$ARGV" {writing} "$@"; }}\n{command}'
    environment = {"PATH": "/nonexistent", "PYTHON": sys.executable, "ARGV": ARGV, "LANG": "C.UTF-8"}
    bash = ["/bin/bash", "--norc", "-c", script]
    subprocess.run(bash, cwd=folder, env=environment, pass_fds=[writing], check=False, capture_output=True, timeout=60)
    os.close(writing)
    with os.fdopen(reading, "rb") as end:
        return os.fsdecode(end.read()).split("\0")


@given(
    WORDS,
    st.lists(st.integers(0, 5), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), min_size=1, max_size=6),
    RULES,
    RULES,
)
@example(["rm", "-rf", "/"], [0], [5], [None], [])
def test_requoting_never_changes_the_verdict(
    words: list[str], one: list[int], other: list[int], allow: list[str | None], deny: list[str | None]
) -> None:
    first, second = read_script(write_command(words, one)), read_script(write_command(words, other))
    assert isinstance(first, ShellScript)
    assert isinstance(second, ShellScript)
    assert [word.value for word in first.commands[0].words] == words
    rules = make_rules(allow, (), deny)
    assert judge_script(first, rules).decision == judge_script(second, rules).decision
    assert judge_script(first).decision == judge_script(second).decision


@settings(max_examples=20)
@given(WORDS, st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_the_words_are_those_of_a_real_bash(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], styles: list[int]
) -> None:
    words = ["command0", *words]
    command = write_command(words, styles)
    assert run_argv(command, tmp_path_factory.mktemp("empty")) == words
    script = read_script(command)
    assert isinstance(script, ShellScript)
    assert [word.value for word in script.commands[0].words] == words


# ---------------------------------------------------------------------------- any input

SIGNS = st.sampled_from(
    [
        *" \t\n;&|()<>{}[]\"'\\$`#!=*?~-+a1é",
        "\\\n",
        "<<EOF\n",
        "\nEOF\n",
        "$(",
        "${",
        "$((",
        "))",
        "<(",
        "if ",
        "; then ",
        "; fi",
        "for i in ",
        "; do ",
        "; done",
        "case x in ",
        ") ",
        ";;",
        " esac",
        "f() { ",
        "; }",
        "[[ ",
        " ]]",
        "2>&1",
        ">",
        "&&",
        "||",
        "eval ",
        "bash -c ",
        "curl x",
        "ls",
        "\0",
        "\r",
        "\u200b",
        "\ud800",
        "time ",
        "! ",
        "<<<",
        "$'",
        '$"',
        "@{u}",
        "{a,b}",
    ]
)


@settings(max_examples=max(150, settings().max_examples))
@given(st.lists(SIGNS, max_size=25).map("".join))
def test_reading_and_judging_never_raise(text: str) -> None:
    found = judge_script(read_script(text), make_rules([None], ["git:*"], ["curl:*"]))
    assert found.decision in STRICT
    if "\0" in text or "\r" in text or "\u200b" in text:
        assert found.decision != "allow"


@settings(max_examples=max(100, settings().max_examples))
@given(
    st.one_of(st.text(max_size=60), st.binary(max_size=60).map(lambda data: data.decode("utf-8", "surrogateescape")))
)
def test_any_text_and_any_bytes_get_a_decision(text: str) -> None:
    assert judge_script(read_script(text), make_rules(["ls:*"])).decision in STRICT


# ---------------------------------------------------------------------------- time


def count_steps(work: Callable[[], object]) -> int:
    """Return the number of function calls of some work."""
    count = 0

    def step(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


GROWING: dict[str, Callable[[int], str]] = {
    "commands": lambda size: "; ".join(["ls -la x"] * size),
    "lists": lambda size: " && ".join(["ls"] * size),
    "pipes": lambda size: " | ".join(["cat"] * size),
    "words": lambda size: "echo " + " ".join(["word"] * size),
    "quotes": lambda size: "echo " + " ".join(["'a b'\"c\""] * size),
    "variables": lambda size: "echo " + " ".join(['"$x"'] * size),
    "substitutions": lambda size: "echo " + " ".join(["$(ls)"] * size),
    "one word": lambda size: "echo " + "a$x'b'" * size,
    "one string": lambda size: 'echo "' + "a $x $(ls) " * size + '"',
    "redirections": lambda size: "ls " + "2>/dev/null " * size,
    "assignments": lambda size: "A=1 " * size + "ls",
    "lines": lambda size: "ls \\\n" * size,
    "comments": lambda size: "ls # x\n" * size,
    "heredoc": lambda size: "cat <<EOF\n" + "line $x\n" * size + "EOF",
    "tests": lambda size: "[ " + "-n $x -a " * size + "-n y ]",
    "sudo": lambda size: "sudo " * min(size, 60) + "ls " * size,
    "wrappers": lambda size: "sudo -u me " * size + "ls",
    "options": lambda size: "sudo --odd " * size + "ls",
    "rules": lambda size: "git log " + "x " * size,
    "unreadable": lambda size: "ls ; " * size + "(",
}


@each_row(GROWING)
def test_the_time_grows_no_faster_than_the_text(name: str) -> None:
    make = GROWING[name]
    rules = make_rules(["ls:*", "git * x"], ["git push:*"], ["curl:*", "* evil", "rm * -rf *"])
    judge_script(read_script(make(10)), rules)
    small, large = (count_steps(lambda size=size: judge_script(read_script(make(size)), rules)) for size in (50, 400))  # type: ignore[misc]  # a default binds it
    assert large <= small * 8 * 1.5, (small, large)
