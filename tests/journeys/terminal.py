"""A command in a pseudo-terminal with a screen that pyte emulates."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

from tests.journeys.answers import PATIENCE
from tests.journeys.installed import Home

ENTER = "\r"
ESCAPE = "\x1b"
CTRL_C = "\x03"
CTRL_D = "\x04"
_CURSOR_REQUEST = b"\x1b[6n"


class Terminal:
    """A terminal of 100 columns in which a command of vaka runs."""

    def __init__(self, home: Home, cwd: Path, *arguments: str) -> None:
        columns, rows = 100, 40
        self._screen: Any = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream: Any = pyte.ByteStream(self._screen)
        self._master, slave = os.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            ["setsid", "--ctty", home.vaka, *arguments],
            cwd=cwd,
            env=home.environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self._master)

    @property
    def text(self) -> str:
        """The scroll-back and the lines of the screen."""
        columns = range(self._screen.columns)
        above = ["".join(line[column].data for column in columns).rstrip() for line in self._screen.history.top]
        return "\n".join([*above, *(line.rstrip() for line in self._screen.display)]).rstrip("\n")

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def say(self, text: str) -> None:
        """Type a line and press Enter when it is on the screen."""
        self.send(text)
        self.expect(text)
        self.send(ENTER)

    def expect(self, text: str, *, times: int = 1) -> None:
        """Read until a text is on the screen or above it."""
        self.wait_until(lambda: self.text.count(text) >= times, f"{text!r} to appear")

    def wait_until(self, condition: Callable[[], bool], wanted: str) -> None:
        deadline = time.monotonic() + PATIENCE  # a status line that changes every second is no progress
        while not condition():
            is_alive = self._read() and time.monotonic() < deadline
            assert is_alive, f"expected {wanted}\nThe screen is:\n{self.text}"

    def kill(self) -> None:
        """End the command with SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def wait_exit(self) -> int:
        """Read to the end and return the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    def _read(self) -> bool:
        if not select.select([self._master], [], [], PATIENCE)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the process has exited
            return False
        while _CURSOR_REQUEST in data:  # a terminal answers with the place of its cursor
            before, data = data.split(_CURSOR_REQUEST, 1)
            self._stream.feed(before)
            os.write(self._master, f"\x1b[{self._screen.cursor.y + 1};{self._screen.cursor.x + 1}R".encode())
        self._stream.feed(data)
        return bool(data)
