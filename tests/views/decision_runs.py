"""Turns in which a person decides, recorded through a runtime: approvals and questions."""

from typing import Any, Literal

import vaka
from tests.views import recorded_runs as runs
from vaka.core.types.control import ApprovalRequested, QuestionAsked
from vaka.errors import TurnError
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing import FakeIds, ScriptedModel, call, say


@vaka.tool
async def paint(context: vaka.ToolContext[Any]) -> str:
    """Paint the boat."""
    return f"painted {await context.ask('Which colour?', options=['red', 'blue'])}"


async def record_decided(
    agent: vaka.Agent[Any], decision: Literal["approve", "reject"] = "approve", answer: str = "red", **options: Any
) -> list[vaka.Event]:
    """Return the events of one turn, whose approvals and questions get the same answer each."""
    events: list[vaka.Event] = []
    async with vaka.Runtime(store=MemoryStore(), environment=Environment(ids=FakeIds()), **options) as rt:
        session = await rt.open(agent, id="s")
        try:
            async for event in session.stream("Go."):
                events.append(event)
                if isinstance(event.data, ApprovalRequested):
                    await rt.resolve(event.data.approval, decision, message="no" if decision == "reject" else "")
                elif isinstance(event.data, QuestionAsked):
                    await rt.answer(event.data.question, answer)
        except TurnError:
            pass
    return events


async def record_question() -> list[vaka.Event]:
    """A tool that asks a person."""
    return await record_decided(vaka.Agent("painter", model=ScriptedModel(call("paint"), say("Done.")), tools=[paint]))


async def record_approval(decision: Literal["approve", "reject"] = "approve") -> list[vaka.Event]:
    """A call that a person approves or rejects."""
    model = ScriptedModel(call("weather", city="Hilo"), say("Well."))
    agent = vaka.Agent("guide", model=model, tools=[runs.weather])
    return await record_decided(agent, decision, permissions=vaka.Permissions(confirm=("weather",)))


async def record_child_approval() -> list[vaka.Event]:
    """A call of a child agent that a person approves."""
    scripts = {"scout": [call("weather", city="Hilo"), say("It shines.")]}
    model = ScriptedModel(call("scout", prompt="Look."), say("Sunny."), agents=scripts)
    scout = vaka.Agent("scout", model=model, tools=[runs.weather])
    return await record_decided(
        vaka.Agent("guide", model=model, tools=[scout]), permissions=vaka.Permissions(confirm=("weather",))
    )
