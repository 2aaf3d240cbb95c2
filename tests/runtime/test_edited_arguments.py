"""Edited arguments of an approval: invalid ones are refused, and the approval stays open."""

from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.approval_project import ApprovalProject, bash_call
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.config.options import Storage
from vaka.core.types.control import ApprovalRequested, ApprovalResolved
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import SessionId
from vaka.core.types.progress import StepStarted
from vaka.core.types.tool import InvalidArguments
from vaka.middleware import Approval
from vaka.testing.models import ScriptedModel, call, calls, say
from vaka.tools.builtin import builtin_tools

REFUSED_EDIT = "Bash does not take these arguments: "
REFUSED_AT_RUN = "Bash does not take the arguments that a person gave it: "


async def offer_edit(project: ApprovalProject, asked: ApprovalRequested, **said: Any) -> None:
    """Let an answer come from a program that does not look at it."""
    body = ApprovalResolved(approval=asked.approval, decision="approve", **said)
    async with runtime(project.store.open_handle()) as rt:
        await rt._drivers.offer(SessionId("s"), body, asked.approval)


# -------------------------------------------------------------------------------- when it is answered


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"command": 7}, "command: expected string"),
        ({}, "'command' is missing"),
        ({"command": "x", "comand": "y"}, "unknown 'comand'"),
    ],
)
async def test_edited_arguments_that_do_not_match_the_schema_are_refused_and_the_approval_stays_open(
    project: ApprovalProject, edit: dict[str, Any], why: str
) -> None:
    """The resolving process does not know the agent: it reads the tool menu of the model from the log."""
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    with pytest.raises(InvalidInput, match=REFUSED_EDIT) as caught:
        await project.resolve(asked, edit=edit)
    assert why in str(caught.value)
    assert await project.pending_ids() == [asked.approval]
    await project.resolve(asked, edit={"command": "npm build"})
    await project.resume(who)
    assert project.executed == ["npm build"]


async def test_edited_arguments_are_parsed_like_those_of_a_model(project: ApprovalProject) -> None:
    who = agent(ScriptedModel(bash_call("make slow"), say("done")), *builtin_tools(["Bash"]))
    [asked] = await project.run_until_asked(who)
    with pytest.raises(InvalidInput, match="timeout"):
        await project.resolve(asked, edit={"command": "make all", "timeout": "soon"})
    resolved = await project.resolve(asked, edit={"command": "make all", "timeout": "60"})
    assert resolved.edit["timeout"] == "60"


async def test_edited_arguments_are_checked_for_tools_of_a_child_agent(project: ApprovalProject) -> None:
    lines = ScriptedModel(agents={"helper": [bash_call("npm test"), say("helped")]})
    helper = vaka.Agent("helper", model=lines, tools=list(project.tools))
    who = agent(ScriptedModel(call("helper", prompt="Go."), say("done")), helper)
    [asked] = await project.run_until_asked(who)
    with pytest.raises(InvalidInput, match=REFUSED_EDIT):
        await project.resolve(asked, edit={"command": 7})
    await project.resolve(asked, edit={"command": "npm build"})
    await project.resume(who)
    assert project.executed == ["npm build"]


async def test_the_schema_is_found_in_a_long_log(project: ApprovalProject) -> None:
    many = calls(*(bash_call(f"echo {number}") for number in range(300)), bash_call("npm test"))
    [asked] = await project.run_until_asked(project.make_agent(many, say("done")))
    with pytest.raises(InvalidInput, match=REFUSED_EDIT):
        await project.resolve(asked, edit={"command": 7})


def nested_value(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"command": "x" * (1 << 20)}, "may have at most 1048576 bytes"),
        ({"command": nested_value(100)}, "nested deeper than 64"),
        ({"command": nested_value(100_000)}, "cannot be written as JSON|nested deeper"),
        ({"command": float("nan")}, "not a JSON number|command: expected string"),
        ({"command": 2**70}, "does not fit in 64 bits|cannot be written as JSON"),
        ({"command": object()}, "cannot be written as JSON"),
        ({"command": "\ud800"}, "half of a surrogate|cannot be written as JSON"),
        ({7: "x"}, "is not text"),
    ],
)
async def test_an_edit_that_is_not_json_or_too_large_is_refused_and_the_approval_stays_open(
    project: ApprovalProject, edit: Any, why: str
) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    with pytest.raises(InvalidInput, match=why):
        await project.resolve(asked, edit=edit)
    assert await project.pending_ids() == [asked.approval]


async def test_an_edit_that_contains_a_registered_secret_is_refused(project: ApprovalProject) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    async with runtime(project.store.open_handle(), storage=Storage(secrets=("hunter2hunter2",))) as rt:
        with pytest.raises(InvalidInput, match="contain a secret"):
            await rt.resolve(asked.approval, "approve", edit={"command": "login hunter2hunter2"})
    assert await project.pending_ids() == [asked.approval]


async def test_lone_surrogates_in_a_rejection_are_replaced(project: ApprovalProject) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    resolved = await project.resolve(asked, "reject", message="no\udcff", by="k\udcffm")
    assert (resolved.message, resolved.by) == ("no\ufffd", "k\ufffdm")


# -------------------------------------------------------------------------------- when the call runs


async def test_an_edit_that_is_invalid_when_the_call_runs_requests_a_new_approval_with_the_reason(
    project: ApprovalProject,
) -> None:
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    await offer_edit(project, asked, edit={"command": 7})
    [again] = await project.run_until_asked(who)
    assert again.approval != asked.approval
    assert again.reason.startswith(REFUSED_AT_RUN)
    assert (again.call, again.rule_names, again.grant) == (asked.call, asked.rule_names, asked.grant)
    assert await project.run_until_asked(who) == [again], "the approval is requested once, also after a resume"
    await project.resolve(again)
    await project.resume(who)
    assert project.executed == ["npm test"], "the second answer is a yes to the call as it was"


async def test_a_second_edit_replaces_the_first(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    await offer_edit(project, asked, edit={"command": []})
    [again] = await project.run_until_asked(who)
    await offer_edit(project, again, edit={"comand": "npm build"})
    [third] = await project.run_until_asked(who)
    await project.resolve(third, edit={"command": "npm build"})
    await project.resume(who)
    assert project.executed == ["npm build"]


async def test_an_approval_for_the_session_with_an_invalid_edit_does_not_run_the_original_call(
    project: ApprovalProject,
) -> None:
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    await offer_edit(project, asked, edit={"command": 7}, scope="session", rule="Bash(npm test)")
    [again] = await project.run_until_asked(who)
    assert (again.rule_names, again.reason.startswith(REFUSED_AT_RUN), project.executed) == (asked.rule_names, True, [])
    await project.resolve(again)
    await project.resume(who)
    assert project.executed == ["npm test"]


async def test_an_invalid_edit_is_denied_with_the_reason_where_no_person_can_be_asked(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    await offer_edit(project, asked, edit={"command": 7})
    events = await project.resume(who, permissions=vaka.Permissions(ask="deny"))
    assert results_by_call(events)["call_1"].reason == "denied"
    assert results_by_call(events)["call_1"].text.startswith(REFUSED_AT_RUN)


async def test_an_edit_that_the_approval_does_not_allow_denies_the_call(
    project: ApprovalProject,
) -> None:
    asking = Approval({"Bash": {"allowed_decisions": ["approve"]}})
    who = project.make_agent(bash_call("npm test"), say("done"), middleware=[asking])
    rules = {"allow": ("Bash",)}
    [asked] = await project.run_until_asked(who, rules=rules)
    await offer_edit(project, asked, edit={"command": "npm build"})
    events = await project.resume(who, rules=rules)
    assert (results_by_call(events)["call_1"].reason, project.executed) == ("denied", [])


async def test_a_rejection_of_the_second_approval_denies_the_call(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    await offer_edit(project, asked, edit={"command": 7})
    [again] = await project.run_until_asked(who)
    await project.resolve(again, "reject", message="leave it")
    await project.resume(who)
    assert project.executed == []


async def test_an_edit_that_a_changed_tool_does_not_accept_requests_a_new_approval(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, edit={"command": "npm build"})

    class Changed:
        """The tool as it is by now: it takes something else."""

        def __init__(self, tool: Any) -> None:
            self.spec = msgspec.structs.replace(tool.spec, description="Run it.")
            self.call = tool.call

        def parse(self, raw: Any) -> Any:
            found = project.tools[0].parse(raw)
            return InvalidArguments("npm is gone") if "build" in str(raw) else found

    [again] = await project.run_until_asked(
        agent(ScriptedModel(bash_call("npm test"), say("done")), Changed(project.tools[0]))
    )
    assert again.reason == f"{REFUSED_AT_RUN}npm is gone"


async def test_an_edit_is_accepted_unchecked_when_the_schemas_are_missing_from_the_store(
    project: ApprovalProject,
) -> None:
    who = project.make_agent(calls(bash_call("npm test")), say("done"))
    [asked] = await project.run_until_asked(who)
    step = next(event.data for event in await read_log(project.store, "s") if isinstance(event.data, StepStarted))
    assert step.tools is not None
    blobs: Any = project.store.hub.shared.blobs
    for key in [key for key in blobs if step.tools in key]:
        del blobs[key]
    await project.resolve(asked, edit={"command": 7})
    [again] = await project.run_until_asked(who)
    assert again.reason.startswith(REFUSED_AT_RUN)
