"""Redaction: replace text that looks like a secret or personal data, and the patterns that find it."""

import re
from collections.abc import Iterable, Iterator, Sequence

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.session.redaction import SecretFinder
from vaka.core.types.message import Content

_WORD_CHARS = "A-Za-z0-9"

MAX_TOKEN_LENGTH = 4096
"""Characters of the longest token that is known as one."""


class SecretPattern:
    """Finds what a regular expression matches, also in a text that is still arriving.

    ``whole`` matches all of it; its first group, if it has one, is what must not be seen. ``begun`` matches, at the end
    of a text, whatever may still become such a thing; ``reach`` is how far back it may begin.
    """

    def __init__(self, name: str, complete: str, partial: str, reach: int = MAX_TOKEN_LENGTH) -> None:
        self.name, self._reach = name, reach
        self._complete, self._partial = re.compile(complete), re.compile(f"(?:{partial})\\Z")

    def __repr__(self) -> str:
        return f"Pattern({self.name!r})"

    def find_spans(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        """Yield where such things are."""
        group = 1 if self._complete.groups else 0
        while found := self._complete.search(text, start):
            real = self.is_real(found[0])
            if real:
                yield found.span(group)
            start = found.end() if real else found.start() + 1

    def possible_start(self, text: str, start: int) -> int:
        """Return where one may have begun."""
        found = self._partial.search(text, max(start, len(text) - self._reach))
        return found.start() if found else len(text)

    def is_clear(self, text: str) -> bool:
        """Never: what is found may depend on what stands before it."""
        return False

    def is_real(self, found: str) -> bool:
        """Whether what looks like it is it."""
        return bool(found)


class CardPattern(SecretPattern):
    """Numbers of payment cards: those whose check digit is right."""

    def is_real(self, found: str) -> bool:
        """Whether the check digit is right and the digits are not all the same."""
        digits = [int(sign) for sign in found if sign.isdigit()]
        doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
        return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def token_pattern(
    name: str, prefixes: Iterable[str], signs: str, least: int, most: int = MAX_TOKEN_LENGTH, also: str = ""
) -> SecretPattern:
    """Return the pattern of tokens that begin with a word of their own and go on with ``signs``, ``also`` in them."""
    known = sorted(prefixes, key=len, reverse=True)
    begins = "|".join(map(re.escape, known))
    parts = sorted({word[:size] for word in known for size in range(1, len(word))}, key=len, reverse=True)
    partly = "|".join(map(re.escape, parts))
    some = f"(?=[{signs}]{{0,{most}}}?{also})" if also else ""
    edge = f"(?<![{_WORD_CHARS}_])" if known[0][0].isalnum() else ""
    whole = f"{edge}(?:{begins}){some}[{signs}]{{{least},{most}}}"
    begun = f"{edge}(?:(?:{begins})[{signs}]{{0,{most}}}|{partly})"
    return SecretPattern(name, whole, begun, most + len(known[0]))


_KEY_HEADERS = [f"-----BEGIN {kind}PRIVATE KEY-----" for kind in ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ")]

_PARTIAL_KEY_HEADERS = "|".join(
    re.escape(part)
    for part in sorted({key[:n] for key in _KEY_HEADERS for n in range(1, len(key))}, key=len, reverse=True)
)

_ANY_KEY_HEADER = "|".join(map(re.escape, _KEY_HEADERS))

_KEY_BODY_CHARS = r"[A-Za-z0-9+/=\s:,.-]"

SECRET_PATTERNS: tuple[SecretPattern, ...] = (
    token_pattern("key of a model provider", ["sk-", "gsk_", "xai-", "hf_"], f"{_WORD_CHARS}_-", 24, also="[0-9]"),
    token_pattern("GitHub token", ["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], _WORD_CHARS, 36, 255),
    token_pattern("GitHub token with rights of its own", ["github_pat_"], f"{_WORD_CHARS}_", 40, 255),
    token_pattern("GitLab token", ["glpat-"], f"{_WORD_CHARS}_-", 20, 255),
    token_pattern("AWS key", ["AKIA", "ASIA"], "A-Z0-9", 16, 16),
    token_pattern("Google key", ["AIza"], f"{_WORD_CHARS}_-", 35, 39),
    token_pattern("Slack token", ["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xapp-"], f"{_WORD_CHARS}-", 20, 512),
    token_pattern("Stripe key", ["sk_live_", "rk_live_", "sk_test_", "rk_test_"], _WORD_CHARS, 20, 255),
    token_pattern("package registry token", ["npm_", "pypi-"], f"{_WORD_CHARS}_-", 36, 512),
    SecretPattern(
        "signed token",
        rf"(?<![{_WORD_CHARS}_])eyJ[\w-]{{10,1500}}\.eyJ[\w-]{{10,1500}}\.[\w-]{{10,1000}}",
        rf"(?<![{_WORD_CHARS}_])(?:eyJ[\w.-]{{0,4090}}|ey|e)",
    ),
    SecretPattern(
        "bearer token",
        rf"\b[Bb]earer ([{_WORD_CHARS}._~+/=-]{{24,4000}})",
        rf"\b[Bb](?:earer(?: [{_WORD_CHARS}._~+/=-]{{0,4000}})?|eare|ear|ea|e|)",
    ),
    SecretPattern(
        "password in an address",
        r"://[^\s/:@'\"<>]{1,200}:([^\s/:@'\"<>]{3,200})@",
        r"://[^\s/@'\"<>]{0,400}|:/|:",
        404,
    ),
    SecretPattern(
        "private key",
        rf"(?:{_ANY_KEY_HEADER}){_KEY_BODY_CHARS}{{0,16000}}?-----END (?:[A-Z]{{1,12}} )?PRIVATE KEY-----",
        rf"(?:{_ANY_KEY_HEADER}){_KEY_BODY_CHARS}{{0,16100}}|{_PARTIAL_KEY_HEADERS}",
        16_200,
    ),
)
"""Tokens and keys that can be told from everything else by how they look."""

_CARD_NUMBER = r"(?<![\d.-])(?:\d{13,19}|\d{4}(?: \d{4}){3}|\d{4}(?:-\d{4}){3}|\d{4}[ -]\d{6}[ -]\d{5})(?!\d)"

_PARTIAL_CARD_NUMBER = r"(?<![\d.-])(?:\d{1,19}|\d{4}[ -][\d -]{0,15})"

PERSONAL_PATTERNS: tuple[SecretPattern, ...] = (
    SecretPattern(
        "mail address",
        rf"(?<![{_WORD_CHARS}._%+-])[{_WORD_CHARS}._%+-]{{1,64}}@(?:[{_WORD_CHARS}-]{{1,63}}\.){{1,4}}[A-Za-z]{{2,24}}(?![{_WORD_CHARS}-])",
        rf"(?<![{_WORD_CHARS}._%+-])[{_WORD_CHARS}._%+-]{{1,64}}(?:@[{_WORD_CHARS}.-]{{0,280}})?", 350,
    ),
    CardPattern("payment card", _CARD_NUMBER, _PARTIAL_CARD_NUMBER, 24),
    SecretPattern(
        "social security number", r"(?<![\d-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])",
        r"(?<![\d-])\d{1,3}(?:-\d{0,2}(?:-\d{0,4})?)?", 12,
    ),
    SecretPattern(
        "telephone number", r"(?<![\w+])\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}(?!\d)",
        r"(?<![\w+])\+\d{0,3}(?:[ .-]?\(?\d{0,4}\)?){0,5}", 48,
    ),
)  # fmt: skip
"""What tells who someone is: kept out on wish."""


class Redaction(Middleware):
    """Replaces known kinds of secrets in everything the session writes and shows, from its first turn here on.

    Registered secrets are replaced in every session anyway. With ``personal`` mail addresses, card, telephone and
    social security numbers are replaced too; ``finders`` adds kinds of one's own. The model sees the log, so it sees no
    secret either; a tool still gets the arguments that the model wrote.
    """

    def __init__(self, *, personal: bool = False, finders: Iterable[SecretFinder] = ()) -> None:
        self.finders: Sequence[SecretFinder] = (*SECRET_PATTERNS, *(PERSONAL_PATTERNS if personal else ()), *finders)

    async def before_agent(self, turn: Turn, content: Content) -> Content:
        """Begin to look for them in this session; what was said now is not written yet."""
        known = turn.log.secrets.finders
        fresh = [finder for finder in self.finders if finder not in known]
        if fresh:
            turn.log.secrets = turn.log.secrets.with_finders(*fresh)
        return content
