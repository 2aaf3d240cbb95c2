"""AG-UI's own JavaScript client against a server: text, approvals, tools of the client, and a run that is aborted."""

import asyncio
import json
from pathlib import Path

import vaka
from tests.blackbox.js.node import needs_clients, run_script, write_example
from tests.server.conftest import serve_agents
from vaka.core.ports.tool import ToolContext
from vaka.testing import ScriptedModel, call, say


@vaka.tool
async def deploy(context: ToolContext, place: str) -> str:
    """Deploy it."""
    context.state.set("place", place)
    return f"deployed to {place}"


@vaka.tool
async def wait() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return ""


@needs_clients
async def test_the_client_of_ag_ui_has_whole_conversations(tmp_path: Path) -> None:
    agents = [
        vaka.Agent("talker", model=ScriptedModel(say("Hello, ✓."), say("That is all."))),
        vaka.Agent("deployer", model=ScriptedModel(call("deploy", place="here"), say("Done.")), tools=[deploy]),
        vaka.Agent("painter", model=ScriptedModel(call("pick_color", title="Wall"), say("Blue it is."))),
        vaka.Agent("waiter", model=ScriptedModel(call("wait"), say("Never.")), tools=[wait]),
    ]
    async with serve_agents(agents, permissions=vaka.Permissions(confirm=["deploy"])) as served:
        script = Path(__file__).parent / "agui.mjs"
        found = json.loads(await run_script(script, served.url, "alice"))
        assert found["talk"] == {
            "result": "Hello, ✓.",
            "messages": [
                ["user", "Hi."],
                ["assistant", "Hello, ✓."],
                ["user", "And?"],
                ["assistant", "That is all."],
            ],
        }
        assert found["approve"] == {
            "reason": "tool_call",
            "refusal": "AGUIError",
            "open": 0,
            "state": {"place": "here"},
            "messages": [
                ["user", "Deploy it."],
                ["assistant", [{"name": "deploy", "arguments": '{"place":"here"}'}]],
                ["tool", "deployed to here"],
                ["assistant", "Done."],
            ],
        }
        assert found["runTools"]["messages"][-2:] == [["tool", "blue"], ["assistant", "Blue it is."]]
        assert found["fail"] == {"status": 404, "code": "not_found"}
        env = {"VAKA_URL": served.url, "VAKA_API_KEY": "alice"}
        assert await run_script(write_example("ag-ui", tmp_path), env=env) == "Deploy to here? yes\nDone.\n"
        async for event in served.service.runtime.follow(found["abort"]["thread"]):
            if event.type == "turn.interrupted":
                break
