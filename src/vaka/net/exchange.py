"""One HTTP exchange over a pooled connection. The only module that uses httpcore2, the transport of httpx2."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias, cast

import httpcore2

from vaka.core.ports.net import NetHead, NetRequest
from vaka.core.types.errors import NetworkError, NetworkTimeout, NetworkTooLarge, NetworkUnreachable
from vaka.matching.hosts import IPAddress
from vaka.net.http_message import header_fields_of
from vaka.net.rules import NetworkLimits
from vaka.net.url import ParsedURL, ProxyAddress, refuse

VetHost: TypeAlias = Callable[[str, int], Awaitable[tuple[IPAddress, ...]]]
"""Returns the addresses of a host for a port; raises if one of them is not allowed."""

_TRANSPORT_ERRORS = (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError)
_TIMEOUT_REASONS: tuple[tuple[type[Exception], str, str], ...] = (
    (httpcore2.ConnectTimeout, "connect", "accept a connection"),
    (httpcore2.ReadTimeout, "read", "send anything"),
    (httpcore2.WriteTimeout, "write", "take anything"),
)


class VettedNetworkBackend(httpcore2.AsyncNetworkBackend):
    """Connects only to addresses that ``vet`` returned, in order; names are never passed on."""

    def __init__(self, vet: VetHost) -> None:
        self._vet = vet
        self._backend = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to one of the host's addresses; each gets a share of the time."""
        loop = asyncio.get_running_loop()
        seconds = timeout or 0.0
        end = loop.time() + seconds
        try:
            async with asyncio.timeout_at(end):
                addresses = await self._vet(host, port)
        except TimeoutError as error:
            raise NetworkTimeout(f"{host!r} could not be resolved within {seconds} s", reason="dns") from error
        failure: Exception = httpcore2.ConnectError(f"{host!r} has no address")
        for tried, address in enumerate(addresses):
            share = max(end - loop.time(), 0.0) / (len(addresses) - tried)
            try:
                return await self._backend.connect_tcp(str(address), port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure


class RawResponse:
    """A response whose head has arrived."""

    def __init__(self, response: httpcore2.Response, head: NetHead, target: ParsedURL) -> None:
        self.head, self.origin = head, target.origin
        self._response = response
        self._body = response.aiter_stream()

    async def read(self) -> bytes:
        """Return the next bytes of the body as sent, nothing at its end."""
        try:
            return await anext(self._body, b"")
        except _TRANSPORT_ERRORS as error:
            raise _translate_error(error, self.origin) from error

    async def close(self) -> None:
        """Release the connection: it is reused if the body was read to its end, and closed otherwise."""
        await self._body.aclose()
        await self._response.aclose()


class VettedConnectionPool:
    """A pool of connections, all made by ``VettedNetworkBackend``."""

    def __init__(
        self, vet: VetHost, limits: NetworkLimits, ssl_context: ssl.SSLContext | None, proxy: ProxyAddress | None
    ) -> None:
        self._limits, self._uses_proxy = limits, proxy is not None
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context or httpcore2.default_ssl_context(),
            proxy=None if proxy is None else _as_httpcore_proxy(proxy),
            max_connections=limits.connections,
            max_keepalive_connections=limits.idle_connections,
            keepalive_expiry=limits.idle,
            network_backend=VettedNetworkBackend(vet),
        )

    async def send(self, request: NetRequest, target: ParsedURL, user_agent: str) -> RawResponse:
        """Send one request and wait for the head of its response."""
        if self._uses_proxy and ":" in target.host:
            # httpcore2 writes the address without brackets, and a proxy would read its last group as a port.
            refuse("host", f"the IPv6 address {target.host!r} cannot be requested through a proxy; use a name")
        try:
            response = await self._pool.handle_async_request(self._build_request(request, target, user_agent))
        except _TRANSPORT_ERRORS as error:
            raise _translate_error(error, target.origin) from error
        try:
            return RawResponse(response, self._read_head(response, target), target)
        except NetworkError:
            await response.aclose()
            raise

    async def close(self) -> None:
        await self._pool.aclose()

    def _build_request(self, request: NetRequest, target: ParsedURL, user_agent: str) -> httpcore2.Request:
        timeouts = {"connect": self._limits.connect, "read": self._limits.read, "write": self._limits.read}
        return httpcore2.Request(
            request.method,
            # The parts are passed one by one: a second parser could read the URL differently.
            httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path),
            headers=header_fields_of(request, target, user_agent),
            content=request.body,
            extensions={"timeout": timeouts},
        )

    def _read_head(self, response: httpcore2.Response, target: ParsedURL) -> NetHead:
        if response.status < 200:
            raise NetworkError(f"{target.origin} switches to another protocol without being asked", reason="protocol")
        count, size = len(response.headers), sum(len(name) + len(value) for name, value in response.headers)
        if count > self._limits.headers or size > self._limits.header_bytes:
            raise NetworkTooLarge(
                f"{target.origin} sent {count} headers of {size} bytes; "
                f"at most {self._limits.headers} of {self._limits.header_bytes} are allowed",
                reason="headers",
            )
        headers = tuple((name.decode("ascii").lower(), value.decode("latin-1")) for name, value in response.headers)
        return NetHead(status=response.status, headers=headers, url=target.url)


def _translate_error(error: Exception, origin: str) -> NetworkError:
    for kind, reason, action in _TIMEOUT_REASONS:
        if isinstance(error, kind):
            return NetworkTimeout(f"{origin} took too long to {action}", reason=reason)
    # httpcore2 stores the original error as the first argument instead of as the cause.
    cause = error.args[0] if error.args else None
    if isinstance(error, httpcore2.ProxyError):
        return NetworkUnreachable(f"the proxy does not connect to {origin}: {error}", reason="proxy")
    if isinstance(error, httpcore2.ConnectError):
        reason = "tls" if isinstance(cause, ssl.SSLError) else "connect"
        return NetworkUnreachable(f"no connection to {origin}: {error}", reason=reason)
    if isinstance(error, httpcore2.NetworkError):
        return NetworkUnreachable(f"the connection to {origin} broke: {error}", reason="cut")
    if getattr(cause, "error_status_hint", 0) == 431:
        return NetworkTooLarge(f"the head of the response from {origin} is too long", reason="headers")
    return NetworkError(f"{origin} did not send a valid HTTP response: {error}", reason="protocol")


def _as_httpcore_proxy(proxy: ProxyAddress) -> httpcore2.Proxy:
    url = httpcore2.URL(scheme=proxy.scheme, host=proxy.host, port=proxy.port, target="/")
    return httpcore2.Proxy(url, auth=(proxy.user.encode(), proxy.password.encode()) if proxy.user else None)
