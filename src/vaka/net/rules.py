"""Rules and limits of a connector: which hosts, ports and addresses may be dialed, and how much a request uses."""

from ipaddress import IPv4Address, IPv6Network, ip_address, ip_network
from typing import Literal, TypeAlias

import msgspec

from vaka.core.ports.net import NetVerdict
from vaka.core.types.errors import ConfigError, NetworkRefused
from vaka.matching.hosts import HostPattern, IPAddress, IPNetwork, parse_host_pattern, unmap_ipv4
from vaka.net.url import ParsedURL, parse_host, parse_url, refuse


class NetworkLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Upper limits of every request; a request may ask for less."""

    connect: float = 10.0
    """Seconds to resolve a name and connect to one of its addresses, and again for the TLS handshake."""
    read: float = 30.0
    """Seconds without a byte in either direction."""
    total: float = 600.0
    max_bytes: int = 256 * 1024 * 1024
    redirects: int = 20
    headers: int = 128
    """Header fields of a response."""
    header_bytes: int = 64 * 1024
    """Bytes of all names and values; the whole head is limited to about 100 KiB in any case."""
    connections: int = 64
    idle_connections: int = 16
    idle: float = 15.0
    """Seconds for which an unused connection is kept."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            smallest = 0 if field in ("redirects", "idle_connections", "idle") else 1e-3
            if not value >= smallest:
                raise ConfigError(f"the limit {field} is {value!r}; expected at least {smallest}")


AddressKind: TypeAlias = Literal[
    "public", "loopback", "private", "cgnat", "link_local", "metadata", "multicast", "unspecified", "reserved"
]
"""What an address is for; only ``public`` ones belong to the internet.

``ipaddress`` classifies some of this, but differently between versions of Python and without IPv4 inside IPv6. So the
blocks are listed here: IPv4 is public unless a block says otherwise, IPv6 only where it is global unicast.
"""

_METADATA = frozenset(
    ip_address(address)
    for address in (
        "169.254.169.254",  # nearly every cloud
        "169.254.169.253",  # its resolver
        "169.254.169.123",  # its clock
        "169.254.170.2",  # credentials of containers
        "169.254.170.23",  # credentials of pods
        "100.100.100.200",  # inside the carriers' block
        "168.63.129.16",  # looks public, answers only from inside
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::253",
        "fd00:ec2::123",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)

_BLOCKS: tuple[tuple[AddressKind, tuple[str, ...]], ...] = (
    ("unspecified", ("0.0.0.0/8", "::/128")),
    ("loopback", ("127.0.0.0/8", "::1/128")),
    ("private", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")),
    ("cgnat", ("100.64.0.0/10",)),
    ("link_local", ("169.254.0.0/16", "fe80::/10")),
    ("multicast", ("224.0.0.0/4", "ff00::/8")),
    ("reserved", ("192.0.0.0/24", "2001::/23")),  # protocol assignments, Teredo tunnels among them
    ("reserved", ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")),  # documentation
    ("reserved", ("192.88.99.0/24", "198.18.0.0/15")),  # relays of 6to4; benchmarks
    ("reserved", ("240.0.0.0/4", "3ffe::/16")),  # broadcast among them; given back
)

_NETWORKS: tuple[tuple[IPNetwork, AddressKind], ...] = tuple(
    (ip_network(block), kind) for kind, blocks in _BLOCKS for block in blocks
)

_GLOBAL_UNICAST = IPv6Network("2000::/3")

_NAT64 = IPv6Network("64:ff9b::/96")

_IPV4_COMPATIBLE = IPv6Network("::/96")

_ISATAP = frozenset((0x00005EFE, 0x02005EFE))


def kind_of(address: IPAddress) -> AddressKind:
    """Return what ``address`` is for; an IPv6 address that contains an IPv4 address has the kind of that one."""
    address = unmap_ipv4(address)
    if address in _METADATA:
        return "metadata"
    for network, kind in _NETWORKS:
        if address in network:
            return kind
    if isinstance(address, IPv4Address):
        return "public"
    inner = embedded_ipv4_of(address)
    if inner is not None and (kind := kind_of(inner)) != "public":
        return kind
    return "public" if address in _GLOBAL_UNICAST or address in _NAT64 else "reserved"


def embedded_ipv4_of(address: IPAddress) -> IPv4Address | None:
    """Return the IPv4 address to which a translator or tunnel sends packets for ``address``."""
    if isinstance(address, IPv4Address):
        return None
    number = int(address)
    if address in _NAT64 or address in _IPV4_COMPATIBLE or (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(number & 0xFFFFFFFF)
    return address.sixtofour


def parse_pattern(text: str) -> HostPattern:
    """Parse a host pattern with names as ``parse_host`` reads them. Raises ``ConfigError``."""
    try:
        return parse_host_pattern(text, lambda name: parse_host(name)[0])
    except ValueError as error:
        raise ConfigError(str(error)) from error
    except NetworkRefused as error:
        raise ConfigError(
            f"{text!r} is not a pattern for hosts; expected a name, '*.name', '.name', an address, a network or '*', "
            "optionally followed by ':port'"
        ) from error


# Ports of other protocols, whose servers could act on an HTTP request.
_NON_HTTP_PORTS = frozenset(
    (
        *(1719, 1720, 1723, 2049, 2375, 2376, 2379, 2380, 3306, 3389, 3659, 4045, 4190, 5060, 5061, 5432, 5900, 6000),
        *(6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 10250, 11211, 27017),
    )
)

_LOOPBACK_NAMES = (".localhost", ".localdomain", "ip6-localhost", "ip6-loopback")

_PRIVATE_NAMES = (".local", ".internal", ".home.arpa")

_METADATA_NAMES = (
    *("metadata", "metadata.google.internal", "metadata.goog", "metadata.tencentyun.com", "metadata.packet.net"),
    *("metadata.platformequinix.com", "instance-data", "instance-data.ec2.internal", "rancher-metadata"),
)

_NAMES_BY_KIND: tuple[tuple[AddressKind, tuple[HostPattern, ...]], ...] = (
    ("metadata", tuple(parse_pattern(name) for name in _METADATA_NAMES)),
    ("loopback", tuple(parse_pattern(name) for name in _LOOPBACK_NAMES)),
    ("private", tuple(parse_pattern(name) for name in _PRIVATE_NAMES)),
)

_KIND_DESCRIPTIONS: dict[AddressKind, str] = {
    "loopback": "this machine itself",
    "private": "in a private network",
    "cgnat": "in a carrier's private network",
    "link_local": "on the local link",
    "metadata": "a cloud's metadata service",
    "multicast": "a multicast address",
    "unspecified": "an unspecified address",
    "reserved": "a reserved address",
}


class NetworkRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where requests may go: by default to every public address, and to no other.

    Hosts are patterns: ``host``, ``*.host`` (below it), ``.host`` (it and below), an address, a network or ``*``, each
    optionally followed by ``:port``. A pattern that is not valid is a ``ConfigError``.
    """

    allow_hosts: tuple[str, ...] = ()
    """If not empty, only these hosts and the trusted ones."""
    deny_hosts: tuple[str, ...] = ()
    """Never these, whatever other rules allow; networks also apply to the addresses that names resolve to."""
    trusted: tuple[str, ...] = ()
    """Hosts and networks that need not be public, such as ``127.0.0.1:8080``; a metadata service only by name."""
    allow_private: bool = False
    allow_loopback: bool = False
    ports: tuple[int, ...] = ()
    """Only these ports; by default 80, 443 and those from 1024 on that no other well-known protocol uses."""
    allow_downgrade: bool = False
    """Follow a redirect from https to http."""

    def __post_init__(self) -> None:
        for text in (*self.allow_hosts, *self.deny_hosts, *self.trusted):
            parse_pattern(text)
        for port in self.ports:
            if not 0 < port < 65536:
                raise ConfigError(f"{port!r} is not a port; expected 1 to 65535")


class RuleChecker:
    """Applies ``NetworkRules`` to URLs and to the addresses that names resolve to."""

    def __init__(self, rules: NetworkRules) -> None:
        self.rules = rules
        self._allowed_hosts = tuple(parse_pattern(text) for text in rules.allow_hosts)
        self._denied_hosts = tuple(parse_pattern(text) for text in rules.deny_hosts)
        self._trusted_hosts = tuple(parse_pattern(text) for text in rules.trusted)
        self._open_kinds: set[AddressKind] = {"public"}
        if rules.allow_loopback:
            self._open_kinds.add("loopback")
        if rules.allow_private:
            self._open_kinds.add("private")

    def decide(self, url: str) -> NetVerdict:
        """Return whether ``url`` may be requested, without resolving its host."""
        try:
            target = parse_url(url)
        except NetworkRefused as error:
            return NetVerdict(reason=error.reason, message=str(error))
        verdict = NetVerdict(url=target.url, host=target.host, port=target.port)
        try:
            self.check(target)
        except NetworkRefused as error:
            return msgspec.structs.replace(verdict, reason=error.reason, message=str(error))
        return verdict

    def check(self, target: ParsedURL) -> None:
        """Refuse a target by its host, port, address or well-known name. Raises ``NetworkRefused``."""
        host = target.host
        port = target.port
        address = target.address
        self._check_denied(host, port, address)
        trusted = _first_match(self._trusted_hosts, host, port, address)
        if self._allowed_hosts and not trusted and not _first_match(self._allowed_hosts, host, port, address):
            refuse("not_allowed", f"{target.authority!r} is not among the allowed hosts")
        if not self._is_port_allowed(port) and not (trusted and trusted.port):
            refuse("port", f"port {port} of {target.host!r} is not allowed")
        if address is not None:
            self.check_address(host, port, address)
            return
        for kind, names in _NAMES_BY_KIND:
            if _first_match(names, host, port):
                self._check_kind(kind, host, port, None)
                return

    def check_redirect(self, source: ParsedURL, target: ParsedURL) -> None:
        """Refuse a redirect to a target that is not allowed, or from https to http. Raises ``NetworkRefused``."""
        if source.scheme == "https" and target.scheme == "http" and not self.rules.allow_downgrade:
            refuse("downgrade", f"{source.origin!r} redirects to unencrypted {target.origin!r}")
        self.check(target)

    def check_address(self, host: str, port: int, address: IPAddress) -> None:
        """Refuse ``address``, an address of ``host``, unless the rules allow it. Raises ``NetworkRefused``."""
        self._check_denied(host, port, address)
        self._check_kind(kind_of(address), host, port, address)

    def _check_denied(self, host: str, port: int, address: IPAddress | None) -> None:
        inner = None if address is None else embedded_ipv4_of(address)
        if denied := _first_match(self._denied_hosts, host, port, address) or _first_match(
            self._denied_hosts, host, port, inner
        ):
            refuse("denied", f"{_describe_host(host, address)} is denied by the rule {denied.text!r}")

    def _check_kind(self, kind: AddressKind, host: str, port: int, address: IPAddress | None) -> None:
        if kind in self._open_kinds:
            return
        if not any(
            _trusts_kind(pattern, kind) and pattern.matches(host, port, address) for pattern in self._trusted_hosts
        ):
            refuse(kind, f"{_describe_host(host, address)} is {_KIND_DESCRIPTIONS[kind]}; only trusted hosts may be")

    def _is_port_allowed(self, port: int) -> bool:
        if self.rules.ports:
            return port in self.rules.ports
        return port in (80, 443) or (port >= 1024 and port not in _NON_HTTP_PORTS)


def _first_match(
    patterns: tuple[HostPattern, ...], host: str, port: int, address: IPAddress | None = None
) -> HostPattern | None:
    return next((pattern for pattern in patterns if pattern.matches(host, port, address)), None)


def _trusts_kind(pattern: HostPattern, kind: AddressKind) -> bool:
    # A trusted network or name does not include the metadata service in it, which hands out credentials.
    return kind != "metadata" or (pattern.exact and (pattern.network is not None or pattern.name in _METADATA_NAMES))


def _describe_host(host: str, address: IPAddress | None) -> str:
    if address is None or str(unmap_ipv4(address)) == host:
        return repr(host)
    return f"{host!r} has the address {str(address)!r}, which"
