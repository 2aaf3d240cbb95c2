"""A conversation as the messages of an Anthropic Messages request. Pure."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
    Content,
    Document,
    Image,
    Message,
    Reasoning,
    Stored,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
)
from vaka.models import compatibility
from vaka.models.compatibility import Media
from vaka.models.json_values import as_object

WIRE = "anthropic"
"""The key of this provider's blocks in ``opaque``."""
VENDOR_NAME = "claude"
"""Part of the name of each of the vendor's own models, on any server."""
PLACEHOLDER_TEXT = "."
"""The text of a message that must not be empty."""
CONTINUE_TEXT = "Continue."

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/toml"})


def to_messages(model: str, messages: Sequence[Message], *, prefill: bool) -> list[dict[str, Any]]:
    """Return the messages of a request. With ``prefill`` the model continues a last message of its own.

    Raises ``BadRequest`` for an unsupported part.
    """
    ids = compatibility.call_ids(messages)
    merger = _MessageMerger()
    for message in messages:
        if isinstance(message, AssistantMessage):
            merger.add("assistant", _assistant_blocks(model, message, ids))
        elif isinstance(message, ToolMessage):
            for result in message.results:
                merger.add("user", _result_blocks(model, result, ids))
        else:
            merger.add("user", _content_blocks(model, message.content))
    last = messages[-1] if messages else None
    if isinstance(last, AssistantMessage):
        merger.finish_assistant_turn(paused=last.stop == "pause", prefill=prefill)
    return merger.build()


def check_part(model: str, part: Media) -> None:
    """Raise ``BadRequest`` for an unsupported part."""
    _content_blocks(model, (part,))


def starts_with_thinking(model: str, messages: Sequence[Message]) -> bool:
    """Whether the answer that continues after its tool results began with thinking of this provider.

    Models with a thinking budget refuse to think otherwise, as after a change of the provider within a turn.
    """
    answered = False
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            first = message.content[0] if message.content else None
            return not answered or (isinstance(first, Reasoning) and bool(_own_blocks(model, message, first)))
        answered = answered or isinstance(message, ToolMessage)
    return True


class _MessageMerger:
    """Messages under construction: neighbours of one role become one."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []

    def add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        if not blocks:
            return
        if not self._messages and role == "assistant":
            self.add("user", [_text_block(PLACEHOLDER_TEXT)])
        if self._messages and self._messages[-1]["role"] == role:
            self._messages[-1]["content"].extend(blocks)
        else:
            self._messages.append({"role": role, "content": blocks})

    def finish_assistant_turn(self, *, paused: bool, prefill: bool) -> None:
        """End a conversation whose last message is the model's: it continues it, or is asked to continue."""
        if paused or not self._messages or self._messages[-1]["role"] != "assistant":
            return
        last = self._messages[-1]["content"][-1]
        if not prefill:
            self.add("user", [_text_block(CONTINUE_TEXT)])
        elif last.get("type") == "text":
            last["text"] = last["text"].rstrip()

    def build(self) -> list[dict[str, Any]]:
        """Return the messages, with the tool results first in each."""
        for message in self._messages:
            if message["role"] == "user":
                content: list[dict[str, Any]] = message["content"]
                content.sort(key=lambda block: block["type"] != "tool_result")
        return self._messages or [{"role": "user", "content": [_text_block(PLACEHOLDER_TEXT)]}]


def _assistant_blocks(model: str, message: AssistantMessage, ids: dict[CallId, str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    calls = {call.id: call for call in message.calls}
    for part in message.content:
        if isinstance(part, Text | Stored):
            blocks += _text_blocks(part)
        elif isinstance(part, Reasoning):
            blocks += _own_blocks(model, message, part)
        elif isinstance(part, CallRef) and part.id in calls:
            blocks.append(_call_block(calls.pop(part.id), ids))
    return blocks + [_call_block(call, ids) for call in calls.values()]


def _own_blocks(model: str, message: AssistantMessage, part: Reasoning) -> list[dict[str, Any]]:
    """Return the provider's own block, unless it would be refused.

    The vendor's models refuse unsigned thinking, as of an answer that reached the length limit, and thinking that
    another server of this wire signed; those servers accept any.
    """
    block = as_object(compatibility.provider_block(part, WIRE))
    signed = block.get("signature") and (VENDOR_NAME in message.model or not message.model)
    accepted = block.get("type") != "thinking" or VENDOR_NAME not in model or signed
    return [block] if block and accepted else []


def _call_block(call: ToolCall, ids: dict[CallId, str]) -> dict[str, Any]:
    name, arguments = compatibility.safe_tool_name(call.name), compatibility.arguments_of(call)
    return {"type": "tool_use", "id": ids[call.id], "name": name, "input": arguments}


def _result_blocks(model: str, result: ToolResult, ids: dict[CallId, str]) -> list[dict[str, Any]]:
    if result.call not in ids:
        raise BadRequest(f"there is a result of the call {result.call!r}, but no earlier message made that call")
    content = _content_blocks(model, result.content)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids[result.call]}
    after: list[dict[str, Any]] = []
    if result.failed:  # the result of a failed call may have text only
        after = [part for part in content if part["type"] != "text"]
        content = [part for part in content if part["type"] == "text"]
        block["is_error"] = True
    if content:
        block["content"] = content
    return [block, _text_block(f"From the result of {ids[result.call]}:"), *after] if after else [block]


def _content_blocks(model: str, content: Content) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, Text | Stored):
            blocks += _text_blocks(part)
        elif isinstance(part, Image):
            blocks.append({"type": "image", "source": _media_source(model, part, _IMAGE_TYPES)})
        elif isinstance(part, Document):
            blocks.append(_document_block(model, part))
        elif isinstance(part, Audio):
            raise compatibility.unsupported_part(model, part, "it does not accept audio")
    return blocks


def _text_blocks(part: Text | Stored) -> list[dict[str, Any]]:
    text = part.text if isinstance(part, Text) else part.preview
    if not text.strip():
        return []
    block = _text_block(text)
    cited = [as_object(one.opaque).get(WIRE) for one in part.citations] if isinstance(part, Text) else []
    if any(cited):
        block["citations"] = [one for one in cited if one]
    return [block]


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _media_source(model: str, part: Image | Document, allowed: frozenset[str]) -> dict[str, Any]:
    kind, data = _media_bytes(part)
    if part.url and not data:
        if not part.url.startswith(("https://", "http://")):
            raise compatibility.unsupported_part(model, part, "its URL must begin with https://, http:// or data:")
        return {"type": "url", "url": part.url}
    if not data:
        raise compatibility.unsupported_part(model, part, "it has neither data nor a URL")
    if kind not in allowed:
        raise compatibility.unsupported_part(model, part, f"{kind!r} is not one of {', '.join(sorted(allowed))}")
    return {"type": "base64", "media_type": kind, "data": data}


def _document_block(model: str, part: Document) -> dict[str, Any]:
    kind, data = _media_bytes(part)
    is_text = kind.startswith("text/") or kind in _TEXT_TYPES
    if is_text and not data:
        raise compatibility.unsupported_part(model, part, "it reads only PDF files by URL; give the text itself")
    if is_text:
        source = {"type": "text", "media_type": "text/plain", "data": _decode_text(model, part, data)}
    else:
        source = _media_source(model, part, frozenset({_PDF}))
    return {"type": "document", "source": source, **({"title": part.name} if part.name else {})}


def _media_bytes(part: Image | Document) -> tuple[str, str]:
    """Return the media type of a part and its base64, also of a ``data:`` URL."""
    head, comma, data = part.url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return part.media_type or head[5:-7].partition(";")[0], data
    return compatibility.media_type_of(part), part.data


def _decode_text(model: str, part: Document, data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise compatibility.unsupported_part(model, part, f"it is not UTF-8 text in base64 ({error})") from error
