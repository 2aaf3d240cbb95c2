"""Run an event loop until its work is done or a signal stops it."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from vaka.cli.kit.errors import INTERRUPTED, Quit
from vaka.cli.kit.stdout import discard_output_of_closed_terminal

T = TypeVar("T")

SHUTDOWN_SECONDS = 2.0
"""Seconds that cancelled tasks get to finish before the loop is closed."""
FORCE_QUIT_SECONDS = 2.0
"""Seconds within which a second Ctrl-C exits at once."""
_HANG_UP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""The signal that a process gets when its terminal closes; Windows has none."""
_STOP_SIGNALS = tuple(filter(None, (signal.SIGINT, signal.SIGTERM, _HANG_UP)))


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run like ``asyncio.run``, but do not wait for a task that ignores its cancellation. A signal cancels the work."""
    with CommandLoop() as loop:
        return loop.run(work)


class CommandLoop:
    """The event loop of a command, for one piece of work after the other. A signal cancels the running piece."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[Any] | None = None
        self._signals = SignalHandler(self._loop, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._signals:
            _shut_down_loop(self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return its result."""
        self._task = task = self._loop.create_task(work)
        with self._signals as signals:
            try:
                return self._loop.run_until_complete(task)
            except asyncio.CancelledError:
                raise Quit(signals.code or INTERRUPTED) from None


def _shut_down_loop(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left and loop.run_until_complete(asyncio.wait(left, timeout=SHUTDOWN_SECONDS))[1]:
        loop.set_exception_handler(
            lambda loop, context: None
        )  # a tool ignored its cancellation; its turn has reported that
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class SignalHandler:
    """While entered, a signal calls ``stop`` in the loop; ``before_exit`` runs right before the process exits at once.

    A signal that is ignored stays ignored: SIGINT in the background jobs of a shell script, SIGHUP below ``nohup``.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stop: Callable[[], object],
        before_exit: Callable[[], object] = lambda: None,
    ) -> None:
        self.code = 0
        """The exit code of the first signal, else 0."""
        self._loop = loop
        self._stop = stop
        self._before_exit = before_exit
        self._last_interrupt = -FORCE_QUIT_SECONDS
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> "SignalHandler":
        self._wakeup = _WakeupSocket(self._loop)
        for number in _STOP_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._previous_handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._previous_handlers.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, before)
        self._wakeup.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if number == signal.SIGINT and now - self._last_interrupt < FORCE_QUIT_SECONDS:
            self._before_exit()
            os._exit(INTERRUPTED)
        if number == signal.SIGINT:
            self._last_interrupt = now
        if number == _HANG_UP:
            discard_output_of_closed_terminal()
            signal.signal(number, signal.SIG_IGN)  # the kernel and the shell may both send it; the end is under way
        self.code = self.code or 128 + number
        self._loop.call_soon_threadsafe(self._stop)


class _WakeupSocket:
    """Wakes the loop on a signal; without it a signal right before ``select`` would be handled only after it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sockets: tuple[socket.socket, ...] = ()
        if sys.platform == "win32":
            return  # the proactor loop wakes up by itself
        self._loop, self._sockets = loop, socket.socketpair()
        reader, writer = self._sockets
        reader.setblocking(False)
        writer.setblocking(False)
        loop.add_reader(reader, lambda: reader.recv(4096))
        self._previous_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def close(self) -> None:
        if self._sockets:
            signal.set_wakeup_fd(self._previous_fd)
            self._loop.remove_reader(self._sockets[0])
        for end in self._sockets:
            end.close()
