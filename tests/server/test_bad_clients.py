"""Clients that send slowly, never read, or leave in the middle: each costs the server a bounded time and memory."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.types import Message
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.server.conftest import Serve
from vaka.agents.react import Agent
from vaka.server.http_protocol import BoundedHttpProtocol
from vaka.server.settings import ServerSettings
from vaka.server.sse import HEARTBEAT, EventStream, OpenStreams
from vaka.testing import say

Scripted = Callable[..., Agent]


class _ImpatientProtocol(BoundedHttpProtocol):
    header_seconds = unread_body_seconds = 0.05


@asynccontextmanager
async def serve_impatiently(app: Any) -> AsyncGenerator[int]:
    """Serve an application with short times for requests; yield the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, http=_ImpatientProtocol, log_config=None, loop="none", lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
        listener.close()


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@pytest.mark.parametrize(
    "start", [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", b"GET / HTTP/1.1\r\nX-A: b"]
)
async def test_a_request_that_does_not_end_does_not_hold_its_connection(start: bytes) -> None:
    async with serve_impatiently(_refuse) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(start)
        reading = asyncio.create_task(reader.read())
        while not reading.done():
            if not writer.is_closing():
                writer.write(b"a")
            await asyncio.wait([reading], timeout=0.01)
        assert isinstance(reading.exception(), ConnectionError | None)
        writer.close()


async def _never() -> AsyncGenerator[bytes]:
    yield b"data: 1\n\n"
    await asyncio.Event().wait()


async def _wait_for_ever() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("blocked", [b"data: 1\n\n", HEARTBEAT])
async def test_a_stream_ends_when_its_client_does_not_read(blocked: bytes) -> None:
    streams, left = OpenStreams(ServerSettings(heartbeat=0.01, stall_timeout=0.01)), asyncio.Event()

    async def send(message: Message) -> None:
        if message.get("body") == blocked:
            await asyncio.Event().wait()

    async def leave() -> None:
        left.set()

    await EventStream(_never(), streams, on_disconnect=leave)({"type": "http"}, _wait_for_ever, send)
    assert left.is_set()
    assert len(streams) == 0


async def test_a_stream_that_is_cut_ends_although_its_client_does_not_read() -> None:
    streams, opened = OpenStreams(ServerSettings(stall_timeout=0.01)), asyncio.Event()

    async def send(message: Message) -> None:
        opened.set()
        if not message.get("more_body", True):
            await asyncio.Event().wait()

    stream = EventStream(_never(), streams, resumable=True, ending=b"data: end\n\n", opening=b"")
    answering = asyncio.create_task(stream({"type": "http"}, _wait_for_ever, send))
    await opened.wait()
    await asyncio.sleep(0)
    streams.end_followers()
    await answering
    assert len(streams) == 0


async def test_a_stream_ends_when_the_body_of_its_request_does_not(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(body_timeout=0.05)
    async with serve([scripted(say("Hi."))], settings=settings) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = "GET /api/v1/approvals HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        writer.write(f"{head}Authorization: Bearer alice\r\nContent-Length: 9\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        assert len(served.service.streams) == 0
        writer.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: localhost\r\nHost: evil.example", 400),
        ("Host: [::1]evil.example", 421),
        ("Host: 127.0.0.1:80evil", 421),
        ("Host: evil@127.0.0.1", 421),
        ("Host: localhost.", 421),
        ("Host: [::1]:8321", 200),
        ("Host: LOCALHOST:1", 200),
        ("X-Forwarded-Host: localhost", 421),
        ("Host: localhost\r\nOrigin: http://[::1", 403),
        ("Host: localhost\r\nOrigin: http://localhost.evil.example", 403),
        ("Host: localhost\r\nOrigin: http://evil.example@localhost", 403),
        ("Host: localhost\r\nOrigin: https://localhost", 200),
        ("Host: localhost\r\nTransfer-Encoding: gzip, chunked", 501),
        ("Host: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", 400),
        ("Host: localhost\r\nContent-Length: 5\r\nContent-Length: 6", 400),
        ("Host: localhost\r\nX-Request-Id: a\rSet-Cookie: b", 400),
    ],
)
async def test_ambiguous_and_foreign_headers_are_refused(
    headers: str, status: int, serve: Serve, scripted: Scripted
) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(f"GET /healthz HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n0\r\n\r\n".encode("latin-1"))
        assert (await reader.readline()).split()[1] == str(status).encode()
        writer.close()


@pytest.mark.parametrize("path", ["/api/v1/ws", "/v1/responses", "/no/such/socket"])
async def test_every_websocket_is_refused_before_the_upgrade(path: str, serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        for headers in ("Host: evil.example", "Host: localhost\r\nOrigin: null", "Host: a\r\nHost: localhost"):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13"
            key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
            token = "Authorization: Bearer alice"
            writer.write(f"GET {path} HTTP/1.1\r\n{headers}\r\n{upgrade}\r\n{key}\r\n{token}\r\n\r\n".encode())
            assert (await reader.readline()).split()[1] == b"403"
            writer.close()


async def test_clients_without_a_token_cannot_take_all_places(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(max_streams=20, socket_auth_seconds=60)
    async with serve([scripted(say("Hi."))], settings=settings) as served, AsyncExitStack() as stack:
        address = f"{served.url.replace('http', 'ws')}/api/v1/ws"

        async def open_socket(**headers: str) -> ClientConnection:
            connecting = connect(address, subprotocols=[Subprotocol("agent.v1+json")], additional_headers=headers)
            socket = await stack.enter_async_context(connecting)
            await socket.send('{"id": 1, "method": "ping"}')
            return socket

        for _ in range(2):
            assert "result" in str(await (await open_socket()).recv())
        with pytest.raises(ConnectionClosed, match="have not authenticated yet"):
            await (await open_socket()).recv()
        for _ in range(3):
            assert "result" in str(await (await open_socket(Authorization="Bearer alice")).recv())


async def test_blanks_around_the_value_of_a_header_are_not_part_of_it(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = f"GET /api/v1/me HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\t \r\nAuthorization:  Bearer alice \t\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()
