"""Connections to providers: bodies arrive whole or as an error, and a connection is reused only when that is safe.

Every test runs with each transport, on asyncio's own event loop and on uvloop.
"""

import asyncio
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from vaka.models.transport.aiohttp_transport import AiohttpTransport
from vaka.models.transport.client import Account, ProviderClient
from vaka.models.transport.pool import ConnectionPool, DirectTransport, TransportFactory

pytestmark = pytest.mark.every_loop

HEAD = b"HTTP/1.1 200 OK\r\n"
TRANSPORTS: list[TransportFactory] = [DirectTransport, AiohttpTransport]


@pytest.fixture(params=TRANSPORTS, ids=lambda factory: factory.__name__)
def direct(request: pytest.FixtureRequest) -> TransportFactory:
    """Makes the transport of a test."""
    factory: TransportFactory = request.param
    return factory


class HttpPeer:
    """A server that says one thing after another, in pieces, whatever it is asked."""

    def __init__(self, *answers: list[bytes], hold: bool = False) -> None:
        self.answers, self.hold = list(answers), hold
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            self.hold = False
        finally:
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                self.hold = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self.answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.lower().splitlines() if line.startswith(b"content-length:")]
            body = await reader.readexactly(int(length[0][15:])) if length else b""
            self.requests.append(head + body)
            for piece in self.answers.pop(0):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        if self.hold:
            await reader.read()

    async def finish(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def start_peer(*answers: list[bytes], hold: bool = False) -> AsyncGenerator[HttpPeer]:
    made = HttpPeer(*answers, hold=hold)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
        await made.finish()


async def get_body(client: httpx2.AsyncClient, made: HttpPeer) -> bytes:
    response = await client.post(f"http://127.0.0.1:{made.port}/x", content=b"hello", timeout=30)
    return response.content


async def decode_body(direct: TransportFactory, *pieces: bytes) -> bytes:
    async with start_peer(list(pieces)) as made, httpx2.AsyncClient(transport=direct()) as client:
        return await get_body(client, made)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"content-length: 5\r\n\r\nhello", b"hello"),
        (b"content-length: 0\r\n\r\n", b""),
        (b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n", b"hello"),
        (b"Transfer-Encoding: Chunked\r\n\r\n000005 \r\nhello\r\n0\r\ntrailer: x\r\n\r\n", b"hello"),
        (b"connection: close\r\n\r\nhello", b"hello"),
        (b"\r\nhello", b"hello"),
    ],
)
async def test_a_body_ends_at_its_content_length_or_last_chunk(
    direct: TransportFactory, head: bytes, body: bytes
) -> None:
    assert await decode_body(direct, HEAD + head) == body
    assert await decode_body(direct, *[bytes([byte]) for byte in HEAD + head]) == body


async def test_informational_responses_are_skipped(direct: TransportFactory) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    assert await decode_body(direct, early + HEAD + b"content-length: 2\r\n\r\nok") == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/2 200\r\n\r\n",
        b"220 smtp ready\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        HEAD + b"no header\r\n\r\n",
        HEAD + b"bad name: x\r\n\r\n",
        HEAD + b"nul: a\0b\r\n\r\n",
        HEAD + b"content-length: 5\r\n\r\nhell",
        HEAD + b"content-length: 5, 6\r\n\r\nhello",
        HEAD + b"content-length: -5\r\n\r\nhello",
        HEAD + b"content-length: 5x\r\n\r\nhello",
        HEAD + b"content-length: " + b"9" * 30 + b"\r\n\r\nhello",
        HEAD + b"transfer-encoding: gzip\r\n\r\nhello",
        HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhel",
        HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"f" * 5000 + b"\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 50_000 + b"\r\n",
        HEAD + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
    ],
)
async def test_an_invalid_or_incomplete_response_is_an_error(direct: TransportFactory, answer: bytes) -> None:
    with pytest.raises(httpx2.TransportError):
        await decode_body(direct, answer)


async def test_a_connection_that_breaks_is_an_error(direct: TransportFactory) -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"hello")
        writer.write(HEAD + b"content-length: 5\r\n\r\nhe")
        await writer.drain()
        writer.transport.abort()

    server = await asyncio.start_server(breaks, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with httpx2.AsyncClient(transport=direct()) as client:
        with pytest.raises(httpx2.TransportError):
            await client.post(f"http://127.0.0.1:{port}", content=b"hello")
    server.close()
    await server.wait_closed()


async def test_a_connection_is_used_again_and_never_by_two_at_once(direct: TransportFactory) -> None:
    answer = [HEAD + b"content-length: 2\r\n\r\nok"]
    async with (
        start_peer(*[answer] * 6, hold=True) as made,
        httpx2.AsyncClient(transport=direct()) as client,
    ):
        assert [await get_body(client, made) for _ in range(3)] == [b"ok"] * 3
        assert made.connections == 1
        assert await asyncio.gather(*(get_body(client, made) for _ in range(3))) == [b"ok"] * 3
        assert made.connections == 3


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"content-length: 2\r\nconnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_a_connection_that_the_server_will_close_is_not_reused(direct: TransportFactory, answer: bytes) -> None:
    async with (
        start_peer([answer], [answer], hold=True) as made,
        httpx2.AsyncClient(transport=direct()) as client,
    ):
        assert [await get_body(client, made) for _ in range(2)] == [b"ok"] * 2
        assert made.connections == 2


async def test_a_connection_is_not_reused_if_the_request_asks_to_close_it(direct: TransportFactory) -> None:
    answer = [HEAD + b"content-length: 2\r\n\r\nok"]
    async with (
        start_peer(answer, answer, hold=True) as made,
        httpx2.AsyncClient(transport=direct(), headers={"connection": "close"}) as client,
    ):
        assert [await get_body(client, made) for _ in range(2)] == [b"ok"] * 2
        await made.finish()  # it was hung up on, twice
        assert made.connections == 2


async def test_an_idle_connection_that_the_server_closed_is_not_reused(direct: TransportFactory) -> None:
    answer = [HEAD + b"content-length: 2\r\n\r\nok"]
    async with start_peer(answer) as first, httpx2.AsyncClient(transport=direct()) as client:
        await get_body(client, first)
        await first.finish()  # it has hung up
        first.answers.append(answer)
        assert await get_body(client, first) == b"ok"
        assert first.connections == 2


@pytest.mark.parametrize("reset", [False, True])
async def test_a_request_is_sent_again_when_a_reused_connection_is_closed(
    direct: TransportFactory, reset: bool
) -> None:
    asked = 0
    talks: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer once, and hang up on the second request without a word."""
        nonlocal asked
        talks.append(asyncio.current_task())
        for answer in (HEAD + b"content-length: 2\r\n\r\nok", b""):
            with suppress(asyncio.IncompleteReadError):
                await reader.readuntil(b"hello")
                asked += 1
            writer.write(answer)
        if reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, httpx2.AsyncClient(transport=direct()) as client:
        assert [(await client.post(url, content=b"hello")).content for _ in range(3)] == [b"ok"] * 3
    await asyncio.gather(*(talk for talk in talks if talk is not None))
    assert asked == 5


async def test_a_request_to_a_silent_server_is_sent_once(direct: TransportFactory) -> None:
    async with start_peer([b""]) as made, httpx2.AsyncClient(transport=direct()) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await get_body(client, made)
    assert made.connections == 1


EVENT = b"data: hello\n\n"
STREAM = HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(EVENT), EVENT)


async def read_first_event(http: ConnectionPool, made: HttpPeer) -> bytes:
    wire = ProviderClient(Account(base_url=f"http://127.0.0.1:{made.port}"), {}, http)
    async with wire.open_events("x", {}) as events:
        return (await anext(events)).data


async def test_a_connection_is_reused_when_the_end_of_the_body_arrives_after_the_last_event(
    direct: TransportFactory,
) -> None:
    answer = [STREAM, b"3\r\n:x\n\r\n", b"0\r\n", b"\r\n"]
    async with start_peer(answer, answer, answer, hold=True) as made:
        http = ConnectionPool(direct=direct)
        for count in range(1, 4):
            assert await read_first_event(http, made) == b"hello"
            await http.wait_until_released()
            assert (len(made.requests), made.connections) == (count, 1)
        await http.close()


@pytest.mark.parametrize("rest", [b"100000\r\n" + b"x" * 0x100000 + b"\r\n0\r\n\r\n", b""], ids=["long", "late"])
async def test_a_connection_is_closed_when_the_rest_of_the_body_is_long_or_late(
    direct: TransportFactory, rest: bytes
) -> None:
    async with start_peer([STREAM, rest], [STREAM, rest], hold=True) as made:
        http = ConnectionPool(direct=direct)
        for _ in range(2):
            assert await read_first_event(http, made) == b"hello"
            await http.wait_until_released()
        await http.close()
    assert made.connections == 2


async def test_closing_the_pool_closes_connections_whose_body_has_no_end(direct: TransportFactory) -> None:
    async with start_peer([STREAM], hold=True) as made:
        http = ConnectionPool(direct=direct)
        assert await read_first_event(http, made) == b"hello"
        await http.close()
        await made.finish()


async def test_large_bodies_go_both_ways_and_a_slow_reader_makes_the_server_wait(direct: TransportFactory) -> None:
    large = bytes(range(256)) * 4096
    async with (
        start_peer([HEAD + b"content-length: %d\r\n\r\n" % len(large), large]) as made,
        httpx2.AsyncClient(transport=direct()) as client,
        client.stream("POST", f"http://127.0.0.1:{made.port}/x", content=large) as response,
    ):
        got = b""
        async for piece in response.aiter_raw():
            got += piece
    assert got == large
    assert made.requests[0].endswith(large)


async def test_the_head_of_a_request_is_valid(direct: TransportFactory) -> None:
    async with (
        start_peer([HEAD + b"content-length: 2\r\n\r\nok"]) as made,
        httpx2.AsyncClient(transport=direct()) as client,
    ):
        await client.post(f"http://127.0.0.1:{made.port}/a%20b?c=d", content=b"hello", headers=[(b"X-Y", "é".encode())])
    lines = made.requests[0].split(b"\r\n")
    assert lines[0] == b"POST /a%20b?c=d HTTP/1.1"
    assert b"Host: 127.0.0.1:%d" % made.port in lines
    assert "X-Y: é".encode() in lines
    assert b"Content-Length: 5" in lines


async def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with start_peer([HEAD + b"content-length: 2\r\n\r\n{}"]) as made:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{made.port}")
        wire = ProviderClient(Account(base_url="http://provider.example/v1"), {})
        assert await wire.post("x", {}) == b"{}"
        await wire.close()
    assert made.requests[0].startswith(b"POST http://provider.example/v1/x HTTP/1.1")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            "key.pem",
            "-out",
            "cert.pem",
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


async def test_tls_connects_only_to_trusted_servers(
    direct: TransportFactory, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    made = HttpPeer([HEAD + b"content-length: 2\r\n\r\n{}"])
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    async def ask(host: str) -> bytes:
        async with httpx2.AsyncClient(transport=direct()) as client:
            return (await client.post(f"https://{host}:{port}/x", content=b"")).content

    with pytest.raises(httpx2.ConnectError, match=r"(?i)certificate"):
        await ask("localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    with pytest.raises(httpx2.ConnectError, match=r"(?i)certificate|mismatch"):
        await ask("127.0.0.1")
    assert await ask("localhost") == b"{}"
    server.close()
    await server.wait_closed()
    await made.finish()
