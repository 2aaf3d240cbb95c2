"""The formats of secrets: tokens with a fixed prefix, and values that follow a context such as ``password =``.

They are in secret_rules.toml. ``vaka.matching.secrets`` turns them into expressions.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from vaka.matching import secret_values

MAX_CONTEXT = 160
"""Characters before a value on which its recognition may depend."""

_CHECKS: Mapping[str, Callable[[str], bool]] = {
    check.__name__: check
    for check in (
        secret_values.has_digit,
        secret_values.holds_json,
        secret_values.is_bare_password,
        secret_values.is_credentials,
        secret_values.is_env_password,
        secret_values.is_header_value,
        secret_values.is_key,
        secret_values.is_key_id,
        secret_values.is_mixed,
        secret_values.is_password,
        secret_values.is_uncommon,
        secret_values.is_url_password,
    )
}


class Chars(NamedTuple):
    """``least`` to ``most`` characters of a class; more of them after that many are not a secret of this kind."""

    chars: str
    least: int
    most: int


class Words(NamedTuple):
    """One of several literal texts."""

    words: tuple[str, ...]


class SecretRule(NamedTuple):
    """A kind of secret: what stands before it, what it consists of, and a check that no expression can do."""

    name: str
    parts: tuple[Chars | Words, ...]
    context: str = ""
    """An expression of at most ``MAX_CONTEXT`` characters directly before the value; empty: the edge of a word."""
    keywords: tuple[str, ...] = ()
    """Lower case; every text with a match has one of them. Empty: the words of the first part."""
    after: str = ""
    """An expression that must follow the value."""
    is_secret: Callable[[str], bool] | None = None


class SecretRules(NamedTuple):
    """All rules."""

    tokens: tuple[SecretRule, ...]
    """Tokens that are recognizable by their first characters, at the edge of a word."""
    contextual: tuple[SecretRule, ...]
    """Values that are recognizable by what stands before them."""


@cache
def load_secret_rules() -> SecretRules:
    """Return the rules of secret_rules.toml."""
    return parse_secret_rules(Path(__file__).with_name("secret_rules.toml").read_text("utf-8"))


def parse_secret_rules(text: str) -> SecretRules:
    """Return the rules of a TOML document. Raises ``ValueError``, which names the rule that is wrong."""
    tables = tomllib.loads(text)
    tokens = [_parse(_parse_token, row) for row in tables["tokens"]]
    composed = [_parse(lambda row: _parse_rule(**row), row) for row in tables["composed"]]
    fragments: Mapping[str, str] = tables["fragments"]
    contextual = [_parse(lambda row: _parse_rule(**row, fragments=fragments), row) for row in tables["contextual"]]
    return SecretRules((*tokens, *composed), tuple(contextual))


def _parse(parse: Callable[[Any], SecretRule], row: object) -> SecretRule:
    try:
        return parse(row)
    except (TypeError, ValueError) as error:
        raise ValueError(f"secret_rules.toml: the rule {row!r} is wrong: {error}") from error


def _parse_token(row: Sequence[Any]) -> SecretRule:
    prefixes, chars, least, most, *check = row
    parts = (_parse_part([prefixes]), _parse_part([chars, least, most]))
    return SecretRule(prefixes.split()[0], parts, is_secret=_find_check(*check))


def _parse_rule(
    *,
    name: str,
    parts: Sequence[Sequence[object]],
    context: str | Sequence[str] = "",
    keywords: Sequence[str] = (),
    after: str = "",
    check: str = "",
    fragments: Mapping[str, str] | None = None,
) -> SecretRule:
    expression = re.sub(r"<([a-z_]+)>", lambda match: _find_fragment(fragments or {}, match[1]), "".join(context))
    return SecretRule(name, tuple(map(_parse_part, parts)), expression, tuple(keywords), after, _find_check(check))


def _parse_part(part: Sequence[object]) -> Chars | Words:
    match part:
        case [str(words)] if words.split():
            return Words(tuple(words.split()))
        case [str(chars), int(least), int(most)] if 0 <= least <= most:
            return Chars(chars, least, most)
        case _:
            raise ValueError(f"expected [words] or [characters, least, most], got {part!r}")


def _find_check(name: str = "") -> Callable[[str], bool] | None:
    if name and name not in _CHECKS:
        raise ValueError(f"there is no check {name!r}; the checks are {', '.join(_CHECKS)}")
    return _CHECKS[name] if name else None


def _find_fragment(fragments: Mapping[str, str], name: str) -> str:
    if name not in fragments:
        raise ValueError(f"there is no fragment {name!r}; the fragments are {', '.join(fragments)}")
    return fragments[name]


_KEY_KINDS = r"(?:[A-Z0-9]{1,12} ){0,3}"
PEM_BEGIN = rf"-----BEGIN {_KEY_KINDS}(?:PRIVATE KEY(?: BLOCK)?|Static key V1)-----"
PEM_END = rf"-----END {_KEY_KINDS}(?:PRIVATE KEY(?: BLOCK)?|Static key V1)-----"
PEM_BODY = r"[A-Za-z0-9+/=\s:,.()@<>-]"
MAX_PEM = 16_000
