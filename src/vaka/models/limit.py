"""No more at once, and no more a minute, than a provider allows."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing

from vaka.core.ports.clock import Clock
from vaka.core.ports.model import Chunk, Model, Prompt, RetryChunk, UsageChunk
from vaka.core.types.errors import ConfigError
from vaka.models.around import CLOCK, Around
from vaka.models.tokens import of_prompt

_NOTHING = 1e-9
"""Less than this is what floating point leaves over."""


class _Bucket:
    """A minute's worth at most, refilled evenly; it may be overdrawn, and is then filled up first."""

    def __init__(self, per_minute: float, clock: Clock) -> None:
        self._most = self._level = per_minute
        self._clock, self._at = clock, clock.monotonic()

    def wait(self, amount: float) -> float:
        """Return the seconds until ``amount`` is there, or the bucket is full."""
        now = self._clock.monotonic()
        self._level = min(self._most, self._level + (now - self._at) * self._most / 60)
        self._at = now
        short = min(amount, self._most) - self._level
        return short * 60 / self._most if short > _NOTHING else 0.0

    def take(self, amount: float) -> None:
        """Take ``amount`` out, or put it back if it is negative."""
        self._level = min(self._most, self._level - amount)


class Limited(Around):
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
        self._clock = clock or CLOCK
        self._room: float = math.inf if concurrent is None else concurrent
        self._requests = None if requests_per_minute is None else _Bucket(requests_per_minute, self._clock)
        self._tokens = None if tokens_per_minute is None else _Bucket(tokens_per_minute, self._clock)
        self._line: deque[asyncio.Event] = deque()

    @property
    def waiting(self) -> int:
        """How many calls wait for their turn."""
        return len(self._line)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does, when it is this call's turn."""
        estimated = self._estimated(prompt) if self._tokens is not None else 0
        await self._enter(estimated)
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
            self._leave(spent + last, estimated)

    async def _enter(self, tokens: int) -> None:
        """Wait in line, and take what this call needs."""
        mine = asyncio.Event()
        self._line.append(mine)
        try:
            while wait := self._wait(tokens) if self._line[0] is mine else math.inf:
                mine.clear()
                await self._nap(mine, wait)
            self._room -= 1
            self._take(1, tokens)
        finally:
            self._line.remove(mine)
            self._wake()

    def _leave(self, spent: int, estimated: int) -> None:
        self._room += 1
        if spent:  # a call that failed may have cost its prompt, nobody knows
            self._take(0, spent - estimated)
        self._wake()

    def _wait(self, tokens: int) -> float:
        """Return the seconds until there is room, infinite when only another call's end makes some."""
        if self._room < 1:
            return math.inf
        requests = self._requests.wait(1) if self._requests is not None else 0.0
        return max(requests, self._tokens.wait(tokens) if self._tokens is not None else 0.0)

    def _take(self, requests: int, tokens: int) -> None:
        if self._requests is not None:
            self._requests.take(requests)
        if self._tokens is not None:
            self._tokens.take(tokens)

    def _wake(self) -> None:
        """Let the first in line look again."""
        if self._line:
            self._line[0].set()

    async def _nap(self, mine: asyncio.Event, seconds: float) -> None:
        if seconds == math.inf:
            await mine.wait()
            return
        tasks = (asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(mine.wait()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _estimated(self, prompt: Prompt) -> int:
        if hasattr(self, "estimate"):
            try:
                return self.estimate(prompt).usage.input
            except ConfigError:
                pass  # the price is not known; the size is all the same
        return of_prompt(prompt)
