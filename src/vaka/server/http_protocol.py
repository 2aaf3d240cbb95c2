"""HTTP connections with bounds: a client can neither send endless headers nor take endless time for a request."""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADER_BYTES = 64 * 1024
HEADER_SECONDS = 10.0
"""Seconds within which the headers of a request must arrive, from the connection or the first byte on."""
UNREAD_BODY_SECONDS = 5.0
"""Seconds that a client has to read the response to a request whose body it has not sent to the end."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\ncontent-length: 24\r\n"
    b"connection: close\r\n\r\nthe headers are too long"
)


class BoundedHttpProtocol(HttpToolsProtocol):
    """Closes a connection whose headers are too long or take too long, or whose body goes on after the response."""

    header_seconds, unread_body_seconds = HEADER_SECONDS, UNREAD_BODY_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._in_headers = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self._timer = self.loop.call_later(self.header_seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            if self._timer is None:
                self._timer = self.loop.call_later(self.header_seconds, self.transport.close)
            self._header_bytes += len(data)
            super().data_received(data)
            if self._header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()
        else:
            super().data_received(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value.strip(b" \t"))  # the parser leaves blanks at the end, which are not part of it

    def on_headers_complete(self) -> None:
        self._in_headers, self._header_bytes = False, 0
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_headers = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_headers:  # closed at once, the client might lose the response
            self._stop_timer()
            self._timer = self.loop.call_later(self.unread_body_seconds, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
