"""A fake model provider: an HTTP server on 127.0.0.1 that speaks four wire formats and fails on request.

::

    async with FakeProvider(call("weather", city="Hilo"), say("Yes.")) as provider:
        model = OpenAIChat("any", Account(base_url=provider.url + "/v1"))

It answers Chat Completions, Responses, Anthropic Messages and Gemini's streamGenerateContent with the scripted answers
of ``vaka.testing.models``. ``Fault`` describes a failure of the connection or the server.
"""

import asyncio
import itertools
import math
import socket
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast
from urllib.parse import unquote, urlsplit

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.system.event_loops import write_to_stream
from vaka.testing.models import ScriptLine
from vaka.testing.wires import WIRE_FORMATS, ScriptedFailure, WireFormat, parse_answer

UNLIMITED = math.inf
"""``Fault(pings=UNLIMITED)``: pings without end, and never an answer."""
EVENT_STREAM_TYPE = "text/event-stream; charset=utf-8"
MAX_HEAD_BYTES = 1024 * 1024
"""Maximum size of a request's head."""
GATEWAY_PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>\n"
)


class ProviderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A received request: ``body`` is decoded JSON, header names are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any
    raw: bytes
    """The body as it was sent."""

    @property
    def model(self) -> str:
        """The requested model, from the path or the body."""
        name, colon, _ = self.path.rpartition("/")[2].partition(":")
        body: Any = self.body
        return name if colon else str(cast("dict[str, Any]", body).get("model", "")) if isinstance(body, dict) else ""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A failure of one answer.

    Bytes are counted in its body, before compression and pings; a negative number counts from the end.
    """

    status: int = 200
    headers: Mapping[str, str] = {}
    """Sent with the answer; they replace headers of the same name."""
    body: bytes | None = None
    """Sent instead of the answer."""
    cut: int | None = None
    """The body ends after so many bytes, correctly as far as HTTP is concerned."""
    drip: int = 0
    """So many bytes are sent at a time."""
    stall_after: int | None = None
    """After so many bytes nothing more is sent, and the connection stays open."""
    reset_after: int | None = None
    """The connection is reset after so many bytes."""
    garble: tuple[int, bytes] | None = None
    """At this offset, these bytes overwrite the original ones."""
    pings: float = 0
    """So many pings are sent before each event."""
    html: bool = False
    """The answer is a gateway's HTML page, with status 502 unless another is given."""
    redirect_to: str = ""
    """The answer is a redirect, with status 307 unless another is given."""
    content_length: int | None = None
    """The Content-Length that is sent; the connection is closed after the body."""
    gzip: bool = False
    """The body is compressed."""


AnswerSource: TypeAlias = ScriptLine | Callable[[ProviderRequest], ScriptLine]


def render_events(answer: ScriptLine, request: ProviderRequest) -> list[bytes]:
    """Return the events of an answer to a request. Raises ``InvalidInput`` for an invalid request."""
    wire, failure = _match_wire(request)
    if failure is not None:
        raise InvalidInput(failure.message)
    return wire.render(parse_answer(answer), {**cast("dict[str, Any]", request.body), "model": request.model})


class FakeProvider:
    """The n-th request gets the n-th answer; with ``repeat`` all later ones get the last answer.

    An answer may be a function of the ``ProviderRequest``. ``fault`` is for every request, or one for each in order
    (``None`` for none). ``requests`` has the received requests, ``abandoned_count`` counts answers during which the
    client disconnected.
    """

    def __init__(
        self, *answers: AnswerSource, repeat: bool = True, fault: Fault | Sequence[Fault | None] | None = None
    ) -> None:
        if not answers:
            raise InvalidInput("a provider needs an answer, such as say('Hi.')")
        for answer in answers:
            if not callable(answer):
                parse_answer(answer)
        self._answers = answers
        self._repeat = repeat
        self._fault = fault
        self.url = ""
        """Its address, without a path."""
        self.requests: list[ProviderRequest] = []
        self.abandoned_count = 0
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connection_tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "FakeProvider":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            for task in self._connection_tasks:
                task.cancel()
            await asyncio.gather(*self._connection_tasks, return_exceptions=True)
            await self._server.wait_closed()

    async def wait_until(self, condition: Callable[["FakeProvider"], bool]) -> None:
        """Wait until a condition holds, such as ``lambda provider: provider.abandoned_count == 1``."""
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve_connection(reader, writer))
        self._connection_tasks.add(task)
        task.add_done_callback(self._connection_tasks.discard)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _ClientConnection(reader, writer)
        try:
            while connection.open and (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                self._changed.set()
                try:
                    await self._reply(len(self.requests) - 1, request, connection)
                except ConnectionError:
                    self.abandoned_count += 1
                    break
                finally:
                    self._changed.set()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _reply(self, number: int, request: ProviderRequest, connection: "_ClientConnection") -> None:
        fault = self._fault_of(number)
        if fault.html or fault.redirect_to or fault.body is not None:
            await connection.send(_substitute_head(fault), [fault.body or (GATEWAY_PAGE if fault.html else b"")], fault)
            return
        wire, failure = _match_wire(request)
        answer = self._answer_of(number, request)
        script = parse_answer(answer)
        if failure is None and not script.has_content:
            failure = script.error
        if failure is not None:
            after = {} if failure.retry_after is None else {"retry-after": f"{failure.retry_after:g}"}
            head = _ResponseHead(failure.status, {"content-type": "application/json", **after})
            await connection.send(head, [msgspec.json.encode(wire.error(failure))], fault)
            return
        head = _ResponseHead(200, {"content-type": EVENT_STREAM_TYPE})
        await connection.send(head, render_events(answer, request), fault, ping=wire.ping, wait=script.stall or 0.0)

    def _fault_of(self, number: int) -> Fault:
        if isinstance(self._fault, Fault):
            return self._fault
        faults = self._fault or ()
        return (faults[number] if number < len(faults) else None) or Fault()

    def _answer_of(self, number: int, request: ProviderRequest) -> ScriptLine:
        if number >= len(self._answers) and not self._repeat:
            count = len(self._answers)
            message = f"the provider has {count} answer{'s' if count > 1 else ''}, this is request {number + 1}"
            return {"error": {"status": 400, "message": message}}
        answer = self._answers[min(number, len(self._answers) - 1)]
        return answer(request) if callable(answer) else answer


class _ResponseHead(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]


class _ClientConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.open = True
        """Whether another request may follow."""

    async def send(
        self, head: _ResponseHead, segments: Sequence[bytes], fault: Fault, *, ping: bytes = b"", wait: float = 0.0
    ) -> None:
        """Send an answer with its fault. Raises ``ConnectionError`` when the client has disconnected."""
        self._write_head(head, fault)
        if wait:
            await self._stay_silent(wait)
        pack = zlib.compressobj(wbits=31) if fault.gzip else None
        for piece in _split_body(segments, fault, ping):
            packed = pack.compress(piece) + pack.flush(zlib.Z_SYNC_FLUSH) if pack else piece
            await self._write(packed, fault)
        if fault.stall_after is not None:
            await self._stay_silent(math.inf)
        if fault.reset_after is not None:
            self._reset_connection()
            return
        if pack:
            await self._write(pack.flush(), fault)
        write_to_stream(self._writer, b"0\r\n\r\n" if fault.content_length is None else b"")
        await self._writer.drain()

    def _write_head(self, head: _ResponseHead, fault: Fault) -> None:
        headers = {**head.headers, "x-request-id": "req_0123456789"}
        if fault.gzip:
            headers["content-encoding"] = "gzip"
        if fault.content_length is None:
            headers["transfer-encoding"] = "chunked"
        else:
            headers |= {"content-length": str(fault.content_length), "connection": "close"}
            self.open = False
        headers |= {name.lower(): value for name, value in fault.headers.items()}
        status = fault.status if fault.status != 200 else head.status
        lines = [f"HTTP/1.1 {status} Answer", *(f"{name}: {value}" for name, value in headers.items())]
        write_to_stream(self._writer, "\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _write(self, data: bytes, fault: Fault) -> None:
        if self._reader.at_eof():
            raise ConnectionResetError("the client has disconnected")
        if data:
            write_to_stream(
                self._writer, data if fault.content_length is not None else b"%x\r\n%b\r\n" % (len(data), data)
            )
        await self._writer.drain()
        await asyncio.sleep(0)  # a client in this process reads the piece

    async def _stay_silent(self, seconds: float) -> None:
        """Send nothing for a time, or until the client disconnects."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                await self._reader.read(1)
                raise ConnectionResetError("the client has disconnected")

    def _reset_connection(self) -> None:
        """Reset the connection: the client gets an error, not an end of file."""
        self.open = False
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _split_body(segments: Sequence[bytes], fault: Fault, ping: bytes) -> Iterator[bytes]:
    """Yield the pieces that are sent."""
    size = sum(map(len, segments))
    ends = [at for at in (fault.cut, fault.stall_after, fault.reset_after) if at is not None]
    left = min([size, *(at if at >= 0 else max(size + at, 0) for at in ends)])
    for segment in _garble_segments(segments, fault.garble):
        if left <= 0:
            return
        if ping:
            yield from itertools.repeat(ping) if math.isinf(fault.pings) else itertools.repeat(ping, int(fault.pings))
        part = segment[:left]
        left -= len(part)
        step = fault.drip or len(part) or 1
        yield from (part[at : at + step] for at in range(0, len(part), step))


def _garble_segments(segments: Sequence[bytes], garble: tuple[int, bytes] | None) -> Iterator[bytes]:
    body = b"".join(segments)
    if garble is not None:
        place, noise = garble
        body = (body[:place] + noise + body[place + len(noise) :])[: len(body)]
    ends = itertools.accumulate(map(len, segments))
    return (body[end - len(segment) : end] for segment, end in zip(segments, ends, strict=True))


def _substitute_head(fault: Fault) -> _ResponseHead:
    if fault.redirect_to:
        return _ResponseHead(307, {"location": fault.redirect_to})
    if fault.html:
        return _ResponseHead(502, {"content-type": "text/html"})
    return _ResponseHead(200, {"content-type": EVENT_STREAM_TYPE})


async def _read_request(reader: asyncio.StreamReader) -> ProviderRequest | None:
    """Return the next request, ``None`` when the client has disconnected."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
        return None
    method, target, _ = first.split(" ", 2)
    url = urlsplit(target)
    return ProviderRequest(
        method=method, path=unquote(url.path), query=url.query, headers=headers, body=_decode_body(raw), raw=raw
    )


def _decode_body(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError:
        return None


def _match_wire(request: ProviderRequest) -> tuple[WireFormat, ScriptedFailure | None]:
    """Return the wire format of a request, and the error if the request is invalid."""
    other = ("", WIRE_FORMATS["/chat/completions"])
    end, wire = next((item for item in WIRE_FORMATS.items() if request.path.endswith(item[0])), other)
    if not end or request.method != "POST":
        known = ", ".join(f"…{end}" for end in WIRE_FORMATS)
        message = f"there is no {request.method} {request.path}; the provider answers POST {known}"
        return wire, ScriptedFailure(status=404, message=message)
    body: Any = request.body
    if not isinstance(body, dict):
        return wire, ScriptedFailure(status=400, message="the body must be a JSON object with a content-length")
    if end.startswith(":") and "alt=sse" not in request.query:
        return wire, ScriptedFailure(status=400, message="the provider only streams events: ask with alt=sse")
    if not end.startswith(":") and cast("dict[str, Any]", body).get("stream") is not True:
        return wire, ScriptedFailure(status=400, message="the provider only streams: set 'stream' to true")
    return wire, None
