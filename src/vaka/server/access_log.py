"""The access log: one line of JSON for each request and each WebSocket, without queries, tokens and bodies."""

import os
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vaka.core.ports.env import Clock, format_timestamp
from vaka.server.kit.guard import PRINCIPAL_KEY, request_id_of
from vaka.server.kit.principal import Principal

WriteLine: TypeAlias = Callable[[bytes], None]

MAX_PATH_LENGTH = 1000
MAX_REDACTED_LENGTH = 2 * MAX_PATH_LENGTH
"""Characters of a path that are searched for secrets. A search of 60 kB takes up to 0.2 s, before authentication."""
MAX_WAITING_LINES = 10_000
CLIENT_LEFT = 499
"""The status of a request whose client left before the response began."""
SWITCHING_PROTOCOLS = 101


class AccessRecord(msgspec.Struct, kw_only=True):
    """One request, and how it ended."""

    time: str
    """When it began, RFC 3339 in UTC."""
    protocol: str
    """``http`` or ``websocket``."""
    method: str
    path: str
    """Without the query, which may have a ticket."""
    status: int
    duration_ms: float
    bytes: int
    """Bytes of the response's body, or of the frames that were sent."""
    principal: str
    tenant: str
    request_id: str
    """Empty for a request that was refused before it was read to the end of its headers."""
    client: str
    close_code: int | None = None
    """The close code of a WebSocket."""


class _Counted:
    """Counts what is sent to a client."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status, self.bytes = 0, 0
        self.close_code: int | None = None

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
        elif kind == "websocket.accept":
            self.status = SWITCHING_PROTOCOLS
        elif kind == "websocket.close":
            self.status = self.status or 403  # refused before its upgrade
            self.close_code = message.get("code", 1000)
        else:
            self.bytes += len(message.get("body") or message.get("bytes") or message.get("text") or b"")
        await self._send(message)


class AccessLog:
    """The outermost application: it writes a line when a request has ended."""

    def __init__(self, app: ASGIApp, write: WriteLine, clock: Clock, redact: Callable[[str], str]) -> None:
        """``redact`` removes secrets from a text: a path may have one by mistake of a client."""
        self._app = app
        self._write = write
        self._clock = clock
        self._redact = redact

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection, counted = HTTPConnection(scope), _Counted(send)
        request_id_of(connection)  # the line and the response have one id
        started = self._clock.time()
        begun = self._clock.monotonic()
        failed = True
        try:
            await self._app(scope, receive, counted.send)
            failed = False
        finally:
            if not counted.status:
                counted.status = 500 if failed else CLIENT_LEFT
            duration = self._clock.monotonic() - begun
            self._write(self._encode(connection, counted, format_timestamp(started), duration))

    def log_refusal(self, protocol: str, method: str, path: str, status: int, size: int, client: str) -> None:
        """Write the line of a request that was refused before it reached the application; ``size``: of the answer."""
        record = AccessRecord(
            time=format_timestamp(self._clock.time()),
            protocol=protocol,
            method=method,
            path=self._show_path(path),
            status=status,
            duration_ms=0.0,
            bytes=size,
            principal="",
            tenant="",
            request_id="",
            client=client,
        )
        self._write(_encode_record(record))

    def _show_path(self, path: str) -> str:
        """Return the beginning of a path without secrets, and without the part at which a long path is cut."""
        if len(path) > MAX_REDACTED_LENGTH:
            path = path[:MAX_REDACTED_LENGTH].rpartition("/")[0] + "/…"
        return self._redact(path)[:MAX_PATH_LENGTH]

    def _encode(self, connection: HTTPConnection, counted: _Counted, time: str, duration: float) -> bytes:
        scope, client = connection.scope, connection.client
        principal: Principal | None = scope.get(PRINCIPAL_KEY)
        record = AccessRecord(
            time=time,
            protocol=scope["type"],
            method=scope.get("method", "GET"),
            path=self._show_path(scope["path"]),
            status=counted.status,
            duration_ms=round(duration * 1000, 3),
            bytes=counted.bytes,
            principal=principal.id if principal is not None else "",
            tenant=principal.namespace if principal is not None else "",
            request_id=request_id_of(connection),
            client=client.host if client is not None else "",
            close_code=counted.close_code,
        )
        return _encode_record(record)


def _encode_record(record: AccessRecord) -> bytes:
    fields: dict[str, Any] = msgspec.to_builtins(record)
    if record.close_code is None:
        del fields["close_code"]
    return msgspec.json.encode(fields) + b"\n"


class LineWriter:
    """Writes lines to a descriptor in a thread of its own: a reader that does not read never delays the server.

    When too many lines wait, further ones are dropped.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING_LINES)
        self._thread = threading.Thread(target=self._run, name="access log", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Write a line soon."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            return

    def close(self, seconds: float) -> None:
        """Write what waits, at most for some seconds."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:  # nothing reads the log any more
                self._descriptor = os.open(os.devnull, os.O_WRONLY)
