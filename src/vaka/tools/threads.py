"""Run a blocking function in a daemon thread beside the event loop."""

import asyncio
import contextvars
import functools
import os
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any


class JobOutcome:
    """How a piece of work ended: what it returned, or what it raised. Used as ``with outcome:`` around the work."""

    value: Any = None
    error: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True

    def get(self) -> Any:
        """Return the value or raise the error; one that would end the loop is raised as ``RuntimeError``."""
        if self.error is None:
            return self.value
        if isinstance(self.error, Exception):
            raise self.error
        raise RuntimeError(f"the tool ended with {self.error!r}") from self.error


class WorkerThread(threading.Thread):
    """A daemon thread that works on one thing at a time, and waits for the next when it is done."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], Callable[[], None]]] = queue.SimpleQueue()

    def run(self) -> None:
        """Work, be free again, and only then tell: whoever hears of it may have more to do."""
        while True:
            tell = self.jobs.get()()
            keep = len(_idle_workers) < _MAX_IDLE
            if keep:
                _idle_workers.append(self)
            tell()
            del tell
            if not keep:
                return


_idle_workers: list[WorkerThread] = []
_MAX_IDLE = 8
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle_workers.clear)  # threads do not survive a fork


def _take_idle_worker() -> WorkerThread:
    try:
        return _idle_workers.pop()
    except IndexError:
        worker = WorkerThread()
        worker.start()
        return worker


async def run_in_thread(work: Callable[[], Any], name: str) -> Any:
    """Run blocking work in a daemon thread that it has for itself, with this task's context variables.

    When the waiting task is cancelled the thread is left to itself: it cannot be stopped, but neither does it keep the
    process alive, nor does anything else wait behind it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[JobOutcome] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: JobOutcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def job() -> Callable[[], None]:
        threading.current_thread().name = f"tool {name}"
        outcome = JobOutcome()
        with outcome:
            outcome.value = context.run(work)
        return functools.partial(_notify_loop, loop, functools.partial(deliver, outcome))

    _take_idle_worker().jobs.put(job)
    return (await done).get()


def _notify_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:  # the loop is closed: nobody waits any more
        pass
