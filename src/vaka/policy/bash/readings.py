"""One command in the several ways a rule may look at it."""

import posixpath
from collections.abc import Iterator

from vaka.policy.bash.words import Assignment, Simple, Word, Words, literal
from vaka.policy.bash.wrappers import base

TRUSTED = frozenset({
    "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin",
    "/opt/homebrew/sbin", "/run/current-system/sw/bin",
})  # fmt: skip
"""Where the programs are that everybody knows by their name alone."""

_GIT_VALUED = frozenset({
    "-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix", "--config-env",
    "--attr-source", "--list-cmds",
})  # fmt: skip


def trusted_name(value: str) -> str:
    """Return a command word as rules that allow see it: the bare name when it lies where programs belong."""
    if not value.startswith("/"):
        return value
    folder, _, name = posixpath.normpath(value).replace("//", "/", 1).rpartition("/")
    return name if folder in TRUSTED else value


def named(words: Words) -> Words:
    """Return a command with its word as rules that allow see it."""
    value = words[0].value if words else None
    if value is None or (name := trusted_name(value)) == value:
        return words
    return (Word(name, words[0].source, bare=words[0].bare, braced=words[0].braced), *words[1:])


def forbidding(simple: Simple) -> Iterator[Words]:
    """Yield a command in every way in which rules that deny or ask look at it."""
    if simple.assignments and simple.words:
        yield (*map(_assigned, simple.assignments), *simple.words)
    for words in (simple.words, *simple.wrapped):
        if not words:
            continue
        yield words
        guess = words[0].guess
        if guess is None:
            continue
        name = base(guess)
        if name != words[0].value:
            words = (literal(name), *words[1:])
            yield words
        if any(word.value is None and word.guess is not None for word in words):
            yield tuple(word if word.value is not None or word.guess is None else literal(word.guess) for word in words)
        if name == "git" and (skipped := without_options(words)) != words:
            yield skipped


def _assigned(one: Assignment) -> Word:
    """Return a variable that is set as the word it is written as."""
    value = one.value.value
    pieces = (f"{one.name}=", *one.value.pieces)
    return literal(f"{one.name}={value}") if value is not None else Word(None, one.value.source, pieces)


def without_options(words: Words) -> Words:
    """Return a git command without the options that stand before its subcommand."""
    at = 1
    while at < len(words):
        value = words[at].sketch
        if not value.startswith("-"):
            break
        at += 2 if value in _GIT_VALUED else 1
    return (words[0], *words[at:])
