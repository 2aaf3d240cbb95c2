"""Commands that a program is told to run by an option or in a script of its own: rules that forbid look at them."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias

from vaka.policy.bash.words import Words
from vaka.policy.bash.wrappers import base

Finder: TypeAlias = Callable[[list[str]], Iterator[str]]


def told(words: Words) -> Iterator[str]:
    """Yield the texts that a command hands to a shell, as far as it is known where they stand."""
    found = _FINDERS.get(base(words[0].sketch)) if words else None
    if found is not None:
        yield from found([word.sketch for word in words[1:]])


def _options(*options: str) -> Finder:
    """Find the values of some options: in the next word, behind ``=``, or right behind a letter."""

    def found(values: list[str]) -> Iterator[str]:
        for index, value in enumerate(values):
            for option in options:
                if value == option and index + 1 < len(values):
                    yield values[index + 1]
                elif value != option and value.startswith(option):
                    yield value[len(option) :].removeprefix("=")

    return found


def _texts(*patterns: str) -> Finder:
    """Find what stands in the words themselves."""
    compiled = [re.compile(pattern, re.DOTALL) for pattern in patterns]

    def found(values: list[str]) -> Iterator[str]:
        for value in values:
            for pattern in compiled:
                yield from pattern.findall(value)

    return found


_GIT_SETTINGS = re.compile(
    r"(?:core\.(?:pager|editor|sshcommand|askpass|fsmonitor)|diff\.external|pager\..*|.*\.cmd)=(.*)",
    re.IGNORECASE | re.DOTALL,
)
_GIT_OPTIONS = {"rebase": _options("-x", "--exec"), "difftool": _options("-x", "--extcmd")}


def _git(values: list[str]) -> Iterator[str]:
    for index, value in enumerate(values):
        if found := _GIT_SETTINGS.fullmatch(value):
            yield found[1]
        if value in _GIT_OPTIONS:
            yield from _GIT_OPTIONS[value](values[index + 1 :])
    if "filter-branch" in values:
        yield from (after for value, after in pairwise(values) if value.endswith("-filter"))
    if "foreach" in values:
        yield " ".join(value for value in values[values.index("foreach") + 1 :] if not value.startswith("-"))


_AWK = _texts(r'system\s*\(\s*"([^"]*)"', r'(?<!\|)\|&?\s*"([^"]*)"', r'"([^"]*)"\s*\|(?!\|)')
_EDITOR = _texts(r"^\+?:?!(.+)")
_FINDERS: Mapping[str, Finder] = {
    "git": _git,
    "tar": _options("--checkpoint-action=exec", "--to-command", "-I", "--use-compress-program"),
    "rsync": _options("-e", "--rsh"),
    "ssh": _texts(r"(?i)^(?:-o)?(?:Proxy|Local)Command[= ](.*)"),
    "scp": _options("-S"), "sftp": _options("-S"), "man": _options("-P", "--pager"), "rg": _options("--pre"),
    "sort": _options("--compress-program"), "split": _options("--filter"),
    "awk": _AWK, "gawk": _AWK, "mawk": _AWK, "nawk": _AWK,
    "sed": _texts(r"(?:^|[;\n{\d$/!])[ \t]*e[ \t]+([^\n]+)"), "gsed": _texts(r"(?:^|[;\n{\d$/!])[ \t]*e[ \t]+([^\n]+)"),
    "vi": _EDITOR, "vim": _EDITOR, "nvim": _EDITOR, "less": _EDITOR, "ex": _EDITOR,
}  # fmt: skip
