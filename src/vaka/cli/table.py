"""Rows for people: columns as wide as they must be, the last one cut at the edge of the terminal."""

import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime

import click

from vaka.cli.render import printable


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a head; to a pipe nothing is cut."""
    lines = [tuple(head), *(tuple(printable(cell, lines=False) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines:
        text = "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]])
        click.echo(text.rstrip()[:edge])


def age(ts: str) -> str:
    """Return how long ago a time of the log was, in one unit."""
    seconds = max(time.time() - datetime.fromisoformat(ts).timestamp(), 0) if ts else 0
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"
