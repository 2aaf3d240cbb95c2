"""Wildcard and host patterns, matched in one pass, so that no rule can be slow; a host never matches a look-alike."""

import re
import socket
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address


def matches_wildcards(pattern: str, text: str) -> bool:
    """Return whether ``text`` is ``pattern``, where each ``*`` stands for any characters, or none."""
    if "*" not in pattern:
        return pattern == text
    return matches_parts(pattern.split("*"), text)


def matches_parts(parts: Sequence[str], text: str) -> bool:
    """Return whether ``text`` is ``parts`` in order, with anything between them."""
    first, *middle, last = parts
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def matches_prefix(pattern: str, text: str) -> bool:
    """Return whether ``text`` fits, where a last ``" *"`` or ``":*"`` means "with or without more words"."""
    bare = pattern[:-2] if pattern.endswith((" *", ":*")) else None
    if bare is None or "*" in bare:
        return matches_wildcards(pattern, text)
    return text == bare or text.startswith(f"{bare} ")


# Controls, blanks and backslashes: readers of addresses disagree on them, and the disagreement is the attack.
_AMBIGUOUS_CHARACTERS = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ufeff]")

_URL = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?(\[[^\]/?#@]*\]|[^:/?#@\[\]]*)(?::[0-9]*)?(?:[/?#].*)?", re.DOTALL
)

_LABEL = re.compile(r"[a-z0-9_*](?:[a-z0-9_*-]{0,61}[a-z0-9_*])?")

_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")

_AMBIGUOUS_LETTERS = re.compile("[ßẞς\u200c\u200d]")
"""Letters that two generations of the standard turn into different names."""


class DomainPattern:
    """Hosts a rule means. Raises ``ValueError`` saying what is wrong with the pattern."""

    def __init__(self, text: str) -> None:
        self._matches_all = text == "*"
        self._subdomains_only = text.startswith("*.")
        bare = text.removeprefix("*.")
        try:
            name = _normalize_host(bare) if not self._matches_all else ""
        except ValueError as error:
            raise ValueError(f"{error}; expected a host such as example.com or *.example.com") from None
        self._labels = [label.split("*") for label in name.split(".")]

    def covers(self, host: str) -> bool:
        """Return whether a host, as ``host_of`` gives it, is meant."""
        if self._matches_all:
            return True
        labels = host.split(".")
        more = len(labels) - len(self._labels)
        if (more < 1) if self._subdomains_only else more:
            return False
        return all(
            label == parts[0] if len(parts) == 1 else matches_parts(parts, label)
            for parts, label in zip(self._labels, labels[more:], strict=True)
        )


def host_of(url: str) -> str:
    """Return the host a URL leads to, in ASCII and lower case. Raises ``ValueError`` when that is not beyond doubt."""
    if _AMBIGUOUS_CHARACTERS.search(url):
        raise ValueError("the URL holds blanks, controls or backslashes")
    match = _URL.fullmatch(url)
    if match is None or not match[1]:
        raise ValueError("the URL is not absolute; expected https://host/path")
    if "*" in match[1]:
        raise ValueError(f"{match[1]!r} is not the name of a host")
    return _normalize_host(match[1])


def _normalize_host(text: str) -> str:
    if text.startswith("[") and text.endswith("]"):
        return _normalize_address(text[1:-1])
    if ":" in text:
        return _normalize_address(text)
    if not text.isascii():
        text = _encode_idna(text)
    name = text.lower().removesuffix(".")
    if _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):
        return _normalize_ipv4(name)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError(f"{text!r} is not the name of a host")
    return name


def _encode_idna(text: str) -> str:
    if _AMBIGUOUS_LETTERS.search(text):
        raise ValueError(f"{text!r} can be read as two hosts")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"{text!r} is not the name of a host") from None


def _normalize_ipv4(text: str) -> str:
    """Return an IPv4 address however it is written: ``127.1``, ``0x7f000001`` and ``2130706433`` are one."""
    try:
        return socket.inet_ntoa(socket.inet_aton(text))
    except OSError:
        raise ValueError(f"{text!r} is not an address") from None


def _normalize_address(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an address") from None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
