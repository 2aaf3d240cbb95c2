"""An HTTP/1.1 transport for httpx2 on plain asyncio, for bodies that arrive in many small pieces."""

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import chain
from typing import Any, TypeAlias, cast
from weakref import WeakSet

import httpx2

MAX_HEAD = 64 * 1024
"""Bytes of the head of a response, at most."""
MAX_CHUNK_LINE = 4096
"""Bytes of the size line of a chunk, or of a trailer line, at most."""
HIGH_WATER = 256 * 1024
"""Unread bytes above which reading from the socket pauses."""
IDLE_SECONDS = 30.0
"""Seconds that an idle connection may be reused."""
MAX_IDLE = 64
MAX_DRAIN_BYTES = 16 * 1024
"""Unread bytes of a body that are discarded to reuse its connection, at most."""
DRAIN_SECONDS = 0.1
"""Seconds to receive them, in the background."""

_Origin: TypeAlias = tuple[str, str, int]
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
_FORBIDDEN_IN_VALUE = re.compile(rb"[\x00\r\n]")


class ServerDisconnected(httpx2.RemoteProtocolError):
    """The server closed the connection before any byte of the response."""


class Http1Connection(asyncio.Protocol):
    """One connection and its unread bytes."""

    def __init__(self) -> None:
        self.buffer = b""
        self.at_eof = False
        self.failure: Exception | None = None
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._read_waiter: asyncio.Future[None] | None = None
        self._write_waiter: asyncio.Future[None] | None = None
        self._reading_paused = False
        self._drain_target: tuple[SizedBody | ChunkedBody, Callable[[Http1Connection], None]] | None = None
        self._drain_budget = 0
        self._drain_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._drain_target is not None:
            self._discard(data)
            return
        self.buffer = self.buffer + data if self.buffer else data
        if len(self.buffer) > HIGH_WATER and self._transport is not None and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake_reader()

    def eof_received(self) -> bool:
        self.at_eof = True
        self._stop_draining()
        self._wake_reader()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.at_eof, self.failure = True, exc
        self._stop_draining()
        self._wake_reader()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._write_waiter = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        writer, self._write_waiter = self._write_waiter, None
        if writer is not None and not writer.done():
            writer.set_result(None)

    @property
    def usable(self) -> bool:
        """Whether another request can be sent on this connection."""
        return not self.at_eof and not self.buffer and time.monotonic() - self.idle_since < IDLE_SECONDS

    async def write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise ServerDisconnected("the connection is closed")
        self._transport.write(data)
        if self._write_waiter is not None:
            await self._write_waiter

    async def read(self) -> bytes:
        """Return unread bytes, or wait for some; none at the end. Raises ``httpx2.ReadError`` for a lost connection."""
        if not self.buffer and not self.at_eof:
            self._read_waiter = asyncio.get_running_loop().create_future()
            await self._read_waiter
        data, self.buffer = self.buffer, b""
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        if not data and self.failure is not None:
            raise httpx2.ReadError(str(self.failure) or type(self.failure).__name__)
        return data

    def unread(self, data: bytes) -> None:
        """Put back bytes that were read too far."""
        self.buffer = data + self.buffer

    @property
    def is_draining(self) -> bool:
        """Whether the rest of a body is being discarded."""
        return self._drain_target is not None

    def drain(self, frame: "SizedBody | ChunkedBody", release: "Callable[[Http1Connection], None]") -> None:
        """Discard the rest of a body in the background and release the connection; close it if the rest is too long.

        The event that ends an answer and the end of its body often arrive in two packets. The reader returns after the
        first, and the next request can still reuse the connection.
        """
        self._drain_target, self._drain_budget = (frame, release), MAX_DRAIN_BYTES
        self._drain_timer = asyncio.get_running_loop().call_later(DRAIN_SECONDS, self.close)
        data, self.buffer = self.buffer, b""
        self._discard(data)

    def _discard(self, data: bytes) -> None:
        if self._drain_target is None:
            return
        frame, release = self._drain_target
        self._drain_budget -= len(data)
        try:
            frame.feed(data)
        except httpx2.RemoteProtocolError:
            self.close()
            return
        if self._drain_budget < 0 or self.at_eof or frame.rest:
            self.close()
        elif frame.done:
            self._stop_draining()
            release(self)

    def _stop_draining(self) -> None:
        self._drain_target = None
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None

    def close(self) -> None:
        """Abort the connection, without waiting for unsent data."""
        self._stop_draining()
        self.at_eof = True
        if self._transport is not None:
            self._transport.abort()

    def _wake_reader(self) -> None:
        reader, self._read_waiter = self._read_waiter, None
        if reader is not None and not reader.done():
            reader.set_result(None)


class SizedBody:
    """A body of a known length, or with ``None`` one that ends with the connection."""

    def __init__(self, length: int | None) -> None:
        self._bytes_left = length
        self.done = length == 0
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the part of ``data`` that belongs to the body."""
        if self._bytes_left is None:
            return data
        data, self.rest = data[: self._bytes_left], data[self._bytes_left :]
        self._bytes_left -= len(data)
        self.done = not self._bytes_left
        return data

    def end(self) -> None:
        """Check the body at the end of the connection."""
        if self._bytes_left is not None:
            raise httpx2.RemoteProtocolError(f"the answer ended {self._bytes_left} bytes before its end")
        self.done = True


class ChunkedBody:
    """A body with chunked transfer encoding."""

    def __init__(self) -> None:
        self._bytes_left = 0
        self._line_handler: Callable[[bytes], None] = self._read_size_line
        self._at_start = True  # of a chunk, with nothing read of it
        self._partial_line = b""
        self._trailer_lines = 0
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the part of ``data`` that belongs to the body."""
        size_line = _SIZE_LINE.match(data) if self._at_start else None
        if size_line is not None:  # the fast path of nearly all data: one whole chunk
            start = size_line.end()
            if len(data) == start + int(size_line[1], 16) + 2 and start + 2 < len(data) and data.endswith(b"\r\n"):
                return data[start:-2]
        pieces: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self.done:
            if self._bytes_left:
                piece = data[at : at + self._bytes_left]
                pieces.append(piece)
                at += len(piece)
                self._bytes_left -= len(piece)
                continue
            stop = data.find(b"\n", at)
            line = data[at:stop] if stop >= 0 else data[at:]
            if self._partial_line:
                line = self._partial_line + line
            if len(line) > MAX_CHUNK_LINE:
                raise httpx2.RemoteProtocolError("a line between the chunks of the answer has no end")
            if stop < 0:
                self._partial_line = line
                at = end
                break
            self._partial_line, at = b"", stop + 1
            self._line_handler(line[:-1] if line.endswith(b"\r") else line)
        self.rest = data[at:]
        self._at_start = not (self._bytes_left or self._partial_line) and self._line_handler == self._read_size_line
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end(self) -> None:
        """Raise the error for a connection that ended within the body."""
        raise httpx2.RemoteProtocolError("the answer ended before its last chunk")

    def _read_size_line(self, line: bytes) -> None:
        digits = line.partition(b";")[0].strip(b" \t")
        if not _CHUNK_SIZE.fullmatch(digits):
            raise httpx2.RemoteProtocolError(f"expected the size of a chunk, got {line[:40]!r}")
        self._bytes_left = int(digits, 16)
        self._line_handler = self._read_chunk_end if self._bytes_left else self._read_trailer_line

    def _read_chunk_end(self, line: bytes) -> None:
        if line:
            raise httpx2.RemoteProtocolError(f"expected the end of a chunk, got {line[:40]!r}")
        self._line_handler = self._read_size_line

    def _read_trailer_line(self, line: bytes) -> None:
        self._trailer_lines += 1
        if self._trailer_lines > 100:
            raise httpx2.RemoteProtocolError("the answer has too many trailer lines after its last chunk")
        self.done = not line


BODY_EXTENSION = "body"
"""The extension of a response with its ``ResponseStream``, which httpx2 wraps in an iterator of its own."""


class ResponseStream(httpx2.AsyncByteStream):
    """The body of one response; its connection is released when it was read to the end."""

    def __init__(
        self, connection: Http1Connection, frame: SizedBody | ChunkedBody, release: Callable[[Http1Connection], None],
        *, reusable: bool,
    ) -> None:  # fmt: skip
        self._connection, self._frame, self._release, self._reusable = connection, frame, release, reusable
        self._closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        connection, frame = self._connection, self._frame
        try:
            while not frame.done:
                data = await connection.read()
                if not data:
                    frame.end()
                    break
                piece = frame.feed(data)
                if piece:
                    return piece
        except httpx2.TransportError:
            connection.close()
            raise
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Release the connection, after draining a short rest of the body, or close it. Safe to call twice."""
        if self._closed:  # a connection that is released twice would be used by two requests at once
            return
        self._closed = True
        if self._connection.at_eof or self._frame.rest or not self._reusable:
            self._connection.close()
        elif self._frame.done:
            self._release(self._connection)
        else:
            self._connection.drain(self._frame, self._release)


class Http1Transport(httpx2.AsyncBaseTransport):
    """HTTP/1.1 connections, with or without TLS; no proxies."""

    def __init__(self) -> None:
        self._idle_connections: dict[_Origin, list[Http1Connection]] = {}
        self._connections: WeakSet[Http1Connection] = WeakSet()
        self._tls_context: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its response as soon as the head has arrived."""
        timeouts: dict[str, float | None] = request.extensions.get("timeout", {})
        origin = _origin_of(request.url)
        data = _encode_request(request, await request.aread())
        idle = self._take_idle(origin)
        if idle is not None:
            with suppress(ServerDisconnected):  # the server may have closed an idle connection
                return await self._exchange(idle, request, data)
        return await self._exchange(await self._connect(origin, timeouts.get("connect")), request, data)

    async def _exchange(self, connection: Http1Connection, request: httpx2.Request, data: bytes) -> httpx2.Response:
        origin = _origin_of(request.url)
        try:
            await connection.write(data)
            status, headers, reusable = await _receive_head(connection)
            frame = _body_framing(status, headers)
        except BaseException:
            connection.close()
            raise
        until_close = isinstance(frame, SizedBody) and not frame.done and "content-length" not in headers
        reusable = reusable and not until_close and request.headers.get("connection", "").lower() != "close"

        def release(connection: Http1Connection) -> None:
            if not connection.at_eof and len(self._idle_connections.get(origin, ())) < MAX_IDLE:
                connection.idle_since = time.monotonic()
                self._idle_connections.setdefault(origin, []).append(connection)
            else:
                connection.close()

        body = ResponseStream(connection, frame, release, reusable=reusable)
        extensions = {"http_version": b"HTTP/1.1", BODY_EXTENSION: body}
        return httpx2.Response(status, headers=headers, stream=body, extensions=extensions)

    async def aclose(self) -> None:
        """Close idle and draining connections."""
        idle, self._idle_connections = self._idle_connections, {}
        draining = [connection for connection in self._connections if connection.is_draining]
        for connection in [*chain.from_iterable(idle.values()), *draining]:
            connection.close()
        await asyncio.sleep(0)  # transports close in the loop's next iteration

    def _take_idle(self, origin: _Origin) -> Http1Connection | None:
        idle = self._idle_connections.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    async def _connect(self, origin: _Origin, timeout: float | None) -> Http1Connection:
        scheme, host, port = origin
        more: dict[str, Any] = {}
        if scheme == "https":
            more = {"ssl": self._ensure_tls_context(), "server_hostname": host}
        try:
            async with asyncio.timeout(timeout):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Http1Connection, host, port, happy_eyeballs_delay=0.25, **more
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"no connection after {timeout:g} seconds") from error
        except (OSError, ssl.SSLError, UnicodeError) as error:
            raise httpx2.ConnectError(str(error) or type(error).__name__) from error
        self._connections.add(connection)
        return connection

    def _ensure_tls_context(self) -> ssl.SSLContext:
        try:
            self._tls_context = self._tls_context or httpx2.create_ssl_context()
        except OSError as error:
            raise httpx2.LocalProtocolError(f"the SSL_CERT_FILE of the environment cannot be used: {error}") from error
        return self._tls_context


def _origin_of(url: httpx2.URL) -> _Origin:
    if url.scheme not in ("http", "https") or not url.host:
        raise httpx2.UnsupportedProtocol(f"expected an address with http:// or https://, not {url.scheme!r}")
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


def _encode_request(request: httpx2.Request, body: bytes) -> bytes:
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    for name, value in request.headers.raw:
        if not _HEADER_NAME.fullmatch(name) or _FORBIDDEN_IN_VALUE.search(value):
            raise httpx2.LocalProtocolError(f"{name.decode(errors='replace')!r} is not a valid header")
        lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join([*lines, b"", body])


async def _receive_head(connection: Http1Connection) -> tuple[int, httpx2.Headers, bool]:
    """Return status, headers and whether the connection is reusable; informational responses are skipped."""
    data, searched = b"", 0
    while True:
        end = _HEAD_END.search(data, searched)
        if (end.start() if end else len(data)) > MAX_HEAD:
            raise httpx2.RemoteProtocolError(f"the head of the answer has more than {MAX_HEAD} bytes")
        if end is None:
            searched = max(len(data) - 3, 0)
            data += await _read_more(connection, started=bool(data))
            continue
        status, headers, reusable = _parse_head(data[: end.start()])
        data, searched = data[end.end() :], 0
        if status >= 200 or status == 101:
            connection.unread(data)
            return status, headers, reusable


async def _read_more(connection: Http1Connection, *, started: bool) -> bytes:
    """Return more bytes of a head. Raises ``ServerDisconnected`` when the connection ends before the first."""
    try:
        more = await connection.read()
    except httpx2.ReadError as error:
        if started:
            raise
        raise ServerDisconnected(str(error)) from error
    if not more:
        raise (httpx2.RemoteProtocolError if started else ServerDisconnected)("the server hung up without an answer")
    return more


def _parse_head(head: bytes) -> tuple[int, httpx2.Headers, bool]:
    first, *lines = head.split(b"\n")
    status_line = _STATUS_LINE.fullmatch(first.rstrip(b"\r"))
    if status_line is None:
        raise httpx2.RemoteProtocolError(f"expected an HTTP answer, got {first[:40]!r}")
    fields: list[tuple[bytes, bytes]] = []
    for line in lines:
        name, colon, value = line.rstrip(b"\r").partition(b":")
        if not colon or not _HEADER_NAME.fullmatch(name) or _FORBIDDEN_IN_VALUE.search(value):
            raise httpx2.RemoteProtocolError(f"expected a header, got {line[:40]!r}")
        fields.append((name.lower(), value.strip(b" \t")))
    headers = httpx2.Headers(fields)
    connection = headers.get("connection", "").lower()
    reusable = "close" not in connection and (status_line[1] == b"1" or "keep-alive" in connection)
    return int(status_line[2]), headers, reusable


def _body_framing(status: int, headers: httpx2.Headers) -> SizedBody | ChunkedBody:
    if status in (101, 204, 304):
        return SizedBody(0)
    coding = headers.get("transfer-encoding", "").lower()
    if coding:
        if coding != "chunked":
            raise httpx2.RemoteProtocolError(f"expected a body in chunks, got {coding[:40]!r}")
        return ChunkedBody()
    lengths = {length.strip() for length in headers.get("content-length", "").split(",")}
    length = lengths.pop()
    if lengths or not re.fullmatch(r"\d{0,15}", length, re.ASCII):
        raise httpx2.RemoteProtocolError("the length of the answer makes no sense")
    return SizedBody(int(length) if length else None)
