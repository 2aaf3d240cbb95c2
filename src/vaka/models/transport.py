"""HTTP/1.1 for answers that arrive in many small pieces: a transport for httpx2 on nothing but asyncio.

A delta is a few bytes, and the general way through a connection pool, a lock and a protocol machine costs several times
what reading it costs. Bodies are handed on as they arrive, as many pieces at once as have come. What a peer sends is
checked as strictly as elsewhere: a body that ends before its end is an error, never an end.
"""

import asyncio
import re
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, TypeAlias, cast
from weakref import WeakSet

import httpx2

HEAD = 64 * 1024
"""Bytes the head of an answer may have."""
LINE = 4096
"""Bytes the size line of a chunk, or one line behind the last, may have."""
HIGH = 256 * 1024
"""Bytes that may wait to be read before the peer is made to wait."""
IDLE = 30.0
"""Seconds a connection is kept for the next request."""
KEPT = 64
REST = 16 * 1024
"""Bytes that may follow what was wanted of an answer for its connection to be used again."""
MOMENT = 0.1
"""Seconds that are waited for them. Nobody waits meanwhile."""

_Origin: TypeAlias = tuple[str, str, int]
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_BLANK = re.compile(rb"\r?\n\r?\n")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_BAD = re.compile(rb"[\x00\r\n]")


class HungUp(httpx2.RemoteProtocolError):
    """The peer is gone and has not said a word to this request."""


class Connection(asyncio.Protocol):
    """One connection: what has come and was not read yet."""

    def __init__(self) -> None:
        self.waiting = b""
        self.over = False
        self.failure: Exception | None = None
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._held = False
        self._rest: tuple[Whole | Chunked, Callable[[Connection], None]] | None = None
        self._room = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take what came, and wake whoever waits for it."""
        if self._rest is not None:
            self._drop(data)
            return
        self.waiting = self.waiting + data if self.waiting else data
        if len(self.waiting) > HIGH and self._transport is not None and not self._held:
            self._held = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """The peer sends no more."""
        self.over = True
        self._settled()
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.over, self.failure = True, exc
        self._settled()
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        """The peer takes no more for now."""
        self._writer = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The peer takes more."""
        writer, self._writer = self._writer, None
        if writer is not None and not writer.done():
            writer.set_result(None)

    @property
    def usable(self) -> bool:
        """Whether another request can be sent here."""
        return not self.over and not self.waiting and time.monotonic() - self.idle_since < IDLE

    async def write(self, data: bytes) -> None:
        """Send ``data``."""
        if self._transport is None or self._transport.is_closing():
            raise HungUp("the connection is closed")
        self._transport.write(data)
        if self._writer is not None:
            await self._writer

    async def read(self) -> bytes:
        """Return what has come, at least a byte; nothing at the end. Raises ``httpx2.ReadError`` if it broke."""
        if not self.waiting and not self.over:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        data, self.waiting = self.waiting, b""
        if self._held and self._transport is not None:
            self._held = False
            self._transport.resume_reading()
        if not data and self.failure is not None:
            raise httpx2.ReadError(str(self.failure) or type(self.failure).__name__)
        return data

    def unread(self, data: bytes) -> None:
        """Put back what belongs to somebody else."""
        self.waiting = data + self.waiting

    @property
    def finishing(self) -> bool:
        """Whether the end of an answer that nobody reads any more is awaited."""
        return self._rest is not None

    def finish(self, frame: "Whole | Chunked", give_back: "Callable[[Connection], None]") -> None:
        """Let the little pass that may follow what was wanted of an answer, and hang up if it is more than that.

        The marker that ends an answer and the end of its body are two pieces, and often come as two. Whoever has the
        first does not wait for the second, and yet need not connect anew for the next question.
        """
        self._rest, self._room = (frame, give_back), REST
        self._timer = asyncio.get_running_loop().call_later(MOMENT, self.close)
        data, self.waiting = self.waiting, b""
        self._drop(data)

    def _drop(self, data: bytes) -> None:
        if self._rest is None:
            return
        frame, give_back = self._rest
        self._room -= len(data)
        try:
            frame.feed(data)
        except httpx2.RemoteProtocolError:
            self.close()
            return
        if self._room < 0 or self.over or frame.rest:
            self.close()
        elif frame.done:
            self._settled()
            give_back(self)

    def _settled(self) -> None:
        self._rest = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Hang up, without waiting for anyone."""
        self._settled()
        self.over = True
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)


class Whole:
    """A body of a known length, or with ``None`` one that lasts until the connection ends."""

    def __init__(self, length: int | None) -> None:
        self._left = length
        self.done = length == 0
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return what of ``data`` belongs to the body."""
        if self._left is None:
            return data
        data, self.rest = data[: self._left], data[self._left :]
        self._left -= len(data)
        self.done = not self._left
        return data

    def end(self) -> None:
        """The connection has ended."""
        if self._left is not None:
            raise httpx2.RemoteProtocolError(f"the answer ended {self._left} bytes before its end")
        self.done = True


class Chunked:
    """A body in chunks."""

    def __init__(self) -> None:
        self._left = 0
        self._next: Callable[[bytes], None] = self._size
        self._line = b""
        self._lines = 0
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return what of ``data`` belongs to the body."""
        pieces: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                continue
            stop = data.find(b"\n", at)
            line = data[at:stop] if stop >= 0 else data[at:]
            if self._line:
                line = self._line + line
            if len(line) > LINE:
                raise httpx2.RemoteProtocolError("a line between the chunks of the answer has no end")
            if stop < 0:
                self._line = line
                at = end
                break
            self._line, at = b"", stop + 1
            self._next(line[:-1] if line.endswith(b"\r") else line)
        self.rest = data[at:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end(self) -> None:
        """The connection has ended."""
        raise httpx2.RemoteProtocolError("the answer ended before its last chunk")

    def _size(self, line: bytes) -> None:
        digits = line.partition(b";")[0].strip(b" \t")
        if not _SIZE.fullmatch(digits):
            raise httpx2.RemoteProtocolError(f"expected the size of a chunk, got {line[:40]!r}")
        self._left = int(digits, 16)
        self._next = self._after if self._left else self._trailer

    def _after(self, line: bytes) -> None:
        if line:
            raise httpx2.RemoteProtocolError(f"expected the end of a chunk, got {line[:40]!r}")
        self._next = self._size

    def _trailer(self, line: bytes) -> None:
        self._lines += 1
        if self._lines > 100:
            raise httpx2.RemoteProtocolError("the answer has no end of headers behind its last chunk")
        self.done = not line


class Body(httpx2.AsyncByteStream):
    """The body of one answer, as it arrives; its connection is given back when it was read whole."""

    def __init__(
        self, connection: Connection, frame: Whole | Chunked, give_back: Callable[[Connection], None], *, kept: bool
    ) -> None:
        self._connection, self._frame, self._give_back, self._kept = connection, frame, give_back, kept

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        connection, frame = self._connection, self._frame
        try:
            while not frame.done:
                data = await connection.read()
                if not data:
                    frame.end()
                    break
                piece = frame.feed(data)
                if piece:
                    yield piece
        except httpx2.TransportError:
            connection.close()
            raise

    async def aclose(self) -> None:
        """Give the connection back, at once or when the rest has come, or hang up if there is more to come."""
        if self._connection.over or self._frame.rest or not self._kept:
            self._connection.close()
        elif self._frame.done:
            self._give_back(self._connection)
        elif not self._connection.finishing:
            self._connection.finish(self._frame, self._give_back)


class Transport(httpx2.AsyncBaseTransport):
    """Connections to servers that speak HTTP/1.1, with or without TLS; no proxies."""

    def __init__(self) -> None:
        self._idle: dict[_Origin, list[Connection]] = {}
        self._made: WeakSet[Connection] = WeakSet()
        self._context: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return its answer as soon as the head of it is here."""
        timeouts: dict[str, float | None] = request.extensions.get("timeout", {})
        origin = _origin(request.url)
        data = _written(request, await request.aread())
        kept = self._kept(origin)
        if kept is not None:
            with suppress(HungUp):  # it was closed while it was idle, or right now; servers do not say which
                return await self._ask(kept, request, data)
        return await self._ask(await self._connect(origin, timeouts.get("connect")), request, data)

    async def _ask(self, connection: Connection, request: httpx2.Request, data: bytes) -> httpx2.Response:
        origin = _origin(request.url)
        try:
            await connection.write(data)
            status, headers, kept = await _head(connection)
            frame = _frame(status, headers)
        except BaseException:
            connection.close()
            raise
        kept = kept and not (isinstance(frame, Whole) and not frame.done and "content-length" not in headers)
        kept = kept and request.headers.get("connection", "").lower() != "close"

        def give_back(connection: Connection) -> None:
            if not connection.over and len(self._idle.get(origin, ())) < KEPT:
                connection.idle_since = time.monotonic()
                self._idle.setdefault(origin, []).append(connection)
            else:
                connection.close()

        return httpx2.Response(
            status, headers=headers, stream=Body(connection, frame, give_back, kept=kept),
            extensions={"http_version": b"HTTP/1.1"},
        )  # fmt: skip

    async def aclose(self) -> None:
        """Hang up everywhere."""
        idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()
        for connection in [made for made in self._made if made.finishing]:
            connection.close()
        await asyncio.sleep(0)  # transports close in the loop's next turn

    def _kept(self, origin: _Origin) -> Connection | None:
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    async def _connect(self, origin: _Origin, timeout: float | None) -> Connection:
        scheme, host, port = origin
        more: dict[str, Any] = {}
        if scheme == "https":
            more = {"ssl": self._tls(), "server_hostname": host}
        try:
            async with asyncio.timeout(timeout):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection, host, port, happy_eyeballs_delay=0.25, **more
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"no connection after {timeout:g} seconds") from error
        except (OSError, ssl.SSLError, UnicodeError) as error:
            raise httpx2.ConnectError(str(error) or type(error).__name__) from error
        self._made.add(connection)
        return connection

    def _tls(self) -> ssl.SSLContext:
        try:
            self._context = self._context or httpx2.create_ssl_context()
        except OSError as error:
            words = f"the SSL_CERT_FILE of the environment cannot be used: {error}"
            raise httpx2.LocalProtocolError(words) from error
        return self._context


def _origin(url: httpx2.URL) -> _Origin:
    if url.scheme not in ("http", "https") or not url.host:
        raise httpx2.UnsupportedProtocol(f"expected an address with http:// or https://, not {url.scheme!r}")
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


def _written(request: httpx2.Request, body: bytes) -> bytes:
    """Return a request as it goes over the wire."""
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    for name, value in request.headers.raw:
        if not _NAME.fullmatch(name) or _BAD.search(value):
            raise httpx2.LocalProtocolError(f"{name.decode(errors='replace')!r} is no header that can be sent")
        lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join([*lines, b"", body])


async def _head(connection: Connection) -> tuple[int, httpx2.Headers, bool]:
    """Return status, headers and whether the connection may be used again; informational answers are passed over."""
    data, looked = b"", 0
    while True:
        found = _BLANK.search(data, looked)
        if (found.start() if found else len(data)) > HEAD:
            raise httpx2.RemoteProtocolError(f"the head of the answer has more than {HEAD} bytes")
        if found is None:
            looked = max(len(data) - 3, 0)
            more = await _read(connection, heard=bool(data))
            data += more
            continue
        status, headers, kept = _read_head(data[: found.start()])
        data, looked = data[found.end() :], 0
        if status >= 200 or status == 101:
            connection.unread(data)
            return status, headers, kept


async def _read(connection: Connection, *, heard: bool) -> bytes:
    """Return more of a head. Raises ``HungUp`` when there is none and never was any."""
    try:
        more = await connection.read()
    except httpx2.ReadError as error:
        if heard:
            raise
        raise HungUp(str(error)) from error
    if not more:
        raise (httpx2.RemoteProtocolError if heard else HungUp)("the server hung up without an answer")
    return more


def _read_head(head: bytes) -> tuple[int, httpx2.Headers, bool]:
    first, *lines = head.split(b"\n")
    found = _STATUS.fullmatch(first.rstrip(b"\r"))
    if found is None:
        raise httpx2.RemoteProtocolError(f"expected an HTTP answer, got {first[:40]!r}")
    fields: list[tuple[bytes, bytes]] = []
    for line in lines:
        name, colon, value = line.rstrip(b"\r").partition(b":")
        if not colon or not _NAME.fullmatch(name) or _BAD.search(value):
            raise httpx2.RemoteProtocolError(f"expected a header, got {line[:40]!r}")
        fields.append((name.lower(), value.strip(b" \t")))
    headers = httpx2.Headers(fields)
    connection = headers.get("connection", "").lower()
    kept = "close" not in connection and (found[1] == b"1" or "keep-alive" in connection)
    return int(found[2]), headers, kept


def _frame(status: int, headers: httpx2.Headers) -> Whole | Chunked:
    """Say how the body of an answer is bounded."""
    if status in (101, 204, 304):
        return Whole(0)
    coding = headers.get("transfer-encoding", "").lower()
    if coding:
        if coding != "chunked":
            raise httpx2.RemoteProtocolError(f"expected a body in chunks, got {coding[:40]!r}")
        return Chunked()
    lengths = {length.strip() for length in headers.get("content-length", "").split(",")}
    length = lengths.pop()
    if lengths or not re.fullmatch(r"\d{0,15}", length, re.ASCII):
        raise httpx2.RemoteProtocolError("the length of the answer makes no sense")
    return Whole(int(length) if length else None)
