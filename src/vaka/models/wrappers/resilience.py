"""Wrappers that keep a model usable: retry, fallback, circuit breaker and rate limit."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from random import Random, SystemRandom

import msgspec

from vaka.core.ports.clock import Clock
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
from vaka.models.tokens import estimate_prompt_tokens
from vaka.models.wrappers.model_wrapper import (
    SYSTEM_CLOCK,
    ModelWrapper,
    close_models,
    stream_cut_error,
    with_call_number,
)

_EPSILON = 1e-9
"""Less than this is what floating point leaves over."""


class _TokenBucket:
    """A minute's worth at most, refilled evenly; it may be overdrawn, and is then filled up first."""

    def __init__(self, per_minute: float, clock: Clock) -> None:
        self._capacity = self._level = per_minute
        self._clock, self._updated_at = clock, clock.monotonic()

    def seconds_until(self, amount: float) -> float:
        """Return the seconds until ``amount`` is there, or the bucket is full."""
        now = self._clock.monotonic()
        self._level = min(self._capacity, self._level + (now - self._updated_at) * self._capacity / 60)
        self._updated_at = now
        short = min(amount, self._capacity) - self._level
        return short * 60 / self._capacity if short > _EPSILON else 0.0

    def take(self, amount: float) -> None:
        """Take ``amount`` out, or put it back if it is negative."""
        self._level = min(self._capacity, self._level - amount)


class RateLimitedModel(ModelWrapper):
    """Lets calls through in the order they came: so many at once, so many a minute, so many tokens a minute.

    Each minute's worth may be used at once and comes back evenly. A call takes the tokens its prompt is estimated at;
    what it cost in the end is settled then. Calls that wait may be cancelled; they leave no trace.
    """

    def __init__(
        self, inner: Model, *, concurrent: int | None = None, requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None, clock: Clock | None = None,
    ) -> None:  # fmt: skip
        super().__init__(inner)
        for name, given in (
            ("concurrent", concurrent), ("requests_per_minute", requests_per_minute),
            ("tokens_per_minute", tokens_per_minute),
        ):  # fmt: skip
            if given is not None and not (given > 0 and math.isfinite(given)):
                raise ConfigError(f"{name} must be more than 0, got {given!r}; leave it out for no limit")
        self._clock = clock or SYSTEM_CLOCK
        self._free_slots: float = math.inf if concurrent is None else concurrent
        self._requests = None if requests_per_minute is None else _TokenBucket(requests_per_minute, self._clock)
        self._tokens = None if tokens_per_minute is None else _TokenBucket(tokens_per_minute, self._clock)
        self._queue: deque[asyncio.Event] = deque()

    @property
    def waiting_calls(self) -> int:
        """How many calls wait for their turn."""
        return len(self._queue)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does, when it is this call's turn."""
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
        """Wait in line, and take what this call needs."""
        mine = asyncio.Event()
        self._queue.append(mine)
        try:
            while wait := self._delay_for(tokens) if self._queue[0] is mine else math.inf:
                mine.clear()
                await self._wait_for_turn(mine, wait)
            self._free_slots -= 1
            self._spend(1, tokens)
        finally:
            self._queue.remove(mine)
            self._wake_first()

    def _release(self, spent: int, estimated: int) -> None:
        self._free_slots += 1
        if spent:  # a call that failed may have cost its prompt, nobody knows
            self._spend(0, spent - estimated)
        self._wake_first()

    def _delay_for(self, tokens: int) -> float:
        """Return the seconds until there is room, infinite when only another call's end makes some."""
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
        """Let the first in line look again."""
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
                pass  # the price is not known; the size is all the same
        return estimate_prompt_tokens(prompt)


_RANDOM = SystemRandom()


class RetryingModel(ModelWrapper):
    """Asks up to ``attempts`` times while the model is unavailable, its limits are reached, or its answer is cut.

    It waits longer each time, by chance between 0 and ``base`` seconds doubled with each try, at most ``most``, and on
    top of that as long as the provider asks; if that is more than ``patience`` seconds it gives up at once. Before each
    new try comes a ``RetryChunk``: whatever was shown of the answer does not count. What trying again cannot help, a
    refusal or an answer at its length limit, is left alone.
    """

    def __init__(
        self, inner: Model, *, attempts: int = 5, base: float = 0.5, most: float = 30.0, patience: float = 60.0,
        clock: Clock | None = None, random: Random | None = None,
    ) -> None:  # fmt: skip
        super().__init__(inner)
        if attempts < 1 or min(base, most, patience) < 0:
            raise ConfigError(
                "a retry needs at least 1 attempt and seconds that are not negative, "
                f"got {attempts=!r}, {base=!r}, {most=!r}, {patience=!r}"
            )
        self._attempts, self._base, self._max_delay, self._patience = attempts, base, most, patience
        self._clock, self._random = clock or SYSTEM_CLOCK, random or _RANDOM

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does, in the end."""
        number, tried = prompt.number, 1
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
                wait = self._next_delay(error, tried)
                if wait is None:
                    raise _with_attempt_count(error, tried) from error.__cause__
                failed = RetryChunk(error.code, str(error), self.name)
            yield failed
            await self._clock.sleep(wait)
            number += 1
            tried += 1

    def _next_delay(self, error: ModelUnavailable, attempt: int) -> float | None:
        """Return how long to wait before the next try, ``None`` when there is none."""
        asked = error.retry_after or 0.0
        if attempt >= self._attempts or asked > self._patience:
            return None
        return asked + self._random.random() * min(self._max_delay, self._base * 2.0 ** min(attempt - 1, 64))


def _with_attempt_count(error: ModelUnavailable, attempts: int) -> ModelUnavailable:
    if attempts > 1:
        error.args = (f"{error} (tried {attempts} times)",)
    return error


class FallbackModel:
    """Asks ``models`` in their order until one answers; by default the next one when one is unavailable.

    ``on`` names the errors after which the next is asked, such as ``(ModelUnavailable, ContextTooLong)`` or
    ``(ModelError,)`` for all of them; a bad request is bad for every model, so ``BadRequest`` counts only where it is
    named itself. A ``RetryChunk`` says which model failed, a notice which one answers instead. Its price is that of the
    dearest, and not known if that of any is not.
    """

    def __init__(
        self, models: Iterable[Model], *, on: Sequence[type[ModelError]] = (ModelUnavailable,), name: str = ""
    ) -> None:
        self._models = tuple(models)
        if not self._models:
            raise ConfigError("a fallback needs at least one model, got none")
        self._fallback_errors, self._name = tuple(on), name or self._models[0].name
        self._estimates = [model for model in self._models if isinstance(model, CostEstimator)]
        if self._estimates:
            self.estimate: Callable[[Prompt], Estimate] = self._highest_estimate

    @property
    def name(self) -> str:
        """The name of the first model, unless another was given."""
        return self._name

    async def close(self) -> None:
        """Close all models."""
        await close_models(*self._models)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the first model does that can."""
        number = prompt.number
        failed: list[str] = []
        for model in self._models:
            if failed:
                yield NoticeChunk(ModelSelected(model=model.name, reason=f"fallback after {', '.join(failed)}"))
            try:
                async with aclosing(model.stream(with_call_number(prompt, number))) as chunks:
                    async for chunk in chunks:
                        if isinstance(chunk, UsageChunk):
                            yield chunk if chunk.model else UsageChunk(chunk.usage, model.name)
                            continue
                        if isinstance(chunk, RetryChunk):
                            number += 1
                        yield chunk
                        if isinstance(chunk, StopChunk):
                            return
                raise stream_cut_error(model.name)
            except ModelError as error:
                failed.append(f"{model.name}: {error.code}")
                if len(failed) == len(self._models) or not self._should_fall_back(error):
                    raise _with_failures(error, failed) from error.__cause__
                again = RetryChunk(error.code, str(error), model.name)
            yield again
            number += 1

    def _should_fall_back(self, error: ModelError) -> bool:
        """Tell whether the next model is asked after this error."""
        named = any(issubclass(kind, BadRequest) for kind in self._fallback_errors)
        return isinstance(error, self._fallback_errors) and (named or not isinstance(error, BadRequest))

    def _highest_estimate(self, prompt: Prompt) -> Estimate:
        found = [model.estimate(prompt) for model in self._estimates]
        most = max(found, key=lambda estimate: (estimate.usage.cost, estimate.usage.total))
        bounds = [estimate.max_tokens for estimate in found if estimate.max_tokens is not None]
        return msgspec.structs.replace(
            most, output_price=max(estimate.output_price for estimate in found),
            max_tokens=max(bounds) if len(bounds) == len(found) else None, takes=min(bounds, default=None),
            unpriced=next((estimate.unpriced for estimate in found if estimate.unpriced), ""),
        )  # fmt: skip


def _with_failures(error: ModelError, failed: list[str]) -> ModelError:
    if len(failed) > 1:
        error.args = (f"{error} (no model answered; {', '.join(failed)})",)
    return error


PROBE_RETRY_SECONDS = 1.0
"""Seconds to wait for while another call finds out whether the model is back."""

_log = logging.getLogger(__name__)


class CircuitBreaker(ModelWrapper):
    """After ``failures`` calls in a row found the model unavailable, nobody asks it for ``rest`` seconds.

    Until then each call gets ``ModelUnavailable`` at once, with the time to wait. After the rest one call goes
    through: its answer closes the breaker, its failure means another rest. Errors that say nothing about whether the
    model is there, such as a bad request, count neither way, and neither does a call that was given up.
    """

    def __init__(self, inner: Model, *, failures: int = 5, rest: float = 30.0, clock: Clock | None = None) -> None:
        super().__init__(inner)
        if failures < 1 or rest <= 0:
            raise ConfigError(f"a breaker needs at least 1 failure and a rest above 0, got {failures=!r}, {rest=!r}")
        self._failure_limit, self._rest_seconds, self._clock = failures, rest, clock or SYSTEM_CLOCK
        self._failure_count, self._last_error = 0, ""
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> str:
        """``closed`` (calls go through), ``open`` (none does) or ``half-open`` (one may)."""
        if self._open_until is None:
            return "closed"
        return "open" if self._clock.monotonic() < self._open_until else "half-open"

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does, unless it rests."""
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
        """Tell whether this call finds out if the model is back. Raises ``ModelUnavailable`` while it rests."""
        if self._open_until is None:
            return False
        left = self._open_until - self._clock.monotonic()
        if left <= 0 and not self._probing:
            self._probing = True
            return True
        what = "another call finds out now whether it is back" if left <= 0 else f"it is asked again in {left:.0f} s"
        raise ModelUnavailable(
            f"{self.name} was unavailable {self._failure_count} times in a row ({self._last_error}) and is left alone; {what}",
            retry_after=left if left > 0 else PROBE_RETRY_SECONDS,
        )

    def _record_success(self) -> None:
        self._failure_count, self._open_until = 0, None

    def _record_failure(self, error: ModelUnavailable, *, probe: bool) -> None:
        if self._open_until is not None and not probe:
            return  # it was asked before the rest began
        self._failure_count, self._last_error = self._failure_count + 1, str(error)
        if probe or self._failure_count >= self._failure_limit:
            self._open_until = self._clock.monotonic() + self._rest_seconds
            _log.warning(
                "%s was unavailable %d times in a row; it rests for %g s",
                self.name,
                self._failure_count,
                self._rest_seconds,
            )
