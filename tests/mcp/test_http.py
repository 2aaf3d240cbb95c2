"""MCP over HTTP with the client of the SDK: agents as tools, approvals by forms, and callers apart from each other."""

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import vaka
from tests.server.conftest import Serve, Served
from tests.unmeasured import without_coverage
from vaka.agents.react import Agent
from vaka.config.server_tables import FEATURE_NAMES
from vaka.server.settings import ServerSettings
from vaka.testing import call, say

Scripted = Callable[..., Agent]
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "mcp.md"


@vaka.tool
def deploy() -> str:
    """Deploy it."""
    return "deployed"


@asynccontextmanager
async def connect(served: Served, token: str = "alice", **options: Any) -> AsyncGenerator[Client]:
    """Yield a client of the SDK with a token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=20) as http,
        Client(streamable_http_client(f"{served.url}/mcp", http_client=http), **options) as client,
    ):
        yield client


async def approve(context: Any, params: Any) -> types.ElicitResult:
    assert "Approve deploy?" in params.message
    return types.ElicitResult(action="accept", content={"decision": "approve"})


async def test_a_client_asks_an_agent_and_continues_its_session(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."), say("Two."))]) as served, connect(served) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["ask_assistant"]
        first = await client.call_tool("ask_assistant", {"prompt": "Count."})
        assert first.structured_content is not None
        session = first.structured_content["session_id"]
        assert first.structured_content["answer"] == "One."
        second = await client.call_tool("ask_assistant", {"prompt": "Go on.", "session_id": session})
        assert second.structured_content is not None
        assert second.structured_content["answer"] == "Two."
        read = await client.read_resource(f"session://{session}/transcript")
        assert "Two." in getattr(read.contents[0], "text", "")
        info = await served.service.runtime.store.sessions.find(session)
        assert info is not None
        assert info.owner == "alice"


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_person_approves_in_a_form_of_the_client(serve: Serve, scripted: Scripted, era: str) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with (
        serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served,
        connect(served, mode=era, elicitation_callback=approve) as client,
    ):
        done = await client.call_tool("ask_assistant", {"prompt": "Go."})
        assert done.structured_content is not None
        assert done.structured_content["answer"] == "Done."


async def test_a_client_without_forms_learns_where_to_decide(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, connect(served) as client:
        waiting = await client.call_tool("ask_assistant", {"prompt": "Go."})
        assert waiting.is_error
        assert waiting.structured_content is not None
        [row] = await served.service.runtime.decisions()
        asked = "deploy {} needs an approval (the rule deploy asks about deploy)."
        place = f"Decide it in the console, or with POST /api/v1/approvals/{row.id}/resolve"
        assert waiting.structured_content["waiting_for"] == [f"{asked} {place}"]
        async with served.client() as http:
            await http.post(f"/api/v1/approvals/{row.id}/resolve", json={"decision": "approve"})
        session = waiting.structured_content["session_id"]
        done = await client.call_tool("ask_assistant", {"prompt": "", "session_id": session})
        assert done.structured_content is not None
        assert done.structured_content["answer"] == "Done."


async def test_sessions_of_other_callers_do_not_exist(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Mine."), say("Yours."))]) as served:
        async with connect(served) as client:
            mine = await client.call_tool("ask_assistant", {"prompt": "Hello."})
            assert mine.structured_content is not None
            session = mine.structured_content["session_id"]
        for other in ("bob", "carol"):
            async with connect(served, other) as client:
                refused = await client.call_tool("ask_assistant", {"prompt": "Hello.", "session_id": session})
                assert refused.is_error
                assert "there is no session" in getattr(refused.content[0], "text", "")
                assert (await client.list_resources()).resources == []
                with pytest.raises(Exception, match="Resource not found"):
                    await client.read_resource(f"session://{session}/transcript")


async def test_a_session_of_the_protocol_belongs_to_its_caller(serve: Serve, scripted: Scripted) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    accept = {"Accept": "application/json, text/event-stream"}
    async with serve([scripted(say("Hi."))]) as served:
        async with served.client() as client:
            opened = await client.post("/mcp", json=hello, headers=accept)
            id = opened.headers["mcp-session-id"]
        async with served.client("bob") as other:
            stolen = await other.post("/mcp", json={**hello, "id": 2}, headers={**accept, "mcp-session-id": id})
            assert stolen.status_code == 404
        async with served.client("") as stranger:
            assert (await stranger.post("/mcp", json=hello, headers=accept)).status_code == 401
        async with served.client("reader") as reader:
            assert (await reader.post("/mcp", json=hello, headers=accept)).status_code == 403


async def test_the_protocol_can_be_switched_off(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(features=frozenset(FEATURE_NAMES) - {"mcp"})
    async with serve([scripted(say("Hi."))], settings=settings) as served, served.client() as client:
        assert (await client.post("/mcp", json={})).status_code == 404


async def test_the_client_of_the_guide_works(serve: Serve, scripted: Scripted) -> None:
    [program] = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    async with serve([scripted(say("Two files."))]) as served:
        env = without_coverage() | {"VAKA_API_KEY": "alice", "VAKA_URL": served.url}
        pipe = asyncio.subprocess.PIPE
        done = await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=env, stdout=pipe, stderr=pipe)
        assert await done.communicate() == (b"Two files.\n", b"")
