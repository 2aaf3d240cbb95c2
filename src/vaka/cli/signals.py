"""Ctrl-C and SIGTERM: the first asks the turn to stop, a second Ctrl-C within two seconds leaves at once."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from vaka.cli.errors import INTERRUPTED, TERMINATED

AGAIN = 2.0
"""Seconds in which a second Ctrl-C means: now."""


class Signals:
    """While entered, a signal calls ``stop`` in the loop; ``leave`` is called right before the process ends at once.

    Ctrl-C stays ignored where it was, as for what a script runs in the background.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stop: Callable[[], object], leave: Callable[[], object] | None = None
    ) -> None:
        self.code = 0
        """The exit code the first signal asks for."""
        self._loop, self._stop, self._leave = loop, stop, leave
        self._last = -AGAIN
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        self._waking = _Waking(self._loop)
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._waking.close()

    def _caught(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if number == signal.SIGINT and now - self._last < AGAIN:
            if self._leave is not None:
                self._leave()
            os._exit(INTERRUPTED)
        if number == signal.SIGINT:
            self._last = now
        self.code = self.code or (TERMINATED if number == signal.SIGTERM else INTERRUPTED)
        self._loop.call_soon_threadsafe(self._stop)


class _Waking:
    """Wakes the loop when a signal comes; by itself one that comes right before the loop falls asleep does not."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ends: tuple[socket.socket, ...] = ()
        if sys.platform == "win32":
            return  # that loop looks after itself
        self._loop, self._ends = loop, socket.socketpair()
        heard, told = self._ends
        heard.setblocking(False)
        told.setblocking(False)
        loop.add_reader(heard, lambda: heard.recv(4096))
        self._before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)

    def close(self) -> None:
        """Leave everything as it was."""
        if self._ends:
            signal.set_wakeup_fd(self._before)
            self._loop.remove_reader(self._ends[0])
        for end in self._ends:
            end.close()
