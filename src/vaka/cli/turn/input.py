"""The input of a turn: prompt argument, piped stdin, JSON and text lines of stdin."""

import asyncio
import codecs
import errno
import os
import re
import select
import stat
import sys
import threading
from contextlib import suppress

import click
import msgspec

from vaka.cli.kit.errors import UsageError
from vaka.core.types.ids import JSON

_MIB = 1024 * 1024
MAX_STDIN_BYTES = 10 * _MIB
FIRST_BYTE_SECONDS = 0.05
"""Seconds to wait for the first byte of a pipe when there is a prompt argument."""
SILENCE_SECONDS = 2.0
"""Seconds of silence after which a pipe that has sent data is taken to be done."""
_READ_BYTES = 64 * 1024


def read_prompt(words: tuple[str, ...]) -> str:
    """Return the prompt for ``[PROMPT] [-]``. Raises ``UsageError`` when there is none."""
    prompt, forced = _split_words(words)
    piped = _read_all() if forced or prompt is None else _read_available()
    text = decode_stdin(piped)
    if prompt is None:
        if not text.strip():
            raise UsageError("the prompt is empty: stdin had no text")
        return text
    if not prompt.strip():
        raise UsageError("the prompt is empty; write what to do")
    return append_stdin(prompt, text) if text.strip() else prompt


def decode_stdin(data: bytes) -> str:
    """Return stdin as text; a note says how many bytes are not UTF-8. Raises ``UsageError`` for binary data."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and not len(data) % 2:
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        raise UsageError("stdin is binary data, not text; put it in a file and attach that with --attach")
    text = data.decode("utf-8", "surrogateescape")
    bad = [char for char in text if "\udc80" <= char <= "\udcff"]
    if bad:
        byte = ord(bad[0]) - 0xDC00
        note = f"stdin is not UTF-8: U+FFFD replaces {len(bad)} bytes of it, the first is 0x{byte:02x}"
        click.echo(f"note: {note}; convert it with iconv", err=True)
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def append_stdin(prompt: str, data: str) -> str:
    """Return an instruction with data below it, in a fence that the data cannot close."""
    return f"{prompt}\n\n{quote_block('Input from stdin', data)}"


def quote_block(title: str, data: str) -> str:
    """Return data under a title, in a fence that the data cannot close."""
    longest = max(map(len, re.findall("`+", data)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{title}:\n{fence}\n{data.rstrip(chr(10))}\n{fence}"


def _split_words(words: tuple[str, ...]) -> tuple[str | None, bool]:
    """Return the argument and whether ``-`` was among the words."""
    prompts = [word for word in words if word != "-"]
    if len(prompts) > 1 or len(words) > 2:
        raise UsageError(f"expected one prompt, not {len(prompts)}; put it in quotes")
    return (prompts[0] if prompts else None), len(prompts) < len(words)


def _read_all() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("no prompt; write one, or pipe it in")
    return _read_stdin(None)


def _read_available() -> bytes:
    """Read stdin beside a prompt argument: a file, or a pipe that sends data soon."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        return _read_stdin(None)
    if sys.platform == "win32" or not _wait_readable(FIRST_BYTE_SECONDS):
        return b""
    return _read_stdin(SILENCE_SECONDS)


def _read_chunk_of_stdin() -> bytes:
    """Return the next bytes, none at the end or if stdin cannot be read: nohup opens it for writing only."""
    try:
        return os.read(sys.stdin.fileno(), _READ_BYTES)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        return b""


def _read_stdin(silence: float | None) -> bytes:
    """Read to the end, or until stdin has sent nothing for ``silence`` seconds."""
    data = bytearray()
    while chunk := _read_chunk_of_stdin():
        data += chunk
        if len(data) > MAX_STDIN_BYTES:
            limit = f"{MAX_STDIN_BYTES // _MIB} MB"
            raise UsageError(f"stdin is larger than {limit}; put it in a file and let a tool read what is needed")
        if silence is not None and not _wait_readable(silence):
            note = f"stdin is open and silent; continuing with its {len(data)} bytes (add - to wait for its end)"
            click.echo(f"note: {note}", err=True)
            break
    return bytes(data)


def _wait_readable(seconds: float) -> bool:
    return bool(select.select([sys.stdin.fileno()], [], [], seconds)[0])


_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')

_BRACKET_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}


class BadInput(ValueError):
    """Input that is too large, or not JSON."""


class StdinReader:
    """Reads stdin line by line; prompts for each line at a terminal."""

    def __init__(self, prompt: str = "> ") -> None:
        self._prompt = prompt
        self._buffer = bytearray()
        self._ended = sys.stdin is None
        self._at_first_line = True
        self._pending_read: asyncio.Future[bytes] | None = None
        self._lock = asyncio.Lock()

    @property
    def is_terminal(self) -> bool:
        return sys.stdin is not None and sys.stdin.isatty()

    async def read_line(self) -> str | None:
        """Return the next line without its end; ``None`` when there are no more."""
        async with self._lock:
            return await self._next_line()

    async def read_bounded(self, limit: int) -> tuple[bytes, int] | None:
        """Return the next line, at most ``limit`` bytes of it, and its length; ``None`` when there are no more."""
        async with self._lock:
            line, length = bytearray(), 0
            while self._buffer or not self._ended:
                if not self._buffer:
                    self._buffer += await self._read_chunk()
                    self._ended = not self._buffer
                    continue
                part, end, rest = bytes(self._buffer).partition(b"\n")
                self._buffer = bytearray(rest)
                line += part[: max(limit - len(line), 0)]
                length += len(part)
                if end:
                    return bytes(line), length
            return (bytes(line), length) if length else None

    async def read_json(self) -> tuple[JSON] | None:
        """Return the next JSON value, on one line or on several; ``None`` when there are no more."""
        async with self._lock:
            lines: list[str] = []
            depth = size = 0
            while (line := await self._next_line()) is not None:
                size += len(line)
                if size > MAX_STDIN_BYTES:
                    raise BadInput(f"a JSON value on stdin is larger than {MAX_STDIN_BYTES // _MIB} MB")
                if line.strip() or lines:
                    lines.append(line)
                    depth += sum(_BRACKET_DEPTH.get(mark, 0) for mark in _BRACKETS.findall(line))
                if lines and depth <= 0:
                    break
            return (decode_json("\n".join(lines)),) if lines else None

    async def _next_line(self) -> str | None:
        if self.is_terminal and b"\n" not in self._buffer and not self._ended:
            click.echo(self._prompt, err=True, nl=False)
        while b"\n" not in self._buffer and not self._ended:
            piece = await self._read_chunk()
            self._ended = not piece
            self._buffer += piece
            if len(self._buffer) > MAX_STDIN_BYTES:
                raise BadInput(f"a line on stdin is longer than {MAX_STDIN_BYTES // _MIB} MB")
        if not self._buffer:
            return None
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        text = line.decode("utf-8", "replace").removesuffix("\r")
        first, self._at_first_line = self._at_first_line, False
        return text.removeprefix("\ufeff") if first else text

    async def _read_chunk(self) -> bytes:
        """Read in a daemon thread; a cancelled call leaves the read to the next caller."""
        if self._pending_read is None:
            loop = asyncio.get_running_loop()
            reading = self._pending_read = loop.create_future()

            def read() -> None:
                try:
                    piece = os.read(sys.stdin.fileno(), _READ_BYTES)
                except OSError:
                    piece = b""
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(reading.set_result, piece)

            threading.Thread(target=read, daemon=True).start()
        piece = await asyncio.shield(self._pending_read)
        self._pending_read = None
        return piece


def decode_json(text: str) -> JSON:
    """Return the value of a JSON text; raise ``BadInput``."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise BadInput(f"{text[:60]!r} is not JSON: {error}") from error
