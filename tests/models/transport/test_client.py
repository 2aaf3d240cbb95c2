"""The HTTP client of the adapters: every failure is one of our errors, without keys."""

import asyncio
import gzip
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from vaka.core.types.errors import (
    AuthenticationFailed,
    BadRequest,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    StreamCut,
    VakaError,
)
from vaka.models.transport.client import Account, ProviderClient
from vaka.models.transport.pool import ConnectionPool
from vaka.models.transport.sse import ServerSentEvent, StreamLimits

KEY = "very-private-0123456789"
OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A socket that answers every request with the same bytes, and remembers what it was asked."""

    def __init__(self, answer: bytes | Answer) -> None:
        self.answer = answer
        self.requests = list[bytes]()
        self.connections = 0
        self.busy: set[asyncio.Task[None] | None] = set()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.busy.add(asyncio.current_task())
        try:
            await self.answer_one(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:"))
        self.requests.append(head + await reader.readexactly(length))
        if isinstance(self.answer, bytes):
            writer.write(self.answer)
            await writer.drain()
        else:
            await self.answer(reader, writer)


@asynccontextmanager
async def serve_answer(answer: bytes | Answer) -> AsyncGenerator[Server]:
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()
        await asyncio.gather(*(task for task in server.busy if task), return_exceptions=True)


async def read_stream(
    url: str, *, limits: StreamLimits = StreamLimits(), query: dict[str, str] | None = None
) -> list[ServerSentEvent]:
    account = Account(base_url=url, key=KEY, headers={"x-gateway": "g"}, query=query or {}, limits=limits)
    wire = ProviderClient(account, {"authorization": f"Bearer {KEY}"})
    try:
        async with wire.open_events("chat/completions", {"model": "m"}) as items:
            return [item async for item in items]
    finally:
        await wire.close()


async def error_of(answer: bytes | Answer, *, limits: StreamLimits = StreamLimits()) -> VakaError:
    async with serve_answer(answer) as server:
        with pytest.raises(VakaError) as caught:
            await read_stream(server.url, limits=limits)
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value)
    return caught.value


def http_response(status: str, body: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 " + status.encode(), b"content-length: %d" % len(body), b"connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def test_a_request_carries_its_headers_query_and_body_and_the_events_come_back() -> None:
    async with serve_answer(OK + b"data: one\n\nevent: x\ndata: two\n\n") as server:
        items = await read_stream(server.url, query={"api-version": "7"})
    assert [(item.data, item.event) for item in items] == [(b"one", "message"), (b"two", "x")]
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions?api-version=7 HTTP/1.1")
    for line in (b"authorization: Bearer " + KEY.encode(), b"x-gateway: g", b"accept: text/event-stream"):
        assert line.lower() in head.lower()
    assert body == b'{"model":"m"}'


async def test_a_compressed_stream_is_decompressed() -> None:
    packed = gzip.compress(b"data: one\n\n")
    async with serve_answer(OK.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n") + packed) as server:
        assert [item.data for item in await read_stream(server.url)] == [b"one"]


async def test_a_stream_that_cannot_be_decompressed_is_cut() -> None:
    error = await error_of(OK.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n") + b"data: no gzip\n\n")
    assert isinstance(error, StreamCut)


async def test_a_decompression_bomb_ends_at_the_limit() -> None:
    bomb = gzip.compress(b"data: " + b"\0" * 5_000_000)
    answer = OK.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n") + bomb
    error = await error_of(answer, limits=StreamLimits(event_bytes=100_000, total_bytes=1_000_000))
    assert isinstance(error, StreamCut)
    assert "larger than" in str(error)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("401 No", AuthenticationFailed),
        ("429 Slow", RateLimited),
        ("500 Oh", ModelUnavailable),
        ("400 Bad", BadRequest),
    ],
)
async def test_an_error_has_the_message_of_the_provider_without_the_key(status: str, kind: type[VakaError]) -> None:
    body = b'{"error": {"message": "wrong: %s", "type": "t"}}' % KEY.encode()
    error = await error_of(http_response(status, body, b"retry-after: 3"))
    assert type(error) is kind
    assert "wrong" in str(error)


async def test_an_error_contains_no_other_secret_of_the_request() -> None:
    body = b'{"error": {"message": "wrong: gate-111 pass-222 wish-333 a2ltOnBhc3MtMjIy boats"}}'
    async with serve_answer(http_response("400 Bad", body)) as server:
        account = Account(
            base_url=server.url.replace("//", "//kim:pass-222@"),
            headers={"x-gate-token": "Bearer gate-111", "x-team": "boats"},
        )
        wire = ProviderClient(account, {})
        with pytest.raises(BadRequest) as caught:
            await wire.post("x", {}, headers={"x-wish-key": "wish-333"})
        await wire.close()
    assert str(caught.value).startswith("wrong: [redacted] [redacted] [redacted] [redacted] boats")


async def test_framing_headers_cannot_be_set() -> None:
    async with serve_answer(b"") as server:
        wire = ProviderClient(Account(base_url=server.url), {})
        for name in ("Content-Length", "transfer-encoding"):
            with pytest.raises(BadRequest, match="cannot be set"):
                await wire.post("x", {}, headers={name: "3"})
        await wire.close()
        assert server.requests == []


@pytest.mark.parametrize("variable", ["ALL_PROXY", "SSL_CERT_FILE"])
async def test_an_unusable_proxy_or_certificate_file_is_an_error(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, error_text = {
        "ALL_PROXY": ("socks5://127.0.0.1:1", "SOCKS proxy, for which the package 'socksio' must be installed"),
        "SSL_CERT_FILE": ("/there/is/none.pem", "SSL_CERT_FILE of the environment cannot be used"),
    }[variable]
    monkeypatch.setenv(variable, value)
    wire = ProviderClient(Account(base_url="https://provider.example/v1"), {})
    with pytest.raises(BadRequest, match=error_text):
        await wire.post("x", {})
    await wire.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "socks5://127.0.0.1:1"])
async def test_a_server_on_this_machine_is_reached_without_a_proxy(
    host: str, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    async with serve_answer(http_response("200 OK", b"{}")) as server:
        wire = ProviderClient(Account(base_url=server.url.replace("127.0.0.1", host)), {})
        assert [await wire.post("x", {}), await wire.post("x", {})] == [b"{}", b"{}"]
        await wire.close()
    assert len(server.requests) == 2


async def test_a_pool_uses_the_proxy_only_for_remote_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        serve_answer(http_response("200 OK", b"{}")) as proxy,
        serve_answer(http_response("200 OK", b"{}")) as server,
    ):
        monkeypatch.setenv("http_proxy", proxy.url)
        http = ConnectionPool()
        for base_url in (server.url, "http://provider.example/v1"):
            assert await ProviderClient(Account(base_url=base_url), {}, http).post("x", {}) == b"{}"
        await http.close()
    assert ([len(proxy.requests), len(server.requests)]) == [1, 1]
    assert proxy.requests[0].startswith(b"POST http://provider.example/v1/x ")


async def test_a_redirect_is_not_followed() -> None:
    async with serve_answer(OK + b"data: stolen\n\n") as thief:
        error = await error_of(http_response("307 Away", b"", b"location: " + thief.url.encode()))
        assert thief.requests == []
    assert isinstance(error, ModelRefused)


@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream", b"text/plain", b""])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b" \n"])
async def test_an_error_object_with_status_200_is_an_error_for_any_content_type(kind: bytes, before: bytes) -> None:
    body = before + b'{"error": {"message": "no such model", "type": "invalid_request_error"}}'
    error = await error_of(http_response("200 OK", body, b"content-type: " + kind))
    assert type(error) is BadRequest
    assert "no such model" in str(error)


@pytest.mark.parametrize("kind", [b"application/json", b"text/html", b"application/octet-stream", b""])
async def test_a_stream_is_read_for_any_content_type(kind: bytes) -> None:
    async with serve_answer(http_response("200 OK", b"data: one\n\ndata: two\n\n", b"content-type: " + kind)) as server:
        assert [item.data for item in await read_stream(server.url)] == [b"one", b"two"]


async def test_an_error_object_that_is_cut_is_described_by_its_beginning() -> None:
    async def stops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b'{"error": {"message": "no such mo')
        await reader.read()

    error = await error_of(stops, limits=StreamLimits(idle_seconds=0.5))
    assert type(error) is StreamCut
    assert "no such mo" in str(error)


async def test_a_complete_answer_instead_of_a_stream_is_a_cut() -> None:
    error = await error_of(http_response("200 OK", b'{"choices": []}', b"content-type: application/json"))
    assert type(error) is StreamCut
    assert "expected an event stream" in str(error)


async def test_a_page_instead_of_a_stream_is_a_cut() -> None:
    error = await error_of(http_response("200 OK", b"<html>Sign in</html>", b"content-type: text/html"))
    assert type(error) is StreamCut
    assert "HTML" in str(error)


async def test_a_refused_connection_is_model_unavailable() -> None:
    async with serve_answer(b"") as server:
        url = server.url
    with pytest.raises(ModelUnavailable, match=r"cannot reach 127\.0\.0\.1"):
        await read_stream(url)


@pytest.mark.parametrize("url", ["ftp://example.com", "not an address", "http://[::bad", "http://127.0.0.1:99999"])
async def test_an_invalid_address_is_a_bad_request(url: str) -> None:
    with pytest.raises(BadRequest):
        await read_stream(url)


async def test_a_silent_server_times_out() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the other side has gone

    error = await error_of(silent, limits=StreamLimits(idle_seconds=0.05))
    assert isinstance(error, ModelUnavailable)
    assert "nothing for 0.05 seconds" in str(error)


async def test_a_server_that_stops_during_the_answer_times_out() -> None:
    async def stops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"data: one\n\n")
        await reader.read()

    error = await error_of(stops, limits=StreamLimits(idle_seconds=0.5))
    assert isinstance(error, StreamCut)


async def test_a_server_that_sends_only_headers_times_out() -> None:
    async def stops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await reader.read()

    error = await error_of(stops, limits=StreamLimits(idle_seconds=0.5))
    assert type(error) is StreamCut
    assert "sent nothing for 0.5 seconds" in str(error)


async def test_a_body_shorter_than_its_content_length_is_a_cut() -> None:
    error = await error_of(
        http_response("200 OK", b"data: one\n\n", b"content-type: text/event-stream").replace(b": 11", b": 99")
    )
    assert isinstance(error, StreamCut)


async def test_an_error_body_that_never_ends_is_described_by_its_beginning() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Oh\r\ncontent-type: text/plain\r\n\r\nsomething broke")
        await reader.read()

    error = await error_of(endless, limits=StreamLimits(idle_seconds=0.5))
    assert isinstance(error, ModelUnavailable)
    assert "something broke" in str(error)


async def test_closing_early_closes_the_connection() -> None:
    gone = asyncio.Event()

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"data: one\n\n")
        await reader.read()
        gone.set()

    async with serve_answer(watch) as server:
        wire = ProviderClient(Account(base_url=server.url), {})
        async with wire.open_events("x", {}) as items:
            await anext(items)
        async with asyncio.timeout(60):
            await gone.wait()
        await wire.close()


async def test_connections_are_reused_and_shared() -> None:
    async def again(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b"data: one\n\n"
        answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        writer.write(answer)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"POST")
        await reader.readexactly(2)
        writer.write(answer)
        await writer.drain()

    http = ConnectionPool()
    async with serve_answer(again) as server:
        for _ in range(2):
            wire = ProviderClient(Account(base_url=server.url), {}, http)
            async with wire.open_events("x", {}) as items:
                assert [item.data async for item in items] == [b"one"]
            await wire.close()  # the connections are shared
        assert server.connections == 1
        await http.close()


def test_a_key_is_not_shown() -> None:
    account = Account(base_url=f"https://kim:{KEY}@example.com", key=KEY)
    assert KEY not in repr(account)
    assert KEY not in f"{account}"


async def test_a_complete_answer_is_read_to_its_end() -> None:
    async with serve_answer(http_response("200 OK", b'{"data": []}', b"content-type: application/json")) as server:
        wire = ProviderClient(Account(base_url=server.url), {})
        assert await wire.post("embeddings", {}) == b'{"data": []}'
        await wire.close()


async def test_a_complete_answer_that_ends_early_is_a_cut() -> None:
    async with serve_answer(http_response("200 OK", b"{}").replace(b": 2\r", b": 9\r")) as server:
        wire = ProviderClient(Account(base_url=server.url), {})
        with pytest.raises(StreamCut):
            await wire.post("embeddings", {})
        await wire.close()


async def test_a_body_that_cannot_be_encoded_as_json_is_a_bad_request() -> None:
    wire = ProviderClient(Account(base_url="http://127.0.0.1:1"), {})
    with pytest.raises(BadRequest):
        await wire.post("x", {"a": "\ud800"})
    await wire.close()


async def test_an_invalid_header_is_a_bad_request() -> None:
    async with serve_answer(b"") as server:
        wire = ProviderClient(Account(base_url=server.url, headers={"x-a": "a\nb: c"}), {})
        with pytest.raises(BadRequest):
            await wire.post("x", {})
        await wire.close()
        assert server.requests == []


def test_another_event_loop_gets_new_connections() -> None:
    http = ConnectionPool()

    async def once() -> bytes:
        async with serve_answer(OK + b"data: one\n\n") as server:
            wire = ProviderClient(Account(base_url=server.url), {}, http)
            async with wire.open_events("x", {}) as items:
                data = [item.data async for item in items]
            await http.close()
            return data[0]

    assert [asyncio.run(once()), asyncio.run(once())] == [b"one", b"one"]


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("broken", [f"{KEY}\nmore-of-it", f"{KEY}\r\nx: y", f"more-of-it\x00{KEY}"])
async def test_a_header_that_cannot_be_sent_is_named_and_not_shown(
    proxied: bool, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_answer(http_response("200 OK", b"{}")) as server:
        if proxied:
            monkeypatch.setenv("http_proxy", server.url)
        base_url = "http://provider.example/v1" if proxied else server.url
        wire = ProviderClient(Account(base_url=base_url, key=broken), {"x-api-key": broken})
        with pytest.raises(BadRequest, match="the header 'x-api-key' has an invalid character") as caught:
            await wire.post("x", {})
        await wire.close()
    assert (KEY in str(caught.value), "more-of-it" in str(caught.value), server.requests) == (False, False, [])
