"""Limit concurrent calls, requests per minute and tokens per minute of a model."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from vaka.core.ports.clock import Clock
from vaka.core.ports.model import Chunk, Model, Prompt, RetryChunk, UsageChunk
from vaka.core.types.errors import ConfigError
from vaka.models.tokens import estimate_prompt_tokens
from vaka.models.wrappers.model_wrapper import SYSTEM_CLOCK, ModelWrapper

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
