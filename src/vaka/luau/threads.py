"""Threads in which the steps of scripts run, so that no script blocks the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

MAX_THREADS = 32
MAX_LOOP_WAIT = 0.001
"""Seconds for which the event loop waits for a step. Most steps take microseconds, less than a switch of tasks."""
_CANCEL_INTERVAL = 0.05

T = TypeVar("T")


class StepThreads:
    """Runs functions of one event loop in threads, which start when they are needed and end with ``close``."""

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._max_threads = max_threads
        self._executor = ThreadPoolExecutor(max_threads, "vaka-luau")
        self._running = 0

    async def run(self, function: Callable[[], T], cancel: Callable[[], object]) -> T:
        """Return what a function returns. A caller that is cancelled calls ``cancel`` until the function has ended."""
        has_thread = self._running < self._max_threads
        self._running += 1
        try:
            work = self._executor.submit(function)
            if has_thread:
                try:
                    return work.result(MAX_LOOP_WAIT)
                except TimeoutError:
                    if work.done():
                        return work.result()
            return await _wait(work, cancel)
        finally:
            self._running -= 1

    def close(self) -> None:
        """End the threads when their functions have returned; a second call does nothing."""
        self._executor.shutdown(wait=False)


async def _wait(work: "Future[T]", cancel: Callable[[], object]) -> T:
    waiter = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(waiter)
    except asyncio.CancelledError:
        await _cancel_until_done(waiter, cancel)
        raise


async def _cancel_until_done(waiter: "asyncio.Future[Any]", cancel: Callable[[], object]) -> None:
    """Call ``cancel`` again and again: a function that has not begun cannot be cancelled yet."""
    while not waiter.done():
        cancel()
        try:
            await asyncio.wait([waiter], timeout=_CANCEL_INTERVAL)
        except asyncio.CancelledError:
            continue
    if not waiter.cancelled():
        waiter.exception()  # retrieved, or asyncio would log it
