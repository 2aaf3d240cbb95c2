"""A command in a pseudo-terminal whose screen is emulated by pyte."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import pyte

from tests.cli.shell import TIMEOUT, Shell, is_first_start, measure_once
from tests.forked_python import ForkedProcess, can_fork

ENTER = "\r"
ESCAPE = "\x1b"
CTRL_C = "\x03"
CTRL_D = "\x04"
CTRL_O = "\x0f"
SHIFT_TAB = "\x1b[Z"
_CURSOR_REQUEST = b"\x1b[6n"


class ChatTerminal:
    """A running command. ``expect`` waits for text on the screen or in the scroll-back."""

    def __init__(
        self,
        shell: Shell,
        *words: str,
        command: str = "chat",
        program: Sequence[str] = (),
        before: Sequence[str] = (),
        columns: int = 80,
        rows: int = 30,
        **env: str,
    ) -> None:
        """Run a command of vaka, with ``before`` in front of it, or another ``program``."""
        self.screen: Any = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream: Any = pyte.ByteStream(self.screen)
        self.written = b""
        """Everything that was written, escape sequences included."""
        self._master, slave = os.openpty()
        self.resize(columns, rows)
        arguments = ["-m", "vaka", command, *words]
        env = measure_once(shell.env | {"LANG": "C.UTF-8"} | env, [command, *words], "terminal")
        self.process: subprocess.Popen[bytes] | ForkedProcess
        is_plain = not program and not before and not is_first_start([command], "chat terminal")
        if is_plain and can_fork(arguments, env):
            self.process = ForkedProcess(arguments, shell.folder, env, (slave, slave, slave), session="terminal")
        else:
            line = ["setsid", "--ctty", *(program or [*before, sys.executable, *arguments])]
            self.process = subprocess.Popen(line, cwd=shell.folder, env=env, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)

    def expect_prompt(self, sign: str) -> Self:
        """Wait until the chat reads keys; before that the terminal itself would handle them."""
        try:
            self.expect(sign)
        except AssertionError:
            self.__exit__(None, None, None)
            raise
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT)
        os.close(self._master)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def say(self, text: str) -> None:
        """Enter a line, once the chat shows it in its input."""
        self.send(text)
        self.expect(text)
        self.send(ENTER)

    def expect(self, text: str, *, gone: bool = False, times: int = 1) -> None:
        """Read until a text is shown, ``times`` times, or with ``gone`` until it is on the screen no more."""
        wanted = f"{text!r} {'to disappear' if gone else 'to appear'}"
        self.wait_until(lambda: text not in self.visible if gone else self.text.count(text) >= times, wanted)

    def wait_until(self, condition: Callable[[], bool], wanted: str) -> None:
        """Read until a condition holds."""
        while not condition():
            if not self._read():
                raise AssertionError(f"expected {wanted}\nThe screen is:\n{self.text}")

    def read_for(self, seconds: float) -> None:
        """Read what is written in some time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and (
            not select.select([self._master], [], [], left)[0] or self._read()
        ):
            pass

    @property
    def visible(self) -> str:
        """The lines of the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip("\n")

    @property
    def text(self) -> str:
        """The scroll-back and the lines of the screen."""
        columns = range(self.screen.columns)
        above = ["".join(line[column].data for column in columns).rstrip() for line in self.screen.history.top]
        return "\n".join([*above, self.visible])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(TIMEOUT)

    def close(self) -> None:
        """Close the terminal, as its window does."""
        os.close(self._master)
        self._master = os.open(os.devnull, os.O_RDONLY)

    def wait_exit(self) -> int:
        """Read to the end and return the exit code."""
        while self._read():
            pass
        return self.process.wait(TIMEOUT)

    def _read(self) -> bool:
        if not select.select([self._master], [], [], TIMEOUT)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the process has exited
            return False
        self.written += data
        while _CURSOR_REQUEST in data:  # a terminal answers with the place of its cursor
            before, data = data.split(_CURSOR_REQUEST, 1)
            self._stream.feed(before)
            os.write(self._master, f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R".encode())
        self._stream.feed(data)
        return True
