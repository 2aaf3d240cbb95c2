"""Rejections: with a message the turn continues, without a message it ends."""

import asyncio
from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    collect_turn,
    count_events,
    event_types,
    last_body,
    log_writer,
    read_log,
    reasons_by_call,
    results_by_call,
    runtime,
    wait_until,
)
from vaka.core.ports.tool import ToolContext
from vaka.core.session.hash_chain import seal
from vaka.core.types.control import ApprovalResolved
from vaka.core.types.errors import NotFound, Rejected, Suspended
from vaka.core.types.event import Event
from vaka.core.types.progress import TurnInterrupted
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say

RULES = LayeredPolicy([Layer(name="flag", ask=("send",))])
NOTE = "a person refused send and said nothing more"
NOT_RUN = "a person refused another call and said nothing more, so the turn ended and this call was not run"


class SendRecorder:
    """A tool people are asked about, one they are not, and what they did."""

    def __init__(self) -> None:
        self.sent: list[str] = []

        @vaka.tool
        async def send(to: str) -> str:
            """Send a letter."""
            self.sent.append(to)
            return f"sent to {to}"

        @vaka.tool
        async def post(to: str) -> str:
            """Send a letter without an approval."""
            self.sent.append(to)
            return f"posted to {to}"

        self.tools = (send, post)

    def sending_agent(self, *lines: Any, **more: Any) -> vaka.Agent:
        return agent(ScriptedModel(*lines), *self.tools, **more)


async def wait_for_approvals(rt: Any, store: MemoryStore, count: int) -> list[str]:
    await wait_until(lambda: count_events(store, "s", "approval.requested") == count)
    return [row.id for row in await rt.decisions()]


async def test_a_rejection_without_a_message_ends_the_turn_and_the_next_prompt_continues() -> None:
    post, store = SendRecorder(), MemoryStore()
    who = post.sending_agent(call("send", to="Ann"), say("Then not."))
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt:
        session = await rt.open(who, id="s")
        task = asyncio.create_task(collect_turn(session))
        [id] = await wait_for_approvals(rt, store, 1)
        await rt.resolve(id, "reject", message=" \n", by="me")
        end = last_body(await task)
        assert isinstance(end, TurnInterrupted)
        assert (end.note, end.code) == (NOTE, "rejected")
        assert await rt.decisions() == []
        assert (await session.run("Leave it.")).text == "Then not."
    log = await read_log(store, "s")
    check_log(log)
    assert post.sent == []
    assert results_by_call(log)["call_1"].text == "a person refused this call"
    assert event_types(log)[event_types(log).index("tool.failed") :][:3] == [
        "tool.failed",
        "step.completed",
        "turn.interrupted",
    ]


async def test_run_raises_rejected_after_a_rejection_without_a_message() -> None:
    post, store = SendRecorder(), MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt:
        session = await rt.open(post.sending_agent(call("send", to="Ann"), say("never")), id="s")
        task = asyncio.create_task(session.run("Go."))
        [id] = await wait_for_approvals(rt, store, 1)
        await rt.resolve(id, "reject")
        with pytest.raises(Rejected, match=NOTE) as caught:
            await task
    assert (caught.value.code, caught.value.exit_code) == ("rejected", 5)
    assert caught.value.result.denied == ("call_1",)


async def test_a_rejection_with_a_message_is_a_result_and_the_turn_continues() -> None:
    post, store = SendRecorder(), MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt:
        task = asyncio.create_task(
            collect_turn(await rt.open(post.sending_agent(call("send", to="Ann"), say("Fine.")), id="s"))
        )
        [id] = await wait_for_approvals(rt, store, 1)
        await rt.resolve(id, "reject", message="not Ann")
        assert last_body(await task).text == "Fine."


async def test_approved_calls_run_and_pending_approvals_are_withdrawn_when_a_rejection_ends_the_turn() -> None:
    """Of one message: a call that needs no approval, one with a yes, one with a no, one without an answer."""
    post, store = SendRecorder(), MemoryStore()
    four = calls(call("post", to="Zoe"), *(call("send", to=name) for name in ("Ann", "Bob", "Cid")))
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt:
        task = asyncio.create_task(collect_turn(await rt.open(post.sending_agent(four, say("never")), id="s")))
        ann, bob, cid = await wait_for_approvals(rt, store, 3)
        await rt.resolve(ann, "approve")
        await rt.resolve(bob, "reject")
        events = await task
        with pytest.raises(NotFound):
            await rt.resolve(cid, "approve")
    check_log(await read_log(store, "s"))
    assert sorted(post.sent) == ["Ann", "Zoe"]
    assert reasons_by_call(events) == {"call_1": "ok", "call_2": "ok", "call_3": "denied", "call_4": "interrupted"}
    assert results_by_call(events)["call_4"].text == NOT_RUN
    assert last_body(events).code == "rejected"


async def test_decisions_that_are_found_on_resume_have_the_same_effect() -> None:
    post, store = SendRecorder(), MemoryStore()
    who = post.sending_agent(calls(*(call("send", to=name) for name in ("Ann", "Bob", "Cid"))), say("never"))
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        session = await rt.open(who, id="s")
        with pytest.raises(Suspended) as caught:
            await session.run("Go.")
        ann, bob, _ = caught.value.decisions
        await rt.resolve(bob, "reject")
        await rt.resolve(ann, "approve")
        events = await collect(session.resume())
        assert await collect(session.resume()) == []
    check_log(await read_log(store, "s"))
    assert post.sent == ["Ann"]
    assert reasons_by_call(events) == {"call_1": "ok", "call_2": "denied", "call_3": "interrupted"}
    assert last_body(events).code == "rejected"


@pytest.mark.parametrize("how", ["wait", "suspend"])
async def test_a_rejection_in_a_child_ends_neither_the_child_nor_the_turn(how: Any) -> None:
    post, store = SendRecorder(), MemoryStore()
    lines = ScriptedModel(agents={"helper": [call("send", to="Ann"), say("I may not.")]})
    helper = vaka.Agent("helper", model=lines, tools=list(post.tools))
    who = agent(ScriptedModel(call("helper", prompt="Go."), say("Then not.")), helper)
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask=how)) as rt:
        session = await rt.open(who, id="s")
        task = asyncio.create_task(collect_turn(session))
        [id] = await wait_for_approvals(rt, store, 1)
        if how == "suspend":
            with pytest.raises(Suspended):
                await task
        await rt.resolve(id, "reject")
        events = await (task if how == "wait" else collect(session.resume()))
    assert last_body(events).text == "Then not."
    assert "I may not." in results_by_call(events)["call_1"].text
    assert post.sent == []


@pytest.mark.parametrize("how", ["wait", "suspend"])
async def test_a_rejection_for_the_root_agent_withdraws_approvals_of_a_child(how: Any) -> None:
    """The child gets a result for the call that was not run, and completes; then the turn ends."""
    post, store = SendRecorder(), MemoryStore()
    lines = ScriptedModel(agents={"helper": [call("send", to="Ann"), call("send", to="Amy"), say("I could not.")]})
    helper = vaka.Agent("helper", model=lines, tools=list(post.tools))
    both = calls(call("helper", prompt="Go."), call("send", to="Bob"))
    who = agent(ScriptedModel(both, say("never")), helper, *post.tools)
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask=how)) as rt:
        session = await rt.open(who, id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_for_approvals(rt, store, 2)
        if how == "suspend":
            with pytest.raises(Suspended):
                await task
        [bob] = [row.id for row in await rt.decisions() if not row.event.path]
        await rt.resolve(bob, "reject")
        events = await (task if how == "wait" else collect(session.resume()))
    check_log(await read_log(store, "s"))
    assert post.sent == []
    found = results_by_call(events)
    assert (found["call_1.1"].text, found["call_1.2"].text) == (NOT_RUN, NOT_RUN)
    assert "I could not." in found["call_1"].text
    assert last_body(events).code == "rejected"
    assert event_types(await read_log(store, "s")).count("approval.requested") == 2


@pytest.mark.parametrize("how", ["wait", "suspend"])
async def test_a_rejection_closes_the_open_question_of_a_tool(how: Any) -> None:
    post, store = SendRecorder(), MemoryStore()

    @vaka.tool(effect="resume")
    async def wonder(context: ToolContext) -> str:
        """Ask a person, and once more."""
        return f"{await context.ask('Which?')}, {await context.ask('And then?')}"

    both = calls(call("wonder"), call("send", to="Bob"))
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask=how)) as rt:
        session = await rt.open(agent(ScriptedModel(both, say("never")), wonder, *post.tools), id="s")
        task = asyncio.create_task(collect_turn(session))
        await wait_until(lambda: count_events(store, "s", "question.asked") == 1)
        [bob] = [id for id in await wait_for_approvals(rt, store, 1) if id.startswith("apr")]
        if how == "suspend":
            with pytest.raises(Suspended):
                await task
        await rt.resolve(bob, "reject")
        events = await (task if how == "wait" else collect(session.resume()))
        assert await rt.decisions() == []
    log = await read_log(store, "s")
    check_log(log)
    assert results_by_call(log)["call_1"].text == "None, None"
    assert (last_body(events).code, event_types(log).count("question.asked")) == ("rejected", 1)


async def test_a_rejection_closes_the_open_question_of_a_script() -> None:
    post, store = SendRecorder(), MemoryStore()
    text = 'function invoke(ctx) ctx.output("Which?") return ctx.input() end'
    tools = (vaka.LuauTool(text, name="wonder", description="Ask a person."), *post.tools)
    both = calls(call("wonder"), call("send", to="Bob"))
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt:
        task = asyncio.create_task(
            collect_turn(await rt.open(agent(ScriptedModel(both, say("never")), *tools), id="s"))
        )
        await wait_until(lambda: count_events(store, "s", "question.asked") == 1)
        [bob] = [id for id in await wait_for_approvals(rt, store, 1) if id.startswith("apr")]
        await rt.resolve(bob, "reject")
        assert last_body(await task).code == "rejected"
    assert "input: the question was not answered" in results_by_call(await read_log(store, "s"))["call_1"].text


async def test_a_turn_that_a_rejection_ended_does_not_take_steered_inputs() -> None:
    post, store = SendRecorder(), MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=RULES)) as rt:
        session = await rt.open(post.sending_agent(call("send", to="Ann"), say("Steered.")), id="s")
        task = asyncio.create_task(collect_turn(session))
        [id] = await wait_for_approvals(rt, store, 1)
        steer = asyncio.create_task(collect(session.stream("To Bob.", on_busy="steer")))
        await wait_until(lambda: count_events(store, "s", "input.added") == 2)
        await rt.resolve(id, "reject")
        assert last_body(await task).code == "rejected"
        assert last_body(await steer).text == "Steered."
    assert event_types(await read_log(store, "s")).count("turn.started") == 2


async def test_a_call_denied_by_the_ask_mode_does_not_end_the_turn() -> None:
    post, store = SendRecorder(), MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="deny")) as rt:
        assert (
            await (await rt.open(post.sending_agent(call("send", to="Ann"), say("No.")), id="s")).run("Go.")
        ).text == "No."


async def test_a_turn_of_an_older_log_that_continued_after_a_rejection_is_resumed() -> None:
    post = SendRecorder()
    store = MemoryStore()
    old = MemoryStore()
    lines = call("send", to="Ann"), call("send", to="Bob"), say("Sent to Bob.")
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        session = await rt.open(post.sending_agent(*lines), id="s")
        with pytest.raises(Suspended) as caught:
            await session.run("Go.")
        await rt.resolve(caught.value.decisions[0], "reject", message="no")
        with pytest.raises(Suspended) as caught:
            await collect(session.resume())
    plain: list[Event] = []
    for event in await read_log(store, "s"):
        body = event.data
        body = msgspec.structs.replace(body, message="") if isinstance(body, ApprovalResolved) else body
        prev = plain[-1].hash if plain else ""
        plain.append(seal(msgspec.structs.replace(event, data=body), epoch=event.epoch, seq=event.seq, prev=prev))
    await log_writer(old, "s", plain)()
    async with runtime(old, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        session = await rt.open(post.sending_agent(*lines), id="s")
        await rt.resolve(caught.value.decisions[0], "approve")
        assert last_body(await collect(session.resume())).text == "Sent to Bob."
    assert post.sent == ["Bob"]
