"""From names to addresses."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import TypeAlias

from vaka.core.types.errors import NetworkUnreachable
from vaka.net.address import Address, canonical

Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a name, best first; ``OSError`` when it cannot."""

_MOST = 64


async def system_resolver(name: str) -> Sequence[str]:
    """Ask the operating system."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def addresses_of(name: str, resolver: Resolver) -> tuple[Address, ...]:
    """Look ``name`` up once and return all its addresses, each once; ``NetworkUnreachable`` when it has none.

    A name that is an address already is looked up by nobody.
    """
    with suppress(ValueError):
        return (canonical(ip_address(name)),)
    try:
        answers = await resolver(name)
    except (OSError, UnicodeError) as error:
        raise NetworkUnreachable(f"{name!r} cannot be looked up: {error}", reason="dns") from error
    try:
        found = dict.fromkeys(canonical(ip_address(answer)) for answer in answers)
    except ValueError as error:
        raise NetworkUnreachable(f"{name!r} has an address that makes no sense: {error}", reason="dns") from error
    if not 0 < len(found) <= _MOST:
        raise NetworkUnreachable(f"{name!r} has {len(found)} addresses; expected 1 to {_MOST}", reason="dns")
    return tuple(found)
