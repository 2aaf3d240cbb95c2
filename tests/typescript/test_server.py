"""The TypeScript client against a server: runs, decisions, branches, and connections that break."""

import asyncio
import json
from pathlib import Path
from typing import Any

import vaka
from tests.server.conftest import serve_agents
from tests.typescript.client_build import needs_packages, run_script
from vaka.testing import ScriptedModel, call, calls, say
from vaka.tools.client_tool import ClientTool

pytestmark = needs_packages


@vaka.tool
def deploy(place: str) -> str:
    """Deploy it."""
    return f"deployed to {place}"


@vaka.tool(effect="read")
def greet(name: str) -> str:
    """Greet a person."""
    return f"Aloha, {name}."


@vaka.tool(effect="resume")
async def choose(context: vaka.ToolContext[Any]) -> str:
    """Let a person choose."""
    return str(await context.ask("East or west?", options=("east", "west")))


@vaka.tool
async def wait() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return ""


def make_agents() -> list[vaka.Agent[Any]]:
    finished = asyncio.Event()

    @vaka.tool
    async def work() -> str:
        """Work until another agent finishes it."""
        await finished.wait()
        return "worked"

    @vaka.tool
    async def finish() -> str:
        """Finish the work."""
        finished.set()
        return ""

    chunks = {"reasoning": "🌊?", "chunks": ["The tide ", "is rising 🌊", " and ", "falls at six."], "repeat": True}
    decisions = calls(call("deploy", place="here"), call("choose"), call("pick"))
    pick = ClientTool("pick", "Pick a file.")
    return [
        vaka.Agent("guide", model=ScriptedModel(chunks)),
        vaka.Agent("decider", model=ScriptedModel(decisions, say("Done.")), tools=[deploy, greet, choose, pick]),
        vaka.Agent("waiter", model=ScriptedModel(call("wait"), say("Never.")), tools=[wait]),
        vaka.Agent("worker", model=ScriptedModel(call("work"), say("Finished.")), tools=[work]),
        vaka.Agent("finisher", model=ScriptedModel(call("finish"), say("Ok.")), tools=[finish]),
    ]


async def test_the_client_runs_decides_branches_and_survives_cuts(client_package: Path) -> None:
    async with serve_agents(make_agents(), permissions=vaka.Permissions(confirm=["deploy"])) as served:
        found = json.loads(await run_script(client_package / "test" / "server.mjs", served.url, "alice"))
    text = "The tide is rising 🌊 and falls at six."
    assert found["talk"] == {
        "text": text,
        "status": "completed",
        "same": True,
        "messages": ["user", "assistant"],
        "completed": 1,
        "turn": "completed",
        "session": "idle",
        "found": True,
    }
    assert found["decide"] == {
        "asked": [["approval", {"place": "here"}, 2]],
        "status": "completed",
        "edited": {"place": "there"},
        "decision": "approve",
        "open": 0,
        "lines": [
            ["user", "Go."],
            ["assistant", "deploy completed", "choose completed", "pick completed"],
            ["assistant", "Done."],
        ],
    }
    assert found["cancel"] == "interrupted"
    assert found["steer"] == [
        ["user", "Work."],
        ["assistant", "work completed"],
        ["user", "Also this."],
        ["assistant", "Finished."],
    ]
    assert found["background"] == ["completed", True]
    assert found["branches"] == {
        "origin": "talk",
        "back": "notice",
        "size": 4,
        "listed": 1,
        "missing": [404, "not_found", False],
        "turns": "completed",
        "checkpoints": ["here"],
    }
    assert found["rest"] == {
        "agents": ["decider", "finisher", "guide", "waiter", "worker"],
        "tools": ["choose", "deploy", "greet", "pick"],
        "executed": "Aloha, Ann.",
        "trace": ["turn", "step", "model"],
        "me": "alice",
        "version": "vaka",
        "stats": True,
        "usage": True,
    }
    assert found["cut"] == [[True, True, 1]] * 5
    assert found["same"] == [[id, True, True] for id in ("talk", "decide", "cancel", "steer")]
    assert found["missing"] == [404, "not_found"]
