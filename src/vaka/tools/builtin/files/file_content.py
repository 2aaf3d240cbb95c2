"""The content of a file as a tool shows it, and the record of which files a session has read."""

import asyncio
import codecs
import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from vaka.core.ports.files import FileInfo, Files
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileChanged, FileError
from vaka.core.types.ids import Digest

BUCKETS = 256

RECORDS_PER_BUCKET = 8
"""Notes on one shelf; with fewer files than ``SHELVES`` in play none is lost but by rare chance."""


class ReadRecord(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was when the session last read or wrote it."""

    path: str
    modified: int
    size: int
    digest: Digest | None = None
    """Of the whole content; none for a file too large to be read whole."""

    def matches(self, info: FileInfo, digest: Digest | None) -> bool:
        """Tell whether this is the file: by content, and where that is not known by time and size."""
        if self.digest is not None and digest is not None:
            return self.digest == digest
        return (self.modified, self.size) == (info.modified, info.size)


def find_record(context: ToolContext, path: str) -> ReadRecord | None:
    """Return how the session knows a file."""
    name = _encode_path(path)
    return next((note for note in _load_bucket(context, name) if note.path == name), None)


def save_record(context: ToolContext, info: FileInfo, digest: Digest | None) -> None:
    """Put down that the session knows this of a file from now on."""
    name = _encode_path(info.path)
    fresh, shelf = ReadRecord(name, info.modified, info.size, digest), _load_bucket(context, name)
    if fresh not in shelf:
        others = [other for other in shelf if other.path != name]
        context.set_state(_bucket_key(name), msgspec.to_builtins([*others, fresh][-RECORDS_PER_BUCKET:]))


def check_unchanged(context: ToolContext, info: FileInfo, digest: Digest | None) -> ReadRecord:
    """Return how the session knows a file that is still so. Raises ``FileChanged`` when it does not, or no longer."""
    known = find_record(context, info.path)
    if known is None:
        raise FileChanged(f"{info.path!r} has not been read in this session; Read it first, then change it")
    if not known.matches(info, digest):
        raise FileChanged(f"{info.path!r} has changed since it was read; Read it again, then change it")
    return known


def _load_bucket(context: ToolContext, name: str) -> list[ReadRecord]:
    try:
        return msgspec.convert(context.get_state(_bucket_key(name)) or [], list[ReadRecord])
    except msgspec.ValidationError:
        return []  # somebody else's value: what is not known must be read


def _encode_path(path: str) -> str:
    """Return a path as JSON can carry it: one that is no UTF-8 by its bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "\0" + path.encode("utf-8", "surrogatepass").hex()
    return path


def _bucket_key(name: str) -> str:
    return f"files.seen.{hashlib.sha256(name.encode()).digest()[0] % BUCKETS:02x}"


def digest_of(data: bytes) -> Digest:
    """Return the digest of a whole content."""
    return Digest(hashlib.sha256(data).hexdigest())


_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like the one of UTF-16, so it is looked for first
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_FALLBACK_ENCODINGS = ("cp1252", "latin-1")
"""What text without a mark is when it is no UTF-8."""

_SNIFFED_BYTES = 8192

_BINARY_CONTROLS = frozenset(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27}
"""Control characters that no text has."""

LINE_END = re.compile(r"\r\n|\r|\n")
"""How a line can end."""


class DecodedText(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a file with the ends of its lines as they are, and how its bytes stand for them."""

    text: str
    mark: bytes = b""
    encoding: str = "utf-8"

    @property
    def eol(self) -> str:
        """How lines of this file end, for those that are added to it."""
        pairs, feeds = self.text.count("\r\n"), self.text.count("\n")
        if feeds == 0:
            return "\r" if "\r" in self.text else "\n"
        return "\r\n" if pairs * 2 > feeds else "\n"

    def encode(self, text: str) -> bytes:
        """Return another text as this file would have it. Raises ``FileError`` for a letter its encoding lacks."""
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            letter = text[error.start]
            raise FileError(f"{letter!r} cannot be written in {self.encoding}, which the file is in") from error


def bom_of(data: bytes) -> tuple[bytes, str]:
    """Return the mark a file begins with and the encoding it stands for, nothing and UTF-8 when there is none."""
    return next(((mark, encoding) for mark, encoding in _BOMS if data.startswith(mark)), (b"", "utf-8"))


def is_binary(data: bytes) -> bool:
    """Tell whether the beginning of a file is no text."""
    if bom_of(data)[0]:
        return False
    start = data[:_SNIFFED_BYTES]
    if b"\0" in data:
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start, final=len(data) <= _SNIFFED_BYTES)
    except UnicodeDecodeError:
        return not _BINARY_CONTROLS.isdisjoint(start)
    return False


def decode_text(data: bytes) -> DecodedText | None:
    """Return the text of a whole file, ``None`` for bytes that are none."""
    if is_binary(data):
        return None
    mark, encoding = bom_of(data)
    for candidate in (encoding,) if mark else (encoding, *_FALLBACK_ENCODINGS):
        try:
            return DecodedText(text=data[len(mark) :].decode(candidate), mark=mark, encoding=candidate)
        except UnicodeDecodeError:
            continue
    return None


def split_lines(text: str) -> list[str]:
    """Return the lines of a text without their ends."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


PDF_TYPE = "application/pdf"

MAX_IMAGE_BYTES = 5 * 1024**2 // 4 * 3
"""Bytes of a picture: as base64 they are five megabytes, which is what all providers take."""

MAX_DOCUMENT_BYTES = 20 * 1024**2
"""Bytes of a document; a whole request may have little more as base64."""

_IMAGE_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR.{17}", re.DOTALL), "image/png"),
    (re.compile(rb"\xff\xd8\xff.{17}", re.DOTALL), "image/jpeg"),
    (re.compile(rb"GIF8[79]a.{7}", re.DOTALL), "image/gif"),
    (re.compile(rb"RIFF....WEBPVP8[ LX].{4}", re.DOTALL), "image/webp"),
)

_PDF_SIGNATURE = re.compile(rb"%PDF-[12]\.[0-9]")

_PDF_XREF = b"startxref"
"""Stands near the end of every PDF file, also of one that is all letters."""


def media_type_of(data: bytes) -> str:
    """Return the media type of a picture or document by how it begins, ``""`` for anything else."""
    if _PDF_SIGNATURE.match(data):
        return PDF_TYPE if is_binary(data) or _PDF_XREF in data else ""
    found = next((kind for begin, kind in _IMAGE_SIGNATURES if begin.match(data)), "")
    return found if found and is_binary(data) else ""


def max_bytes_of(kind: str) -> int:
    """Return how many bytes of a kind can be shown: with more a provider would refuse the conversation from then on."""
    return MAX_DOCUMENT_BYTES if kind == PDF_TYPE else MAX_IMAGE_BYTES


MAX_WHOLE_BYTES = 16 * 1024**2
"""Bytes up to which a file is read in one piece; of a larger one only the pieces that are needed."""

HEAD_BYTES = 64 * 1024

_CHUNK_BYTES = 1 << 20

_THREAD_BYTES = 1 << 18

MAX_LINE_BYTES = 1 << 16
"""Bytes of a line that are kept at most: nobody is shown more."""


class LoadedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with its bytes, all of them when it is not too large."""

    info: FileInfo
    data: bytes
    whole: bool
    digest: Digest | None = None


async def load_file(files: Files, path: str) -> LoadedFile:
    """Read a file: all of it up to ``WHOLE`` bytes, else how it begins."""
    found = await files.read(path, size=HEAD_BYTES)
    if HEAD_BYTES < found.info.size <= MAX_WHOLE_BYTES:
        found = await files.read(path, size=MAX_WHOLE_BYTES + 1)
    whole = len(found.data) == found.info.size or len(found.data) < HEAD_BYTES  # some files have no size, as in /proc
    digest = Digest(hashlib.sha256(found.data).hexdigest()) if whole else None
    return LoadedFile(info=found.info, data=found.data, whole=whole, digest=digest)


async def decode_lines(path: str, data: bytes) -> list[str]:
    """Return the lines of a whole file. Raises ``FileError`` when it is no text."""
    lines = await asyncio.to_thread(_lines_of_bytes, data) if len(data) > _THREAD_BYTES else _lines_of_bytes(data)
    if lines is None:
        raise binary_file_error(path)
    return lines


def binary_file_error(path: str) -> FileError:
    """Return what to say of a file that is no text."""
    return FileError(f"{path!r} is binary, not text; look at it with a command that knows its kind")


async def stream_lines(files: Files, path: str, *, start: int, count: int) -> AsyncGenerator[tuple[int, str]]:
    """Yield ``count`` lines from number ``start`` on, each with its number; never more of the file than that takes.

    Of very long lines only the beginning is kept. Raises ``FileChanged`` when the file changes meanwhile.
    """
    number, line = 1, bytearray()
    async with aclosing(_utf8_chunks(files, path)) as chunks:
        async for chunk in chunks:
            skipped = chunk.count(b"\n") if number < start else 0
            if skipped and number + skipped < start:  # nothing of this piece is wanted
                number += skipped
                line = bytearray(chunk[chunk.rfind(b"\n") + 1 :][:MAX_LINE_BYTES])
                continue
            *ended, rest = chunk.split(b"\n")
            for piece in ended:
                line += piece[: MAX_LINE_BYTES - len(line)]
                if number >= start:
                    yield number, _decode_line(line)
                number, line = number + 1, bytearray()
                if number >= start + count:
                    return
            line += rest[: max(MAX_LINE_BYTES - len(line), 0)]
    if line and number >= start:
        yield number, _decode_line(line)


async def _utf8_chunks(files: Files, path: str) -> AsyncGenerator[bytes]:
    """Yield a file as UTF-8, piece by piece."""
    at, first = 0, (await files.read(path, size=HEAD_BYTES)).info
    decoder: codecs.IncrementalDecoder | None = None
    while at < first.size:
        found = await files.read(path, start=at, size=_CHUNK_BYTES)
        if (found.info.modified, found.info.size) != (first.modified, first.size) or not found.data:
            raise FileChanged(f"{path!r} changed while it was read; read it again")
        data = found.data
        if at == 0:
            mark, encoding = bom_of(data)
            decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding != "utf-8" else None
            data = data[len(mark) :]
        if decoder is None and b"\0" in data:
            raise binary_file_error(path)
        at += len(found.data)
        yield data if decoder is None else decoder.decode(data).encode("utf-8", "replace")


def _lines_of_bytes(data: bytes) -> list[str] | None:
    text = decode_text(data)
    return None if text is None else split_lines(text.text)


def _decode_line(line: bytearray) -> str:
    return bytes(line).removesuffix(b"\r").decode("utf-8", "replace")


__all__ = [
    "HEAD_BYTES",
    "MAX_LINE_BYTES",
    "MAX_WHOLE_BYTES",
    "LoadedFile",
    "binary_file_error",
    "decode_lines",
    "is_binary",
    "load_file",
    "stream_lines",
]
