"""Redaction: replaces text that looks like a secret or personal data, with the patterns that find it."""

import re
from collections.abc import Iterable, Iterator, Sequence

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.log import SecretFinder
from vaka.core.types.message import Content
from vaka.matching.secrets import SECRET_FORMATS

_WORD_CHARS = "A-Za-z0-9"

MAX_TOKEN_LENGTH = 4096
"""Characters of the longest token that is found."""


class SecretPattern:
    """Finds matches of a regular expression, also in a text that is still streaming.

    ``complete`` matches a secret with its context; its first group, if it has one, is the part to redact. ``partial``
    matches, at the end of a text, the beginning of a possible secret of at most ``reach`` characters.
    """

    context = 1

    def __init__(self, name: str, complete: str, partial: str, reach: int = MAX_TOKEN_LENGTH) -> None:
        self.name, self._reach = name, reach
        self._complete, self._partial = re.compile(complete), re.compile(f"(?:{partial})\\Z")

    def __repr__(self) -> str:
        return f"SecretPattern({self.name!r})"

    def find_spans(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        group = 1 if self._complete.groups else 0
        while match := self._complete.search(text, start):
            real = self.is_real(match[0])
            if real:
                yield match.span(group)
            start = match.end() if real else match.start() + 1

    def possible_start(self, text: str, start: int) -> int:
        match = self._partial.search(text, max(start, len(text) - self._reach))
        return match.start() if match else len(text)

    def clear_context(self, text: str, start: int) -> int:
        """Return -1: there is no quick check."""
        return -1

    def is_real(self, match: str) -> bool:
        """Whether a match is a secret; subclasses may check more than the expression can."""
        return bool(match)


class CardPattern(SecretPattern):
    """Finds numbers of payment cards, by their check digit."""

    def is_real(self, match: str) -> bool:
        """Whether the check digit is correct and the digits are not all the same."""
        digits = [int(char) for char in match if char.isdigit()]
        doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
        return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def token_pattern(
    name: str, prefixes: Iterable[str], chars: str, least: int, most: int = MAX_TOKEN_LENGTH, also: str = ""
) -> SecretPattern:
    """Return the pattern of tokens: a prefix, then ``least`` to ``most`` of ``chars``, some of which match ``also``."""
    longest_first = sorted(prefixes, key=len, reverse=True)
    prefix, partial_prefix = _any_of(longest_first), _any_beginning_of(longest_first)
    contains = f"(?=[{chars}]{{0,{most}}}?{also})" if also else ""
    edge = f"(?<![{_WORD_CHARS}_])" if longest_first[0][0].isalnum() else ""
    complete = f"{edge}(?:{prefix}){contains}[{chars}]{{{least},{most}}}"
    partial = f"{edge}(?:(?:{prefix})[{chars}]{{0,{most}}}|{partial_prefix})"
    return SecretPattern(name, complete, partial, most + len(longest_first[0]))


def _any_of(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, words))


def _any_beginning_of(words: Iterable[str]) -> str:
    return _any_of(sorted({word[:size] for word in words for size in range(1, len(word))}, key=len, reverse=True))


SECRET_PATTERNS: tuple[SecretFinder, ...] = (SECRET_FORMATS,)
"""Tokens, keys and passwords that are recognizable by their format; a runtime redacts them by default."""

PERSONAL_PATTERNS: tuple[SecretPattern, ...] = (
    SecretPattern(
        "email address",
        rf"(?<![{_WORD_CHARS}._%+-])[{_WORD_CHARS}._%+-]{{1,64}}@(?:[{_WORD_CHARS}-]{{1,63}}\.){{1,4}}[A-Za-z]{{2,24}}(?![{_WORD_CHARS}-])",
        rf"(?<![{_WORD_CHARS}._%+-])[{_WORD_CHARS}._%+-]{{1,64}}(?:@[{_WORD_CHARS}.-]{{0,280}})?",
        350,
    ),
    CardPattern(
        "payment card",
        r"(?<![\d.-])(?:\d{13,19}|\d{4}(?: \d{4}){3}|\d{4}(?:-\d{4}){3}|\d{4}[ -]\d{6}[ -]\d{5})(?!\d)",
        r"(?<![\d.-])(?:\d{1,19}|\d{4}[ -][\d -]{0,15})",
        24,
    ),
    SecretPattern(
        "social security number",
        r"(?<![\d-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])",
        r"(?<![\d-])\d{1,3}(?:-\d{0,2}(?:-\d{0,4})?)?",
        12,
    ),
    SecretPattern(
        "telephone number",
        r"(?<![\w+])\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}(?!\d)",
        r"(?<![\w+])\+\d{0,3}(?:[ .-]?\(?\d{0,4}\)?){0,5}",
        48,
    ),
)
"""Personal data, redacted with ``Redaction(personal=True)``."""


class Redaction(Middleware):
    """Replaces known kinds of secrets in all events of a session, from its first turn with this middleware on.

    Registered secrets are replaced in every session anyway. ``personal`` adds email addresses, card, telephone and
    social security numbers; ``finders`` adds other kinds. Prompts are built from the log, so the model sees no secret
    either; a tool still gets the arguments that the model wrote.
    """

    def __init__(self, *, personal: bool = False, finders: Iterable[SecretFinder] = ()) -> None:
        self.finders: Sequence[SecretFinder] = (*SECRET_PATTERNS, *(PERSONAL_PATTERNS if personal else ()), *finders)

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        """Add the finders to the log of the session; ``content`` is not written yet."""
        turn.log.add_secret_finders(self.finders)
        return content
