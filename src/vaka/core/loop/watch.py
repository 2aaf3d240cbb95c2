"""Noticing a tool that blocks the event loop: every step of its coroutine is measured."""

import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from inspect import iscoroutine
from types import TracebackType
from typing import Any

LATE = 1.0
"""Seconds one step may take before it is reported."""


async def watched(work: Awaitable[Any], blocked: Callable[[float], None]) -> Any:
    """Await ``work``; call ``blocked`` with the time of each step in which it held the event loop for too long."""
    return await (_Steps(work, blocked) if iscoroutine(work) else work)


class _Steps(Generator[Any, Any, Any]):
    """A coroutine, driven step by step on behalf of whoever awaits it."""

    def __init__(self, work: Coroutine[Any, Any, Any], blocked: Callable[[float], None]) -> None:
        self._work, self._blocked = work, blocked

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        """Let it go on with a value."""
        begun = time.perf_counter()
        try:
            return self._work.send(value)
        finally:
            self._measure(begun)

    def throw(self, kind: Any, error: BaseException | object = None, trace: TracebackType | None = None) -> Any:
        """Let it go on with an error, such as its cancellation."""
        begun = time.perf_counter()
        try:
            return self._work.throw(error if isinstance(error, BaseException) else kind)
        finally:
            self._measure(begun)

    def close(self) -> None:
        """Leave it where it is; when everything goes at once, it may have gone before."""
        self._work.close()

    def _measure(self, begun: float) -> None:
        took = time.perf_counter() - begun
        if took > LATE:
            self._blocked(took)
