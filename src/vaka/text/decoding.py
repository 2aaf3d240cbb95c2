"""Decode the text of a file so that it can be encoded again with the same byte order mark, encoding and line ends."""

import codecs
import re
from typing import NamedTuple

LINE_END = re.compile(r"\r\n|\r|\n")

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like the mark of UTF-16, so it is tested first
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_FALLBACK_ENCODINGS = ("cp1252", "latin-1")
"""Encodings tried for text that has no byte order mark and is not UTF-8."""

_SNIFFED_BYTES = 8192

_BINARY_CONTROLS = frozenset(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27}
"""Control characters that do not occur in text."""


class DecodedText(NamedTuple):
    """The text of a file with its line ends unchanged, its byte order mark and its encoding."""

    text: str
    mark: bytes = b""
    encoding: str = "utf-8"

    @property
    def eol(self) -> str:
        """The line end of most lines, for lines that are added."""
        pairs, feeds = self.text.count("\r\n"), self.text.count("\n")
        if feeds == 0:
            return "\r" if "\r" in self.text else "\n"
        return "\r\n" if pairs * 2 > feeds else "\n"

    def encode(self, text: str) -> bytes:
        """Encode another text like this file. Raises ``UnicodeEncodeError`` for a character its encoding lacks."""
        return self.mark + text.encode(self.encoding)


def bom_of(data: bytes) -> tuple[bytes, str]:
    """Return the byte order mark of a file and its encoding; ``b""`` and UTF-8 without a mark."""
    return next(((mark, encoding) for mark, encoding in _BOMS if data.startswith(mark)), (b"", "utf-8"))


def is_binary(data: bytes) -> bool:
    """Return whether a file is not text: it has a NUL, or begins with controls and is not UTF-8."""
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
    """Return the text of a whole file, ``None`` for binary content."""
    if is_binary(data):
        return None
    mark, encoding = bom_of(data)
    for candidate in (encoding,) if mark else (encoding, *_FALLBACK_ENCODINGS):
        try:
            return DecodedText(data[len(mark) :].decode(candidate), mark, candidate)
        except UnicodeDecodeError:
            continue
    return None


def split_lines(text: str) -> list[str]:
    """Return the lines of a text without their ends."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines
