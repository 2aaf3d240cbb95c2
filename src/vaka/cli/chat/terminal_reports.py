"""Reports of a terminal among the keys: the colour of its background, and whether it has the focus."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.keys import Keys

ASK_BACKGROUND = "\x1b]11;?\x1b\\"
REPORT_FOCUS, IGNORE_FOCUS = "\x1b[?1004h", "\x1b[?1004l"
FOCUS_GAINED, FOCUS_LOST = "\x1b[I", "\x1b[O"

MAX_REPORT = 100
"""Characters of a report of a colour; longer text is none."""

_REPORT_START = "\x1b]11;"
_REPORT = re.compile(r"\x1b\]11;([^\x07\x1b]*)(?:\x07|\x1b\\)")
_COLOUR = re.compile(r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})", re.IGNORECASE)
_LIGHT_COLOURS = frozenset({"7", "9", "10", "11", "12", "13", "14", "15"})

# The parser of prompt_toolkit would take them for the Escape key and a letter.
ANSI_SEQUENCES.update({FOCUS_GAINED: Keys.Ignore, FOCUS_LOST: Keys.Ignore})


def theme_of_environment(environ: Mapping[str, str]) -> str:
    """Return the theme that the environment names, ``""`` for none."""
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return "none"
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return "" if not background.isdigit() else "light" if background in _LIGHT_COLOURS else "dark"


def theme_of_colour(report: str) -> str:
    """Return the theme for the colour of a background, such as ``rgb:1e1e/1e1e/1e1e``; ``""`` if it is not a colour."""
    match = _COLOUR.match(report)
    if match is None:
        return ""
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in match.groups())
    return "light" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "dark"


def _split_partial_report(text: str) -> tuple[str, str]:
    """Return what comes before the beginning of a report whose rest is still to come, and that beginning."""
    start = text.find(_REPORT_START)
    if start < 0:
        lengths = range(len(_REPORT_START) - 1, 0, -1)
        start = next((len(text) - n for n in lengths if text.endswith(_REPORT_START[:n])), len(text))
    elif len(text) - start > MAX_REPORT:
        start = len(text)
    return text[:start], text[start:]


class BackgroundReader:
    """A parser of keys that takes the report of the background out of them, whenever it arrives."""

    def __init__(self, parser: Any, on_report: Callable[[str], None]) -> None:
        self._parser, self._on_report = parser, on_report
        self._held = ""

    def feed(self, data: str) -> None:
        text, self._held = self._held + data, ""
        report = _REPORT.search(text)
        if report is not None:
            text = text[: report.start()] + text[report.end() :]
            self._on_report(report[1])
        else:
            text, self._held = _split_partial_report(text)
        self._parser.feed(text)

    def flush(self) -> None:
        """Take a lone escape byte for the Escape key: nothing has followed it for a while."""
        if self._held == "\x1b":
            self._held = ""
            self._parser.feed("\x1b")
        self._parser.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


class TerminalReports:
    """Asks a terminal for reports, and takes those it sends."""

    def __init__(self, write: Callable[[str], None], on_theme: Callable[[str], None] | None) -> None:
        """Write with ``write``; ``on_theme`` is called with the theme that fits the background."""
        self._write, self._on_theme = write, on_theme
        self.focused: bool | None = None
        """Whether the terminal has the focus, ``None`` if it has not reported it."""
        self._enabled = os.environ.get("TERM") != "dumb" and sys.platform != "win32"

    def start(self, keys: Any) -> None:
        """Ask for the reports, which arrive among ``keys``, an input of prompt_toolkit."""
        self.report_focus(True)
        if self._enabled and self._on_theme is not None:
            keys.vt100_parser = BackgroundReader(keys.vt100_parser, self._take_background)
            self._write(ASK_BACKGROUND)

    def report_focus(self, on: bool) -> None:
        """Let the terminal report its focus, or not while another program reads the keys."""
        if self._enabled:
            self._write(REPORT_FOCUS if on else IGNORE_FOCUS)

    def take_key(self, data: str) -> None:
        """Take a report of the focus."""
        if data in (FOCUS_GAINED, FOCUS_LOST):
            self.focused = data == FOCUS_GAINED

    def _take_background(self, report: str) -> None:
        theme = theme_of_colour(report)
        if theme and self._on_theme is not None:
            self._on_theme(theme)
