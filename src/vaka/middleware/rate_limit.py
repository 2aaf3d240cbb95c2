"""RateLimit: so many turns in a time, so many at once."""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from vaka.core.loop.middleware import Block, Middleware, Outcome
from vaka.core.loop.scope import Turn
from vaka.core.types.content import Content
from vaka.core.types.errors import ConfigError


class RateLimit(Middleware):
    """Lets ``rate`` turns begin each second, ``burst`` of them at once after a quiet time, and ``concurrent`` run.

    The others wait in the order they came; with ``wait=False`` they are refused. All agents that are given the same
    object share it. A turn gives its place back when it ends, however that is; one that is suspended gives it back too
    and takes another when it goes on.
    """

    def __init__(
        self, *, rate: float | None = None, burst: int = 1, concurrent: int | None = None, wait: bool = True
    ) -> None:
        if rate is not None and not 0 < rate < float("inf"):
            raise ConfigError(f"rate is turns in a second, more than 0, not {rate!r}")
        if burst < 1 or (concurrent is not None and concurrent < 1):
            raise ConfigError(f"burst and concurrent are at least 1, not {burst!r} and {concurrent!r}")
        self._rate, self._burst, self._most, self._wait = rate, burst, concurrent, wait
        self._tokens, self._filled = float(burst), -1.0
        self._names = count(1)
        self._held: dict[int, tuple[asyncio.Task[Any], Callable[[object], None]]] = {}
        self._line: deque[asyncio.Future[None]] = deque()
        self._key = f"rate_limit.{id(self)}"

    @property
    def running(self) -> int:
        """How many turns have a place now."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """How many turns wait for one."""
        return len(self._line)

    async def before_agent(self, turn: Turn, content: Content) -> Content | Block:
        """Wait for a place and for the time to begin."""
        if not self._wait and (self._full() or self._pause(turn) > 0):
            return Block(reason="too many turns at once; try again later")
        await self._place(turn)
        while (pause := self._pause(turn)) > 0:
            await turn.env.clock.sleep(pause)
        if self._rate is not None:
            self._tokens -= 1
        return content

    async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
        """Give the place back."""
        self._release(turn.values.pop(self._key, 0))
        return outcome

    async def _place(self, turn: Turn) -> None:
        if self._line or self._full():
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append(waiting)
            try:
                while self._full() or self._line[0] is not waiting:
                    await waiting
                    waiting = self._again(waiting)
            finally:
                self._line.remove(waiting)
                self._next()
        name, task = next(self._names), asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine always runs in one

        def gone(_: object) -> None:
            self._release(name)

        # A turn that is suspended does not come to its end here: its place goes back when its work does.
        task.add_done_callback(gone)
        self._held[name] = (task, gone)
        turn.values[self._key] = name
        self._next()

    def _again(self, waiting: "asyncio.Future[None]") -> "asyncio.Future[None]":
        """Stand at the same place of the line, to be woken once more."""
        fresh: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line[self._line.index(waiting)] = fresh
        return fresh

    def _full(self) -> bool:
        return self._most is not None and len(self._held) >= self._most

    def _release(self, name: int) -> None:
        if name in self._held:
            task, gone = self._held.pop(name)
            task.remove_done_callback(gone)
            self._next()

    def _next(self) -> None:
        if self._line and not self._full() and not self._line[0].done():
            self._line[0].get_loop().call_soon_threadsafe(_wake, self._line[0])

    def _pause(self, turn: Turn) -> float:
        """Return how long to wait until one more may begin."""
        if self._rate is None:
            return 0.0
        now = turn.env.clock.monotonic()
        if self._filled < 0 or now < self._filled:  # the first, or a runtime with another clock
            self._filled = now
        self._tokens = min(self._tokens + (now - self._filled) * self._rate, float(self._burst))
        self._filled = now
        return 0.0 if self._tokens >= 1 - 1e-9 else (1 - self._tokens) / self._rate


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
