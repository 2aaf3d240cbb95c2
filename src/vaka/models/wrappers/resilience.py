"""Wrappers for unreliable models: retry, fallback, circuit breaker and rate limit."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from random import Random, SystemRandom

import msgspec

from vaka.core.ports.env import Clock
from vaka.core.ports.model import (
    Chunk,
    CostEstimator,
    Estimate,
    Model,
    NoticeChunk,
    Prompt,
    RetryChunk,
    StopChunk,
    UsageChunk,
)
from vaka.core.types.errors import BadRequest, ConfigError, ModelError, ModelUnavailable
from vaka.core.types.monitor import ModelSelected
from vaka.models.tokens import TokenCounter
from vaka.models.wrappers.model_wrapper import (
    SYSTEM_CLOCK,
    ModelWrapper,
    close_models,
    stream_cut_error,
    with_call_number,
)

_EPSILON = 1e-9
"""Differences below this are rounding errors."""


class _TokenBucket:
    """Holds a minute's worth, refilled evenly; it may be overdrawn, and then has to refill first."""

    def __init__(self, per_minute: float, clock: Clock) -> None:
        self._capacity = self._level = per_minute
        self._clock, self._updated_at = clock, clock.monotonic()

    def seconds_until(self, amount: float) -> float:
        """Return the seconds until ``amount`` is available, or the bucket is full."""
        now = self._clock.monotonic()
        self._level = min(self._capacity, self._level + (now - self._updated_at) * self._capacity / 60)
        self._updated_at = now
        shortage = min(amount, self._capacity) - self._level
        return shortage * 60 / self._capacity if shortage > _EPSILON else 0.0

    def take(self, amount: float) -> None:
        """Remove ``amount``; a negative one is put back."""
        self._level = min(self._capacity, self._level - amount)


class RateLimitedModel(ModelWrapper):
    """Limits concurrent calls, calls per minute and tokens per minute; calls wait in the order of their arrival.

    Each minute's worth may be used at once and refills evenly. A call takes the estimated tokens of its prompt, and is
    corrected by the actual usage at its end. A waiting call may be cancelled without any effect.
    """

    def __init__(
        self,
        inner: Model,
        *,
        concurrent: int | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(inner)
        limits = {
            "concurrent": concurrent,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        for name, limit in limits.items():
            if limit is not None and not (limit > 0 and math.isfinite(limit)):
                raise ConfigError(f"{name} must be more than 0, got {limit!r}; leave it out for no limit")
        self._clock = clock or SYSTEM_CLOCK
        self._free_slots: float = math.inf if concurrent is None else concurrent
        self._requests = None if requests_per_minute is None else _TokenBucket(requests_per_minute, self._clock)
        self._tokens = None if tokens_per_minute is None else _TokenBucket(tokens_per_minute, self._clock)
        self._queue: deque[asyncio.Event] = deque()
        self._token_counter = TokenCounter()

    @property
    def waiting_calls(self) -> int:
        """The number of calls in the queue."""
        return len(self._queue)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Wait for this call's turn, then stream the inner model's answer."""
        estimated = self._estimate_tokens(prompt) if self._tokens is not None else 0
        await self._acquire(estimated)
        spent = last = 0
        try:
            async with aclosing(self._inner.stream(prompt)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, UsageChunk):
                        last = chunk.usage.total
                    elif isinstance(chunk, RetryChunk):
                        spent, last = spent + last, 0
                    yield chunk
        finally:
            self._release(spent + last, estimated)

    async def _acquire(self, tokens: int) -> None:
        """Wait in the queue, then take a slot and ``tokens``."""
        turn = asyncio.Event()
        self._queue.append(turn)
        try:
            while wait := self._delay_for(tokens) if self._queue[0] is turn else math.inf:
                turn.clear()
                await self._wait_for_turn(turn, wait)
            self._free_slots -= 1
            self._spend(1, tokens)
        finally:
            self._queue.remove(turn)
            self._wake_first()

    def _release(self, spent: int, estimated: int) -> None:
        self._free_slots += 1
        if spent:  # the usage of a failed call is unknown; its estimate stays taken
            self._spend(0, spent - estimated)
        self._wake_first()

    def _delay_for(self, tokens: int) -> float:
        """Return the seconds until a call may start, infinite while all slots are taken."""
        if self._free_slots < 1:
            return math.inf
        requests = self._requests.seconds_until(1) if self._requests is not None else 0.0
        return max(requests, self._tokens.seconds_until(tokens) if self._tokens is not None else 0.0)

    def _spend(self, requests: int, tokens: int) -> None:
        if self._requests is not None:
            self._requests.take(requests)
        if self._tokens is not None:
            self._tokens.take(tokens)

    def _wake_first(self) -> None:
        if self._queue:
            self._queue[0].set()

    async def _wait_for_turn(self, turn: asyncio.Event, seconds: float) -> None:
        if seconds == math.inf:
            await turn.wait()
            return
        tasks = (asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(turn.wait()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _estimate_tokens(self, prompt: Prompt) -> int:
        if hasattr(self, "estimate"):
            try:
                return self.estimate(prompt).usage.input
            except ConfigError:
                pass  # the price is unknown, the size is not
        return self._token_counter.count(prompt)


_RANDOM = SystemRandom()


class RetryingModel(ModelWrapper):
    """Calls a model up to ``attempts`` times while it is unavailable or rate limited, or its answer is cut.

    The delay is random between 0 and ``base`` seconds, doubled with each attempt up to ``most``, plus the time that the
    provider asks for; if that is more than ``patience`` seconds, the error is raised at once. A ``RetryChunk`` before
    each new attempt discards what was streamed of the answer. Refusals and answers at their length limit are not
    retried.
    """

    def __init__(
        self,
        inner: Model,
        *,
        attempts: int = 5,
        base: float = 0.5,
        most: float = 30.0,
        patience: float = 60.0,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        super().__init__(inner)
        if attempts < 1 or min(base, most, patience) < 0:
            raise ConfigError(
                "a retry needs at least 1 attempt and seconds that are not negative, "
                f"got {attempts=!r}, {base=!r}, {most=!r}, {patience=!r}"
            )
        self._attempts = attempts
        self._base = base
        self._max_delay = most
        self._patience = patience
        self._clock, self._random = clock or SYSTEM_CLOCK, random or _RANDOM

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Stream the inner model's answer, of several attempts if need be."""
        number, attempt = prompt.number, 1
        while True:
            try:
                async with aclosing(self._inner.stream(with_call_number(prompt, number))) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, RetryChunk):
                            number += 1
                        yield chunk
                        if isinstance(chunk, StopChunk):
                            return
                raise stream_cut_error(self.name)
            except ModelUnavailable as error:
                wait = self._next_delay(error, attempt)
                if wait is None:
                    if attempt > 1:
                        error.args = (f"{error} (tried {attempt} times)",)
                    raise error from error.__cause__
                retry = RetryChunk(error.code, str(error), self.name)
            yield retry
            await self._clock.sleep(wait)
            number, attempt = number + 1, attempt + 1

    def _next_delay(self, error: ModelUnavailable, attempt: int) -> float | None:
        """Return the seconds before the next attempt, ``None`` if there is none."""
        retry_after = error.retry_after or 0.0
        if attempt >= self._attempts or retry_after > self._patience:
            return None
        return retry_after + self._random.random() * min(self._max_delay, self._base * 2.0 ** min(attempt - 1, 64))


class FallbackModel:
    """Calls ``models`` in order until one answers; by default it calls the next model if a model is unavailable.

    ``on`` names the errors after which the next is called, such as ``(ModelUnavailable, ContextTooLong)`` or
    ``(ModelError,)`` for all of them; a bad request is bad for every model, so ``BadRequest`` has to be named itself. A
    ``RetryChunk`` names the failed model, a notice the model that answers instead. The estimated cost is the cost of
    the most expensive model, and unknown if the cost of any model is.
    """

    def __init__(
        self, models: Iterable[Model], *, on: Sequence[type[ModelError]] = (ModelUnavailable,), name: str = ""
    ) -> None:
        self._models = tuple(models)
        if not self._models:
            raise ConfigError("a fallback needs at least one model, got none")
        self._fallback_errors = tuple(on)
        self.name = name or self._models[0].name
        self.context_window: int | None = getattr(self._models[0], "context_window", None)
        self._estimates = [model for model in self._models if isinstance(model, CostEstimator)]
        if self._estimates:
            self.estimate: Callable[[Prompt], Estimate] = self._highest_estimate

    async def close(self) -> None:
        """Close all models."""
        await close_models(*self._models)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Stream the answer of the first model that has one."""
        number = prompt.number
        failed: list[str] = []
        for model in self._models:
            if failed:
                yield NoticeChunk(ModelSelected(model=model.name, reason=f"fallback after {', '.join(failed)}"))
            try:
                async with aclosing(model.stream(with_call_number(prompt, number))) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, UsageChunk):
                            named = {"model": chunk.model or model.name, "counted_as": chunk.counted_as or model.name}
                            chunk = msgspec.structs.replace(chunk, **named)
                        elif isinstance(chunk, RetryChunk):
                            number += 1
                        yield chunk
                        if isinstance(chunk, StopChunk):
                            return
                raise stream_cut_error(model.name)
            except ModelError as error:
                failed.append(f"{model.name}: {error.code}")
                if len(failed) == len(self._models) or not self._should_fall_back(error):
                    if len(failed) > 1:
                        error.args = (f"{error} (no model answered; {', '.join(failed)})",)
                    raise error from error.__cause__
                retry = RetryChunk(error.code, str(error), model.name)
            yield retry
            number += 1

    def _should_fall_back(self, error: ModelError) -> bool:
        named = any(issubclass(kind, BadRequest) for kind in self._fallback_errors)
        return isinstance(error, self._fallback_errors) and (named or not isinstance(error, BadRequest))

    def _highest_estimate(self, prompt: Prompt) -> Estimate:
        estimates = [model.estimate(prompt) for model in self._estimates]
        highest = max(estimates, key=lambda estimate: (estimate.usage.cost, estimate.usage.total))
        limits = [estimate.max_tokens for estimate in estimates if estimate.max_tokens is not None]
        return msgspec.structs.replace(
            highest,
            output_price=max(estimate.output_price for estimate in estimates),
            max_tokens=max(limits) if len(limits) == len(estimates) else None,
            takes=min(limits, default=None),
            unpriced=next((estimate.unpriced for estimate in estimates if estimate.unpriced), ""),
        )


PROBE_RETRY_SECONDS = 1.0
"""``retry_after`` of a call that is rejected while another one probes the model."""

_log = logging.getLogger(__name__)


class CircuitBreaker(ModelWrapper):
    """Stops calling a model for ``rest`` seconds after ``failures`` calls in a row found it unavailable.

    While the breaker is open each call raises ``ModelUnavailable`` at once, with the time to wait. After the rest one
    call probes the model: its answer closes the breaker, its failure opens it again. Errors that do not show whether
    the model is available, such as a bad request, do not count, and neither do cancelled calls.
    """

    def __init__(self, inner: Model, *, failures: int = 5, rest: float = 30.0, clock: Clock | None = None) -> None:
        super().__init__(inner)
        if failures < 1 or rest <= 0:
            raise ConfigError(f"a breaker needs at least 1 failure and a rest above 0, got {failures=!r}, {rest=!r}")
        self._failure_limit = failures
        self._rest_seconds = rest
        self._clock = clock or SYSTEM_CLOCK
        self._failure_count, self._last_error = 0, ""
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> str:
        """``closed`` (calls pass), ``open`` (none does) or ``half-open`` (one probes the model)."""
        if self._open_until is None:
            return "closed"
        return "open" if self._clock.monotonic() < self._open_until else "half-open"

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Stream the inner model's answer. Raises ``ModelUnavailable`` while the breaker is open."""
        probe = self._admit()
        try:
            async with aclosing(self._inner.stream(prompt)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, StopChunk):
                        self._record_success()
                        yield chunk
                        return
                    yield chunk
            self._record_failure(stream_cut_error(self.name), probe=probe)
        except ModelUnavailable as error:
            self._record_failure(error, probe=probe)
            raise
        finally:
            if probe:
                self._probing = False

    def _admit(self) -> bool:
        """Return whether this call probes the model. Raises ``ModelUnavailable`` while the breaker is open."""
        if self._open_until is None:
            return False
        left = self._open_until - self._clock.monotonic()
        if left <= 0 and not self._probing:
            self._probing = True
            return True
        when = "while another call probes it" if left <= 0 else f"for {left:.0f} s"
        failures = f"{self.name} was unavailable {self._failure_count} times in a row ({self._last_error})"
        raise ModelUnavailable(
            f"{failures} and is not called {when}", retry_after=left if left > 0 else PROBE_RETRY_SECONDS
        )

    def _record_success(self) -> None:
        self._failure_count, self._open_until = 0, None

    def _record_failure(self, error: ModelUnavailable, *, probe: bool) -> None:
        if self._open_until is not None and not probe:
            return  # the call began before the breaker opened
        self._failure_count, self._last_error = self._failure_count + 1, str(error)
        if probe or self._failure_count >= self._failure_limit:
            self._open_until = self._clock.monotonic() + self._rest_seconds
            failures, rest = self._failure_count, self._rest_seconds
            _log.warning("%s was unavailable %d times in a row; it rests for %g s", self.name, failures, rest)
