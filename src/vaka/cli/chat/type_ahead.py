"""Keys that are typed while the chat starts."""

import os
import select
import sys
from types import TracebackType
from typing import Self

if sys.platform != "win32":
    import termios


class TypeAhead:
    """While entered, the terminal does not echo keys; ``keys`` has those that were typed before.

    Until then the terminal has changed Enter to a line feed, which is another key for the chat; it is changed back.
    """

    def __init__(self) -> None:
        self.keys = ""
        self._before: list[int | list[bytes | int]] | None = None

    def __enter__(self) -> Self:
        if sys.platform == "win32" or not sys.stdin.isatty():
            return self
        descriptor = sys.stdin.fileno()
        self._before = termios.tcgetattr(descriptor)
        quiet = termios.tcgetattr(descriptor)
        quiet[0] &= ~termios.ICRNL  # input flags
        quiet[3] &= ~(termios.ECHO | termios.ICANON)  # local flags
        termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
        typed = b""
        while select.select([descriptor], [], [], 0)[0] and (data := os.read(descriptor, 4096)):
            typed += data
        self.keys = typed.decode("utf-8", "replace").replace("\n", "\r")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if sys.platform != "win32" and self._before is not None:
            try:
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._before)
            except termios.error:
                pass  # the terminal is closed
