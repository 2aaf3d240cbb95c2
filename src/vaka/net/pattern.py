"""Patterns for hosts, as people write them in rules."""

import re
from ipaddress import ip_address, ip_network

import msgspec

from vaka.core.types.errors import ConfigError, NetworkRefused
from vaka.net.address import Address, Network, canonical
from vaka.net.url import read_host

_PORT = re.compile(r"(.*?)(?::([0-9]{1,5}))?", re.DOTALL)


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts: one name, the names below one, a network, or all of them; with a port, only on that port."""

    text: str
    name: str = ""
    below: bool = False
    """Names that end in ``.name`` are meant."""
    itself: bool = True
    """``name`` is meant."""
    network: Network | None = None
    port: int = 0

    @property
    def exact(self) -> bool:
        """Whether it means one single name or address."""
        return self.network.num_addresses == 1 if self.network is not None else not self.below

    def matches(self, host: str, port: int, address: Address | None = None) -> bool:
        """Whether the host is meant, by its name or by ``address``, one of its addresses."""
        if self.port and port != self.port:
            return False
        if self.network is not None:
            return address is not None and canonical(address) in self.network
        if not self.name:
            return True
        return (self.itself and host == self.name) or (self.below and host.endswith(f".{self.name}"))


def read_pattern(text: str) -> Pattern:
    """Read ``host``, ``*.host`` (below it), ``.host`` (it and below), an address, a network or ``*``.

    ``:port`` may follow any of them. An IPv6 address that is followed by a port stands in brackets.
    """
    host, port = _split(text)
    if host == "*":
        return Pattern(text=text, below=True, port=port)
    if network := _network(host):
        return Pattern(text=text, network=network, port=port)
    below = host.startswith(("*.", "."))
    try:
        name, _ = read_host(host.removeprefix("*").removeprefix(".") if below else host)
    except NetworkRefused as error:
        raise ConfigError(
            f"{text!r} is not a pattern for hosts; expected a name, '*.name', '.name', an address, a network or '*', "
            "and perhaps ':port'"
        ) from error
    return Pattern(text=text, name=name, below=below, itself=not host.startswith("*"), port=port)


def _split(text: str) -> tuple[str, int]:
    if text.count(":") > 1 and not text.startswith("["):
        return text, 0
    match = _PORT.fullmatch(text)
    host, port = (match[1], int(match[2] or 0)) if match else (text, 0)
    if match and match[2] and not 0 < port < 65536:
        raise ConfigError(f"{text!r} names port {port}; expected 1 to 65535")
    return host, port


def _network(host: str) -> Network | None:
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        if "/" in bare:
            return ip_network(bare)
        return ip_network(str(canonical(ip_address(bare))))
    except ValueError:
        return None
