"""Hosts in rules: ``domain:example.com`` is that host, ``*.example.com`` what is below it, never a look-alike."""

import re
import socket
from ipaddress import IPv6Address, ip_address

from vaka.policy.globs import between

# Controls, blanks and backslashes: readers of addresses disagree on them, and the disagreement is the attack.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ufeff]")
_URL = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?(\[[^\]/?#@]*\]|[^:/?#@\[\]]*)(?::[0-9]*)?(?:[/?#].*)?", re.DOTALL
)
_LABEL = re.compile(r"[a-z0-9_*](?:[a-z0-9_*-]{0,61}[a-z0-9_*])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_TWO_READINGS = re.compile("[ßẞς\u200c\u200d]")
"""Letters that two generations of the standard turn into different names."""


class DomainPattern:
    """Hosts a rule means. Raises ``ValueError`` saying what is wrong with the pattern."""

    def __init__(self, text: str) -> None:
        self._all = text == "*"
        self._below = text.startswith("*.")
        bare = text.removeprefix("*.")
        try:
            name = _name(bare) if not self._all else ""
        except ValueError as error:
            raise ValueError(f"{error}; expected a host such as example.com or *.example.com") from None
        self._labels = [label.split("*") for label in name.split(".")]

    def covers(self, host: str) -> bool:
        """Return whether a host, as ``host_of`` gives it, is meant."""
        if self._all:
            return True
        labels = host.split(".")
        more = len(labels) - len(self._labels)
        if (more < 1) if self._below else more:
            return False
        return all(
            label == parts[0] if len(parts) == 1 else between(parts, label)
            for parts, label in zip(self._labels, labels[more:], strict=True)
        )


def host_of(url: str) -> str:
    """Return the host a URL leads to, in ASCII and lower case. Raises ``ValueError`` when that is not beyond doubt."""
    if _FORBIDDEN.search(url):
        raise ValueError("the URL holds blanks, controls or backslashes")
    match = _URL.fullmatch(url)
    if match is None or not match[1]:
        raise ValueError("the URL is not absolute; expected https://host/path")
    if "*" in match[1]:
        raise ValueError(f"{match[1]!r} is not the name of a host")
    return _name(match[1])


def _name(text: str) -> str:
    if text.startswith("[") and text.endswith("]"):
        return _address(text[1:-1])
    if ":" in text:
        return _address(text)
    if not text.isascii():
        text = _ascii(text)
    name = text.lower().removesuffix(".")
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        return _number(name)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError(f"{text!r} is not the name of a host")
    return name


def _ascii(text: str) -> str:
    if _TWO_READINGS.search(text):
        raise ValueError(f"{text!r} can be read as two hosts")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"{text!r} is not the name of a host") from None


def _number(text: str) -> str:
    """Return an IPv4 address however it is written: ``127.1``, ``0x7f000001`` and ``2130706433`` are one."""
    try:
        return socket.inet_ntoa(socket.inet_aton(text))
    except OSError:
        raise ValueError(f"{text!r} is not an address") from None


def _address(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an address") from None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
