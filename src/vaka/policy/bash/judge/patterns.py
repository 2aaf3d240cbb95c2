"""Patterns of command rules: exact words, first words, or text with wildcards, matched in one pass."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from vaka.matching.globs import matches_parts, matches_wildcards
from vaka.policy.bash.parse.syntax import Word, Words, literal_word

_QUOTED_SPACE = "\x1f"  # a blank inside a word; a blank between words does not match it
_UNKNOWN_MARK = "\x1e"  # unknown until bash expands it; only a wildcard matches it
_LITERAL_STAR = "\x1d"  # a star that is not a wildcard

_BLANK = re.compile(r"[ \t\n]")

MatchResult: TypeAlias = Literal["yes", "maybe", "no"]


class CommandPattern(NamedTuple):
    """A parsed pattern of a rule."""

    kind: Literal["any", "prefix", "exact", "glob"]
    tokens: tuple[str, ...] = ()
    """The words of ``prefix`` and ``exact``."""
    segments: tuple[str, ...] = ()
    """The texts between the wildcards of ``glob``."""
    optional_tail: bool = False
    """Whether ``glob`` also matches without its last wildcard and the blank before it."""

    @property
    def starts_with_assignment(self) -> bool:
        """Whether it starts with a full assignment, as ``CI=1 npm test``."""
        first = self.tokens[0] if self.tokens else self.segments[0].rpartition(" ")[0] if self.segments else ""
        return re.match(r"[A-Za-z_]\w*=", first) is not None


def parse_patterns(text: str | None, *, wide: bool = False) -> tuple[CommandPattern, ...]:
    """Return the patterns that a rule's text may mean: as written, and with its backslashes as in bash.

    Claude Code writes a backslash before parentheses and backslashes when it saves a command as a rule. ``wide``: a
    star is a wildcard also where ``:*`` ends the rule.
    """
    first = parse_pattern(text)
    if wide and text is not None and first.kind == "prefix" and any("*" in token for token in first.tokens):
        start = text.strip()[:-2]
        return (first, _parse_pattern_text(start, exact=False), _parse_pattern_text(f"{start} *", exact=False))
    if text is None or "\\" not in text:
        return (first,)
    unescaped = re.sub(r"\\([()\\])", r"\1", text)
    return tuple(dict.fromkeys((first, *(_parse_pattern_text(one, exact=True) for one in (text, unescaped)))))


@lru_cache(maxsize=4096)
def parse_pattern(text: str | None) -> CommandPattern:
    """Parse a rule's pattern; ``None`` matches any command."""
    return CommandPattern("any") if text is None else _parse_pattern_text(text, exact=False)


def _parse_pattern_text(text: str, *, exact: bool) -> CommandPattern:
    text = _drop_open_quote(text.strip())
    if text in {"*", ":*"}:
        return CommandPattern("any")
    if text.endswith(":*") and not text.endswith("\\:*"):
        prefix = _remove_quotes(text[:-2], exact=exact).replace("*", _LITERAL_STAR)
        return CommandPattern("prefix", _split_tokens(prefix))
    flat = _remove_quotes(text, exact=exact)
    if "*" not in flat:
        return CommandPattern("exact", _split_tokens(flat))
    flat = re.sub(" +", " ", flat)
    segments = tuple(part.replace(_LITERAL_STAR, "*") for part in flat.split("*"))
    return CommandPattern("glob", segments=segments, optional_tail=flat.endswith(" *") and flat.count("*") == 1)


def _drop_open_quote(text: str) -> str:
    """Remove a quote that is opened only before the last wildcard: ``git commit -m ' *``, ``python -c ":*``."""
    found = re.fullmatch(r"(.*\S)\s+(['\"])(:\*|\s*\*)", text, re.DOTALL)
    if found is None or found[2] in found[1]:
        return text
    return f"{found[1]}:*" if found[3] == ":*" else f"{found[1]} *"


def _split_tokens(flat: str) -> tuple[str, ...]:
    return tuple(token.replace(_QUOTED_SPACE, " ").replace(_LITERAL_STAR, "*") for token in flat.split(" ") if token)


def _remove_quotes(text: str, *, exact: bool) -> str:
    """Remove quotes and backslashes; blanks inside quotes become ``_QUOTED_SPACE``.

    In double quotes bash keeps most backslashes; rules rarely mean them, so only ``exact`` does so.
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
    """Return whether a rule's pattern certainly matches a command, given by its words."""
    view = CommandView(tuple(literal_word(word) if isinstance(word, str) else word for word in words))
    return view.match(parse_pattern(text)) == "yes"


class CommandView:
    """One form of a command; its text is rendered once for many patterns."""

    __slots__ = ("text", "words")

    def __init__(self, words: Words) -> None:
        self.words = words
        self.text: str | None = None

    def match(self, pattern: CommandPattern) -> MatchResult:
        """Return whether a pattern matches; ``maybe`` when that depends on expansions."""
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
    result: MatchResult = "yes"
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
        result = "maybe"
    if pattern.kind == "prefix" or len(words) == len(pattern.tokens):
        return result if pattern.tokens else "no"
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
    return " ".join([_render_word(word) for word in words])


def _render_word(word: Word) -> str:
    if word.value is not None:
        return _BLANK.sub(_QUOTED_SPACE, word.value)
    texts = [_BLANK.sub(_QUOTED_SPACE, piece) if isinstance(piece, str) else _UNKNOWN_MARK for piece in word.pieces]
    return "".join(texts) or _UNKNOWN_MARK


def _match_glob(pattern: CommandPattern, text: str) -> MatchResult:
    if matches_parts(pattern.segments, text) or (pattern.optional_tail and text == pattern.segments[0][:-1]):
        return "yes"
    if _UNKNOWN_MARK not in text:
        return "no"
    before, _, _ = text.partition(_UNKNOWN_MARK)
    after = text.rpartition(_UNKNOWN_MARK)[2]
    first, last = pattern.segments[0], pattern.segments[-1]
    fits = (before.startswith(first) or first.startswith(before)) and (after.endswith(last) or last.endswith(after))
    return "maybe" if fits else "no"


_OPERATOR = re.compile(r"&&|\|\||\|&|[|;&<>]+")


def spans_commands(text: str | None) -> bool:
    """Return whether a rule's text contains a control operator or a redirection: it matches no single command."""
    return text is not None and re.search(r"[|;&<>]", _remove_quotes(text, exact=False)) is not None


def matches_line(text: str, command: str) -> bool:
    """Return whether a rule's text, with ``*`` as a wildcard, matches a whole line as written."""
    flat, line = _space_operators(text.replace(":*", " *")), _space_operators(command)
    return any(matches_wildcards(one, line) for one in (flat, flat.removesuffix(" *")))


def _space_operators(text: str) -> str:
    return " ".join(_OPERATOR.sub(r" \g<0> ", text).split())
