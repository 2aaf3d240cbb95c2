"""Running a blocking function beside the loop."""

import asyncio
import contextvars
import functools
import os
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any


class Outcome:
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


class Worker(threading.Thread):
    """A daemon thread that works on one thing at a time, and waits for the next when it is done."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], Callable[[], None]]] = queue.SimpleQueue()

    def run(self) -> None:
        """Work, be free again, and only then tell: whoever hears of it may have more to do."""
        while True:
            tell = self.jobs.get()()
            keep = len(_idle) < _KEPT
            if keep:
                _idle.append(self)
            tell()
            del tell
            if not keep:
                return


_idle: list[Worker] = []
_KEPT = 8
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # threads do not survive a fork


def _free() -> Worker:
    try:
        return _idle.pop()
    except IndexError:
        worker = Worker()
        worker.start()
        return worker


async def in_thread(work: Callable[[], Any], name: str) -> Any:
    """Run blocking work in a daemon thread that it has for itself, with this task's context variables.

    When the waiting task is cancelled the thread is left to itself: it cannot be stopped, but neither does it keep the
    process alive, nor does anything else wait behind it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def job() -> Callable[[], None]:
        threading.current_thread().name = f"tool {name}"
        outcome = Outcome()
        with outcome:
            outcome.value = context.run(work)
        return functools.partial(_post, loop, functools.partial(deliver, outcome))

    _free().jobs.put(job)
    return (await done).get()


def _post(loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(tell)
    except RuntimeError:  # the loop is closed: nobody waits any more
        pass
