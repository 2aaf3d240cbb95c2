"""Clients that open streams and do not read them: each costs bounded memory, and their number is limited."""

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import PRINCIPALS, Serve, Served
from tests.server.test_hostile_requests import UPGRADE
from tests.server.ws.conftest import connect_client
from tests.server.ws.test_slow_clients import wait_until
from vaka.agents.react import Agent
from vaka.server.settings import ServerSettings
from vaka.testing import say

Scripted = Callable[..., Agent]
MB = 1_000_000
READERS = 3
MESSAGE_CHARS, MESSAGES = 100_000, 80
"""Together more than the buffers of a socket."""


async def open_unread(served: Served, request: str) -> socket.socket:
    """Send a request on a socket that nothing reads; its buffer is small."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(opened, ("127.0.0.1", served.port))
    await loop.sock_sendall(opened, request.encode())
    return opened


async def follow_by_sse(served: Served) -> socket.socket:
    head = "GET /api/v1/sessions/long/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\n"
    return await open_unread(served, f"{head}Accept: text/event-stream\r\n\r\n")


async def follow_by_websocket(served: Served) -> socket.socket:
    head = f"GET /api/v1/ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\n{UPGRADE}\r\n"
    opened = await open_unread(served, head)
    await asyncio.get_running_loop().sock_recv(opened, 4096)
    text = b'{"id":1,"method":"subscribe","params":{"session":"long"}}'
    await asyncio.get_running_loop().sock_sendall(opened, bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)
    return opened


@contextmanager
def without_collections() -> Generator[None]:
    """Collect no garbage: a server does so rarely, and must not wait for it to give back the memory of its clients."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def measure_settled() -> int:
    """Return the memory in use when it does not grow any more."""
    before = -1
    while (used := tracemalloc.get_traced_memory()[0]) > before:
        before = used
        for _ in range(2000):
            await asyncio.sleep(0)
    return used


@asynccontextmanager
async def long_session(serve: Serve, agent: Agent, store: str) -> AsyncGenerator[Served]:
    async with serve([agent], store=store, settings=ServerSettings(stall_timeout=600)) as served:
        session = await served.service.create_session(PRINCIPALS["alice"], id="long")
        for number in range(MESSAGES):
            await session.checkpoint(f"{number} {'x' * MESSAGE_CHARS}")
        yield served


@pytest.mark.parametrize("follow", [follow_by_sse, follow_by_websocket])
async def test_a_reader_that_does_not_read_holds_at_most_a_megabyte(
    follow: Callable[[Served], Awaitable[socket.socket]], serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    async with long_session(serve, scripted(say("Hi.")), f"sqlite:///{tmp_path}/vaka.db") as served:
        (await follow(served)).close()  # what is loaded on first use
        await wait_until(lambda: len(served.service.streams) == 0)
        tracemalloc.start()
        try:
            with without_collections():
                empty = await measure_settled()
                opened = [await follow(served) for _ in range(READERS)]
                await wait_until(lambda: len(served.service.streams) == READERS)
                full = await measure_settled()
                for each in opened:
                    each.close()
                await wait_until(lambda: len(served.service.streams) == 0)
                left = await measure_settled()
        finally:
            tracemalloc.stop()
    assert 50_000 < (full - empty) / READERS < MB
    assert left - empty < MB / 2


SAID = {"id": "m", "role": "user", "content": "Hi."}
STREAMED: dict[str, dict[str, Any]] = {
    "/api/v1/sessions/new/turns": {"input": "Hi.", "agent": "assistant"},
    "/v1/chat/completions": {"model": "assistant", "messages": [SAID]},
    "/v1/messages": {"model": "assistant", "max_tokens": 9, "messages": [SAID]},
    "/v1/responses": {"model": "assistant", "input": "Hi."},
    "/agui/assistant": {"threadId": "t", "runId": "r", "messages": [SAID]},
    "/ai-sdk/assistant": {"id": "t", "messages": [{**SAID, "parts": [{"type": "text", "text": "Hi."}]}]},
}
"""A request of each protocol that runs a turn and streams it."""


async def test_the_streams_of_one_credential_are_limited(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(streams_per_credential=3)
    async with serve([scripted(say("Hi."))], settings=settings) as served, AsyncExitStack() as stack:
        await served.service.create_session(PRINCIPALS["alice"], id="long")
        client = await stack.enter_async_context(served.client())
        opened = [await follow_by_sse(served) for _ in range(2)]
        await wait_until(lambda: len(served.service.streams) == 2)
        await stack.enter_async_context(connect_client(served))
        await wait_until(lambda: len(served.service.streams) == 3)
        headers = {"Accept": "text/event-stream"}
        refused = await client.get("/api/v1/approvals", headers=headers)
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (
            429,
            "too_many_streams",
            "1",
        )
        for path, body in STREAMED.items():
            assert (await client.post(path, json={**body, "stream": True})).status_code == 429, path
        sessions = (await client.get("/api/v1/sessions")).json()["data"]
        assert [each["id"] for each in sessions] == ["long"]
        async with connect_client(served) as socket_client:
            assert (await socket_client.closed())[0] == 4429
        async with connect_client(served, "") as socket_client:
            await socket_client.send("auth", token="alice")
            assert (await socket_client.closed())[0] == 4429
        async with served.client("dave") as dave, dave.stream("GET", "/api/v1/approvals", headers=headers) as other:
            assert other.status_code == 200
        opened[0].close()
        await wait_until(lambda: len(served.service.streams) == 2)
        async with client.stream("GET", "/api/v1/approvals", headers=headers) as again:
            assert again.status_code == 200
        opened[1].close()


@pytest.mark.parametrize("path", STREAMED)
async def test_a_request_without_room_for_its_stream_runs_no_turn(path: str, serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(max_streams=1)
    async with serve([scripted(say("Hi."))], settings=settings) as served, served.client() as client:
        await served.service.create_session(PRINCIPALS["alice"], id="long")
        opened = await follow_by_sse(served)
        await wait_until(lambda: len(served.service.streams) == 1)
        refused = await client.post(path, json={**STREAMED[path], "stream": True})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        sessions = (await client.get("/api/v1/sessions")).json()["data"]
        assert [each["id"] for each in sessions] == ["long"]
        opened.close()


async def test_the_subscriptions_of_one_credential_are_limited(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(streams_per_credential=3)
    async with serve([scripted(say("Hi."))], settings=settings) as served, connect_client(served) as first:
        await served.service.create_session(PRINCIPALS["alice"], id="s")
        for _ in range(2):
            await first.request("subscribe", session="s")
        async with connect_client(served) as second:
            await second.request("subscribe", session="*")
            refused = await second.refused("subscribe", session="s")
            assert (refused["code"], refused["retryable"], refused["data"]) == (
                "too_many_subscriptions",
                True,
                {"status": 429, "retry_after": 1.0},
            )
            await first.request("unsubscribe", sub="s1")
            await second.request("subscribe", session="s")
        await wait_until(lambda: len(served.service.streams) == 1)
        for _ in range(2):
            await first.request("subscribe", session="s")
        assert (await first.refused("subscribe", session="none"))["data"]["status"] == 429
