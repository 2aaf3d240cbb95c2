"""What a rule says about a command: exact words, first words, or a text with wildcards.

Matching is one pass from left to right, so no rule can be slow.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from vaka.policy.bash.words import Word, Words, literal

_SPACE = "\x1f"  # a blank inside a word, which a blank between words does not match
_HOLE = "\x1e"  # what only bash will know; nothing but a wildcard matches it
_STAR = "\x1d"  # a star that is no wildcard

_BLANK = re.compile(r"[ \t\n]")

Fit: TypeAlias = Literal["yes", "maybe", "no"]


class Pattern(NamedTuple):
    """A rule's pattern, taken apart."""

    kind: Literal["any", "prefix", "exact", "glob"]
    tokens: tuple[str, ...] = ()
    """Of ``prefix`` and ``exact``: the words."""
    segments: tuple[str, ...] = ()
    """Of ``glob``: what stands between the wildcards."""
    bare: bool = False
    """Of ``glob``: whether it also fits without its last wildcard and the blank before it."""

    @property
    def assigns(self) -> bool:
        """Whether it begins with a variable that is set in full, as ``CI=1 npm test``."""
        first = self.tokens[0] if self.tokens else self.segments[0].rpartition(" ")[0] if self.segments else ""
        return re.match(r"[A-Za-z_]\w*=", first) is not None


def patterns(text: str | None, *, wide: bool = False) -> tuple[Pattern, ...]:
    """Return what a rule's text may mean, one after the other: as it is written, and with its backslashes as in bash.

    Claude Code puts a backslash before parentheses and backslashes of a command that it keeps as a rule. ``wide``: a
    star stands for anything also where ``:*`` ends the rule.
    """
    first = pattern(text)
    if wide and text is not None and first.kind == "prefix" and any("*" in token for token in first.tokens):
        start = text.strip()[:-2]
        return (first, _taken_apart(start, exact=False), _taken_apart(f"{start} *", exact=False))
    if text is None or "\\" not in text:
        return (first,)
    kept = re.sub(r"\\([()\\])", r"\1", text)
    return tuple(dict.fromkeys((first, _taken_apart(text, exact=True), _taken_apart(kept, exact=True))))


@lru_cache(maxsize=4096)
def pattern(text: str | None) -> Pattern:
    """Return a rule's pattern taken apart; ``None`` is any command."""
    return Pattern("any") if text is None else _taken_apart(text, exact=False)


def _taken_apart(text: str, *, exact: bool) -> Pattern:
    text = _opened(text.strip())
    if text in {"*", ":*"}:
        return Pattern("any")
    if text.endswith(":*") and not text.endswith("\\:*"):
        return Pattern("prefix", _tokens(_unquoted(text[:-2], exact=exact).replace("*", _STAR)))
    flat = _unquoted(text, exact=exact)
    if "*" not in flat:
        return Pattern("exact", _tokens(flat))
    flat = " ".join(flat.split(" "))
    while "  " in flat:
        flat = flat.replace("  ", " ")
    bare = flat.endswith(" *") and flat.count("*") == 1
    return Pattern("glob", segments=tuple(part.replace(_STAR, "*") for part in flat.split("*")), bare=bare)


def _opened(text: str) -> str:
    """Leave out a quote that only begins what a last wildcard stands for: ``git commit -m ' *``, ``python -c ":*``."""
    found = re.fullmatch(r"(.*\S)\s+(['\"])(:\*|\s*\*)", text, re.DOTALL)
    if found is None or found[2] in found[1]:
        return text
    return f"{found[1]}:*" if found[3] == ":*" else f"{found[1]} *"


def _tokens(flat: str) -> tuple[str, ...]:
    return tuple(token.replace(_SPACE, " ").replace(_STAR, "*") for token in flat.split(" ") if token)


def _unquoted(text: str, *, exact: bool) -> str:
    """Remove quotes and backslashes; blanks inside quotes become ``_SPACE``.

    In double quotes bash keeps most backslashes; who writes a rule rarely means them, so that is for ``exact`` alone.
    """
    out: list[str] = []
    quote, at = "", 0
    while at < len(text):
        character = text[at]
        kept = exact and quote == '"' and text[at + 1 : at + 2] not in {"$", "`", '"', "\\"}
        if character == "\\" and kept and text.startswith("*", at + 1):
            at += 1
            out.append("\\" + _STAR)
        elif character == "\\" and quote != "'" and at + 1 < len(text) and not kept:
            at += 1
            out.append({"*": _STAR, " ": _SPACE}.get(text[at], text[at]))
        elif quote and character == quote:
            quote = ""
        elif not quote and character in "'\"" and text.find(character, at + 1) > 0:
            quote = character
        else:
            out.append((_SPACE if quote else " ") if character in " \t\n" else character)
        at += 1
    return "".join(out)


def match(text: str | None, words: Sequence[str | Word]) -> bool:
    """Return whether a rule's pattern surely speaks of a command, given by its words."""
    return View(tuple(literal(word) if isinstance(word, str) else word for word in words)).fit(pattern(text)) == "yes"


class View:
    """One way to look at a command; its text is made once, however many patterns are held against it."""

    __slots__ = ("text", "words")

    def __init__(self, words: Words) -> None:
        self.words = words
        self.text: str | None = None

    def fit(self, rule: Pattern) -> Fit:
        """Return whether a pattern speaks of it: surely, perhaps (it depends on what bash puts in), or not."""
        if rule.kind == "any":
            return "yes"
        if not self.words:
            return "no"
        if rule.kind != "glob":
            return _fit_tokens(rule, self.words)
        if self.text is None:
            self.text = _rendered(self.words)
        return _fit_glob(rule, self.text)


def _fit_tokens(rule: Pattern, words: Words) -> Fit:
    sure: Fit = "yes"
    for index, token in enumerate(rule.tokens):
        if index >= len(words):
            return "no"
        word = words[index]
        if word.value == token:
            continue
        if word.value is not None or not _may_be(word, token):
            return "no"
        if word.splits:
            return "maybe"
        sure = "maybe"
    if rule.kind == "prefix" or len(words) == len(rule.tokens):
        return sure if rule.tokens else "no"
    rest = words[len(rule.tokens) :]
    return "maybe" if all(word.splits for word in rest) else "no"


def _may_be(word: Word, token: str) -> bool:
    if word.splits and all(not isinstance(piece, str) for piece in word.pieces):
        return True
    prefix, suffix = word.prefix, word.suffix
    if word.splits:
        return token.startswith(prefix) or (" " not in prefix and prefix.startswith(token))
    return len(token) >= len(prefix) + len(suffix) and token.startswith(prefix) and token.endswith(suffix)


def _rendered(words: Words) -> str:
    return " ".join([_flat(word.value) if word.value is not None else _sketched(word) for word in words])


def _sketched(word: Word) -> str:
    return "".join([_flat(piece) if isinstance(piece, str) else _HOLE for piece in word.pieces]) or _HOLE


def _flat(text: str) -> str:
    return _BLANK.sub(_SPACE, text)


def _fit_glob(rule: Pattern, text: str) -> Fit:
    if _glob(rule.segments, text) or (rule.bare and text == rule.segments[0][:-1]):
        return "yes"
    if _HOLE not in text:
        return "no"
    before, _, _ = text.partition(_HOLE)
    after = text.rpartition(_HOLE)[2]
    first, last = rule.segments[0], rule.segments[-1]
    fits = (before.startswith(first) or first.startswith(before)) and (after.endswith(last) or last.endswith(after))
    return "maybe" if fits else "no"


def _glob(segments: tuple[str, ...], text: str) -> bool:
    first, *middle, last = segments
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


_OPERATOR = re.compile(r"&&|\|\||\|&|[|;&<>]+")


def spans_commands(text: str | None) -> bool:
    """Return whether a rule's text has a sign that parts commands, or leads them elsewhere: no one command fits it."""
    return text is not None and re.search(r"[|;&<>]", _unquoted(text, exact=False)) is not None


def fits_whole(text: str, command: str) -> bool:
    """Return whether a rule's text, where ``*`` stands for anything, is a whole line as it is written."""
    flat, line = _spaced(text.replace(":*", " *")), _spaced(command)
    return any(_whole(one, line) for one in (flat, flat.removesuffix(" *")))


def _whole(flat: str, line: str) -> bool:
    return _glob(tuple(flat.split("*")), line) if "*" in flat else flat == line


def _spaced(text: str) -> str:
    return " ".join(_OPERATOR.sub(r" \g<0> ", text).split())
