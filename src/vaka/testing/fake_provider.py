"""A fake model provider: an HTTP server on 127.0.0.1 that speaks four wire formats and fails on request.

::

    async with FakeProvider(call("weather", city="Hilo"), say("Yes.")) as provider:
        model = OpenAIChat("any", Account(base_url=provider.url + "/v1"))

It answers Chat Completions, Responses, Anthropic Messages and Gemini's streamGenerateContent with answers written as those of
``vaka.testing.models``. ``Fault`` says what is wrong with the connection or the server.
"""

import asyncio
import itertools
import math
import socket
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, cast
from urllib.parse import unquote, urlsplit

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.testing.models import ScriptLine
from vaka.testing.wires import anthropic, gemini, openai
from vaka.testing.wires.scripted_answer import ScriptedFailure, parse_answer

UNLIMITED = math.inf
"""``Fault(pings=FOR_EVER)``: signs of life, and never an answer."""
EVENT_STREAM_TYPE = "text/event-stream; charset=utf-8"
MAX_HEAD_BYTES = 1024 * 1024
"""Bytes that the head of a request may have."""
GATEWAY_PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>\n"
)


class ProviderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked: ``body`` as data, header names in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any
    raw: bytes
    """The body as it was sent."""

    @property
    def model(self) -> str:
        """The model that was asked: the path names it, or the body does."""
        name, colon, _ = self.path.rpartition("/")[2].partition(":")
        body: Any = self.body
        return name if colon else str(cast("dict[str, Any]", body).get("model", "")) if isinstance(body, dict) else ""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with an answer.

    Bytes are counted in its body, before anything is packed or pinged; less than 0 counts from the end.
    """

    status: int = 200
    headers: Mapping[str, str] = {}
    """Sent with the answer; one that is there already is replaced."""
    body: bytes | None = None
    """Sent instead of the answer."""
    cut: int | None = None
    """The body ends after so many bytes, in good order as far as HTTP can tell."""
    drip: int = 0
    """So many bytes come at a time."""
    stall_after: int | None = None
    """Nothing more comes after so many bytes, and nothing ends."""
    reset_after: int | None = None
    """The connection breaks after so many bytes."""
    garble: tuple[int, bytes] | None = None
    """From this place on, these bytes come instead of as many others."""
    pings: float = 0
    """So many signs of life come before each event."""
    html: bool = False
    """A page of a gateway comes, with status 502 unless another is given."""
    redirect_to: str = ""
    """The request is sent elsewhere, with status 307 unless another is given."""
    content_length: int | None = None
    """The length that is claimed; the connection is closed after the body."""
    gzip: bool = False
    """The body is packed."""


class WireFormat(NamedTuple):
    """What a file of ``vaka.testing.wires`` offers."""

    render: Callable[[ScriptLine, dict[str, Any]], list[bytes]]
    error: Callable[[ScriptedFailure], dict[str, Any]]
    ping: bytes


AnswerSource: TypeAlias = ScriptLine | Callable[[ProviderRequest], ScriptLine]

WIRE_FORMATS = {
    "/chat/completions": WireFormat(openai.render_chat_answer, openai.render_chat_error, openai.CHAT_PING),
    "/responses": WireFormat(openai.render_responses_answer, openai.render_responses_error, openai.RESPONSES_PING),
    "/messages": WireFormat(anthropic.render_answer, anthropic.render_error, anthropic.PING),
    ":streamGenerateContent": WireFormat(gemini.render_answer, gemini.render_error, gemini.PING),
}
"""How the path of each wire ends, whatever comes before."""


def render_events(answer: ScriptLine, request: ProviderRequest) -> list[bytes]:
    """Return the events with which an answer to a request goes out, if nothing is wrong."""
    wire, failure = _match_wire(request)
    if failure is not None:
        raise InvalidInput(failure.message)
    return wire.render(answer, {**cast("dict[str, Any]", request.body), "model": request.model})


class FakeProvider:
    """The n-th request gets the n-th answer and, with ``repeat``, the last one again from then on.

    An answer may be a function of the ``Request``. ``fault`` is for every request, or one for each in order (``None``
    for none). ``requests`` are those that came, ``left`` is how many answers the client did not wait for.
    """

    def __init__(
        self, *answers: AnswerSource, repeat: bool = True, fault: Fault | Sequence[Fault | None] | None = None
    ) -> None:
        if not answers:
            raise InvalidInput("a provider needs an answer, such as say('Hi.')")
        for answer in answers:
            if not callable(answer):
                parse_answer(answer)
        self._answers, self._repeat, self._fault = answers, repeat, fault
        self.url = ""
        """Where it is, without a path."""
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
            for talk in self._connection_tasks:
                talk.cancel()
            await asyncio.gather(*self._connection_tasks, return_exceptions=True)
            await self._server.wait_closed()

    async def wait_until(self, condition: Callable[["FakeProvider"], bool]) -> None:
        """Wait until something holds, such as ``lambda provider: provider.left == 1``."""
        while not condition(self):
            self._changed.clear()
            await self._changed.wait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.get_running_loop().create_task(self._serve_connection(reader, writer))
        self._connection_tasks.add(talk)
        talk.add_done_callback(self._connection_tasks.discard)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = _ClientConnection(reader, writer)
        try:
            while line.open and (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                self._changed.set()
                try:
                    await self._reply(len(self.requests) - 1, request, line)
                except ConnectionError:
                    self.abandoned_count += 1
                    break
                finally:
                    self._changed.set()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _reply(self, number: int, request: ProviderRequest, line: "_ClientConnection") -> None:
        fault = self._fault_of(number)
        if fault.html or fault.redirect_to or fault.body is not None:
            await line.send(_substitute_head(fault), [fault.body or (GATEWAY_PAGE if fault.html else b"")], fault)
            return
        wire, failure = _match_wire(request)
        answer = self._answer_of(number, request)
        script = parse_answer(answer)
        if failure is None and not script.has_content:
            failure = script.error
        if failure is not None:
            after = {} if failure.retry_after is None else {"retry-after": f"{failure.retry_after:g}"}
            head = _ResponseHead(failure.status, {"content-type": "application/json", **after})
            await line.send(head, [msgspec.json.encode(wire.error(failure))], fault)
            return
        head = _ResponseHead(200, {"content-type": EVENT_STREAM_TYPE})
        await line.send(head, render_events(answer, request), fault, ping=wire.ping, wait=script.stall or 0.0)

    def _fault_of(self, number: int) -> Fault:
        if isinstance(self._fault, Fault):
            return self._fault
        faults = self._fault or ()
        return (faults[number] if number < len(faults) else None) or Fault()

    def _answer_of(self, number: int, request: ProviderRequest) -> ScriptLine:
        if number >= len(self._answers) and not self._repeat:
            count = len(self._answers)
            words = f"the provider has {count} answer{'s' if count > 1 else ''}, this is request {number + 1}"
            return {"error": {"status": 400, "message": words}}
        answer = self._answers[min(number, len(self._answers) - 1)]
        return answer(request) if callable(answer) else answer


class _ResponseHead(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]


class _ClientConnection:
    """A connection to one client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.open = True
        """Whether another request may come."""

    async def send(
        self, head: _ResponseHead, segments: Sequence[bytes], fault: Fault, *, ping: bytes = b"", wait: float = 0.0
    ) -> None:
        """Send an answer as the fault lets it. Raises ``ConnectionError`` when the client did not wait for it."""
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
        self._writer.write(b"0\r\n\r\n" if fault.content_length is None else b"")
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
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _write(self, data: bytes, fault: Fault) -> None:
        if self._reader.at_eof():
            raise ConnectionResetError("the client has left")
        if data:
            self._writer.write(data if fault.content_length is not None else b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()
        await asyncio.sleep(0)  # the client, if it is in this process, reads what came so far

    async def _stay_silent(self, seconds: float) -> None:
        """Say nothing for a time, or until the client leaves."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                await self._reader.read(1)
                raise ConnectionResetError("the client has left")

    def _reset_connection(self) -> None:
        """Break the connection: the client gets an error, not an end."""
        self.open = False
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


def _split_body(segments: Sequence[bytes], fault: Fault, ping: bytes) -> Iterator[bytes]:
    """Yield what goes out, in the pieces it goes out in."""
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
    start = 0
    for segment in segments:
        end = start + len(segment)
        if garble is not None and garble[0] < end and garble[0] + len(garble[1]) > start:
            place, noise = garble
            first, last = max(place, start), min(place + len(noise), end)
            segment = segment[: first - start] + noise[first - place : last - place] + segment[last - start :]
        yield segment
        start = end


def _substitute_head(fault: Fault) -> _ResponseHead:
    if fault.redirect_to:
        return _ResponseHead(307, {"location": fault.redirect_to})
    if fault.html:
        return _ResponseHead(502, {"content-type": "text/html"})
    return _ResponseHead(200, {"content-type": EVENT_STREAM_TYPE})


async def _read_request(reader: asyncio.StreamReader) -> ProviderRequest | None:
    """Return the next request, ``None`` when the client has gone."""
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
    """Return the wire that a request speaks, and what is wrong with the request."""
    other = ("", WIRE_FORMATS["/chat/completions"])
    end, wire = next((item for item in WIRE_FORMATS.items() if request.path.endswith(item[0])), other)
    if not end or request.method != "POST":
        known = ", ".join(f"…{end}" for end in WIRE_FORMATS)
        words = f"there is no {request.method} {request.path}; the provider answers POST {known}"
        return wire, ScriptedFailure(status=404, message=words)
    body: Any = request.body
    if not isinstance(body, dict):
        return wire, ScriptedFailure(status=400, message="the body must be a JSON object with a content-length")
    if end.startswith(":") and "alt=sse" not in request.query:
        return wire, ScriptedFailure(status=400, message="the provider only streams events: ask with alt=sse")
    if not end.startswith(":") and cast("dict[str, Any]", body).get("stream") is not True:
        return wire, ScriptedFailure(status=400, message="the provider only streams: set 'stream' to true")
    return wire, None
