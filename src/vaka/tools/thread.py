"""Running a blocking function beside the loop."""

import asyncio
import contextvars
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


async def in_thread(work: Callable[[], Any], name: str) -> Any:
    """Run blocking work in a daemon thread of its own, with this task's context variables.

    When the waiting task is cancelled the thread is left to itself: it cannot be stopped, but neither does it keep the
    process alive.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        outcome = Outcome()
        with outcome:
            outcome.value = context.run(work)
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(deliver, outcome)
            except RuntimeError:  # the loop was closed just now: nobody waits
                pass

    threading.Thread(target=run, name=f"tool {name}", daemon=True).start()
    return (await done).get()
