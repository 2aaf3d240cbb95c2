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
    """The return value or the exception of a job; ``with outcome:`` around the job catches the exception."""

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
        """Return the value or raise the error; ``SystemExit`` and the like, which end a loop, as ``RuntimeError``."""
        if self.error is None:
            return self.value
        if isinstance(self.error, Exception):
            raise self.error
        raise RuntimeError(f"the tool ended with {self.error!r}") from self.error


class WorkerThread(threading.Thread):
    """A daemon thread that runs one job at a time and then waits for the next."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], Callable[[], None]]] = queue.SimpleQueue()

    def run(self) -> None:
        """Run jobs. The thread joins the idle list before it notifies the loop, so that the next job can reuse it."""
        while True:
            notify = self.jobs.get()()
            keep = len(_idle_workers) < _MAX_IDLE
            if keep:
                _idle_workers.append(self)
            notify()
            del notify
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
    """Run blocking work in a daemon thread of its own, with the context variables of this task.

    When the waiting task is cancelled the thread runs on: it cannot be stopped, but it does not keep the
    process alive, and no other job waits for it.
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
    except RuntimeError:  # the loop is closed, so no task waits for the outcome
        pass
