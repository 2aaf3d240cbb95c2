"""The allow-list HTTP proxy that is a command's only way out, and the bridge to it from the command's network.

A name is resolved once, every address it has is checked, and the connection goes to a checked address. An unencrypted
request is sent with the host it was checked for, and one connection carries one request.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple, Self, TypeAlias
from urllib.parse import urlsplit

from vaka.core.ports.net import NetVerdict
from vaka.core.types.errors import ConfigError, SandboxError
from vaka.matching.hosts import HostPattern, IPAddress, parse_host_pattern, unmap_ipv4
from vaka.system.event_loops import write_to_stream

DecideURL: TypeAlias = Callable[[str], NetVerdict]
"""``Network.decide``: whether the network rules allow a URL."""

ResolveName: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

DEFAULT_PORTS = (80, 443)
"""Ports that are allowed for a host listed without one."""

MAX_HEAD_BYTES = 64 * 1024

CHUNK_BYTES = 64 * 1024

_HOST_LIST_REASONS = ("not_allowed", "port")
"""Reasons of a verdict about the list of hosts; the addresses of a listed name need not be listed."""

_HOP_BY_HOP_HEADERS = ("proxy-", "connection", "keep-alive", "te", "trailer", "upgrade", "host")

_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")


MAX_REFUSED_HOSTS = 20
"""Refused hosts that a proxy names."""


class HostLists(NamedTuple):
    """Patterns of the hosts that a proxy connects to."""

    allow: Iterable[str] = ()
    deny: Iterable[str] = ()
    """Hosts that are refused although they are allowed."""
    admit: Iterable[str] = ()
    """Hosts that are allowed although they are denied."""


class RefusedHost(NamedTuple):
    """A host that a command could not reach."""

    host: str
    port: int
    reason: str
    """Why the network rules refuse it; ``""`` if they do not."""
    listed: bool
    """Whether it is among the allowed hosts."""
    denied: bool = False
    """Whether it is among the denied hosts."""


class ProxyRefusal(Exception):
    """The request is not allowed; ``status`` is the status code of the response."""

    def __init__(self, status: int, reason: str, refused: RefusedHost | None = None) -> None:
        super().__init__(reason)
        self.status, self.refused = status, refused


def parse_allowed_host(text: str) -> HostPattern:
    """Parse ``host``, ``*.host`` (below it), ``.host`` (it and below), an address or a network; ``:port`` may follow.

    Raises ``ConfigError``, also for ``*``.
    """
    try:
        pattern = parse_host_pattern(text, _normalize_name)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not pattern.name and pattern.network is None:
        raise ConfigError(f"{text!r} allows every host; name the hosts that commands may reach")
    return pattern


def _normalize_name(text: str) -> str:
    name = text.lower().rstrip(".")
    if not name or not set(name) <= _HOST_CHARACTERS or ".." in name:
        raise ValueError(f"{text!r} is not a host; expected a name, '*.name', '.name', an address or a network")
    return name


class Proxy:
    """Listens on a unix socket of its own while it is entered; ``address`` is what a ``Command`` takes."""

    def __init__(
        self,
        allow: "Iterable[str] | HostLists",
        decide: DecideURL,
        *,
        resolve: ResolveName | None = None,
        on_refused: Callable[[str, str], None] | None = None,
        timeout: float = 30.0,
        max_connections: int = 256,
        folder: str = "",
    ) -> None:
        """``allow``: host patterns. ``decide``: the network rules, which apply as well.

        ``on_refused`` is called with the host and the reason of each refusal. ``folder``: where the socket is; by
        default in a folder of its own.
        """
        lists = allow if isinstance(allow, HostLists) else HostLists(allow)
        self._allow = tuple(parse_allowed_host(text) for text in lists.allow)
        self._deny = tuple(parse_host_pattern(text, _normalize_name) for text in lists.deny)
        self._admit = tuple(parse_allowed_host(text) for text in lists.admit)
        self._refused: dict[tuple[str, int], RefusedHost] = {}
        self._shared_folder = folder
        self._decide, self._resolve = decide, resolve or _resolve_with_system
        self._on_refused, self._timeout = on_refused, timeout
        self._connection_slots = asyncio.Semaphore(max_connections)
        self._tasks: set[asyncio.Task[None]] = set()
        self._folder, self._path = "", ""
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"unix:{self._path}"

    @property
    def refused_hosts(self) -> Sequence[RefusedHost]:
        """The first refused hosts, each once."""
        return tuple(self._refused.values())

    async def __aenter__(self) -> Self:
        if self._shared_folder:
            self._path = f"{self._shared_folder}/{os.urandom(8).hex()}"
        else:
            self._folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="vaka-proxy-")
            self._path = f"{self._folder}/proxy"
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=MAX_HEAD_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._folder:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(self._path)  # noqa: PTH108  # a string

    async def vet(self, host: str, port: int) -> list[IPAddress]:
        """Return the addresses to connect to; ``ProxyRefusal`` if the host or any of its addresses is not allowed."""
        name = _normalize_host(host)
        listed, denied = self._find_listing(name, port)
        self._check_rules(_url_of(name, port), RefusedHost(name, port, "", listed, denied))
        if denied or not listed:
            # Not resolved: a lookup would send the name, which can carry data, to the name server of its owner.
            why = "is among the denied hosts" if denied else "is not among the allowed hosts"
            raise ProxyRefusal(403, f"{name}:{port} {why}", RefusedHost(name, port, "", listed, denied))
        addresses = await self._resolve_addresses(name)
        for address in addresses:
            self._check_rules(_url_of(str(address), port), RefusedHost(name, port, "", listed), _HOST_LIST_REASONS)
        return addresses

    def _find_listing(self, name: str, port: int) -> tuple[bool, bool]:
        """Return whether a host is among the allowed hosts, and among the denied ones."""
        address = _parse_address(name)
        if _is_listed(self._admit, name, port, address):
            return True, False
        denied = any(pattern.matches(name, port, address) for pattern in self._deny)
        return _is_listed(self._allow, name, port, address), denied

    def _check_rules(self, url: str, host: RefusedHost, ignored_reasons: tuple[str, ...] = ()) -> None:
        verdict = self._decide(url)
        if not verdict.allowed and verdict.reason not in ignored_reasons:
            reason = verdict.message or verdict.reason
            refused = host._replace(reason=reason)
            raise ProxyRefusal(403, f"{host.host}:{host.port} is refused: {reason}", refused)

    async def _resolve_addresses(self, name: str) -> list[IPAddress]:
        if (address := _parse_address(name)) is not None:
            return [address]
        try:
            addresses = [unmap_ipv4(ip_address(text)) for text in await self._resolve(name)]
        except (OSError, ValueError) as error:
            raise ProxyRefusal(502, f"{name} cannot be looked up: {error}") from error
        if not addresses:
            raise ProxyRefusal(502, f"{name} has no address")
        return list(dict.fromkeys(addresses))

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
            server_reader, server_writer = await self._connect(host, port)
        with contextlib.closing(server_writer):
            if method == "CONNECT":
                write_to_stream(writer, b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                write_to_stream(server_writer, first)
            await asyncio.gather(_relay(reader, server_writer, length), _relay(server_reader, writer, close=True))

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            addresses = await self.vet(host, port)
        except ProxyRefusal as refusal:
            self._note_refusal(host, refusal)
            raise
        problem = OSError(f"no address of {host} accepts a connection")
        for address in addresses:
            try:
                return await asyncio.open_connection(str(address), port)
            except OSError as error:
                problem = error
        raise problem

    def _note_refusal(self, host: str, refusal: ProxyRefusal) -> None:
        refused = refusal.refused
        if refused is not None and len(self._refused) < MAX_REFUSED_HOSTS:
            self._refused.setdefault((refused.host, refused.port), refused)
        if self._on_refused is not None:
            self._on_refused(host, str(refusal))


def _is_listed(patterns: Iterable[HostPattern], name: str, port: int, address: IPAddress | None) -> bool:
    return any((pattern.port or port in DEFAULT_PORTS) and pattern.matches(name, port, address) for pattern in patterns)


def _normalize_host(host: str) -> str:
    """Return a host in the spelling that is matched. Raises ``ProxyRefusal`` if it is ambiguous."""
    name = host.lower().removesuffix(".")
    address = _parse_address(name.removeprefix("[").removesuffix("]"))
    if address is not None:
        return str(address)
    last = name.rpartition(".")[2]
    # 127.1 and 0x7f000001 are addresses for some parsers and names for others.
    if not name or not set(name) <= _HOST_CHARACTERS or ".." in name or last[:1].isdigit() or len(name) > 253:
        raise ProxyRefusal(400, f"{host!r} is not a host")
    return name


def _parse_address(host: str) -> IPAddress | None:
    try:
        return unmap_ipv4(ip_address(host))
    except ValueError:
        return None


def _url_of(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"https://{shown}/" if port == 443 else f"http://{shown}:{port}/"


def _parse_head(head: bytes) -> tuple[str, str, list[tuple[str, str]]]:
    first, *rest = head[:-4].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ProxyRefusal(400, "the request line is not valid")
    lines: list[tuple[str, str]] = []
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or any(mark in line for mark in "\0\r\n"):
            raise ProxyRefusal(400, "a header line is not valid")
        lines.append((name, value.strip()))
    return words[0], words[1], lines


def _parse_target(method: str, target: str, lines: list[tuple[str, str]]) -> tuple[str, int, bytes]:
    """Return host, port and the head of the request to send there."""
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
        raise ProxyRefusal(400, f"a proxy expects an absolute URL such as http://host/path, not {target!r}")
    kept = [f"{name}: {value}" for name, value in lines if not name.lower().startswith(_HOP_BY_HOP_HEADERS)]
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shown = f"[{name}]" if ":" in name else name
    authority = shown if number == 80 else f"{shown}:{number}"
    head = [f"{method} {path} HTTP/1.1", f"Host: {authority}", *kept, "Connection: close"]
    return name, number, "\r\n".join([*head, "", ""]).encode("latin-1")


def _body_length_of(method: str, lines: list[tuple[str, str]]) -> int | None:
    """Return the length of the body, ``None`` for an open end. Raises ``ProxyRefusal`` if the length is ambiguous."""
    if method == "CONNECT":
        return None
    lengths = {value for name, value in lines if name.lower() == "content-length"}
    chunked = any(name.lower() == "transfer-encoding" for name, _ in lines)
    if chunked or len(lengths) > 1 or not all(value.isascii() and value.isdigit() for value in lengths):
        raise ProxyRefusal(411, "the request needs exactly one Content-Length")
    return int(lengths.pop()) if lengths else 0


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, remaining: int | None = None, *, close: bool = False
) -> None:
    """Copy ``remaining`` bytes, or all until the end; pass the end on."""
    with contextlib.suppress(OSError):
        while remaining is None or remaining > 0:
            chunk = await reader.read(CHUNK_BYTES if remaining is None else min(CHUNK_BYTES, remaining))
            if not chunk:
                break
            write_to_stream(writer, chunk)
            await writer.drain()
            remaining = None if remaining is None else remaining - len(chunk)
        if remaining is None and not writer.is_closing() and writer.can_write_eof():
            writer.write_eof()
    if close:
        writer.close()


async def _send_refusal(writer: asyncio.StreamWriter, refusal: ProxyRefusal) -> None:
    body = f"{refusal}\n".encode(errors="replace")
    words = {400: "Bad Request", 403: "Forbidden", 411: "Length Required", 431: "Too Large", 502: "Bad Gateway"}
    head = f"HTTP/1.1 {refusal.status} {words[refusal.status]}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    with contextlib.suppress(OSError):
        write_to_stream(writer, head.encode() + b"Content-Type: text/plain; charset=utf-8\r\n\r\n" + body)
        await writer.drain()


async def _resolve_with_system(name: str) -> Sequence[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


class ProxyBridge:
    """Relays connections to a listening socket to the address of a proxy."""

    def __init__(self, address: str) -> None:
        """``address``: ``unix:/path`` or ``http://host:port``. Raises ``SandboxError`` for anything else."""
        self._socket_path, self._host, self._port = parse_proxy_address(address)
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, listener: socket.socket) -> None:
        """Serve a socket that already listens."""
        listener.setblocking(False)
        self._listener = listener
        self._create_task(self._accept_connections(listener))

    def close(self) -> None:
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
                proxy_reader, proxy_writer = await self._connect_to_proxy()
                with contextlib.closing(proxy_writer):
                    await asyncio.gather(_relay(reader, proxy_writer), _relay(proxy_reader, writer))

    async def _connect_to_proxy(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._socket_path:
            return await asyncio.open_unix_connection(self._socket_path)
        return await asyncio.open_connection(self._host, self._port)


def parse_proxy_address(address: str) -> tuple[str, str, int]:
    """Return the path of a unix socket, or a host and a port. Raises ``SandboxError`` for anything else."""
    if address.startswith("unix:/"):
        return address.removeprefix("unix:"), "", 0
    parts = urlsplit(address)
    with contextlib.suppress(ValueError):
        if parts.scheme == "http" and parts.hostname and parts.port and parts.path in ("", "/"):
            return "", parts.hostname, parts.port
    raise SandboxError(f"{address!r} is not the address of a proxy; expected 'unix:/path' or 'http://host:port'")
