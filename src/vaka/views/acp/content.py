"""Content blocks of the Agent Client Protocol and our content, in both directions."""

import html
import posixpath
from typing import Any, TypeAlias

from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Audio, CallRef, Content, Document, Image, Part, Reasoning, Stored, Text, as_content
from vaka.views.media import is_list, make_media, read_base64, read_field

JsonObject: TypeAlias = dict[str, Any]


def content_block_of(part: Part) -> JsonObject | None:
    """Return the content block of a part; ``None`` for reasoning and calls, which have updates of their own."""
    match part:
        case Text(text=text) | Stored(preview=text):
            return {"type": "text", "text": text}
        case Reasoning() | CallRef():
            return None
        case _:
            return _media_block(part)


def _media_block(part: Image | Audio | Document) -> JsonObject:
    name = part.name if isinstance(part, Document) and part.name else part.media_type or "file"
    if part.url:
        return without_empty({"type": "resource_link", "uri": part.url, "name": name, "mimeType": part.media_type})
    if not part.data:  # the bytes are a blob of the store
        return {"type": "text", "text": f"[{name}]"}
    if isinstance(part, Image | Audio):
        kind = "image" if isinstance(part, Image) else "audio"
        return {"type": kind, "data": part.data, "mimeType": part.media_type}
    resource = {"uri": f"attachment:{name}", "blob": part.data, "mimeType": part.media_type}
    return {"type": "resource", "resource": without_empty(resource)}


def read_prompt(prompt: Any) -> Content:
    """Return the content blocks of ``session/prompt`` as our content. Raises ``InvalidInput``.

    Links become text, as the agent has to fetch what they point to; embedded texts are marked with their address.
    """
    if not is_list(prompt) or not prompt:
        raise InvalidInput("prompt must be a list of one or more content blocks")
    return as_content([_read_block(block, f"prompt[{at}]") for at, block in enumerate(prompt)])


def _read_block(block: Any, place: str) -> Part:
    match read_field(block, "type", place):
        case "text":
            return Text(text=read_field(block, "text", place))
        case "image":
            return Image(media_type=read_field(block, "mimeType", place), data=read_base64(block, "data", place))
        case "audio":
            return Audio(media_type=read_field(block, "mimeType", place), data=read_base64(block, "data", place))
        case "resource_link":
            return Text(text=f"[{read_field(block, 'name', place)}]({read_field(block, 'uri', place)})")
        case "resource":
            return _read_resource(block.get("resource"), f"{place}.resource")
        case other:
            raise InvalidInput(f"{place}: {other!r} is not text, image, audio, resource_link or resource")


def _read_resource(resource: Any, place: str) -> Part:
    uri = read_field(resource, "uri", place)
    if "blob" not in resource:
        text = read_field(resource, "text", place)
        return Text(text=f'<resource uri="{html.escape(uri)}">\n{text}\n</resource>')
    name = posixpath.basename(uri) or uri
    media_type = read_field({"mimeType": "", **resource}, "mimeType", place)
    return make_media(media_type, name, data=read_base64(resource, "blob", place))


def text_content(text: str) -> JsonObject:
    return {"type": "content", "content": {"type": "text", "text": text}}


def without_empty(fields: JsonObject) -> JsonObject:
    """Return the fields that have a value, and the list of a plan, because an empty list clears the plan."""
    return {name: value for name, value in fields.items() if value not in (None, "", []) or name == "entries"}
