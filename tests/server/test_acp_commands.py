"""Slash commands of a client of the Agent Client Protocol: which there are, and ``/compact``."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import vaka
from tests.server.acp_client import AcpClient, GivenWorkspaces, RpcError, connect
from tests.views.recorded_runs import make_router
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Prompt
from vaka.core.types.context import CompactionRequest, ContextCompacted
from vaka.core.types.ids import SessionId
from vaka.middleware import ContextPolicy
from vaka.testing import FunctionModel, ScriptedModel, call, say

COMPACT = {
    "name": "compact",
    "description": "Summarizes the older messages of this conversation.",
    "input": {"hint": "what the summary is to keep"},
}
LONG = "One. " * 400


async def read_compactions(workspaces: GivenWorkspaces, session: str) -> list[ContextCompacted]:
    events = [event.data async for event in workspaces.store.events.read(SessionId(session))]
    return [body for body in events if isinstance(body, ContextCompacted)]


async def compact(client: AcpClient, session: str, instructions: str = "") -> tuple[Any, str]:
    """Send the command; return the stop reason, and what the agent answers."""
    before = len(client.updates)
    result = await client.prompt(session, f"/compact {instructions}")
    assert result.keys() == {"stopReason"}
    texts = [params["update"]["content"]["text"] for params in client.updates[before:]]
    return result["stopReason"], "".join(texts)


async def test_older_messages_are_summarized_on_request(tmp_path: Path) -> None:
    class Careful(Middleware, ContextPolicy):
        async def before_compaction(self, turn: Any, request: CompactionRequest) -> CompactionRequest:
            return msgspec.structs.replace(request, skip="Not now." if request.instructions == "never" else "")

    model = ScriptedModel(say(LONG), say(LONG), say("On."), agents={"summary": [say("<summary>Sums.</summary>")]})
    middleware = [Careful()]
    workspaces = GivenWorkspaces(vaka.Agent("clerk", model=model, middleware=middleware))
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        await client.until("available_commands_update")
        assert await compact(client, session) == ("end_turn", "There is nothing to summarize yet.")
        for text in ("First.", "Second."):
            await client.prompt(session, text)
        assert await compact(client, session, "never") == ("end_turn", "Not compacted: Not now.")
        stop, text = await compact(client, session, "\n Keep the sums,\nall of them. ")
        [body] = await read_compactions(workspaces, session)
        assert (stop, text) == ("end_turn", f"Older messages summarized ({body.before} → {body.after} tokens).")
        assert (body.trigger, body.instructions) == ("manual", "Keep the sums,\nall of them.")
        assert (await client.prompt(session, "Go on."))["stopReason"] == "end_turn"
        assert "Sums." in str(model.prompts[-1].messages)


async def test_a_summary_can_be_cancelled_and_leaves_the_context_as_it_was(tmp_path: Path) -> None:
    asked, held = asyncio.Event(), asyncio.Event()

    async def answer(prompt: Prompt) -> Any:
        if prompt.agent != "summary":
            return say(LONG)
        asked.set()
        await held.wait()
        return say("<summary>Sums.</summary>")

    workspaces = GivenWorkspaces(vaka.Agent("clerk", model=FunctionModel(answer)))
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        for text in ("First.", "Second."):
            await client.prompt(session, text)
        command, waiting = client.prompt(session, "/compact"), client.prompt(session, "Never read.")
        await asked.wait()
        client.notify("session/cancel", sessionId=session)
        assert (await command, await waiting) == ({"stopReason": "cancelled"}, {"stopReason": "cancelled"})
        assert await read_compactions(workspaces, session) == []
        assert (await client.prompt(session, "Third."))["stopReason"] == "end_turn"
        held.set()
        assert (await compact(client, session))[1].startswith("Older messages summarized (")
        held.clear()
        asked.clear()
        await client.prompt(session, "Fourth.")
        _ = client.prompt(session, "/compact")
        await asked.wait()  # the client leaves now
    assert len(await read_compactions(workspaces, session)) == 1


async def test_a_session_with_an_unfinished_turn_is_not_compacted(tmp_path: Path) -> None:
    @vaka.tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    agent = vaka.Agent("payer", model=ScriptedModel(call("pay", amount=1), say("Paid.")), tools=[pay])
    workspaces = GivenWorkspaces(agent, permissions=vaka.Permissions(confirm=["pay"]))
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        _ = client.prompt(session, "Pay.")
        await client.asked.get()
    async with connect(workspaces, tmp_path) as client:
        await client.request("session/resume", sessionId=session, cwd=client.folder, mcpServers=[])
        with pytest.raises(RpcError, match="unfinished turn") as refused:
            await client.prompt(session, "/compact")
        assert refused.value.data == {"code": "busy"}


async def test_the_command_goes_before_one_of_the_project_and_other_prompts_are_prompts(tmp_path: Path) -> None:
    workspaces = GivenWorkspaces(vaka.Agent("clerk", model=ScriptedModel(say("Read."), say("Read."), say("Read."))))
    workspaces.commands = {"compact": "Of the project.", "review": ""}
    image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgoAAA=="}
    async with connect(workspaces, tmp_path) as client:
        session = await client.open()
        listed = (await client.until("available_commands_update"))["availableCommands"]
        assert listed == [COMPACT, {"name": "review", "description": "review"}]
        for prompt in (
            [{"type": "text", "text": "/compactor"}],
            [{"type": "text", "text": "Run /compact"}],
            [{"type": "text", "text": "/compact"}, image],
        ):
            assert "usage" in await client.request("session/prompt", sessionId=session, prompt=prompt)


async def test_a_router_has_no_conversation_to_compact(tmp_path: Path) -> None:
    async with connect(GivenWorkspaces(make_router()), tmp_path) as client:
        session = await client.open()
        assert "usage" in await client.prompt(session, "/compact")
        assert "available_commands_update" not in client.outline(session)
