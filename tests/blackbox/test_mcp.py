"""The MCP SDK's own client against a server, in both eras: answers, progress, forms, cancellation and continuation."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.blackbox.blackbox_agents import make_agents
from tests.server.conftest import Served, serve_agents
from vaka.config.options import Permissions
from vaka.core.types.progress import ToolFailed, ToolStarted, TurnInterrupted

each_era = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])


@asynccontextmanager
async def connect(served: Served, era: str, **options: Any) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": "Bearer alice"}, timeout=30) as http,
        Client(streamable_http_client(f"{served.url}/mcp", http_client=http), mode=era, **options) as client,
    ):
        yield client


def data_of(result: types.CallToolResult) -> dict[str, Any]:
    assert result.structured_content is not None
    return dict(result.structured_content)


@each_era
async def test_a_client_talks_sees_tools_at_work_and_continues_a_session(era: str) -> None:
    lines: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    async with serve_agents(make_agents()) as served, connect(served, era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "ask_talker" in names
        first = data_of(await client.call_tool("ask_talker", {"prompt": "Hi."}))
        assert first["answer"] == "Hello, ✓."
        second = data_of(await client.call_tool("ask_talker", {"prompt": "?", "session_id": first["session_id"]}))
        assert second["answer"] == "That is all."
        guided = await client.call_tool("ask_guide", {"prompt": "Weather?"}, progress_callback=note)
        assert data_of(guided)["answer"] == "It is sunny."
        assert '→ look {"place":"Hilo"}' in lines
        assert "← look: sunny in Hilo" in lines
        transcript = await client.read_resource(f"session://{first['session_id']}/transcript")
        assert "That is all." in getattr(transcript.contents[0], "text", "")


@each_era
async def test_a_client_approves_or_rejects_in_a_form(era: str) -> None:
    answers: list[dict[str, Any]] = [{"decision": "approve"}, {"decision": "reject", "reason": "Not today."}]

    async def decide(context: Any, params: Any) -> types.ElicitResult:
        assert '"place": "here"' in params.message
        return types.ElicitResult(action="accept", content=answers.pop(0))

    async with (
        serve_agents(make_agents(), permissions=Permissions(confirm=["deploy"])) as served,
        connect(served, era, elicitation_callback=decide) as client,
    ):
        done = data_of(await client.call_tool("ask_deployer", {"prompt": "Go."}))
        assert done["answer"] == "Done."
        refused = data_of(await client.call_tool("ask_deployer", {"prompt": "Go."}))
        log = [event async for event in served.service.runtime.store.events.read(refused["session_id"])]
        failed = [event.data.result.reason for event in log if isinstance(event.data, ToolFailed)]
        assert failed == ["denied"]


@each_era
async def test_a_cancelled_call_interrupts_its_turn(era: str) -> None:
    session: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if not session.done():
            session.set_result((message or "").removeprefix("session "))

    async with serve_agents(make_agents()) as served, connect(served, era) as client:
        call = client.call_tool("ask_waiter", {"prompt": "Wait."}, progress_callback=note)
        calling = asyncio.create_task(call)
        async with aclosing(served.service.runtime.follow(await session)) as events:
            async for event in events:
                if isinstance(event.data, ToolStarted):
                    calling.cancel()
                if isinstance(event.data, TurnInterrupted):
                    break
        with pytest.raises(asyncio.CancelledError):
            await calling
