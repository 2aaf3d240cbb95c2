"""Run or resume a turn that rewinds itself by D-Mail: ``python -m tests.faults.programs.run_dmail PLAN``."""

import asyncio
import sys
from contextlib import aclosing

import msgspec

from tests.faults.crash_run import Plan, open_store
from tests.faults.line_protocol import print_event, print_line
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.runtime.runtime import Runtime
from vaka.testing.crashes import enable_failpoints
from vaka.testing.models import ScriptedModel, call
from vaka.testing.models import say as says
from vaka.tools.builtin import builtin_tools

MESSAGE = "look at the other side"


async def main(plan: Plan) -> None:
    enable_failpoints()
    store = open_store(plan)
    model = ScriptedModel(
        call("TaskCreate", subject="one", activeForm="doing one"),
        call("DMail", message=MESSAGE, checkpoint_id=1),
        call("TaskCreate", subject="two", activeForm="doing two"),
        says("arrived"),
    )
    agent = Agent("traveller", model=model, tools=builtin_tools(["DMail", "TaskCreate"]))
    async with Runtime(store=store, permissions=Permissions(mode="bypassPermissions")) as runtime:
        session = await runtime.open(agent, id=plan.session)
        found = await store.sessions.find(session.id)
        begin = session.stream("Go.", key="go") if found is None else session.resume()
        async with aclosing(begin) as events:
            async for event in events:
                print_event(event)
    await store.close()
    print_line("ended")


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Plan)))
