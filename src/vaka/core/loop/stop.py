"""Stop a turn from outside or by its timer, wherever it is, without ever cutting through a write.

Work that may be cancelled runs inside ``cancellable()``; a stop cancels the tasks that are in such a region, or takes
effect at the next one. One ``StopSignal`` serves a turn; a child has its own, which the signal of its parent triggers.
A tool that blocks the event loop cannot be stopped: ``measure_steps`` reports it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from types import CoroutineType, TracebackType
from typing import Any, TypeVar

from vaka.core.types.ending import StopKind

_T = TypeVar("_T")

MAX_STEP_SECONDS = 1.0
"""Seconds a tool may block the event loop before a warning is logged."""


class TurnStopped(Exception):  # not an error, so it is not a VakaError
    """The turn was interrupted or cancelled, or has reached a limit."""

    def __init__(self, kind: StopKind, note: str = "") -> None:
        super().__init__(note or kind)
        self.kind: StopKind = kind
        self.note = note


class StopSignal:
    """The request to stop a turn, its reason, and the tasks that a stop cancels."""

    def __init__(self, parent: "StopSignal | None" = None) -> None:
        self.reason: TurnStopped | None = parent.reason if parent else None
        self._parent = parent
        self.children: list[StopSignal] = []
        self._cancellable: list[asyncio.Task[object]] = []
        if parent is not None:
            parent.children.append(self)

    def trigger(self, kind: StopKind, note: str = "") -> None:
        """Stop this turn and its children; only the first reason is kept."""
        if self.reason is None:
            self.reason = TurnStopped(kind, note)
            for task in self._cancellable:
                if task is asyncio.current_task():  # a running task can be cancelled only once it awaits
                    task.get_loop().call_soon(self._cancel_if_inside, task)
                else:
                    task.cancel()
        for child in self.children:
            child.trigger(kind, note)

    def _cancel_if_inside(self, task: "asyncio.Task[object]") -> None:
        if task in self._cancellable:
            task.cancel()

    def close(self) -> None:
        """Detach from the parent: the work of this signal has ended."""
        if self._parent is not None:
            self._parent.children.remove(self)
            self._parent = None

    def check(self) -> None:
        """Raise ``TurnStopped`` if the turn is to stop."""
        if self.reason is not None:
            raise self.reason

    def cancellable(self) -> "CancellableRegion":
        """Return a context in which a stop cancels the task; a stop, also an earlier one, raises ``TurnStopped``."""
        return CancellableRegion(self, self._cancellable)


class CancellableRegion:
    """The context manager of ``StopSignal.cancellable``."""

    __slots__ = ("_inside", "_stop", "_task")

    def __init__(self, stop: StopSignal, inside: "list[asyncio.Task[object]]") -> None:
        self._stop, self._inside = stop, inside

    def __enter__(self) -> None:
        self._stop.check()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine always runs in a task
        self._task = task
        self._inside.append(task)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._inside.remove(self._task)
        reason, cancelled = self._stop.reason, isinstance(error, asyncio.CancelledError)
        if reason is None and cancelled and not self._task.cancelling():
            raise RuntimeError("the work cancelled itself") from error
        if reason is not None and (cancelled or self._task.cancelling()) and self._task.uncancel() == 0:
            raise reason from None  # also when the work inside has suppressed its cancellation


class Timer:
    """Calls ``on_expiry`` after ``seconds``. Waiting for a person pauses it, and its parents with it."""

    def __init__(self, seconds: float | None, on_expiry: Callable[[], None], parent: "Timer | None" = None) -> None:
        self._seconds_left = seconds
        self._on_expiry = on_expiry
        self._parent = parent
        self._handle: asyncio.TimerHandle | None = None
        self._running, self._paused = False, 0

    def start(self) -> None:
        self._running = True
        if self._seconds_left is not None:
            self._schedule()

    def cancel(self) -> None:
        self._running = False
        if self._handle is not None:
            self._unschedule()

    def close(self) -> None:
        """Cancel the timer and drop its callback, so that no reference cycle is left to the garbage collector."""
        self.cancel()
        self._on_expiry = lambda: None

    @contextmanager
    def pause(self) -> Generator[None]:
        """Pause this timer and its parents inside the context; pauses may overlap."""
        self._paused += 1
        self._unschedule()
        try:
            with self._parent.pause() if self._parent else nullcontext():
                yield
        finally:
            self._paused -= 1
            self._schedule()

    def _schedule(self) -> None:
        if self._running and self._seconds_left is not None and self._handle is None and not self._paused:
            self._handle = asyncio.get_running_loop().call_later(self._seconds_left, self._on_expiry)

    def _unschedule(self) -> None:
        if self._handle is not None:
            self._seconds_left = max(self._handle.when() - asyncio.get_running_loop().time(), 0.0)
            self._handle.cancel()
            self._handle = None


class TimeExceeded(TimeoutError):
    """The work was cancelled because its time was over."""


async def await_bounded(work: Awaitable[_T], seconds: float | None, stop: StopSignal | None) -> _T:
    """Await ``work``. Raises ``TimeExceeded`` after ``seconds``, and ``TurnStopped`` when ``stop`` is triggered."""
    bound = asyncio.timeout(seconds) if seconds is not None else None
    try:
        with stop.cancellable() if stop is not None else nullcontext():
            async with bound or nullcontext():
                return await work
    except TimeoutError as error:
        if bound is None or not bound.expired():
            raise
        raise TimeExceeded from error
    finally:
        if isinstance(work, CoroutineType):  # work of a turn that was stopped before is never awaited
            work.close()


async def run_together(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines concurrently to their ends, also when one fails; then raise the first error.

    When the caller is cancelled, they are too, and have ended when this raises.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    for error in [task.exception() for task in tasks]:  # all exceptions are retrieved, so that asyncio logs none
        if error is not None:
            raise error


def run_at_once(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, without a task, and return its result."""
    try:
        copy_context().run(work.send, None)
    except StopIteration as end:
        result: _T = end.value
        return result
    work.close()
    raise RuntimeError("a tool that never suspends was suspended")


def measure_steps(work: Awaitable[Any], on_blocked: Callable[[float], None]) -> Awaitable[Any]:
    """Return ``work``, to be awaited; ``on_blocked`` is called with the time of each step that holds the event loop."""
    coroutine: Any = work
    return _MeasuredSteps(coroutine, on_blocked) if type(work) is CoroutineType else work


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
            if time.perf_counter() - start > MAX_STEP_SECONDS:
                self._on_blocked(time.perf_counter() - start)

    def throw(self, kind: Any, error: BaseException | object = None, trace: TracebackType | None = None) -> Any:
        """Resume the coroutine with an error, such as its cancellation."""
        start = time.perf_counter()
        try:
            return self._work.throw(error if isinstance(error, BaseException) else kind)
        finally:
            if time.perf_counter() - start > MAX_STEP_SECONDS:
                self._on_blocked(time.perf_counter() - start)

    def close(self) -> None:
        """Close the coroutine; it may be closed already."""
        self._work.close()
