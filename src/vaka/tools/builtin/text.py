"""Bytes of a file as text and back, with everything that was not changed as it was."""

import codecs
import re

import msgspec

from vaka.core.types.errors import FileError

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like the one of UTF-16, so it is looked for first
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_OLDER = ("cp1252", "latin-1")
"""What text without a mark is when it is no UTF-8."""
_LOOKED_AT = 8192
_NOT_TEXT = frozenset(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27}
"""Control characters that no text has."""
ENDS = re.compile(r"\r\n|\r|\n")
"""How a line can end."""


class Text(msgspec.Struct, frozen=True, kw_only=True):
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

    def encoded(self, text: str) -> bytes:
        """Return another text as this file would have it. Raises ``FileError`` for a letter its encoding lacks."""
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            letter = text[error.start]
            raise FileError(f"{letter!r} cannot be written in {self.encoding}, which the file is in") from error


def mark_of(data: bytes) -> tuple[bytes, str]:
    """Return the mark a file begins with and the encoding it stands for, nothing and UTF-8 when there is none."""
    return next(((mark, encoding) for mark, encoding in _BOMS if data.startswith(mark)), (b"", "utf-8"))


def is_binary(data: bytes) -> bool:
    """Tell whether the beginning of a file is no text."""
    if mark_of(data)[0]:
        return False
    start = data[:_LOOKED_AT]
    if b"\0" in data:
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start, final=len(data) <= _LOOKED_AT)
    except UnicodeDecodeError:
        return not _NOT_TEXT.isdisjoint(start)
    return False


def decode(data: bytes) -> Text | None:
    """Return the text of a whole file, ``None`` for bytes that are none."""
    if is_binary(data):
        return None
    mark, encoding = mark_of(data)
    for candidate in (encoding,) if mark else (encoding, *_OLDER):
        try:
            return Text(text=data[len(mark) :].decode(candidate), mark=mark, encoding=candidate)
        except UnicodeDecodeError:
            continue
    return None


def lines_of(text: str) -> list[str]:
    """Return the lines of a text without their ends."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines
