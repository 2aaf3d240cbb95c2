"""Decide whether a value is a secret: random or chosen, not a placeholder, a reference or a word of code."""

import base64
import binascii
import math
import re
from collections import Counter
from functools import cache


def has_digit(value: str) -> bool:
    return any(char in "0123456789" for char in value)


def entropy(value: str) -> float:
    """Return the Shannon entropy of the characters of a text, in bits per character."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values()) if size else 0.0


def is_mixed(value: str) -> bool:
    """Whether a token has digits and letters and does not repeat a few characters."""
    return has_digit(value) and any(char.isalpha() for char in value) and entropy(value) >= 2.5


def is_key_id(value: str) -> bool:
    """Whether the id of a key has digits, or as many different characters as a random one."""
    return has_digit(value) or entropy(value) >= 3


def holds_json(value: str) -> bool:
    """Whether a token goes on with the base64 of ``{"`` after its prefix of three characters."""
    return value[3:6] == "eyJ"


def is_credentials(value: str) -> bool:
    """Whether a text is ``user:password`` in base64."""
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in decoded[1:-1] and decoded.isprintable()


@cache  # slow to compile, and most processes see no value that must be decided
def _placeholder() -> re.Pattern[str]:
    return re.compile(
        r"(?i)[\W_]*(?:your|my|the|an?|some|enter|insert|replace|change|example|sample|dummy|fake|test|foo|bar|xxx+|yyy+|zzz+|todo|"
        r"none|null|nil|true|false|undefined|default|optional|required|redacted|hidden|masked|removed|secret|password|passwd|"
        r"passphrase|pass|pwd|token|key|api|user|username|auth|access|client|value|string|str|text|bytes|int|number|object|char|"
        r"here|me|it|name|id|data|field|type|not|set|empty|env|environ|config|settings?|account|login|new|old|current|"
        r"admin|root|db|database|public|private|1234?|[\W_])*\Z"
    )


_REFERENCE = re.compile(r"[$%{<(\[*@&!#|]|\.{2,}|/{1,2}[\w.]|\\|[\w.]+[(\[{]|.*(?:\$\{|\{\{|%\(|\]\(|<[a-z_]+>)")
_IDENTIFIER = re.compile(
    r"_*(?:[A-Za-z]+[0-9]{0,3}|[0-9]{1,3})(?:[_./:-]+(?:[A-Za-z]+[0-9]{0,3}|[0-9]{1,3}))*[_./:=-]*\Z"
)
_DIGIT_EDGE = re.compile(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")
_WORD_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def _is_placeholder(value: str) -> bool:
    return bool(_placeholder().match(value) or _REFERENCE.match(value)) or len(set(value)) < 4


def is_password(value: str) -> bool:
    """Whether a quoted value after a name such as ``password`` may be one: not a placeholder, reference or label."""
    return not _is_placeholder(value)


def is_bare_password(value: str) -> bool:
    """Whether an unquoted value may be a password: not code, a word or a placeholder."""
    return has_digit(value) and any(map(str.isalpha, value)) and is_env_password(value)


def is_env_password(value: str) -> bool:
    """Whether the value of an environment variable may be a password."""
    return not _is_placeholder(value) and not re.search(r"[()\[\]{}<>]", value)


def is_key(value: str) -> bool:
    """Whether a value after a name such as ``api_key`` is random: it mixes digits and letters in short pieces."""
    if not has_digit(value) or _is_placeholder(value) or _IDENTIFIER.match(value):
        return False
    pieces = _WORD_PARTS.findall(value)
    words = sum(len(piece) for piece in pieces if len(piece) >= 4 and piece.isalpha() and not piece.isupper())
    is_random = len(_DIGIT_EDGE.findall(value)) >= 4 or words <= 0.6 * sum(map(len, pieces))
    return is_random and entropy(value) >= (2.6 if len(value) < 20 else 3.0) and any(map(str.isalpha, value))


_SCHEMES_WITH_DIGITS = ("aws4-hmac-sha256", "aws4-ecdsa-p256-sha256")
"""Names of schemes of an authorization header, which credentials follow."""


def is_header_value(value: str) -> bool:
    """Whether the value of an authorization header is a credential: not the name of a scheme, or its beginning."""
    if any(scheme.startswith(value.lower()) for scheme in _SCHEMES_WITH_DIGITS):
        return False
    return has_digit(value) and not _is_placeholder(value)


def is_url_password(value: str) -> bool:
    """Whether the password of a URL is literal: not a variable, a placeholder in brackets or stars."""
    return not _REFERENCE.match(value) and len(set(value)) > 1


def is_uncommon(value: str) -> bool:
    return not value.isdigit() and is_url_password(value)
