"""Approval: which tools need an approval, and which decisions are allowed."""

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
    tools: Any, *, ask: Any = "wait", **decision: Any
) -> tuple[dict[str, Any], list[ApprovalRequested]]:
    """Run a turn in which a model calls the tool, decide, and return the results and the requests."""
    store = MemoryStore()
    bot = agent(ScriptedModel(call("look", at="a"), say("done")), look, middleware=[Approval(tools)])
    async with runtime(store, permissions=vaka.Permissions(ask=ask, mode="bypassPermissions")) as rt:
        session = await rt.open(bot, id="s")
        if not decision:
            await session.run("Go.")
        else:
            task = asyncio.create_task(session.run("Go."))
            await wait_until(lambda: count_events(store, "s", "approval.requested") == 1)
            pending = await rt.decisions("s")
            await rt.resolve(pending[0].id, **decision)
            await task
    log = await read_log(store, "s")
    return results_by_call(log), [event.data for event in log if isinstance(event.data, ApprovalRequested)]


async def test_a_tool_set_to_true_needs_approval_and_runs_when_approved() -> None:
    results, requests = await run_with_decision({"look": True}, decision="approve")
    assert results["call_1"].text == "saw a"
    assert [(request.reason, request.rule, request.decisions) for request in requests] == [
        ("look needs approval", "middleware:Approval", ())
    ]


async def test_tools_set_to_false_and_unnamed_tools_need_no_approval() -> None:
    for tools in ({"look": False}, {"other": True}, {"*": True, "look": False}):
        assert (await run_with_decision(tools))[1] == []


async def test_a_star_stands_for_every_other_tool() -> None:
    results, requests = await run_with_decision({"*": Review(message="Really?")}, decision="reject", message="not now")
    assert requests[0].message == "Really?"
    assert results["call_1"].text == "a person refused this call: not now"


async def test_without_a_person_to_ask_the_tool_does_not_run() -> None:
    results, _ = await run_with_decision({"look": True}, ask="deny")
    assert (results["call_1"].reason, "can be asked" in results["call_1"].text) == ("denied", True)


@pytest.mark.parametrize(
    ("allowed", "decision", "text"),
    [
        (["approve", "edit"], {"decision": "approve", "edit": {"at": "b"}}, "saw b"),
        (["approve"], {"decision": "approve"}, "saw a"),
        (["approve"], {"decision": "reject", "message": "no"}, ""),
    ],
)
async def test_only_an_allowed_decision_lets_a_tool_run(
    allowed: list[str], decision: dict[str, Any], text: str
) -> None:
    results, requests = await run_with_decision({"look": {"allowed_decisions": allowed}}, **decision)
    assert requests[0].decisions == tuple(allowed)
    assert ("" if results["call_1"].failed else results["call_1"].text) == text
    assert results["call_1"].reason == ("" if text else "denied")


@pytest.mark.parametrize(
    ("allowed", "options", "message"),
    [
        (["approve", "reject"], {"edit": {"at": "b"}}, "takes approve or reject, not edit"),
        (["edit"], {}, "takes edit or reject, not approve"),
    ],
)
async def test_a_decision_that_is_not_allowed_is_an_error_and_leaves_the_request_open(
    allowed: list[str], options: dict[str, Any], message: str
) -> None:
    approval = Approval({"look": {"allowed_decisions": allowed}})
    bot = agent(ScriptedModel(call("look", at="a"), say("done")), look, middleware=[approval])
    async with runtime(MemoryStore(), permissions=vaka.Permissions(ask="suspend", mode="bypassPermissions")) as rt:
        with pytest.raises(Suspended) as caught:
            await (await rt.open(bot, id="s")).run("Go.")
        with pytest.raises(InvalidInput, match=message):
            await rt.resolve(caught.value.decisions[0], "approve", **options)
        assert [row.id for row in await rt.decisions()] == list(caught.value.decisions)


@pytest.mark.parametrize("review", ["yes", {"message": 3}, {"mesage": "x"}, {"allowed_decisions": ["reject"]}, 1])
def test_an_invalid_review_is_an_error_at_construction(review: Any) -> None:
    with pytest.raises(ConfigError, match="look"):
        Approval({"look": review})
