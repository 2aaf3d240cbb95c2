"""A fake of the Haivivi services on 127.0.0.1: records requests and answers from the data files beside it.

Scripts control it over HTTP: ``POST /_plan`` queues answers for a request, ``GET /_seen`` returns the requests so far.
"""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

DATA = Path(__file__).parent / "data"
NO_BODY: Any = object()


def read_data(name: str) -> Any:
    return json.loads((DATA / name).read_text("utf-8"))


class Request(NamedTuple):
    method: str
    target: str  # as it was sent, with its percent-encoding and the order of its query
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def json(self) -> Any:
        return json.loads(self.body) if self.body else None

    def as_table(self) -> dict[str, Any]:
        headers = {
            name: value for name, value in self.headers.items() if name in {"authorization", "content-type", "x-app"}
        }
        shown: dict[str, Any] = {"method": self.method, "target": self.target, "headers": headers}
        return shown | {"body": self.json()} if self.body else shown


class Answer(NamedTuple):
    status: int = 200
    body: bytes = b""

    @classmethod
    def json(cls, value: Any, status: int = 200) -> "Answer":
        return cls(status, json.dumps(value, ensure_ascii=False).encode())


class PlannedAnswer(NamedTuple):
    """An answer that replaces the next one. ``meet`` delays it until so many such answers are due."""

    status: int = 200
    json: Any = NO_BODY
    text: str = ""
    meet: int = 0

    def answer(self) -> Answer:
        return Answer(self.status, self.text.encode()) if self.json is NO_BODY else Answer.json(self.json, self.status)


class FakeServices:
    """auth, pal and aiot under one address; a list or document that is missing in the data is made from its path."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.planned_answers: dict[str, deque[PlannedAnswer]] = defaultdict(deque)
        self.held_requests: list[asyncio.Event] = []
        self.sessions = 0
        self.lifetime = 7200.0
        self.token = ""
        self.documents: dict[str, Any] = {
            "GET /pal/characters": read_data("pal/characters_list_resp.json"),
            "GET /pal/voices": read_data("pal/voices_list_resp.json"),
            "GET /pal/virtual-devices": [read_data("pal/virtual_devices_get_resp.json")],
            "GET /pal/virtual-devices/vdv_home": read_data("pal/virtual_devices_get_resp.json"),
            "GET /aiot/projects": [read_data("aiot/projects_get_resp.json")],
            "GET /aiot/projects/prj_bubble": read_data("aiot/projects_get_resp.json"),
            "GET /aiot/projects/bubblepal.haivivi.cn": read_data("aiot/projects_get_resp.json"),
            "GET /aiot/projects/bubblepal.haivivi.cn/gears": read_data("aiot/gears_list_resp.json"),
        }

    async def answer(self, request: Request) -> Answer:
        if request.path.startswith("/_"):
            return self.control(request)
        self.requests.append(request)
        planned = self.planned_answers[f"{request.method} {request.path}"]
        if planned:
            plan = planned.popleft()
            await self.wait_for_requests(plan.meet)
            return plan.answer()
        if request.target == "/auth/me/@refresh":
            return self.refresh_token(request)
        return self.answer_document(request)

    async def wait_for_requests(self, number: int) -> None:
        """Return when so many requests are waiting here, which requires that they are concurrent."""
        if not number:
            return
        arrived = asyncio.Event()
        self.held_requests.append(arrived)
        if len(self.held_requests) >= number:
            for event in self.held_requests:
                event.set()
            self.held_requests.clear()
        await arrived.wait()

    def control(self, request: Request) -> Answer:
        match request.path:
            case "/_plan":
                steps = request.json()
                self.planned_answers[steps["request"]].extend(PlannedAnswer(**step) for step in steps["answers"])
            case "/_lifetime":
                self.lifetime = request.json()["seconds"]
            case "/_forget":
                self.token = "revoked"
            case "/_seen":
                return Answer.json([seen.as_table() for seen in self.requests])
            case unknown:
                return Answer.json({"message": f"no such control: {unknown}"}, 404)
        return Answer.json({"ok": True})

    def refresh_token(self, request: Request) -> Answer:
        """Return a new session with a new expiry, since the one in the data has passed."""
        expected = read_data("auth/refresh_token_req.json")
        if request.json() != expected:
            return Answer.json({"message": "no such key"}, 404)
        self.sessions += 1
        self.token = f"token-of-ada-{self.sessions}"
        ends = datetime.now(UTC) + timedelta(seconds=self.lifetime)
        stamped = {"token": self.token, "tokenExpireAt": ends.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        return Answer.json(read_data("auth/refresh_token_resp.json") | stamped)

    def answer_document(self, request: Request) -> Answer:
        """Return the request's body and path, so that tests can check what was sent."""
        if self.token == "revoked" and not request.path.startswith("/pal/device-auth/"):
            return Answer.json({"error": "token revoked"}, 401)
        known = self.documents.get(f"{request.method} {request.path}")
        if known is not None:
            return Answer.json(known)
        place = unquote(request.path)
        if request.method == "DELETE":
            return Answer(204)
        if request.method == "GET" and place.count("/") == 2:
            query = dict(parse_qsl(request.target.partition("?")[2]))
            return Answer.json([{"id": f"one of {place}", "query": query}])
        return Answer.json({"id": place, "did": request.method, "sent": request.json()})


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


async def handle_connection(services: FakeServices, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while request := await read_request(reader):
            answer = await services.answer(request)
            length = b"" if answer.status == 204 else b"content-length: %d\r\n" % len(answer.body)
            writer.write(b"HTTP/1.1 %d Mock\r\ncontent-type: application/json\r\n%s\r\n" % (answer.status, length))
            writer.write(answer.body)
            await writer.drain()
    except ConnectionError:
        pass  # the client closed the connection
    finally:
        writer.close()


@asynccontextmanager
async def serve_fake_services() -> AsyncGenerator[str]:
    """Serve the fake services and yield their address."""
    services, connections = FakeServices(), set[asyncio.Task[None]]()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(handle_connection(services, reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()
        for connection in [*connections]:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()
