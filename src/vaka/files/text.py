"""Bytes as text and back: what a file began with and how its lines ended stays as it was."""

import codecs
from typing import Literal, TypeAlias

import msgspec

from vaka.core.types.errors import FileError

LineEnding: TypeAlias = Literal["\n", "\r\n", "\r", "mixed"]

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like the one of UTF-16, so it is looked for first
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SNIFFED_BYTES = 8192
_BINARY_CONTROLS = frozenset(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27}
"""Control characters that no text has, whatever its encoding."""


class FileText(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a file, and what it takes to write them back the same way."""

    text: str
    """Lines end with ``\\n``, unless the file mixes its ends: then they are as they are."""
    bom: bool = False
    eol: LineEnding = "\n"
    encoding: str = "utf-8"


def is_binary(data: bytes) -> bool:
    """Tell whether the beginning of a file is no text."""
    start = data[:_SNIFFED_BYTES]
    if bom_of(start)[1] != "":
        return False
    if b"\0" in start:
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start, final=len(data) <= _SNIFFED_BYTES)
    except UnicodeDecodeError:
        return not _BINARY_CONTROLS.isdisjoint(start)
    return False


def bom_of(data: bytes) -> tuple[bytes, str]:
    """Return the mark a file begins with and the encoding it stands for; nothing when there is none."""
    return next(((mark, encoding) for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), (b"", ""))


def decode_text(data: bytes) -> FileText:
    """Return the text of a file. Raises ``FileError`` for bytes that are none.

    Without a mark it is UTF-8, else what Windows and older systems wrote; ``encode`` gives the same bytes back.
    """
    mark, encoding = bom_of(data)
    if is_binary(data):
        raise FileError("it is binary, not text")
    body = data[len(mark) :]
    for candidate in (encoding,) if mark else ("utf-8", "cp1252", "latin-1"):
        try:
            words = body.decode(candidate)
        except UnicodeDecodeError:
            continue
        eol = line_ending_of(words)
        return FileText(text=_normalize_line_endings(words, eol), bom=bool(mark), eol=eol, encoding=candidate)
    raise FileError(f"it begins like {encoding} and is not")


def encode_text(text: FileText) -> bytes:
    """Return the bytes of a text as its file had them. Raises ``FileError`` for a letter its encoding lacks."""
    words = text.text if text.eol in {"\n", "mixed"} else text.text.replace("\n", text.eol)
    try:
        body = words.encode(text.encoding)
    except UnicodeEncodeError as error:
        letter = words[error.start]
        raise FileError(f"{letter!r} cannot be written in {text.encoding}, which the file is in") from error
    mark = next((mark for mark, encoding in _BYTE_ORDER_MARKS if encoding == text.encoding), b"") if text.bom else b""
    return mark + body


def line_ending_of(text: str) -> LineEnding:
    """Return how the lines of a text end."""
    pairs, feeds, returns = text.count("\r\n"), text.count("\n"), text.count("\r")
    if not returns:
        return "\n"
    if pairs == feeds == returns:
        return "\r\n"
    return "mixed" if feeds else "\r"


def _normalize_line_endings(text: str, eol: LineEnding) -> str:
    return text if eol in {"\n", "mixed"} else text.replace(eol, "\n")
