"""What a command rule's pattern matches: exact words, first words, or a text with wildcards, in one pass."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from vaka.policy.bash.parse.syntax import Word, Words, literal_word

_QUOTED_SPACE = "\x1f"  # a blank inside a word, which a blank between words does not match
_UNKNOWN_MARK = "\x1e"  # what only bash will know; nothing but a wildcard matches it
_LITERAL_STAR = "\x1d"  # a star that is no wildcard

_BLANK = re.compile(r"[ \t\n]")

MatchResult: TypeAlias = Literal["yes", "maybe", "no"]


class CommandPattern(NamedTuple):
    """A rule's pattern, taken apart."""

    kind: Literal["any", "prefix", "exact", "glob"]
    tokens: tuple[str, ...] = ()
    """Of ``prefix`` and ``exact``: the words."""
    segments: tuple[str, ...] = ()
    """Of ``glob``: what stands between the wildcards."""
    optional_tail: bool = False
    """Of ``glob``: whether it also fits without its last wildcard and the blank before it."""

    @property
    def starts_with_assignment(self) -> bool:
        """Whether it begins with a variable that is set in full, as ``CI=1 npm test``."""
        first = self.tokens[0] if self.tokens else self.segments[0].rpartition(" ")[0] if self.segments else ""
        return re.match(r"[A-Za-z_]\w*=", first) is not None


def parse_patterns(text: str | None, *, wide: bool = False) -> tuple[CommandPattern, ...]:
    """Return what a rule's text may mean, one after the other: as it is written, and with its backslashes as in bash.

    Claude Code puts a backslash before parentheses and backslashes of a command that it keeps as a rule. ``wide``: a
    star stands for anything also where ``:*`` ends the rule.
    """
    first = parse_pattern(text)
    if wide and text is not None and first.kind == "prefix" and any("*" in token for token in first.tokens):
        start = text.strip()[:-2]
        return (first, _parse_pattern_text(start, exact=False), _parse_pattern_text(f"{start} *", exact=False))
    if text is None or "\\" not in text:
        return (first,)
    kept = re.sub(r"\\([()\\])", r"\1", text)
    return tuple(dict.fromkeys((first, _parse_pattern_text(text, exact=True), _parse_pattern_text(kept, exact=True))))


@lru_cache(maxsize=4096)
def parse_pattern(text: str | None) -> CommandPattern:
    """Return a rule's pattern taken apart; ``None`` is any command."""
    return CommandPattern("any") if text is None else _parse_pattern_text(text, exact=False)


def _parse_pattern_text(text: str, *, exact: bool) -> CommandPattern:
    text = _drop_open_quote(text.strip())
    if text in {"*", ":*"}:
        return CommandPattern("any")
    if text.endswith(":*") and not text.endswith("\\:*"):
        return CommandPattern(
            "prefix", _split_tokens(_remove_quotes(text[:-2], exact=exact).replace("*", _LITERAL_STAR))
        )
    flat = _remove_quotes(text, exact=exact)
    if "*" not in flat:
        return CommandPattern("exact", _split_tokens(flat))
    flat = " ".join(flat.split(" "))
    while "  " in flat:
        flat = flat.replace("  ", " ")
    bare = flat.endswith(" *") and flat.count("*") == 1
    return CommandPattern(
        "glob", segments=tuple(part.replace(_LITERAL_STAR, "*") for part in flat.split("*")), optional_tail=bare
    )


def _drop_open_quote(text: str) -> str:
    """Leave out a quote that only begins what a last wildcard stands for: ``git commit -m ' *``, ``python -c ":*``."""
    found = re.fullmatch(r"(.*\S)\s+(['\"])(:\*|\s*\*)", text, re.DOTALL)
    if found is None or found[2] in found[1]:
        return text
    return f"{found[1]}:*" if found[3] == ":*" else f"{found[1]} *"


def _split_tokens(flat: str) -> tuple[str, ...]:
    return tuple(token.replace(_QUOTED_SPACE, " ").replace(_LITERAL_STAR, "*") for token in flat.split(" ") if token)


def _remove_quotes(text: str, *, exact: bool) -> str:
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
            out.append("\\" + _LITERAL_STAR)
        elif character == "\\" and quote != "'" and at + 1 < len(text) and not kept:
            at += 1
            out.append({"*": _LITERAL_STAR, " ": _QUOTED_SPACE}.get(text[at], text[at]))
        elif quote and character == quote:
            quote = ""
        elif not quote and character in "'\"" and text.find(character, at + 1) > 0:
            quote = character
        else:
            out.append((_QUOTED_SPACE if quote else " ") if character in " \t\n" else character)
        at += 1
    return "".join(out)


def matches_command(text: str | None, words: Sequence[str | Word]) -> bool:
    """Return whether a rule's pattern surely speaks of a command, given by its words."""
    return (
        CommandView(tuple(literal_word(word) if isinstance(word, str) else word for word in words)).match(
            parse_pattern(text)
        )
        == "yes"
    )


class CommandView:
    """One way to look at a command; its text is made once, however many patterns are held against it."""

    __slots__ = ("text", "words")

    def __init__(self, words: Words) -> None:
        self.words = words
        self.text: str | None = None

    def match(self, pattern: CommandPattern) -> MatchResult:
        """Return whether a pattern speaks of it: surely, perhaps (it depends on what bash puts in), or not."""
        if pattern.kind == "any":
            return "yes"
        if not self.words:
            return "no"
        if pattern.kind != "glob":
            return _match_tokens(pattern, self.words)
        if self.text is None:
            self.text = _render_words(self.words)
        return _match_glob(pattern, self.text)


def _match_tokens(pattern: CommandPattern, words: Words) -> MatchResult:
    sure: MatchResult = "yes"
    for index, token in enumerate(pattern.tokens):
        if index >= len(words):
            return "no"
        word = words[index]
        if word.value == token:
            continue
        if word.value is not None or not _may_become(word, token):
            return "no"
        if word.may_split:
            return "maybe"
        sure = "maybe"
    if pattern.kind == "prefix" or len(words) == len(pattern.tokens):
        return sure if pattern.tokens else "no"
    rest = words[len(pattern.tokens) :]
    return "maybe" if all(word.may_split for word in rest) else "no"


def _may_become(word: Word, token: str) -> bool:
    if word.may_split and all(not isinstance(piece, str) for piece in word.pieces):
        return True
    prefix, suffix = word.prefix, word.suffix
    if word.may_split:
        return token.startswith(prefix) or (" " not in prefix and prefix.startswith(token))
    return len(token) >= len(prefix) + len(suffix) and token.startswith(prefix) and token.endswith(suffix)


def _render_words(words: Words) -> str:
    return " ".join([_mark_blanks(word.value) if word.value is not None else _render_unknown(word) for word in words])


def _render_unknown(word: Word) -> str:
    return (
        "".join([_mark_blanks(piece) if isinstance(piece, str) else _UNKNOWN_MARK for piece in word.pieces])
        or _UNKNOWN_MARK
    )


def _mark_blanks(text: str) -> str:
    return _BLANK.sub(_QUOTED_SPACE, text)


def _match_glob(pattern: CommandPattern, text: str) -> MatchResult:
    if _matches_segments(pattern.segments, text) or (pattern.optional_tail and text == pattern.segments[0][:-1]):
        return "yes"
    if _UNKNOWN_MARK not in text:
        return "no"
    before, _, _ = text.partition(_UNKNOWN_MARK)
    after = text.rpartition(_UNKNOWN_MARK)[2]
    first, last = pattern.segments[0], pattern.segments[-1]
    fits = (before.startswith(first) or first.startswith(before)) and (after.endswith(last) or last.endswith(after))
    return "maybe" if fits else "no"


def _matches_segments(segments: tuple[str, ...], text: str) -> bool:
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
    return text is not None and re.search(r"[|;&<>]", _remove_quotes(text, exact=False)) is not None


def matches_line(text: str, command: str) -> bool:
    """Return whether a rule's text, where ``*`` stands for anything, is a whole line as it is written."""
    flat, line = _space_operators(text.replace(":*", " *")), _space_operators(command)
    return any(_matches_text(one, line) for one in (flat, flat.removesuffix(" *")))


def _matches_text(flat: str, line: str) -> bool:
    return _matches_segments(tuple(flat.split("*")), line) if "*" in flat else flat == line


def _space_operators(text: str) -> str:
    return " ".join(_OPERATOR.sub(r" \g<0> ", text).split())
