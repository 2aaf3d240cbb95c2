"""The chat of the AI SDK against a server: text, approvals, tools of the client, resumed and aborted streams."""

import asyncio
import json
from pathlib import Path

import vaka
from tests.blackbox.js.node import needs_clients, run_script, write_example
from tests.server.conftest import serve_agents
from vaka.testing import ScriptedModel, call, say
from vaka.tools.client_tool import ClientTool


@vaka.tool
def deploy(place: str) -> str:
    """Deploy it."""
    return f"deployed to {place}"


@vaka.tool
async def wait() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return ""


@needs_clients
async def test_the_chat_of_the_ai_sdk_has_whole_conversations(tmp_path: Path) -> None:
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

    agents = [
        vaka.Agent("talker", model=ScriptedModel(say("Hello, ✓."), say("That is all."))),
        vaka.Agent("deployer", model=ScriptedModel(call("deploy", place="here"), say("Done.")), tools=[deploy]),
        vaka.Agent(
            "painter", model=ScriptedModel(call("pick_color"), say("Blue it is.")), tools=[ClientTool("pick_color")]
        ),
        vaka.Agent("worker", model=ScriptedModel(call("work"), say("Finished.")), tools=[work]),
        vaka.Agent("finisher", model=ScriptedModel(call("finish"), say("Ok.")), tools=[finish]),
        vaka.Agent("waiter", model=ScriptedModel(call("wait"), say("Never.")), tools=[wait]),
    ]
    async with serve_agents(agents, permissions=vaka.Permissions(confirm=["deploy"])) as served:
        found = json.loads(await run_script(Path(__file__).parent / "aisdk.mjs", served.url, "alice"))
        talked = [["user", "Hi."], ["assistant", "Hello, ✓."], ["user", "And?"], ["assistant", "That is all."]]
        assert found["talk"] == {"before": talked, "after": talked, "usage": True}
        assert found["approved"] == {
            "name": "deploy",
            "messages": [
                ["user", "Deploy it."],
                ["assistant", ["dynamic-tool", "output-available", "deployed to here"], "Done."],
            ],
        }
        assert found["rejected"]["messages"][1] == ["assistant", ["dynamic-tool", "output-denied", None], "Done."]
        assert found["runTools"][1] == ["assistant", ["tool-pick_color", "output-available", "blue"], "Blue it is."]
        assert found["resume"] == {
            "before": [["user", "Work."], ["assistant", ["dynamic-tool", "input-available", None]]],
            "after": [["assistant", ["dynamic-tool", "output-available", "worked"], "Finished."]],
        }
        assert found["abort"]["status"] == "ready"
        assert found["fail"] == {"status": 404, "code": "not_found"}
        env = {"VAKA_URL": served.url, "VAKA_API_KEY": "alice"}
        assert await run_script(write_example("ai-sdk", tmp_path), env=env) == "Deploy to here? yes\nDone.\n"
        async for event in served.service.runtime.follow(found["abort"]["chat"]):
            if event.type == "turn.interrupted":
                break
