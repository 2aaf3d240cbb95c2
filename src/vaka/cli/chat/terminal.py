"""The terminal of a chat: it gets whole frames, may be closed, and may be used by another job for a while."""

import asyncio
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output


class FrameOutput(Vt100_Output):
    """A terminal that gets each frame in one piece, so that it never shows half of one.

    It is not asked for the position of its cursor: the answer would arrive among the keys.
    """

    held = False
    """Whether text is collected instead of written."""

    def flush(self) -> None:
        if self.held:
            return
        try:
            super().flush()
        except OSError as error:
            if error.errno != errno.EIO:  # else the terminal is closed; reading keys ends with it
                raise

    @property
    def responds_to_cpr(self) -> bool:
        return False


def open_output() -> Output:
    """Return the terminal of this process."""
    if sys.platform == "win32":
        return create_output()
    return FrameOutput.from_pty(sys.stdout, term=os.environ.get("TERM"))


class FrameApplication(Application[None]):
    """An application in the ordinary screen: text is printed above it, and it stays in its place on a resize."""

    def __init__(self, on_change: Callable[[], None], **options: Any) -> None:
        """Call ``on_change`` before a frame when the size has changed, and when text is printed above the frame."""
        super().__init__(**options)
        self._on_change = on_change
        self._size: Size | None = None
        self._frame_start = 0.0
        self.printed: list[str] = []
        """Text that the next frame prints above itself."""
        self.frame_seconds = 0.0
        """How long the last frame took."""
        self.before_render += self._begin_frame
        self.after_render += self._end_frame

    def write_printed(self) -> None:
        """Print what is waiting to be printed."""
        text, self.printed = "".join(self.printed), []
        if text:
            self.output.write_raw(text.replace("\n", "\r\n"))
            self.output.flush()

    def _begin_frame(self, app: object) -> None:
        self._frame_start = time.monotonic()
        size, last = self.output.get_size(), self.renderer.last_rendered_screen
        height = self.layout.container.preferred_height(size.columns, size.rows).preferred
        shrinks = last is not None and last.height > height
        if not self.printed and not shrinks and size == self._size:
            return
        if isinstance(self.output, FrameOutput):
            self.output.held = True
        if size != self._size:
            self._size = size
            self._follow_wrapped_lines()
            self._on_change()
        self.renderer.erase()
        if self.printed:
            self.write_printed()
            self._on_change()  # what is running may be what is printed now

    def _end_frame(self, app: object) -> None:
        if isinstance(self.output, FrameOutput) and self.output.held:
            self.output.held = False
            self.output.flush()
        self.frame_seconds = time.monotonic() - self._frame_start

    def _on_resize(self) -> None:
        self._redraw()  # which compares sizes: a frame may be drawn before the signal arrives

    def _follow_wrapped_lines(self) -> None:
        """Move the cursor to where it was: many terminals wrap the lines that are drawn when they become narrower."""
        screen, columns = self.renderer.last_rendered_screen, self.output.get_size().columns
        if screen is not None and columns > 0 and _wraps_when_narrow(os.environ):
            cursor = screen.get_cursor_position(self.layout.current_window)
            rows = [screen.data_buffer[row] for row in range(cursor.y)]
            widths = [max((x for x, cell in row.items() if cell.char.strip()), default=0) for row in rows]
            self.output.cursor_up(sum(width // columns for width in widths) + cursor.x // columns)


def _wraps_when_narrow(environ: Mapping[str, str]) -> bool:
    """Whether the terminal is known to wrap its lines again when it becomes narrower; xterm, for one, cuts them."""
    names = ("TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WT_SESSION", "ALACRITTY_WINDOW_ID", "TERM_PROGRAM")
    return any(environ.get(name) for name in names)


class JobControl:
    """While entered, SIGTSTP suspends an application, and it is drawn again when it goes on."""

    def __init__(self, app: Application[Any], report_focus: Callable[[bool], None]) -> None:
        """Call ``report_focus`` with whether the terminal may report its focus to the job that reads its keys."""
        self._app, self._report_focus = app, report_focus

    def __enter__(self) -> None:
        if sys.platform != "win32":
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTSTP, self.suspend)
            loop.add_signal_handler(signal.SIGCONT, self._draw_again)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if sys.platform != "win32":
            loop = asyncio.get_running_loop()
            loop.remove_signal_handler(signal.SIGTSTP)
            loop.remove_signal_handler(signal.SIGCONT)

    def suspend(self) -> None:
        """Stop all processes of this job, with the terminal in its usual mode, until the job goes on."""
        if sys.platform == "win32":
            return
        loop = asyncio.get_running_loop()
        self._app.renderer.erase()
        self._report_focus(False)
        with self._app.input.cooked_mode():
            loop.remove_signal_handler(signal.SIGTSTP)
            os.kill(0, signal.SIGTSTP)
            loop.add_signal_handler(signal.SIGTSTP, self.suspend)
        self._draw_again()

    def _draw_again(self) -> None:
        """Draw on a terminal that another program may have used and set to another mode."""
        if self._app.is_running:
            self._app.input.raw_mode().__enter__()  # the application restores the mode it has found when it ends
            self._app.renderer.reset()
            self._report_focus(True)
            self._app.invalidate()
