"""Files and URLs that are sent with a prompt."""

import base64
import mimetypes
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from vaka.cli.kit.errors import UsageError
from vaka.cli.kit.options import expand_path
from vaka.cli.turn.input import quote_block
from vaka.core.types.message import Audio, Document, Image, Part, Text

_MIB = 1024 * 1024
MAX_ATTACHMENT_BYTES = 20 * _MIB
"""Bytes of one file; providers take no more."""
MAX_TOTAL_BYTES = 50 * _MIB
"""Bytes of all files together."""

_MAGIC_BYTES = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)

_RIFF_TYPES = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}

_PART_TYPES: dict[str, type[Image] | type[Audio] | type[Document]] = {
    "image": Image,
    "audio": Audio,
    "document": Document,
}

_SUPPORTED_TYPES = "images, audio, video, PDF and text can be attached"


def read_attachments(sources: Iterable[str]) -> tuple[Part, ...]:
    """Return the message parts of ``FILE``, ``URL`` or ``KIND=URL``, in order. Raises ``UsageError``."""
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
        raise UsageError(f"--attach {text}: unknown kind of content; write image=URL, audio=URL or document=URL")
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
        raise UsageError(f"--attach {path}: {media or 'this file'} cannot be sent to a model; {_SUPPORTED_TYPES}")
    return Text(text=quote_block(path.name, text))


def _read_attachment(text: str, remaining: int) -> bytes:
    path = expand_path(text)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--attach {text}: {error.strerror or error}") from error
    if len(data) > MAX_ATTACHMENT_BYTES:
        limit = f"{MAX_ATTACHMENT_BYTES // _MIB} MB"
        raise UsageError(f"--attach {text}: larger than {limit}; let a tool read what is needed")
    if len(data) > remaining:
        raise UsageError(f"--attach: all files together are larger than {MAX_TOTAL_BYTES // _MIB} MB; leave some out")
    if not data:
        raise UsageError(f"--attach {text}: the file is empty")
    return data


def _media_type_of(path: Path, data: bytes) -> str:
    """Return the media type by magic bytes, else by the file name."""
    for sign, media in _MAGIC_BYTES:
        if data.startswith(sign):
            return media
    if data.startswith(b"RIFF") and data[8:12] in _RIFF_TYPES:
        return _RIFF_TYPES[data[8:12]]
    return mimetypes.guess_type(path.name)[0] or ""


def _part_type_of(media: str) -> type[Image] | type[Audio] | type[Document] | None:
    head = media.partition("/")[0]
    if media == "image/svg+xml":
        return None  # models take it as text, not as an image
    if head in ("image", "audio"):
        return _PART_TYPES[head]
    return Document if media == "application/pdf" or head == "video" else None


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))
