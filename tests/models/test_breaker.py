"""A model that fails again and again is left alone, and asked again with care."""

import asyncio
from contextlib import aclosing

import pytest

from tests.models.test_retry import GOOD, Trying
from vaka.core.ports.model import Chunk, TextChunk
from vaka.core.types.errors import BadRequest, ConfigError, ModelError, ModelUnavailable, RateLimited, StreamCut
from vaka.models.breaker import Breaker
from vaka.models.fallback import Fallback
from vaka.testing.clock import FakeClock
from vaka.testing.models import PROMPT, FunctionModel, drain


async def failing(model: Breaker) -> ModelUnavailable:
    with pytest.raises(ModelUnavailable) as caught:
        await drain(model)
    return caught.value


def broken(*more: list[Chunk] | ModelError, clock: FakeClock) -> tuple[Breaker, Trying]:
    """Return a breaker about to break at its second failure, and the model inside."""
    inner = Trying(ModelUnavailable("busy"), RateLimited("slow down"), *more)
    return Breaker(inner, failures=2, rest=30, clock=clock), inner


async def test_after_so_many_failures_in_a_row_nobody_asks() -> None:
    model, inner = broken(clock=(clock := FakeClock()))
    assert [str(await failing(model)) for _ in range(2)] == ["busy", "slow down"]
    clock.advance(10)
    error = await failing(model)
    assert str(error) == (
        "trying was unavailable 2 times in a row (slow down) and is left alone; it is asked again in 20 s"
    )
    assert (error.retry_after, len(inner.numbers), model.state) == (20, 2, "open")


async def test_after_the_rest_one_answer_closes_it() -> None:
    model, inner = broken(GOOD, GOOD, ModelUnavailable("busy"), GOOD, clock=(clock := FakeClock()))
    await failing(model)
    await failing(model)
    clock.advance(30)
    assert model.state == "half-open"
    assert await drain(model) == GOOD
    assert model.state == "closed"
    await drain(model)
    await failing(model)  # counting began anew
    assert await drain(model) == GOOD
    assert inner.tries == []


async def test_after_the_rest_one_failure_means_another_rest() -> None:
    model, _ = broken(ModelUnavailable("still busy"), clock=(clock := FakeClock()))
    await failing(model)
    await failing(model)
    clock.advance(31)
    assert str(await failing(model)) == "still busy"
    error = await failing(model)
    assert (error.retry_after, model.state) == (30, "open")
    assert "3 times in a row (still busy)" in str(error)


async def test_while_one_call_finds_out_the_others_are_told_to_wait() -> None:
    model, _ = broken(GOOD, clock=(clock := FakeClock()))
    await failing(model)
    await failing(model)
    clock.advance(30)
    async with aclosing(model.stream(PROMPT)) as probe:
        assert await anext(probe) == TextChunk("Yes.")
        error = await failing(model)
        assert (error.retry_after, "another call finds out" in str(error)) == (1, True)
        assert [chunk async for chunk in probe] == GOOD[1:]
    assert model.state == "closed"


async def test_a_call_that_is_given_up_leaves_the_question_to_the_next() -> None:
    model, _ = broken(GOOD, GOOD, clock=(clock := FakeClock()))
    await failing(model)
    await failing(model)
    clock.advance(30)
    async with aclosing(model.stream(PROMPT)) as probe:
        await anext(probe)
    assert model.state == "half-open"
    assert await drain(model) == GOOD


async def test_a_cancelled_call_counts_neither_way() -> None:
    async def hang(prompt: object) -> str:
        await asyncio.Event().wait()
        return ""

    model = Breaker(FunctionModel(hang), failures=1)
    task = asyncio.create_task(drain(model))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), model.state) == (True, "closed")


async def test_an_answer_in_between_begins_the_count_anew() -> None:
    inner = Trying(ModelUnavailable("busy"), GOOD, ModelUnavailable("busy"), GOOD)
    model = Breaker(inner, failures=2)
    await failing(model)
    await drain(model)
    await failing(model)
    assert (await drain(model), model.state) == (GOOD, "closed")


async def test_an_answer_that_was_cut_counts() -> None:
    model = Breaker(Trying([TextChunk("Ye")], StreamCut("broken")), failures=2, clock=FakeClock())
    assert await drain(model) == [TextChunk("Ye")]
    await failing(model)
    assert model.state == "open"


async def test_errors_that_say_nothing_of_the_model_do_not_count() -> None:
    bad = BadRequest("wrong")
    model, _ = broken(bad, ModelError("odd"), GOOD, clock=(clock := FakeClock()))
    await failing(model)
    await failing(model)
    clock.advance(30)
    for _ in range(2):
        with pytest.raises(ModelError):
            await drain(model)
    assert model.state == "half-open"
    assert await drain(model) == GOOD
    alone = Breaker(Trying(*[bad] * 3), failures=1)
    for _ in range(3):
        with pytest.raises(BadRequest):
            await drain(alone)
    assert alone.state == "closed"


async def test_calls_that_began_before_the_rest_do_not_make_it_longer() -> None:
    clock = FakeClock()
    model = Breaker(Trying([TextChunk("a")], ModelUnavailable("busy")), failures=1, rest=30, clock=clock)
    async with aclosing(model.stream(PROMPT)) as early:
        await anext(early)
        await failing(model)
        clock.advance(20)
        assert [chunk async for chunk in early] == []  # cut, late
    assert (await failing(model)).retry_after == 10


async def test_a_fallback_goes_around_a_model_that_rests() -> None:
    resting = Breaker(Trying(ModelUnavailable("busy")), failures=1, clock=FakeClock())
    model = Fallback([resting, Trying(GOOD, GOOD)])
    assert (await drain(model))[-2:] == GOOD
    assert (await drain(model))[-2:] == GOOD


@pytest.mark.parametrize("wrong", [{"failures": 0}, {"rest": 0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least 1 failure"):
        Breaker(Trying(), **wrong)  # type: ignore[arg-type]  # that is the point
