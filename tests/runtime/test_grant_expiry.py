"""Approvals for a limited time: they apply until they expire, in every process, and not after that."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.runtime.approval_project import ApprovalProject, bash_call
from tests.runtime.runtime_fixtures import (
    agent,
    collect,
    collect_turn,
    count_events,
    last_body,
    read_log,
    runtime,
    wait_until,
)
from vaka.core.session.snapshot import reopen
from vaka.core.types.errors import InvalidInput, Suspended
from vaka.core.types.ids import SessionId
from vaka.runtime.options import Environment
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, calls, say

HOUR = 3600.0


async def resolve_at(project: ApprovalProject, clock: FakeClock, id: str, **more: Any) -> Any:
    async with runtime(project.store.open_handle(), environment=Environment(clock=clock)) as rt:
        return (await rt.resolve(id, "approve", scope="session", **more)).data


async def test_a_grant_allows_calls_until_it_expires(project: ApprovalProject) -> None:
    clock = FakeClock()
    who = project.make_agent(
        bash_call("npm test"), bash_call("npm test"), say("one"), bash_call("npm test"), say("two")
    )
    [asked] = await project.run_until_asked(who, environment=Environment(clock=clock))
    resolved = await resolve_at(project, clock, asked.approval, ttl=HOUR)
    assert (resolved.scope, resolved.rule, resolved.until) == ("session", "Bash(npm test)", "2023-11-14T23:13:20.000Z")
    clock.advance(HOUR - 1)
    await project.resume(who, environment=Environment(clock=clock))
    assert project.executed == ["npm test", "npm test"]
    clock.advance(1)
    async with project.runtime(environment=Environment(clock=clock)) as rt:
        with pytest.raises(Suspended):
            await (await rt.open(who, id="s")).run("Again.")
    assert project.executed == ["npm test", "npm test"]


async def test_a_grant_has_expired_when_an_old_session_is_opened_again(project: ApprovalProject) -> None:
    clock = FakeClock()
    who = project.make_agent(bash_call("npm test"), say("one"), bash_call("npm test"), say("two"))
    [asked] = await project.run_until_asked(who, environment=Environment(clock=clock))
    await resolve_at(project, clock, asked.approval, ttl=60)
    await project.resume(who, environment=Environment(clock=clock))
    clock.advance(30 * 24 * HOUR)
    async with project.runtime(environment=Environment(clock=clock)) as rt:
        with pytest.raises(Suspended):
            await (await rt.open(who, id="s")).run("Again.")
    assert project.executed == ["npm test"]


async def test_an_expired_grant_stays_expired_when_the_clock_is_set_back(
    project: ApprovalProject,
) -> None:
    clock = FakeClock()
    who = project.make_agent(bash_call("npm test"), say("one"), say("two"), bash_call("npm test"), say("three"))
    [asked] = await project.run_until_asked(who, environment=Environment(clock=clock))
    await resolve_at(project, clock, asked.approval, ttl=60)
    await project.resume(who, environment=Environment(clock=clock))
    clock.advance(61)
    async with project.runtime(environment=Environment(clock=clock)) as rt:
        session = await rt.open(who, id="s")
        assert (await session.run("Hello.")).text == "two"
        clock.jump(-61)
        with pytest.raises(Suspended):
            await session.run("Again.")
        assert (await reopen(project.store, SessionId("s"))).state.grants == []


async def test_a_grant_without_expiry_outlives_one_that_expires(project: ApprovalProject) -> None:
    clock = FakeClock()
    who = project.make_agent(
        calls(bash_call("npm test"), bash_call("make")), bash_call("npm test"), bash_call("make"), say("done")
    )
    first, second = await project.run_until_asked(who, environment=Environment(clock=clock))
    await resolve_at(project, clock, first.approval, ttl=60)
    await resolve_at(project, clock, second.approval)
    clock.advance(61)
    [again] = await project.run_until_asked(who, environment=Environment(clock=clock))
    assert again.call.arguments == {"command": "npm test"}
    assert sorted(project.executed) == ["make", "npm test"]
    await resolve_at(project, clock, again.approval)
    await project.resume(who, environment=Environment(clock=clock))
    assert sorted(project.executed) == ["make", "make", "npm test", "npm test"]


async def test_a_grant_with_expiry_settles_other_pending_approvals_that_its_rule_matches(
    project: ApprovalProject,
) -> None:
    who = project.make_agent(calls(bash_call("npm test"), bash_call("npm test && ls"), bash_call("make")), say("done"))
    first, _, third = await project.run_until_asked(who)
    await project.resolve(first, scope="session", ttl=60)
    assert await project.pending_ids() == [third.approval]


async def test_a_grant_expires_during_a_turn_that_waits(project: ApprovalProject) -> None:
    clock = FakeClock()
    who = project.make_agent(calls(bash_call("npm test"), bash_call("make")), bash_call("npm test"), say("done"))
    async with project.runtime(permissions=vaka.Permissions(ask="wait"), environment=Environment(clock=clock)) as rt:
        task = asyncio.create_task(collect_turn(await rt.open(who, id="s")))
        await wait_until(lambda: count_events(project.store, "s", "approval.requested") == 2)
        first, second = [row.id for row in await rt.decisions()]
        await rt.resolve(first, "approve", scope="session", ttl=60)
        await wait_until(lambda: count_events(project.store, "s", "tool.completed") == 1)
        clock.advance(61)
        await rt.resolve(second, "approve")
        await wait_until(lambda: count_events(project.store, "s", "approval.requested") == 3)
        [third] = await rt.decisions()
        await rt.resolve(third.id, "approve")
        assert last_body(await task).text == "done"


async def test_the_ttl_of_an_answer_overrides_the_grant_ttl_of_the_agent(project: ApprovalProject) -> None:
    clock = FakeClock()
    who = project.make_agent(
        calls(bash_call("npm test"), bash_call("make")), say("done"), limits=vaka.Limits(grant_ttl=60)
    )
    first, second = await project.run_until_asked(who, environment=Environment(clock=clock))
    assert first.lasts == 60
    assert (await resolve_at(project, clock, first.approval)).until == "2023-11-14T22:14:20.000Z"
    assert (await resolve_at(project, clock, second.approval, ttl=120)).until == "2023-11-14T22:15:20.000Z"


async def test_a_rewind_does_not_restore_an_expired_grant(project: ApprovalProject) -> None:
    clock = FakeClock()
    who = project.make_agent(bash_call("npm test"), say("one"), say("two"), bash_call("npm test"), say("three"))
    [asked] = await project.run_until_asked(who, environment=Environment(clock=clock))
    await resolve_at(project, clock, asked.approval, ttl=60)
    await project.resume(who, environment=Environment(clock=clock))
    end = (await read_log(project.store, "s"))[-1].seq
    clock.advance(61)
    async with project.runtime(environment=Environment(clock=clock)) as rt:
        session = await rt.open(who, id="s")
        await session.run("Hello.")
        clock.jump(-61)
        await session.rewind(f"1.{end}")
        again = await rt.open(agent(ScriptedModel(*[say("-")] * 2, bash_call("npm test")), *project.tools), id="s")
        with pytest.raises(Suspended):
            await collect(again.stream("Again."))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"scope": "session", "ttl": 0}, "must be a number of seconds above 0"),
        ({"scope": "session", "ttl": -1}, "must be a number of seconds above 0"),
        ({"scope": "session", "ttl": float("nan")}, "must be a number of seconds above 0"),
        ({"scope": "session", "ttl": float("inf")}, "must be a number of seconds above 0"),
        ({"scope": "project", "ttl": 60}, "ttl applies only to the scope session"),
        ({"ttl": 60}, "ttl applies only to the scope session"),
        ({"scope": "session", "tll": 60}, "an answer has no 'tll'; it may have message, edit, scope, rule, ttl, by"),
    ],
)
async def test_an_invalid_ttl_is_refused_and_the_approval_stays_open(
    project: ApprovalProject, more: Any, why: str
) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    with pytest.raises(InvalidInput, match=why):
        await project.resolve(asked, **more)
    assert await project.pending_ids() == [asked.approval]
    assert not project.local_settings_file.exists()
