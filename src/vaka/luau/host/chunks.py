"""What agents hear and say, between the words of a session and those of a script."""

import base64
from typing import NamedTuple

import msgspec

from vaka.core.types.content import Audio, Content, Document, Image, Part, Stored, Text, clean
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.host.arguments import items, kind, table


class Said(NamedTuple):
    """What an agent says: some content, whether its turn ends with it, and which stream it belongs to."""

    content: Content
    eof: bool
    stream: str


def heard(content: Content) -> JSON:
    """Return content as ``recv`` hands it to a script."""
    return {"parts": [part for part in map(_part, content) if part is not None]}


def said(chunk: JSON) -> Said:
    """Return what a script said with ``emit``; raise ``ScriptError`` for what is no chunk."""
    fields = table(chunk, "emit: a chunk")
    content = tuple(map(_content, items(fields.get("parts"), "emit: parts")))
    return Said(content, bool(fields.get("eof")), str(fields.get("stream_id") or ""))


def _part(part: Part) -> JSON:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Stored):
        return {"type": "text", "text": part.preview}
    if isinstance(part, Image | Audio | Document):
        place = {"url": part.url} if part.url else {"base64": part.data}
        return {"type": "blob", "mime_type": part.media_type} | place
    return None


def _content(value: JSON) -> Part:
    part = table(value, "emit: a part")
    if part.get("type") == "text":
        return Text(text=clean(_words(part.get("text"))))
    if part.get("type") != "blob":
        return Text(text=msgspec.json.encode(part).decode())
    data = part.get("data")
    if not isinstance(data, str | bytes):
        raise ScriptError(f"emit: the data of a part must be a string, not {kind(data)}")
    encoded = base64.b64encode(data.encode() if isinstance(data, str) else data).decode()
    mime = _words(part.get("mime_type") or "application/octet-stream")
    if mime.startswith("audio/"):
        return Audio(media_type=mime, data=encoded)
    return (
        Image(media_type=mime, data=encoded) if mime.startswith("image/") else Document(media_type=mime, data=encoded)
    )


def _words(value: JSON) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""
