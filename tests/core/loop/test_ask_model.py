"""A tool asks a model: the log has the call and its usage, and no budget is overdrawn."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import accumulate
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    count_commits,
    event_types,
    log_writer,
    read_log,
    results_by_call,
    run_with_limits,
    runtime,
)
from vaka.core.ports.model import Estimate, Model, NoticeChunk, Prompt, ReasoningChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import ModelError
from vaka.core.types.event import Event
from vaka.core.types.message import Text, Usage, UserMessage, as_content
from vaka.core.types.monitor import Logged, ModelFailed, UsageRecorded
from vaka.middleware import ToolRetry
from vaka.models.wrappers.resilience import RetryingModel
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import FunctionModel, ScriptedModel, call, calls, fail, say

CHEAP_USAGE = {"usage": {"input": 10, "output": 5, "cost": 0.01}}
EXPENSIVE_USAGE = {"usage": {"input": 100, "output": 50, "cost": 0.3}}


def question_prompt(text: str = "What?", agent: str = "") -> Prompt:
    return Prompt(messages=(UserMessage(content=as_content(text)),), agent=agent)


def asking_tool(model: Model, who: str = "") -> Tool:
    @vaka.tool(effect="read")
    async def think(context: ToolContext, about: str = "it") -> str:
        """Think."""
        return await context.ask_model(model, question_prompt(about, who))

    return think


class PricedModel(ScriptedModel):
    """Says beforehand that a prompt has 100 tokens and costs 10 cents, and each token of an answer a tenth of one."""

    def estimate(self, prompt: Prompt) -> Estimate:
        return Estimate(usage=Usage(input=100, cost=0.1), output_price=0.001, max_tokens=200)


def usage_events(log: list[Event]) -> list[UsageRecorded]:
    return [event.data for event in log if isinstance(event.data, UsageRecorded)]


def total_usage(log: list[Event]) -> Usage:
    return sum([body.usage for body in usage_events(log)], Usage())


async def test_usage_of_a_tool_is_recorded_with_its_call_and_counts_for_turn_and_session() -> None:
    other = ScriptedModel(agents={"think": [say("Four.") | CHEAP_USAGE]}, name="other")
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(
            agent(ScriptedModel(call("think") | EXPENSIVE_USAGE, say("done") | EXPENSIVE_USAGE), asking_tool(other)),
            id="s",
        )
        response = await session.run("Go.")
        stats = await rt.stats("s")
    log = await read_log(store, "s")
    assert results_by_call(log)["call_1"].text == "Four."
    mine = UsageRecorded(
        model="other",
        usage=Usage(input=10, output=5, cost=0.01),
        agent="think",
        call="call_1",  # type: ignore[arg-type]  # an id
        number=1,
    )
    assert [body for body in usage_events(log) if body.call] == [mine]
    assert response.usage == total_usage(log) == stats.usage == Usage(input=210, output=105, cost=0.61)
    assert {name: one.request_count for name, one in stats.by_model.items()} == {"scripted": 2, "other": 1}
    assert {name: one.request_count for name, one in stats.by_agent.items()} == {"assistant": 2, "think": 1}
    assert other.prompts[0].path == ("think",)


async def test_concurrent_model_calls_have_distinct_numbers_and_later_ones_continue_them() -> None:
    other = ScriptedModel(agents={"helper": [say(str(number)) for number in range(1, 5)]})
    both = calls(call("think", about="a"), call("think", about="b"))
    _, log = await run_with_limits(ScriptedModel(both, both, say("done")), asking_tool(other, "helper"))
    assert sorted(result.text for result in results_by_call(log).values()) == ["1", "2", "3", "4"]
    assert sorted(body.number for body in usage_events(log) if body.call) == [1, 2, 3, 4]


async def test_every_failed_attempt_is_recorded_and_the_last_answer_is_returned() -> None:
    other = RetryingModel(
        ScriptedModel(agents={"think": [fail(529, "busy"), say("Four.")]}), clock=FakeClock(auto=True)
    )
    _, log = await run_with_limits(ScriptedModel(call("think"), say("done")), asking_tool(other))
    assert results_by_call(log)["call_1"].text == "Four."
    failed = [event.data for event in log if isinstance(event.data, ModelFailed)]
    assert [(body.call, body.agent, body.number, body.retried) for body in failed] == [("call_1", "think", 1, True)]
    assert [body.number for body in usage_events(log) if body.call] == [2]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"chunks": ["a", "b"], "cut_after": 1}, "without its end marker"),
        (say("I won't.", stop="refusal"), "refused to answer"),
        (say("Half of", stop="length"), "reached its length limit"),
        (fail(400, "no such thing"), "no such thing"),
    ],
)
async def test_an_incomplete_answer_is_an_error(line: Any, why: str) -> None:
    caught: list[ModelError] = []
    other = ScriptedModel(agents={"think": [line]})

    @vaka.tool(effect="read")
    async def think(context: ToolContext) -> str:
        """Think."""
        try:
            return await context.ask_model(other, question_prompt())
        except ModelError as error:
            caught.append(error)
            return "no answer"

    response, log = await run_with_limits(ScriptedModel(call("think"), say("done")), think)
    assert (response.text, results_by_call(log)["call_1"].text) == ("done", "no answer")
    assert why in str(caught[0])
    failed = [event.data for event in log if isinstance(event.data, ModelFailed)]
    assert [(body.code, body.call, body.retried) for body in failed] == [(caught[0].code, "call_1", False)]


async def test_notices_of_the_model_are_written_to_the_log() -> None:
    async def answer(prompt: Prompt) -> list[Any]:
        return [NoticeChunk(Logged(level="info", message="hm")), TextChunk("Yes."), StopChunk()]

    _, log = await run_with_limits(ScriptedModel(call("think"), say("done")), asking_tool(FunctionModel(answer)))
    assert [event.data.message for event in log if isinstance(event.data, Logged)] == ["hm"]
    assert [(body.usage, body.call) for body in usage_events(log) if body.call] == [(Usage(), "call_1")]


@pytest.mark.parametrize(("limit", "name"), [({"max_cost": 0.4}, "cost"), ({"max_tokens": 250}, "tokens")])
async def test_a_model_call_that_exceeds_the_budget_is_not_made_and_the_agent_continues(limit: Any, name: str) -> None:
    other = PricedModel(agents={"think": [say("never")]})
    response, log = await run_with_limits(
        ScriptedModel(call("think") | EXPENSIVE_USAGE, say("done") | CHEAP_USAGE), asking_tool(other), **limit
    )
    result = results_by_call(log)["call_1"]
    assert (other.prompts, result.failed, result.reason) == ([], True, "limit")
    assert f"the budget of this turn ({name}) has no room left" in result.text
    assert (response.stop, response.text) == ("end", "done")


async def test_an_answer_for_a_tool_is_bounded_by_what_is_left() -> None:
    other = PricedModel(agents={"think": [say("Four.", repeat=True)]})
    lines = [call("think") | CHEAP_USAGE, say("done")]
    await run_with_limits(ScriptedModel(*lines), asking_tool(other), max_tokens=215)
    await run_with_limits(ScriptedModel(*lines), asking_tool(other), max_tokens=400)
    assert [prompt.options for prompt in other.prompts] == [{"max_tokens": 100}, {}]


async def test_an_exhausted_budget_stops_a_call_of_a_model_without_estimates() -> None:
    other = ScriptedModel(agents={"think": [say("never")]})
    model = ScriptedModel(call("think") | EXPENSIVE_USAGE, say("never"))
    response, log = await run_with_limits(model, asking_tool(other), max_cost=0.2)
    assert (other.prompts, results_by_call(log)["call_1"].reason) == ([], "limit")
    assert (response.stop, response.limit) == ("limit", "cost")


async def test_concurrent_calls_never_spend_the_same_budget() -> None:
    spent = {"usage": {"input": 100, "output": 200, "cost": 0.3}}
    other = PricedModel(agents={"think": [say("Four.") | spent] * 4})
    lines = [calls(*[call("think", about=str(number)) for number in range(4)]) | CHEAP_USAGE, say("done") | CHEAP_USAGE]
    response, log = await run_with_limits(ScriptedModel(*lines), asking_tool(other), max_cost=0.95)
    assert [prompt.options for prompt in other.prompts] == [{}, {}, {}]
    assert sorted(result.reason or "" for result in results_by_call(log).values()) == ["", "", "", "limit"]
    assert round(response.usage.cost, 9) == round(total_usage(log).cost, 9) == 0.92


async def test_a_call_that_has_less_room_beside_others_waits_for_them() -> None:
    """They may cost less than they could."""
    cheap = {"usage": {"input": 100, "output": 10, "cost": 0.11}}
    other = PricedModel(agents={"think": [say("Four.") | cheap] * 4})
    lines = [calls(*[call("think", about=str(number)) for number in range(4)]), say("done")]
    _, log = await run_with_limits(ScriptedModel(*lines), asking_tool(other), max_cost=0.7)
    assert [prompt.options for prompt in other.prompts] == [{}] * 4
    assert [result.text for result in results_by_call(log).values()] == ["Four."] * 4


async def test_a_stop_cancels_a_call_that_waits_for_budget() -> None:
    begun = asyncio.Event()

    class Slow(FunctionModel):
        def estimate(self, prompt: Prompt) -> Estimate:
            return Estimate(usage=Usage(input=100), max_tokens=100)

    async def answer(prompt: Prompt) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel(calls(call("think", about="a"), call("think", about="b")))
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(
            agent(model, asking_tool(Slow(answer)), limits=vaka.Limits(max_tokens=350, grace=0.1)), id="s"
        )
        task = asyncio.create_task(collect(session.stream("Go.")))
        await begun.wait()
        await session.interrupt("enough")
        await task
    log = await read_log(store, "s")
    assert event_types(log)[-1] == "turn.interrupted"
    assert {result.reason for result in results_by_call(log).values()} == {"interrupted"}


async def test_model_calls_of_children_count_against_the_budgets_of_all_parents() -> None:
    child = PricedModel(
        agents={
            "helper": [
                call("look") | EXPENSIVE_USAGE,
                call("look") | EXPENSIVE_USAGE,
                call("look") | EXPENSIVE_USAGE,
                say("never"),
            ]
        }
    )

    @vaka.tool(effect="read")
    async def look() -> str:
        """Look."""
        return "seen"

    helper = vaka.Agent("helper", model=child, tools=[look], limits=vaka.Limits(max_cost=100.0))
    model = ScriptedModel(call("helper", prompt="Help.") | CHEAP_USAGE, say("done") | CHEAP_USAGE)
    response, log = await run_with_limits(model, helper, max_cost=0.7)
    assert len(child.prompts) == 2
    assert response.usage.cost < 0.7
    assert (response.stop, response.text) == ("end", "done")
    assert [event.data.stop for event in log if event.type == "subagent.completed"] == ["cost"]  # type: ignore[attr-defined]  # that event


async def test_usage_of_a_grandchild_counts_for_its_parent_also_after_it_has_ended() -> None:
    deep = PricedModel(agents={"deep": [say("seen") | EXPENSIVE_USAGE] * 9})
    lines = [call("deep", prompt=str(number)) | CHEAP_USAGE for number in range(9)]
    middle = vaka.Agent(
        "middle",
        model=ScriptedModel(agents={"middle": lines}),
        tools=[vaka.Agent("deep", model=deep)],
        limits=vaka.Limits(max_tokens=400),
    )
    model = ScriptedModel(call("middle", prompt="Go.") | CHEAP_USAGE, say("done") | CHEAP_USAGE)
    response, log = await run_with_limits(model, middle)
    stops = [event.data.stop for event in log if event.type == "subagent.completed"]  # type: ignore[attr-defined]  # that event
    assert (stops[:3], stops[-1], len(deep.prompts)) == (["end", "end", "tokens"], "tokens", 2)
    assert (response.stop, response.text) == ("end", "done")


async def test_a_child_whose_model_cannot_tell_its_price_stops_when_the_money_of_its_root_is_gone() -> None:
    model = ScriptedModel(
        call("helper", prompt="Help.") | CHEAP_USAGE, agents={"helper": [call("nothing") | EXPENSIVE_USAGE] * 9}
    )
    response, _ = await run_with_limits(model, vaka.Agent("helper", model=model), max_cost=0.5)
    assert (response.stop, response.limit) == ("limit", "cost")
    assert response.usage.cost == pytest.approx(0.61)


async def test_usage_is_counted_once_wherever_the_process_died() -> None:
    def made(other: ScriptedModel) -> vaka.Agent:
        model = ScriptedModel(
            calls(call("think", about="a"), call("think", about="b")) | EXPENSIVE_USAGE, say("done") | EXPENSIVE_USAGE
        )
        return agent(model, asking_tool(other, "helper"))

    def others() -> ScriptedModel:
        return ScriptedModel(agents={"helper": [say("Four.") | CHEAP_USAGE, say("Five.") | CHEAP_USAGE]})

    store = MemoryStore()
    commits = count_commits(store).commits
    async with runtime(store) as rt:
        await (await rt.open(made(others()), id="s")).run("Go.")
    whole = await read_log(store, "s")
    cuts = list(accumulate(map(len, commits)))[:-1]
    assert len(cuts) >= 3
    for cut in cuts:
        again, other = MemoryStore(), others()
        before = [body for body in usage_events(whole[:cut]) if body.call]
        await log_writer(again, "s", whole[:cut])()
        async with runtime(again) as rt:
            session = await rt.open(made(other), id="s")
            await collect(session.resume())
        log = await read_log(again, "s")
        check_log(log)
        asked = [body for body in usage_events(log) if body.call]
        assert len(asked) == len(before) + len(other.prompts)
        assert log[-1].data.usage == total_usage(log)  # type: ignore[attr-defined]  # the end of a turn
        assert {prompt.number for prompt in other.prompts} <= {1, 2}
        assert sorted(result.text for result in results_by_call(log).values()) == ["Five.", "Four."]


async def test_a_tool_repeats_its_model_calls_with_the_same_numbers_after_every_crash() -> None:
    def made(other: Model) -> vaka.Agent:
        @vaka.tool(effect="read")
        async def think(context: ToolContext) -> str:
            """Think, in three steps."""
            said: list[str] = []
            for about in "abc":
                try:
                    said.append(await context.ask_model(other, question_prompt(about, "helper")))
                except ModelError as error:
                    said.append(error.code)
                await context.state.set_now(about, 1)
            return " ".join(said)

        return agent(ScriptedModel(call("think"), say("done")), think)

    def others() -> RetryingModel:
        lines = [fail(529, "busy"), say("Four.") | CHEAP_USAGE, fail(400, "no"), say("Five.") | CHEAP_USAGE]
        return RetryingModel(ScriptedModel(agents={"helper": lines}), clock=FakeClock(auto=True))

    store = MemoryStore()
    async with runtime(store) as rt:
        await (await rt.open(made(others()), id="s")).run("Go.")
    log = await read_log(store, "s")
    for key in "aabbc":
        cut = max(n for n, event in enumerate(log, 1) if event.data == StateChanged(key=key, value=1))
        again = MemoryStore()
        await log_writer(again, "s", log[:cut])()
        async with runtime(again) as rt:
            await collect((await rt.open(made(others()), id="s")).resume())
        log = await read_log(again, "s")
        check_log(log)
        assert results_by_call(log)["call_1"].text == "Four. model_refused Five."


async def test_a_rerun_tool_makes_new_model_calls() -> None:
    other = ScriptedModel(agents={"think": [fail(400, "no"), say("Four.")]})
    store = MemoryStore()
    async with runtime(store) as rt:
        who = agent(ScriptedModel(call("think"), say("done")), asking_tool(other), middleware=[ToolRetry(pause=0)])
        await (await rt.open(who, id="s")).run("Go.")
    assert results_by_call(await read_log(store, "s"))["call_1"].text == "Four."
    assert [prompt.number for prompt in other.prompts] == [1, 2]


async def test_a_model_call_of_a_tool_does_not_change_the_prompt_of_its_agent() -> None:
    other = ScriptedModel(agents={"think": [say("Four.")]})
    model = ScriptedModel(call("think"), say("done"), say("again"))
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model, asking_tool(other)), id="s")
        await session.run("Go.")
        assert (await session.run("And?")).text == "again"
    assert [len(prompt.messages) for prompt in model.prompts] == [1, 3, 5]
    assert model.prompts[-1].messages[-1] == UserMessage(content=(Text(text="And?"),))


class EndlessModel(FunctionModel):
    """Says or thinks forty characters of its answer, and no more; knows what a prompt costs."""

    def __init__(self, begun: asyncio.Event, *first: Any, piece: Any = TextChunk) -> None:
        super().__init__(self.never)
        self._begun, self._first = begun, (*first, piece("x" * 40))

    async def never(self, prompt: Prompt) -> str:
        return ""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Any]:
        for chunk in self._first:
            yield chunk
        self._begun.set()
        await asyncio.Event().wait()

    def estimate(self, prompt: Prompt) -> Estimate:
        return Estimate(usage=Usage(input=100, cost=0.1), output_price=0.001)


@pytest.mark.parametrize(
    ("first", "cost"),
    [
        ((), Usage(input=100, output=10, cost=0.11)),
        ((UsageChunk(Usage(input=70, output=1, cost=0.071)),), Usage(input=70, output=10, cost=0.08)),
    ],
)
@pytest.mark.parametrize("piece", [TextChunk, ReasoningChunk])
@pytest.mark.parametrize("asks", ["agent", "tool"])
async def test_a_stopped_answer_costs_what_was_received(first: Any, cost: Usage, asks: str, piece: Any) -> None:
    """Providers tell the price of an answer with its end, some that of the prompt with its beginning."""
    begun, store = asyncio.Event(), MemoryStore()
    slow = EndlessModel(begun, *first, piece=piece)
    made = agent(slow) if asks == "agent" else agent(ScriptedModel(call("think") | {"usage": {}}), asking_tool(slow))
    async with runtime(store) as rt:
        session = await rt.open(made, id="s")
        task = asyncio.create_task(collect(session.stream("Go.")))
        await begun.wait()
        await session.interrupt("enough")
        await task
        stats = await rt.stats("s")
    (used_up,) = [body for body in usage_events(await read_log(store, "s")) if body.usage != Usage()]
    assert used_up.call == (None if asks == "agent" else "call_1")
    assert (used_up.usage.input, used_up.usage.output, stats.usage.total) == (cost.input, cost.output, cost.total)
    assert used_up.usage.cost == pytest.approx(cost.cost)


async def test_a_budget_in_money_needs_the_price_of_a_model_that_a_tool_asks() -> None:
    class Unpriced(ScriptedModel):
        def estimate(self, prompt: Prompt) -> Estimate:
            return Estimate(usage=Usage(input=100), unpriced="the price of 'other' is not known")

    other = Unpriced(agents={"think": [say("Four.", repeat=True)]})
    lines = [call("think"), say("done")]
    _, log = await run_with_limits(ScriptedModel(*lines), asking_tool(other), max_cost=1.0)
    assert (results_by_call(log)["call_1"].failed, other.prompts) == (True, [])
    assert "the price of 'other' is not known" in results_by_call(log)["call_1"].text
    _, log = await run_with_limits(ScriptedModel(*lines), asking_tool(other), max_tokens=1000)
    assert results_by_call(log)["call_1"].text == "Four."
