"""When a model fails, the next one answers, and a notice names it."""

import pytest

from tests.models.wrappers.test_retry import GOOD, FailingModel
from vaka.core.ports.model import (
    CostEstimator,
    Estimate,
    NoticeChunk,
    Prompt,
    RetryChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.errors import (
    BadRequest,
    ConfigError,
    ContextTooLong,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    StreamCut,
)
from vaka.core.types.message import Usage
from vaka.core.types.monitor import ModelSelected
from vaka.models.wrappers.resilience import FallbackModel
from vaka.testing.models import PROMPT, ScriptedModel, drain_stream, fail, say


def named_model(name: str, *answers: dict[str, object]) -> ScriptedModel:
    return ScriptedModel(*answers, name=name)


def selected_notice(model: str, reason: str) -> NoticeChunk:
    return NoticeChunk(ModelSelected(model=model, reason=reason))


async def test_the_first_model_answers_when_it_can() -> None:
    other = named_model("b", say("No."))
    assert await drain_stream(FallbackModel([FailingModel(GOOD), other])) == GOOD
    assert other.prompts == []


async def test_the_next_model_answers_and_the_log_records_the_choice() -> None:
    model = FallbackModel(
        [
            named_model("a", fail(529, "busy")),
            named_model("b", fail(503, "down") | {"repeat": True}),
            FailingModel(GOOD),
        ]
    )
    assert await drain_stream(model) == [
        RetryChunk("model_unavailable", "busy (status 529)", "a"),
        selected_notice("b", "fallback after a: model_unavailable"),
        RetryChunk("model_unavailable", "down (status 503)", "b"),
        selected_notice("trying", "fallback after a: model_unavailable, b: model_unavailable"),
        *GOOD,
    ]


async def test_a_cut_answer_is_discarded_and_the_next_model_is_called() -> None:
    chunks = await drain_stream(
        FallbackModel([named_model("a", {"chunks": ["Ha", "lf"], "cut_after": 1}), FailingModel(GOOD)])
    )
    assert chunks[:2] == [
        TextChunk("Ha"),
        RetryChunk("stream_cut", "the answer of a was cut: it ended without its end marker", "a"),
    ]
    assert chunks[3:] == GOOD


async def test_usage_names_the_model_that_answered() -> None:
    usage = {"input": 3, "output": 1}
    chunks = await drain_stream(
        FallbackModel([named_model("a", fail()), named_model("b", say("", usage=usage) | {"repeat": True})])
    )
    assert chunks[2:] == [UsageChunk(Usage(input=3, output=1), "b", counted_as="b"), StopChunk()]
    known = UsageChunk(Usage(input=1), "a-2026")
    named = await drain_stream(FallbackModel([FailingModel([known, StopChunk()])]))
    assert named == [UsageChunk(Usage(input=1), "a-2026", counted_as="trying"), StopChunk()]


async def test_the_last_error_is_raised_with_all_that_were_tried() -> None:
    first, second = ModelUnavailable("busy"), RateLimited("slow down", retry_after=9, status=429)
    with pytest.raises(RateLimited) as caught:
        await drain_stream(FallbackModel([FailingModel(first), FailingModel(second)]))
    assert str(caught.value) == "slow down (no model answered; trying: model_unavailable, trying: rate_limited)"
    assert (caught.value.retry_after, caught.value.status) == (9, 429)


async def test_an_error_of_the_only_model_is_raised_unchanged() -> None:
    with pytest.raises(StreamCut, match=r"^broken$"):
        await drain_stream(FallbackModel([FailingModel(StreamCut("broken"))]))


@pytest.mark.parametrize("error", [BadRequest("wrong"), ContextTooLong("long"), ModelRefused("no"), ModelError("odd")])
async def test_by_default_only_an_unavailable_model_falls_back(error: ModelError) -> None:
    with pytest.raises(type(error)) as caught:
        await drain_stream(FallbackModel([FailingModel(error), FailingModel(GOOD)]))
    assert caught.value is error


async def test_other_errors_fall_back_if_named() -> None:
    for on in ([ContextTooLong], [ModelRefused], [ModelError]):
        chunks = await drain_stream(FallbackModel([FailingModel(ContextTooLong("long")), FailingModel(GOOD)], on=on))
        assert chunks[0] == RetryChunk("context_too_long", "long", "trying")
        assert chunks[-2:] == GOOD


async def test_a_bad_request_falls_back_only_if_named() -> None:
    with pytest.raises(BadRequest):
        await drain_stream(FallbackModel([FailingModel(BadRequest("wrong")), FailingModel(GOOD)], on=[ModelError]))
    chunks = await drain_stream(FallbackModel([FailingModel(BadRequest("wrong")), FailingModel(GOOD)], on=[BadRequest]))
    assert chunks[-2:] == GOOD


async def test_an_error_without_fallback_of_a_later_model_is_raised() -> None:
    with pytest.raises(BadRequest, match=r"^wrong \(no model answered; trying: model_unavailable, trying: bad_request"):
        await drain_stream(
            FallbackModel(
                [FailingModel(ModelUnavailable("busy")), FailingModel(BadRequest("wrong")), FailingModel(GOOD)]
            )
        )


def test_a_fallback_has_the_name_of_its_first_model_by_default() -> None:
    models = [named_model("a", say("")), named_model("b", say(""))]
    assert (FallbackModel(models).name, FallbackModel(models, name="safe").name) == ("a", "safe")


def test_a_fallback_needs_a_model() -> None:
    with pytest.raises(ConfigError, match="at least one model"):
        FallbackModel([])


class PricedModel(ScriptedModel):
    def __init__(self, cost: float, output: float) -> None:
        super().__init__(say("Hi."))
        self.cost, self.output = cost, output
        self.closed = 0

    def estimate(self, prompt: Prompt) -> Estimate:
        return Estimate(usage=Usage(input=10, cost=self.cost), output_price=self.output)

    async def close(self) -> None:
        self.closed += 1
        if self.cost > 1:
            raise OSError("stuck")


def test_the_estimate_of_a_fallback_is_that_of_the_most_expensive_model() -> None:
    model = FallbackModel([PricedModel(0.1, 0.5), ScriptedModel(say("Hi.")), PricedModel(0.3, 0.2)])
    assert isinstance(model, CostEstimator)
    assert model.estimate(PROMPT) == Estimate(usage=Usage(input=10, cost=0.3), output_price=0.5)


class UnpricedModel(PricedModel):
    def estimate(self, prompt: Prompt) -> Estimate:
        return Estimate(usage=Usage(input=10), unpriced="unknown price", max_tokens=9)


def test_the_price_of_a_fallback_is_unknown_if_that_of_one_model_is() -> None:
    model = FallbackModel([PricedModel(0.1, 0.5), UnpricedModel(0, 0)])
    assert model.estimate(PROMPT) == Estimate(
        usage=Usage(input=10, cost=0.1), output_price=0.5, takes=9, unpriced="unknown price"
    )
    assert FallbackModel([UnpricedModel(0, 0)]).estimate(PROMPT).max_tokens == 9


async def test_all_models_are_closed_once_even_when_one_fails_to_close() -> None:
    stuck, fine = PricedModel(2, 0), PricedModel(0, 0)
    with pytest.raises(OSError, match="stuck"):
        await FallbackModel([stuck, fine, stuck, ScriptedModel(say("Hi."))]).close()
    assert (stuck.closed, fine.closed) == (1, 1)
