"""How something that takes a while goes on: words that grow, told without filling the screen or a log."""

import sys
from typing import TextIO

import click

from vaka.cli.render import printable

_UP = "\x1b[1A\x1b[2K"
"""One line up, and nothing left of it: the line is whole each time, so that whatever comes next has one of its own."""


class Loading:
    """Tells each step in one line that is written anew on a terminal; elsewhere only the first step and the end.

    A step begins with the words of the first one; the end does not.
    """

    def __init__(self, screen: TextIO | None = None) -> None:
        self._screen = screen
        self._first = ""

    def __call__(self, text: str) -> None:
        """Take the next words."""
        screen = self._screen or sys.stderr
        goes_on = bool(self._first) and text.startswith(self._first)
        if screen.isatty():
            again = _UP if self._first else ""
            click.echo(again + click.style(printable(text), dim=True), file=screen)
        elif not goes_on:
            click.echo(printable(text), file=screen)
        self._first = self._first if goes_on else "" if self._first else text
