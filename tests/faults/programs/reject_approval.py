"""Run or resume a turn that ends with a rejected approval: ``python -m tests.faults.programs.reject_approval PLAN``."""

import asyncio
import sys
from contextlib import aclosing, suppress

import msgspec

from tests.faults.crash_run import Plan, open_store
from tests.faults.line_protocol import print_event, print_line
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.errors import NotFound
from vaka.core.types.event import Event
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.runtime.runtime import Runtime
from vaka.testing.crashes import enable_failpoints
from vaka.testing.models import ScriptedModel, call, calls
from vaka.testing.models import say as says
from vaka.tools.function import tool

ANSWERS = {"Ann": "approve", "Bob": "reject"}
"""The decision on a letter, by recipient; other letters are left undecided."""


@tool(effect="idempotent")
async def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


async def decide(runtime: Runtime, event: Event) -> None:
    """Make the decision that an event asks for; it may have been made before."""
    if isinstance(event.data, ApprovalRequested) and (answer := ANSWERS.get(event.data.call.arguments["to"])):
        with suppress(NotFound):
            print_event(await runtime.resolve(event.data.approval, answer))  # type: ignore[arg-type]  # one of two


async def main(plan: Plan) -> None:
    enable_failpoints()
    store = open_store(plan)
    model = ScriptedModel(calls(*(call("send", to=name) for name in ("Ann", "Bob", "Cid"))), says("Then not."))
    agent = Agent("clerk", model=model, tools=[send])
    async with Runtime(
        store=store, permissions=Permissions(policy=LayeredPolicy([Layer(name="flag", ask=("send",))]), ask="wait")
    ) as runtime:
        session = await runtime.open(agent, id=plan.session)
        for pending in await runtime.decisions(session.id):
            await decide(runtime, pending.event)
        found = await store.sessions.find(session.id)
        for events in (
            session.stream("Send them.", key="go") if found is None else session.resume(),
            session.stream("Leave it.", key="more"),
        ):
            async with aclosing(events) as seen:
                async for event in seen:
                    print_event(event)
                    await decide(runtime, event)
    await store.close()
    print_line("ended")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
