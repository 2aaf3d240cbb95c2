"""The turn that docs/design.md tells in words: a tool call, an approval, a crash and a resume."""

import asyncio

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    collect,
    count_commits,
    count_events,
    last_body,
    log_writer,
    read_log,
    runtime,
    wait_until,
)
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say


def make_agent(deployed: list[str]) -> vaka.Agent:
    @vaka.tool
    async def deploy(target: str) -> str:
        """Deploy."""
        deployed.append(target)
        return "deployed"

    return agent(ScriptedModel(call("deploy", target="harbour"), say("It is done.")), deploy)


async def test_the_events_of_the_told_turn_are_written_together_as_the_page_says() -> None:
    permissions = vaka.Permissions(confirm=["deploy"])
    killed, deployed = MemoryStore(), list[str]()
    before = count_commits(killed)
    async with runtime(killed, permissions=permissions) as first:
        session = await first.open(make_agent(deployed), id="s")
        waiting = asyncio.create_task(session.run("Go."))
        await wait_until(lambda: count_events(killed, "s", "approval.requested") == 1)
        left = await read_log(killed, "s")
        waiting.cancel()
        await asyncio.wait([waiting])
    assert before.commits[:2] == [
        ["session.opened", "input.added", "turn.started", "step.started"],
        ["message.completed", "usage", "tool.called", "approval.requested"],
    ]

    store = MemoryStore()
    await log_writer(store, "s", left)()  # as the killed process has left it
    after = count_commits(store)
    async with runtime(store, permissions=permissions) as second:
        (decision,) = await second.decisions()
        await second.resolve(decision.id, "approve")
        session = await second.open(make_agent(deployed), id="s")
        ended = last_body(await collect(session.resume()))
    assert (ended.text, deployed) == ("It is done.", ["harbour"])
    assert after.commits == [
        ["turn.resumed", "tool.started"],
        ["tool.completed", "step.completed", "step.started"],
        ["message.completed", "usage", "step.completed", "turn.completed"],
    ]
