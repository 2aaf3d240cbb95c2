"""Helpers that all wires share to write a conversation: call ids, tool names, arguments, text, media types. Pure."""

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import JSON, CallId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    Content,
    Document,
    Image,
    Message,
    Reasoning,
    Stored,
    Text,
    ToolCall,
)

CALL_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider takes for the id of a call."""

_BASE64_SIGNATURES = (
    ("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("JVBERi", "application/pdf"),
    ("SUQz", "audio/mpeg"), ("T2dnUw", "audio/ogg"), ("ZkxhQ", "audio/flac"),
)  # fmt: skip


def call_ids(messages: Sequence[Message], allowed: re.Pattern[str] = CALL_ID_PATTERN) -> dict[CallId, str]:
    """Return what to call each call: the provider's own id where it is one this provider takes and only once there."""
    calls = [call for message in messages if isinstance(message, AssistantMessage) for call in message.calls]
    ids: dict[CallId, str] = {}
    taken: set[str] = set()
    for call in calls:
        wanted = [call.provider_id, call.id, safe_tool_name(call.id[-48:])]
        fits = [id for id in wanted if allowed.fullmatch(id) and id not in taken]
        made = fits[0] if fits else f"c{len(ids):08d}"
        taken.add(made)
        ids[call.id] = made
    return ids


def safe_tool_name(name: str) -> str:
    """Return the name of a tool that was called: a model may have made one up that no provider takes back."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments as an object: what could not be read is sent back as ``{"raw": text}``."""
    if not call.raw or call.repaired:
        return call.arguments
    try:
        value: JSON = msgspec.json.decode(call.raw)
    except (msgspec.DecodeError, RecursionError):
        return {"raw": call.raw}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"value": value}


def arguments_json(call: ToolCall) -> str:
    """Return a call's arguments as JSON text."""
    return msgspec.json.encode(arguments_of(call)).decode()


def text_or_preview(content: Content) -> str:
    """Return the words of ``content``, and the preview of what was too large."""
    return "".join(part.text if isinstance(part, Text) else part.preview
                   for part in content if isinstance(part, Text | Stored))  # fmt: skip


def provider_block(part: Reasoning, wire: str) -> Any:
    """Return the block that this wire's provider gave, to be sent back word for word; ``None`` if it is another's."""
    opaque: Any = part.opaque
    return cast("dict[str, Any]", opaque).get(wire) if isinstance(opaque, dict) else None


def media_type_of(part: Image | Audio | Document) -> str:
    """Return what kind of bytes a part has: as it says, else as its first bytes do."""
    if part.media_type:
        return part.media_type
    for sign, kind in _BASE64_SIGNATURES:
        if part.data.startswith(sign):
            return kind
    if part.data.startswith("UklGR"):  # RIFF: the kind comes later
        return "image/webp" if isinstance(part, Image) else "audio/wav"
    return {Image: "image/jpeg", Audio: "audio/wav", Document: "application/pdf"}[type(part)]


def data_url_of(part: Image | Audio | Document) -> str:
    """Return the address of a part: its own, or one that holds its bytes."""
    return part.url or f"data:{media_type_of(part)};base64,{part.data}"


def unsupported_part(model: str, part: Image | Audio | Document, reason: str = "") -> BadRequest:
    """Return what to raise for a part that a model has no place for."""
    kind = type(part).__name__.lower()
    return BadRequest(
        f"{model} cannot take this {kind}{f': {reason}' if reason else ''}; leave it out, or use another model"
    )
