"""The only way out of a command's network: a proxy that connects to hosts of a list and to nobody else.

A name is looked up once, every address it has is judged, and the connection goes to one that was judged. A request that
is not encrypted is sent with the host it was judged for, and one connection carries one request.
"""

import asyncio
import contextlib
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Self, TypeAlias
from urllib.parse import urlsplit

import msgspec

from vaka.core.ports.net import NetVerdict
from vaka.core.types.errors import ConfigError

Address: TypeAlias = IPv4Address | IPv6Address
Decide: TypeAlias = Callable[[str], NetVerdict]
"""What the rules of the network say of an address: ``Network.decide``."""
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

PORTS = (80, 443)
"""Where a host of the list may be reached that is listed without a port."""
HEAD = 64 * 1024
PIECE = 64 * 1024
_LISTS = ("not_allowed", "port")
"""Words of a verdict that are about the list of hosts, which an address of a listed name need not be in."""
_OWN = ("proxy-", "connection", "keep-alive", "te", "trailer", "upgrade", "host")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")


class Refusal(Exception):
    """Somebody asked for what is not allowed; ``status`` is what they are told."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Pattern(msgspec.Struct, frozen=True):
    """Hosts of the list: a name, the names below one, or a network; with a port, only there."""

    text: str
    name: str = ""
    below: bool = False
    itself: bool = True
    network: str = ""
    port: int = 0

    def names(self, host: str) -> bool:
        """Whether a name is meant; only whole labels count."""
        if self.network:
            return False
        return (self.itself and host == self.name) or (self.below and host.endswith(f".{self.name}"))

    def holds(self, host: str) -> bool:
        """Whether a host that is written as an address is meant; a name that has such an address is not."""
        try:
            return bool(self.network) and _plain(ip_address(host)) in ip_network(self.network)
        except ValueError:
            return False

    def opens(self, port: int) -> bool:
        """Whether a port is meant."""
        return port == self.port if self.port else port in PORTS


def read_pattern(text: str) -> Pattern:
    """Read ``host``, ``*.host`` (below it), ``.host`` (it and below), an address or a network; ``:port`` may follow."""
    host, port = _split(text)
    with contextlib.suppress(ValueError):
        return Pattern(text, network=str(ip_network(host.strip("[]"))), port=port)
    name = host.lower().removeprefix("*").removeprefix(".").rstrip(".")
    if not name or not set(name) <= _NAME or ".." in name:
        raise ConfigError(
            f"{text!r} is not a host of a list; expected a name, '*.name', '.name', an address or a network"
        )
    return Pattern(text, name, host.startswith(("*.", ".")), not host.startswith("*"), port=port)


class Proxy:
    """Listens on a unix socket of its own while it is entered; ``address`` is what a ``Command`` takes."""

    def __init__(
        self, allow: Iterable[str], decide: Decide, *, resolve: Resolve | None = None,
        refused: Callable[[str, str], None] | None = None, patience: float = 30.0, most: int = 256,
    ) -> None:  # fmt: skip
        """``allow``: the list. ``decide``: the rules of the network, which hold too. ``refused`` hears of refusals."""
        self._allow = tuple(read_pattern(text) for text in allow)
        self._decide, self._resolve = decide, resolve or _look_up
        self._refused, self._patience = refused, patience
        self._places = asyncio.Semaphore(most)
        self._tasks: set[asyncio.Task[None]] = set()
        self._folder = ""
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"unix:{self._folder}/proxy"

    async def __aenter__(self) -> Self:
        self._folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="vaka-proxy-")
        self._server = await asyncio.start_unix_server(self._serve, f"{self._folder}/proxy", limit=HEAD)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def vet(self, host: str, port: int) -> list[Address]:
        """Return the addresses to connect to. Raises ``Refusal`` when a host or any of its addresses is not allowed."""
        name = _readable(host)
        fitting = [pattern for pattern in self._allow if pattern.opens(port)]
        self._judge(_url(name, port), f"{name}:{port}")
        if not any(pattern.names(name) or pattern.holds(name) for pattern in fitting):
            # Not even looked up: a name that is asked for can carry what its owner must not hear.
            raise Refusal(403, f"{name}:{port} is not among the allowed hosts")
        addresses = await self._addresses(name)
        for address in addresses:
            self._judge(_url(str(address), port), f"{name}:{port}", besides=_LISTS)
        return addresses

    def _judge(self, url: str, shown: str, besides: tuple[str, ...] = ()) -> None:
        verdict = self._decide(url)
        if not verdict.allowed and verdict.reason not in besides:
            raise Refusal(403, f"{shown} is refused: {verdict.message or verdict.reason}")

    async def _addresses(self, name: str) -> list[Address]:
        with contextlib.suppress(ValueError):
            return [_plain(ip_address(name))]
        try:
            found = [_plain(ip_address(text)) for text in await self._resolve(name)]
        except (OSError, ValueError) as error:
            raise Refusal(502, f"{name} cannot be looked up: {error}") from error
        if not found:
            raise Refusal(502, f"{name} has no address")
        return list(dict.fromkeys(found))

    # --------------------------------------------------------------------------------------------------------- serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with contextlib.closing(writer):
            async with self._places:
                try:
                    await self._answer(reader, writer)
                except Refusal as refusal:
                    await _tell(writer, refusal)
                except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                    await _tell(writer, Refusal(502, str(error) or "it took too long"))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._patience):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError as error:
                raise Refusal(431, "the head of the request is too large") from error
            method, target, lines = _read_head(head)
            host, port, first = _target(method, target, lines)
            length = _length(method, lines)
            there, back = await self._connect(host, port)
        with contextlib.closing(back):
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                back.write(first)
            await asyncio.gather(_carry(reader, back, length), _carry(there, writer, None, close=True))

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            addresses = await self.vet(host, port)
        except Refusal as refusal:
            if self._refused is not None:
                self._refused(host, str(refusal))
            raise
        problem = OSError("nobody answers")
        for address in addresses:
            try:
                return await asyncio.open_connection(str(address), port)
            except OSError as error:
                problem = error
        raise problem


def _split(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or (":" in host and not host.endswith("]")):
        return text, 0
    if not 0 < int(port) < 65536:
        raise ConfigError(f"{text!r} names port {port}; expected 1 to 65535")
    return host, int(port)


def _readable(host: str) -> str:
    """Return a host as it is judged. Raises ``Refusal`` for what has more than one reading."""
    name = host.lower().removesuffix(".")
    with contextlib.suppress(ValueError):
        return str(_plain(ip_address(name.removeprefix("[").removesuffix("]"))))
    last = name.rpartition(".")[2]
    # 127.1 and 0x7f000001 are addresses for some and names for others.
    if not name or not set(name) <= _NAME or ".." in name or last[:1].isdigit() or len(name) > 253:
        raise Refusal(400, f"{host!r} is not a host")
    return name


def _plain(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _url(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"https://{shown}/" if port == 443 else f"http://{shown}:{port}/"


def _read_head(head: bytes) -> tuple[str, str, list[tuple[str, str]]]:
    first, *rest = head[:-4].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refusal(400, "that is no request")
    lines: list[tuple[str, str]] = []
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or any(mark in line for mark in "\0\r\n"):
            raise Refusal(400, "that is no header")
        lines.append((name, value.strip()))
    return words[0], words[1], lines


def _target(method: str, target: str, lines: list[tuple[str, str]]) -> tuple[str, int, bytes]:
    """Return host, port and the head to send there."""
    if method == "CONNECT":
        host, colon, port = target.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise Refusal(400, f"{target!r} is not a host and a port")
        return host.strip("[]"), int(port), b""
    parts = urlsplit(target)
    try:
        name, number = parts.hostname, parts.port or 80
    except ValueError as error:
        raise Refusal(400, f"{target!r} is not an address") from error
    if parts.scheme != "http" or not name or parts.username is not None or parts.password is not None:
        raise Refusal(400, f"a proxy takes whole addresses such as http://host/path, not {target!r}")
    kept = [f"{name}: {value}" for name, value in lines if not name.lower().startswith(_OWN)]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shown = f"[{name}]" if ":" in name else name
    authority = shown if number == 80 else f"{shown}:{number}"
    head = [f"{method} {path} HTTP/1.1", f"Host: {authority}", *kept, "Connection: close"]
    return name, number, "\r\n".join([*head, "", ""]).encode("latin-1")


def _length(method: str, lines: list[tuple[str, str]]) -> int | None:
    """Return how much follows the head, ``None`` for all there is. Raises ``Refusal`` for two answers to that."""
    if method == "CONNECT":
        return None
    lengths = {value for name, value in lines if name.lower() == "content-length"}
    chunked = any(name.lower() == "transfer-encoding" for name, _ in lines)
    if chunked or len(lengths) > 1 or not all(value.isascii() and value.isdigit() for value in lengths):
        raise Refusal(411, "the length of the request must be said, once")
    return int(lengths.pop()) if lengths else 0


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None, *, close: bool = False
) -> None:
    with contextlib.suppress(OSError):
        while left is None or left > 0:
            piece = await reader.read(PIECE if left is None else min(PIECE, left))
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
            left = None if left is None else left - len(piece)
        if left is None and writer.can_write_eof():
            writer.write_eof()
    if close:
        writer.close()


async def _tell(writer: asyncio.StreamWriter, refusal: Refusal) -> None:
    body = f"{refusal}\n".encode(errors="replace")
    words = {400: "Bad Request", 403: "Forbidden", 411: "Length Required", 431: "Too Large", 502: "Bad Gateway"}
    head = f"HTTP/1.1 {refusal.status} {words[refusal.status]}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    with contextlib.suppress(OSError):
        writer.write(head.encode() + b"Content-Type: text/plain; charset=utf-8\r\n\r\n" + body)
        await writer.drain()


async def _look_up(name: str) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]
