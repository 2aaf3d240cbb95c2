"""Measure how long a coroutine holds the event loop."""

import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from inspect import iscoroutine
from types import TracebackType
from typing import Any

MAX_STEP_SECONDS = 1.0
"""Seconds a tool may block the event loop before a warning is logged."""


async def measure_steps(work: Awaitable[Any], on_blocked: Callable[[float], None]) -> Any:
    """Await ``work``; call ``on_blocked`` with the time of each step in which it held the event loop for too long."""
    return await (_MeasuredSteps(work, on_blocked) if iscoroutine(work) else work)


class _MeasuredSteps(Generator[Any, Any, Any]):
    """A coroutine, whose every step is timed."""

    def __init__(self, work: Coroutine[Any, Any, Any], on_blocked: Callable[[float], None]) -> None:
        self._work, self._on_blocked = work, on_blocked

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        """Resume the coroutine with a value."""
        start = time.perf_counter()
        try:
            return self._work.send(value)
        finally:
            self._measure(start)

    def throw(self, kind: Any, error: BaseException | object = None, trace: TracebackType | None = None) -> Any:
        """Resume the coroutine with an error, such as its cancellation."""
        start = time.perf_counter()
        try:
            return self._work.throw(error if isinstance(error, BaseException) else kind)
        finally:
            self._measure(start)

    def close(self) -> None:
        """Close the coroutine; it may be closed already."""
        self._work.close()

    def _measure(self, start: float) -> None:
        took = time.perf_counter() - start
        if took > MAX_STEP_SECONDS:
            self._on_blocked(took)
