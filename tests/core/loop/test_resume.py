"""A process may be killed at any point; another one finishes the turn from the log."""

import asyncio
from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    CommitCounter,
    agent,
    check_log,
    collect,
    collect_turn,
    count_commits,
    count_events,
    event_types,
    last_body,
    log_writer,
    read_log,
    reasons_by_call,
    results_by_call,
    runtime,
    wait_until,
    without_ids,
)
from vaka.core.ports.tool import ToolContext
from vaka.core.session.hash_chain import seal_chain
from vaka.core.types.control import InputAdded, QuestionAsked
from vaka.core.types.errors import Suspended
from vaka.core.types.ids import CallKey
from vaka.core.types.message import Text
from vaka.core.types.progress import ToolStarted
from vaka.runtime.options import Environment, policy_from_rules
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.crashes import fingerprint
from vaka.testing.models import ScriptedModel, call, calls, say


class EffectWorld:
    """Tools of every effect, a child and a question; and what was done."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.put: list[str] = []

    def agent(self) -> vaka.Agent:
        @vaka.tool(effect="read")
        async def look(at: str) -> str:
            """Look."""
            return f"seen {at}"

        @vaka.tool(effect="idempotent")
        async def put(context: ToolContext, value: str) -> str:
            """Put."""
            self.put.append(context.key)
            return f"put {value}"

        @vaka.tool
        async def pay(context: ToolContext, amount: int) -> str:
            """Pay."""
            self.paid.append(context.key)
            return f"paid {amount}"

        @vaka.tool
        async def sign() -> str:
            """Sign, if a person lets you."""
            self.paid.append("sign")
            return "signed"

        @vaka.tool(effect="resume")
        async def wonder(context: ToolContext) -> str:
            """Ask a person."""
            return f"heard {await context.ask('Which?')}"

        cost = {"usage": {"input": 3, "output": 2}}
        model = ScriptedModel(
            call("look", at="a") | cost,
            calls(call("put", value="x"), call("look", at="b"), call("pay", amount=1), call("nothing")) | cost,
            calls(call("sign"), call("helper", prompt="Help."), call("wonder")) | cost,
            say("all done") | cost,
            agents={"helper": [calls(call("put", value="y"), call("pay", amount=2)) | cost, say("helped") | cost]},
        )
        helper = vaka.Agent("helper", model=model, tools=[put, pay])
        return agent(model, look, put, pay, sign, wonder, helper)


RULES = policy_from_rules(ask=["sign"])
ONCE = {"pay", "sign"}


async def decide(rt: Any, *, outcome: Any = None) -> None:
    for row in await rt.decisions():
        if row.event.type == "approval.requested":
            await rt.resolve(row.id, "approve")
        elif row.event.data.kind == "outcome":
            await rt.answer(row.id, outcome or "leave it")
        else:
            await rt.answer(row.id, "this one")


async def run_to_end(rt: Any, session: Any, begin: Any, **more: Any) -> None:
    """Go on until the turn has ended, deciding whatever is asked."""
    while True:
        try:
            await collect(begin)
        except Suspended:
            await decide(rt, **more)
            begin = session.resume()
        else:
            return


async def run_whole_turn() -> tuple[list[Any], list[list[str]], Any]:
    """Record the run without interruptions."""
    store, clock = MemoryStore(), FakeClock(auto=True)
    counting = count_commits(store)
    async with runtime(
        store, permissions=vaka.Permissions(policy=RULES, ask="suspend"), environment=Environment(clock=clock)
    ) as rt:
        session = await rt.open(EffectWorld().agent(), id="s")
        await run_to_end(rt, session, session.stream("Go."))
        messages = without_ids(await session.messages())
    log = await read_log(store, "s")
    check_log(log)
    assert last_body(log).text == "all done"
    return log, counting.commits, messages


def started_once_calls(log: list[Any]) -> set[str]:
    """The ``once`` calls a log shows as begun but not ended."""
    ended = results_by_call(log)
    started = [e.data for e in log if isinstance(e.data, ToolStarted) and e.data.effect == "once"]
    return {body.call.id for body in started if body.call.id not in ended}


async def resume_from(prefix: list[Any], **more: Any) -> tuple[EffectWorld, list[Any], Any]:
    world, store = EffectWorld(), MemoryStore()
    await log_writer(store, "s", prefix)()
    before = asyncio.all_tasks()
    async with runtime(
        store,
        permissions=vaka.Permissions(policy=RULES, ask="suspend"),
        environment=Environment(clock=FakeClock(auto=True)),
    ) as rt:
        session = await rt.open(world.agent(), id="s")
        await run_to_end(rt, session, session.resume(), **more)
        messages = without_ids(await session.messages())
    assert asyncio.all_tasks() == before
    return world, await read_log(store, "s"), messages


async def test_a_run_killed_after_any_event_can_be_finished() -> None:
    log, _, _ = await run_whole_turn()
    for cut in range(3, len(log)):
        prefix = log[:cut]
        world, after, _ = await resume_from(prefix)
        check_log(after)
        assert last_body(after).type == "turn.completed", cut
        lost = started_once_calls(prefix)
        paid = [e.data.call.id for e in prefix if isinstance(e.data, ToolStarted) and e.data.call.name in ONCE]
        again = {key.partition("/")[2] for key in world.paid if "/" in key} & set(paid)
        assert not again, f"{again} was paid twice after event {cut}"
        assert {call for call, why in reasons_by_call(after).items() if why == "outcome_unknown"} == lost
        assert len(world.put) == len(set(world.put))


async def test_a_run_killed_after_any_commit_ends_the_same() -> None:
    log, commits, messages = await run_whole_turn()
    cut = 0
    for commit in commits[:-1]:
        cut += len(commit)
        while cut < len(log) and log[cut].type in {"approval.resolved", "question.answered"}:
            cut += 1  # offered by someone else
        prefix = log[:cut]
        _, after, found = await resume_from(prefix)
        lost = started_once_calls(prefix)
        assert lost or found == messages, f"after event {cut}, {prefix[-1].type}"
        assert fingerprint(after, without=lost) == fingerprint(log, without=lost), f"after event {cut}"


@pytest.mark.parametrize("outcome", ["happened", "did not happen", "leave it", "what?"])
async def test_a_lost_once_call_is_asked_about_after_its_deadline(outcome: str) -> None:
    store = MemoryStore()
    clock = FakeClock()
    paid = list[str]()

    @vaka.tool(timeout=30)
    async def pay(context: ToolContext, amount: int) -> str:
        """Pay."""
        paid.append(context.key)
        return "paid"

    who = agent(ScriptedModel(call("pay", amount=1), say("done")), pay)
    async with runtime(store, environment=Environment(clock=clock)) as rt:
        await collect_turn(await rt.open(who, id="s"))
    log = await read_log(store, "s")
    again, paid[:] = MemoryStore(), []
    await log_writer(again, "s", log[: event_types(log).index("tool.started") + 1])()
    async with runtime(again, environment=Environment(clock=clock)) as rt:
        session = await rt.open(who, id="s")
        task = asyncio.create_task(collect(session.resume()))
        await clock.wait_for_sleeps()
        assert count_events(again, "s", "question.asked") == 0
        clock.advance(31)
        await wait_until(lambda: count_events(again, "s", "question.asked") == 1)
        [row] = await rt.decisions()
        assert isinstance(row.event.data, QuestionAsked)
        assert row.event.data.text == (
            "The process stopped while this call was running. Did pay {\"amount\":1} happen? Answer 'happened', "
            "'did not happen' to run it as a new call, or 'leave it'. An answer with its result is "
            '{"outcome": "happened", "result": …}.'
        )
        answer: Any = {"outcome": outcome, "result": "receipt 7"} if outcome == "happened" else {"outcome": outcome}
        await rt.answer(row.id, answer)
        await task
    after = await read_log(again, "s")
    check_log(after)
    found = {call: (result.reason, result.text) for call, result in results_by_call(after).items()}
    text = "The process stopped while this call was running. It had begun: its outcome is unknown"
    if outcome == "happened":
        assert found == {"call_1": ("", "receipt 7")}
    elif outcome == "did not happen":
        assert found["call_1"][1].endswith("A person says it did not happen; it runs again as call_2.")
        assert found["call_2"] == ("", "paid")
        assert [key.rpartition("/")[0] for key in paid] == ["s/call_2"]
    else:
        assert found == {"call_1": ("outcome_unknown", f"{text}, verify before repeating it.")}


@pytest.mark.parametrize(
    ("answer", "result"),
    [("happened", ""), (" happened\n", ""), ('{"outcome": "happened", "result": "receipt 7"}', "receipt 7")],
)
async def test_the_outcome_of_a_lost_call_may_be_plain_text(answer: str, result: str) -> None:
    log, _, _ = await run_whole_turn()
    cut = next(n for n, e in enumerate(log, 1) if isinstance(e.data, ToolStarted) and e.data.call.name == "pay")
    _, after, _ = await resume_from(log[:cut], outcome=answer)
    assert results_by_call(after)["call_4"].text == result


@pytest.mark.parametrize("answer", ["[1]", "7", "{", "yes", "[" * 5000])
async def test_a_text_that_is_no_outcome_leaves_a_lost_call(answer: str) -> None:
    log, _, _ = await run_whole_turn()
    cut = next(n for n, e in enumerate(log, 1) if isinstance(e.data, ToolStarted) and e.data.call.name == "pay")
    _, after, _ = await resume_from(log[:cut], outcome=answer)
    assert results_by_call(after)["call_4"].reason == "outcome_unknown"


class SlowEvents(CommitCounter):
    """An event store whose writes take some rounds of the event loop, so that other appends come meanwhile."""

    async def append(self, *given: Any, **more: Any) -> int:
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().append(*given, **more)


async def test_two_lost_calls_that_did_not_happen_run_as_two_new_calls() -> None:
    @vaka.tool(timeout=None)
    async def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    store, again = MemoryStore(), MemoryStore()
    who = agent(ScriptedModel(calls(call("pay", amount=1), call("pay", amount=2)), say("done")), pay)
    async with runtime(store) as rt:
        await collect_turn(await rt.open(who, id="s"))
    log = await read_log(store, "s")
    await log_writer(again, "s", log[: event_types(log).index("tool.started") + 2])()
    slow = again.events = SlowEvents(again.events)
    async with runtime(again, permissions=vaka.Permissions(ask="suspend")) as rt:
        session = await rt.open(who, id="s")
        await run_to_end(rt, session, session.resume(), outcome="did not happen")
    restarts = [commit for commit in slow.commits if "tool.called" in commit]
    assert restarts[0] == ["tool.failed", "tool.called"], "the second call restarts while the first is written"
    after = await read_log(again, "s")
    check_log(after)
    assert {c: r.text for c, r in results_by_call(after).items() if not r.failed} == {
        "call_3": "paid 1",
        "call_4": "paid 2",
    }
    assert event_types(after).count("tool.called") == 4


async def test_a_repeated_call_is_asked_about_like_a_new_one() -> None:
    @vaka.tool(timeout=None)
    async def sign() -> str:
        """Sign."""
        return "signed"

    store, again = MemoryStore(), MemoryStore()
    who = agent(ScriptedModel(call("sign"), say("done")), sign)
    async with runtime(store, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        session = await rt.open(who, id="s")
        await run_to_end(rt, session, session.stream("Go."))
    log = await read_log(store, "s")
    await log_writer(again, "s", log[: event_types(log).index("tool.started") + 1])()
    async with runtime(again, permissions=vaka.Permissions(policy=RULES, ask="suspend")) as rt:
        session = await rt.open(who, id="s")
        await run_to_end(rt, session, session.resume(), outcome="did not happen")
    after = await read_log(again, "s")
    check_log(after)
    assert event_types(after).count("approval.requested") == 2
    assert reasons_by_call(after) == {"call_1": "outcome_unknown", "call_2": "ok"}


@pytest.mark.parametrize("asked", [False, True])
async def test_a_lost_call_is_sealed_where_no_person_can_be_asked(asked: bool) -> None:
    log, _, _ = await run_whole_turn()
    cut = next(n for n, e in enumerate(log, 1) if isinstance(e.data, ToolStarted) and e.data.call.name == "pay")
    world, store = EffectWorld(), MemoryStore()
    await log_writer(store, "s", log[:cut])()
    if asked:
        async with runtime(
            store,
            permissions=vaka.Permissions(policy=RULES, ask="suspend"),
            environment=Environment(clock=FakeClock(auto=True)),
        ) as rt:
            with pytest.raises(Suspended):
                await collect((await rt.open(world.agent(), id="s")).resume())
    async with runtime(
        store,
        permissions=vaka.Permissions(policy=RULES, ask="deny"),
        environment=Environment(clock=FakeClock(auto=True)),
    ) as rt:
        events = await collect((await rt.open(world.agent(), id="s")).resume())
    assert results_by_call(await read_log(store, "s"))["call_4"].reason == "outcome_unknown"
    assert last_body(events).text == "all done"
    assert not [key for key in world.paid if key.startswith("s/call_4")]


async def test_a_clock_set_back_does_not_extend_the_wait_beyond_the_timeout_of_the_tool() -> None:
    log, _, _ = await run_whole_turn()
    cut = next(n for n, e in enumerate(log, 1) if isinstance(e.data, ToolStarted) and e.data.call.name == "pay")
    clock, store = FakeClock(), MemoryStore()
    clock.jump(-365 * 24 * 3600)
    await log_writer(store, "s", log[:cut])()
    async with runtime(
        store, permissions=vaka.Permissions(policy=RULES, ask="deny"), environment=Environment(clock=clock)
    ) as rt:
        task = asyncio.create_task(collect((await rt.open(EffectWorld().agent(), id="s")).resume()))
        await clock.wait_for_sleeps()
        clock.advance(60)
        assert last_body(await task).text == "all done"


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_repeatable_call_runs_again_with_its_key_and_the_next_attempt(effect: Any) -> None:
    seen: list[tuple[str, int]] = []

    @vaka.tool(effect=effect)
    async def put(context: ToolContext) -> str:
        """Put."""
        seen.append((context.key, context.attempt))
        return "put"

    who = agent(ScriptedModel(call("put"), say("done")), put)
    store = MemoryStore()
    async with runtime(store) as rt:
        await collect_turn(await rt.open(who, id="s"))
    for attempt in (1, 2):
        log = await read_log(store, "s")
        cut = [n for n, event in enumerate(log, 1) if event.type == "tool.started"][attempt - 1]
        store = MemoryStore()
        await log_writer(store, "s", log[:cut])()
        async with runtime(store) as rt:
            await collect((await rt.open(who, id="s")).resume())
    key = seen[0][0]
    assert key.startswith("s/call_1/key_")
    assert seen == [(key, 1), (key, 2), (key, 3)]


async def test_a_call_that_an_earlier_version_started_keeps_its_key_without_a_random_part() -> None:
    seen: list[str] = []

    @vaka.tool(effect="idempotent")
    async def put(context: ToolContext) -> str:
        """Put."""
        seen.append(context.key)
        return "put"

    who, store = agent(ScriptedModel(call("put"), call("put"), say("done")), put), MemoryStore()
    async with runtime(store) as rt:
        await collect_turn(await rt.open(who, id="s"))
    log = await read_log(store, "s")
    cut = event_types(log).index("tool.started")
    started = log[cut].data
    assert isinstance(started, ToolStarted)
    old = msgspec.structs.replace(started, key=CallKey("s/call_1"))
    resealed = seal_chain(log[cut].session, log[cut - 1], [(log[cut], old)], log[cut].ts)
    again = MemoryStore()
    seen.clear()
    await log_writer(again, "s", [*log[:cut], *resealed])()
    async with runtime(again) as rt:
        await collect((await rt.open(who, id="s")).resume())
    assert seen[0] == "s/call_1"
    assert seen[1].startswith("s/call_2/key_")


async def test_a_tool_whose_effect_became_once_is_not_run_again() -> None:
    ran: list[str] = []

    def tool(effect: Any) -> Any:
        async def put() -> str:
            """Put."""
            ran.append(effect)
            return "put"

        return vaka.tool(put, effect=effect)

    lines = [call("put"), say("done")]
    store, again = MemoryStore(), MemoryStore()
    async with runtime(store) as rt:
        await collect_turn(await rt.open(agent(ScriptedModel(*lines), tool("read")), id="s"))
    log = await read_log(store, "s")
    await log_writer(again, "s", log[: event_types(log).index("tool.started") + 1])()
    async with runtime(
        again, permissions=vaka.Permissions(ask="deny"), environment=Environment(clock=FakeClock(auto=True))
    ) as rt:
        await collect((await rt.open(agent(ScriptedModel(*lines), tool("once")), id="s")).resume())
    assert ran == ["read"]
    assert reasons_by_call(await read_log(again, "s")) == {"call_1": "outcome_unknown"}


async def test_a_call_of_a_removed_tool_gets_an_unknown_tool_result() -> None:
    log, _, _ = await run_whole_turn()
    cut = event_types(log).index("tool.started") + 1
    store = MemoryStore()
    await log_writer(store, "s", log[:cut])()
    async with runtime(store) as rt:
        events = await collect((await rt.open(agent(ScriptedModel(say("-"), say("bare"))), id="s")).resume())
    assert reasons_by_call(events) == {"call_1": "unknown_tool"}


async def test_unparsed_arguments_are_parsed_when_the_tool_is_available() -> None:
    """It then runs with what the model wrote, not with nothing."""
    got: list[str] = []

    @vaka.tool(effect="read")
    async def later(at: str = "nothing") -> str:
        """Come later."""
        got.append(at)
        return at

    store, again = MemoryStore(), MemoryStore()
    async with runtime(store) as rt:
        await collect_turn(await rt.open(agent(ScriptedModel(call("later", at="sea"), say("done"))), id="s"))
    log = await read_log(store, "s")
    await log_writer(again, "s", log[: event_types(log).index("tool.called") + 1])()
    async with runtime(again) as rt:
        await collect((await rt.open(agent(ScriptedModel(say("-"), say("done")), later), id="s")).resume())
    assert got == ["sea"]


async def test_a_steered_input_survives_a_crash() -> None:
    log, _, _ = await run_whole_turn()
    store, world = MemoryStore(), EffectWorld()
    await log_writer(store, "s", log[: event_types(log).index("tool.started") + 1])()
    async with runtime(
        store,
        permissions=vaka.Permissions(policy=RULES, ask="suspend"),
        environment=Environment(clock=FakeClock(auto=True)),
    ) as rt:
        session = await rt.open(world.agent(), id="s")
        await rt._drivers.offer(session.id, InputAdded(key="k", content=(Text(text="Also."),), policy="steer"), "k")
        await run_to_end(rt, session, session.resume())
    after = await read_log(store, "s")
    check_log(after)
    assert [event.data.inputs for event in after if event.type == "step.started"].count(("k",)) == 1  # type: ignore[attr-defined]  # steps


async def test_resume_without_an_unfinished_turn_yields_nothing() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("done"))), id="s")
        await session.run("Go.")
        assert await collect(session.resume()) == []
        with pytest.raises(vaka.VakaError, match="there is no session 'other'"):
            await collect((await rt.open(session.agent, id="other")).resume())
