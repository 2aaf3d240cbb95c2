"""What asyncio and Python report of work without a waiter, and how to cancel callers anywhere."""

import asyncio
import gc
import warnings
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def nothing_reported() -> AsyncGenerator[None]:
    """Fail if asyncio reports an error that was not retrieved, or Python a coroutine that was never awaited."""
    reports: list[str] = []

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        reports.append(f"{context['message']}: {context.get('exception')!r}")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
            gc.collect()
            await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    assert reports == []
    assert [str(warning.message) for warning in warned if "never" in str(warning.message)] == []


async def cancel_after(steps: int, work: Coroutine[Any, Any, object]) -> None:
    """Run work, and cancel it after some steps of the event loop."""
    task = asyncio.create_task(work)
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
