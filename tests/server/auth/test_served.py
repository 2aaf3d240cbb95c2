"""Credentials at a real server: keys of tenants, the login of the console, and tickets of WebSockets."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

import vaka
from tests.server.conftest import serve_agents
from vaka.runtime.runtime import Runtime
from vaka.server.app import create_app, open_service
from vaka.server.auth.api_keys import KeyOptions
from vaka.server.auth.authenticator import CredentialAuthenticator
from vaka.server.kit.principal import LOCAL_PRINCIPAL
from vaka.server.settings import ServerSettings
from vaka.testing import ScriptedModel

PROTOCOL = Subprotocol("agent.v1+json")
SETTINGS = ServerSettings(origins=("https://app.example",), credential_seconds=0.01)


class AuthenticatedServer:
    """A running server and its authenticator."""

    def __init__(self, authenticator: CredentialAuthenticator, port: int) -> None:
        self.authenticator = authenticator
        self.url = f"http://127.0.0.1:{port}"
        self.socket_url = f"ws://127.0.0.1:{port}"

    async def create_key(self, **options: object) -> dict[str, str]:
        """Return the headers of a new key."""
        wanted = KeyOptions(**{"scopes": ("runs:read", "runs:write"), **options})  # type: ignore[arg-type]  # as given
        _, text = await self.authenticator.keys.create(wanted)
        return {"Authorization": f"Bearer {text}"}

    def client(self, headers: dict[str, str] | None = None) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, headers=headers or {}, timeout=20)


@asynccontextmanager
async def serve_store(store: str) -> AsyncGenerator[AuthenticatedServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with Runtime(store=store, permissions=vaka.Permissions(ask="wait")) as runtime:
        service = await open_service(runtime, [vaka.Agent("helper", model=ScriptedModel())], SETTINGS)
        config = uvicorn.Config(create_app(service), log_config=None, loop="none", ws="websockets-sansio")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        while not server.started:
            if serving.done():
                serving.result()
            await asyncio.sleep(0)
        authenticator = service.guard.authenticator
        assert isinstance(authenticator, CredentialAuthenticator)
        try:
            yield AuthenticatedServer(authenticator, listener.getsockname()[1])
        finally:
            server.should_exit = True
            await serving


def port_of(server: AuthenticatedServer) -> str:
    return server.url.rpartition(":")[2]


def cookie_of(server: AuthenticatedServer, login: str) -> str:
    return f"vaka_console_{port_of(server)}={login}"


@pytest.fixture
async def server() -> AsyncIterator[AuthenticatedServer]:
    async with serve_store("memory:") as server:
        yield server


async def test_a_key_sees_only_the_sessions_of_its_tenant_until_it_is_revoked(server: AuthenticatedServer) -> None:
    acme, other = await server.create_key(namespace="acme"), await server.create_key(namespace="other")
    async with server.client(acme) as client, server.client(other) as stranger:
        created = await client.post("/api/v1/sessions", json={"id": "demo", "agent": "helper"})
        assert created.status_code == 201
        assert created.headers["RateLimit-Policy"] == '"requests";q=600;w=60'
        assert created.headers["RateLimit"].startswith('"requests";r=')
        found = await client.get("/api/v1/sessions/demo", headers={"x-api-key": "", **acme})
        assert found.status_code == 200
        missing, unknown = [await stranger.get(f"/api/v1/sessions/{name}") for name in ("demo", "none")]
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
        assert missing.json()["detail"].replace("demo", "none") == unknown.json()["detail"]
        key = acme["Authorization"].removeprefix("Bearer ")
        await server.authenticator.keys.revoke(key)
        refused = await client.get("/api/v1/sessions/demo")
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
        assert refused.headers["www-authenticate"] == 'Bearer realm="vaka"'
        assert refused.json()["detail"].startswith("the API key was revoked at ")
        assert key not in refused.text


async def test_a_key_is_accepted_in_the_header_of_anthropic_clients_and_limited_by_its_own_rate(
    server: AuthenticatedServer,
) -> None:
    text = (await server.create_key(requests_per_minute=5))["Authorization"].removeprefix("Bearer ")
    async with server.client({"x-api-key": text}) as client:
        statuses = [(await client.get("/api/v1/sessions")).status_code for _ in range(6)]
        assert statuses == [200] * 5 + [429]
        limited = await client.get("/api/v1/sessions")
    assert limited.json()["code"] == "rate_limited"
    assert 0 < int(limited.headers["retry-after-ms"]) <= 1000 * int(limited.headers["retry-after"]) <= 13_000


async def test_the_link_of_the_console_logs_one_browser_in_for_this_server_and_the_next(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/vaka.db"
    async with serve_store(store) as server, server.client() as browser, server.client() as thief:
        link = f"/console/login?ticket={await server.authenticator.tickets.issue_link(LOCAL_PRINCIPAL)}"
        assert (await browser.head(link)).status_code == 303
        opened = await browser.get(link)
        assert (opened.status_code, opened.headers["location"]) == (303, "/console/")
        cookie = opened.headers["set-cookie"]
        assert "; HttpOnly; SameSite=Strict" in cookie
        name, _, login = cookie.partition(";")[0].partition("=")
        assert name == f"vaka_console_{port_of(server)}"  # servers at other ports of the host have logins of their own
        assert (await browser.get("/api/v1/sessions")).status_code == 200
        again = await thief.get(link)
        assert (again.headers["location"], "set-cookie" in again.headers) == ("/console/?link=refused", False)
        assert (await thief.get("/api/v1/sessions")).status_code == 401
        forged = await browser.post("/api/v1/sessions", json={"agent": "helper"})
        assert (forged.status_code, forged.json()["code"]) == (403, "console_header_missing")
        header = {"X-Vaka-Console": "1"}
        assert (await browser.post("/api/v1/sessions", json={"agent": "helper"}, headers=header)).status_code == 201
    async with serve_store(store) as server, server.client({"cookie": cookie_of(server, login)}) as browser:
        assert len((await browser.get("/api/v1/sessions")).json()["data"]) == 1
        left = await browser.post("/console/logout", headers=header)
        assert (left.status_code, left.headers["set-cookie"].partition(";")[0]) == (
            204,
            f"vaka_console_{port_of(server)}=",
        )
        assert (await browser.get("/api/v1/sessions")).status_code == 401


async def test_a_ticket_opens_one_socket_from_the_origin_that_asked_for_it(server: AuthenticatedServer) -> None:
    page = {"Origin": "https://app.example"}
    async with server.client(await server.create_key() | page) as client:
        answer = await client.post("/api/v1/ws-tickets")
        assert (answer.status_code, answer.json()["expires_in"]) == (201, 30)
        address = f"{server.socket_url}/api/v1/ws?ticket={answer.json()['ticket']}"
        other = (await client.post("/api/v1/ws-tickets")).json()["ticket"]
    async with connect(address, subprotocols=[PROTOCOL], additional_headers=page) as opened:
        await opened.send('{"id": 1, "method": "hello", "params": {"client": "test", "versions": [1]}}')
        assert '"server":"vaka/' in str(await opened.recv())
    for used, headers in ((address, page), (address.partition("=")[0] + f"={other}", {"Origin": server.url})):
        with pytest.raises(ConnectionClosed) as closed:
            async with connect(used, subprotocols=[PROTOCOL], additional_headers=headers) as refused:
                await refused.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


async def test_streams_and_sockets_of_a_revoked_key_end(server: AuthenticatedServer) -> None:
    key, other = await server.create_key(), await server.create_key()
    path, events = "/api/v1/sessions/demo/events", {"Accept": "text/event-stream"}
    async with server.client(key | events) as client, server.client(other | events) as still_valid:
        await client.post("/api/v1/sessions", json={"id": "demo", "agent": "helper"})
        async with (
            client.stream("GET", path) as stream,
            still_valid.stream("GET", path) as following,
            connect(f"{server.socket_url}/api/v1/ws", subprotocols=[PROTOCOL], additional_headers=key) as opened,
        ):
            chunks, remaining = stream.aiter_bytes(), following.aiter_bytes()
            assert (await anext(chunks)).startswith(b": open")
            await server.authenticator.keys.revoke(key["Authorization"].removeprefix("Bearer "))
            assert [chunk async for chunk in chunks if b"stream.end" in chunk] == []  # the client would follow again
            with pytest.raises(ConnectionClosed) as closed:
                await opened.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4201
            assert (await anext(remaining)).startswith(b": open")
        assert (await client.get(path)).status_code == 401
        assert (await still_valid.get("/api/v1/sessions/demo")).status_code == 200


async def test_many_wrong_tokens_from_one_address_have_to_wait(server: AuthenticatedServer) -> None:
    async with server.client({"Authorization": "Bearer ak_00000000_wrong"}) as attacker:
        statuses = {(await attacker.get("/api/v1/sessions")).status_code for _ in range(40)}
        assert statuses == {401, 429}
        link = await attacker.get("/console/login?ticket=vkl_wrong")
        assert (link.status_code, link.json()["code"]) == (429, "too_many_failures")


async def test_a_server_with_another_authenticator_issues_no_tickets() -> None:
    async with serve_agents([vaka.Agent("helper", model=ScriptedModel())]) as served, served.client() as client:
        answer = await client.post("/api/v1/ws-tickets")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
