"""Approvals: a decision reaches the call through the log, and covers exactly one call."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    advance_loop_time,
    agent,
    check_log,
    collect,
    collect_turn,
    count_events,
    event_types,
    last_body,
    read_log,
    reasons_by_call,
    results_by_call,
    runtime,
    wait_until,
)
from vaka.core.ports.tool import ToolContext
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.errors import NotFound, Suspended
from vaka.middleware import Ask, Deny
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.runtime.options import Environment, policy_from_rules
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, calls, say

RULES = LayeredPolicy([Layer(name="flag", ask=("send",))])


class SendRecorder:
    """A tool people are asked about, and what it did."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send_tool(self, description: str = "Send a letter.", **options: Any) -> Any:
        async def send(to: str, words: str = "hello") -> str:
            self.sent.append(f"{to}:{words}")
            return f"sent to {to}"

        return vaka.tool(send, description=description, **options)


def sending_agent(post: SendRecorder, *lines: Any, **more: Any) -> vaka.Agent:
    return agent(ScriptedModel(*lines), post.send_tool(), **more)


async def pending_approvals(rt: Any) -> list[str]:
    return [row.id for row in await rt.decisions()]


async def wait_for_decisions(store: MemoryStore, count: int = 1) -> None:
    await wait_until(lambda: count_events(store, "s", "approval.requested") == count)


async def run_with_decision(how: str, *, lines: Any = None, **answer: Any) -> tuple[SendRecorder, list[Any]]:
    """Let one call be asked about and decided; return what was sent and the log."""
    post, store = SendRecorder(), MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt:
        session = await rt.open(sending_agent(post, *(lines or [call("send", to="Ann"), say("done")])), id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_for_decisions(store)
        [id] = await pending_approvals(rt)
        await rt.resolve(id, how, by="me", **answer)  # type: ignore[arg-type]  # one of two
        await task
        assert await pending_approvals(rt) == []
    log = await read_log(store, "s")
    check_log(log)
    return post, log


async def test_an_approved_call_runs() -> None:
    post, log = await run_with_decision("approve")
    assert post.sent == ["Ann:hello"]
    kinds = event_types(log)
    assert kinds.index("approval.requested") < kinds.index("approval.resolved") < kinds.index("tool.started")


async def test_an_approval_request_describes_its_call() -> None:
    _, log = await run_with_decision("approve")
    asked = next(event.data for event in log if isinstance(event.data, ApprovalRequested))
    assert (asked.call.name, asked.call.arguments, asked.rule) == ("send", {"to": "Ann"}, "send")
    assert asked.expires > log[0].ts


async def test_a_rejected_call_does_not_run_and_the_model_gets_the_reason() -> None:
    post, log = await run_with_decision("reject", message="not Ann")
    assert post.sent == []
    assert results_by_call(log)["call_1"].text == "a person refused this call: not Ann"
    assert reasons_by_call(log) == {"call_1": "denied"}


async def test_an_edited_call_runs_with_the_edited_arguments() -> None:
    post, log = await run_with_decision("approve", edit={"to": "Bob"})
    assert post.sent == ["Bob:hello"]
    assert event_types(log).count("approval.requested") == 1


async def test_an_edit_is_parsed_like_the_arguments_of_a_model() -> None:
    post, log = await run_with_decision("approve", edit={"to": "Bob", "words": None})
    assert post.sent == ["Bob:hello"]
    assert event_types(log).count("approval.requested") == 1


async def test_an_edited_call_is_judged_again() -> None:
    class NotBob(LayeredPolicy):
        def judge(self, call: Any, spec: Any, path: Any) -> Any:
            return Deny("never Bob") if call.arguments["to"] == "Bob" else super().judge(call, spec, path)

    post, store = SendRecorder(), MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=NotBob([Layer(name="flag", ask=("send",))]))) as rt:
        session = await rt.open(sending_agent(post, call("send", to="Ann"), say("done")), id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_for_decisions(store)
        await rt.resolve((await pending_approvals(rt))[0], "approve", edit={"to": "Bob"})
        await task
    assert post.sent == []
    assert results_by_call(await read_log(store, "s"))["call_1"].text == "never Bob"


async def test_an_approval_for_the_session_covers_later_calls_of_the_tool() -> None:
    lines = [call("send", to="Ann"), call("send", to="Bob"), say("done")]
    post, log = await run_with_decision("approve", lines=lines, scope="session")
    assert post.sent == ["Ann:hello", "Bob:hello"]
    assert event_types(log).count("approval.requested") == 1


async def test_an_approval_for_the_session_ends_when_the_tool_changes() -> None:
    post, store = SendRecorder(), MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt:
        session = await rt.open(sending_agent(post, call("send", to="Ann"), say("done")), id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_for_decisions(store)
        await rt.resolve((await pending_approvals(rt))[0], "approve", scope="session")
        await task
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="deny")) as rt:
        changed = agent(
            ScriptedModel(say("-"), say("-"), call("send", to="Bob"), say("no")), post.send_tool("Send money.")
        )
        events = await collect_turn(await rt.open(changed, id="s"), key="2")
    assert reasons_by_call(events) == {"call_2": "denied"}


async def test_an_expired_approval_rejects_the_call_and_stays_expired() -> None:
    clock = FakeClock()
    post = SendRecorder()
    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=RULES), environment=Environment(clock=clock)) as rt:
        limits = vaka.Limits(approval_ttl=60)
        session = await rt.open(sending_agent(post, call("send", to="Ann"), say("done"), limits=limits), id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_for_decisions(store)
        [id] = await pending_approvals(rt)
        await clock.wait_for_sleeps()
        clock.advance(61)
        events = await task
        clock.jump(-3600)
        assert (await rt.resolve(id, "approve")).type == "approval.expired"
    assert reasons_by_call(events) == {"call_1": "expired"}
    assert post.sent == []


async def test_an_answer_after_the_expiry_is_ignored_even_when_the_clock_is_set_back() -> None:
    clock = FakeClock()
    post = SendRecorder()
    store = MemoryStore()
    who = sending_agent(post, call("send", to="Ann"), say("done"), limits=vaka.Limits(approval_ttl=60))
    async with runtime(
        store, permissions=vaka.Permissions(policy=RULES, ask="suspend"), environment=Environment(clock=clock)
    ) as rt:
        session = await rt.open(who, id="s")
        with pytest.raises(Suspended):
            await session.run("Go.")
        clock.advance(61)
        [id] = await pending_approvals(rt)
        await rt.resolve(id, "approve")
        clock.jump(-3600)
        events = await collect(session.resume())
    assert reasons_by_call(events) == {"call_1": "expired"}


@pytest.mark.parametrize("mode", ["suspend", "deny"])
async def test_an_approval_expires_at_its_time_after_a_restart(mode: Any) -> None:
    clock = FakeClock()
    post = SendRecorder()
    store = MemoryStore()
    who = sending_agent(post, call("send", to="Ann"), say("done"), limits=vaka.Limits(approval_ttl=60))
    async with runtime(
        store, permissions=vaka.Permissions(policy=RULES, ask="suspend"), environment=Environment(clock=clock)
    ) as rt:
        with pytest.raises(Suspended):
            await (await rt.open(who, id="s")).run("Go.")
    clock.advance(61)
    async with runtime(
        store, permissions=vaka.Permissions(policy=RULES, ask=mode), environment=Environment(clock=clock)
    ) as rt:
        events = await collect((await rt.open(who, id="s")).resume())
    assert reasons_by_call(events) == {"call_1": "expired"}


async def test_parallel_calls_each_get_their_own_decision() -> None:
    post, store = SendRecorder(), MemoryStore()
    lines = [calls(*(call("send", to=name) for name in ("Ann", "Bob", "Cid"))), say("done")]
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt:
        session = await rt.open(sending_agent(post, *lines), id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_for_decisions(store, 3)
        ann, bob, cid = await pending_approvals(rt)
        await rt.resolve(cid, "approve")
        await rt.resolve(bob, "reject", message="not Bob")
        await rt.resolve(ann, "approve", edit={"to": "Amy"})
        events = await task
    assert sorted(post.sent) == ["Amy:hello", "Cid:hello"]
    assert reasons_by_call(events) == {"call_1": "ok", "call_2": "denied", "call_3": "ok"}


async def test_an_approval_may_be_resolved_through_another_runtime() -> None:
    post, store = SendRecorder(), MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt, runtime(store.open_handle()) as other:
        session = await rt.open(sending_agent(post, call("send", to="Ann"), say("done")), id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_for_decisions(store)
        [id] = await pending_approvals(other)
        await other.resolve(id, "approve")
        await task
    assert post.sent == ["Ann:hello"]


async def test_a_suspended_turn_names_its_decisions_and_continues_when_they_are_resolved() -> None:
    post, store = SendRecorder(), MemoryStore()
    lines = [calls(call("send", to="Ann"), call("send", to="Bob")), say("done")]
    who = sending_agent(post, *lines)
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        with pytest.raises(Suspended) as caught:
            await (await rt.open(who, id="s")).run("Go.")
    assert not store.hub.shared.claims
    async with runtime(store.open_handle(), permissions=vaka.Permissions(policy=RULES)) as other:
        assert await pending_approvals(other) == list(caught.value.decisions)
        await other.resolve(caught.value.decisions[0], "approve")
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        session = await rt.open(who, id="s")
        with pytest.raises(Suspended) as again:
            await collect(session.resume())
        assert again.value.decisions == caught.value.decisions[1:]
        await rt.resolve(again.value.decisions[0], "reject", message="not Bob")
        events = await collect(session.resume())
        assert await collect(session.resume()) == []
    assert last_body(events).text == "done"
    assert post.sent == ["Ann:hello"]
    check_log(await read_log(store, "s"))


async def test_a_new_prompt_finishes_a_suspended_turn_first() -> None:
    post, store = SendRecorder(), MemoryStore()
    who = sending_agent(post, call("send", to="Ann"), say("one"), say("two"))
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        session = await rt.open(who, id="s")
        with pytest.raises(Suspended) as caught:
            await session.run("One.")
        with pytest.raises(Suspended):
            await session.run("Two.")
        await rt.resolve(caught.value.decisions[0], "approve")
        await collect(session.resume())
    log = await read_log(store, "s")
    check_log(log)
    assert [event.data.text for event in log if event.type == "turn.completed"] == ["one", "two"]  # type: ignore[attr-defined]  # completed


async def test_a_new_prompt_with_interrupt_abandons_a_suspended_turn() -> None:
    post, store = SendRecorder(), MemoryStore()
    who = sending_agent(post, call("send", to="Ann"), say("two"))
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        session = await rt.open(who, id="s")
        with pytest.raises(Suspended):
            await session.run("One.")
        assert (await session.run("Forget it.", on_busy="interrupt")).text == "two"
    log = await read_log(store, "s")
    check_log(log)
    assert reasons_by_call(log) == {"call_1": "interrupted"}


async def test_ask_mode_deny_rejects_a_call_that_needs_approval() -> None:
    post, store = SendRecorder(), MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="deny")) as rt:
        response = await (await rt.open(sending_agent(post, call("send", to="Ann"), say("done")), id="s")).run("Go.")
    assert response.denied == ("call_1",)
    assert "approval.requested" not in event_types(await read_log(store, "s"))


async def test_ask_mode_deny_rejects_an_approval_that_is_still_open() -> None:
    post, store = SendRecorder(), MemoryStore()
    who = sending_agent(post, call("send", to="Ann"), say("done"))
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        with pytest.raises(Suspended):
            await (await rt.open(who, id="s")).run("Go.")
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="deny")) as rt:
        events = await collect((await rt.open(who, id="s")).resume())
    assert reasons_by_call(events) == {"call_1": "denied"}
    assert post.sent == []


@pytest.mark.parametrize("change", ["arguments", "spec"])
async def test_an_approval_is_requested_again_when_the_tool_or_the_arguments_changed(change: str) -> None:
    post, store = SendRecorder(), MemoryStore()

    async def moves(turn: Any, given: Any) -> Any:
        return vaka.ToolCall(id=given.id, name=given.name, arguments={"to": "Zoe"})

    lines = [call("send", to="Ann"), say("done")]
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        with pytest.raises(Suspended) as caught:
            await (await rt.open(sending_agent(post, *lines), id="s")).run("Go.")
        await rt.resolve(caught.value.decisions[0], "approve")
        if change == "spec":
            who = agent(ScriptedModel(*lines), post.send_tool("Send money."))
        else:
            who = sending_agent(post, *lines, middleware=[vaka.Middleware.from_functions("m", before_tool=moves)])
        session = await rt.open(who, id="s")
        with pytest.raises(Suspended) as again:
            await collect(session.resume())
        assert again.value.decisions != caught.value.decisions
        await rt.resolve(again.value.decisions[0], "approve")
        await collect(session.resume())
    assert post.sent == ["Zoe:hello" if change == "arguments" else "Ann:hello"]
    check_log(await read_log(store, "s"))


async def test_a_rule_that_denies_later_wins_over_an_approval() -> None:
    post, store = SendRecorder(), MemoryStore()
    who = sending_agent(post, call("send", to="Ann"), say("done"))
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        with pytest.raises(Suspended) as caught:
            await (await rt.open(who, id="s")).run("Go.")
        await rt.resolve(caught.value.decisions[0], "approve")
    async with runtime(store, permissions=vaka.Permissions(policy=policy_from_rules(deny=["send"]))) as rt:
        events = await collect((await rt.open(who, id="s")).resume())
    assert reasons_by_call(events) == {"call_1": "denied"}
    assert post.sent == []


async def test_a_rule_and_a_middleware_that_ask_each_get_an_approval() -> None:
    post, store = SendRecorder(), MemoryStore()

    async def asks(turn: Any, given: Any) -> Any:
        return Ask("sure?")

    mw = vaka.Middleware.from_functions("careful", before_tool=asks)
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt:
        session = await rt.open(sending_agent(post, call("send", to="Ann"), say("done"), middleware=[mw]), id="s")
        task = asyncio.create_task(collect_turn(session))
        for count in (1, 2):
            await wait_for_decisions(store, count)
            await rt.resolve((await pending_approvals(rt))[0], "approve")
        events = await task
    rules = [event.data.rule for event in events if isinstance(event.data, ApprovalRequested)]
    assert rules == ["send", "middleware:careful"]
    assert post.sent == ["Ann:hello"]


def asking_agent(**options: Any) -> Any:
    @vaka.tool(effect="resume", **options)
    async def wonder(context: ToolContext) -> Any:
        """Ask two things."""
        first = await context.ask("Colour?", options=["red", "blue"])
        return [first, await context.ask("Size?", expires_in=60)]

    return wonder


async def test_the_answers_to_questions_of_a_tool_survive_a_restart() -> None:
    store = MemoryStore()
    who = agent(ScriptedModel(call("wonder"), say("done")), asking_agent())
    for answer in ("red", 7):
        async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
            session = await rt.open(who, id="s")
            with pytest.raises(Suspended) as caught:
                await (collect(session.resume()) if count_events(store, "s", "turn.started") else session.run("Go."))
            await rt.answer(caught.value.decisions[0], answer)
    async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
        events = await collect((await rt.open(who, id="s")).resume())
    log = await read_log(store, "s")
    check_log(log)
    assert results_by_call(events)["call_1"].value == ["red", 7]
    assert event_types(log).count("question.asked") == 2
    assert [event.data.attempt for event in log if event.type == "tool.started"] == [1, 2, 3]  # type: ignore[attr-defined]  # started


async def test_an_expired_question_is_answered_with_none() -> None:
    clock, store = FakeClock(), MemoryStore()
    async with runtime(store, environment=Environment(clock=clock)) as rt:
        session = await rt.open(agent(ScriptedModel(call("wonder"), say("done")), asking_agent()), id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_until(lambda: count_events(store, "s", "question.asked") == 1)
        await rt.answer((await pending_approvals(rt))[0], "red")
        await clock.wait_for_sleeps()
        clock.advance(61)
        events = await task
    assert results_by_call(events)["call_1"].value == ["red", None]


async def test_ask_mode_deny_answers_a_question_with_none() -> None:
    store = MemoryStore()
    who = agent(ScriptedModel(call("wonder"), say("done")), asking_agent())
    async with runtime(store, permissions=vaka.Permissions(ask="deny")) as rt:
        events = await collect_turn(await rt.open(who, id="s"))
    assert results_by_call(events)["call_1"].value == [None, None]


@pytest.mark.parametrize("late", [False, True])
async def test_an_open_question_is_answered_with_none_after_its_expiry_or_in_ask_mode_deny(late: bool) -> None:
    clock, store = FakeClock(), MemoryStore()
    who = agent(ScriptedModel(call("wonder"), say("done")), asking_agent())
    async with runtime(store, permissions=vaka.Permissions(ask="suspend"), environment=Environment(clock=clock)) as rt:
        session = await rt.open(who, id="s")
        with pytest.raises(Suspended) as caught:
            await session.run("Go.")
        await rt.answer(caught.value.decisions[0], "blue")
        with pytest.raises(Suspended):
            await collect(session.resume())
    clock.advance(61 if late else 0)
    async with runtime(
        store, permissions=vaka.Permissions(ask="suspend" if late else "deny"), environment=Environment(clock=clock)
    ) as rt:
        events = await collect((await rt.open(who, id="s")).resume())
    assert results_by_call(events)["call_1"].value == ["blue", None]


async def test_the_time_limit_pauses_while_a_turn_waits_for_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the tool's, nor the turn's, nor that of the parent of the agent that waits."""
    store = MemoryStore()
    limits = vaka.Limits(timeout=60)
    lines = ScriptedModel(agents={"helper": [call("wonder"), say("ok")]})
    helper = vaka.Agent("helper", model=lines, tools=[asking_agent(timeout=60)], limits=limits)
    async with runtime(store) as rt:
        model = ScriptedModel(call("helper", prompt="Go."), say("done"))
        session = await rt.open(agent(model, helper, limits=limits), id="s")
        task = asyncio.create_task(collect_turn(session))
        for count, answer in enumerate(("red", "large"), start=1):
            await wait_until(lambda: count_events(store, "s", "question.asked") == count)  # noqa: B023  # used at once
            advance_loop_time(monkeypatch)
            for _ in range(5):
                await asyncio.sleep(0)
            await rt.answer((await pending_approvals(rt))[0], answer)
        events = await task
    assert (last_body(events).stop, last_body(events).text) == ("end", "done")
    assert results_by_call(events)["call_1.1"].value == ["red", "large"]


async def test_the_timeout_of_a_tool_continues_after_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    @vaka.tool(effect="resume", timeout=60)
    async def slow(context: ToolContext) -> str:
        """Ask, then hang."""
        await context.ask("Well?")
        advance_loop_time(monkeypatch)
        await asyncio.Event().wait()
        return ""

    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(call("slow"), say("done")), slow), id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_until(lambda: count_events(store, "s", "question.asked") == 1)
        advance_loop_time(monkeypatch)
        await rt.answer((await pending_approvals(rt))[0], "yes")
        assert reasons_by_call(await task) == {"call_1": "timeout"}


async def test_a_decision_without_a_request_is_not_found() -> None:
    async with runtime() as rt:
        with pytest.raises(NotFound, match="there is no open decision 'apr_9'"):
            await rt.resolve("apr_9", "approve")
        with pytest.raises(NotFound, match="there is no open decision 'qst_9'"):
            await rt.answer("qst_9", 1)


async def test_an_approval_of_a_child_agent_is_resolved_like_any_other() -> None:
    post, store = SendRecorder(), MemoryStore()
    lines = ScriptedModel(agents={"helper": [call("send", to="Ann"), say("helped")]})
    helper = vaka.Agent("helper", model=lines, tools=[post.send_tool()])
    who = agent(ScriptedModel(call("helper", prompt="Go."), say("done")), helper)
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        session = await rt.open(who, id="s")
        with pytest.raises(Suspended) as caught:
            await session.run("Go.")
        await rt.resolve(caught.value.decisions[0], "approve")
        events = await collect(session.resume())
    log = await read_log(store, "s")
    check_log(log)
    assert post.sent == ["Ann:hello"]
    assert last_body(events).text == "done"
    assert event_types(log).count("subagent.started") == event_types(log).count("subagent.completed") == 1
    assert reasons_by_call(log) == {"call_1.1": "ok", "call_1": "ok"}
