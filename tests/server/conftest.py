"""A server in the loop of the test: a real socket, the scripted model, and callers by token."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn

import vaka
from vaka.agents.react import Agent
from vaka.runtime.runtime import Runtime
from vaka.server.app import create_app
from vaka.server.http_protocol import BoundedHttpProtocol
from vaka.server.kit.guard import Credentials, Guard
from vaka.server.kit.principal import SCOPES, Principal
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService
from vaka.server.listen import open_socket
from vaka.server.settings import ServerSettings
from vaka.server.socket_protocol import BoundedSocketProtocol
from vaka.testing import ScriptedModel

PRINCIPALS: dict[str, Principal] = {
    "alice": Principal(id="alice", key="alice", scopes=frozenset(SCOPES)),
    "reader": Principal(id="reader", key="reader", scopes=frozenset({"runs:read"})),
    "guest": Principal(id="guest", key="guest"),
    "bob": Principal(id="bob", key="bob", namespace="other", scopes=frozenset(SCOPES)),
    "carol": Principal(id="carol", key="carol", scopes=frozenset({"runs:read", "runs:write"}), own_sessions_only=True),
    "dave": Principal(id="dave", key="dave", scopes=frozenset(SCOPES), own_sessions_only=True),
}
"""Callers by token. A guest has no scope, Bob is of another tenant, Carol and Dave see only sessions of their own."""


class KnownTokens:
    """Accepts the tokens of ``PRINCIPALS``."""

    async def authenticate(self, credentials: Credentials) -> Principal:
        principal = PRINCIPALS.get(credentials.token)
        if principal is None:
            raise Problem(401, "unauthorized", "a token is needed", headers={"WWW-Authenticate": "Bearer"})
        return principal

    async def is_valid(self, principal: Principal) -> bool:
        return principal in PRINCIPALS.values()


class NoLimits:
    """Counts nothing."""

    def count_request(self, principal: Principal) -> Mapping[str, str]:
        return {}


class Served:
    """A running server."""

    def __init__(self, service: AgentService, port: int, server: uvicorn.Server) -> None:
        self.service = service
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._server = server

    @property
    def waiting(self) -> int:
        """The number of requests that are being answered."""
        return len(self._server.server_state.tasks)

    def client(self, token: str = "alice", **options: Any) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=20, **options)


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def serve_agents(
    agents: Sequence[Agent], *, settings: ServerSettings | None = None, store: str = "memory:", **options: Any
) -> AsyncGenerator[Served]:
    """Serve agents at a free port of 127.0.0.1 while the block runs."""
    listener = open_socket("127.0.0.1", 0)
    guard = Guard(settings or ServerSettings(), KnownTokens(), NoLimits())
    async with Runtime(store=store, **options) as runtime:
        service = AgentService(runtime, {agent.name: agent for agent in agents}, guard)
        config = uvicorn.Config(
            create_app(service),
            http=BoundedHttpProtocol,
            log_config=None,
            loop="none",
            ws=BoundedSocketProtocol,
            ws_per_message_deflate=False,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started:
            if serving.done():
                serving.result()
            await asyncio.sleep(0)
        try:
            yield Served(service, listener.getsockname()[1], server)
        finally:
            service.drain()
            server.should_exit = True
            await serving
            listener.close()


@pytest.fixture
def serve() -> Serve:
    return serve_agents


@pytest.fixture
def scripted() -> Callable[..., Agent]:
    """Return a function that makes an agent of a scripted model's answers."""

    def make(*answers: Any, name: str = "assistant", **options: Any) -> Agent:
        return vaka.Agent(name, model=ScriptedModel(*answers), **options)

    return make
