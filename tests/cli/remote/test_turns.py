"""A turn of a server without a terminal, in this process: who decides, and what is reported."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.server.conftest import Served, serve_agents
from vaka.cli.remote.client import ServerClient
from vaka.cli.remote.run_turn import RemoteTarget, RemoteTurn
from vaka.cli.turn.report import Report
from vaka.testing import ScriptedModel, call, say


@vaka.tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@vaka.tool(effect="read")
async def colour(context: vaka.ToolContext[Any]) -> str:
    """Ask for a colour."""
    return f"colour {await context.ask('Which colour?', options=['red', 'blue'])}"


def agents() -> list[vaka.Agent[Any]]:
    paying = ScriptedModel(call("pay", amount=5), say("All done."))
    painting = ScriptedModel(call("colour"), say("Painted."))
    return [vaka.Agent("payer", model=paying, tools=[pay]), vaka.Agent("painter", model=painting, tools=[colour])]


async def run_turn(served: Served, token: str = "alice", **target: Any) -> int:
    async with ServerClient(served.url, token) as client:
        return await RemoteTurn(client, RemoteTarget(content="Go.", **target), Report("text")).run()


async def test_a_call_that_needs_a_person_is_refused_and_a_question_has_no_answer(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with serve_agents(agents(), permissions=vaka.Permissions(confirm=["pay"])) as served:
        assert await run_turn(served, agent="payer", ask="deny") == 5
        assert "a person refused this call: no person can be asked here" in capfd.readouterr().err
        assert await run_turn(served, agent="painter", ask="deny") == 0
        out, err = capfd.readouterr()
        assert out == "Painted.\n"
        assert "colour None" in err
        assert await run_turn(served, "carol", agent="payer", ask="deny", session="hers") == 5
        assert "approvals:write" in capfd.readouterr().err


async def test_a_turn_waits_for_a_decision_that_is_made_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    async with (
        serve_agents(agents(), permissions=vaka.Permissions(confirm=["pay"])) as served,
        served.client() as other,
    ):
        assert await run_turn(served, agent="payer", session="left", ask="suspend") == 5
        assert f"decide it at {served.url}" in capfd.readouterr().err
        waiting = asyncio.create_task(run_turn(served, session="left", resume=True, ask="wait"))
        (decision,) = (await other.get("/api/v1/approvals")).json()["data"]
        await other.post(f"/api/v1/approvals/{decision['id']}/resolve", json={"decision": "approve"})
        assert await waiting == 0
        out, err = capfd.readouterr()
        assert out == "All done.\n"
        assert "paid 5" in err
        assert await run_turn(served, session="left", resume=True, ask="suspend") == 0
        assert capfd.readouterr().out == "All done.\n"
