"""Retries: only of temporary errors, with growing delays, and a RetryChunk before each."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from tests.runtime.runtime_fixtures import agent, check_log, last_body, read_log, runtime
from vaka.core.ports.model import Chunk, Prompt, RetryChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import (
    AuthenticationFailed,
    BadRequest,
    ConfigError,
    ContextTooLong,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    StreamCut,
    Truncated,
)
from vaka.core.types.message import Usage
from vaka.core.types.monitor import ModelFailed
from vaka.core.types.progress import MessageDiscarded
from vaka.models.wrappers.resilience import FallbackModel, RetryingModel
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock, FakeRandom
from vaka.testing.models import PROMPT, ScriptedModel, drain_stream, fail, say


class FailingModel:
    """A model whose n-th call says the n-th chunks, or raises the n-th error."""

    name = "trying"

    def __init__(self, *tries: list[Chunk] | ModelError) -> None:
        self.tries = list(tries)
        self.numbers: list[int] = []
        self.open = 0

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        self.numbers.append(prompt.number)
        tried = self.tries.pop(0)
        self.open += 1
        try:
            if isinstance(tried, ModelError):
                raise tried
            for chunk in tried:
                yield chunk
        finally:
            self.open -= 1


class RecordingClock(FakeClock):
    """A clock on which sleeping takes no time, but is noted."""

    def __init__(self) -> None:
        super().__init__(auto=True)
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(seconds)


GOOD: list[Chunk] = [TextChunk("Yes."), StopChunk()]


async def test_an_answer_of_the_first_attempt_is_passed_on_unchanged() -> None:
    assert await drain_stream(RetryingModel(FailingModel(GOOD))) == GOOD


async def test_a_retry_chunk_comes_before_each_new_attempt() -> None:
    model = RetryingModel(
        FailingModel(ModelUnavailable("busy", status=529), RateLimited("slow down"), GOOD), clock=FakeClock(auto=True)
    )
    assert await drain_stream(model) == [
        RetryChunk("model_unavailable", "busy", "trying"),
        RetryChunk("rate_limited", "slow down", "trying"),
        *GOOD,
    ]


async def test_a_retry_discards_the_streamed_part_of_a_cut_answer() -> None:
    half: list[Chunk] = [TextChunk("Ye"), UsageChunk(Usage(input=3))]
    assert await drain_stream(RetryingModel(FailingModel(half, GOOD), clock=FakeClock(auto=True))) == [
        *half,
        RetryChunk("stream_cut", "the answer of trying was cut: it ended without its end marker", "trying"),
        *GOOD,
    ]


async def test_the_random_delay_before_a_retry_grows() -> None:
    clock = RecordingClock()
    model = FailingModel(*(ModelUnavailable("busy") for _ in range(6)))
    with pytest.raises(ModelUnavailable):
        await drain_stream(
            RetryingModel(model, attempts=6, base=1, most=5, clock=clock, random=FakeRandom(0.5, 0.5, 0.5, 0.0, 0.9))
        )
    assert clock.slept == [0.5, 1.0, 2.0, 0.0, 4.5]


async def test_a_retry_waits_at_least_as_long_as_the_provider_asks() -> None:
    clock = RecordingClock()
    model = FailingModel(RateLimited("slow down", retry_after=20), RateLimited("slow down", retry_after=60), GOOD)
    await drain_stream(RetryingModel(model, base=1, clock=clock, random=FakeRandom(0.5, 0.0)))
    assert clock.slept == [20.5, 60.0]


async def test_a_delay_beyond_patience_is_not_waited_for() -> None:
    clock = RecordingClock()
    with pytest.raises(RateLimited, match=r"^tomorrow$") as caught:
        await drain_stream(RetryingModel(FailingModel(RateLimited("tomorrow", retry_after=61)), clock=clock))
    assert (caught.value.retry_after, clock.slept) == (61, [])
    with pytest.raises(RateLimited):
        await drain_stream(RetryingModel(FailingModel(RateLimited("soon", retry_after=3)), patience=2, clock=clock))


async def test_the_last_error_is_raised_with_the_number_of_attempts() -> None:
    model = FailingModel(
        ModelUnavailable("busy"), StreamCut("broken", status=None), RateLimited("slow down", status=429)
    )
    with pytest.raises(RateLimited, match=r"^slow down \(tried 3 times\)$") as caught:
        await drain_stream(RetryingModel(model, attempts=3, clock=FakeClock(auto=True)))
    assert caught.value.status == 429


@pytest.mark.parametrize(
    "error",
    [
        ModelRefused("no"),
        BadRequest("wrong"),
        AuthenticationFailed("who?"),
        ContextTooLong("long"),
        Truncated("cut"),
        ModelError("odd"),
    ],
)
async def test_permanent_errors_are_not_retried(error: ModelError) -> None:
    model = FailingModel(error, GOOD)
    with pytest.raises(type(error)) as caught:
        await drain_stream(RetryingModel(model, clock=FakeClock(auto=True)))
    assert caught.value is error
    assert model.numbers == [1]


async def test_attempts_are_numbered_across_nested_retries() -> None:
    inner, other = FailingModel(ModelUnavailable("a"), GOOD), FailingModel(ModelUnavailable("b"))
    await drain_stream(RetryingModel(FallbackModel([inner, other]), clock=FakeClock(auto=True)))
    assert (inner.numbers, other.numbers) == ([1, 3], [2])
    within = FailingModel(*(ModelUnavailable("a") for _ in range(3)), GOOD)
    await drain_stream(
        RetryingModel(RetryingModel(within, attempts=2, clock=FakeClock(auto=True)), clock=FakeClock(auto=True))
    )
    assert within.numbers == [1, 2, 3, 4]


async def test_nothing_is_read_after_the_end_marker() -> None:
    model = FailingModel([*GOOD, TextChunk("more")])
    assert await drain_stream(RetryingModel(model)) == GOOD
    assert model.open == 0


async def test_closing_in_the_middle_closes_the_stream_inside() -> None:
    model = FailingModel(ModelUnavailable("busy"), GOOD)
    async with aclosing(RetryingModel(model, clock=FakeClock(auto=True)).stream(PROMPT)) as chunks:
        assert [await anext(chunks), await anext(chunks)] == [
            RetryChunk("model_unavailable", "busy", "trying"),
            TextChunk("Yes."),
        ]
        assert model.open == 1
    assert model.open == 0


async def test_a_wait_can_be_cancelled() -> None:
    clock, model = FakeClock(), FailingModel(ModelUnavailable("busy"), GOOD)
    task = asyncio.create_task(drain_stream(RetryingModel(model, clock=clock, random=FakeRandom(0.5))))
    await clock.wait_for_sleeps()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert (clock.sleep_count, model.numbers) == (0, [1])


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"base": -1}, {"most": -1}, {"patience": -0.5}])
def test_invalid_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least 1 attempt"):
        RetryingModel(FailingModel(), **wrong)  # type: ignore[arg-type]  # that is the point


async def test_a_turn_continues_and_the_log_has_every_attempt_with_its_usage() -> None:
    half: list[Chunk] = [TextChunk("Ha"), UsageChunk(Usage(input=7))]
    whole: list[Chunk] = [TextChunk("Yes."), UsageChunk(Usage(input=5, output=1)), StopChunk()]
    store = MemoryStore()
    async with runtime(store) as rt:
        model = RetryingModel(FailingModel(half, ModelUnavailable("busy"), whole), clock=FakeClock(auto=True))
        session = await rt.open(agent(model), id="s")
        assert (await session.run("Go.")).text == "Yes."
    log = await read_log(store, "s")
    check_log(log)
    failed = [event.data for event in log if isinstance(event.data, ModelFailed)]
    assert [(event.model, event.code, event.retried) for event in failed] == [
        ("trying", "stream_cut", True),
        ("trying", "model_unavailable", True),
    ]
    dropped = [event.data.message_id for event in log if isinstance(event.data, MessageDiscarded)]
    assert dropped == [event.message_id for event in failed]
    assert last_body(log).usage == Usage(input=12, output=1)


async def test_each_attempt_uses_the_next_scripted_line() -> None:
    model = RetryingModel(ScriptedModel(fail(529, "busy"), fail(503, "busy"), say("Yes.")), clock=FakeClock(auto=True))
    async with runtime() as rt:
        session = await rt.open(agent(model))
        assert (await session.run("Go.")).text == "Yes."
