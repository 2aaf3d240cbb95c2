"""A turn as ``vaka run`` shows it: progress on stderr, the answer on stdout; at a terminal with a live area below."""

import os
import sys
from typing import TYPE_CHECKING, TextIO

import click

from vaka.cli.display.call_summary import NO_DECLARED_TRAITS, TraitsByName
from vaka.cli.display.plain_renderer import PlainRenderer
from vaka.cli.display.view import SessionView
from vaka.cli.kit.render import as_printable
from vaka.cli.kit.stdout import echo, own_stdout, terminal_size
from vaka.cli.strings import translate
from vaka.core.types import control, progress
from vaka.core.types.event import Event

if TYPE_CHECKING:
    from vaka.cli.display.rich_renderer import RichRenderer

MAX_LIVE_LINES = 16
"""Lines that show what is running."""
LINE_WIDTH = 100
"""Columns of a line that is not for a terminal."""

_EARLY_TYPES = (
    control.SessionOpened,
    control.InputAdded,
    control.StateChanged,
    progress.TurnQueued,
    progress.TurnStarted,
    progress.StepStarted,
)
"""Events before the first answer of a model, which print little or nothing."""


class LiveArea:
    """Lines at the bottom of a terminal that are replaced again and again.

    The cursor stays at the beginning of an empty line above them, so that what other code prints is not lost.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: list[str] = []

    def draw(self, text: str) -> None:
        """Replace the lines."""
        rows = terminal_size(sys.stderr).lines
        lines = text.split("\n")[-max(min(MAX_LIVE_LINES, rows - 3), 1) :] if text else []
        if lines == self._lines:
            return
        self._lines = lines
        shown = "\n".join(["", *lines])  # without wrapping, each line takes one row whatever the width is now
        self._write(f"\x1b[J\x1b[?7l{shown}\x1b[?7h\x1b[{len(lines)}A\r" if lines else "\x1b[J")

    def clear(self) -> None:
        """Remove the lines."""
        self.draw("")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class TurnDisplay:
    """Shows the events of a run."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.streams_answers = False
        """Whether the answer is written to stdout as it arrives; else the caller writes it at the end."""
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or sys.platform == "win32"
        self.for_terminal = not plain and sys.stderr is not None and sys.stderr.isatty()
        """Whether stderr is a terminal with colours, on which a live area can be drawn with ``tick``."""
        self._verbose = verbose
        self.declared: TraitsByName = NO_DECLARED_TRAITS
        """The traits of tools that are not built in; they count until the first call is shown."""
        self._created_view: SessionView | None = None
        self._early: list[Event] = []
        """Events before there was a view."""
        self._live: LiveArea | None = None
        self._closed = False
        self._held_answer = ""
        self._held_text: list[tuple[str, bool]] | None = None

    def has_written(self, text: str) -> bool:
        """Whether a text is the last message, and was written to stdout."""
        view = self._created_view
        return self.streams_answers and view is not None and view.answer.has_all_of(text)

    @property
    def _view(self) -> SessionView:
        """The view. Loading what draws colours takes a while, so it is made once a model has been asked."""
        if self._created_view is None:
            renderer = self._create_renderer()
            self._live = LiveArea(sys.stderr) if renderer is not None else None
            self._created_view = SessionView(
                renderer or PlainRenderer(LINE_WIDTH, declared=self.declared),
                conversation=False,
                live=renderer is not None,
                verbose=self._verbose,
            )
            early, self._early = self._early, []
            for event in early:
                self.show(event)
        return self._created_view

    def _create_renderer(self) -> PlainRenderer | None:
        """Return the renderer of a terminal with colours, ``None`` without one."""
        if not self.for_terminal or (make := find_rich_renderer()) is None:
            return None
        return make(terminal_size(sys.stderr).columns, unicode=locale_has_unicode(), declared=self.declared)

    def show(self, event: Event) -> None:
        """Print what an event adds."""
        if self._created_view is None and isinstance(event.data, _EARLY_TYPES):
            self._early.append(event)
            return
        self._closed = self._closed and not isinstance(event.data, progress.TurnStarted)
        before, answer, after = self._view.take_parts(event)
        self.print(before)
        if self.streams_answers:
            self.print(answer, answer=True)
        else:
            self._hold_answer(event, answer)
        self.print(after)

    def skip(self, event: Event) -> None:
        """Take an event that was shown before."""
        self._view.take_parts(event)

    def _hold_answer(self, event: Event, answer: str) -> None:
        """Print what a message says before its calls; the last message is the result, which the caller writes."""
        self._held_answer += answer
        if isinstance(event.data, progress.ToolCalled) and not event.path:
            held, self._held_answer = self._held_answer, ""
            self.print(held)
        elif isinstance(event.data, progress.TURN_ENDS) and not event.path:
            self._held_answer = ""

    def note(self, text: str) -> None:
        """Print a line of progress."""
        line = f"{as_printable(text)}\n"
        self.print(line if self._live is None else click.style(line, dim=True))

    def tick(self) -> None:
        """Draw what is running."""
        view = self._view if self._early else self._created_view
        if self._live is None or view is None or self._held_text is not None or self._closed:
            return
        if view.renderer.width != terminal_size(sys.stderr).columns:
            view.renderer = self._create_renderer() or view.renderer
        self._live.draw(view.live_text(translate("Ctrl-C interrupts")))

    def hold(self) -> None:
        """Keep what is printed until ``release``: a question is on the screen."""
        if self._held_text is None:
            self._held_text = []
            if self._live is not None:
                self._live.clear()

    def wrap(self, text: str) -> tuple[str, bool]:
        """Return a text in lines that fit the terminal, and whether they can be removed from it again."""
        view = self._created_view
        if self._live is None or view is None:
            return text, False
        end = text[len(text.rstrip(" ")) :]  # where an answer is typed
        return view.renderer.panel(text) + end, True

    def release(self) -> None:
        held, self._held_text = self._held_text, None
        for text, answer in held or ():
            self.print(text, answer=answer)

    def close(self) -> None:
        """Remove the live area, until another turn starts."""
        self.release()
        if self._live is not None:
            self._live.clear()
            self._closed = True

    def print(self, text: str, *, answer: bool = False) -> None:
        """Print text above the live area, once no question is on the screen."""
        if not text:
            return
        if self._held_text is not None:
            self._held_text.append((text, answer))
            return
        if self._live is not None:
            self._live.clear()
        if answer:
            echo(text, nl=False)
            own_stdout().flush()
        else:
            click.echo(text if self._live is not None else click.style(text, dim=True), nl=False, err=True)
        self.tick()


def locale_has_unicode() -> bool:
    """Whether the locale of the terminal can show more than ASCII."""
    locale = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
    return "utf" in locale.lower() or (not locale and sys.platform != "linux")


def find_rich_renderer() -> "type[RichRenderer] | None":
    """Return the renderer with colours, ``None`` where its library is not installed."""
    try:
        from vaka.cli.display.rich_renderer import RichRenderer
    except ImportError:
        return None
    return RichRenderer
