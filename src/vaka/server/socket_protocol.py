"""WebSocket connections with bounds: every handshake is answered, and no client makes the server hold much."""

from typing import Any
from urllib.parse import unquote

from starlette.types import Scope
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from vaka.server.access_log import AccessLog

MAX_FIRST_BYTES = 64 * 1024
"""The largest message of a client that has not authenticated."""
PIECE_BYTES = 4096
"""Bytes that are parsed at a time. They may be 700 frames, which take 10 ms, and messages of 200 KB in memory."""
CLOSE_INVALID_TEXT = 1007
_ADMIT_KEY = "vaka.admit_socket"
_BAD_HANDSHAKE = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 32\r\nconnection: close\r\n\r\n"
    b"the WebSocket handshake is wrong"
)


def admit_large_messages(scope: Scope) -> None:
    """Let the client of a WebSocket, which has authenticated, send messages of any permitted size."""
    if (admit := scope.get(_ADMIT_KEY)) is not None:
        admit()


class BoundedSocketProtocol(WebSocketsSansIOProtocol):
    """Answers handshakes that cannot be parsed, and reads messages only as fast as the application takes them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unparsed = bytearray()
        self._is_scheduled = False
        self._max_message_bytes, self.conn.max_message_size = self.conn.max_message_size, MAX_FIRST_BYTES

    def data_received(self, data: bytes) -> None:
        if self.handshake_initiated:
            self._unparsed += data
            if not self._is_scheduled:
                self._parse()
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.close_sent:
            self._refuse_handshake(data)

    def _refuse_handshake(self, head: bytes) -> None:
        """Send the answer of the parser, which no event announces."""
        self.handshake_complete = self.close_sent = True
        answer = b"".join(self.conn.data_to_send()) or _BAD_HANDSHAKE
        target, status = head.split(b" ", 2)[1], int(answer.split(b" ", 2)[1])
        self._log_refusal(target.decode("latin-1"), status, len(answer.partition(b"\r\n\r\n")[2]))
        self.transport.write(answer)
        self.transport.close()

    def _log_refusal(self, target: str, status: int, size: int) -> None:
        """Write a line of the access log for a handshake that the application does not see."""
        app = self.config.app
        if isinstance(app, AccessLog):
            path, client = unquote(target.partition("?")[0]), self.client[0] if self.client else ""
            app.log_refusal("websocket", "GET", path, status, size, client)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.close_sent:
            self._log_refusal(event.path, self.response.status_code, len(self.response.body or b""))
        else:
            scope: Any = self.scope
            scope[_ADMIT_KEY] = self._admit

    def _admit(self) -> None:
        self.conn.max_message_size = self._max_message_bytes

    def _parse(self) -> None:
        """Parse a piece of what has come. The next one follows when messages are taken and others had their turn."""
        self._is_scheduled = False
        if self._unparsed and (self.queue.empty() or self.close_sent) and not self.transport.is_closing():
            piece = bytes(self._unparsed[:PIECE_BYTES])
            del self._unparsed[:PIECE_BYTES]
            super().data_received(piece)
        self._go_on()

    def _go_on(self) -> None:
        """Parse more, or read more when all is parsed; neither while a message waits for the application."""
        if self.transport.is_closing() or not (self.queue.empty() or self.close_sent):
            return
        if self._unparsed:
            if not self.read_paused:
                self.read_paused = True
                self.transport.pause_reading()
            if not self._is_scheduled:
                self._is_scheduled = True
                self.loop.call_soon(self._parse)
        elif self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    async def receive(self) -> ASGIReceiveEvent:
        message = await self.queue.get()
        self._go_on()
        return message

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.close_sent:  # the answer of the client may have come before
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unparsed.clear()
        super().connection_lost(exc)

    def handle_cont(self, event: Frame) -> None:
        if event.data or event.fin:  # a message may have any number of empty parts
            super().handle_cont(event)

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:  # the answers to a client that does not read would wait in memory
            self.conn.data_to_send()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent and not _is_utf8(b"".join(self.frames)):
            self.frames = []
            self.conn.send_close(CLOSE_INVALID_TEXT, "a text must be UTF-8")
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False
