"""A conversation as the messages of an Anthropic Messages request. Pure."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, cast

from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import JSON, CallId
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

WIRE = "anthropic"
"""The name under which blocks of this provider are kept."""
VENDOR_NAME = "claude"
"""What the names of the vendor's own models have in them, wherever they run."""
PLACEHOLDER_TEXT = "."
"""What is said where somebody has to say something."""
CONTINUE_TEXT = "Continue."

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/toml"})


def to_messages(model: str, messages: Sequence[Message], *, prefill: bool) -> list[dict[str, Any]]:
    """Return the messages of a request. ``prefill`` is whether the model goes on from its own words.

    Raises ``BadRequest`` for a part it cannot take.
    """
    ids = compatibility.call_ids(messages)
    said = _MessageMerger()
    for message in messages:
        if isinstance(message, AssistantMessage):
            said.add("assistant", _assistant_blocks(model, message, ids))
        elif isinstance(message, ToolMessage):
            for result in message.results:
                said.add("user", _result_blocks(model, result, ids))
        else:
            said.add("user", _content_blocks(model, message.content))
    last = messages[-1] if messages else None
    if isinstance(last, AssistantMessage):
        said.finish_assistant_turn(paused=last.stop == "pause", prefill=prefill)
    return said.build()


def check_part(model: str, part: Image | Audio | Document) -> None:
    """Raise ``BadRequest`` for a part that cannot be taken."""
    _content_blocks(model, (part,))


def starts_with_thinking(model: str, messages: Sequence[Message]) -> bool:
    """Whether the answer that is to go on, after the results of its calls, began with this provider's thinking.

    Models with a budget for thinking refuse to think on otherwise, as after a change of the provider in between.
    """
    answered = False
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            first = message.content[0] if message.content else None
            return not answered or (isinstance(first, Reasoning) and _own_block(model, message, first) is not None)
        answered = answered or isinstance(message, ToolMessage)
    return True


class _MessageMerger:
    """Messages under construction: neighbours of one role become one."""

    def __init__(self) -> None:
        self._messages: list[dict[str, Any]] = []

    def add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        """Let ``role`` say more."""
        if not blocks:
            return
        if not self._messages and role == "assistant":
            self.add("user", [_text_block(PLACEHOLDER_TEXT)])
        if self._messages and self._messages[-1]["role"] == role:
            self._messages[-1]["content"].extend(blocks)
        else:
            self._messages.append({"role": role, "content": blocks})

    def finish_assistant_turn(self, *, paused: bool, prefill: bool) -> None:
        """The last word is the model's: it goes on from it where it can, else it is asked to."""
        if paused or not self._messages or self._messages[-1]["role"] != "assistant":
            return
        last = self._messages[-1]["content"][-1]
        if not prefill:
            self.add("user", [_text_block(CONTINUE_TEXT)])
        elif last.get("type") == "text":
            last["text"] = last["text"].rstrip()

    def build(self) -> list[dict[str, Any]]:
        """Return the messages, results of calls first in each."""
        for turn in self._messages:
            if turn["role"] == "user":
                turn["content"].sort(key=_after_results)
        return self._messages or [{"role": "user", "content": [_text_block(PLACEHOLDER_TEXT)]}]


def _after_results(block: dict[str, Any]) -> bool:
    return bool(block["type"] != "tool_result")


def _assistant_blocks(model: str, message: AssistantMessage, ids: dict[CallId, str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    left = {call.id: call for call in message.calls}
    for part in message.content:
        if isinstance(part, Text | Stored):
            blocks += _text_blocks(part)
        elif isinstance(part, Reasoning):
            block = _own_block(model, message, part)
            blocks += [block] if block is not None else []
        elif isinstance(part, CallRef) and part.id in left:
            blocks.append(_call_block(left.pop(part.id), ids))
    return blocks + [_call_block(call, ids) for call in left.values()]


def _own_block(model: str, message: AssistantMessage, part: Reasoning) -> dict[str, Any] | None:
    """Return the provider's own block.

    The vendor's models refuse a thought that is not signed, as one that reached the length limit, and one that another
    server of this wire signed; those servers take any.
    """
    block: Any = compatibility.provider_block(part, WIRE)
    if not isinstance(block, dict):
        return None
    own = cast("dict[str, Any]", block)
    signed = bool(own.get("signature")) and (VENDOR_NAME in message.model or not message.model)
    return own if own.get("type") != "thinking" or VENDOR_NAME not in model or signed else None


def _call_block(call: ToolCall, ids: dict[CallId, str]) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": ids[call.id],
        "name": compatibility.safe_tool_name(call.name),
        "input": compatibility.arguments_of(call),
    }


def _result_blocks(model: str, result: ToolResult, ids: dict[CallId, str]) -> list[dict[str, Any]]:
    if result.call not in ids:
        raise BadRequest(f"there is a result of the call {result.call!r}, but no message before it has made that call")
    content = _content_blocks(model, result.content)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids[result.call]}
    after: list[dict[str, Any]] = []
    if result.failed:  # an error is words only
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
            raise compatibility.unsupported_part(model, part, "it does not listen")
    return blocks


def _text_blocks(part: Text | Stored) -> list[dict[str, Any]]:
    text = part.text if isinstance(part, Text) else part.preview
    if not text.strip():
        return []
    block = _text_block(text)
    cited = [_provider_citation(one.opaque) for one in part.citations] if isinstance(part, Text) else []
    if any(cited):
        block["citations"] = [one for one in cited if one]
    return [block]


def _provider_citation(opaque: JSON) -> Any:
    return cast("dict[str, Any]", opaque).get(WIRE) if isinstance(opaque, dict) else None


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _media_source(model: str, part: Image | Document, allowed: frozenset[str]) -> dict[str, Any]:
    kind, data = _media_bytes(part)
    if part.url and not data:
        if not part.url.startswith(("https://", "http://")):
            raise compatibility.unsupported_part(model, part, "its address must begin with https://, http:// or data:")
        return {"type": "url", "url": part.url}
    if not data:
        raise compatibility.unsupported_part(model, part, "its bytes are not at hand")
    if kind not in allowed:
        raise compatibility.unsupported_part(model, part, f"{kind!r} is not one of {', '.join(sorted(allowed))}")
    return {"type": "base64", "media_type": kind, "data": data}


def _document_block(model: str, part: Document) -> dict[str, Any]:
    kind, data = _media_bytes(part)
    plain = kind.startswith("text/") or kind in _TEXT_TYPES
    if plain and not data:
        raise compatibility.unsupported_part(
            model, part, "it reads only PDF files by their address; give the text itself"
        )
    if plain:
        source = {"type": "text", "media_type": "text/plain", "data": _decode_text(model, part, data)}
    else:
        source = _media_source(model, part, frozenset({_PDF}))
    return {"type": "document", "source": source, **({"title": part.name} if part.name else {})}


def _media_bytes(part: Image | Document) -> tuple[str, str]:
    """Return the kind of a part and its base64, also of one that has it in its address."""
    head, comma, data = part.url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return part.media_type or head[5:-7].partition(";")[0], data
    return compatibility.media_type_of(part), part.data


def _decode_text(model: str, part: Document, data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise compatibility.unsupported_part(model, part, f"it is not UTF-8 text in base64 ({error})") from error
