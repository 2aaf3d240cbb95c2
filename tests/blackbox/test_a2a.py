"""A2A's own clients against a server, in both bindings: cards, tasks, required input, subscriptions, cancellation."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.blackbox.js.node import ROOT, needs_clients, run_script
from tests.server.conftest import Served, serve_agents
from vaka.testing import ScriptedModel, call, say

a2a: Any = pytest.importorskip("a2a.client")
types: Any = pytest.importorskip("a2a.types")
errors: Any = pytest.importorskip("a2a.utils.errors")
httpx: Any = pytest.importorskip("httpx")


@vaka.tool
def deploy(place: str) -> str:
    """Deploy it."""
    return f"deployed to {place}"


@vaka.tool
async def wait() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return ""


@asynccontextmanager
async def serve_all() -> AsyncGenerator[Served]:
    """Serve the agents that the clients talk to."""
    finished = asyncio.Event()

    @vaka.tool
    async def work() -> str:
        """Work until another agent finishes it."""
        await finished.wait()
        finished.clear()
        return "worked"

    @vaka.tool
    async def finish() -> str:
        """Finish the work."""
        finished.set()
        return ""

    agents = [
        vaka.Agent("talker", model=ScriptedModel(say("Hello, ✓."), say("That is all.")), description="Talks."),
        vaka.Agent("deployer", model=ScriptedModel(call("deploy", place="here"), say("Done.")), tools=[deploy]),
        vaka.Agent("worker", model=ScriptedModel(call("work"), say("Finished.")), tools=[work]),
        vaka.Agent("finisher", model=ScriptedModel(call("finish"), say("Ok.")), tools=[finish]),
        vaka.Agent("waiter", model=ScriptedModel(call("wait"), say("Never.")), tools=[wait]),
    ]
    async with serve_agents(agents, permissions=vaka.Permissions(confirm=["deploy"])) as served:
        yield served


def request(text: str, id: str, **fields: Any) -> Any:
    part = types.Part(text=text)
    message = types.Message(message_id=id, role=types.Role.ROLE_USER, parts=[part], **fields)
    return types.SendMessageRequest(message=message)


def state_of(status: Any) -> str:
    return str(types.TaskState.Name(status.state)).removeprefix("TASK_STATE_")


async def read(updates: Any) -> tuple[Any, str, list[str]]:
    """Return the task with which a stream begins, the text of its artifacts, and its states."""
    task = None
    text = ""
    states = list[str]()
    async for update in updates:
        kind = update.WhichOneof("payload")
        value = getattr(update, kind)
        if kind == "artifact_update":
            text += "".join(part.text for part in value.artifact.parts)
            continue
        task = task or (value if kind == "task" else None)
        if states[-1:] != [state_of(value.status)]:
            states.append(state_of(value.status))
    return task, text, states


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_python_client_of_a2a_runs_tasks(binding: str) -> None:
    async with serve_all() as served, httpx.AsyncClient(headers={"Authorization": "Bearer alice"}) as http:
        config = a2a.ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], use_client_preference=True)

        async def connect(agent: str) -> Any:
            return await a2a.create_client(f"{served.url}/a2a/{agent}", client_config=config)

        talker = await connect("talker")
        task, text, states = await read(talker.send_message(request("Hi.", "m-1")))
        assert (text, states) == ("Hello, ✓.", ["SUBMITTED", "WORKING", "COMPLETED"])
        found = await talker.get_task(types.GetTaskRequest(id=task.id))
        assert found.artifacts[0].parts[0].text == "Hello, ✓."
        listed = await talker.list_tasks(types.ListTasksRequest(context_id=task.context_id, page_size=5))
        assert [each.id for each in listed.tasks] == [task.id]
        card = await talker.get_extended_agent_card(types.GetExtendedAgentCardRequest())
        assert card.description == "Talks."
        with pytest.raises(errors.TaskNotFoundError):
            await talker.get_task(types.GetTaskRequest(id="none.none"))

        deployer = await connect("deployer")
        task, _, states = await read(deployer.send_message(request("Deploy it.", "m-1")))
        assert states[-1] == "INPUT_REQUIRED"
        _, text, states = await read(deployer.send_message(request("approve", "m-2", task_id=task.id)))
        assert (text, states) == ("Done.", ["INPUT_REQUIRED", "WORKING", "COMPLETED"])

        waiter = await connect("waiter")
        waiting = waiter.send_message(request("Wait.", "m-1"))
        task = (await anext(waiting)).task
        cancelled = await waiter.cancel_task(types.CancelTaskRequest(id=task.id))
        assert state_of(cancelled.status) == "CANCELED"
        await waiting.aclose()
        with pytest.raises(errors.TaskNotCancelableError):
            await waiter.cancel_task(types.CancelTaskRequest(id=task.id))

        worker = await connect("worker")
        working = worker.send_message(request("Work.", "m-1"))
        task = (await anext(working)).task
        await working.aclose()
        subscribed = worker.subscribe(types.SubscribeToTaskRequest(id=task.id))
        assert state_of((await anext(subscribed)).task.status) in ("SUBMITTED", "WORKING")
        await read((await connect("finisher")).send_message(request("Go.", "m-1")))
        _, text, states = await read(subscribed)
        assert (text, states[-1]) == ("Finished.", "COMPLETED")


@needs_clients
async def test_the_javascript_client_of_a2a_runs_tasks() -> None:
    async with serve_all() as served:
        found = json.loads(await run_script(Path(__file__).parent / "a2a.mjs", served.url, "alice"))
    expected = {
        "card": "talker",
        "sent": "TASK_STATE_COMPLETED",
        "streamed": "That is all.",
        "asked": "INPUT_REQUIRED",
        "approved": "Done.",
        "watched": ["COMPLETED", "Finished."],
        "cancelled": "TASK_STATE_CANCELED",
        "again": "TaskNotCancelableError",
    }
    for binding in ("JSONRPC", "HTTP+JSON"):
        assert found[binding] == expected, binding


async def test_the_example_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "guides" / "a2a.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    async with serve_all() as served:
        scope: dict[str, Any] = {}
        exec(compile(example, "a2a.md", "exec"), scope)  # it is a page of this repository
        await scope["deploy"](served.url, "alice")
    assert capsys.readouterr().out == "TASK_STATE_INPUT_REQUIRED\nDone.\n"
