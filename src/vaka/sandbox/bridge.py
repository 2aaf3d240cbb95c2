"""From a port in a command's own network to the proxy outside of it."""

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit

from vaka.core.types.errors import SandboxError

PIECE = 64 * 1024


class Bridge:
    """Carries bytes from whoever connects to a listening socket to one address and back."""

    def __init__(self, address: str) -> None:
        """``address``: ``unix:/path`` or ``http://host:port``. Raises ``SandboxError`` for anything else."""
        self._path, self._host, self._port = read_address(address)
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, listener: socket.socket) -> None:
        """Serve a socket that listens already."""
        listener.setblocking(False)
        self._listener = listener
        self._start(self._accept(listener))

    def close(self) -> None:
        """Serve nobody any more."""
        for task in self._tasks:
            task.cancel()
        if self._listener is not None:
            self._listener.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                connection, _ = await loop.sock_accept(listener)
                self._start(self._carry(connection))

    async def _carry(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(sock=connection)
            with contextlib.closing(writer):
                there, back = await self._dial()
                with contextlib.closing(back):
                    await asyncio.gather(_copy(reader, back), _copy(there, writer))

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._path:
            return await asyncio.open_unix_connection(self._path)
        return await asyncio.open_connection(self._host, self._port)


def read_address(address: str) -> tuple[str, str, int]:
    """Return the path of a unix socket, or a host and a port."""
    if address.startswith("unix:/"):
        return address.removeprefix("unix:"), "", 0
    parts = urlsplit(address)
    with contextlib.suppress(ValueError):
        if parts.scheme == "http" and parts.hostname and parts.port and parts.path in ("", "/"):
            return "", parts.hostname, parts.port
    raise SandboxError(f"{address!r} is not the address of a proxy; expected 'unix:/path' or 'http://host:port'")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
