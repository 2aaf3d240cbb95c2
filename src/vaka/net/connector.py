"""The connector: requests under rules and limits, over connections to vetted addresses."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from vaka.core.ports.net import NetHead, NetRequest, NetResponse, NetStream, NetVerdict
from vaka.core.types.errors import Closed, NetworkTimeout, NetworkTooLarge
from vaka.net.address import IPAddress, Resolver, resolve_addresses, system_resolver
from vaka.net.http_message import build_redirected_request, check_request, make_decompressor, redirect_location_of
from vaka.net.rules import NetworkLimits, NetworkRules, RuleChecker
from vaka.net.url import ParsedURL, join_url, parse_proxy_url, parse_url, refuse

if TYPE_CHECKING:
    from vaka.net.exchange import RawResponse, VettedConnectionPool

_MAX_DRAINED_BYTES = 16 * 1024


class Connector:
    """A ``Network`` with rules and limits of its own; it keeps connections until it is closed.

    ``proxy`` is the only way to have one: the environment is not asked. Names are then looked up by the proxy, which
    must judge the addresses itself; what is written in a URL is still judged here.
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
        self._resolver, self._ssl_context, self._user_agent = resolver, ssl_context, user_agent
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
        """Say whether ``url`` may be asked, and why not. Looks nothing up and dials nobody."""
        return self._checker.decide(url)

    async def send(self, request: NetRequest) -> NetResponse:
        """Send a request and return the whole answer, unpacked."""
        async with self.stream(request) as answer, aclosing(answer.chunks()) as chunks:
            body = b"".join([chunk async for chunk in chunks])
            head = answer.head
        return NetResponse(status=head.status, headers=head.headers, url=head.url, body=body)

    @asynccontextmanager
    async def stream(self, request: NetRequest) -> AsyncGenerator[NetStream]:
        """Send a request and hand over the answer as it arrives; leaving the context ends it."""
        check_request(request)
        target = parse_url(request.url)
        self._checker.check(target)
        wire = await self._ensure_pool()  # before the clock starts: loading what it needs is not the request's fault
        seconds = min(request.timeout, self.limits.total)
        deadline = RequestDeadline(asyncio.get_running_loop().time() + seconds, seconds)
        reply = await self._send_following_redirects(wire, request, target, deadline)
        try:
            yield NetResponseStream(reply, deadline, min(request.max_bytes, self.limits.max_bytes))
        finally:
            await reply.close()

    async def close(self) -> None:
        """Close every connection; requests under way fail, later ones raise ``Closed``."""
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
                    reply = await pool.send(request, target, self._user_agent)
                    if not follows or (onward := await self._next_request(reply, request, target)) is None:
                        return reply
                    request, target = onward
        except TimeoutError as error:
            raise deadline.timeout_error(target.origin) from error

    async def _next_request(
        self, reply: "RawResponse", request: NetRequest, target: ParsedURL
    ) -> tuple[NetRequest, ParsedURL] | None:
        """Return the request that follows a redirect, ``None`` when ``reply`` is none; a redirect is closed."""
        kept = False
        try:
            place = redirect_location_of(reply.head)
            if place is None:
                kept = True
                return None
            if request.redirects == 0:
                refuse("redirects", f"{target.origin} redirects once more than is allowed")
            onward = join_url(target, place)
            self._checker.check_redirect(target, onward)
            await _drain_body(reply)
            return build_redirected_request(request, reply.head.status, target, onward), onward
        finally:
            if not kept:
                await reply.close()

    async def _ensure_pool(self) -> "VettedConnectionPool":
        async with self._open_lock:
            if self._closed:
                raise Closed("the connector was closed")
            if self._pool is None:
                self._pool = await asyncio.to_thread(self._create_pool)
            return self._pool

    def _create_pool(self) -> "VettedConnectionPool":
        # In a thread: the library and the machine's certificates take their time to load.
        from vaka.net.exchange import VettedConnectionPool  # noqa: PLC0415 - who sends nothing does not pay for the library

        return VettedConnectionPool(self._resolve_and_check, self.limits, self._ssl_context, self._proxy)

    async def _resolve_and_check(self, host: str, port: int) -> tuple[IPAddress, ...]:
        """Look a host up, once, and return its addresses; one that may not be dialed condemns them all."""
        addresses = await resolve_addresses(host, self._resolver)
        if self._proxy is None:
            for address in addresses:
                self._checker.check_address(host, port, address)
        return addresses


class RequestDeadline(msgspec.Struct, frozen=True):
    """When a request must be over, by the loop's clock, and after how long that is."""

    at: float
    seconds: float

    def timeout_error(self, origin: str) -> NetworkTimeout:
        """Return the error for having missed it."""
        return NetworkTimeout(f"{origin} took longer than the {self.seconds:g} s it had", reason="total")


class NetResponseStream:
    """An answer whose body is still arriving; see ``NetStream``."""

    def __init__(self, reply: "RawResponse", deadline: RequestDeadline, max_bytes: int) -> None:
        self._response, self._deadline, self._max_bytes = reply, deadline, max_bytes
        self._received_bytes = self._decompressed_bytes = 0

    @property
    def head(self) -> NetHead:
        """Status, headers and address."""
        return self._response.head

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the unpacked body as it arrives."""
        data = await self._read()
        if not data:
            return
        unpack = make_decompressor(self.head.header_values("content-encoding"))
        while data:
            for piece in unpack.feed(data):
                self._decompressed_bytes += len(piece)
                self._check_size(self._decompressed_bytes, "unpacks to")
                yield piece
            data = await self._read()
        unpack.finish()

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


async def _drain_body(reply: "RawResponse") -> None:
    """Read the short text that comes with a redirect, so that the connection can be used again."""
    if reply.head.header("content-length") and _content_length_of(reply.head) <= _MAX_DRAINED_BYTES:
        while await reply.read():
            pass
