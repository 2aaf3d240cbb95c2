"""``--attach``: files and addresses become parts of what is said."""

import base64
import mimetypes
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from vaka.cli.errors import UsageError
from vaka.cli.options import given_path
from vaka.cli.stdin import quoted
from vaka.core.types.content import Audio, Document, Image, Part, Text

LARGEST = 20 * 1024 * 1024
"""Bytes that one file may have; providers take no more."""
MOST = 50 * 1024 * 1024
"""Bytes that all files may have together."""

_SIGNS = (
    (b"\x89PNG\r\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"), (b"ID3", "audio/mpeg"), (b"\xff\xfb", "audio/mpeg"), (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)  # fmt: skip
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_KINDS: dict[str, type[Image] | type[Audio] | type[Document]] = {"image": Image, "audio": Audio, "document": Document}
_WHAT = "images, audio, video, PDF and text can be attached"


def attachments(given: Iterable[str]) -> tuple[Part, ...]:
    """Return what ``FILE``, ``URL`` or ``KIND=URL`` stand for, in order. Raises ``UsageError``."""
    parts: list[Part] = []
    left = MOST
    for text in given:
        kind, _, rest = text.partition("=")
        if _is_address(text) or (kind in _KINDS and _is_address(rest)):
            parts.append(_linked(text))
            continue
        data = _read(text, left)
        left -= len(data)
        parts.append(_attached(given_path(text), data))
    return tuple(parts)


def _linked(text: str) -> Part:
    kind, _, url = text.partition("=")
    if kind in _KINDS:
        return _KINDS[kind](url=url)
    name = PurePosixPath(unquote(urlsplit(text).path)).name
    media = mimetypes.guess_type(name)[0] or ""
    part = _kind(media)
    if part is None:
        raise UsageError(f"--attach {text}: what is there? write image=URL, audio=URL or document=URL")
    return Document(url=text, media_type=media, name=name) if part is Document else part(url=text, media_type=media)


def _attached(path: Path, data: bytes) -> Part:
    media = _media(path, data)
    part = _kind(media)
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
        raise UsageError(f"--attach {path}: {media or 'what this is'} cannot be read by a model; {_WHAT}")
    return Text(text=quoted(path.name, text))


def _read(text: str, left: int) -> bytes:
    path = given_path(text)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(f"--attach {text}: {error.strerror or error}") from error
    if len(data) > LARGEST:
        raise UsageError(f"--attach {text}: larger than {LARGEST // 1024 // 1024} MB; let a tool read what is needed")
    if len(data) > left:
        raise UsageError(f"--attach: all files together are larger than {MOST // 1024 // 1024} MB; leave some out")
    if not data:
        raise UsageError(f"--attach {text}: the file is empty")
    return data


def _media(path: Path, data: bytes) -> str:
    """Return what kind of bytes these are: as they begin, else as the file is called."""
    for sign, media in _SIGNS:
        if data.startswith(sign):
            return media
    if data.startswith(b"RIFF") and data[8:12] in _RIFF:
        return _RIFF[data[8:12]]
    return mimetypes.guess_type(path.name)[0] or ""


def _kind(media: str) -> type[Image] | type[Audio] | type[Document] | None:
    head = media.partition("/")[0]
    if media == "image/svg+xml":
        return None  # no model takes it as a picture; it is text
    if head in ("image", "audio"):
        return _KINDS[head]
    return Document if media == "application/pdf" or head == "video" else None


def _is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))
