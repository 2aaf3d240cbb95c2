"""Approval: which tools a person is asked about, and what they may say."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, count_events, read_log, results_by_call, runtime, wait_until
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.errors import ConfigError, InvalidInput, Suspended
from vaka.middleware import Approval, Review
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say


@vaka.tool(effect="read")
async def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


async def run_with_decision(
    given: Any, *, ask: str = "wait", **said: Any
) -> tuple[dict[str, Any], list[ApprovalRequested]]:
    """Let a model call the tool, decide as told, and return the results and what was asked."""
    store = MemoryStore()
    bot = agent(ScriptedModel(call("look", at="a"), say("done")), look, middleware=[Approval(given)])
    async with runtime(store, ask=ask, permission_mode="bypassPermissions") as rt:
        session = await rt.open(bot, id="s")
        if not said:
            await session.run("Go.")
        else:
            task = asyncio.create_task(session.run("Go."))
            await wait_until(lambda: count_events(store, "s", "approval.requested") == 1)
            pending = await rt.decisions("s")
            await rt.resolve(pending[0].id, **said)
            await task
    log = await read_log(store, "s")
    return results_by_call(log), [event.data for event in log if isinstance(event.data, ApprovalRequested)]


async def test_a_tool_that_is_named_true_is_asked_about_and_runs_when_approved() -> None:
    found, asked = await run_with_decision({"look": True}, decision="approve")
    assert found["call_1"].text == "saw a"
    assert [(one.reason, one.rule, one.decisions) for one in asked] == [
        ("look needs approval", "middleware:Approval", ())
    ]


async def test_false_and_unnamed_tools_are_not_asked_about() -> None:
    for given in ({"look": False}, {"other": True}, {"*": True, "look": False}):
        assert (await run_with_decision(given))[1] == []


async def test_a_star_stands_for_every_other_tool() -> None:
    found, asked = await run_with_decision({"*": Review(message="Really?")}, decision="reject", message="not now")
    assert asked[0].message == "Really?"
    assert found["call_1"].text == "a person refused this call: not now"


async def test_where_nobody_can_be_asked_the_tool_does_not_run() -> None:
    found, _ = await run_with_decision({"look": True}, ask="deny")
    assert (found["call_1"].reason, "nobody can be asked" in found["call_1"].text) == ("denied", True)


@pytest.mark.parametrize(
    ("allowed", "said", "ran"),
    [
        (["approve", "edit"], {"decision": "approve", "edit": {"at": "b"}}, "saw b"),
        (["approve"], {"decision": "approve"}, "saw a"),
        (["approve"], {"decision": "reject", "message": "no"}, ""),
    ],
)
async def test_only_an_allowed_answer_lets_a_tool_run(allowed: list[str], said: dict[str, Any], ran: str) -> None:
    found, asked = await run_with_decision({"look": {"allowed_decisions": allowed}}, **said)
    assert asked[0].decisions == tuple(allowed)
    assert ("" if found["call_1"].failed else found["call_1"].text) == ran
    assert found["call_1"].reason == ("" if ran else "denied")


@pytest.mark.parametrize(
    ("allowed", "said", "why"),
    [
        (["approve", "reject"], {"edit": {"at": "b"}}, "takes approve or reject, not edit"),
        (["edit"], {}, "takes edit or reject, not approve"),
    ],
)
async def test_an_answer_that_is_not_allowed_is_none(allowed: list[str], said: dict[str, Any], why: str) -> None:
    asking = Approval({"look": {"allowed_decisions": allowed}})
    bot = agent(ScriptedModel(call("look", at="a"), say("done")), look, middleware=[asking])
    async with runtime(MemoryStore(), ask="suspend", permission_mode="bypassPermissions") as rt:
        with pytest.raises(Suspended) as caught:
            await (await rt.open(bot, id="s")).run("Go.")
        with pytest.raises(InvalidInput, match=why):
            await rt.resolve(caught.value.decisions[0], "approve", **said)
        assert [row.id for row in await rt.decisions()] == list(caught.value.decisions)


@pytest.mark.parametrize("given", ["yes", {"message": 3}, {"mesage": "x"}, {"allowed_decisions": ["reject"]}, 1])
def test_what_means_nothing_is_refused_when_it_is_set_up(given: Any) -> None:
    with pytest.raises(ConfigError, match="look"):
        Approval({"look": given})
