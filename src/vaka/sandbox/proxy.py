"""The allow-list HTTP proxy that is a command's only way out, and the bridge to it from the command's network.

A name is resolved once, every address it has is checked, and the connection goes to a checked address. An unencrypted
request is sent with the host it was checked for, and one connection carries one request.
"""

import asyncio
import contextlib
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit

import msgspec

from vaka.core.ports.net import NetVerdict
from vaka.core.types.errors import ConfigError, SandboxError

IPAddress: TypeAlias = IPv4Address | IPv6Address

DecideURL: TypeAlias = Callable[[str], NetVerdict]
"""What the rules of the network say of an address: ``Network.decide``."""

ResolveName: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

DEFAULT_PORTS = (80, 443)
"""Where a host of the list may be reached that is listed without a port."""

MAX_HEAD_BYTES = 64 * 1024

CHUNK_BYTES = 64 * 1024

_HOST_LIST_REASONS = ("not_allowed", "port")
"""Words of a verdict that are about the list of hosts, which an address of a listed name need not be in."""

_HOP_BY_HOP_HEADERS = ("proxy-", "connection", "keep-alive", "te", "trailer", "upgrade", "host")

_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")


class ProxyRefusal(Exception):
    """Somebody asked for what is not allowed; ``status`` is what they are told."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ProxyHostPattern(msgspec.Struct, frozen=True):
    """Hosts of the list: a name, the names below one, or a network; with a port, only there."""

    text: str
    name: str = ""
    include_subdomains: bool = False
    include_self: bool = True
    network: str = ""
    port: int = 0

    def matches_name(self, host: str) -> bool:
        """Whether a name is meant; only whole labels count."""
        if self.network:
            return False
        return (self.include_self and host == self.name) or (self.include_subdomains and host.endswith(f".{self.name}"))

    def matches_address(self, host: str) -> bool:
        """Whether a host that is written as an address is meant; a name that has such an address is not."""
        try:
            return bool(self.network) and _unmap_ipv4(ip_address(host)) in ip_network(self.network)
        except ValueError:
            return False

    def matches_port(self, port: int) -> bool:
        """Whether a port is meant."""
        return port == self.port if self.port else port in DEFAULT_PORTS


def parse_allowed_host(text: str) -> ProxyHostPattern:
    """Read ``host``, ``*.host`` (below it), ``.host`` (it and below), an address or a network; ``:port`` may follow."""
    host, port = _split_port(text)
    with contextlib.suppress(ValueError):
        return ProxyHostPattern(text, network=str(ip_network(host.strip("[]"))), port=port)
    name = host.lower().removeprefix("*").removeprefix(".").rstrip(".")
    if not name or not set(name) <= _HOST_CHARACTERS or ".." in name:
        raise ConfigError(
            f"{text!r} is not a host of a list; expected a name, '*.name', '.name', an address or a network"
        )
    return ProxyHostPattern(text, name, host.startswith(("*.", ".")), not host.startswith("*"), port=port)


class Proxy:
    """Listens on a unix socket of its own while it is entered; ``address`` is what a ``Command`` takes."""

    def __init__(
        self, allow: Iterable[str], decide: DecideURL, *, resolve: ResolveName | None = None,
        on_refused: Callable[[str, str], None] | None = None, timeout: float = 30.0, max_connections: int = 256,
    ) -> None:  # fmt: skip
        """``allow``: the list. ``decide``: the rules of the network, which hold too. ``refused`` hears of refusals."""
        self._allow = tuple(parse_allowed_host(text) for text in allow)
        self._decide, self._resolve = decide, resolve or _resolve_with_system
        self._on_refused, self._timeout = on_refused, timeout
        self._connection_slots = asyncio.Semaphore(max_connections)
        self._tasks: set[asyncio.Task[None]] = set()
        self._folder = ""
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"unix:{self._folder}/proxy"

    async def __aenter__(self) -> Self:
        self._folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="vaka-proxy-")
        self._server = await asyncio.start_unix_server(self._serve, f"{self._folder}/proxy", limit=MAX_HEAD_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def vet(self, host: str, port: int) -> list[IPAddress]:
        """Return the addresses to connect to. Raises ``Refusal`` when a host or any of its addresses is not allowed."""
        name = _normalize_host(host)
        fitting = [pattern for pattern in self._allow if pattern.matches_port(port)]
        self._check_rules(_url_of(name, port), f"{name}:{port}")
        if not any(pattern.matches_name(name) or pattern.matches_address(name) for pattern in fitting):
            # Not even looked up: a name that is asked for can carry what its owner must not hear.
            raise ProxyRefusal(403, f"{name}:{port} is not among the allowed hosts")
        addresses = await self._resolve_addresses(name)
        for address in addresses:
            self._check_rules(_url_of(str(address), port), f"{name}:{port}", ignored_reasons=_HOST_LIST_REASONS)
        return addresses

    def _check_rules(self, url: str, authority: str, ignored_reasons: tuple[str, ...] = ()) -> None:
        verdict = self._decide(url)
        if not verdict.allowed and verdict.reason not in ignored_reasons:
            raise ProxyRefusal(403, f"{authority} is refused: {verdict.message or verdict.reason}")

    async def _resolve_addresses(self, name: str) -> list[IPAddress]:
        with contextlib.suppress(ValueError):
            return [_unmap_ipv4(ip_address(name))]
        try:
            found = [_unmap_ipv4(ip_address(text)) for text in await self._resolve(name)]
        except (OSError, ValueError) as error:
            raise ProxyRefusal(502, f"{name} cannot be looked up: {error}") from error
        if not found:
            raise ProxyRefusal(502, f"{name} has no address")
        return list(dict.fromkeys(found))

    # --------------------------------------------------------------------------------------------------------- serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        with contextlib.closing(writer):
            async with self._connection_slots:
                try:
                    await self._handle_request(reader, writer)
                except ProxyRefusal as refusal:
                    await _send_refusal(writer, refusal)
                except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                    await _send_refusal(writer, ProxyRefusal(502, str(error) or "it took too long"))

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._timeout):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError as error:
                raise ProxyRefusal(431, "the head of the request is too large") from error
            method, target, lines = _parse_head(head)
            host, port, first = _parse_target(method, target, lines)
            length = _body_length_of(method, lines)
            there, back = await self._connect(host, port)
        with contextlib.closing(back):
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                back.write(first)
            await asyncio.gather(_relay(reader, back, length), _relay(there, writer, None, close=True))

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            addresses = await self.vet(host, port)
        except ProxyRefusal as refusal:
            if self._on_refused is not None:
                self._on_refused(host, str(refusal))
            raise
        problem = OSError("nobody answers")
        for address in addresses:
            try:
                return await asyncio.open_connection(str(address), port)
            except OSError as error:
                problem = error
        raise problem


def _split_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or (":" in host and not host.endswith("]")):
        return text, 0
    if not 0 < int(port) < 65536:
        raise ConfigError(f"{text!r} names port {port}; expected 1 to 65535")
    return host, int(port)


def _normalize_host(host: str) -> str:
    """Return a host as it is judged. Raises ``Refusal`` for what has more than one reading."""
    name = host.lower().removesuffix(".")
    with contextlib.suppress(ValueError):
        return str(_unmap_ipv4(ip_address(name.removeprefix("[").removesuffix("]"))))
    last = name.rpartition(".")[2]
    # 127.1 and 0x7f000001 are addresses for some and names for others.
    if not name or not set(name) <= _HOST_CHARACTERS or ".." in name or last[:1].isdigit() or len(name) > 253:
        raise ProxyRefusal(400, f"{host!r} is not a host")
    return name


def _unmap_ipv4(address: IPAddress) -> IPAddress:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _url_of(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"https://{shown}/" if port == 443 else f"http://{shown}:{port}/"


def _parse_head(head: bytes) -> tuple[str, str, list[tuple[str, str]]]:
    first, *rest = head[:-4].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ProxyRefusal(400, "that is no request")
    lines: list[tuple[str, str]] = []
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or any(mark in line for mark in "\0\r\n"):
            raise ProxyRefusal(400, "that is no header")
        lines.append((name, value.strip()))
    return words[0], words[1], lines


def _parse_target(method: str, target: str, lines: list[tuple[str, str]]) -> tuple[str, int, bytes]:
    """Return host, port and the head to send there."""
    if method == "CONNECT":
        host, colon, port = target.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ProxyRefusal(400, f"{target!r} is not a host and a port")
        return host.strip("[]"), int(port), b""
    parts = urlsplit(target)
    try:
        name, number = parts.hostname, parts.port or 80
    except ValueError as error:
        raise ProxyRefusal(400, f"{target!r} is not an address") from error
    if parts.scheme != "http" or not name or parts.username is not None or parts.password is not None:
        raise ProxyRefusal(400, f"a proxy takes whole addresses such as http://host/path, not {target!r}")
    kept = [f"{name}: {value}" for name, value in lines if not name.lower().startswith(_HOP_BY_HOP_HEADERS)]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shown = f"[{name}]" if ":" in name else name
    authority = shown if number == 80 else f"{shown}:{number}"
    head = [f"{method} {path} HTTP/1.1", f"Host: {authority}", *kept, "Connection: close"]
    return name, number, "\r\n".join([*head, "", ""]).encode("latin-1")


def _body_length_of(method: str, lines: list[tuple[str, str]]) -> int | None:
    """Return how much follows the head, ``None`` for all there is. Raises ``Refusal`` for two answers to that."""
    if method == "CONNECT":
        return None
    lengths = {value for name, value in lines if name.lower() == "content-length"}
    chunked = any(name.lower() == "transfer-encoding" for name, _ in lines)
    if chunked or len(lengths) > 1 or not all(value.isascii() and value.isdigit() for value in lengths):
        raise ProxyRefusal(411, "the length of the request must be said, once")
    return int(lengths.pop()) if lengths else 0


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, remaining: int | None, *, close: bool = False
) -> None:
    with contextlib.suppress(OSError):
        while remaining is None or remaining > 0:
            piece = await reader.read(CHUNK_BYTES if remaining is None else min(CHUNK_BYTES, remaining))
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
            remaining = None if remaining is None else remaining - len(piece)
        if remaining is None and writer.can_write_eof():
            writer.write_eof()
    if close:
        writer.close()


async def _send_refusal(writer: asyncio.StreamWriter, refusal: ProxyRefusal) -> None:
    body = f"{refusal}\n".encode(errors="replace")
    words = {400: "Bad Request", 403: "Forbidden", 411: "Length Required", 431: "Too Large", 502: "Bad Gateway"}
    head = f"HTTP/1.1 {refusal.status} {words[refusal.status]}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    with contextlib.suppress(OSError):
        writer.write(head.encode() + b"Content-Type: text/plain; charset=utf-8\r\n\r\n" + body)
        await writer.drain()


async def _resolve_with_system(name: str) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


BRIDGE_CHUNK_BYTES = 64 * 1024


class ProxyBridge:
    """Carries bytes from whoever connects to a listening socket to one address and back."""

    def __init__(self, address: str) -> None:
        """``address``: ``unix:/path`` or ``http://host:port``. Raises ``SandboxError`` for anything else."""
        self._socket_path, self._host, self._port = parse_proxy_address(address)
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, listener: socket.socket) -> None:
        """Serve a socket that listens already."""
        listener.setblocking(False)
        self._listener = listener
        self._create_task(self._accept_connections(listener))

    def close(self) -> None:
        """Serve nobody any more."""
        for task in self._tasks:
            task.cancel()
        if self._listener is not None:
            self._listener.close()

    def _create_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_connections(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                connection, _ = await loop.sock_accept(listener)
                self._create_task(self._relay_connection(connection))

    async def _relay_connection(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(sock=connection)
            with contextlib.closing(writer):
                there, back = await self._connect_to_proxy()
                with contextlib.closing(back):
                    await asyncio.gather(_copy_stream(reader, back), _copy_stream(there, writer))

    async def _connect_to_proxy(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._socket_path:
            return await asyncio.open_unix_connection(self._socket_path)
        return await asyncio.open_connection(self._host, self._port)


def parse_proxy_address(address: str) -> tuple[str, str, int]:
    """Return the path of a unix socket, or a host and a port."""
    if address.startswith("unix:/"):
        return address.removeprefix("unix:"), "", 0
    parts = urlsplit(address)
    with contextlib.suppress(ValueError):
        if parts.scheme == "http" and parts.hostname and parts.port and parts.path in ("", "/"):
            return "", parts.hostname, parts.port
    raise SandboxError(f"{address!r} is not the address of a proxy; expected 'unix:/path' or 'http://host:port'")


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(BRIDGE_CHUNK_BYTES):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
