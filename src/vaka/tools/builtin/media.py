"""What pictures and documents are told by: what is in them, not what they are called.

A provider refuses a conversation with a picture that is none, and would refuse it for ever: so what only begins like
one is not taken for one.
"""

import re

from vaka.tools.builtin.text import is_binary

PDF = "application/pdf"
LARGEST_PICTURE = 5 * 1024**2 // 4 * 3
"""Bytes of a picture: as base64 they are five megabytes, which is what all providers take."""
LARGEST_DOCUMENT = 20 * 1024**2
"""Bytes of a document; a whole request may have little more as base64."""
_PICTURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR.{17}", re.DOTALL), "image/png"),
    (re.compile(rb"\xff\xd8\xff.{17}", re.DOTALL), "image/jpeg"),
    (re.compile(rb"GIF8[79]a.{7}", re.DOTALL), "image/gif"),
    (re.compile(rb"RIFF....WEBPVP8[ LX].{4}", re.DOTALL), "image/webp"),
)
_PDF = re.compile(rb"%PDF-[12]\.[0-9]")
_TABLE = b"startxref"
"""Stands near the end of every PDF file, also of one that is all letters."""


def kind_of(data: bytes) -> str:
    """Return the media type of a picture or document by how it begins, ``""`` for anything else."""
    if _PDF.match(data):
        return PDF if is_binary(data) or _TABLE in data else ""
    found = next((kind for begin, kind in _PICTURES if begin.match(data)), "")
    return found if found and is_binary(data) else ""


def largest(kind: str) -> int:
    """Return how many bytes of a kind can be shown: with more a provider would refuse the conversation from then on."""
    return LARGEST_DOCUMENT if kind == PDF else LARGEST_PICTURE
