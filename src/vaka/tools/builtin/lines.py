"""Lines of a file by number, however large the file is."""

import asyncio
import codecs
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from vaka.core.ports.files import FileInfo, Files
from vaka.core.types.errors import FileChanged, FileError
from vaka.core.types.ids import Digest
from vaka.tools.builtin.text import decode, is_binary, lines_of, mark_of

WHOLE = 16 * 1024**2
"""Bytes up to which a file is read in one piece; of a larger one only the pieces that are needed."""
FIRST = 64 * 1024
_CHUNK = 1 << 20
_THREADED = 1 << 18
KEPT = 1 << 16
"""Bytes of a line that are kept at most: nobody is shown more."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A file with its bytes, all of them when it is not too large."""

    info: FileInfo
    data: bytes
    whole: bool
    digest: Digest | None = None


async def load(files: Files, path: str) -> Loaded:
    """Read a file: all of it up to ``WHOLE`` bytes, else how it begins."""
    found = await files.read(path, size=FIRST)
    if FIRST < found.info.size <= WHOLE:
        found = await files.read(path, size=WHOLE + 1)
    whole = len(found.data) == found.info.size or len(found.data) < FIRST  # some files have no size, as in /proc
    digest = Digest(hashlib.sha256(found.data).hexdigest()) if whole else None
    return Loaded(info=found.info, data=found.data, whole=whole, digest=digest)


async def text_lines(path: str, data: bytes) -> list[str]:
    """Return the lines of a whole file. Raises ``FileError`` when it is no text."""
    lines = await asyncio.to_thread(_lines, data) if len(data) > _THREADED else _lines(data)
    if lines is None:
        raise not_text(path)
    return lines


def not_text(path: str) -> FileError:
    """Return what to say of a file that is no text."""
    return FileError(f"{path!r} is binary, not text; look at it with a command that knows its kind")


async def stream(files: Files, path: str, *, start: int, count: int) -> AsyncGenerator[tuple[int, str]]:
    """Yield ``count`` lines from number ``start`` on, each with its number; never more of the file than that takes.

    Of very long lines only the beginning is kept. Raises ``FileChanged`` when the file changes meanwhile.
    """
    number, line = 1, bytearray()
    async with aclosing(_chunks(files, path)) as chunks:
        async for chunk in chunks:
            skipped = chunk.count(b"\n") if number < start else 0
            if skipped and number + skipped < start:  # nothing of this piece is wanted
                number += skipped
                line = bytearray(chunk[chunk.rfind(b"\n") + 1 :][:KEPT])
                continue
            *ended, rest = chunk.split(b"\n")
            for piece in ended:
                line += piece[: KEPT - len(line)]
                if number >= start:
                    yield number, _shown(line)
                number, line = number + 1, bytearray()
                if number >= start + count:
                    return
            line += rest[: max(KEPT - len(line), 0)]
    if line and number >= start:
        yield number, _shown(line)


async def _chunks(files: Files, path: str) -> AsyncGenerator[bytes]:
    """Yield a file as UTF-8, piece by piece."""
    at, first = 0, (await files.read(path, size=FIRST)).info
    decoder: codecs.IncrementalDecoder | None = None
    while at < first.size:
        found = await files.read(path, start=at, size=_CHUNK)
        if (found.info.modified, found.info.size) != (first.modified, first.size) or not found.data:
            raise FileChanged(f"{path!r} changed while it was read; read it again")
        data = found.data
        if at == 0:
            mark, encoding = mark_of(data)
            decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding != "utf-8" else None
            data = data[len(mark) :]
        if decoder is None and b"\0" in data:
            raise not_text(path)
        at += len(found.data)
        yield data if decoder is None else decoder.decode(data).encode("utf-8", "replace")


def _lines(data: bytes) -> list[str] | None:
    text = decode(data)
    return None if text is None else lines_of(text.text)


def _shown(line: bytearray) -> str:
    return bytes(line).removesuffix(b"\r").decode("utf-8", "replace")


__all__ = ["FIRST", "KEPT", "WHOLE", "Loaded", "is_binary", "load", "not_text", "stream", "text_lines"]
