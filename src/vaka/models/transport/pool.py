"""Connections to providers, shared by models: the transport of a request, and the reuse of a connection."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TypeAlias, cast
from urllib.request import getproxies

import httpx2

CONNECT_SECONDS = 15.0
MAX_IDLE = 64
"""Idle connections that are kept, at most."""
IDLE_SECONDS = 30.0
"""Seconds that an idle connection may be reused."""
MAX_DRAIN_BYTES = 16 * 1024
"""Unread bytes of a body that are discarded to reuse its connection, at most."""
DRAIN_SECONDS = 0.1
"""Seconds to receive them, in the background."""
MAX_PIECES_AFTER_CLOSE = 64 * 1024
"""Pieces of a body that had arrived when it was closed, at most: each has a byte, and httpx2 reads 64 KiB at once."""
BODY_EXTENSION = "body"
"""The extension of a response with the iterator of its body, which httpx2 wraps in iterators of its own."""
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE, keepalive_expiry=IDLE_SECONDS)

TransportFactory: TypeAlias = Callable[[], httpx2.AsyncBaseTransport]


class ConnectionPool:
    """HTTP clients shared by models; created on first use, and again for another event loop.

    ``transport`` carries all requests. ``direct`` makes the transport of connections without a proxy, httpx2's own by
    default; requests through a proxy of the environment always use httpx2's own.
    """

    def __init__(
        self, transport: httpx2.AsyncBaseTransport | None = None, *, direct: TransportFactory | None = None
    ) -> None:
        self._transport = transport
        self._direct: TransportFactory = direct or DirectTransport
        self._clients: dict[bool, httpx2.AsyncClient] = {}
        """By ``local``: with the proxy of the environment, if any, and without."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drains: dict[asyncio.Task[None], BodyReader] = {}

    @property
    def client(self) -> httpx2.AsyncClient:
        """The client of the running loop."""
        return self.client_for(local=False)

    def client_for(self, *, local: bool) -> httpx2.AsyncClient:
        """Return the client of the running loop; for a ``local`` server one without a proxy."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._clients = {}
            self._drains = {}
            self._loop = loop
        if local not in self._clients:
            proxied = self._transport is None and bool(getproxies())
            if local and not proxied:
                return self.client_for(local=False)
            self._clients[local] = httpx2.AsyncClient(
                transport=self._transport or (None if proxied and not local else self._direct()),
                follow_redirects=False,
                timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
                limits=LIMITS,
                # Accounts of several users share a client: a cookie of one must not be sent for another.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            )
        return self._clients[local]

    def release(self, body: "BodyReader") -> None:
        """Discard the rest of a body in the background, so that its connection can be reused; close a longer one.

        The event that ends an answer and the end of its body often arrive in two packets. The reader returns after the
        first, and does not wait for the second.
        """
        task = asyncio.get_running_loop().create_task(_drain(body))
        self._drains[task] = body
        task.add_done_callback(lambda task: self._drains.pop(task, None))

    async def wait_until_released(self) -> None:
        """Wait until every released connection is reusable or closed."""
        await asyncio.gather(*self._drains)

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        clients, self._clients = self._clients, {}
        if self._loop is asyncio.get_running_loop():
            drains = dict(self._drains)
            for task in drains:
                task.cancel()
            await asyncio.gather(*drains, return_exceptions=True)
            for body in drains.values():  # a task that is cancelled before its first step closes nothing
                await body.close()
            for client in clients.values():
                await client.aclose()


class BodyReader:
    """The body of a response as it arrives. httpx2 decodes only a compressed one."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._pieces: AsyncIterator[bytes] | None = None
        self.at_end = False
        """Whether the body was read to its end, so that the connection can be reused."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._pieces is None:
            self._pieces = self._open()
        try:
            return await anext(self._pieces)
        except StopAsyncIteration:
            self.at_end = True
            raise

    async def close(self) -> None:
        """Close the response, which closes the connection of a body that was not read to its end.

        httpx2 reads through nested generators and does not close the inner ones, which then need a task of the event
        loop to end. Reading on after closing returns what has arrived, and then an error that ends all of them.
        """
        with suppress(httpx2.TransportError, httpx2.DecodingError, httpx2.StreamError):
            await self._response.aclose()
            if self._pieces is not None:
                for _ in range(MAX_PIECES_AFTER_CLOSE):
                    if await anext(self._pieces, None) is None:
                        break

    def _open(self) -> AsyncIterator[bytes]:
        if self._response.headers.get("content-encoding", "identity") != "identity":
            return self._response.aiter_bytes()
        stream = self._response.extensions.get(BODY_EXTENSION, self._response.stream)
        return cast("AsyncIterator[bytes]", stream).__aiter__()


class DirectTransport(httpx2.AsyncBaseTransport):
    """httpx2's own transport, without proxies. The certificates are loaded for the first ``https`` address."""

    def __init__(self) -> None:
        self._transports: dict[bool, httpx2.AsyncHTTPTransport] = {}
        """By whether it speaks TLS."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; once more if the server had closed the idle connection that was reused for it."""
        transport = self._transport_for(encrypted=request.url.scheme == "https")
        connected = False

        async def trace(name: str, _: object) -> None:
            nonlocal connected
            connected = connected or name.startswith("connection.connect")

        request.extensions = {**request.extensions, "trace": trace}
        try:
            return await transport.handle_async_request(request)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            if connected:
                raise
        return await transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            await transport.aclose()

    def _transport_for(self, *, encrypted: bool) -> httpx2.AsyncHTTPTransport:
        if encrypted not in self._transports:
            # Loading the certificates takes 20 ms or more; the context without any trusts no server.
            context = load_tls_context() if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._transports[encrypted] = httpx2.AsyncHTTPTransport(verify=context, limits=LIMITS)
        return self._transports[encrypted]


def load_tls_context() -> ssl.SSLContext:
    """Return the TLS settings of httpx2, with ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` of the environment."""
    try:
        return httpx2.create_ssl_context()
    except OSError as error:
        raise httpx2.LocalProtocolError(f"the SSL_CERT_FILE of the environment cannot be used: {error}") from error


async def _drain(body: BodyReader) -> None:
    left = MAX_DRAIN_BYTES
    with suppress(TimeoutError, httpx2.TransportError, httpx2.DecodingError, httpx2.StreamError):
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                async for piece in body:
                    left -= len(piece)
                    if left < 0:
                        break
        finally:
            await body.close()
