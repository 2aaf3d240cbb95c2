"""Stopping a turn from outside, wherever it is, without ever cutting through a write.

Work that may be cancelled runs inside ``cancellable()``; a stop cancels the tasks that are in such a region, or takes
effect at the next one. One ``StopSignal`` serves a turn; a child has its own, which the signal of its parent triggers.
"""

import asyncio
from typing import Literal, TypeAlias

StopKind: TypeAlias = Literal["interrupted", "cancelled", "limit"]


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
