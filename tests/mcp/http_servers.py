"""MCP servers behind real sockets: one of the library for all eras, and a plain one that forgets its sessions."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from typing import Any, cast

import mcp_types as types
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


@asynccontextmanager
async def serving(app: Any, given: socket.socket | None = None) -> AsyncGenerator[str]:
    """Serve an application on a free port of this machine and yield its address."""
    with closing(given or socket.create_server(("127.0.0.1", 0))) as listener:
        config = uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=1, ws="none")
        server = uvicorn.Server(config)
        task = asyncio.create_task(cast("Any", server)._serve(sockets=[listener]))  # without signal handlers
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


def library_server() -> MCPServer:
    """Return a server of the library with tools, resources and prompts."""
    server = MCPServer("library", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def report(ctx: Context) -> str:
        """Report progress."""
        await ctx.report_progress(1, 2, "half")
        return "done"

    @server.tool()
    async def where(ctx: Context) -> str | types.InputRequiredResult:
        """Ask for a city."""
        answers = ctx.input_responses
        if answers is not None and isinstance(answers["city"], types.ElicitResult):
            return str(answers["city"].content)
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        form = types.ElicitRequestFormParams(message="Where?", requested_schema=schema)
        return types.InputRequiredResult(input_requests={"city": types.ElicitRequest(params=form)})

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Add a tool."""
        server.add_tool(lambda: "more", name="more", description="More.")
        await ctx.notify_tools_changed()
        return "grown"

    @server.resource("note://one", mime_type="text/plain")
    def note() -> str:
        """The first note."""
        return "remember"

    @server.prompt()
    def greet(name: str, tone: str = "kind") -> str:
        """Greet a person."""
        return f"Say something {tone} to {name}."

    return server


class _BrokenResponse(Response):
    """A response whose connection ends before its body."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": False})


class TokenServer:
    """A server that wants an access token, with the endpoint that gives it to a program."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.address = ""
        self.credentials: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        app = self._inner if scope["type"] == "lifespan" or self._is_admitted(scope) else self._refuse
        await app(scope, receive, send)

    def _is_admitted(self, scope: Any) -> bool:
        return dict(scope["headers"]).get(b"authorization") == b"Bearer the-access-token"

    async def _refuse(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        answer: Response = Response(status_code=401, headers={"www-authenticate": "Bearer"})
        if path.startswith("/.well-known/oauth-protected-resource"):
            answer = JSONResponse({"resource": f"{self.address}/mcp", "authorization_servers": [self.address]})
        elif path.startswith("/.well-known/"):
            endpoints = {f"{name}_endpoint": f"{self.address}/{name}" for name in ("authorization", "token")}
            grants = {"grant_types_supported": ["client_credentials"], "response_types_supported": ["code"]}
            answer = JSONResponse({"issuer": self.address, **endpoints, **grants})
        elif path == "/token":
            self.credentials.append(dict(scope["headers"])[b"authorization"].decode())
            answer = JSONResponse({"access_token": "the-access-token", "token_type": "Bearer", "expires_in": 3600})
        await answer(scope, receive, send)


class ForgetfulServer:
    """A server of the handshake era whose sessions end when ``forget`` is called."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.headers: list[dict[str, str]] = []
        self.calls: list[str] = []
        self.opened = 0

    def forget(self) -> None:
        self.sessions.clear()

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/mcp", self._handle, methods=["POST", "DELETE"])])

    async def _handle(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        if request.method == "DELETE":
            return Response(status_code=204)
        message = await request.json()
        method, id = message["method"], message.get("id")
        if method == "initialize":
            self.opened += 1
            self.sessions.add(str(self.opened))
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "forgetful", "version": "1"},
            }
            return self._answer(id, result, {"mcp-session-id": str(self.opened)})
        if method == "server/discover":
            return JSONResponse({"error": "what?"}, status_code=400)
        if request.headers.get("mcp-session-id") not in self.sessions:
            return Response(status_code=404)
        if id is None:
            return Response(status_code=202)
        if method == "tools/list":
            schema: dict[str, Any] = {"type": "object", "properties": {}}
            hints = {"readOnlyHint": True}
            safe = {"name": "look", "inputSchema": schema, "annotations": hints}
            others = [{"name": name, "inputSchema": schema} for name in ("act", "drop")]
            return self._answer(id, {"tools": [safe, *others]})
        self.calls.append(message["params"]["name"])
        if self.calls[-1] == "drop":
            return _BrokenResponse()
        return self._answer(id, {"content": [{"type": "text", "text": f"session {self.opened}"}]})

    def _answer(self, id: Any, result: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
        return JSONResponse({"jsonrpc": "2.0", "id": id, "result": result}, headers=headers)
