"""A model that fails repeatedly is not called for some time, then probed with one call."""

import asyncio
from contextlib import aclosing

import pytest

from tests.models.wrappers.test_retry import GOOD, FailingModel
from vaka.core.ports.model import Chunk, TextChunk
from vaka.core.types.errors import BadRequest, ConfigError, ModelError, ModelUnavailable, RateLimited, StreamCut
from vaka.models.wrappers.resilience import CircuitBreaker, FallbackModel
from vaka.testing.clock import FakeClock
from vaka.testing.models import PROMPT, FunctionModel, drain_stream


async def error_of(model: CircuitBreaker) -> ModelUnavailable:
    with pytest.raises(ModelUnavailable) as caught:
        await drain_stream(model)
    return caught.value


def open_breaker(*more: list[Chunk] | ModelError, clock: FakeClock) -> tuple[CircuitBreaker, FailingModel]:
    """Return a breaker about to break at its second failure, and the model inside."""
    inner = FailingModel(ModelUnavailable("busy"), RateLimited("slow down"), *more)
    return CircuitBreaker(inner, failures=2, rest=30, clock=clock), inner


async def test_the_breaker_opens_after_failures_in_a_row() -> None:
    model, inner = open_breaker(clock=(clock := FakeClock()))
    assert [str(await error_of(model)) for _ in range(2)] == ["busy", "slow down"]
    clock.advance(10)
    error = await error_of(model)
    assert str(error) == ("trying was unavailable 2 times in a row (slow down) and is not called for 20 s")
    assert (error.retry_after, len(inner.numbers), model.state) == (20, 2, "open")


async def test_after_the_rest_one_answer_closes_the_breaker() -> None:
    model, inner = open_breaker(GOOD, GOOD, ModelUnavailable("busy"), GOOD, clock=(clock := FakeClock()))
    await error_of(model)
    await error_of(model)
    clock.advance(30)
    assert model.state == "half-open"
    assert await drain_stream(model) == GOOD
    assert model.state == "closed"
    await drain_stream(model)
    await error_of(model)  # counting began anew
    assert await drain_stream(model) == GOOD
    assert inner.tries == []


async def test_after_the_rest_one_failure_means_another_rest() -> None:
    model, _ = open_breaker(ModelUnavailable("still busy"), clock=(clock := FakeClock()))
    await error_of(model)
    await error_of(model)
    clock.advance(31)
    assert str(await error_of(model)) == "still busy"
    error = await error_of(model)
    assert (error.retry_after, model.state) == (30, "open")
    assert "3 times in a row (still busy)" in str(error)


async def test_while_one_call_probes_the_others_are_rejected() -> None:
    model, _ = open_breaker(GOOD, clock=(clock := FakeClock()))
    await error_of(model)
    await error_of(model)
    clock.advance(30)
    async with aclosing(model.stream(PROMPT)) as probe:
        assert await anext(probe) == TextChunk("Yes.")
        error = await error_of(model)
        assert (error.retry_after, "another call probes" in str(error)) == (1, True)
        assert [chunk async for chunk in probe] == GOOD[1:]
    assert model.state == "closed"


async def test_a_cancelled_probe_leaves_the_breaker_half_open() -> None:
    model, _ = open_breaker(GOOD, GOOD, clock=(clock := FakeClock()))
    await error_of(model)
    await error_of(model)
    clock.advance(30)
    async with aclosing(model.stream(PROMPT)) as probe:
        await anext(probe)
    assert model.state == "half-open"
    assert await drain_stream(model) == GOOD


async def test_a_cancelled_call_counts_neither_way() -> None:
    async def hang(prompt: object) -> str:
        await asyncio.Event().wait()
        return ""

    model = CircuitBreaker(FunctionModel(hang), failures=1)
    task = asyncio.create_task(drain_stream(model))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), model.state) == (True, "closed")


async def test_an_answer_in_between_begins_the_count_anew() -> None:
    inner = FailingModel(ModelUnavailable("busy"), GOOD, ModelUnavailable("busy"), GOOD)
    model = CircuitBreaker(inner, failures=2)
    await error_of(model)
    await drain_stream(model)
    await error_of(model)
    assert (await drain_stream(model), model.state) == (GOOD, "closed")


async def test_an_answer_that_was_cut_counts() -> None:
    model = CircuitBreaker(FailingModel([TextChunk("Ye")], StreamCut("broken")), failures=2, clock=FakeClock())
    assert await drain_stream(model) == [TextChunk("Ye")]
    await error_of(model)
    assert model.state == "open"


async def test_errors_that_say_nothing_of_the_model_do_not_count() -> None:
    bad = BadRequest("wrong")
    model, _ = open_breaker(bad, ModelError("odd"), GOOD, clock=(clock := FakeClock()))
    await error_of(model)
    await error_of(model)
    clock.advance(30)
    for _ in range(2):
        with pytest.raises(ModelError):
            await drain_stream(model)
    assert model.state == "half-open"
    assert await drain_stream(model) == GOOD
    alone = CircuitBreaker(FailingModel(*[bad] * 3), failures=1)
    for _ in range(3):
        with pytest.raises(BadRequest):
            await drain_stream(alone)
    assert alone.state == "closed"


async def test_calls_that_began_before_the_rest_do_not_make_it_longer() -> None:
    clock = FakeClock()
    model = CircuitBreaker(FailingModel([TextChunk("a")], ModelUnavailable("busy")), failures=1, rest=30, clock=clock)
    async with aclosing(model.stream(PROMPT)) as early:
        await anext(early)
        await error_of(model)
        clock.advance(20)
        assert [chunk async for chunk in early] == []  # cut, late
    assert (await error_of(model)).retry_after == 10


async def test_a_fallback_goes_around_a_model_that_rests() -> None:
    resting = CircuitBreaker(FailingModel(ModelUnavailable("busy")), failures=1, clock=FakeClock())
    model = FallbackModel([resting, FailingModel(GOOD, GOOD)])
    assert (await drain_stream(model))[-2:] == GOOD
    assert (await drain_stream(model))[-2:] == GOOD


@pytest.mark.parametrize("wrong", [{"failures": 0}, {"rest": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least 1 failure"):
        CircuitBreaker(FailingModel(), **wrong)  # type: ignore[arg-type]  # that is the point
