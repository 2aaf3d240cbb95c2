"""IP addresses: what each is for (only ``public`` ones belong to the internet), and resolving names to them.

``ipaddress`` classifies some of this, but differently between versions of Python and without IPv4 inside IPv6. So the
blocks are listed here: IPv4 is public unless a block says otherwise, IPv6 only where it is global unicast.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from typing import Literal, TypeAlias

from vaka.core.types.errors import NetworkUnreachable
from vaka.matching.hosts import IPAddress, unmap_ipv4

AddressKind: TypeAlias = Literal[
    "public", "loopback", "private", "cgnat", "link_local", "metadata", "multicast", "unspecified", "reserved"
]

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

_BLOCK_KINDS: tuple[tuple[str, AddressKind], ...] = (
    ("0.0.0.0/8", "unspecified"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "cgnat"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link_local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),  # protocol assignments
    ("192.0.2.0/24", "reserved"),  # documentation
    ("192.88.99.0/24", "reserved"),  # relays of 6to4
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "reserved"),  # benchmarks
    ("198.51.100.0/24", "reserved"),  # documentation
    ("203.0.113.0/24", "reserved"),  # documentation
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),  # broadcast among them
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link_local"),
    ("ff00::/8", "multicast"),
    ("2001::/23", "reserved"),  # protocol assignments, Teredo tunnels among them
    ("2001:db8::/32", "reserved"),  # documentation
    ("3ffe::/16", "reserved"),  # given back
    ("3fff::/20", "reserved"),  # documentation
)

_IPV4_BLOCKS: tuple[tuple[IPv4Network, AddressKind], ...] = tuple(
    (IPv4Network(block), kind) for block, kind in _BLOCK_KINDS if ":" not in block
)

_IPV6_BLOCKS: tuple[tuple[IPv6Network, AddressKind], ...] = tuple(
    (IPv6Network(block), kind) for block, kind in _BLOCK_KINDS if ":" in block
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
    if isinstance(address, IPv4Address):
        for block, kind in _IPV4_BLOCKS:
            if address in block:
                return kind
        return "public"
    for prefix, kind in _IPV6_BLOCKS:
        if address in prefix:
            return kind
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


Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a name, best first; ``OSError`` when it cannot."""

_MAX_ADDRESSES = 64


async def system_resolver(name: str) -> Sequence[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


async def resolve_addresses(name: str, resolver: Resolver) -> tuple[IPAddress, ...]:
    """Resolve ``name`` once and return its distinct addresses; ``NetworkUnreachable`` when it has none.

    A name that is an address is not looked up.
    """
    with suppress(ValueError):
        return (unmap_ipv4(ip_address(name)),)
    try:
        answers = await resolver(name)
    except (OSError, UnicodeError) as error:
        raise NetworkUnreachable(f"{name!r} cannot be looked up: {error}", reason="dns") from error
    try:
        addresses = dict.fromkeys(unmap_ipv4(ip_address(answer)) for answer in answers)
    except ValueError as error:
        raise NetworkUnreachable(f"{name!r} has an address that is not valid: {error}", reason="dns") from error
    if not 0 < len(addresses) <= _MAX_ADDRESSES:
        count = len(addresses)
        raise NetworkUnreachable(f"{name!r} has {count} addresses; expected 1 to {_MAX_ADDRESSES}", reason="dns")
    return tuple(addresses)
