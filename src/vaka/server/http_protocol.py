"""HTTP connections with bounds: a client can neither send endless headers nor take endless time for a request."""

import asyncio
import logging
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from vaka.server.access_log import AccessLog

RequestStage: TypeAlias = Literal["", "begun", "accepted"]

_logger = logging.getLogger("uvicorn.error.requests")
_logger.setLevel(logging.ERROR)  # uvicorn warns of each malformed request, which any stranger can send

MAX_HEADER_BYTES = 64 * 1024
"""The size of the address and headers of a request, and of what comes between or after the pieces of its body."""
MAX_PIPELINED = 32
"""The most requests of one connection that wait for the response to the previous request."""
HEADER_SECONDS = 10.0
"""Seconds within which the headers of a request must arrive, from the connection or the first byte on."""
UNREAD_BODY_SECONDS = 5.0
"""Seconds that a client has to read the response to a request whose body it has not sent to the end."""


_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\ncontent-length: 24\r\n"
    b"connection: close\r\n\r\nthe headers are too long"
)


class LimitExceeded(Exception):
    """Ends the reading of a connection."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """Refuses headers and trailers that are too long or take too long, and a body that goes on after the response.

    Trailers are not part of a request: they are counted and left out.
    """

    header_seconds, unread_body_seconds = HEADER_SECONDS, UNREAD_BODY_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logger = _logger
        self.url = b""
        self._stage: RequestStage = ""
        """How far the parser is: between requests, before the end of headers, or after the application got them."""
        self._timer: asyncio.TimerHandle | None = None
        self._in_headers = True
        self._refused = False
        self._running: RequestResponseCycle | None = None
        """The current request, or the last answered request."""
        self._field_bytes = 0
        """The size of the headers, or the trailers, that the parser has read."""
        self._unread_bytes = 0
        """The bytes since the parser last returned a piece of a body or all headers: it may hold all of them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self._timer = self.loop.call_later(self.header_seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        if self._in_headers and self._timer is None:
            self._timer = self.loop.call_later(self.header_seconds, self.transport.close)
        self._unread_bytes += len(data)
        super().data_received(data)
        if self._unread_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(_TOO_LARGE)

    # The parser calls these. What they raise reaches ``send_400_response``.

    def on_message_begin(self) -> None:
        self._field_bytes, self._stage = 0, "begun"
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_field(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_field(len(name) + len(value) + 4)
        if self._in_headers:  # otherwise it is a trailer
            super().on_header(
                name, value.strip(b" \t")
            )  # the parser leaves blanks at the end, which are not part of it

    def _count_field(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > MAX_HEADER_BYTES:
            raise LimitExceeded

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise LimitExceeded
        self._in_headers = False
        self._field_bytes = 0
        self._unread_bytes = 0
        self._stop_timer()
        self._apply_authority()
        super().on_headers_complete()
        self._stage = "accepted"

    def _apply_authority(self) -> None:
        """Let the host of an absolute address count in place of the ``Host`` header (RFC 9112, 3.2.2)."""
        if self.url.startswith(b"/") or sum(name == b"host" for name, _ in self.headers) > 1:
            return
        url = httptools.parse_url(self.url)
        if url.host:
            host = b"[" + url.host + b"]" if b":" in url.host else url.host
            given = host + b":%d" % url.port if url.port else host
            self.headers[:] = [(b"host", given), *(header for header in self.headers if header[0] != b"host")]

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_headers = True
        self._unread_bytes = 0
        self._stage = ""
        super().on_message_complete()

    # ---------------------------------------------------------------------------------------------------------- answers

    def send_400_response(self, msg: str) -> None:
        if self._field_bytes > MAX_HEADER_BYTES:
            self._refuse(_TOO_LARGE)
        elif self.pipeline:  # clients would take this answer for the answer to an earlier request
            self._refuse(b"")
        else:
            self._log_refusal(400, len(msg))
            super().send_400_response(msg)

    def _log_refusal(self, status: int, size: int) -> None:
        """Write a line of the access log, unless the application has the request, which then has a line."""
        app = self.config.app
        if self._stage == "accepted" or not isinstance(app, AccessLog):
            return
        method, path = "", ""
        if self._stage == "begun" and self.url and self.parser is not None:
            method = self.parser.get_method().decode("latin-1")
            try:
                path = unquote((httptools.parse_url(self.url).path or b"").decode("latin-1"))
            except httptools.HttpParserInvalidURLError:
                pass
        app.log_refusal("http", method, path, status, size, self.client[0] if self.client else "")

    def _refuse(self, response: bytes) -> None:
        """Read no more, and answer if no other answer is due. The client has some time to read before the end."""
        if self._refused:
            return
        self._log_refusal(431 if response else 400, 24 if response else 0)
        running, self._refused = self._running, True
        if running is None or running.response_complete:
            is_due = self._in_headers  # otherwise the request was answered before its end
        else:
            is_due = not self._in_headers and running is self.cycle and not running.response_started
        if is_due:
            self.transport.write(response)
        if running is not None and not running.response_complete:  # its handler has lost the client
            running.disconnected = True
            running.message_event.set()
        self.pipeline.clear()
        self._stop_timer()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(self.unread_body_seconds, self.transport.close)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_headers:  # closed at once, the client might lose the response
            self._stop_timer()
            self._timer = self.loop.call_later(self.unread_body_seconds, self.transport.close)

    def shutdown(self) -> None:
        if self._refused:
            self.transport.close()
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
