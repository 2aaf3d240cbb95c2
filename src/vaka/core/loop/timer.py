"""A timer that can be paused together with the timers above it."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext


class Timer:
    """Calls ``on_expiry`` after ``seconds``. Waiting for a person pauses it, and its parents with it."""

    def __init__(self, seconds: float | None, on_expiry: Callable[[], None], parent: "Timer | None" = None) -> None:
        self._seconds_left, self._on_expiry, self._parent = seconds, on_expiry, parent
        self._handle: asyncio.TimerHandle | None = None
        self._running, self._paused = False, 0

    def start(self) -> None:
        self._running = True
        self._schedule()

    def cancel(self) -> None:
        self._running = False
        self._unschedule()

    def close(self) -> None:
        """Cancel the timer and drop its callback, so that no reference cycle is left to the garbage collector."""
        self.cancel()
        self._on_expiry = _do_nothing

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


def _do_nothing() -> None:
    return
