"""MCP over HTTP at its limits: callers that cannot be served, many streams, a server that stops, a lost store."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import mcp_types as types
import pytest

import vaka
from tests.mcp.test_http import connect
from tests.postgres_server import PostgresServer
from tests.server.conftest import Serve
from vaka.agents.react import Agent
from vaka.server.settings import ServerSettings
from vaka.server.workspaces import WorkspaceSettings
from vaka.stores.postgres import PostgresStore
from vaka.testing import call, say

Scripted = Callable[..., Agent]
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


async def greet(client: httpx2.AsyncClient) -> httpx2.Response:
    return await client.post("/mcp", json=HELLO, headers=ACCEPT)


def text_of(result: types.CallToolResult) -> str:
    return str(getattr(result.content[0], "text", ""))


async def test_a_caller_that_cannot_be_served_is_told_and_served_when_it_can(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    settings = ServerSettings(workspaces=WorkspaceSettings(root=str(tmp_path / "workspaces")))
    workspace = vaka.Workspace(cwd=str(tmp_path))
    async with serve([scripted(say("Hi."))], settings=settings, workspace=workspace) as served:
        (tmp_path / "workspaces/other").symlink_to(tmp_path)
        async with served.client("bob") as bob:
            assert (await greet(bob)).status_code == 500
            (tmp_path / "workspaces/other").unlink()
            assert (await greet(bob)).status_code == 200


async def test_agents_whose_tools_have_the_same_name_are_reported(serve: Serve, scripted: Scripted) -> None:
    agents = [scripted(say("Hi."), name="a b"), scripted(say("Hi."), name="a_b")]
    async with serve(agents) as served, served.client() as client:
        refused = await greet(client)
        assert "two tools of the server are named 'ask_a_b'" in refused.json()["detail"]


@asynccontextmanager
async def follow(client: httpx2.AsyncClient) -> AsyncGenerator[httpx2.Response]:
    """Yield the feed of a new session of the protocol."""
    session = (await greet(client)).headers["mcp-session-id"]
    async with client.stream("GET", "/mcp", headers={**ACCEPT, "mcp-session-id": session}) as feed:
        yield feed


async def test_feeds_are_counted_and_end_with_the_credential(serve: Serve, scripted: Scripted) -> None:
    async def is_valid(caller: object) -> bool:
        return False

    settings = ServerSettings(streams_per_credential=2)
    async with (
        serve([scripted(say("Hi."))], settings=settings) as served,
        served.client() as client,
        AsyncExitStack() as stack,
    ):
        sessions = [(await greet(client)).headers["mcp-session-id"] for _ in range(3)]
        headers = [{**ACCEPT, "mcp-session-id": session} for session in sessions]
        feeds = [await stack.enter_async_context(client.stream("GET", "/mcp", headers=each)) for each in headers[:2]]
        assert [feed.status_code for feed in feeds] == [200, 200]
        refused = await client.get("/mcp", headers=headers[2])
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        await served.service.streams.end_expired(is_valid)
        assert [await feed.aread() for feed in feeds] == [b"", b""]
        assert len(served.service.streams) == 0


async def test_a_feed_ends_when_the_server_stops(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client, follow(client) as feed:
        served.service.drain()
        assert await feed.aread() == b""


async def test_a_feed_that_is_opened_while_the_server_stops_is_refused(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        session = (await greet(client)).headers["mcp-session-id"]
        served.service.drain()
        async with asyncio.timeout(60):
            refused = await client.get("/mcp", headers={**ACCEPT, "mcp-session-id": session})
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "draining", "1")


async def test_a_server_that_stops_begins_no_turn(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, connect(served) as client:
        served.service.refuse_turns()
        refused = await client.call_tool("ask_assistant", {"prompt": "Hello."})
        assert (refused.is_error, text_of(refused)) == (True, "the server is stopping; try again")
        assert (await client.list_resources()).resources == []


async def test_calls_count_among_the_turns_of_a_credential(serve: Serve, scripted: Scripted) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await go_on.wait()
        return "waited"

    agent = scripted(call("wait"), say("Done."), tools=[wait])
    async with serve([agent], settings=ServerSettings(concurrent_turns=1)) as served, connect(served) as client:
        first = asyncio.create_task(client.call_tool("ask_assistant", {"prompt": "Wait."}))
        await begun.wait()
        refused = await client.call_tool("ask_assistant", {"prompt": "Hello."})
        assert "1 turns of this credential are running" in text_of(refused)
        go_on.set()
        assert text_of(await first) == "Done."
        assert text_of(await client.call_tool("ask_assistant", {"prompt": "Hello."})) == "Done."


async def test_a_client_does_not_learn_the_address_of_a_store_that_is_lost(
    serve: Serve, scripted: Scripted, postgres_server: PostgresServer
) -> None:
    with postgres_server.database() as dsn:
        store = PostgresStore(dsn, patience=0.1)
        async with serve([scripted(say("Hi."))], store=store) as served, connect(served) as client:
            await client.list_tools()
            postgres_server.stop_immediate()
            try:
                lost = await client.call_tool("ask_assistant", {"prompt": "Hello."})
                with pytest.raises(Exception, match="the store of this server cannot be reached now"):
                    await client.list_resources()
            finally:
                postgres_server.start()
            assert "the store of this server cannot be reached now" in text_of(lost)
        await store.close()
