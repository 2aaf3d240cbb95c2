"""Server-sent events: any split gives the same events; a cut, a flood or a silence is an error."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.core.types.errors import InvalidInput, ModelUnavailable
from vaka.models.transport.sse import ServerSentEvent, SSEParser, StreamLimits, describe_body, read_events
from vaka.testing.clock import FakeClock

LONG = b"x" * 50
CUT = "the stream was cut: it ended inside an event, before the blank line that completes one"

WORDS = [b"data", b"event", b"id", b"retry", b":", b": ", b"  ", b"x", b"12", b"{", b"data: {}\n\n", b"data: 1\r\n"]
MARKS = [b"\n", b"\r", b"\r\n", b"\n\n", b"\0", b"\xff", b"\xef", b"\xef\xbb\xbf", "é\u2028\x85".encode(), b"<p>\n"]
BODIES = st.lists(st.sampled_from(WORDS + MARKS), max_size=30).map(b"".join)


def event_of(data: bytes, event: str = "message", id: str = "") -> ServerSentEvent:
    return ServerSentEvent(data, event, id)


def parse_chunks(
    chunks: Iterable[bytes], limits: StreamLimits = StreamLimits()
) -> tuple[list[ServerSentEvent], str, int | None]:
    """Return the events, what was wrong in the end, and the retry."""
    parser, items = SSEParser(limits), list[ServerSentEvent]()
    try:
        for chunk in chunks:
            items += parser.feed(chunk)
        parser.end()
    except ModelUnavailable as error:
        return items, str(error), parser.retry
    return items, "", parser.retry


def split_bytes(body: bytes) -> list[bytes]:
    return [body[at : at + 1] for at in range(len(body))]


def reference_events(body: bytes) -> list[ServerSentEvent]:
    """Return the events of a stream as the standard tells it, one character after the other."""
    text = body.removeprefix(b"\xef\xbb\xbf").decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")
    items = list[ServerSentEvent]()
    data = ""
    event = ""
    last = ""
    for line in text.split("\n")[:-1]:  # the last has not ended
        name, _, value = line.partition(":")
        value = value[1:] if value[:1] == " " else value
        if line == "":
            if data:
                items.append(ServerSentEvent(data[:-1].encode("latin-1"), event or "message", last))
            data = event = ""
        elif name == "data":
            data += value + "\n"
        elif name == "event":
            event = value.encode("latin-1").decode()
        elif name == "id" and "\0" not in value:
            last = value.encode("latin-1").decode()
    return items


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_at_lf_cr_and_crlf(end: bytes) -> None:
    body = end.join([b"event: add", b"data: 1", b"data: 2", b"", b"data: 3", b"", b""])
    expected = ([event_of(b"1\n2", "add"), event_of(b"3")], "", None)
    assert parse_chunks([body]) == parse_chunks(split_bytes(body)) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"data: a\n\n", [event_of(b"a")]),
        (b"data:a\n\n", [event_of(b"a")]),
        (b"data:  a \n\n", [event_of(b" a ")]),
        (b"data\n\n", [event_of(b"")]),
        (b"data\ndata\n\n", [event_of(b"\n")]),
        (b"data:\n\n", [event_of(b"")]),
        (b"data: a: b\n\n", [event_of(b"a: b")]),
        (b": nothing\n\n", []),
        (b": ping\ndata: a\n: pong\ndata: b\n\n", [event_of(b"a\nb")]),
        (b"event: ping\n\ndata: a\n\n", [event_of(b"a")]),
        (b"event: a\nevent: b\ndata\n\n", [event_of(b"", "b")]),
        (b"event\ndata: a\n\n", [event_of(b"a")]),
        ("event: été\ndata: a\n\n".encode(), [event_of(b"a", "été")]),
        (b"id: 1\ndata: a\n\ndata\n\nid\ndata\n\n", [event_of(b"a", id="1"), event_of(b"", id="1"), event_of(b"")]),
        (b"id: 1\n\nid: 2\0\ndata: a\n\n", [event_of(b"a", id="1")]),
        (b"Data: a\ndata : b\n data: c\nother: d\nother\ndata: e\n\n", [event_of(b"e")]),
        (b"data: a\0b\xff\n\n", [event_of(b"a\0b\xff")]),
        ("data: \u2028\x85\x0b\x0c\x1c\n\n".encode(), [event_of("\u2028\x85\x0b\x0c\x1c".encode())]),
        (b"\xef\xbb\xbfdata: a\n\n", [event_of(b"a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [event_of(b"b")]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [event_of(b"a")]),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_fields_are_parsed_as_in_the_standard(body: bytes, expected: list[ServerSentEvent]) -> None:
    assert parse_chunks([body]) == parse_chunks(split_bytes(body)) == (expected, "", None)


@pytest.mark.parametrize(
    ("line", "retry"),
    [
        (b"1500", 1500),
        (b"0", 0),
        (b"9" * 9, 999_999_999),
        *((line, None) for line in (b"", b"1.5", b"-1", b"+1", b"1s", "٣".encode(), b"9" * 5000)),
    ],
)
def test_a_numeric_retry_field_is_stored(line: bytes, retry: int | None) -> None:
    assert parse_chunks([b"retry: " + line + b"\n\n"]) == ([], "", retry)


def test_an_event_is_complete_at_the_first_byte_of_its_blank_line() -> None:
    parser = SSEParser()
    assert parser.feed(b"data: a\r\n\r") == [event_of(b"a")]
    assert parser.feed(b"") == []
    assert parser.feed(b"\ndata: b\r") == []
    assert parser.feed(b"\r") == [event_of(b"b")]
    assert parser.feed(b"\r") == []
    parser.end()


@given(BODIES, st.lists(st.integers(0, 200), max_size=8))
def test_any_split_gives_the_same(body: bytes, cuts: list[int]) -> None:
    whole = parse_chunks([body])
    ends = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    assert parse_chunks(body[start:end] for start, end in pairwise(ends)) == whole
    assert parse_chunks(split_bytes(body)) == whole


@given(BODIES, st.integers(1, 40), st.integers(1, 80))
def test_any_split_meets_the_same_limits(body: bytes, event: int, total: int) -> None:
    limits = StreamLimits(event_bytes=event, total_bytes=total)
    body = b": an event stream\n" + body
    assert parse_chunks(split_bytes(body), limits)[0] == parse_chunks([body], limits)[0]
    assert parse_chunks(split_bytes(body), limits)[1].split(":")[0] == parse_chunks([body], limits)[1].split(":")[0]


@given(BODIES)
def test_events_equal_those_of_a_reference_parser(body: bytes) -> None:
    items, problem, _ = parse_chunks([body])
    if "UTF-8" not in problem:
        assert items == reference_events(body)


@pytest.mark.parametrize(
    "body",
    [b"data: a", b"data: a\r", b"da", b"event: a\n", b"data: a\n\nda", b"data: a\n\nid: 7\n", b"data: a\n\n\xff"],
)
def test_an_event_without_its_blank_line_is_an_error(body: bytes) -> None:
    items, problem, _ = parse_chunks([body])
    assert problem == CUT
    assert items == ([event_of(b"a")] if b"\n\n" in body else [])


@pytest.mark.parametrize("body", [b"data: a\n\n", b"data: a\n\n: bye", b"data: a\n\n: bye\n", b": ping"])
def test_a_stream_may_end_after_an_event_or_in_a_comment(body: bytes) -> None:
    assert parse_chunks([body])[1] == ""


@pytest.mark.parametrize(("field", "what"), [(b"event", "name"), (b"id", "id")])
def test_a_name_or_id_that_is_not_utf8_is_an_error(field: bytes, what: str) -> None:
    items, problem, _ = parse_chunks([b"data: a\n\n" + field + b": \xff\xfe\ndata: b\n\n"])
    assert items == [event_of(b"a")]
    assert problem == f"the {what} of an event is not UTF-8: b'\\xff\\xfe'"


@pytest.mark.parametrize(
    "body",
    [b"data: " + LONG, b"data:" + LONG + b"\n", b"data: 123\n" * 5, b"data\n" * 20, b"event: " + LONG, b": " + LONG],
)
def test_an_event_that_is_too_large_is_an_error_before_it_ends(body: bytes) -> None:
    items, problem, _ = parse_chunks([b"data: a\n\n" + body], StreamLimits(event_bytes=40))
    assert items == [event_of(b"a")]
    assert problem == "an event of the stream is larger than the 40 bytes it may have"


def test_an_event_that_is_too_large_is_an_error_also_in_a_chunk_of_its_own() -> None:
    items, problem, _ = parse_chunks([b"data: a\n\n", b"data: " + LONG], StreamLimits(event_bytes=40))
    assert items == [event_of(b"a")]
    assert problem == "an event of the stream is larger than the 40 bytes it may have"
    complete = [b"data: a\n\n", b"data: " + LONG + b"\n\n"]
    assert parse_chunks(complete, StreamLimits(event_bytes=40))[:2] == (items, problem)


def test_an_event_as_large_as_it_may_be_is_read_and_the_next_one_too() -> None:
    body = b"data: " + b"x" * 34 + b"\n\n"
    assert parse_chunks([body * 3], StreamLimits(event_bytes=40)) == ([event_of(b"x" * 34)] * 3, "", None)


def test_too_many_bytes_are_an_error_after_the_events_that_fit() -> None:
    body = b"data: a\n\n"
    assert parse_chunks([body * 2], StreamLimits(total_bytes=18)) == ([event_of(b"a")] * 2, "", None)
    problem = "the model's answer is larger than the 20 bytes it may have"
    assert parse_chunks([body * 5], StreamLimits(total_bytes=20)) == ([event_of(b"a")] * 2, problem, None)


def test_a_failed_parser_raises_again() -> None:
    parser = SSEParser(StreamLimits(event_bytes=8))
    assert parser.feed(b"data: a\n\n" + b"data: aaa\n\ndata: b\n\n") == [event_of(b"a")]
    assert parser.failure is not None
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="larger than the 8 bytes"):
            parser.feed(b"data: c\n\n")
    with pytest.raises(ModelUnavailable, match="larger than the 8 bytes"):
        parser.end()


@pytest.mark.parametrize("name", ["event_bytes", "total_bytes", "idle_seconds", "total_seconds"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_a_limit_must_be_positive(name: str, value: float) -> None:
    limit: dict[str, Any] = {name: value}
    with pytest.raises(InvalidInput, match=f"{name} must be more than 0, not {value!r}"):
        StreamLimits(**limit)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<!DOCTYPE html>\n<html>\n\ndata", "an HTML page: '<!DOCTYPE html> <html> data'"),
        (b"  <h1>502 Bad Gateway</h1>", "an HTML page: '<h1>502 Bad Gateway</h1>'"),
        (b'<?xml version="1.0"?><Error/>', "an XML document: '<?xml version=\"1.0\"?><Error/>'"),
        (b'{"error": {"message": "overloaded"}}', 'a JSON object: \'{"error": {"message": "overloaded"}}\''),
        (b'{\n  "error": "no"\n}\n\n', 'a JSON object: \'{ "error": "no" }\''),
        (b'\xef\xbb\xbf[{"error": 1}]', "a JSON array: '[{\"error\": 1}]'"),
        (b"upstream connect error", "plain text: 'upstream connect error'"),
        (b"error: no data\n\n", "plain text: 'error: no data'"),
        ("caf\xe9".encode("latin-1"), "plain text: 'caf\ufffd'"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "gzip data that was not unpacked"),
        (b"\x28\xb5\x2f\xfd\x00\x58", "binary data"),
        (bytes(range(128, 256)), "binary data"),
    ],
)
def test_a_body_that_is_not_an_event_stream_is_described(body: bytes, said: str) -> None:
    assert describe_body(body) == said
    assert parse_chunks([body]) == ([], f"expected an event stream, got {said}", None)
    assert parse_chunks(split_bytes(body)) == ([], f"expected an event stream, got {said}", None)


def test_a_page_that_is_too_large_is_described_as_a_page() -> None:
    problem = parse_chunks([b"<html>" + b"x" * 100], StreamLimits(event_bytes=50))[1]
    assert problem.startswith("expected an event stream, got an HTML page: '<html>xxx")
    assert parse_chunks([b"<p>a\n" * 100], StreamLimits(total_bytes=50))[1].startswith(
        "expected an event stream, got an HTML page"
    )


def test_only_the_beginning_of_a_body_is_shown() -> None:
    assert describe_body(b" \n") == describe_body(b"") == "an empty body"
    assert describe_body(b"so " * 500) == f"plain text: {('so ' * 67)[:200] + '…'!r}"


@pytest.mark.parametrize("secret", ["sk-proj-ab****yz", "AIzaExample", "gsk_abcdef", "q8Zk2LmN4pR6tV8xYz01"])
@pytest.mark.parametrize("padding", [0, 150, 165, 175])
def test_text_like_a_secret_is_not_shown_in_part_either(secret: str, padding: int) -> None:
    said = describe_body(f"{'so ' * (padding // 3)} bad credential: {secret} was given".encode())
    assert secret[:5] not in said
    assert "[redacted]" in said


@pytest.mark.parametrize(
    "text",
    ["Authorization: Bearer hunter2", "got bearer hunter2", "/v1?key=hunter2&alt=sse", '{"api_key": "hunter2"}'],
)
def test_a_value_after_the_name_of_a_secret_is_not_shown(text: str) -> None:
    assert "hunter2" not in describe_body(text.encode())


def test_ordinary_words_are_shown() -> None:
    body = b'{"error": {"type": "invalid_api_key", "message": "Use /v1/chat/completions; max_tokens: 5 is too few"}}'
    assert describe_body(body) == f"a JSON object: {body.decode()!r}"


class ChunkSource:
    """Chunks that come and then stall, with a note of how they were closed."""

    def __init__(self, *chunks: bytes, stall: bool = False) -> None:
        self.chunks = chunks
        self.stall = stall
        self.closed = False
        self.stalled = asyncio.Event()

    async def __call__(self) -> AsyncGenerator[bytes]:
        try:
            for chunk in self.chunks:
                yield chunk
            if self.stall:
                self.stalled.set()
                await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.closed = True


async def drain_events(
    chunks: AsyncIterator[bytes], limits: StreamLimits = StreamLimits(), clock: FakeClock | None = None
) -> tuple[list[ServerSentEvent], str]:
    items = list[ServerSentEvent]()
    try:
        async with aclosing(read_events(chunks, limits=limits, clock=(clock or FakeClock()).monotonic)) as events:
            async for item in events:
                items.append(item)
    except ModelUnavailable as error:
        return items, str(error)
    return items, ""


async def test_a_stream_is_read_to_its_end_and_closed() -> None:
    source = ChunkSource(b"data: a\n", b"\ndata: b", b"", b"\n\n")
    assert await drain_events(source()) == ([event_of(b"a"), event_of(b"b")], "")
    assert source.closed


async def test_a_cut_stream_yields_its_complete_events_and_raises() -> None:
    source = ChunkSource(b"retry: 2500\ndata: a\n\ndata: b\n")
    async with aclosing(read_events(source())) as events:
        assert await anext(events) == event_of(b"a")
        with pytest.raises(ModelUnavailable, match="the stream was cut") as caught:
            await anext(events)
    assert caught.value.retry_after == 2.5
    assert source.closed


async def test_an_invalid_stream_is_closed_at_once() -> None:
    source = ChunkSource(b"data: a\n\ndata: " + b"x" * 100, stall=True)
    problem = "an event of the stream is larger than the 40 bytes it may have"
    assert await drain_events(source(), StreamLimits(event_bytes=40)) == ([event_of(b"a")], problem)
    assert source.closed


async def test_silence_is_an_error_and_closes_the_stream() -> None:
    source = ChunkSource(b"data: a\n\n", stall=True)
    items, problem = await drain_events(source(), StreamLimits(idle_seconds=0.01))
    assert (items, problem) == ([event_of(b"a")], "the model sent nothing for 0.01 seconds")
    assert source.closed


async def test_silence_after_half_a_page_is_described_as_the_page() -> None:
    source = ChunkSource(b"<html>", stall=True)
    assert await drain_events(source(), StreamLimits(idle_seconds=0.01)) == (
        [],
        "expected an event stream, got an HTML page: '<html>'",
    )


async def test_silence_until_the_total_time_limit_is_an_error() -> None:
    source = ChunkSource(b"data: a\n\n", stall=True)
    items, problem = await drain_events(source(), StreamLimits(total_seconds=0.01))
    assert (items, problem) == ([event_of(b"a")], "the model's answer took longer than the 0.01 seconds it may")
    assert source.closed


async def test_pings_without_end_reach_the_time_limit() -> None:
    clock, closed = FakeClock(), list[bool]()

    async def pings() -> AsyncGenerator[bytes]:
        try:
            while True:
                clock.advance(15)
                yield b": ping\n\n"
        finally:
            closed.append(True)

    problem = "the model's answer took longer than the 60 seconds it may"
    assert await drain_events(pings(), StreamLimits(total_seconds=60), clock) == ([], problem)
    assert closed == [True]
    assert clock.monotonic() == 60


async def test_a_timeout_of_the_transport_is_passed_on_as_it_is() -> None:
    async def broken() -> AsyncGenerator[bytes]:
        yield b"data: a\n\n"
        raise TimeoutError("of the socket")

    with pytest.raises(TimeoutError, match="of the socket"):
        await drain_events(broken())


async def test_a_reader_that_stops_closes_the_stream() -> None:
    source = ChunkSource(b"data: a\n\ndata: b\n\n", stall=True)
    async with aclosing(read_events(source())) as events:
        assert await anext(events) == event_of(b"a")
    assert source.closed


async def test_a_cancelled_reader_closes_the_stream() -> None:
    source = ChunkSource(b"data: a\n\n", stall=True)
    task = asyncio.create_task(drain_events(source()))
    await source.stalled.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.closed


class ManualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is set by the test."""

    now = 0.0

    def time(self) -> float:
        return self.now

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, and what was due by then happen."""
        self.now += seconds
        for _ in range(5):
            await asyncio.sleep(0)


def test_the_idle_limit_does_not_apply_to_the_reader() -> None:
    loop = ManualLoop()
    source = ChunkSource(b"data: a\n\n", b"data: b\n\n", stall=True)

    async def think() -> None:
        async with aclosing(read_events(source(), limits=StreamLimits(idle_seconds=10))) as events:
            assert await anext(events) == event_of(b"a")
            await loop.advance(100)
            assert await anext(events) == event_of(b"b")
            late = asyncio.ensure_future(anext(events))
            await loop.advance(0)
            await loop.advance(9)
            assert not late.done()
            await loop.advance(2)
            with pytest.raises(ModelUnavailable, match="the model sent nothing for 10 seconds"):
                await late

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(think())
    assert source.closed


def test_a_cancellation_at_the_timeout_takes_precedence() -> None:
    loop, source = ManualLoop(), ChunkSource(b"data: a\n\n", stall=True)

    async def both() -> None:
        task = asyncio.create_task(drain_events(source(), StreamLimits(idle_seconds=10)))
        await source.stalled.wait()
        loop.call_at(10, task.cancel)
        await loop.advance(10)
        with pytest.raises(asyncio.CancelledError):
            await task

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(both())


def test_bytes_reset_the_idle_timer() -> None:
    loop, times = ManualLoop(), list[float]()

    async def drips() -> AsyncGenerator[bytes]:
        for _ in range(4):
            await loop.advance(8)
            yield b": drip\n"
        try:
            await loop.advance(9)
            await loop.advance(2)
        finally:
            times.append(loop.now)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(drain_events(drips(), StreamLimits(idle_seconds=10))) == (
            [],
            "the model sent nothing for 10 seconds",
        )
    assert times == [43]


async def test_an_iterator_that_cannot_be_closed_is_fine() -> None:
    class Once:
        def __init__(self) -> None:
            self.left = [b"data: a\n\n"]

        def __aiter__(self) -> "Once":
            return self

        async def __anext__(self) -> bytes:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop()

    assert await drain_events(Once()) == ([event_of(b"a")], "")


@pytest.mark.parametrize("kept", [None, -1, 30])
async def test_over_a_real_connection_every_byte_may_come_alone_and_a_cut_is_seen(kept: int | None) -> None:
    body = "event: text\r\ndata: \u2028a\r\n\r\n: ping\r\n\r\ndata: [DONE]\r\n\r".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for byte in split_bytes(body[:kept]):
            writer.write(b"1\r\n" + byte + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, httpx2.AsyncClient(trust_env=False) as client:
        port = server.sockets[0].getsockname()[1]
        async with client.stream("GET", f"http://127.0.0.1:{port}/") as response:
            items, problem = await drain_events(response.aiter_bytes())
    first, done = event_of("\u2028a".encode(), "text"), event_of(b"[DONE]")
    assert (items, problem) == {None: ([first, done], ""), -1: ([first], CUT), 30: ([first], "")}[kept]
