"""A ``once`` call that was running when its process was killed: a person is asked at once, not after its time limit."""

import asyncio
import sys
from pathlib import Path

import pytest

import vaka
from tests.unmeasured import without_coverage
from vaka.core.types.control import QuestionAsked
from vaka.core.types.errors import Suspended
from vaka.testing.models import ScriptedModel, call, say

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import asyncio, sys
from tests.faults.test_lost_calls import run_payment
asyncio.run(run_payment(sys.argv[1]))
"""


@vaka.tool(effect="once", timeout=3600)
async def pay(amount: int) -> str:
    """Pay."""
    sys.stdout.write("paying\n")
    sys.stdout.flush()
    return str(await asyncio.Event().wait())


async def run_payment(store: str) -> None:
    """Run a turn whose tool call never ends."""
    agent = vaka.Agent("payer", model=ScriptedModel(call("pay", amount=1)), tools=[pay])
    async with vaka.Runtime(store=store, permissions=vaka.Permissions(allow=["pay"])) as rt:
        await (await rt.open(agent, id="s")).run("Pay.")


async def test_the_outcome_of_a_call_is_asked_for_at_once_when_its_process_was_killed(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/vaka.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, store, stdout=asyncio.subprocess.PIPE, cwd=ROOT, env=without_coverage()
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"paying\n"
    process.kill()
    await process.wait()
    agent = vaka.Agent("payer", model=ScriptedModel(call("pay", amount=1), say("paid")), tools=[pay])
    async with (
        vaka.Runtime(store=store, permissions=vaka.Permissions(allow=["pay"], ask="suspend")) as rt,
        asyncio.timeout(60),
    ):
        session = await rt.open(agent, id="s")
        with pytest.raises(Suspended):
            await session.resume().wait()
        [row] = await rt.decisions()
        assert isinstance(row.event.data, QuestionAsked)
        assert row.event.data.kind == "outcome"
        await rt.answer(row.id, {"outcome": "happened", "result": "receipt 7"})
        assert (await session.resume().wait()).text == "paid"
