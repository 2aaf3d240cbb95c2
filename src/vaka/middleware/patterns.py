"""What secrets and personal data look like, so exactly that ordinary texts have none of it."""

import re
from collections.abc import Iterable, Iterator

_WORD = "A-Za-z0-9"
LONGEST = 4096
"""Characters of the longest token that is known as one."""


class Pattern:
    """Finds what a regular expression matches, also in a text that is still arriving.

    ``whole`` matches all of it; its first group, if it has one, is what must not be seen. ``begun`` matches, at the end
    of a text, whatever may still become such a thing; ``reach`` is how far back it may begin.
    """

    def __init__(self, name: str, whole: str, begun: str, reach: int = LONGEST) -> None:
        self.name, self._reach = name, reach
        self._whole, self._begun = re.compile(whole), re.compile(f"(?:{begun})\\Z")

    def __repr__(self) -> str:
        return f"Pattern({self.name!r})"

    def spans(self, text: str, at: int) -> Iterator[tuple[int, int]]:
        """Yield where such things are."""
        group = 1 if self._whole.groups else 0
        while found := self._whole.search(text, at):
            real = self.real(found[0])
            if real:
                yield found.span(group)
            at = found.end() if real else found.start() + 1

    def open(self, text: str, at: int) -> int:
        """Return where one may have begun."""
        found = self._begun.search(text, max(at, len(text) - self._reach))
        return found.start() if found else len(text)

    def clear(self, text: str) -> bool:
        """Never: what is found may depend on what stands before it."""
        return False

    def real(self, found: str) -> bool:
        """Whether what looks like it is it."""
        return bool(found)


class Card(Pattern):
    """Numbers of payment cards: those whose check digit is right."""

    def real(self, found: str) -> bool:
        """Whether the check digit is right and the digits are not all the same."""
        digits = [int(sign) for sign in found if sign.isdigit()]
        doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
        return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def token(name: str, prefixes: Iterable[str], signs: str, least: int, most: int = LONGEST, also: str = "") -> Pattern:
    """Return the pattern of tokens that begin with a word of their own and go on with ``signs``, ``also`` in them."""
    known = sorted(prefixes, key=len, reverse=True)
    begins = "|".join(map(re.escape, known))
    parts = sorted({word[:size] for word in known for size in range(1, len(word))}, key=len, reverse=True)
    partly = "|".join(map(re.escape, parts))
    some = f"(?=[{signs}]{{0,{most}}}?{also})" if also else ""
    edge = f"(?<![{_WORD}_])" if known[0][0].isalnum() else ""
    whole = f"{edge}(?:{begins}){some}[{signs}]{{{least},{most}}}"
    begun = f"{edge}(?:(?:{begins})[{signs}]{{0,{most}}}|{partly})"
    return Pattern(name, whole, begun, most + len(known[0]))


_KEYS = [f"-----BEGIN {kind}PRIVATE KEY-----" for kind in ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ")]
_BEGUN_KEYS = "|".join(
    re.escape(part) for part in sorted({key[:n] for key in _KEYS for n in range(1, len(key))}, key=len, reverse=True)
)
_HEADS = "|".join(map(re.escape, _KEYS))
_BODY = r"[A-Za-z0-9+/=\s:,.-]"

SECRETS: tuple[Pattern, ...] = (
    token("key of a model provider", ["sk-", "gsk_", "xai-", "hf_"], f"{_WORD}_-", 24, also="[0-9]"),
    token("GitHub token", ["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], _WORD, 36, 255),
    token("GitHub token with rights of its own", ["github_pat_"], f"{_WORD}_", 40, 255),
    token("GitLab token", ["glpat-"], f"{_WORD}_-", 20, 255),
    token("AWS key", ["AKIA", "ASIA"], "A-Z0-9", 16, 16),
    token("Google key", ["AIza"], f"{_WORD}_-", 35, 39),
    token("Slack token", ["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xapp-"], f"{_WORD}-", 20, 512),
    token("Stripe key", ["sk_live_", "rk_live_", "sk_test_", "rk_test_"], _WORD, 20, 255),
    token("package registry token", ["npm_", "pypi-"], f"{_WORD}_-", 36, 512),
    Pattern(
        "signed token", rf"(?<![{_WORD}_])eyJ[\w-]{{10,1500}}\.eyJ[\w-]{{10,1500}}\.[\w-]{{10,1000}}",
        rf"(?<![{_WORD}_])(?:eyJ[\w.-]{{0,4090}}|ey|e)",
    ),
    Pattern(
        "bearer token", rf"\b[Bb]earer ([{_WORD}._~+/=-]{{24,4000}})",
        rf"\b[Bb](?:earer(?: [{_WORD}._~+/=-]{{0,4000}})?|eare|ear|ea|e|)",
    ),
    Pattern(
        "password in an address", r"://[^\s/:@'\"<>]{1,200}:([^\s/:@'\"<>]{3,200})@",
        r"://[^\s/@'\"<>]{0,400}|:/|:", 404,
    ),
    Pattern(
        "private key", rf"(?:{_HEADS}){_BODY}{{0,16000}}?-----END (?:[A-Z]{{1,12}} )?PRIVATE KEY-----",
        rf"(?:{_HEADS}){_BODY}{{0,16100}}|{_BEGUN_KEYS}", 16_200,
    ),
)  # fmt: skip
"""Tokens and keys that can be told from everything else by how they look."""

_CARD = r"(?<![\d.-])(?:\d{13,19}|\d{4}(?: \d{4}){3}|\d{4}(?:-\d{4}){3}|\d{4}[ -]\d{6}[ -]\d{5})(?!\d)"
_BEGUN_CARD = r"(?<![\d.-])(?:\d{1,19}|\d{4}[ -][\d -]{0,15})"

PERSONAL: tuple[Pattern, ...] = (
    Pattern(
        "mail address",
        rf"(?<![{_WORD}._%+-])[{_WORD}._%+-]{{1,64}}@(?:[{_WORD}-]{{1,63}}\.){{1,4}}[A-Za-z]{{2,24}}(?![{_WORD}-])",
        rf"(?<![{_WORD}._%+-])[{_WORD}._%+-]{{1,64}}(?:@[{_WORD}.-]{{0,280}})?", 350,
    ),
    Card("payment card", _CARD, _BEGUN_CARD, 24),
    Pattern(
        "social security number", r"(?<![\d-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\d-])",
        r"(?<![\d-])\d{1,3}(?:-\d{0,2}(?:-\d{0,4})?)?", 12,
    ),
    Pattern(
        "telephone number", r"(?<![\w+])\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}(?!\d)",
        r"(?<![\w+])\+\d{0,3}(?:[ .-]?\(?\d{0,4}\)?){0,5}", 48,
    ),
)  # fmt: skip
"""What tells who someone is: kept out on wish."""
