"""The input of a turn: prompt argument, piped stdin, JSON and text lines of stdin, attachments."""

import asyncio
import base64
import mimetypes
import os
import re
import select
import stat
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import click
import msgspec

from vaka.cli.errors import UsageError
from vaka.cli.options import expand_path
from vaka.core.types.ids import JSON
from vaka.core.types.message import Audio, Document, Image, Part, Text

MAX_STDIN_BYTES = 10 * 1024 * 1024
"""Bytes that may be piped in."""

FIRST_BYTE_SECONDS = 0.05
"""Seconds an open pipe gets to show its first byte when there is an argument."""

SILENCE_SECONDS = 2.0
"""Seconds of silence after which a pipe that has spoken is taken to be done."""

_READ_BYTES = 64 * 1024

_NO_PROMPT = "no prompt; write one, or pipe it in"


def read_prompt(words: tuple[str, ...]) -> str:
    """Return the prompt for ``[PROMPT] [-]``. Raises ``UsageError`` when there is none."""
    said, forced = _split_words(words)
    piped = _read_all() if forced or said is None else _read_available()
    text = piped.decode("utf-8", "replace").removeprefix("\ufeff")
    if said is None:
        if not text.strip():
            raise UsageError("the prompt is empty: nothing came from stdin")
        return text
    if not said.strip():
        raise UsageError("the prompt is empty; write what to do")
    return append_stdin(said, text) if text.strip() else said


def append_stdin(prompt: str, data: str) -> str:
    """Return an instruction with data below it, between marks the data cannot forge."""
    return f"{prompt}\n\n{quote_block('Input from stdin', data)}"


def quote_block(title: str, data: str) -> str:
    """Return data under a title, between marks the data cannot forge."""
    longest = max(map(len, re.findall("`+", data)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{title}:\n{fence}\n{data.rstrip(chr(10))}\n{fence}"


def _split_words(words: tuple[str, ...]) -> tuple[str | None, bool]:
    """Return the argument and whether ``-`` was among the words."""
    said = [word for word in words if word != "-"]
    if len(said) > 1 or len(words) > 2:
        raise UsageError(f"one prompt is expected, not {len(said)}; put it in quotes")
    return (said[0] if said else None), len(said) < len(words)


def _read_all() -> bytes:
    """Read to the end; whoever asked for it waits as long as it takes."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(_NO_PROMPT)
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(sys.stdin.fileno(), _READ_BYTES):
        size += len(piece)
        pieces.append(_check_size(piece, size))
    return b"".join(pieces)


def _read_available() -> bytes:
    """Read what is there beside an argument: a file, or a pipe that speaks."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    descriptor = sys.stdin.fileno()
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return _read_all()
    if sys.platform == "win32" or not _wait_readable(descriptor, FIRST_BYTE_SECONDS):
        return b""
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(descriptor, _READ_BYTES):
        size += len(piece)
        pieces.append(_check_size(piece, size))
        if not _wait_readable(descriptor, SILENCE_SECONDS):
            click.echo(
                f"note: stdin is open and silent; going on with the {size} bytes that came (add - to wait for its end)",
                err=True,
            )
            break
    return b"".join(pieces)


def _wait_readable(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _check_size(piece: bytes, size: int) -> bytes:
    if size > MAX_STDIN_BYTES:
        raise UsageError(
            f"stdin is larger than {MAX_STDIN_BYTES // 1024 // 1024} MB; put it in a file and let a tool read what is needed"
        )
    return piece


_LINE_READ_BYTES = 64 * 1024

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')

_BRACKET_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}


class BadInput(ValueError):
    """What came cannot be used: too much of it, or no JSON."""


class StdinReader:
    """Stdin, line by line. At a terminal a mark says that one is awaited."""

    def __init__(self, prompt: str = "> ") -> None:
        self._prompt = prompt
        self._buffer = bytearray()
        self._ended = sys.stdin is None
        self._at_first_line = True
        self._pending_read: asyncio.Future[bytes] | None = None
        self._lock = asyncio.Lock()

    @property
    def is_terminal(self) -> bool:
        """Whether a person types the lines."""
        return sys.stdin is not None and sys.stdin.isatty()

    async def read_line(self) -> str | None:
        """Return the next line without its end; ``None`` when there are no more."""
        async with self._lock:
            return await self._next_line()

    async def read_json(self) -> tuple[JSON] | None:
        """Return the next JSON value, on one line or on several; ``None`` when there are no more."""
        async with self._lock:
            lines: list[str] = []
            depth = size = 0
            while (line := await self._next_line()) is not None:
                size += len(line)
                if size > MAX_STDIN_BYTES:
                    raise BadInput(f"a JSON value on stdin is larger than {MAX_STDIN_BYTES // 1024 // 1024} MB")
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
                raise BadInput(f"a line on stdin is longer than {MAX_STDIN_BYTES // 1024 // 1024} MB")
        if not self._buffer:
            return None
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        text = line.decode("utf-8", "replace").removesuffix("\r")
        first, self._at_first_line = self._at_first_line, False
        return text.removeprefix("\ufeff") if first else text

    async def _read_chunk(self) -> bytes:
        """Read in a thread that nobody waits for; what it reads for someone who has left is there for the next."""
        if self._pending_read is None:
            loop = asyncio.get_running_loop()
            reading = self._pending_read = loop.create_future()

            def read() -> None:
                try:
                    piece = os.read(sys.stdin.fileno(), _LINE_READ_BYTES)
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


MAX_ATTACHMENT_BYTES = 20 * 1024 * 1024
"""Bytes that one file may have; providers take no more."""

MAX_TOTAL_BYTES = 50 * 1024 * 1024
"""Bytes that all files may have together."""

_MAGIC_BYTES = (
    (b"\x89PNG\r\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"), (b"ID3", "audio/mpeg"), (b"\xff\xfb", "audio/mpeg"), (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)  # fmt: skip

_RIFF_TYPES = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}

_PART_TYPES: dict[str, type[Image] | type[Audio] | type[Document]] = {
    "image": Image,
    "audio": Audio,
    "document": Document,
}

_SUPPORTED_TYPES = "images, audio, video, PDF and text can be attached"


def read_attachments(sources: Iterable[str]) -> tuple[Part, ...]:
    """Return what ``FILE``, ``URL`` or ``KIND=URL`` stand for, in order. Raises ``UsageError``."""
    parts: list[Part] = []
    left = MAX_TOTAL_BYTES
    for text in sources:
        kind, _, rest = text.partition("=")
        if _is_url(text) or (kind in _PART_TYPES and _is_url(rest)):
            parts.append(_part_from_url(text))
            continue
        data = _read_attachment(text, left)
        left -= len(data)
        parts.append(_part_from_file(expand_path(text), data))
    return tuple(parts)


def _part_from_url(text: str) -> Part:
    kind, _, url = text.partition("=")
    if kind in _PART_TYPES:
        return _PART_TYPES[kind](url=url)
    name = PurePosixPath(unquote(urlsplit(text).path)).name
    media = mimetypes.guess_type(name)[0] or ""
    part = _part_type_of(media)
    if part is None:
        raise UsageError(f"--attach {text}: what is there? write image=URL, audio=URL or document=URL")
    return Document(url=text, media_type=media, name=name) if part is Document else part(url=text, media_type=media)


def _part_from_file(path: Path, data: bytes) -> Part:
    media = _media_type_of(path, data)
    part = _part_type_of(media)
    if part is not None:
        encoded = base64.b64encode(data).decode()
        if part is Document:
            return Document(media_type=media, data=encoded, name=path.name)
        return part(media_type=media, data=encoded)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"--attach {path}: {media or 'what this is'} cannot be read by a model; {_SUPPORTED_TYPES}")
    return Text(text=quote_block(path.name, text))


def _read_attachment(text: str, remaining: int) -> bytes:
    path = expand_path(text)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--attach {text}: {error.strerror or error}") from error
    if len(data) > MAX_ATTACHMENT_BYTES:
        raise UsageError(
            f"--attach {text}: larger than {MAX_ATTACHMENT_BYTES // 1024 // 1024} MB; let a tool read what is needed"
        )
    if len(data) > remaining:
        raise UsageError(
            f"--attach: all files together are larger than {MAX_TOTAL_BYTES // 1024 // 1024} MB; leave some out"
        )
    if not data:
        raise UsageError(f"--attach {text}: the file is empty")
    return data


def _media_type_of(path: Path, data: bytes) -> str:
    """Return what kind of bytes these are: as they begin, else as the file is called."""
    for sign, media in _MAGIC_BYTES:
        if data.startswith(sign):
            return media
    if data.startswith(b"RIFF") and data[8:12] in _RIFF_TYPES:
        return _RIFF_TYPES[data[8:12]]
    return mimetypes.guess_type(path.name)[0] or ""


def _part_type_of(media: str) -> type[Image] | type[Audio] | type[Document] | None:
    head = media.partition("/")[0]
    if media == "image/svg+xml":
        return None  # no model takes it as a picture; it is text
    if head in ("image", "audio"):
        return _PART_TYPES[head]
    return Document if media == "application/pdf" or head == "video" else None


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))
