"""Host patterns: the allow and deny lists of networks and proxies, and the domains of permission rules."""

import re
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeAlias

from vaka.matching.globs import matches_parts

IPAddress: TypeAlias = IPv4Address | IPv6Address
IPNetwork: TypeAlias = IPv4Network | IPv6Network


def unmap_ipv4(address: IPAddress) -> IPAddress:
    """Return the IPv4 address that an IPv4-mapped IPv6 address contains, any other address as it is."""
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


# ------------------------------------------------------------------------------------------------ allow and deny lists

_HOST_AND_PORT = re.compile(r"(.*?)(?::([0-9]{1,5}))?", re.DOTALL)


class HostPattern(NamedTuple):
    """One name, the names below one, a network, or all hosts (no name and no network); on one port or on any."""

    text: str
    name: str = ""
    include_subdomains: bool = False
    include_self: bool = True
    network: IPNetwork | None = None
    port: int = 0

    @property
    def exact(self) -> bool:
        """Whether it matches one single name or address."""
        return self.network.num_addresses == 1 if self.network is not None else not self.include_subdomains

    def matches(self, host: str, port: int, address: IPAddress | None = None) -> bool:
        """Return whether a host matches, by its name or by ``address``, one of its addresses."""
        if self.port and port != self.port:
            return False
        if self.network is not None:
            return address is not None and unmap_ipv4(address) in self.network
        if not self.name:
            return True
        return (self.include_self and host == self.name) or (self.include_subdomains and host.endswith(f".{self.name}"))


def parse_host_pattern(text: str, normalize: Callable[[str], str]) -> HostPattern:
    """Parse ``host``, ``*.host`` (below it), ``.host`` (it and below), an address, a network or ``*``.

    ``:port`` may follow any of them; an IPv6 address before a port is in brackets. ``normalize`` returns a name in the
    spelling of the hosts it is matched with, and raises for a name that is not valid. Raises ``ValueError`` for a port
    out of range.
    """
    host, port = _split_port(text)
    if host == "*":
        return HostPattern(text, include_subdomains=True, port=port)
    if network := _parse_network(host):
        return HostPattern(text, network=network, port=port)
    below = host.startswith(("*.", "."))
    name = normalize(host.removeprefix("*").removeprefix(".") if below else host)
    return HostPattern(text, name, include_subdomains=below, include_self=not host.startswith("*"), port=port)


def _split_port(text: str) -> tuple[str, int]:
    if text.count(":") > 1 and not text.startswith("["):
        return text, 0
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not match[2]:
        return text, 0
    if not 0 < int(match[2]) < 65536:
        raise ValueError(f"{text!r} names port {match[2]}; expected 1 to 65535")
    return match[1], int(match[2])


def _parse_network(host: str) -> IPNetwork | None:
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return ip_network(bare) if "/" in bare else ip_network(str(unmap_ipv4(ip_address(bare))))
    except ValueError:
        return None


# ------------------------------------------------------------------------------------------ domains of permission rules

AMBIGUOUS_CHARACTERS = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ufeff]")
"""Controls, blanks and backslashes: parsers of URLs disagree on them, which an attacker could use."""
_URL = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?(\[[^\]/?#@]*\]|[^:/?#@\[\]]*)(?::[0-9]*)?(?:[/?#].*)?", re.DOTALL
)
_LABEL = re.compile(r"[a-z0-9_*](?:[a-z0-9_*-]{0,61}[a-z0-9_*])?")
NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""The last label of a name that programs may read as an IPv4 address."""
_AMBIGUOUS_LETTERS = re.compile("[ßẞς\u200c\u200d]")
"""Letters that IDNA 2003 and IDNA 2008 map to different names."""


class DomainPattern:
    """A domain in a permission rule: ``*``, ``*.name``, or a name with stars in its labels.

    Raises ``ValueError`` for a pattern that is not valid.
    """

    def __init__(self, text: str) -> None:
        self._matches_all = text == "*"
        self._subdomains_only = text.startswith("*.")
        try:
            name = _normalize_host(text.removeprefix("*.")) if not self._matches_all else ""
        except ValueError as error:
            raise ValueError(f"{error}; expected a host such as example.com or *.example.com") from None
        self._labels = [label.split("*") for label in name.split(".")]

    def covers(self, host: str) -> bool:
        """Return whether a host, as ``host_of`` returns it, matches."""
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
    """Return the host of a URL, in ASCII and lower case. Raises ``ValueError`` if it is not unambiguous."""
    if AMBIGUOUS_CHARACTERS.search(url):
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
    if NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):
        return _normalize_ipv4(name)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError(f"{text!r} is not the name of a host")
    return name


def parse_host_rule(text: str) -> HostPattern:
    """Parse a host of a permission rule, as ``parse_host_pattern`` does. Raises ``ValueError``."""
    pattern = parse_host_pattern(text, _normalize_plain_host)
    if pattern.network is not None:
        shown = str(pattern.network.network_address if pattern.exact else pattern.network)
        shown = f"[{shown}]" if pattern.port and ":" in shown else shown
    else:
        sign = ("." if pattern.include_self else "*.") if pattern.include_subdomains else ""
        shown = f"{sign}{pattern.name}" if pattern.name else "*"
    return pattern._replace(text=f"{shown}:{pattern.port}" if pattern.port else shown)


def _normalize_plain_host(text: str) -> str:
    if not text or "*" in text or text.startswith("-"):
        raise ValueError(f"{text!r} is not the name of a host, such as example.com or example.com:8080")
    return _normalize_host(text)


def _encode_idna(text: str) -> str:
    if _AMBIGUOUS_LETTERS.search(text):
        raise ValueError(f"{text!r} can be read as two hosts")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"{text!r} is not the name of a host") from None


def _normalize_ipv4(text: str) -> str:
    """Return an IPv4 address in four numbers: ``127.1``, ``0x7f000001`` and ``2130706433`` are the same."""
    try:
        return socket.inet_ntoa(socket.inet_aton(text))
    except OSError:
        raise ValueError(f"{text!r} is not an address") from None


def _normalize_address(text: str) -> str:
    try:
        return str(unmap_ipv4(ip_address(text)))
    except ValueError:
        raise ValueError(f"{text!r} is not an address") from None
