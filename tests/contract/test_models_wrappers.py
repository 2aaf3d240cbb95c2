"""Every wrapper keeps every promise of a model, alone and in any stack of them."""

from collections.abc import Callable

import msgspec
import pytest

from vaka.core.ports.model import Estimate, Estimates, Model, Prompt
from vaka.core.types.usage import Usage
from vaka.models.breaker import Breaker
from vaka.models.fallback import Fallback
from vaka.models.limit import Limited
from vaka.models.past import TextOnly
from vaka.models.pool import ModelPool
from vaka.models.retry import Retry
from vaka.models.simulated import Simulated
from vaka.models.text_calls import TextCalls
from vaka.models.whole import complete
from vaka.testing.clock import FakeClock, FakeRandom
from vaka.testing.models import Answer, ModelContract, ScriptedModel, say

Wrapping = Callable[[Model], Model]


def retry(inner: Model) -> Model:
    return Retry(inner, clock=FakeClock(auto=True), random=FakeRandom())


def fallback(inner: Model) -> Model:
    return Fallback([inner, inner])


def chosen(inner: Model) -> Model:
    return ModelPool({"low": inner}, ScriptedModel(say("I am another."))).choose("low")


def limited(inner: Model) -> Model:
    return Limited(inner, concurrent=3, requests_per_minute=600, tokens_per_minute=100_000, clock=FakeClock(auto=True))


def breaker(inner: Model) -> Model:
    return Breaker(inner, failures=5, clock=FakeClock(auto=True))


def simulated(inner: Model) -> Model:
    return Simulated(lambda prompt: complete(inner, prompt), name=inner.name, piece=3)


def text_calls(inner: Model) -> Model:
    return TextCalls(inner)


def text_only(inner: Model) -> Model:
    return TextOnly(inner)


WRAPPERS: list[Wrapping] = [retry, fallback, chosen, limited, breaker, text_calls, text_only, simulated]
STACKS: list[list[Wrapping]] = [
    [retry, limited, breaker],
    [breaker, fallback, retry],
    [chosen, limited, fallback, retry],
    [limited, breaker, chosen, retry, text_calls, fallback],
    [text_calls, text_only, retry, limited],
]


def wrapped(answer: Answer, wrappers: list[Wrapping]) -> Model:
    model: Model = ScriptedModel(answer | {"repeat": True})
    for wrapper in reversed(wrappers):
        model = wrapper(model)
    return model


class TestAlone(ModelContract):
    @pytest.fixture(params=WRAPPERS, ids=lambda wrapper: str(wrapper.__name__))
    def answering(self, request: pytest.FixtureRequest) -> Callable[[Answer], Model]:
        return lambda answer: wrapped(answer, [request.param])


class TestStacks(ModelContract):
    @pytest.fixture(params=STACKS, ids=lambda stack: "-".join(wrapper.__name__ for wrapper in stack))
    def answering(self, request: pytest.FixtureRequest) -> Callable[[Answer], Model]:
        return lambda answer: wrapped(answer, request.param)


class TestCallsInText(ModelContract):
    """The model inside writes its calls as text; arguments that are no JSON cannot be written so."""

    @pytest.fixture(params=["fenced", "sentence", "function"])
    def answering(self, request: pytest.FixtureRequest) -> Callable[[Answer], Model]:
        def model(answer: Answer) -> Model:
            made = answer.get("tool_calls", ())
            if all(isinstance(call.get("arguments", {}), dict) for call in made) and made:
                answer = answer | {"text": written(answer, request.param), "tool_calls": []}
            return TextCalls(ScriptedModel(answer | {"repeat": True}))

        return model


def written(answer: Answer, form: str) -> str:
    calls = [(call["name"], msgspec.json.encode(call["arguments"]).decode()) for call in answer["tool_calls"]]
    blocks = {
        "fenced": [f'```json\n{{"tool": "{name}", "parameters": {arguments}}}\n```' for name, arguments in calls],
        "sentence": [f"Using the tool '{name}' with parameters: {arguments}" for name, arguments in calls],
        "function": [f"{name}({arguments})" for name, arguments in calls],
    }
    return "\n\n".join([*filter(None, [answer.get("text")]), *blocks[form]])


class Priced(ScriptedModel):
    """A model that knows its price and can be closed."""

    def __init__(self) -> None:
        super().__init__(say("Hi."))
        self.closed = 0

    def estimate(self, prompt: Prompt) -> Estimate:
        return Estimate(usage=Usage(input=len(prompt.messages)), output_price=0.5)

    async def close(self) -> None:
        self.closed += 1


AROUND = [wrapper for wrapper in WRAPPERS if wrapper is not simulated]


@pytest.mark.parametrize("stack", [*([wrapper] for wrapper in AROUND), *STACKS])
def test_a_wrapper_tells_a_price_if_and_only_if_the_model_can(stack: list[Wrapping]) -> None:
    priced: Model = Priced()
    plain: Model = ScriptedModel(say("Hi."))
    for wrapper in reversed(stack):
        priced, plain = wrapper(priced), wrapper(plain)
    assert isinstance(priced, Estimates)
    prompt = Prompt(messages=())
    assert priced.estimate(prompt) == Estimate(usage=Usage(), output_price=0.5)
    assert not isinstance(plain, Estimates)


@pytest.mark.parametrize("stack", [*([wrapper] for wrapper in AROUND), *STACKS])
async def test_closing_a_wrapper_closes_the_model_once(stack: list[Wrapping]) -> None:
    inner = Priced()
    model: Model = inner
    for wrapper in reversed(stack):
        model = wrapper(model)
    await model.close()  # type: ignore[attr-defined]  # every wrapper has it
    assert inner.closed == 1


@pytest.mark.parametrize("wrapper", AROUND)
async def test_closing_a_wrapper_around_a_model_that_holds_nothing_does_nothing(wrapper: Wrapping) -> None:
    await wrapper(ScriptedModel(say("Hi."))).close()  # type: ignore[attr-defined]  # every wrapper has it
