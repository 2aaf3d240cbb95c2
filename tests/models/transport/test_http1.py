"""The HTTP/1.1 client for streams: it reads the same bodies as h11 for any split, and detects cut bodies."""

import asyncio
import random
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import h11
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.runtime_fixtures import advance_loop_time, wait_until
from vaka.models.transport.client import Account, ProviderClient
from vaka.models.transport.http1 import HIGH_WATER, ChunkedBody, Http1Connection, Http1Transport, SizedBody

HEAD = b"HTTP/1.1 200 OK\r\n"


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
    response = await client.post(f"http://127.0.0.1:{made.port}/x", content=b"hello", timeout=5)
    return response.content


async def decode_body(*pieces: bytes) -> bytes:
    async with start_peer(list(pieces)) as made, httpx2.AsyncClient(transport=Http1Transport()) as client:
        return await get_body(client, made)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"content-length: 5\r\n\r\nhello", b"hello"),
        (b"Content-Length: 5, 5\r\n\r\nhello", b"hello"),
        (b"content-length: 0\r\n\r\n", b""),
        (b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n", b"hello"),
        (b"Transfer-Encoding: Chunked\r\n\r\n000005 \r\nhello\r\n0\r\ntrailer: x\r\n\r\n", b"hello"),
        (b"connection: close\r\n\r\nhello", b"hello"),
        (b"\r\nhello", b"hello"),
    ],
)
async def test_a_body_ends_at_its_content_length_or_last_chunk(head: bytes, body: bytes) -> None:
    assert await decode_body(HEAD + head) == body
    assert await decode_body(*[bytes([byte]) for byte in HEAD + head]) == body


async def test_lines_may_end_without_a_carriage_return() -> None:
    assert await decode_body(b"HTTP/1.1 200\ntransfer-encoding: chunked\n\n5\nhello\n0\n\n") == b"hello"


async def test_informational_responses_are_skipped() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
    assert await decode_body(early + HEAD + b"content-length: 2\r\n\r\nok") == b"ok"


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
        HEAD + b" folded: x\r\n\r\n",
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
        HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        HEAD + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_an_invalid_or_incomplete_response_is_an_error(answer: bytes) -> None:
    with pytest.raises(httpx2.TransportError):
        await decode_body(answer)


async def test_a_connection_that_breaks_is_an_error() -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"hello")
        writer.write(HEAD + b"content-length: 5\r\n\r\nhe")
        await writer.drain()
        writer.transport.abort()

    server = await asyncio.start_server(breaks, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with httpx2.AsyncClient(transport=Http1Transport()) as client:
        with pytest.raises(httpx2.TransportError):
            await client.post(f"http://127.0.0.1:{port}", content=b"hello")
    server.close()
    await server.wait_closed()


_BODIES = st.lists(st.binary(min_size=1, max_size=40), max_size=6)


@given(chunks=_BODIES, seed=st.integers(0, 2**32))
def test_any_split_of_a_chunked_body_gives_what_h11_reads(chunks: list[bytes], seed: int) -> None:
    pieces = [*(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks), b"0\r\n\r\nnext"]
    wire = b"".join(pieces)
    oracle = h11.Connection(h11.CLIENT)
    oracle.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    oracle.send(h11.EndOfMessage())
    oracle.receive_data(HEAD + b"transfer-encoding: chunked\r\n\r\n" + wire)
    expected = b""
    while not isinstance(event := oracle.next_event(), h11.EndOfMessage):
        expected += bytes(event.data) if isinstance(event, h11.Data) else b""
    chance, frame, got, at = random.Random(seed), ChunkedBody(), b"", 0
    while at < len(wire) and not frame.done:
        step = chance.randint(1, 12)
        got += frame.feed(wire[at : at + step])
        at += step
    assert frame.done
    assert got == expected == b"".join(chunks)
    assert frame.rest + wire[at:] == b"next"
    aligned = ChunkedBody()
    assert [aligned.feed(piece) for piece in pieces] == [*chunks, b""]
    assert (aligned.done, aligned.rest) == (True, b"next")


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_body_or_an_error(data: bytes) -> None:
    frame = ChunkedBody()
    try:
        frame.feed(data)
    except httpx2.RemoteProtocolError:
        return
    assert frame.done or not frame.rest


def test_bytes_after_a_body_of_known_length_are_not_read() -> None:
    frame = SizedBody(3)
    assert (frame.feed(b"abcd"), frame.done, frame.rest) == (b"abc", True, b"d")


async def test_a_connection_is_used_again_and_never_by_two_at_once() -> None:
    answer = [HEAD + b"content-length: 2\r\n\r\nok"]
    async with (
        start_peer(*[answer] * 6, hold=True) as made,
        httpx2.AsyncClient(transport=Http1Transport()) as client,
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
        HEAD + b"content-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsmuggl",
    ],
)
async def test_a_connection_with_close_or_extra_bytes_is_not_reused(answer: bytes) -> None:
    async with (
        start_peer([answer], [answer], hold=True) as made,
        httpx2.AsyncClient(transport=Http1Transport()) as client,
    ):
        assert [await get_body(client, made) for _ in range(2)] == [b"ok"] * 2
        assert made.connections == 2


async def test_a_connection_is_not_reused_if_the_request_asks_to_close_it() -> None:
    answer = [HEAD + b"content-length: 2\r\n\r\nok"]
    async with (
        start_peer(answer, answer, hold=True) as made,
        httpx2.AsyncClient(transport=Http1Transport(), headers={"connection": "close"}) as client,
    ):
        assert [await get_body(client, made) for _ in range(2)] == [b"ok"] * 2
        await made.finish()  # it was hung up on, twice
        assert made.connections == 2


async def test_an_idle_connection_that_the_server_closed_is_not_reused() -> None:
    answer = [HEAD + b"content-length: 2\r\n\r\nok"]
    async with start_peer(answer) as first, httpx2.AsyncClient(transport=Http1Transport()) as client:
        await get_body(client, first)
        await first.finish()  # it has hung up
        first.answers.append(answer)
        assert await get_body(client, first) == b"ok"
        assert first.connections == 2


@pytest.mark.parametrize("reset", [False, True])
async def test_a_request_is_sent_again_when_a_reused_connection_is_closed(reset: bool) -> None:
    asked = 0
    talks: list[asyncio.Task[None] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer once, and hang up on the second request without a word."""
        nonlocal asked
        talks.append(asyncio.current_task())
        for answer in (HEAD + b"content-length: 2\r\n\r\nok", b""):
            if await reader.read(1 << 16):
                asked += 1
            writer.write(answer)
        if reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, httpx2.AsyncClient(transport=Http1Transport()) as client:
        assert [(await client.post(url, content=b"hello")).content for _ in range(3)] == [b"ok"] * 3
    await asyncio.gather(*(talk for talk in talks if talk is not None))
    assert asked == 5


async def test_a_request_to_a_silent_server_is_sent_once() -> None:
    async with start_peer([b""]) as made, httpx2.AsyncClient(transport=Http1Transport()) as client:
        with pytest.raises(httpx2.RemoteProtocolError, match="the server hung up without an answer"):
            await get_body(client, made)
    assert made.connections == 1


async def test_a_connection_is_reused_when_the_end_of_the_body_arrives_late() -> None:
    answer = [HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", b"3\r\nmor\r\n", b"0\r\n", b"\r\n"]
    async with start_peer(answer, answer, answer) as made, httpx2.AsyncClient(transport=Http1Transport()) as client:
        for _ in range(3):
            async with client.stream("POST", f"http://127.0.0.1:{made.port}/x", content=b"") as response:
                async for piece in response.aiter_raw():
                    assert piece.startswith(b"hello")
                    break
            for _ in range(50):
                await asyncio.sleep(0)
    assert made.connections == 1


class RecordingTransport(asyncio.Transport):
    """The end of a connection in our hand."""

    hung_up = False

    def abort(self) -> None:
        self.hung_up = True

    def is_closing(self) -> bool:
        return self.hung_up


@pytest.mark.parametrize(
    ("rest", "kept"),
    [
        (b"\r\n0\r\n\r\n", True),
        (b"\r\n6\r\n world\r\n0\r\n\r\n", True),
        (b"\r\nffff\r\n" + b"x" * 0xFFFF + b"\r\n0\r\n\r\n", False),
        (b"\r\nno chunk\r\n0\r\n\r\n", False),
        (b"\r\n0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", False),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_connection_is_reused_only_if_nothing_but_the_end_of_the_body_is_left(
    rest: bytes, kept: bool, size: int
) -> None:
    hook, frame, given = RecordingTransport(), ChunkedBody(), list[Http1Connection]()
    connection = Http1Connection()
    connection.connection_made(hook)
    assert frame.feed(b"5\r\nhello") == b"hello"
    connection.drain(frame, given.append)
    for at in range(0, len(rest), size):
        connection.data_received(rest[at : at + size])
    assert not connection.is_draining
    for one in given:
        one.idle_since = time.monotonic()  # as the transport does
    assert [one for one in given if one.usable] == ([connection] if kept else [])
    assert hook.hung_up or given


async def test_a_connection_closed_during_the_wait_is_not_reused() -> None:
    for ends in (Http1Connection.eof_received, lambda connection: connection.connection_lost(None)):
        given: list[Http1Connection] = []
        connection = Http1Connection()
        connection.connection_made(RecordingTransport())
        connection.drain(ChunkedBody(), given.append)
        ends(connection)
        assert (connection.is_draining, connection.usable, given) == (False, False, [])


async def test_the_end_of_a_body_is_not_waited_for_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, hook = Http1Connection(), RecordingTransport()
    connection.connection_made(hook)
    connection.drain(ChunkedBody(), lambda _: None)
    advance_loop_time(monkeypatch)
    await wait_until(lambda: hook.hung_up)
    assert not connection.is_draining


async def test_closing_does_not_wait_for_the_rest_of_a_body() -> None:
    begin = HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
    async with start_peer([begin], hold=True) as made:
        transport = Http1Transport()
        client = httpx2.AsyncClient(transport=transport)
        async with client.stream("POST", f"http://127.0.0.1:{made.port}/x", content=b"") as response:
            async for _ in response.aiter_raw():
                break
        await client.aclose()
        await made.finish()


async def test_large_bodies_go_both_ways_and_a_slow_reader_makes_the_server_wait() -> None:
    large = bytes(range(256)) * (4 * HIGH_WATER // 256)
    async with (
        start_peer([HEAD + b"content-length: %d\r\n\r\n" % len(large), large]) as made,
        httpx2.AsyncClient(transport=Http1Transport()) as client,
        client.stream("POST", f"http://127.0.0.1:{made.port}/x", content=large) as response,
    ):
        got = b""
        async for piece in response.aiter_raw():
            got += piece
    assert got == large
    assert made.requests[0].endswith(large)


async def test_the_head_of_a_request_is_valid() -> None:
    async with (
        start_peer([HEAD + b"content-length: 2\r\n\r\nok"]) as made,
        httpx2.AsyncClient(transport=Http1Transport()) as client,
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
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder


async def test_tls_connects_only_to_trusted_servers(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    made = HttpPeer([HEAD + b"content-length: 2\r\n\r\n{}"])
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]

    async def ask(host: str) -> bytes:
        async with httpx2.AsyncClient(transport=Http1Transport()) as client:
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
