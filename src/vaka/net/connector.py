"""The connector: requests under rules and limits, over connections to checked addresses."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from ipaddress import ip_address
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import msgspec

from vaka.core.ports.net import NetHead, NetRequest, NetResponse, NetStream, NetVerdict
from vaka.core.types.errors import Closed, NetworkTimeout, NetworkTooLarge, NetworkUnreachable
from vaka.matching.hosts import IPAddress, unmap_ipv4
from vaka.net.http_message import build_redirected_request, check_request, make_decompressor, redirect_location_of
from vaka.net.rules import NetworkLimits, NetworkRules, RuleChecker
from vaka.net.url import ParsedURL, join_url, parse_proxy_url, parse_url, refuse

if TYPE_CHECKING:
    from vaka.net.exchange import RawResponse, VettedConnectionPool

_MAX_DRAINED_BYTES = 16 * 1024

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


class Connector:
    """A ``Network`` with rules and limits of its own; it keeps connections until it is closed.

    ``proxy``: the URL of a proxy; environment variables are not read. The proxy then resolves names and must check
    their addresses itself; hosts, ports and addresses written in a URL are still checked here.
    """

    def __init__(
        self,
        rules: NetworkRules = NetworkRules(),
        limits: NetworkLimits = NetworkLimits(),
        *,
        resolver: Resolver = system_resolver,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        user_agent: str = "vaka",
    ) -> None:
        self.rules, self.limits = rules, limits
        self._checker = RuleChecker(rules)
        self._resolver = resolver
        self._ssl_context = ssl_context
        self._user_agent = user_agent
        self._proxy = None if proxy is None else parse_proxy_url(proxy)
        self._pool: VettedConnectionPool | None = None
        self._closed = False
        self._open_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def decide(self, url: str) -> NetVerdict:
        """Return whether ``url`` may be requested, and why not; without any network access."""
        return self._checker.decide(url)

    async def send(self, request: NetRequest) -> NetResponse:
        """Send a request and return the whole response, decompressed."""
        async with self.stream(request) as response, aclosing(response.chunks()) as chunks:
            body = b"".join([chunk async for chunk in chunks])
            head = response.head
        return NetResponse(status=head.status, headers=head.headers, url=head.url, body=body)

    @asynccontextmanager
    async def stream(self, request: NetRequest) -> AsyncGenerator[NetStream]:
        """Send a request and yield the response as it arrives; leaving the context closes it."""
        check_request(request)
        target = parse_url(request.url)
        self._checker.check(target)
        pool = await self._ensure_pool()  # before the deadline starts: loading the library takes time
        seconds = min(request.timeout, self.limits.total)
        deadline = RequestDeadline(asyncio.get_running_loop().time() + seconds, seconds)
        raw = await self._send_following_redirects(pool, request, target, deadline)
        try:
            yield NetResponseStream(raw, deadline, min(request.max_bytes, self.limits.max_bytes))
        finally:
            await raw.close()

    async def close(self) -> None:
        """Close every connection; running requests fail, later ones raise ``Closed``."""
        async with self._open_lock:
            self._closed = True
            if self._pool is not None:
                await self._pool.close()

    async def _send_following_redirects(
        self, pool: "VettedConnectionPool", request: NetRequest, target: ParsedURL, deadline: "RequestDeadline"
    ) -> "RawResponse":
        follows = request.redirects > 0
        request = msgspec.structs.replace(request, redirects=min(request.redirects, self.limits.redirects))
        try:
            async with asyncio.timeout_at(deadline.at):
                while True:
                    raw = await pool.send(request, target, self._user_agent)
                    if not follows or (redirected := await self._next_request(raw, request, target)) is None:
                        return raw
                    request, target = redirected
        except TimeoutError as error:
            raise deadline.timeout_error(target.origin) from error

    async def _next_request(
        self, raw: "RawResponse", request: NetRequest, target: ParsedURL
    ) -> tuple[NetRequest, ParsedURL] | None:
        """Return the request that follows a redirect, and close its response; ``None`` if it is not a redirect."""
        is_redirect = True
        try:
            location = redirect_location_of(raw.head)
            if location is None:
                is_redirect = False
                return None
            if request.redirects == 0:
                refuse("redirects", f"{target.origin} redirects once more than is allowed")
            new_target = join_url(target, location)
            self._checker.check_redirect(target, new_target)
            await _drain_body(raw)
            return build_redirected_request(request, raw.head.status, target, new_target), new_target
        finally:
            if is_redirect:
                await raw.close()

    async def _ensure_pool(self) -> "VettedConnectionPool":
        async with self._open_lock:
            if self._closed:
                raise Closed("the connector was closed")
            if self._pool is None:
                self._pool = await asyncio.to_thread(self._create_pool)
            return self._pool

    def _create_pool(self) -> "VettedConnectionPool":
        # Called in a thread: the library and the certificates of the machine are slow to load.
        from vaka.net.exchange import VettedConnectionPool  # noqa: PLC0415 - loaded with the first request

        return VettedConnectionPool(self._resolve_and_check, self.limits, self._ssl_context, self._proxy)

    async def _resolve_and_check(self, host: str, port: int) -> tuple[IPAddress, ...]:
        """Resolve a host once and return its addresses. Raises ``NetworkRefused`` if any of them is not allowed."""
        addresses = await resolve_addresses(host, self._resolver)
        if self._proxy is None:
            for address in addresses:
                self._checker.check_address(host, port, address)
        return addresses


class RequestDeadline(msgspec.Struct, frozen=True):
    """The deadline of a request, by the clock of the event loop, and its length in seconds."""

    at: float
    seconds: float

    def timeout_error(self, origin: str) -> NetworkTimeout:
        return NetworkTimeout(f"{origin} took longer than the {self.seconds:g} s it had", reason="total")


class NetResponseStream:
    """A response whose body is still arriving; implements ``NetStream``."""

    def __init__(self, response: "RawResponse", deadline: RequestDeadline, max_bytes: int) -> None:
        self._response = response
        self._deadline = deadline
        self._max_bytes = max_bytes
        self._received_bytes = self._decompressed_bytes = 0

    @property
    def head(self) -> NetHead:
        return self._response.head

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the decompressed body as it arrives."""
        data = await self._read()
        if not data:
            return
        decompressor = make_decompressor(self.head.header_values("content-encoding"))
        while data:
            for chunk in decompressor.feed(data):
                self._decompressed_bytes += len(chunk)
                self._check_size(self._decompressed_bytes, "unpacks to")
                yield chunk
            data = await self._read()
        decompressor.finish()

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout_at(self._deadline.at):
                data = await self._response.read()
        except TimeoutError as error:
            raise self._deadline.timeout_error(self._response.origin) from error
        if data and not self._received_bytes:
            self._check_size(_content_length_of(self.head), "has")
        self._received_bytes += len(data)
        self._check_size(self._received_bytes, "has")
        return data

    def _check_size(self, size: int, verb: str) -> None:
        if size > self._max_bytes:
            raise NetworkTooLarge(f"the body {verb} {size} bytes or more, {self._max_bytes} are allowed", reason="body")


def _content_length_of(head: NetHead) -> int:
    length = head.header("content-length")
    return int(length) if length.isdecimal() else 0


async def _drain_body(raw: "RawResponse") -> None:
    """Read the short body of a redirect, so that the connection can be used again."""
    if raw.head.header("content-length") and _content_length_of(raw.head) <= _MAX_DRAINED_BYTES:
        while await raw.read():
            pass
