"""Concurrent calls and calls per minute are limited, in the order of arrival."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from vaka.core.ports.model import Chunk, Estimate, Prompt, RetryChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import Usage
from vaka.models.wrappers.resilience import RateLimitedModel
from vaka.testing.clock import FakeClock
from vaka.testing.models import drain_stream


class GatedModel:
    """A model whose calls end when the test lets them, each costing what the test says."""

    name = "gate"

    def __init__(self, *, price: float | None = None) -> None:
        self.begun: list[str] = []
        self.tokens = 0
        self.again = 0
        self.opened: asyncio.Event | None = None
        if price is not None:
            self.estimate = lambda prompt: self._estimate(prompt, price)

    def _estimate(self, prompt: Prompt, price: float) -> Estimate:
        if price < 0:
            raise ConfigError("no price")
        return Estimate(usage=Usage(input=int(price)))

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        self.begun.append(prompt.session)
        if self.opened is not None:
            await self.opened.wait()
        if self.again:
            yield UsageChunk(Usage(input=self.again))
            yield RetryChunk("stream_cut", "cut", "gate")
        if self.tokens:
            yield UsageChunk(Usage(input=1))
            yield UsageChunk(Usage(input=self.tokens - 1, output=1))
        yield StopChunk()


def prompt_of(session: str, size: int = 0) -> Prompt:
    """Return a prompt of ``size`` tokens."""
    return Prompt(messages=(), system="x" * 4 * size, session=session)


async def run_ready_tasks() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def start_calls(model: RateLimitedModel, *prompts: Prompt) -> list["asyncio.Task[Any]"]:
    return [asyncio.create_task(drain_stream(model, prompt)) for prompt in prompts]


async def test_concurrent_calls_are_limited_in_order_of_arrival() -> None:
    gate = GatedModel()
    gate.opened = asyncio.Event()
    model = RateLimitedModel(gate, concurrent=2)
    tasks = start_calls(model, *map(prompt_of, "abcde"))
    await run_ready_tasks()
    assert (gate.begun, model.waiting_calls) == (["a", "b"], 3)
    gate.opened.set()
    await asyncio.gather(*tasks)
    assert (gate.begun, model.waiting_calls) == (list("abcde"), 0)


async def test_a_call_holds_its_place_until_its_stream_is_closed() -> None:
    model = RateLimitedModel(GatedModel(), concurrent=1)
    async with aclosing(model.stream(prompt_of("a"))) as chunks:
        await anext(chunks)
        (second,) = start_calls(model, prompt_of("b"))
        await run_ready_tasks()
        assert model.waiting_calls == 1
    await second


async def test_requests_of_one_minute_may_start_at_once_and_then_evenly() -> None:
    clock, gate = FakeClock(), GatedModel()
    model = RateLimitedModel(gate, requests_per_minute=2, clock=clock)
    tasks = start_calls(model, *map(prompt_of, "abcd"))
    await clock.wait_for_sleeps()
    assert gate.begun == ["a", "b"]
    clock.advance(29.9)
    await run_ready_tasks()
    assert gate.begun == ["a", "b"]
    clock.advance(0.1)
    await run_ready_tasks()
    assert gate.begun == ["a", "b", "c"]
    clock.advance(30)
    await asyncio.gather(*tasks)
    clock.advance(3600)  # a long silence gives no more than a minute's worth
    tasks = start_calls(model, *map(prompt_of, "efg"))
    await clock.wait_for_sleeps()
    assert gate.begun == list("abcdef")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_tokens_are_taken_by_estimate_and_corrected_by_usage() -> None:
    clock, gate = FakeClock(), GatedModel()
    model = RateLimitedModel(gate, tokens_per_minute=600, clock=clock)
    gate.tokens = 100
    await drain_stream(model, prompt_of("a", 500))  # 500 are left of 600
    gate.tokens = 700
    await drain_stream(model, prompt_of("b", 400))  # 200 too many
    (third,) = start_calls(model, prompt_of("c", 100))
    await clock.wait_for_sleeps()
    clock.advance(29)
    await run_ready_tasks()
    assert gate.begun == ["a", "b"]
    clock.advance(1)
    await third


async def test_returned_tokens_wake_the_next_call() -> None:
    clock, gate = FakeClock(), GatedModel()
    gate.opened, gate.tokens = asyncio.Event(), 10
    model = RateLimitedModel(gate, tokens_per_minute=600, clock=clock)
    tasks = start_calls(model, prompt_of("a", 600), prompt_of("b", 300))
    await clock.wait_for_sleeps()
    assert gate.begun == ["a"]
    gate.opened.set()
    await asyncio.gather(*tasks)  # the clock stood still
    assert (gate.begun, clock.sleep_count) == (["a", "b"], 0)


async def test_failed_attempts_count_against_the_limit() -> None:
    clock, gate = FakeClock(), GatedModel()
    gate.again, gate.tokens = 400, 200
    model = RateLimitedModel(gate, tokens_per_minute=600, clock=clock)
    await drain_stream(model, prompt_of("a", 1))
    (second,) = start_calls(model, prompt_of("b", 1))
    await clock.wait_for_sleeps()
    clock.advance(0.1)
    await second


async def test_a_prompt_larger_than_a_minutes_worth_waits_for_all_of_it() -> None:
    clock, gate = FakeClock(), GatedModel()
    model = RateLimitedModel(gate, tokens_per_minute=60, clock=clock)
    await drain_stream(model, prompt_of("a", 10_000))  # full: it goes, and what it cost is owed
    gate.tokens = 0
    (second,) = start_calls(model, prompt_of("b", 1))
    await clock.wait_for_sleeps()
    clock.advance(9_940)
    await run_ready_tasks()
    assert gate.begun == ["a"]
    clock.advance(1)
    await second


async def test_a_small_call_does_not_overtake_a_waiting_one() -> None:
    clock, gate = FakeClock(), GatedModel()
    model = RateLimitedModel(gate, tokens_per_minute=60, clock=clock)
    await drain_stream(model, prompt_of("a", 50))
    tasks = start_calls(model, prompt_of("large", 40), prompt_of("small", 1))
    await clock.wait_for_sleeps()
    assert gate.begun == ["a"]
    clock.advance(60)
    await asyncio.gather(*tasks)
    assert gate.begun == ["a", "large", "small"]


async def test_a_call_cancelled_while_it_waits_uses_no_tokens() -> None:
    clock, gate = FakeClock(), GatedModel()
    gate.opened = asyncio.Event()
    model = RateLimitedModel(gate, concurrent=1, tokens_per_minute=60, clock=clock)
    tasks = start_calls(model, prompt_of("a", 50), prompt_of("b", 40), prompt_of("c", 1), prompt_of("d", 1))
    await run_ready_tasks()
    for given_up in tasks[1:3]:  # the first in line and the one behind it
        given_up.cancel()
    gate.opened.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in done] == [False, True, True, False]
    assert (gate.begun, model.waiting_calls, clock.sleep_count) == (["a", "d"], 0, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_first_waiting_call_may_be_cancelled() -> None:
    clock, gate = FakeClock(), GatedModel()
    model = RateLimitedModel(gate, tokens_per_minute=60, clock=clock)
    await drain_stream(model, prompt_of("a", 55))
    first, second = start_calls(model, prompt_of("b", 40), prompt_of("c", 5))
    await clock.wait_for_sleeps()
    first.cancel()
    await second
    assert (gate.begun, clock.sleep_count, model.waiting_calls) == (["a", "c"], 0, 0)


async def test_the_estimate_of_the_model_is_used_for_the_size_of_a_prompt() -> None:
    clock, gate = FakeClock(), GatedModel(price=60)
    model = RateLimitedModel(gate, tokens_per_minute=60, clock=clock)
    await drain_stream(model, prompt_of("a"))
    (second,) = start_calls(model, prompt_of("b"))
    await clock.wait_for_sleeps()
    clock.advance(60)
    await second
    unknown = RateLimitedModel(GatedModel(price=-1), tokens_per_minute=60, clock=clock)
    await drain_stream(unknown, prompt_of("a", 60))
    (second,) = start_calls(unknown, prompt_of("b", 1))
    await clock.wait_for_sleeps()
    clock.advance(1)
    await second


def test_one_wrapper_serves_one_event_loop_after_another() -> None:
    model = RateLimitedModel(GatedModel(), concurrent=1, requests_per_minute=6000)

    async def many() -> None:
        await asyncio.gather(*start_calls(model, *map(prompt_of, "abc")))

    asyncio.run(many())
    asyncio.run(many())
    assert model.waiting_calls == 0


@pytest.mark.parametrize("wrong", [0, -1, math.inf, math.nan])
@pytest.mark.parametrize("name", ["concurrent", "requests_per_minute", "tokens_per_minute"])
def test_invalid_limits_are_refused(name: str, wrong: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be more than 0"):
        RateLimitedModel(GatedModel(), **{name: wrong})  # type: ignore[arg-type]  # that is the point


async def test_text_passes_as_it_comes() -> None:
    class Says(GatedModel):
        async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
            yield TextChunk("a")
            yield StopChunk()

    assert await drain_stream(RateLimitedModel(Says(), concurrent=1), prompt_of("a")) == [TextChunk("a"), StopChunk()]
