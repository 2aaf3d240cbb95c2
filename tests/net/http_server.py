"""A real HTTP server on 127.0.0.1 that sends the bytes a test wants."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext

from vaka.net.connector import Connector, Resolver
from vaka.net.rules import NetworkLimits, NetworkRules

Handler = Callable[["ReceivedRequest", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class ReceivedRequest:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class RunningServer:
    port: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0
    client_closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has closed a connection."""

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"


def encode_response(
    body: bytes = b"", status: str = "200 OK", headers: Sequence[tuple[str, str]] = (), length: bool = True
) -> bytes:
    """Return a response as bytes."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8") + body


def respond_with(*answers: bytes) -> Handler:
    """Send these responses one after the other, then the last one again and again."""
    left = list(answers)

    async def script(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])

    return script


def respond_by_path(answers: dict[str, bytes]) -> Handler:
    """Send the response for the target of the request."""

    async def script(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.get(request.target, encode_response(b"no such page", "404 Not Found")))

    return script


async def never_respond(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """Send nothing."""


async def _read_request(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, target, _ = head[0].split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in head[1:] if line)]
    request = ReceivedRequest(method, target, headers, b"")
    request.body = await reader.readexactly(int(request.header("content-length") or 0))
    return request


@asynccontextmanager
async def serve(handler: Handler, context: SSLContext | None = None) -> AsyncGenerator[RunningServer]:
    """Serve ``script`` until the block ends; then close every connection."""
    server = RunningServer()
    tasks: set[asyncio.Task[None]] = set()

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        server.connections += 1
        try:
            while request := await _read_request(reader):
                server.requests.append(request)
                await handler(request, writer)
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # a stream's callback of Python 3.11 logs a cancelled task as an error
        finally:
            server.client_closed.set()
            tasks.discard(task)
            writer.close()

    listening = await asyncio.start_server(handle_connection, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listening.wait_closed()


def make_resolver(table: Mapping[str, Sequence[str]], asked: list[str] | None = None) -> Resolver:
    """A resolver with a table, which records the names it resolves."""

    async def resolver(name: str) -> Sequence[str]:
        if asked is not None:
            asked.append(name)
        if name not in table:
            raise OSError("no such name")
        return table[name]

    return resolver


def connector_to(
    *servers: RunningServer, resolver: Resolver | None = None, limits: NetworkLimits = NetworkLimits()
) -> Connector:
    rules = NetworkRules(trusted=tuple(server.authority for server in servers))
    return Connector(rules, limits, resolver=resolver or make_resolver({}))
