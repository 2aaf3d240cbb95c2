"""Budgets of tokens and cost are checked before each call, and notices of a model are logged."""

from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, event_types, read_log, runtime
from vaka.core.ports.model import (
    Chunk,
    CitationChunk,
    Estimate,
    NoticeChunk,
    Prompt,
    ReasoningChunk,
    RetryChunk,
    UsageChunk,
)
from vaka.core.ports.model import StopChunk as Stop
from vaka.core.ports.model import TextChunk as Words
from vaka.core.types.message import Citation, Reasoning, Text, Usage
from vaka.core.types.monitor import BudgetWarning, CacheBusted, ModelSelected
from vaka.core.types.progress import MessageCompleted, SubagentCompleted
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, ScriptedModel, call, say


@vaka.tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


class PricedModel(ScriptedModel):
    """Says beforehand that a prompt has 100 tokens and costs 10 cents, and each token of an answer a tenth of one."""

    price = 0.001

    def estimate(self, prompt: Prompt) -> Estimate:
        return Estimate(usage=Usage(input=100, cost=100 * self.price), output_price=self.price)


class FreeModel(PricedModel):
    price = 0.0


async def run_turn(
    model: Any, *tools: Any, options: dict[str, Any] | None = None, **limits: Any
) -> tuple[Any, list[Any]]:
    store = MemoryStore()
    async with runtime(store) as rt:
        made = agent(model, *tools, limits=vaka.Limits(**limits), options=options or {})
        session = await rt.open(made, id="s")
        response = await session.run("Go.")
    log = await read_log(store, "s")
    check_log(log)
    return response, log


@pytest.mark.parametrize(("limit", "name"), [({"max_cost": 0.1}, "cost"), ({"max_tokens": 100}, "tokens")])
async def test_a_call_whose_prompt_alone_exceeds_the_budget_is_not_made(limit: dict[str, Any], name: str) -> None:
    model = PricedModel(say("never"))
    response, log = await run_turn(model, **limit)
    assert (response.stop, response.limit, response.text) == ("limit", name, "")
    assert model.prompts == []
    assert "message.completed" not in event_types(log)


async def test_max_tokens_of_an_answer_is_limited_by_the_rest_of_the_budget() -> None:
    model = PricedModel(say("Yes."))
    await run_turn(model, max_cost=0.3505)
    assert model.prompts[0].options == {"max_tokens": 250}
    await run_turn(model, max_tokens=130)
    assert model.prompts[1].options == {"max_tokens": 30}


async def test_a_lower_max_tokens_is_kept_and_a_sufficient_budget_sets_none() -> None:
    model = PricedModel(say("Yes.", repeat=True))
    await run_turn(model, options={"max_tokens": 7}, max_cost=0.3505)
    await run_turn(model, max_cost=1000.0)
    assert [prompt.options for prompt in model.prompts] == [{"max_tokens": 7}, {}]


async def test_a_model_with_an_unknown_output_limit_gets_the_default_limit() -> None:
    model = PricedModel(say("Yes.", repeat=True))
    await run_turn(model, max_cost=100.0)
    await run_turn(model, max_tokens=300_000)
    await run_turn(model, options={"max_tokens": 50_000}, max_tokens=40_100)
    assert [prompt.options["max_tokens"] for prompt in model.prompts] == [16_384, 16_384, 40_000]


async def test_a_long_answer_is_limited_exactly_by_the_rest_of_the_budget() -> None:
    class Long(PricedModel):
        price = 2.0**-10

        def estimate(self, prompt: Prompt) -> Estimate:
            return msgspec.structs.replace(super().estimate(prompt), max_tokens=64_000)

    model = Long(say("Yes.", repeat=True))
    await run_turn(model, max_tokens=20_100)
    await run_turn(model, max_tokens=64_099)
    await run_turn(model, max_tokens=64_100)
    await run_turn(model, max_cost=40_100 / 1024)
    assert [prompt.options for prompt in model.prompts] == [
        {"max_tokens": 20_000},
        {"max_tokens": 63_999},
        {},
        {"max_tokens": 40_000},
    ]


async def test_the_smallest_output_limit_of_several_models_applies() -> None:
    class Several(PricedModel):
        def estimate(self, prompt: Prompt) -> Estimate:
            return msgspec.structs.replace(super().estimate(prompt), max_tokens=64_000, takes=8000)

    model = Several(say("Yes.", repeat=True))
    await run_turn(model, max_tokens=30_000)
    await run_turn(model, max_tokens=70_000)
    assert [prompt.options for prompt in model.prompts] == [{"max_tokens": 8000}, {}]


async def test_a_call_with_too_few_tokens_left_is_not_made() -> None:
    model = PricedModel(say("Yes.", repeat=True))
    response, _ = await run_turn(model, max_tokens=115)
    assert (response.limit, model.prompts) == ("tokens", [])
    await run_turn(model, max_tokens=116)
    await run_turn(model, options={"max_tokens": 3}, max_tokens=103)
    assert [prompt.options for prompt in model.prompts] == [{"max_tokens": 16}, {"max_tokens": 3}]


async def test_a_budget_does_not_raise_the_output_limit_of_a_model() -> None:
    class Bounded(PricedModel):
        def estimate(self, prompt: Prompt) -> Estimate:
            return msgspec.structs.replace(super().estimate(prompt), max_tokens=20)

    model = Bounded(say("Yes.", repeat=True))
    await run_turn(model, max_tokens=1000)
    await run_turn(model, max_tokens=117)
    assert [prompt.options for prompt in model.prompts] == [{}, {"max_tokens": 17}]


async def test_usage_of_a_failed_attempt_counts_before_the_retry() -> None:
    async def answer(prompt: Prompt) -> list[Chunk]:
        spent = UsageChunk(Usage(input=100, output=50, cost=0.15))
        return [
            Words("Hm"),
            spent,
            RetryChunk("stream_cut", "cut"),
            Words("Y"),
            spent,
            RetryChunk("stream_cut", "cut"),
            Words("Never."),
            spent,
            Stop(),
        ]

    class Failing(FunctionModel):
        def estimate(self, prompt: Prompt) -> Estimate:
            return Estimate(usage=Usage(input=100, cost=0.1), output_price=0.001)

    response, log = await run_turn(Failing(answer), max_cost=0.4)
    assert (response.limit, response.text, response.usage.cost) == ("cost", "", 0.3)
    assert "message.completed" not in event_types(log)
    assert event_types(log).count("message.discarded") == 2


async def test_spent_usage_counts_and_one_budget_warning_is_logged() -> None:
    spent = {"usage": {"input": 100, "output": 20, "cost": 0.12}}
    model = PricedModel(*[call("look") | spent] * 5)
    response, log = await run_turn(model, look, max_cost=0.45)
    assert (response.limit, len(model.prompts)) == ("cost", 3)
    warned = [event.data for event in log if isinstance(event.data, BudgetWarning)]
    assert [(body.budget, body.limit) for body in warned] == [("cost", 0.45)]
    assert warned[0].used >= 0.8 * 0.45


@pytest.mark.parametrize("limits", [{"max_tokens": 1000}, {"max_tokens": 1000, "max_cost": 5.0}])
async def test_a_model_without_a_price_gets_a_budget_warning_of_its_tokens(limits: dict[str, Any]) -> None:
    model = ScriptedModel(call("look") | {"usage": {"input": 400}}, say("Yes.") | {"usage": {"input": 450}})
    response, log = await run_turn(model, look, **limits)
    warned = [event.data for event in log if isinstance(event.data, BudgetWarning)]
    assert (response.text, warned) == ("Yes.", [BudgetWarning(budget="tokens", used=850, limit=1000)])


async def test_a_free_model_is_not_limited_by_a_cost_budget() -> None:
    model = FreeModel(say("Yes."))
    response, _ = await run_turn(model, max_cost=0.0001)
    assert (response.text, model.prompts[0].options) == ("Yes.", {})


async def test_a_model_without_estimates_is_limited_by_its_recorded_cost() -> None:
    model = ScriptedModel(call("look") | {"usage": {"input": 9, "cost": 1.0}}, say("never"))
    response, _ = await run_turn(model, look, max_cost=0.5)
    assert (response.limit, len(model.prompts)) == ("cost", 1)


async def test_notices_become_events_and_are_not_part_of_the_answer() -> None:
    async def answer(prompt: Prompt) -> list[Chunk]:
        selected = NoticeChunk(ModelSelected(model="m", tier="low", reason="asked for"))
        return [selected, Words("Hi."), NoticeChunk(CacheBusted(part="tools", tokens=9)), Stop()]

    response, log = await run_turn(FunctionModel(answer))
    assert response.text == "Hi."
    notices = [event.data for event in log if event.data.type in ("model.selected", "cache.busted")]
    assert notices == [
        ModelSelected(model="m", tier="low", reason="asked for"),
        CacheBusted(part="tools", tokens=9),
    ]


async def test_citations_belong_to_their_text_and_every_reasoning_block_is_stored() -> None:
    source = Citation(url="https://example.com", title="T", text="rain", opaque={"w": 1})

    async def answer(prompt: Prompt) -> list[Chunk]:
        thoughts = [ReasoningChunk("a"), ReasoningChunk(opaque={"w": 1}), ReasoningChunk(opaque={"w": 2})]
        return [*thoughts, ReasoningChunk("b"), Words("It "), Words("rains."), CitationChunk(source), Stop()]

    _, log = await run_turn(FunctionModel(answer))
    said = next(event.data for event in log if isinstance(event.data, MessageCompleted))
    assert said.content == (
        Reasoning(text="a", opaque={"w": 1}),
        Reasoning(opaque={"w": 2}),
        Reasoning(text="b"),
        Text(text="It rains.", citations=(source,)),
    )


async def test_a_prompt_contains_its_session_id() -> None:
    model = ScriptedModel(say("Yes."))
    await run_turn(model)
    assert [prompt.session for prompt in model.prompts] == ["s"]


def spending(tokens: int) -> dict[str, Any]:
    return {"usage": {"input": tokens, "output": 0}}


@pytest.mark.parametrize(("most", "answered"), [(500, True), (200, False)])
async def test_usage_of_a_grandchild_counts_in_the_budget_of_its_parent(most: int, answered: bool) -> None:
    last = agent(ScriptedModel(agents={"last": [say("dug") | spending(300)]}), name="last")
    lines = [call("last", prompt="Dig.") | spending(10), say("found") | spending(10)]
    child = agent(ScriptedModel(agents={"child": lines}), last, name="child", limits=vaka.Limits(max_tokens=most))
    response, log = await run_turn(ScriptedModel(call("child", prompt="Go."), say("done")), child)
    assert response.text == "done"
    [ended] = [e.data for e in log if isinstance(e.data, SubagentCompleted) and e.data.agent == "child"]
    assert (ended.text, ended.reason) == (("found", "") if answered else ("", "limit"))
