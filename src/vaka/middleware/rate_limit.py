"""RateLimit: limits the rate and the number of concurrent turns."""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.types.ending import Outcome, Reject
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import Content


class RateLimit(Middleware):
    """Limits turns to ``rate`` starts per second with bursts of ``burst``, and to ``concurrent`` at the same time.

    Further turns wait in order; with ``wait=False`` they are refused. Agents with the same object share the limits. A
    turn releases its slot when it ends or is suspended, and takes another when it is resumed.
    """

    def __init__(
        self, *, rate: float | None = None, burst: int = 1, concurrent: int | None = None, wait: bool = True
    ) -> None:
        if rate is not None and not 0 < rate < float("inf"):
            raise ConfigError(f"rate must be more than 0 turns per second, not {rate!r}")
        if burst < 1 or (concurrent is not None and concurrent < 1):
            raise ConfigError(f"burst and concurrent must be at least 1, not {burst!r} and {concurrent!r}")
        self._rate = rate
        self._burst = burst
        self._max_concurrent = concurrent
        self._wait = wait
        self._tokens, self._refilled_at = float(burst), -1.0
        self._slot_ids = count(1)
        self._slots: dict[int, tuple[asyncio.Task[Any], Callable[[object], None]]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._key = f"rate_limit.{id(self)}"

    @property
    def running(self) -> int:
        """The number of turns that hold a slot."""
        return len(self._slots)

    @property
    def waiting(self) -> int:
        """The number of turns that wait for a slot."""
        return len(self._waiters)

    async def before_agent(self, turn: Turn, content: Content) -> Content | Reject:
        if not self._wait and (self._is_full() or self._seconds_until_token(turn) > 0):
            return Reject(reason="too many turns at once; try again later")
        await self._take_slot(turn)
        while (pause := self._seconds_until_token(turn)) > 0:
            await turn.env.clock.sleep(pause)
        if self._rate is not None:
            self._tokens -= 1
        return content

    async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
        self._release(turn.values.pop(self._key, 0))
        return outcome

    async def _take_slot(self, turn: Turn) -> None:
        if self._waiters or self._is_full():
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiting)
            try:
                while self._is_full() or self._waiters[0] is not waiting:
                    await waiting
                    waiting = self._requeue(waiting)
            finally:
                self._waiters.remove(waiting)
                self._wake_next()
        slot, task = next(self._slot_ids), asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine always runs in a task

        def release_slot(_: object) -> None:
            self._release(slot)

        # For a suspended turn ``after_agent`` is not called: release its slot when its task ends.
        task.add_done_callback(release_slot)
        self._slots[slot] = (task, release_slot)
        turn.values[self._key] = slot
        self._wake_next()

    def _requeue(self, waiting: "asyncio.Future[None]") -> "asyncio.Future[None]":
        """Replace a future that was woken by a new one at the same position of the queue."""
        replacement: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[self._waiters.index(waiting)] = replacement
        return replacement

    def _is_full(self) -> bool:
        return self._max_concurrent is not None and len(self._slots) >= self._max_concurrent

    def _release(self, slot: int) -> None:
        if slot in self._slots:
            task, callback = self._slots.pop(slot)
            task.remove_done_callback(callback)
            self._wake_next()

    def _wake_next(self) -> None:
        if self._waiters and not self._is_full() and not self._waiters[0].done():
            self._waiters[0].get_loop().call_soon_threadsafe(_wake_waiter, self._waiters[0])

    def _seconds_until_token(self, turn: Turn) -> float:
        if self._rate is None:
            return 0.0
        now = turn.env.clock.monotonic()
        if self._refilled_at < 0 or now < self._refilled_at:  # the first turn, or a runtime with another clock
            self._refilled_at = now
        self._tokens = min(self._tokens + (now - self._refilled_at) * self._rate, float(self._burst))
        self._refilled_at = now
        return 0.0 if self._tokens >= 1 - 1e-9 else (1 - self._tokens) / self._rate


def _wake_waiter(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
