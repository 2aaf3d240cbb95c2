"""Questions of ``vaka run`` at the terminal, and an editor for longer answers."""

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import click

from vaka.cli.display.turn_display import TurnDisplay
from vaka.cli.kit.bootstrap import has_terminal, open_controlling_terminal
from vaka.cli.kit.stdout import terminal_size
from vaka.cli.strings import translate

if sys.platform != "win32":
    import termios

_MARGIN = 8
"""Lines of the terminal that a question leaves for what is around it."""


class TerminalPrompt:
    """Asks below the progress of a turn, which is held back until there is an answer. Close it at the end.

    Lines are read from stdin, or from the controlling terminal if stdin is a pipe or a file.
    """

    may_leave = False

    def __init__(self, display: TurnDisplay | None) -> None:
        self._display = display
        descriptor = None if has_terminal() else open_controlling_terminal()
        self._is_own = descriptor is not None
        self._descriptor = descriptor if descriptor is not None else sys.stdin.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_own:
            os.close(self._descriptor)

    @property
    def size(self) -> tuple[int, int]:
        columns, rows = terminal_size(sys.stderr)
        return columns, max(rows - _MARGIN, 4)

    async def ask(self, text: str, prompt: str, keys: str = "") -> str | None:
        shown = f"{text}\n{prompt}" if text else prompt
        if self._display is None:
            return await self._read_line(shown)
        self._display.hold()
        shown, can_erase = self._display.wrap(shown)
        line = None
        try:
            line = await self._read_line(shown)
        finally:
            with suppress(OSError):  # the terminal may be closed
                if can_erase:
                    self._erase(shown, line)
                self._display.release()
        return line

    def echo(self, text: str) -> None:
        if self._display is None:
            click.echo(text, err=True)
        else:
            self._display.print(f"{text}\n")

    async def edit(self, text: str) -> str | None:
        return await edit_in_editor(text, self.echo, self._descriptor)

    def _erase(self, shown: str, line: str | None) -> None:
        """Remove a question and its answer from the screen."""
        columns, rows = terminal_size(sys.stderr)
        last = click.unstyle(shown.rpartition("\n")[2])
        above = shown.count("\n") + (0 if line is None else 1 + (len(last) + len(line.rstrip())) // columns)
        up = f"\x1b[{min(above, rows - 1)}A" if above else ""
        sys.stderr.write(f"{up}\r\x1b[J")
        sys.stderr.flush()

    async def _read_line(self, prompt: str) -> str | None:
        """Return one line; ``None`` at the end of input, also when the terminal was closed.

        Input typed before the prompt is discarded.
        """
        if sys.platform == "win32":
            click.echo(prompt, err=True, nl=False)
            return await asyncio.to_thread(sys.stdin.readline) or None
        try:
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
            click.echo(prompt, err=True, nl=False)
        except (OSError, termios.error):
            return None
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[bytes] = loop.create_future()

        def on_readable() -> None:
            if not ready.done():
                try:
                    ready.set_result(os.read(self._descriptor, 65536))
                except OSError:
                    ready.set_result(b"")

        loop.add_reader(self._descriptor, on_readable)
        try:
            line = await ready
        finally:
            loop.remove_reader(self._descriptor)
        return line.decode("utf-8", "replace") if line else None


async def edit_in_editor(text: str, echo: Callable[[str], None], terminal: int | None = None) -> str | None:
    """Return a text as the user's editor leaves it; if that cannot be done, say so and return ``None``."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        editor = shlex.split(command)
    except ValueError:  # a quotation mark is not closed
        editor = command.split()
    if not editor:
        echo(translate("Set VISUAL or EDITOR to change the arguments in an editor."))
        return None
    with tempfile.TemporaryDirectory(prefix="vaka-") as folder:
        file = Path(folder) / "arguments.json"
        file.write_text(text, encoding="utf-8")
        try:
            process = await asyncio.create_subprocess_exec(*editor, str(file), stdin=terminal, stdout=terminal)
        except OSError as error:
            echo(f"error: the editor {editor[0]!r} cannot be started: {error.strerror or error}")
            return None
        code = await process.wait()
        if code:
            echo(f"error: the editor {editor[0]!r} ended with exit code {code}")
        return None if code else file.read_text(encoding="utf-8", errors="replace")
