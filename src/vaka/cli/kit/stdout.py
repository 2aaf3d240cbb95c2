"""The standard output of a command: its own result alone, whatever the modules and tools that it runs print."""

import contextlib
import os
import stat
import sys
from typing import Any, TextIO

import click

_reserved: TextIO | None = None


def own_stdout() -> TextIO:
    """Return the stream to which a command writes its result."""
    return _reserved or sys.stdout


def terminal_size(stream: TextIO) -> os.terminal_size:
    """Return the size of the terminal of a stream, else the size in ``COLUMNS`` and ``LINES``, else 80 by 24.

    ``shutil`` has such a function, and loads the compression libraries with it.
    """
    with contextlib.suppress(OSError, ValueError):
        size = os.get_terminal_size(stream.fileno())
        if size.columns and size.lines:
            return size
    return os.terminal_size((_variable("COLUMNS") or 80, _variable("LINES") or 24))


def result_width() -> int | None:
    """Return the columns that a line of a result may fill: ``COLUMNS`` or the terminal's; ``None`` in a pipe."""
    stream = own_stdout()
    return (_variable("COLUMNS") or terminal_size(stream).columns) if stream.isatty() else None


def _variable(name: str) -> int:
    """Return the number in an environment variable, 0 for anything else."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def echo(text: "str | bytes" = "", *, nl: bool = True) -> None:
    """Write a part of the result, and a newline."""
    click.echo(text, nl=nl, file=own_stdout())


def reserve_stdout() -> None:
    """Send what other code writes to stdout from now on to stderr, also what it writes to file descriptor 1.

    Called before code of the user runs, which may print at any time and in any thread or child process.
    """
    global _reserved  # noqa: PLW0603  # a process has one standard output
    if _reserved is not None:
        return
    sys.stdout.flush()
    number = _descriptor_of(sys.stdout)
    if number is None:  # a stream in memory, or a replaced closed stream
        _reserved, sys.stdout = sys.stdout, sys.stderr
        return
    buffering = 1 if sys.stdout.isatty() else -1
    _reserved = os.fdopen(os.dup(number), "w", buffering, encoding="utf-8", errors="replace", newline="\n")
    os.dup2(_descriptor_of(sys.stderr) or os.open(os.devnull, os.O_WRONLY), number)
    reconfigure: Any = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True)  # its lines stay in order with the lines of stderr


def flush_stdout() -> None:
    """Write what is buffered. Raises ``OSError`` when the result cannot be written, and once only."""
    if _reserved is not None and sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):  # other code may have closed it
            _flush(sys.stdout)
    _flush(own_stdout())


def _flush(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError:  # the interpreter flushes it once more when it exits, and would report that as well
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise


def _descriptor_of(stream: TextIO) -> int | None:
    """Return the descriptor of a standard stream, ``None`` for a stream that has none."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return None
    return number if number in (1, 2) else None


def discard_output_of_closed_terminal() -> None:
    """Write to /dev/null instead of a terminal that has been closed, where every write would fail."""
    for descriptor in {1, 2, *(() if _reserved is None else (_reserved.fileno(),))}:
        with contextlib.suppress(OSError):  # it may be closed
            # A closed terminal is a character device that is no terminal any more, isatty(3).
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, descriptor)
                os.close(null)
