"""The content of a file as a tool shows it, and the record of which files a session has read."""

import asyncio
import codecs
import hashlib
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from vaka.core.ports.files import FileInfo, Files
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import FileChanged, FileError, FileMissing
from vaka.core.types.ids import Digest
from vaka.core.types.keywords import find_near_names
from vaka.core.types.message import replace_surrogates
from vaka.text.decoding import DecodedText, bom_of, decode_text, is_binary, split_lines

BUCKETS = 256
RECORDS_PER_BUCKET = 8
"""Records in one state value; with fewer files than ``BUCKETS`` a record is rarely dropped."""


class ReadRecord(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was when the session last read or wrote it."""

    path: str
    modified: int
    size: int
    digest: Digest | None = None
    """Digest of the whole content; none for a file too large to read whole."""

    def matches(self, info: FileInfo, digest: Digest | None) -> bool:
        """Return whether the file is unchanged: by digest, or else by time and size."""
        if self.digest is not None and digest is not None:
            return self.digest == digest
        return (self.modified, self.size) == (info.modified, info.size)


def find_record(context: ToolContext, path: str) -> ReadRecord | None:
    """Return the session's record of a file."""
    name = _encode_path(path)
    return next((record for record in _load_bucket(context, name) if record.path == name), None)


def save_record(context: ToolContext, info: FileInfo, digest: Digest | None) -> None:
    """Record that the session has read or written a file."""
    name = _encode_path(info.path)
    record, bucket = ReadRecord(name, info.modified, info.size, digest), _load_bucket(context, name)
    if record not in bucket:
        others = [other for other in bucket if other.path != name]
        context.state.set(_bucket_key(name), msgspec.to_builtins([*others, record][-RECORDS_PER_BUCKET:]))


def check_unchanged(context: ToolContext, info: FileInfo, digest: Digest | None) -> None:
    """Raise ``FileChanged`` unless the session has read the file and it has not changed since."""
    known = find_record(context, info.path)
    if known is None:
        raise FileChanged(f"{info.path!r} has not been read in this session; Read it first, then change it")
    if not known.matches(info, digest):
        raise FileChanged(f"{info.path!r} has changed since it was read; Read it again, then change it")


def _load_bucket(context: ToolContext, name: str) -> list[ReadRecord]:
    try:
        return msgspec.convert(context.state.get(_bucket_key(name)) or [], list[ReadRecord])
    except msgspec.ValidationError:
        return []  # not a value of this module; the file must be read again


def _encode_path(path: str) -> str:
    """Return a path for the state: the hexadecimal bytes of a path that is not valid UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "\0" + path.encode("utf-8", "surrogatepass").hex()
    return path


def _bucket_key(name: str) -> str:
    return f"files.seen.{hashlib.sha256(name.encode()).digest()[0] % BUCKETS:02x}"


def digest_of(data: bytes) -> Digest:
    return Digest(hashlib.sha256(data).hexdigest())


def encode_like(file: DecodedText, text: str) -> bytes:
    """Encode a text like a file. Raises ``FileError`` for a character its encoding lacks."""
    try:
        return file.encode(text)
    except UnicodeEncodeError as error:
        letter = text[error.start]
        raise FileError(f"{letter!r} cannot be written in {file.encoding}, which the file is in") from error


PDF_TYPE = "application/pdf"

MAX_IMAGE_BYTES = 5 * 1024**2 // 4 * 3
"""Size of a picture: five megabytes as base64, the limit of every provider."""

MAX_DOCUMENT_BYTES = 20 * 1024**2
"""Size of a document; as base64 it nearly fills a request."""

_IMAGE_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR.{17}", re.DOTALL), "image/png"),
    (re.compile(rb"\xff\xd8\xff.{17}", re.DOTALL), "image/jpeg"),
    (re.compile(rb"GIF8[79]a.{7}", re.DOTALL), "image/gif"),
    (re.compile(rb"RIFF....WEBPVP8[ LX].{4}", re.DOTALL), "image/webp"),
)

_PDF_SIGNATURE = re.compile(rb"%PDF-[12]\.[0-9]")

_PDF_XREF = b"startxref"
"""Occurs near the end of every PDF file, also without binary data."""


def media_type_of(data: bytes) -> str:
    """Return the media type of a picture or PDF file by its signature, ``""`` for other content."""
    if _PDF_SIGNATURE.match(data):
        return PDF_TYPE if is_binary(data) or _PDF_XREF in data else ""
    kind = next((kind for signature, kind in _IMAGE_SIGNATURES if signature.match(data)), "")
    return kind if kind and is_binary(data) else ""


def max_bytes_of(kind: str) -> int:
    """Return the largest size that can be shown: a provider would reject the conversation with more."""
    return MAX_DOCUMENT_BYTES if kind == PDF_TYPE else MAX_IMAGE_BYTES


MAX_WHOLE_BYTES = 16 * 1024**2
"""Size up to which a file is read whole; of a larger one only the needed pieces are read."""

HEAD_BYTES = 64 * 1024
_CHUNK_BYTES = 1 << 20
_THREAD_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 16
"""Bytes kept of one line; no tool shows more."""


class LoadedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with its bytes; ``whole`` unless it is too large."""

    info: FileInfo
    data: bytes
    whole: bool
    digest: Digest | None = None


async def load_file(files: Files, path: str) -> LoadedFile:
    """Read a file: all of it up to ``MAX_WHOLE_BYTES``, else its first ``HEAD_BYTES``."""
    piece = await files.read(path, size=HEAD_BYTES)
    if HEAD_BYTES < piece.info.size <= MAX_WHOLE_BYTES:
        piece = await files.read(path, size=MAX_WHOLE_BYTES + 1)
    whole = len(piece.data) == piece.info.size or len(piece.data) < HEAD_BYTES  # some files have no size, as in /proc
    return LoadedFile(info=piece.info, data=piece.data, whole=whole, digest=digest_of(piece.data) if whole else None)


async def load_named_file(context: ToolContext, path: str) -> LoadedFile:
    """Read a file; the error about a missing one names a file with a similar name."""
    try:
        return await load_file(context.files, path)
    except FileMissing as error:
        raise FileMissing(f"{error}{await _suggest_file(context, path)}") from error


async def _suggest_file(context: ToolContext, path: str) -> str:
    """Return ``; did you mean …?`` with a file of the same folder whose name is close, else ``""``."""
    files = context.files
    is_visible = visibility_check(files, context.world.may_read)
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        entries = await files.entries(folder or ("/" if path.startswith("/") else ""))
    except FileError:
        return ""
    paths = [entry.path for entry in entries if entry.kind == "file" and is_visible(entry.path)]
    names = {path.rpartition("/")[2]: path for path in paths}
    folded = {known.casefold(): known for known in names}
    close = [folded[name.casefold()]] if name.casefold() in folded else find_near_names(name, names, 1, 0.7)
    return replace_surrogates(f"; did you mean {names[close[0]]!r}?") if close else ""


def visibility_check(files: Files, may_read: "Callable[[str], bool] | None") -> "Callable[[str], bool]":
    """Return a predicate for paths of the tree: whether the policy lets a file be shown."""
    if may_read is None:
        return lambda path: True
    top = files.root.rstrip("/") + "/"
    return lambda path: may_read(path if path.startswith("/") else top + path)


async def decode_lines(path: str, data: bytes) -> list[str]:
    """Return the lines of a whole file. Raises ``FileError`` when it is binary."""
    lines = await asyncio.to_thread(_lines_of_bytes, data) if len(data) > _THREAD_BYTES else _lines_of_bytes(data)
    if lines is None:
        raise binary_file_error(path)
    return lines


def binary_file_error(path: str) -> FileError:
    return FileError(f"{path!r} is binary, not text; look at it with a command that knows its kind")


async def stream_lines(files: Files, path: str, *, start: int, count: int) -> AsyncGenerator[tuple[int, str]]:
    """Yield ``count`` numbered lines from line ``start`` on; the file is read only as far as needed.

    Lines are cut after ``MAX_LINE_BYTES``. Raises ``FileChanged`` when the file changes meanwhile.
    """
    number, line = 1, bytearray()
    async with aclosing(_utf8_chunks(files, path)) as chunks:
        async for chunk in chunks:
            skipped = chunk.count(b"\n") if number < start else 0
            if skipped and number + skipped < start:  # the chunk ends before the first line
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
    """Yield the content of a file as UTF-8, in chunks."""
    at, first = 0, (await files.read(path, size=HEAD_BYTES)).info
    decoder: codecs.IncrementalDecoder | None = None
    while at < first.size:
        piece = await files.read(path, start=at, size=_CHUNK_BYTES)
        if (piece.info.modified, piece.info.size) != (first.modified, first.size) or not piece.data:
            raise FileChanged(f"{path!r} changed while it was read; read it again")
        data = piece.data
        if at == 0:
            mark, encoding = bom_of(data)
            decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding != "utf-8" else None
            data = data[len(mark) :]
        if decoder is None and b"\0" in data:
            raise binary_file_error(path)
        at += len(piece.data)
        yield data if decoder is None else decoder.decode(data).encode("utf-8", "replace")


def _lines_of_bytes(data: bytes) -> list[str] | None:
    text = decode_text(data)
    return None if text is None else split_lines(text.text)


def _decode_line(line: bytearray) -> str:
    return bytes(line).removesuffix(b"\r").decode("utf-8", "replace")
