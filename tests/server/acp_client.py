"""A client of the Agent Client Protocol in the same process: it exchanges lines with an ``AcpServer``."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import vaka
from vaka.config.options import Workspace
from vaka.core.ports.store import Store
from vaka.server.acp.server import AcpServer
from vaka.server.acp.workspaces import AcpPlace, AcpWorkspace
from vaka.stores.memory import MemoryStore
from vaka.views.media import as_object


class GivenWorkspaces:
    """Workspaces of one agent, without settings files; they share a store."""

    def __init__(self, agent: vaka.Agent[Any], store: Store | None = None, **options: Any) -> None:
        self.agent, self.store = agent, store or MemoryStore()
        self.options: dict[str, Any] = options
        self.models: tuple[str, ...] = ()
        self.commands: dict[str, str] = {}
        self.allowed_modes = ("default", "plan")
        self.opened: list[AcpPlace] = []

    def open(self, place: AcpPlace) -> AcpWorkspace:
        self.opened.append(place)
        runtime = vaka.Runtime(store=self.store, workspace=Workspace(cwd=place.folder), **self.options)
        chosen = ["default"]

        def set_mode(mode: str) -> None:
            if mode in self.allowed_modes:
                chosen[0] = mode

        return AcpWorkspace(
            runtime=runtime,
            agent=self.agent,
            models=self.models,
            commands=self.commands,
            set_mode=set_mode,
            find_mode=lambda: chosen[0],
        )

    def find_store(self, folder: str = "") -> Store:
        return self.store


class RpcError(Exception):
    """The error of a response."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code, self.data = error["code"], error.get("data")


class AcpClient:
    """Sends requests and keeps what the server sends."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.updates: list[dict[str, Any]] = []
        self.asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        """Requests of the server."""
        self.errors: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        """Errors for the id null."""
        self.answer: Callable[[dict[str, Any]], Any] | None = None
        """Answers requests of the server at once."""
        self.is_gone = False
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.results: dict[int, asyncio.Future[Any]] = {}
        self._arrived = asyncio.Condition()
        self._ids = itertools.count(100)

    async def read(self, limit: int) -> tuple[bytes, int] | None:
        line = await self._lines.get()
        return None if line is None else (line[:limit], len(line))

    async def write(self, line: bytes) -> None:
        if self.is_gone:
            raise BrokenPipeError
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        if "method" in message and "id" in message:
            if self.answer is not None:
                self.respond(message, self.answer(message["params"]))
            else:
                self.asked.put_nowait(message)
        elif "method" in message:
            assert message["method"] == "session/update"
            self.updates.append(message["params"])
            async with self._arrived:
                self._arrived.notify_all()
        elif message["id"] is None:
            self.errors.put_nowait(message["error"])
        elif "error" in message:
            self.results.pop(message["id"]).set_exception(RpcError(message["error"]))
        else:
            self.results.pop(message["id"]).set_result(message["result"])

    def send_line(self, line: bytes | None) -> None:
        self._lines.put_nowait(line)

    def send(self, message: dict[str, Any]) -> None:
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def respond(self, request: dict[str, Any], result: Any) -> None:
        self.send({"id": request["id"], "result": result})

    def notify(self, method: str, **params: Any) -> None:
        self.send({"method": method, "params": params})

    def request(self, method: str, **params: Any) -> "asyncio.Future[Any]":
        """Send a request at once; the future has its result."""
        id = next(self._ids)
        future = self.results[id] = asyncio.get_running_loop().create_future()
        self.send({"id": id, "method": method, "params": params})
        return future

    def prompt(self, session: str, text: str) -> "asyncio.Future[Any]":
        return self.request("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    async def open(self, **params: Any) -> str:
        result = await self.request("session/new", **{"cwd": self.folder, "mcpServers": []} | params)
        return str(result["sessionId"])

    async def until(self, kind: str, session: str = "") -> dict[str, Any]:
        """Wait for an update of a kind and return the first one."""

        def find() -> dict[str, Any] | None:
            for params in self.updates:
                if params["update"]["sessionUpdate"] == kind and session in ("", params["sessionId"]):
                    found: dict[str, Any] = params["update"]
                    return found
            return None

        async with self._arrived:
            await self._arrived.wait_for(lambda: find() is not None)
        found = find()
        assert found is not None
        return found

    def outline(self, session: str = "") -> list[str]:
        """Return the updates of a session, each as its kind and its text, title, status or name."""
        lines: list[str] = []
        for params in self.updates:
            update = params["update"]
            if session not in ("", params["sessionId"]):
                continue
            content = as_object(update.get("content"))
            text = content["text"] if content else update.get("title") or update.get("status", "")
            lines.append(f"{update['sessionUpdate']} {text}".strip())
        return lines


@asynccontextmanager
async def connect(
    workspaces: GivenWorkspaces, folder: Path, *, max_runtimes: int = 32, **capabilities: Any
) -> AsyncGenerator[AcpClient]:
    """Yield a client of a server; at the end the connection is closed, and the server has ended."""
    client = AcpClient(folder)
    served = AcpServer(workspaces, client.read, client.write, max_runtimes=max_runtimes)
    server = asyncio.create_task(served.serve())
    try:
        await client.request(
            "initialize",
            protocolVersion=1,
            clientInfo={"name": "test", "version": "1"},
            clientCapabilities=capabilities,
        )
        yield client
        client.send_line(None)
        await server
    finally:
        server.cancel()
