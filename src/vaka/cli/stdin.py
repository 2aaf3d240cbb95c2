"""What was said: the argument, what is piped in, or both. A silent pipe is waited for only when asked with ``-``."""

import os
import re
import select
import stat
import sys

import click

from vaka.cli.errors import UsageError

LIMIT = 10 * 1024 * 1024
"""Bytes that may be piped in."""
FIRST = 0.05
"""Seconds an open pipe gets to show its first byte when there is an argument."""
QUIET = 2.0
"""Seconds of silence after which a pipe that has spoken is taken to be done."""

_PIECE = 64 * 1024
_NOTHING = "no prompt; write one, or pipe it in"


def read_prompt(words: tuple[str, ...]) -> str:
    """Return the prompt for ``[PROMPT] [-]``. Raises ``UsageError`` when there is none."""
    said, forced = _split(words)
    piped = _whole() if forced or said is None else _ready()
    text = piped.decode("utf-8", "replace").removeprefix("\ufeff")
    if said is None:
        if not text.strip():
            raise UsageError("the prompt is empty: nothing came from stdin")
        return text
    if not said.strip():
        raise UsageError("the prompt is empty; write what to do")
    return fenced(said, text) if text.strip() else said


def fenced(said: str, data: str) -> str:
    """Return an instruction with data below it, between marks the data cannot forge."""
    return f"{said}\n\n{quoted('Input from stdin', data)}"


def quoted(title: str, data: str) -> str:
    """Return data under a title, between marks the data cannot forge."""
    longest = max(map(len, re.findall("`+", data)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{title}:\n{fence}\n{data.rstrip(chr(10))}\n{fence}"


def _split(words: tuple[str, ...]) -> tuple[str | None, bool]:
    """Return the argument and whether ``-`` was among the words."""
    said = [word for word in words if word != "-"]
    if len(said) > 1 or len(words) > 2:
        raise UsageError(f"one prompt is expected, not {len(said)}; put it in quotes")
    return (said[0] if said else None), len(said) < len(words)


def _whole() -> bytes:
    """Read to the end; whoever asked for it waits as long as it takes."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(_NOTHING)
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(sys.stdin.fileno(), _PIECE):
        size += len(piece)
        pieces.append(_allowed(piece, size))
    return b"".join(pieces)


def _ready() -> bytes:
    """Read what is there beside an argument: a file, or a pipe that speaks."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    descriptor = sys.stdin.fileno()
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return _whole()
    if sys.platform == "win32" or not _readable(descriptor, FIRST):
        return b""
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(descriptor, _PIECE):
        size += len(piece)
        pieces.append(_allowed(piece, size))
        if not _readable(descriptor, QUIET):
            click.echo(
                f"note: stdin is open and silent; going on with the {size} bytes that came (add - to wait for its end)",
                err=True,
            )
            break
    return b"".join(pieces)


def _readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _allowed(piece: bytes, size: int) -> bytes:
    if size > LIMIT:
        raise UsageError(
            f"stdin is larger than {LIMIT // 1024 // 1024} MB; put it in a file and let a tool read what is needed"
        )
    return piece
