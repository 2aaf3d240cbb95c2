"""Find secrets by their format, in a text that is complete or still streaming.

A quick check with few searches for literals comes first; only a text that fails it is matched against the rules.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from vaka.matching.secret_rules import (
    MAX_CONTEXT,
    MAX_PEM,
    PEM_BEGIN,
    PEM_BODY,
    PEM_END,
    Chars,
    SecretRule,
    Words,
    load_secret_rules,
)

_EDGE = "(?<![A-Za-z0-9_])"
_SEPARATORS = "_.~$-"
_MAX_CHECKED = 512
"""Characters of a value that decide whether it is a secret."""
_GUARDED = 420
"""A value of a kind that has at most so many characters does not continue with more of them."""

_ESCAPE = re.compile(
    r"(?P<gone>(?:\x1b|(?<!\\)\\+(?:u001[bB]|x1[bB]|033|e))\[[0-?]*[ -/]*[@-~])|(?P<char>(?<!\\)\\+[nrt\"'/])"
    r"|\x1b[@-Z\\^_]"
)
_OPEN_ESCAPE = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*)?|\\+(?:(?:u0{0,2}1?[bB]?|x1?[bB]?|0?3?3?|e)(?:\[[0-?]*)?)?)\Z")
_CHARS = {"n": "\n", "r": "\r", "t": "\t"}


def _unescape(match: re.Match[str]) -> str:
    last = match[0][-1]
    return _CHARS.get(last, last) if match["char"] else ""


class _Plain:
    """A text without terminal sequences and backslash escapes, with the positions of its characters in the original."""

    def __init__(self, text: str) -> None:
        pieces: list[str] = []
        self._starts, self._origins = [0], [0]
        at = size = 0
        for match in _ESCAPE.finditer(text):
            pieces.append(text[at : match.start()])
            size += match.start() - at
            at = match.end()
            if match["char"]:
                pieces.append(_unescape(match))
                self._mark(size, match.start())
                size += 1
            self._mark(size, at)
        self.text = "".join([*pieces, text[at:]])

    def _mark(self, position: int, origin: int) -> None:
        if self._starts[-1] == position:
            self._origins[-1] = origin
        else:
            self._starts.append(position)
            self._origins.append(origin)

    def to_origin(self, position: int) -> int:
        at = bisect_right(self._starts, position) - 1
        return self._origins[at] + position - self._starts[at]

    def from_origin(self, origin: int) -> int:
        at = max(bisect_right(self._origins, origin) - 1, 0)
        position = self._starts[at] + max(origin - self._origins[at], 0)
        return min(position, self._starts[at + 1]) if at + 1 < len(self._starts) else position


class _Rule:
    """A rule with its expressions, which are compiled when they are first needed."""

    def __init__(self, rule: SecretRule) -> None:
        self.rule = rule
        first = rule.parts[0]
        self.keywords = rule.keywords or (first.words if isinstance(first, Words) else ())
        self._context = rule.context or (_EDGE if isinstance(first, Words) and first.words[0][0].isalnum() else "")

    @property
    def is_assignment(self) -> bool:
        return {"pass", "pwd", "secret", "cred", "key", "token", "auth", "authorization"}.issuperset(self.keywords)

    @cached_property
    def _value(self) -> re.Pattern[str]:
        return re.compile(f"{self._context}(?=(\\S*))")

    def has_value(self, text: str, start: int) -> bool:
        """Whether a value from ``start`` on has the context of this rule."""
        return any(match.end(1) > start for match in self._value.finditer(text))

    @cached_property
    def _complete(self) -> re.Pattern[str]:
        last = self.rule.parts[-1]
        after = self.rule.after
        if not after and isinstance(last, Chars) and last.most < _GUARDED:
            after = f"(?![{last.chars}])"
        return re.compile(f"{self._context}({''.join(map(_complete_part, self.rule.parts))}){after}")

    @cached_property
    def _partial(self) -> re.Pattern[str]:
        return re.compile(f"{self._context}({_partial_parts(self.rule.parts)})\\Z")

    def find_spans(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        is_secret = self.rule.is_secret
        position = max(start - MAX_CONTEXT, 0)
        while match := self._complete.search(text, position):
            position = match.start() + 1
            if match.end(1) > start and (is_secret is None or is_secret(match[1][:_MAX_CHECKED])):
                yield match.span(1)
                position = max(position, match.end(1) - MAX_CONTEXT)  # a later match may end later

    def match_at(self, text: str, at: int) -> tuple[int, int] | None:
        match, is_secret = self._complete.match(text, at), self.rule.is_secret
        return match.span(1) if match and (is_secret is None or is_secret(match[1])) else None

    def may_continue(self, text: str, at: int) -> bool:
        return self._partial.match(text, at) is not None

    def possible_start(self, text: str, start: int) -> int:
        size = len(text)
        longest = sum(part.most if isinstance(part, Chars) else max(map(len, part.words)) for part in self.rule.parts)
        match = self._partial.search(text, max(start - MAX_CONTEXT, size - longest - MAX_CONTEXT, 0))
        return max(match.start(1), start) if match else size


def _complete_part(part: Chars | Words) -> str:
    if isinstance(part, Chars):
        return f"[{part.chars}]{{{part.least},{part.most}}}"
    return f"(?:{'|'.join(map(re.escape, sorted(part.words, key=len, reverse=True)))})"


def _partial_parts(parts: tuple[Chars | Words, ...]) -> str:
    part, rest = parts[0], parts[1:]
    if isinstance(part, Chars):
        partial = f"[{part.chars}]{{0,{part.most}}}"
    else:
        beginnings = {word[:size] for word in part.words for size in range(0 if rest else 1, len(word))}
        partial = f"(?:{'|'.join(map(re.escape, sorted(beginnings, key=len, reverse=True)))})"
        partial = partial if beginnings else "(?!)"
    return f"(?:{_complete_part(part)}{_partial_parts(rest)}|{partial})" if rest else partial


class _PrivateKey:
    """Private keys in PEM, also without their end."""

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        return re.compile(f"{PEM_BEGIN}{PEM_BODY}{{0,{MAX_PEM}}}?{PEM_END}")

    @cached_property
    def _cut(self) -> re.Pattern[str]:
        return re.compile(
            rf"{PEM_BEGIN}(?:[\s>|]{{1,12}}(?:[A-Za-z0-9+/=]{{16,80}}|[A-Z][A-Za-z-]{{2,20}}: [^\n]{{1,80}}))+"
            r"(?:\s[A-Za-z0-9+/=]{1,80})?"
        )

    @cached_property
    def _open(self) -> re.Pattern[str]:
        return re.compile(
            rf"{PEM_BEGIN}{PEM_BODY}{{0,{MAX_PEM + 100}}}\Z|-----BEGIN [A-Z0-9 ]{{0,60}}(?:Static key V?1?)?-{{0,4}}\Z"
            r"|-----BEGIN?\Z|-----BEG?\Z|-----B?\Z|-{1,4}\Z"
        )

    def find_spans(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        for expression in (self._whole, self._cut):
            for match in expression.finditer(text, start):
                yield match.span()

    def possible_start(self, text: str, start: int) -> int:
        match = self._open.search(text, max(start, len(text) - MAX_PEM - 200))
        return match.start() if match else len(text)


_private_key = _PrivateKey()


def _group_by_word(rules: Iterable[_Rule]) -> dict[str, list[_Rule]]:
    groups: dict[str, list[_Rule]] = {}
    for rule in rules:
        for word in rule.keywords:
            groups.setdefault(word, []).append(rule)
    return groups


_NOT_WITHHELD = frozenset("abcdfijklmoqrtuvwyz0123456789")
"""Beginnings of prefixes that are not withheld, since texts often end so; the rest of the token is still redacted."""
_TAIL = 3
"""Characters at the end of a prefix that a quick check compares; the shortest prefixes are shorter."""
_SHORTEST = 14
"""Characters of the shortest token."""
_RUN_CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.~$/-"
_WORD_CHARS = _RUN_CHARS[:63]

_NAMES = ("pass", "pwd", "secret", "cred", "token", "auth")
"""Parts of names; of ``key`` only a part of a longer one, since the JSON of many events has a field ``key``."""
_WORDS = (*_NAMES, "bearer", "basic ", "cookie", "curl", "mysql", "hook", "login", "akia")
_WORDS_BY_SIGN = (
    (":", (":aa", ":5432:", "kind:", "private-lines")),
    ("/", ("//",)),
    ("-", ("--", "redis-cli")),
    ("|", ("|",)),
    ("=", ("session=", "sessionid=", "sessid=", "sig=", "signature=")),
    ("%", ("%7c",)),
    ("~", ("q~",)),
    ("}", ("sha}", "sha256}", "sha512}", "md5}", "crypt}")),
    (".", ("atlasv1",)),
    ('"', ("kty",)),
)
_NEAR, _KEPT = 32, 96
"""Numbers of characters before a piece of text: so many are checked for plain text, and so many are then kept."""
_MAX_NAME = 72
"""Characters of the longest name with what separates it from its value."""
_SHORT_CONTEXT = 24
"""Characters to keep while there is no keyword: a part of one, or the number before a token of Facebook."""
_SHORTEST_DOTTED = len("pat") + 14 + len(".")
"""Characters of the shortest beginning of a token with dots in it."""


def _starts_with(words: Iterable[str]) -> str:
    by_letter: dict[str, list[str]] = {}
    for word in words:
        by_letter.setdefault(word[0], []).append(re.escape(word[1:]))
    return "|".join(f"(?<={letter})(?:{'|'.join(group)})" for letter, group in by_letter.items())


_BODY = "[A-Za-z0-9+/=_.$%,-]"
_dotted = re.compile(r"\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{25}|pat[A-Za-z0-9]{14}\.[a-f0-9]{64}")
_open_dotted = re.compile(r"pat[A-Za-z0-9]{14}\.|[MNO][TDzj][A-Za-z0-9_-]{20,26}\.[A-Za-z0-9_-]{6,7}\.")
_assignment = re.compile(
    rf"(?:{'|'.join(_NAMES)}|[a-z0-9][_.\- ]?key)[a-z0-9_.\-]{{0,24}}+[\\\"'\])]{{0,4}}+[ \t]{{0,3}}+"
    r"(?::=|=>|==?|:|>|\\?\"? ?value=)[ \t]{0,3}+[bru]?[\\\"'`]{0,4}+(?![0-9.]{1,20}[,}\]])"
    r"(?:[a-z0-9-]{1,12} )?(?=([^\s\"'`]{0,4096}))"
)


def _has_keyword(low: str) -> bool:
    """Whether a text in lower case has a word that may stand before a secret."""
    for word in _WORDS:
        if word in low:
            return True
    for sign, words in _WORDS_BY_SIGN:
        if sign in low:
            for word in words:
                if word in low:
                    return True
    return "key" in low and "key" in low.replace('"key"', "")


def _rules_for(low: str, rules_by_word: "dict[str, list[_Rule]]") -> "dict[_Rule, None]":
    """Return the rules with a keyword in the text, which is in lower case."""
    found: dict[_Rule, None] = {}
    for word, rules in rules_by_word.items():
        if word in low:
            for rule in rules:
                found[rule] = None
    return found


_SPECIAL_CHARS = r":=>/|%~$_\\\x1b}-"
_special = re.compile(rf"[{_SPECIAL_CHARS}]|\.(?!\s)")
_special_or_dot = re.compile(rf"[.{_SPECIAL_CHARS}]")
"""A set of characters alone is searched twice as fast."""
_separator = re.compile(f"[{_SEPARATORS}]")
_not_word = re.compile("[^A-Za-z0-9_]")


def _has_near_word(low: str) -> bool:
    return "bearer" in low or "basic" in low or "pass" in low or "akia" in low


def _is_possessive(text: str) -> bool:
    """Whether a text ends like ``dog's``: the letter does not begin a token."""
    return text.endswith("'s") and text[-3:-2].isalpha()


class _Tokens:
    """The rules of tokens by prefix, and quick checks for them."""

    def __init__(self, rules: Iterable[_Rule]) -> None:
        self._rules = _group_by_word(rules)
        by_separator = sorted(word for word in self._rules if word[-1] in _SEPARATORS)
        self._by_word = tuple(sorted(word for word in self._rules if word[-1] not in _SEPARATORS))
        self._widths = tuple(sorted({len(word) for word in by_separator}))
        self._partial_prefixes = frozenset(word[:size] for word in self._rules for size in range(1, len(word)))
        self._word_heads = frozenset(word[:2] for word in self._by_word)
        self._max_prefix = max(map(len, self._rules))
        self._last_chars = frozenset(
            before + word[-_TAIL:]
            for word in by_separator
            for before in ("", *" \"'=:,>(`\n"[: 99 * (len(word) < _TAIL)])
        )
        upper = [word for word in self._by_word if word[0].isupper()]
        self._token = re.compile(
            rf"[A-Z{_SEPARATORS}](?:(?<=[{_SEPARATORS}])|{_starts_with(upper)}|(?<=eyJ)|(?<=cmV))"
            rf"(?={_BODY}{{8}}|{_BODY}{{0,7}}\Z)"
        )

    @cached_property
    def _word(self) -> re.Pattern[str]:
        return re.compile(f"{_EDGE}(?:{'|'.join(map(re.escape, self._by_word))})")

    def has_token(self, text: str) -> bool:
        """Whether a text may hold a token, by the last characters of its prefix."""
        for match in self._token.finditer(text):
            end = match.end()
            if match[0] not in _SEPARATORS or text[end - _TAIL if end > _TAIL else 0 : end] in self._last_chars:
                return True
            if match[0] == "." and _dotted.search(text, max(end - 40, 0), end + 70):
                return True
        return "dapi" in text or "prv" in text or "1//0" in text

    def has_plain_token(self, text: str, near: str, low: str, start: int) -> bool:
        """Return what ``has_token`` does for a text without special characters; few tokens have no capitals either."""
        if len(text) - start < _SHORTEST:
            return False
        return "dapi" in near or "prv" in near if near == low else self.has_token(near)

    def has_prefix(self, text: str, start: int) -> bool:
        """Whether a separator of the text from ``start`` on may end the prefix of a token."""
        for match in _separator.finditer(text, start):
            end = match.end()
            if text[end - _TAIL if end > _TAIL else 0 : end] in self._last_chars:
                return True
        return False

    def partial_prefix(self, text: str, start: int) -> int:
        """Return where a prefix of a token begins, or goes on, that the text may end in the middle of."""
        size = len(text)
        first = max(size - self._max_prefix, 0)
        edges = [first] if first == 0 or not (text[first - 1].isalnum() or text[first - 1] == "_") else []
        edges += [at for match in _not_word.finditer(text, first) for at in match.span()]
        for at in edges:
            if text[at:] in self._partial_prefixes and text[at:] not in _NOT_WITHHELD:
                return max(at, start)
        return size

    def may_be_word(self, text: str) -> bool:
        """Whether the last word of a text may be a token that has no separator, or the beginning of a prefix."""
        word = text[len(text.rstrip(_WORD_CHARS)) :]
        if word in self._partial_prefixes and word not in _NOT_WITHHELD:
            return not _is_possessive(text)
        return word[:2] in self._word_heads and word.startswith(self._by_word)

    def may_be_token(self, run: str) -> bool:
        """Whether the end of a text, a run of the characters of tokens, may be a token or its beginning."""
        if self.may_be_word(run) or self.has_prefix(run, 0):
            return True
        if not run.rstrip(_WORD_CHARS):
            return False
        if run[-1] == "-" and not run.rstrip("-"):  # the beginning of a private key
            return True
        return (
            "1//0" in run
            or self.partial_prefix(run, 0) < len(run)
            or (len(run) >= _SHORTEST_DOTTED and bool(_open_dotted.search(run)))
        )

    def find_anchors(self, text: str, start: int) -> Iterator[tuple[int, _Rule]]:
        """Yield the places where a token may begin, with its rule."""
        start = max(start - self._max_prefix, 0)
        for match in _separator.finditer(text, start):
            end = match.end()
            for width in self._widths if text[max(end - _TAIL, 0) : end] in self._last_chars else ():
                for rule in self._rules.get(text[end - width : end], ()) if width <= end else ():
                    yield end - width, rule
        for match in self._word.finditer(text, start):
            at = match.start()
            for word in self._by_word:
                if text.startswith(word, at):
                    for rule in self._rules[word]:
                        yield at, rule


class _Contexts:
    """The rules of values by the keywords that stand before them."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = _group_by_word(rules)
        self._gated = _group_by_word(
            rule for rule in rules if not rule.is_assignment and not {".", "pat"}.issuperset(rule.keywords)
        )
        """Of the rules by keyword those that the quick check for assignments and tokens does not cover."""

    def has_value(self, text: str, low: str, start: int) -> bool:
        """Whether the text from ``start`` on may be a value with its context; ``low`` is the text in lower case."""
        if "-----" in low:
            return True
        for match in _assignment.finditer(low, max(start - _MAX_NAME, 0)):
            if match.end(1) > start:
                return True
        return any(rule.has_value(text, start) for rule in _rules_for(low, self._gated))

    def find_rules(self, text: str) -> Iterable[_Rule]:
        """Return the rules with a keyword in the text."""
        return _rules_for(text.lower(), self._rules)


class SecretFormats:
    """Finds secrets by all rules; a ``SecretFinder`` of the core."""

    context = MAX_CONTEXT

    @cached_property
    def _tokens(self) -> _Tokens:
        return _Tokens(map(_Rule, load_secret_rules().tokens))

    @cached_property
    def _contexts(self) -> _Contexts:
        return _Contexts([_Rule(rule) for rule in load_secret_rules().contextual])

    def clear_context(self, text: str, start: int) -> int:
        """Return -1 if the text from ``start`` on may be part of a match, else the size of the context to keep.

        A size counts characters at the end of the text, on which later matches may depend.
        """
        near = text[start - _NEAR if start > _NEAR else 0 :]
        if _special_or_dot.search(near) is None or _special.search(near) is None:
            low = near.lower()
            if not _has_near_word(low):
                return (
                    -1
                    if self._tokens.may_be_word(text) or self._tokens.has_plain_token(text, near, low, start)
                    else _KEPT
                )
        if "\x1b" in text or text.endswith("\\"):
            return -1
        if "\\" in text:
            before = _ESCAPE.sub(_unescape, text[:start])
            text, start = before + _ESCAPE.sub(_unescape, text[start:]), len(before)
        run = text[len(text.rstrip(_RUN_CHARS)) :]
        keep = min(max(len(run) + 4, _SHORT_CONTEXT), MAX_CONTEXT)  # with the escape before it
        if run and self._tokens.may_be_token(run):
            return -1
        size = len(text) - start
        if self._tokens.has_token(text[start:]) if size >= _SHORTEST else self._tokens.has_prefix(text, start):
            return -1
        low = text.lower()
        if not _has_keyword(low):
            return keep
        return -1 if len(low) != len(text) or self._contexts.has_value(text, low, start) else MAX_CONTEXT

    def find_spans(self, text: str, start: int) -> list[tuple[int, int]]:
        """Return start and end of the matches from ``start`` on, in order and disjoint; the text before is context."""
        if "\x1b" in text or "\\" in text:
            plain = _Plain(text)
            found = self._find(plain.text, plain.from_origin(start))
            return _merge(((plain.to_origin(a), plain.to_origin(b - 1) + 1) for a, b in found), start)
        return _merge(self._find(text, start), start)

    def possible_start(self, text: str, start: int) -> int:
        """Return the first position from ``start`` on of a match that more text may complete or extend."""
        escape = _OPEN_ESCAPE.search(text, max(start, len(text) - 24))
        size = escape.start() if escape else len(text)
        if "\x1b" in text or "\\" in text:
            plain = _Plain(text[:size])
            possible = self._possible(plain.text, plain.from_origin(start))
            return size if possible == len(plain.text) else max(plain.to_origin(possible), start)
        return self._possible(text[:size], start)

    def _find(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        if "-----" in text:
            yield from _private_key.find_spans(text, start)
        for rule in self._contexts.find_rules(text):
            yield from rule.find_spans(text, start)
        for at, rule in self._tokens.find_anchors(text, start):
            span = rule.match_at(text, at)
            if span:
                yield span

    def _possible(self, text: str, start: int) -> int:
        first = _private_key.possible_start(text, start) if "-" in text else len(text)
        for rule in self._contexts.find_rules(text):
            first = min(first, rule.possible_start(text, start))
        for at, rule in self._tokens.find_anchors(text, start):
            if at < first and rule.may_continue(text, at):
                first = max(at, start)
        return min(first, self._tokens.partial_prefix(text, start))


def _merge(spans: Iterable[tuple[int, int]], start: int) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if end <= start:
            continue
        if merged and begin < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((max(begin, start), end))
    return merged


SECRET_FORMATS = SecretFormats()
