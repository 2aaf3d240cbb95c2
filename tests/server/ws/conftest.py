"""A client of the WebSocket, made of the ``websockets`` library."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.server.conftest import Served

Json = dict[str, Any]


class SocketClient:
    """Sends requests and sorts what comes."""

    def __init__(self, opened: ClientConnection) -> None:
        self.socket = opened
        self.events: list[Json] = []
        """Every event so far, with its subscription as ``sub``."""
        self.controls: list[Json] = []
        self._replies: dict[int, Json] = {}
        self._last = 0

    async def send(self, method: str, **params: Any) -> int:
        self._last += 1
        await self.socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        return self._last

    async def reply(self, id: int) -> Json:
        """Return the whole reply to a request."""
        while id not in self._replies:
            await self.read()
        return self._replies.pop(id)

    async def request(self, method: str, **params: Any) -> Json:
        """Return the result of a request that succeeds."""
        reply = await self.reply(await self.send(method, **params))
        result: Json = reply["result"]
        return result

    async def refused(self, method: str, **params: Any) -> Json:
        """Return the error of a request that fails."""
        error: Json = (await self.reply(await self.send(method, **params)))["error"]
        return error

    async def read(self) -> None:
        frame = json.loads(await self.socket.recv())
        if "event" in frame:
            self.events.append({**frame["event"], "sub": frame["sub"]})
        elif "ctl" in frame:
            self.controls.append(frame)
        else:
            self._replies[frame["id"]] = frame

    async def until(self, *types: str) -> list[Json]:
        """Return the events up to and including the next one of these types."""
        while True:
            for index, event in enumerate(self.events):
                if event["type"] in types:
                    taken, self.events = self.events[: index + 1], self.events[index + 1 :]
                    return taken
            await self.read()

    async def control(self, name: str) -> Json:
        """Return the next control frame of this name."""
        while True:
            for frame in self.controls:
                if frame["ctl"] == name:
                    self.controls.remove(frame)
                    return frame
            await self.read()

    async def closed(self) -> tuple[int, str]:
        """Return the code and reason with which the server closes the connection."""
        frame = None
        try:
            while True:
                await self.read()
        except ConnectionClosed as error:
            frame = error.rcvd
        return (frame.code, frame.reason) if frame else (1006, "")


Connect = Callable[..., AbstractAsyncContextManager[SocketClient]]


@asynccontextmanager
async def connect_client(
    served: Served,
    token: str = "alice",
    *,
    query: str = "",
    protocols: Sequence[str] = ("agent.v1+json",),
    headers: dict[str, str] | None = None,
    host: str = "127.0.0.1",
    receive_buffer: int = 0,
) -> AsyncGenerator[SocketClient]:
    """Connect to a server; ``token`` is sent as a header unless it is empty."""
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", served.port))
    sent = ({"Authorization": f"Bearer {token}"} if token else {}) | (headers or {})
    async with connect(
        f"ws://{host}:{served.port}/api/v1/ws{query}",
        additional_headers=sent,
        compression=None,
        proxy=None,
        subprotocols=[Subprotocol(name) for name in protocols] or None,
        sock=connection,
        max_queue=1 if receive_buffer else 16,
    ) as opened:
        yield SocketClient(opened)


@pytest.fixture
def client() -> Connect:
    return connect_client
