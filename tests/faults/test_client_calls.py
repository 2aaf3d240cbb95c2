"""A call of a client tool that waited when its process was killed is answered elsewhere, and the turn goes on."""

import asyncio
import sys
from pathlib import Path

import vaka
from tests.unmeasured import without_coverage
from vaka.core.types.control import QuestionAsked
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools import ClientTool

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import asyncio, sys
from tests.faults.test_client_calls import wait_for_client
asyncio.run(wait_for_client(sys.argv[1]))
"""


def make_agent() -> vaka.Agent:
    return vaka.Agent("guide", model=ScriptedModel(call("pick"), say("thanks")), tools=[ClientTool("pick")])


async def wait_for_client(store: str) -> None:
    """Run a turn that waits for the client."""
    async with vaka.Runtime(store=store, permissions=vaka.Permissions(ask="wait")) as rt:
        async for event in (await rt.open(make_agent(), id="s")).stream("Pick."):
            if isinstance(event.data, QuestionAsked):
                sys.stdout.write("asked\n")
                sys.stdout.flush()


async def test_a_call_that_waits_for_the_client_survives_the_death_of_its_process(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/vaka.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, store, stdout=asyncio.subprocess.PIPE, cwd=ROOT, env=without_coverage()
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"asked\n"
    process.kill()
    await process.wait()
    async with vaka.Runtime(store=store, permissions=vaka.Permissions(ask="wait")) as rt, asyncio.timeout(60):
        session = await rt.open(make_agent(), id="s")
        resumed = asyncio.create_task(session.resume().wait())
        await session.answer_call("call_1", "a.png")
        response = await resumed
        assert response.text == "thanks"
        types = [event.type for event in await session.last_turn()]
        assert [types.count(name) for name in ("question.asked", "tool.started", "tool.completed")] == [1, 2, 1]
