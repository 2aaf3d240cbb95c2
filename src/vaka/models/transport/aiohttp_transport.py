"""A transport for httpx2 on aiohttp, which needs less CPU time for bodies of many small pieces.

A server uses it. Importing aiohttp takes 0.15 s, so the command line does not. It connects directly: aiohttp ignores
``ALL_PROXY``, SOCKS and ``https://`` proxies.
"""

import ssl
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import httpx2
from multidict import CIMultiDict
from yarl import URL

from vaka.models.transport.pool import BODY_EXTENSION, IDLE_SECONDS, load_tls_context

MAX_LINE = 64 * 1024
"""Bytes of the status line or of one header, at most."""
MAX_HEADERS = 256

_AUTOMATIC_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that aiohttp would add; httpx2 has set the headers of the request."""
_FRAMING_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
"""Set by aiohttp from the body."""
_NO_TIMEOUT: dict[str, float | None] = {}


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Direct HTTP/1.1 connections, without limits on their number, redirects or cookies."""

    def __init__(self) -> None:
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        """By whether connections are reused; aiohttp does not read the ``connection`` header of a request."""
        self._tls_context: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; once more if the server had closed the idle connection that was reused for it."""
        body = await request.aread()
        with _map_errors():
            context = self._ensure_tls_context() if request.url.scheme == "https" else True
            attempt = SimpleNamespace(reused=False)
            try:
                response = await self._send(request, body, context, attempt)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not attempt.reused:
                    raise
                response = await self._send(request, body, context, attempt)
            if response.headers.get("transfer-encoding", "chunked").lower() != "chunked":
                response.close()
                raise httpx2.RemoteProtocolError("expected a body in chunks, got another transfer encoding")
        stream = AiohttpBody(response)
        extensions = {"http_version": b"HTTP/1.1", BODY_EXTENSION: stream}
        return httpx2.Response(
            response.status, headers=list(response.raw_headers), stream=stream, extensions=extensions
        )

    async def aclose(self) -> None:
        """Close the connections."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def _send(
        self, request: httpx2.Request, body: bytes, context: ssl.SSLContext | bool, attempt: SimpleNamespace
    ) -> aiohttp.ClientResponse:
        timeouts: dict[str, float | None] = request.extensions.get("timeout", _NO_TIMEOUT)
        reuse = request.headers.get("connection", "").lower() != "close"
        return await self._ensure_session(reuse=reuse).request(
            request.method,
            _url_of(request.url),
            headers=_headers_of(request),
            data=body or None,
            allow_redirects=False,
            ssl=context,
            timeout=aiohttp.ClientTimeout(
                total=None, connect=timeouts.get("connect"), sock_connect=None, sock_read=timeouts.get("read")
            ),
            trace_request_ctx=attempt,
        )

    def _ensure_session(self, *, reuse: bool) -> aiohttp.ClientSession:
        if reuse not in self._sessions:
            trace = aiohttp.TraceConfig()
            trace.on_connection_reuseconn.append(_note_reuse)
            # the names of hosts are resolved as everywhere else, also where aiodns is installed
            resolver = aiohttp.ThreadedResolver()
            if reuse:
                connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, resolver=resolver)
            else:
                connector = aiohttp.TCPConnector(limit=0, force_close=True, resolver=resolver)
            self._sessions[reuse] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_AUTOMATIC_HEADERS,
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                trust_env=False,
                trace_configs=[trace],
                max_line_size=MAX_LINE,
                max_field_size=MAX_LINE,
                max_headers=MAX_HEADERS,
            )
        return self._sessions[reuse]

    def _ensure_tls_context(self) -> ssl.SSLContext:
        if self._tls_context is None:
            self._tls_context = load_tls_context()
            self._tls_context.set_alpn_protocols(["http/1.1"])
        return self._tls_context


class AiohttpBody(httpx2.AsyncByteStream):
    """The body of one response; aiohttp reuses its connection when it was read to the end."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._content = response.content

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await self._content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _to_httpx_error(error) from error
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Close the connection, unless the body was read to its end."""
        if not self._content.at_eof():
            self._content.set_exception(aiohttp.ClientConnectionError("the response is closed"))
        self._response.close()


async def _note_reuse(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionReuseconnParams) -> None:
    context.trace_request_ctx.reused = True


def _url_of(url: httpx2.URL) -> URL:
    """Return the address without user and password, which httpx2 has written to the headers."""
    if url.scheme not in ("http", "https") or not url.host:
        raise httpx2.UnsupportedProtocol(f"expected an address with http:// or https://, not {url.scheme!r}")
    return URL(f"{url.scheme}://{url.netloc.decode('ascii')}{url.raw_path.decode('ascii')}", encoded=True)


def _headers_of(request: httpx2.Request) -> CIMultiDict[str]:
    fields = [(name, value) for name, value in request.headers.raw if name.lower() not in _FRAMING_HEADERS]
    return CIMultiDict((name.decode("ascii"), value.decode("utf-8")) for name, value in fields)


@contextmanager
def _map_errors() -> Generator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise _to_httpx_error(error) from error
    except ValueError as error:  # a header that cannot be sent
        raise httpx2.LocalProtocolError(str(error)) from error


def _to_httpx_error(error: Exception) -> httpx2.TransportError:
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return httpx2.ConnectTimeout(message)
    if isinstance(error, TimeoutError):
        return httpx2.ReadTimeout(message)
    if isinstance(error, aiohttp.ClientConnectorError):
        return httpx2.ConnectError(message)
    if isinstance(error, OSError):
        return httpx2.ReadError(message)
    if isinstance(error, aiohttp.InvalidURL):
        return httpx2.LocalProtocolError(message)
    if isinstance(error, aiohttp.ClientResponseError):
        return httpx2.RemoteProtocolError(f"expected an HTTP answer: {' '.join(error.message.split())}")
    return httpx2.RemoteProtocolError(message)
