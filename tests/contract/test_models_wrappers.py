"""The model contract for every wrapper, alone and stacked."""

from collections.abc import Callable

import msgspec
import pytest

from vaka.core.ports.model import CostEstimator, Estimate, Model, Prompt
from vaka.core.types.message import Usage
from vaka.models.completion import SimulatedStream, complete
from vaka.models.text_calls.model import TextCalls
from vaka.models.wrappers.model_wrapper import TextOnly
from vaka.models.wrappers.pool import ModelPool
from vaka.models.wrappers.resilience import CircuitBreaker, FallbackModel, RateLimitedModel, RetryingModel
from vaka.testing.clock import FakeClock, FakeRandom
from vaka.testing.models import ModelContract, ScriptedModel, ScriptLine, say

Wrapper = Callable[[Model], Model]


def add_retry(inner: Model) -> Model:
    return RetryingModel(inner, clock=FakeClock(auto=True), random=FakeRandom())


def add_fallback(inner: Model) -> Model:
    return FallbackModel([inner, inner])


def add_pool(inner: Model) -> Model:
    return ModelPool({"low": inner}, ScriptedModel(say("I am another."))).choose("low")


def add_limits(inner: Model) -> Model:
    return RateLimitedModel(
        inner, concurrent=3, requests_per_minute=600, tokens_per_minute=100_000, clock=FakeClock(auto=True)
    )


def add_breaker(inner: Model) -> Model:
    return CircuitBreaker(inner, failures=5, clock=FakeClock(auto=True))


def add_simulated_stream(inner: Model) -> Model:
    return SimulatedStream(lambda prompt: complete(inner, prompt), name=inner.name, piece=3)


def add_text_calls(inner: Model) -> Model:
    return TextCalls(inner)


def add_text_only(inner: Model) -> Model:
    return TextOnly(inner)


WRAPPERS: list[Wrapper] = [
    add_retry,
    add_fallback,
    add_pool,
    add_limits,
    add_breaker,
    add_text_calls,
    add_text_only,
    add_simulated_stream,
]
STACKS: list[list[Wrapper]] = [
    [add_retry, add_limits, add_breaker],
    [add_breaker, add_fallback, add_retry],
    [add_pool, add_limits, add_fallback, add_retry],
    [add_limits, add_breaker, add_pool, add_retry, add_text_calls, add_fallback],
    [add_text_calls, add_text_only, add_retry, add_limits],
]


def wrap_model(answer: ScriptLine, wrappers: list[Wrapper]) -> Model:
    model: Model = ScriptedModel(answer | {"repeat": True})
    for wrapper in reversed(wrappers):
        model = wrapper(model)
    return model


class TestAlone(ModelContract):
    @pytest.fixture(params=WRAPPERS, ids=lambda wrapper: str(wrapper.__name__))
    def answering(self, request: pytest.FixtureRequest) -> Callable[[ScriptLine], Model]:
        return lambda answer: wrap_model(answer, [request.param])


class TestStacks(ModelContract):
    @pytest.fixture(params=STACKS, ids=lambda stack: "-".join(wrapper.__name__ for wrapper in stack))
    def answering(self, request: pytest.FixtureRequest) -> Callable[[ScriptLine], Model]:
        return lambda answer: wrap_model(answer, request.param)


class TestCallsInText(ModelContract):
    """The model inside writes its calls as text; arguments that are not JSON cannot be written this way."""

    @pytest.fixture(params=["fenced", "sentence", "function"])
    def answering(self, request: pytest.FixtureRequest) -> Callable[[ScriptLine], Model]:
        def model(answer: ScriptLine) -> Model:
            made = answer.get("tool_calls", ())
            if all(isinstance(call.get("arguments", {}), dict) for call in made) and made:
                answer = answer | {"text": calls_as_text(answer, request.param), "tool_calls": []}
            return TextCalls(ScriptedModel(answer | {"repeat": True}))

        return model


def calls_as_text(answer: ScriptLine, form: str) -> str:
    calls = [(call["name"], msgspec.json.encode(call["arguments"]).decode()) for call in answer["tool_calls"]]
    blocks = {
        "fenced": [f'```json\n{{"tool": "{name}", "parameters": {arguments}}}\n```' for name, arguments in calls],
        "sentence": [f"Using the tool '{name}' with parameters: {arguments}" for name, arguments in calls],
        "function": [f"{name}({arguments})" for name, arguments in calls],
    }
    return "\n\n".join([*filter(None, [answer.get("text")]), *blocks[form]])


class PricedModel(ScriptedModel):
    """A model that knows its price and can be closed."""

    def __init__(self) -> None:
        super().__init__(say("Hi."))
        self.close_count = 0

    def estimate(self, prompt: Prompt) -> Estimate:
        return Estimate(usage=Usage(input=len(prompt.messages)), output_price=0.5)

    async def close(self) -> None:
        self.close_count += 1


MODEL_WRAPPERS = [wrapper for wrapper in WRAPPERS if wrapper is not add_simulated_stream]


@pytest.mark.parametrize("stack", [*([wrapper] for wrapper in MODEL_WRAPPERS), *STACKS])
def test_a_wrapper_estimates_a_price_if_and_only_if_its_model_does(stack: list[Wrapper]) -> None:
    priced: Model = PricedModel()
    plain: Model = ScriptedModel(say("Hi."))
    for wrapper in reversed(stack):
        priced, plain = wrapper(priced), wrapper(plain)
    assert isinstance(priced, CostEstimator)
    prompt = Prompt(messages=())
    assert priced.estimate(prompt) == Estimate(usage=Usage(), output_price=0.5)
    assert not isinstance(plain, CostEstimator)


@pytest.mark.parametrize("stack", [*([wrapper] for wrapper in MODEL_WRAPPERS), *STACKS])
async def test_closing_a_wrapper_closes_the_model_once(stack: list[Wrapper]) -> None:
    inner = PricedModel()
    model: Model = inner
    for wrapper in reversed(stack):
        model = wrapper(model)
    await model.close()  # type: ignore[attr-defined]  # every wrapper has it
    assert inner.close_count == 1


@pytest.mark.parametrize("wrapper", MODEL_WRAPPERS)
async def test_closing_a_wrapper_around_a_model_that_holds_nothing_does_nothing(wrapper: Wrapper) -> None:
    await wrapper(ScriptedModel(say("Hi."))).close()  # type: ignore[attr-defined]  # every wrapper has it
