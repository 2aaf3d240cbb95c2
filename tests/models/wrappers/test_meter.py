"""Usage has its cost, and prompts have an estimate."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, runtime
from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    Closeable,
    CostEstimator,
    Estimate,
    Model,
    Prompt,
    ReasoningChunk,
    RetryChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.errors import ConfigError, ModelUnavailable, TurnError
from vaka.core.types.message import Text, Usage, UserMessage
from vaka.core.types.tool import ToolSpec
from vaka.models.catalog import FREE, Price, PriceList
from vaka.models.wrappers.meter import LastCalls, MeteredModel
from vaka.testing.models import FunctionModel, ModelContract, ModelMaker, ScriptedModel, drain_stream, say, try_stream

PRICES = PriceList({"mine/*": Price(input=1, output=10, cache_read=0.1, cache_write=2)})


class AnsweringModel:
    """A model that says a usage, and who it is."""

    def __init__(
        self, usage: Usage = Usage(), model: str = "", name: str = "mine/x", error: Exception | None = None
    ) -> None:
        self.usage = usage
        self.model = model
        self._name = name
        self.error = error
        self.closed = 0

    @property
    def name(self) -> str:
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        yield TextChunk("Hi.")
        yield UsageChunk(self.usage, self.model)
        if self.error is not None:
            raise self.error
        yield StopChunk()

    async def close(self) -> None:
        self.closed += 1


class ManualClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def user_message(text: str) -> UserMessage:
    return UserMessage(content=(Text(text=text),))


def prompt_of(*texts: str, session: str = "s", **more: Any) -> Prompt:
    return Prompt(messages=tuple(user_message(text) for text in texts), session=session, **more)


async def cost_of(metered: MeteredModel) -> float:
    (usage,) = [chunk for chunk in await drain_stream(metered) if isinstance(chunk, UsageChunk)]
    return usage.usage.cost


class TestMetered(ModelContract):
    @pytest.fixture
    def answering(self) -> ModelMaker:
        return lambda answer: MeteredModel(ScriptedModel(answer | {"repeat": True}), PRICES)


async def test_usage_gets_the_price_of_the_model_that_answered() -> None:
    usage = Usage(input=1_000_000)
    prices = PriceList({"anthropic/claude-opus-5-5": Price(input=7, output=0)})
    assert (
        await cost_of(MeteredModel(AnsweringModel(usage, "claude-opus-5-5", "anthropic/claude-opus-5-5"), prices)) == 7
    )
    assert (
        await cost_of(MeteredModel(AnsweringModel(usage, "gpt-5.4", "anthropic/claude-opus-5-5"), prices)) == 5
    )  # it is long
    assert (
        await cost_of(MeteredModel(AnsweringModel(usage, "never-heard-of", "anthropic/claude-opus-5-5"), prices)) == 7
    )
    assert await cost_of(MeteredModel(AnsweringModel(usage, "", "anthropic/claude-opus-5-5"), prices)) == 7
    assert await cost_of(MeteredModel(AnsweringModel(usage, "claude-sonnet-5", "fast"), prices)) == 2


async def test_another_provider_of_a_model_has_prices_of_its_own() -> None:
    usage = Usage(input=1_000_000)
    assert (
        await cost_of(MeteredModel(AnsweringModel(usage, "deepseek-v4-pro", "ollama/deepseek-v4-pro"), PriceList()))
        == 0
    )


async def test_a_given_or_reported_price_takes_precedence() -> None:
    usage = Usage(input=1_000_000)
    assert await cost_of(MeteredModel(AnsweringModel(usage, "gpt-5.4", "openai/gpt-5.4"), PriceList(), price=FREE)) == 0
    assert await cost_of(MeteredModel(AnsweringModel(usage, name="my-name"), PriceList(), model="openai/gpt-4.1")) == 2
    assert await cost_of(MeteredModel(AnsweringModel(msgspec.structs.replace(usage, cost=0.5)), PRICES)) == 0.5


async def test_other_chunks_pass_unchanged() -> None:
    inner = AnsweringModel(Usage(output=1_000_000))
    metered = MeteredModel(inner, PRICES)
    assert await drain_stream(metered) == [
        TextChunk("Hi."),
        UsageChunk(Usage(output=1_000_000, cost=10.0), miss_price=0.9 / 1e6),
        StopChunk(),
    ]
    assert metered.name == "mine/x"
    assert isinstance(metered, Model)
    assert isinstance(metered, CostEstimator)
    assert isinstance(metered, Closeable)
    await metered.close()
    await metered.close()
    assert inner.closed == 2
    await MeteredModel(ScriptedModel(say("Hi.")), PRICES).close()


async def test_missing_usage_is_estimated() -> None:
    asked = prompt_of("x" * 400, session="")
    said = "It rains. " * 100

    async def answer(asked: Prompt) -> list[Chunk]:
        call = CallChunk(0, "look", '{"a": 1}', "c")
        return [TextChunk(said), RetryChunk("stream_cut", "cut"), ReasoningChunk("Hm. "), call, StopChunk("calls")]

    chunks = await drain_stream(MeteredModel(FunctionModel(answer, name="mine/x"), PRICES), asked)
    counted = [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)]
    assert [(usage.input, usage.output) for usage in counted] == [(100, 250), (100, 4)]
    assert [round(usage.cost, 6) for usage in counted] == [0.0026, 0.00014]
    assert [type(chunk) for chunk in chunks[1:3]] == [UsageChunk, RetryChunk]
    assert [type(chunk) for chunk in chunks[-2:]] == [UsageChunk, StopChunk]


async def test_a_cut_answer_without_usage_has_an_estimated_cost() -> None:
    metered = MeteredModel(AnsweringModel(error=ModelUnavailable("cut")), PRICES)
    chunks, error = await try_stream(metered, prompt_of("x" * 400))
    assert isinstance(error, ModelUnavailable)
    assert [chunk.usage.total for chunk in chunks if isinstance(chunk, UsageChunk)] == [0, 101]


def test_a_new_conversation_is_estimated_by_its_characters() -> None:
    tool = ToolSpec(name="look", parameters={})
    asked = prompt_of("x" * 400, system="y" * 39, tools=(tool,))
    tokens = 100 + 10 + -(-len(msgspec.json.encode(tool)) // 4)
    assert MeteredModel(AnsweringModel(), PRICES).estimate(asked) == Estimate(
        usage=Usage(input=tokens, cost=tokens / 1e6), output_price=1e-5
    )


async def test_a_known_conversation_is_estimated_by_its_last_call_and_the_new_messages() -> None:
    clock = ManualClock()
    usage = Usage(input=1000, output=50, cache_read=600, cache_write=100)
    metered = MeteredModel(AnsweringModel(usage), PRICES, clock=clock)
    await drain_stream(metered, prompt_of("one"))
    grown = prompt_of("one", "x" * 40)
    warm = metered.estimate(grown)
    assert warm.usage == Usage(input=1010, cache_read=700, cost=(310 * 1 + 700 * 0.1) / 1e6)
    clock.now = 299.0
    assert metered.estimate(grown) == warm
    clock.now = 300.0
    assert metered.estimate(grown).usage == Usage(input=1010, cost=1010 / 1e6)
    for other in (prompt_of("two", "x" * 40), prompt_of("one", "x" * 40, system="!"), prompt_of("one", session="t")):
        assert metered.estimate(other).usage.input < 20


async def test_a_prompt_outside_of_sessions_is_not_remembered() -> None:
    metered = MeteredModel(AnsweringModel(Usage(input=1000, cache_write=900)), PRICES)
    await drain_stream(metered, prompt_of("one", session=""))
    assert metered.estimate(prompt_of("one", session="")).usage.input == 1


async def test_a_cut_answer_is_not_remembered() -> None:
    metered = MeteredModel(AnsweringModel(Usage(input=1000), error=ModelUnavailable("reset")), PRICES)
    with pytest.raises(ModelUnavailable):
        await drain_stream(metered, prompt_of("one"))
    assert metered.estimate(prompt_of("one")).usage.input == 1


async def test_a_call_of_another_model_does_not_help_to_estimate() -> None:
    ledger = LastCalls()
    usage = Usage(input=100, cache_write=90)
    one, two = (MeteredModel(AnsweringModel(usage, name=name), PRICES, ledger=ledger) for name in ("mine/x", "mine/y"))
    await drain_stream(one, prompt_of("one"))
    assert [model.estimate(prompt_of("one")).usage.input for model in (one, two)] == [100, 1]


async def test_the_ledger_drops_the_least_recently_used_conversation() -> None:
    metered = MeteredModel(AnsweringModel(Usage(input=100, cache_write=90)), PRICES, ledger=LastCalls(kept=2))
    for session in ("a", "b", "a", "c"):
        await drain_stream(metered, prompt_of("one", session=session))
    assert [metered.estimate(prompt_of("one", session=session)).usage.input for session in "acb"] == [100, 100, 1]


@pytest.mark.parametrize(
    ("usage", "price", "miss_price"),
    [
        (Usage(input=100), Price(input=1, output=0, cache_read=0.1, cache_write=2), 0.9),
        (Usage(input=100, cache_write=9), Price(input=1, output=0, cache_read=0.1, cache_write=2), 1.9),
        (Usage(input=100, cache_write=9), Price(input=1, output=0, cache_read=0.1), 0.9),
        (Usage(input=100), Price(input=1, output=0), 0),
        (Usage(input=100), Price(input=1, output=0, cache_read=2), 0),
        (Usage(input=100), Price(input=1, output=0, cache_read=0.1, long=99, long_input=2), 1.8),
        (Usage(input=100, cost=0.5), Price(input=1, output=0, cache_read=0.1), 0.9),
    ],
)
async def test_usage_has_the_price_of_a_token_that_was_not_cached(
    usage: Usage, price: Price, miss_price: float
) -> None:
    chunks = await drain_stream(MeteredModel(AnsweringModel(usage), PriceList({"mine/*": price})))
    assert [chunk.miss_price for chunk in chunks if isinstance(chunk, UsageChunk)] == [pytest.approx(miss_price / 1e6)]


async def test_a_prompt_that_cannot_be_encoded_is_left_to_the_inner_model() -> None:
    metered = MeteredModel(AnsweringModel(Usage(input=10, cache_write=5)), PRICES)
    odd = prompt_of("\ud800")
    for _ in range(2):
        assert len(await drain_stream(metered, odd)) == 3
    assert metered.estimate(odd).usage.input == 10


def test_the_error_for_an_unknown_price_shows_the_setting() -> None:
    metered = MeteredModel(AnsweringModel(name="ollama/llama"), PriceList())
    estimate = metered.estimate(prompt_of("12345678"))
    assert estimate.usage == Usage(input=2)
    assert 'prices."ollama/llama" = { input = 3.0, output = 15.0 }' in estimate.unpriced
    with pytest.raises(ConfigError, match=r"the price of 'ollama/llama' is not known.*vaka\.toml"):
        metered.price()
    assert MeteredModel(AnsweringModel(), PRICES).price() == Price(input=1, output=10, cache_read=0.1, cache_write=2)


async def test_a_budget_in_money_needs_a_price_and_one_in_tokens_does_not() -> None:
    async with runtime() as rt:
        model = MeteredModel(AnsweringModel(Usage(input=3, output=1), name="unknown/x"), PriceList())
        dear = await rt.open(agent(model, limits=vaka.Limits(max_cost=1.0)), id="dear")
        with pytest.raises(TurnError, match="the price of 'unknown/x' is not known"):
            await dear.run("Go.")
        tokens = await rt.open(agent(model, limits=vaka.Limits(max_tokens=10_000)), id="tokens")
        assert (await tokens.run("Go.")).text == "Hi."


async def test_a_call_that_would_exceed_the_budget_is_not_made() -> None:
    model = MeteredModel(AnsweringModel(Usage(input=600_000, output=10_000)), PRICES)
    async with runtime() as rt:
        session = await rt.open(agent(model, limits=vaka.Limits(max_cost=0.5)), id="s")
        first = await session.run("One.")
        second = await session.run("Two.")
    assert (first.stop, first.usage.cost) == ("end", 0.7)
    assert (second.stop, second.limit) == ("limit", "cost")
