"""Resolved approvals: their scope, the calls they cover, and the rules that win over them when the call runs."""

import asyncio
import os
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
    reasons_by_call,
    results_by_call,
    runtime,
    wait_until,
)
from vaka.core.types.control import ApprovalResolved
from vaka.core.types.errors import InvalidInput, NotFound, Suspended
from vaka.core.types.ids import SessionId
from vaka.middleware import Ask
from vaka.runtime.options import Environment
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, calls, say

# -------------------------------------------------------------------------------- what the request shows


async def test_an_approval_request_contains_the_rule_that_it_would_store(project: ApprovalProject) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test && ls"), say("done")))
    assert asked.grant == "Bash(npm test)"
    assert asked.allowed_scopes == ("once", "session", "project", "user")
    assert (asked.agent, asked.effect, asked.cwd) == ("assistant", "once", str(project.folder))


async def test_a_resolution_records_its_author_source_and_rule(project: ApprovalProject) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    resolved = await project.resolve(asked, scope="session", by="ana")
    assert (resolved.by, resolved.scope, resolved.rule) == ("ana", "session", "Bash(npm test)")
    assert f"process {os.getpid()}" in resolved.source


async def test_an_approval_that_middleware_requests_can_be_given_for_one_session_at_most(
    project: ApprovalProject,
) -> None:
    async def careful(turn: Any, given: Any) -> Any:
        return Ask("sure?")

    mw = [vaka.Middleware.from_functions("careful", before_tool=careful)]
    who = project.make_agent(bash_call("make"), bash_call("make"), bash_call("make x"), say("done"), middleware=mw)
    rules = {"allow": ("Bash",)}
    [asked] = await project.run_until_asked(who, rules=rules)
    assert (asked.rule, asked.grant, asked.allowed_scopes) == ("middleware:careful", "Bash(make)", ("once", "session"))
    with pytest.raises(InvalidInput, match="'middleware:careful' would ask again all the same; possible is once or"):
        await project.resolve(asked, scope="user")
    await project.resolve(asked, scope="session")
    [second] = await project.run_until_asked(who, rules=rules)
    assert (second.grant, project.executed) == ("Bash(make x)", ["make", "make"])


# -------------------------------------------------------------------------------- session


async def test_an_approval_for_the_session_covers_only_calls_that_its_rule_matches(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), bash_call("npm test"), bash_call("npm run evil"), say("done"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, scope="session")
    [second] = await project.run_until_asked(who)
    assert project.executed == ["npm test", "npm test"]
    assert second.call.arguments == {"command": "npm run evil"}


async def test_an_approval_of_a_closed_session_cannot_be_resolved(project: ApprovalProject) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    async with project.runtime() as rt:
        session = await rt.open(project.make_agent(say("-"), say("never mind")), id="s")
        await session.run("Forget it.", on_busy="interrupt")
        await session.close()
    answers: list[dict[str, Any]] = [{"scope": "project"}, {"edit": {"command": "x"}}, {}]
    for answer in answers:
        with pytest.raises(NotFound):
            await project.resolve(asked, **answer)
    assert not project.local_settings_file.exists()


async def test_an_approval_for_the_session_does_not_apply_to_another_session(project: ApprovalProject) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    await project.resolve(asked, scope="session")
    await project.resume(project.make_agent(bash_call("npm test"), say("done")))
    async with project.runtime() as rt:
        with pytest.raises(Suspended):
            await (await rt.open(project.make_agent(bash_call("npm test")), id="other")).run("Go.")


async def test_the_rule_of_the_answer_replaces_the_suggested_rule(project: ApprovalProject) -> None:
    who = project.make_agent(
        bash_call("npm run test"), bash_call("npm run test -- --watch"), bash_call("npm run build"), say("done")
    )
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, scope="session", rule="Bash(npm run test:*)")
    [second] = await project.run_until_asked(who)
    assert project.executed == ["npm run test", "npm run test -- --watch"]
    assert second.call.arguments == {"command": "npm run build"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"scope": "session", "rule": "Bash(npm build)"}, "does not mean this call of Bash; 'Bash\\(npm test\\)' does"),
        ({"scope": "session", "rule": "Bash("}, "expected Tool or Tool\\(pattern\\)"),
        ({"scope": "session", "rule": "Edit(//**)"}, "does not mean this call"),
        ({"scope": "session", "rule": "Bash(npm test)\nBash(npm \x1b[31m)"}, "contains unprintable characters"),
        ({"scope": "project", "rule": "Bash(npm test)\nBash(\u202e:*)"}, "contains unprintable characters"),
        ({"scope": "user", "rule": "Bash(npm test)\nEdit(/x)"}, "write // before a whole path"),
        ({"scope": "once", "rule": "Bash(npm test)"}, "an approval for once grants none"),
        ({"scope": "for ever"}, "must be one of once, session, project, user"),
        ({"scope": "session", "edit": {"command": "npm build"}}, "does not mean this call"),
    ],
)
async def test_an_invalid_answer_is_refused_and_the_approval_stays_open(
    project: ApprovalProject, said: Any, why: str
) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    with pytest.raises(InvalidInput, match=why):
        await project.resolve(asked, **said)
    assert await project.pending_ids() == [asked.approval]
    assert not project.local_settings_file.exists()


@pytest.mark.parametrize("said", [{"scope": "session"}, {"rule": "Bash"}, {"edit": {"command": "x"}}])
async def test_a_rejection_takes_no_scope_rule_or_edit(project: ApprovalProject, said: Any) -> None:
    [asked] = await project.run_until_asked(project.make_agent(bash_call("npm test"), say("done")))
    with pytest.raises(InvalidInput, match="a rejection takes no scope, rule or edit"):
        await project.resolve(asked, "reject", **said)


async def test_a_call_that_no_rule_can_express_is_approved_once_only(project: ApprovalProject) -> None:
    who = project.make_agent(call("Write", file_path=".git/config", content="x"), say("done"))
    [asked] = await project.run_until_asked(who)
    assert (asked.layer, asked.grant, asked.allowed_scopes) == ("protected", "", ("once",))
    for scope in ("session", "project", "user"):
        with pytest.raises(InvalidInput, match="can only be approved once"):
            await project.resolve(asked, scope=scope, rule="Edit(//**)")
    await project.resolve(asked)
    await project.resume(who)
    assert project.executed == [".git/config"]


async def test_an_approval_settles_other_pending_approvals_that_its_rule_matches(project: ApprovalProject) -> None:
    both = calls(bash_call("npm test"), bash_call("npm test && ls"), bash_call("npm build"))
    who = project.make_agent(both, say("done"))
    first, _, third = await project.run_until_asked(who)
    await project.resolve(first, scope="session", by="ana")
    assert await project.pending_ids() == [third.approval]
    await project.resolve(third, "reject", message="no build")
    events = await project.resume(who)
    assert sorted(project.executed) == ["npm test", "npm test && ls"]
    assert reasons_by_call(events) == {"call_1": "ok", "call_2": "ok", "call_3": "denied"}
    said = [e.data for e in await read_log(project.store, "s") if isinstance(e.data, ApprovalResolved)]
    assert [body.by for body in said] == ["ana", "ana", ""]
    assert said[1].message == f"covered by what was allowed with {first.approval}"


async def test_an_approval_does_not_settle_what_another_rule_asks_about(project: ApprovalProject) -> None:
    rules = {"ask": ("Bash(git push:*)",)}
    who = project.make_agent(calls(bash_call("git push x"), bash_call("git push x && make")), say("done"))
    first, second = await project.run_until_asked(who, rules=rules)
    assert first.allowed_scopes == ("once", "session")
    await project.resolve(first, scope="session", rule="Bash(git push x)\nBash(make)")
    assert await project.pending_ids() == [second.approval], "the mode asks about make, and that approval is still open"


async def test_a_waiting_turn_continues_when_the_rule_of_another_approval_covers_its_call(
    project: ApprovalProject,
) -> None:
    who = project.make_agent(calls(bash_call("npm test"), bash_call("npm test && ls")), say("done"))
    async with project.runtime(permissions=vaka.Permissions(ask="wait")) as rt:
        session = await rt.open(who, id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_until(lambda: count_events(project.store, "s", "approval.requested") == 2)
        first, second = [row.id for row in await rt.decisions()]
        body = ApprovalResolved(approval=first, decision="approve", scope="session", rule="Bash(npm test)")
        await rt._drivers.offer(session.id, body, body.approval)  # as if the writer died before it resolved the other
        events = await task
    assert last_body(events).text == "done"
    assert sorted(project.executed) == ["npm test", "npm test && ls"]
    resolved = [e.data for e in events if isinstance(e.data, ApprovalResolved)]
    assert [(one.approval, one.by) for one in resolved] == [(second, "vaka")]
    assert await project.pending_ids() == []


async def test_a_rejection_wins_over_a_rule_that_would_cover_the_call(project: ApprovalProject) -> None:
    who = project.make_agent(calls(bash_call("npm test"), bash_call("npm test && ls")), say("done"))
    first, second = await project.run_until_asked(who)
    store: Any = project.store.open_handle()
    append = store.events.append

    async def late(session: Any, events: Any, **more: Any) -> int:
        if any(isinstance(event.data, ApprovalResolved) for event in events):
            store.events.append = append
            await project.resolve(second, "reject", message="not that")
        done: int = await append(session, events, **more)
        return done

    yes = ApprovalResolved(approval=first.approval, decision="approve", scope="session", rule="Bash(npm test)")
    async with runtime(project.store.open_handle()) as rt:
        await rt._drivers.offer(SessionId("s"), yes, first.approval)
    store.events.append = late
    async with runtime(store, permissions=vaka.Permissions(ask="suspend", policy=project.policy())) as rt:
        events = await collect((await rt.open(who, id="s")).resume())
    assert reasons_by_call(events) == {"call_1": "ok", "call_2": "denied"}
    assert project.executed == ["npm test"]


async def test_a_waiting_turn_does_not_repeat_a_request_when_another_call_is_approved(project: ApprovalProject) -> None:
    who = project.make_agent(calls(bash_call("npm test"), bash_call("npm build")), say("done"))
    async with project.runtime(permissions=vaka.Permissions(ask="wait")) as rt:
        task = asyncio.create_task(collect_turn(await rt.open(who, id="s")))
        await wait_until(lambda: count_events(project.store, "s", "approval.requested") == 2)
        first, second = [row.id for row in await rt.decisions()]
        await rt.resolve(first, "approve", scope="session")
        await wait_until(lambda: count_events(project.store, "s", "tool.completed") == 1)
        assert [row.id for row in await rt.decisions()] == [second]
        await rt.resolve(second, "reject", message="no build")
        events = await task
    assert reasons_by_call(events) == {"call_1": "ok", "call_2": "denied"}


async def test_an_approval_for_the_session_covers_child_agents_to_the_same_extent(project: ApprovalProject) -> None:
    lines = ScriptedModel(agents={"helper": [bash_call("npm test"), bash_call("npm build"), say("helped")]})
    helper = vaka.Agent("helper", model=lines, tools=list(project.tools))
    who = agent(ScriptedModel(bash_call("npm test"), call("helper", prompt="Go."), say("done")), *project.tools, helper)
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, scope="session")
    [second] = await project.run_until_asked(who)
    assert (second.agent, second.call.arguments) == ("helper", {"command": "npm build"})
    assert project.executed == ["npm test", "npm test"]


async def test_a_rewind_to_before_an_approval_for_the_session_removes_it(
    project: ApprovalProject,
) -> None:
    who = project.make_agent(bash_call("npm test"), say("one"), bash_call("npm test"), say("two"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, scope="session")
    await project.resume(who)
    before = next(e.seq for e in await read_log(project.store, "s") if e.type == "input.added")
    async with project.runtime() as rt:
        session = await rt.open(who, id="s")
        await session.rewind(f"1.{before - 1}")
        with pytest.raises(Suspended):
            await session.run("Again.")


async def test_an_approval_for_the_session_does_not_apply_to_a_fork(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), say("one"), bash_call("npm test"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, scope="session")
    await project.resume(who)
    async with project.runtime() as rt:
        copy = await (await rt.open(who, id="s")).fork(id="copy")
        with pytest.raises(Suspended):
            await copy.run("Again.")
    assert project.executed == ["npm test"]


async def test_a_rewind_of_a_fork_to_its_origin_does_not_restore_an_approval(
    project: ApprovalProject,
) -> None:
    who = project.make_agent(bash_call("npm test"), say("one"), bash_call("npm test"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, scope="session")
    await project.resume(who)
    async with project.runtime() as rt:
        copy = await (await rt.open(who, id="s")).fork(id="copy")
        copied = next(e.seq for e in await read_log(project.store, "copy") if e.type == "session.forked")
        await copy.rewind(f"1.{copied - 1}")
        with pytest.raises(Suspended):
            await copy.run("Again.")
    assert project.executed == ["npm test"]


async def test_a_rewind_back_and_forth_does_not_restore_an_approval(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), say("one"), bash_call("npm test"), say("two"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, scope="session")
    await project.resume(who)
    end = (await read_log(project.store, "s"))[-1].seq
    async with project.runtime() as rt:
        session = await rt.open(who, id="s")
        await session.rewind(f"1.{end}")
        assert (await session.run("Again.")).text == "two", "going back to where it was allowed leaves it allowed"
        await session.rewind("1.2")
        await session.rewind(f"1.{end}")
        with pytest.raises(Suspended):
            await session.run("And again.")
    assert project.executed == ["npm test", "npm test"]


# -------------------------------------------------------------------------------- asked once more when it runs


async def test_an_approval_that_expired_before_the_call_runs_is_requested_again(
    project: ApprovalProject,
) -> None:
    clock = FakeClock()
    who = project.make_agent(bash_call("npm test"), say("done"), limits=vaka.Limits(approval_ttl=60))
    [asked] = await project.run_until_asked(who, environment=Environment(clock=clock))
    async with project.runtime(environment=Environment(clock=clock)) as rt:
        await rt.resolve(asked.approval, "approve")
    clock.advance(61)
    [again] = await project.run_until_asked(who, environment=Environment(clock=clock))
    assert again.approval != asked.approval
    clock.jump(-60)
    assert await project.run_until_asked(who, environment=Environment(clock=clock)) == [again], (
        "an expired yes stays expired when the clock goes back"
    )
    async with project.runtime(environment=Environment(clock=clock)) as rt:
        await rt.resolve(again.approval, "approve")
    await project.resume(who, environment=Environment(clock=clock))
    assert project.executed == ["npm test"]


async def test_an_expired_approval_cannot_be_given_for_the_project(project: ApprovalProject) -> None:
    clock = FakeClock()
    who = project.make_agent(bash_call("npm test"), say("done"), limits=vaka.Limits(approval_ttl=60))
    [asked] = await project.run_until_asked(who, environment=Environment(clock=clock))
    clock.advance(61)
    async with project.runtime(environment=Environment(clock=clock)) as rt:
        with pytest.raises(InvalidInput, match="has expired"):
            await rt.resolve(asked.approval, "approve", scope="project")
    assert not project.local_settings_file.exists()


@pytest.mark.parametrize(
    "tightened", [{"ask": ("Bash(npm:*)",)}, {"ask": ("Bash",)}, {"ask": ("Bash(npm:*)", "Bash(npm test)")}]
)
async def test_an_approved_call_is_asked_about_again_when_rules_became_stricter(
    project: ApprovalProject, tightened: Any
) -> None:
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, scope="session")
    [again] = await project.run_until_asked(who, rules=tightened)
    assert project.executed == []
    assert again.rule_names == set(tightened["ask"])
    await project.resolve(again)
    await project.resume(who, rules=tightened)
    assert project.executed == ["npm test"]


async def test_an_additional_ask_rule_requests_a_new_approval(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who, rules={"ask": ("Bash(npm:*)",)})
    await project.resolve(asked)
    [again] = await project.run_until_asked(who, rules={"ask": ("Bash(npm:*)", "Bash(npm test)")})
    assert again.rule_names == {"Bash(npm:*)", "Bash(npm test)"}
    await project.resolve(again)
    await project.resume(who, rules={"ask": ("Bash(npm test)",)})
    assert project.executed == ["npm test"], "fewer rules ask nothing new"


async def test_a_command_whose_working_folder_changed_is_asked_about_again(
    project: ApprovalProject,
) -> None:
    (project.folder / "sub").mkdir()
    who = project.make_agent(calls(bash_call("cd sub"), bash_call("make > out")), bash_call("make > out"), say("done"))
    [asked] = await project.run_until_asked(who)
    assert (asked.folder, asked.grant) == ("", f"Bash(make)\nEdit(/{project.folder}/out)")
    await project.resolve(asked)
    [again] = await project.run_until_asked(who)
    assert project.executed == ["cd sub"]
    assert (again.folder, again.grant) == (f"{project.folder}/sub", f"Bash(make)\nEdit(/{project.folder}/sub/out)")
    await project.resolve(again, scope="session")
    await project.resume(who)
    assert project.executed == ["cd sub", "make > out", "make > out"]


async def test_a_deny_rule_added_after_an_approval_wins(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, scope="user")
    events = await project.resume(who, rules={"deny": ("Bash(npm:*)",)})
    assert reasons_by_call(events) == {"call_1": "denied", "call_2": "denied"}
    assert project.executed == []


# -------------------------------------------------------------------------------- arguments that a person changed


async def test_edited_arguments_are_judged_by_the_rules(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who, rules={"deny": ("Bash(rm:*)",)})
    await project.resolve(asked, edit={"command": "rm x"})
    events = await project.resume(who, rules={"deny": ("Bash(rm:*)",)})
    assert results_by_call(events)["call_1"].text == "the rule Bash(rm:*) denies it"
    assert project.executed == []


async def test_an_edit_cannot_redirect_a_call_to_a_protected_path(project: ApprovalProject) -> None:
    who = project.make_agent(call("Write", file_path="a", content="x"), say("done"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, edit={"file_path": ".git/config", "content": "x"})
    events = await project.resume(who)
    assert results_by_call(events)["call_1"].text.startswith("a person changed this call, but not into that: ")
    assert project.executed == []


async def test_an_approved_call_on_a_protected_path_may_be_edited(project: ApprovalProject) -> None:
    who = project.make_agent(call("Write", file_path=".git/config", content="x"), say("done"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, edit={"file_path": ".git/config", "content": "y"})
    await project.resume(who)
    assert project.executed == [".git/config"]


async def test_edited_arguments_that_another_rule_asks_about_request_a_new_approval(project: ApprovalProject) -> None:
    who, rules = project.make_agent(bash_call("npm test"), say("done")), {"ask": ("Bash(git push:*)",)}
    [asked] = await project.run_until_asked(who, rules=rules)
    await project.resolve(asked, edit={"command": "git push x"})
    [again] = await project.run_until_asked(who, rules=rules)
    assert (again.call.arguments, again.rule) == ({"command": "git push x"}, "Bash(git push:*)")
    await project.resolve(again)
    await project.resume(who, rules=rules)
    assert project.executed == ["git push x"]


async def test_an_approval_with_an_edit_stores_a_rule_for_the_edited_arguments(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), bash_call("npm run ci"), bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    await project.resolve(asked, edit={"command": "npm run ci"}, scope="session", rule="Bash(npm run ci)")
    [again] = await project.run_until_asked(who)
    assert project.executed == ["npm run ci", "npm run ci"]
    assert again.call.arguments == {"command": "npm test"}


# -------------------------------------------------------------------------------- policies of one's own


async def test_a_call_asked_about_by_a_custom_policy_is_approved_once_only(project: ApprovalProject) -> None:
    class Wary:
        def judge(self, call: Any, spec: Any, path: Any) -> Any:
            return Ask("why not ask", rule="wary", grant="Bash")

        def visible(self, spec: Any) -> bool:
            return True

    [asked] = await project.run_until_asked(
        project.make_agent(bash_call("npm test"), say("done")), permissions=vaka.Permissions(policy=Wary())
    )
    assert (asked.grant, asked.allowed_scopes) == ("", ("once",))
    with pytest.raises(InvalidInput, match="can only be approved once"):
        await project.resolve(asked, scope="session")


async def test_a_second_decision_returns_the_event_of_the_first(project: ApprovalProject) -> None:
    who = project.make_agent(bash_call("npm test"), say("done"))
    [asked] = await project.run_until_asked(who)
    async with project.runtime(permissions=vaka.Permissions(ask="wait")) as rt:
        first = await rt.resolve(asked.approval, "reject", message="not now", by="ana")
        assert await rt.resolve(asked.approval, "approve", scope="user", by="bob") == first
        await collect((await rt.open(who, id="s")).resume())
        assert await rt.resolve(asked.approval, "approve", by="bob") == first
        with pytest.raises(NotFound, match="there is no open decision 'apr_none'"):
            await rt.resolve("apr_none", "approve")
    assert project.executed == []
    assert count_events(project.store, "s", "approval.resolved") == 1


async def test_a_second_answer_returns_the_event_of_the_first() -> None:
    @vaka.tool(effect="resume")
    async def colour(context: vaka.ToolContext) -> str:
        """Ask for a colour."""
        return f"{await context.ask('Which?')}"

    async with runtime(permissions=vaka.Permissions(ask="suspend")) as rt:
        session = await rt.open(agent(ScriptedModel(call("colour"), say("done")), colour), id="s")
        with pytest.raises(Suspended) as caught:
            await session.run("Go.")
        [question] = caught.value.decisions
        first = await rt.answer(question, "red", by="ana")
        assert await rt.answer(question, "blue", by="bob") == first
        with pytest.raises(NotFound):
            await rt.answer("qst_none", "blue")
