"""A chat in lines, for screen readers and for terminals on which nothing can be drawn again.

Text is printed once, and input is read line by line with the editing of the terminal itself.
"""

import asyncio
import codecs
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from types import FrameType

from vaka.cli.chat.screen import QuestionActions


class PlainScreen:
    """Prints text and reads lines. Has the methods of ``ChatScreen``."""

    focused = None
    """Whether the terminal has the focus: it is not asked."""

    def __init__(self, *, submit: Callable[[str], Awaitable[None]], interrupt: Callable[[], bool]) -> None:
        self._submit, self._interrupt = submit, interrupt
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        """The beginning of a line whose end was not read yet."""
        self._lines_before: list[str] = []
        """The lines before it that belong to the same input."""
        self._answer: asyncio.Future[str | None] | None = None
        self._question_lock = asyncio.Lock()
        self._exited = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, keys: str = "") -> None:
        """Read lines until ``exit`` or the end of the input; ``keys`` are always none, the terminal keeps them."""
        loop, source = asyncio.get_running_loop(), sys.stdin.fileno()

        def on_signal(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self._on_interrupt)

        loop.add_reader(source, self._read)
        before = signal.signal(signal.SIGINT, on_signal)
        try:
            await self._exited.wait()
        finally:
            signal.signal(signal.SIGINT, before)
            loop.remove_reader(source)
            for task in self._tasks:
                task.cancel()

    def exit(self) -> None:
        self._exited.set()

    def print(self, text: str) -> None:
        """Print text; it may be several lines and ends with a line end."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:  # the terminal is gone
            self.exit()

    def write_control(self, sequence: str) -> None:
        """Write a sequence that draws nothing."""
        self.print(sequence)

    def flush(self) -> None:
        """Do nothing: text is printed at once."""

    def redraw(self) -> None:
        """Do nothing: what is running is not drawn."""

    async def ask(
        self,
        prompt: str | Callable[[], str],
        keys: str = "",
        *,
        actions: QuestionActions | None = None,
        on_text: Callable[[str], None] | None = None,
        text: str = "",
    ) -> str | None:
        """Print a question and return the next line; ``None`` when the user leaves it with Ctrl-C."""
        async with self._question_lock:
            shown = prompt if isinstance(prompt, str) else prompt()
            self.print(f"{shown.rstrip()}\n")
            answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            self._answer = answer
            try:
                return await answer
            finally:
                self._answer = None

    @property
    def asking(self) -> bool:
        return self._answer is not None

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return shutil.get_terminal_size().columns

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 65536)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            self.exit()
            return
        *lines, self._line = (self._line + self._decoder.decode(data)).split("\n")
        for line in lines:
            if line.endswith("\\"):  # it continues on the next line
                self._lines_before.append(line[:-1])
            else:
                self._take_line("\n".join([*self._lines_before, line]))
                self._lines_before.clear()

    def _take_line(self, line: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(line)
        elif line.strip():
            task = asyncio.ensure_future(self._submit(line))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _on_interrupt(self) -> None:
        """Leave the open question; else interrupt the turn; if none runs, leave."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)
        elif not self._interrupt():
            self.exit()
