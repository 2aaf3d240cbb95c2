"""The lines of stdin, read when somebody asks for them: a command that leaves waits for none."""

import asyncio
import os
import re
import sys
import threading
from contextlib import suppress

import click
import msgspec

from vaka.cli.stdin import LIMIT
from vaka.core.types.ids import JSON

_PIECE = 64 * 1024
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


class BadInput(ValueError):
    """What came cannot be used: too much of it, or no JSON."""


class Lines:
    """Stdin, line by line. At a terminal a mark says that one is awaited."""

    def __init__(self, mark: str = "> ") -> None:
        self._mark = mark
        self._held = bytearray()
        self._ended = sys.stdin is None
        self._first = True
        self._reading: asyncio.Future[bytes] | None = None
        self._turn = asyncio.Lock()

    @property
    def terminal(self) -> bool:
        """Whether a person types the lines."""
        return sys.stdin is not None and sys.stdin.isatty()

    async def line(self) -> str | None:
        """Return the next line without its end; ``None`` when there are no more."""
        async with self._turn:
            return await self._line()

    async def value(self) -> tuple[JSON] | None:
        """Return the next JSON value, on one line or on several; ``None`` when there are no more."""
        async with self._turn:
            lines: list[str] = []
            depth = size = 0
            while (line := await self._line()) is not None:
                size += len(line)
                if size > LIMIT:
                    raise BadInput(f"a JSON value on stdin is larger than {LIMIT // 1024 // 1024} MB")
                if line.strip() or lines:
                    lines.append(line)
                    depth += sum(_STEP.get(mark, 0) for mark in _MARKS.findall(line))
                if lines and depth <= 0:
                    break
            return (decoded("\n".join(lines)),) if lines else None

    async def _line(self) -> str | None:
        if self.terminal and b"\n" not in self._held and not self._ended:
            click.echo(self._mark, err=True, nl=False)
        while b"\n" not in self._held and not self._ended:
            piece = await self._piece()
            self._ended = not piece
            self._held += piece
            if len(self._held) > LIMIT:
                raise BadInput(f"a line on stdin is longer than {LIMIT // 1024 // 1024} MB")
        if not self._held:
            return None
        line, _, rest = bytes(self._held).partition(b"\n")
        self._held = bytearray(rest)
        text = line.decode("utf-8", "replace").removesuffix("\r")
        first, self._first = self._first, False
        return text.removeprefix("\ufeff") if first else text

    async def _piece(self) -> bytes:
        """Read in a thread that nobody waits for; what it reads for someone who has left is there for the next."""
        if self._reading is None:
            loop = asyncio.get_running_loop()
            reading = self._reading = loop.create_future()

            def read() -> None:
                try:
                    piece = os.read(sys.stdin.fileno(), _PIECE)
                except OSError:
                    piece = b""
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(reading.set_result, piece)

            threading.Thread(target=read, daemon=True).start()
        piece = await asyncio.shield(self._reading)
        self._reading = None
        return piece


def decoded(text: str) -> JSON:
    """Return the value of a JSON text; raise ``BadInput``."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise BadInput(f"{text[:60]!r} is not JSON: {error}") from error
