"""The addresses of running servers, in their store: a command finds there where a new sign-in link must lead."""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec

from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import StoreError

ADDRESS_PREFIX = "server/addresses/"
CONNECT_SECONDS = 2.0


class _Address(msgspec.Struct, frozen=True):
    host: str
    """The name of the machine."""
    url: str
    pid: int
    """The process that listens, or the supervisor of the processes that listen."""
    public_url: str = ""
    """The address at which other machines reach the server, if it is another one."""


class RecordedAddress:
    """The stored address of a server that runs."""

    def __init__(self, values: KeyValueStore, key: str) -> None:
        self._values, self._key = values, key

    async def remove(self) -> None:
        """Forget the address; does nothing if the store cannot be reached."""
        with suppress(StoreError):
            await self._values.put(self._key, None)


async def record_address(values: KeyValueStore, url: str, pid: int, public_url: str = "") -> RecordedAddress:
    """Store the address at which browsers of this machine reach the server of a process, and its public address."""
    host = socket.gethostname()
    key = f"{ADDRESS_PREFIX}{host}/{pid}"
    await values.put(key, msgspec.to_builtins(_Address(host, url, pid, public_url)))
    return RecordedAddress(values, key)


async def find_addresses(values: KeyValueStore) -> Sequence[str]:
    """Return the addresses of the servers of a store that answer on this machine; forget those that do not.

    A server with a public address is returned with that one.
    """
    found: list[str] = []
    for key in await values.keys(f"{ADDRESS_PREFIX}{socket.gethostname()}/"):
        stored = await values.get(key)
        try:
            address = msgspec.convert(stored, _Address)
        except msgspec.ValidationError:
            continue
        if _is_running(address):
            found.append(address.public_url or address.url)
        else:
            await values.put(key, None)
    return list(dict.fromkeys(found))


def _is_running(address: _Address) -> bool:
    """Return whether the process of a server runs, as this user, and its port is open.

    A port alone proves nothing: another user may listen on it since, and would get the token of a link.
    """
    parts = urlsplit(address.url)
    try:
        os.kill(address.pid, 0)
        socket.create_connection((parts.hostname or "", parts.port or 80), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def login_url(url: str, link: str) -> str:
    """Return the address that logs a browser in with the token of a link."""
    return f"{url.rstrip('/')}/console/login?ticket={link}"
