"""Guesses at the commands of a text that cannot be read, for the rules that forbid."""

import re
from collections.abc import Iterator

from vaka.policy.bash.quoting import Mismatch
from vaka.policy.bash.text import CONTROL, INVISIBLE, names
from vaka.policy.bash.words import Simple, Word, literal
from vaka.policy.bash.wrappers import inner

_CUTS = re.compile(r"[;&|\n(){}`]|\$\(|[<>]+&?")
_HARD = re.compile(r"[;&|\n()`]")
_QUOTES = re.compile(r"\\\n|\$(?=['\"])|['\"\\]")
_BRACES = re.compile(r"[{},]")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_KEYWORDS = names("if then elif else do while until ! { } in function coproc")


_AHEAD = 16


def fragments(command: str) -> tuple[Simple, ...]:
    """Return whatever may be a command of the text, in several readings."""
    texts = {command, CONTROL.sub("\n", command), INVISIBLE.sub("", CONTROL.sub("", command))}
    found: dict[tuple[str, ...], Simple] = {}
    for text in sorted(texts):
        for values in _commands(text):
            found.setdefault(values, _simple(values))
    return tuple(found.values())


def _commands(text: str) -> Iterator[tuple[str, ...]]:
    unquoted = _QUOTES.sub("", text)
    sources = (
        (_CUTS, unquoted),
        (_HARD, unquoted),
        (_CUTS, _QUOTES.sub(" ", text)),
        (_HARD, _BRACES.sub(" ", unquoted)),
    )
    for cuts, source in sources:
        for part in cuts.split(source):
            words = part.split()
            while words and (words[0] in _KEYWORDS or _ASSIGNMENT.match(words[0])):
                words.pop(0)
            if words:
                yield tuple(words)


def _simple(values: tuple[str, ...]) -> Simple:
    words: tuple[Word, ...] = tuple(map(literal, values))
    try:
        wrapped = inner(words)
    except Mismatch:  # a look at each word as if it were a command, not far ahead: this must stay quick
        wrapped = tuple(words[start : start + _AHEAD] for start in range(len(words)))
    return Simple(words, source=" ".join(values), wrapped=wrapped, plain=words)
