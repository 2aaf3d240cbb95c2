"""A conversation as Anthropic Messages wants it. Pure.

User and assistant take turns, the results of calls come first in the message after them, and what the provider signed
goes back as it came. Words that are only white space are refused there, so they are left out.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, cast

from vaka.core.types.content import Audio, CallRef, Content, Document, Image, Reasoning, Stored, Text
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import JSON, CallId
from vaka.core.types.message import AssistantMessage, Message, ToolCall, ToolMessage, ToolResult
from vaka.models import history

WIRE = "anthropic"
"""The name under which blocks of this provider are kept."""
VENDOR = "claude"
"""What the names of the vendor's own models have in them, wherever they run."""
NOTHING = "."
"""What is said where somebody has to say something."""
ON = "Continue."

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/toml"})


def to_messages(model: str, messages: Sequence[Message], *, prefill: bool) -> list[dict[str, Any]]:
    """Return the messages of a request. ``prefill`` is whether the model goes on from its own words.

    Raises ``BadRequest`` for a part it cannot take.
    """
    ids = history.call_ids(messages)
    said = _Turns()
    for message in messages:
        if isinstance(message, AssistantMessage):
            said.add("assistant", _assistant(model, message, ids))
        elif isinstance(message, ToolMessage):
            for result in message.results:
                said.add("user", _result(model, result, ids))
        else:
            said.add("user", _parts(model, message.content))
    last = messages[-1] if messages else None
    if isinstance(last, AssistantMessage):
        said.end(paused=last.stop == "pause", prefill=prefill)
    return said.all()


def take(model: str, part: Image | Audio | Document) -> None:
    """Raise ``BadRequest`` for a part that cannot be taken."""
    _parts(model, (part,))


def begins_with_thought(model: str, messages: Sequence[Message]) -> bool:
    """Whether the answer that is to go on, after the results of its calls, began with this provider's thinking.

    Models with a budget for thinking refuse to think on otherwise, as after a change of the provider in between.
    """
    answered = False
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            first = message.content[0] if message.content else None
            return not answered or (isinstance(first, Reasoning) and _own(model, message, first) is not None)
        answered = answered or isinstance(message, ToolMessage)
    return True


class _Turns:
    """Messages under construction: neighbours of one role become one."""

    def __init__(self) -> None:
        self._turns: list[dict[str, Any]] = []

    def add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        """Let ``role`` say more."""
        if not blocks:
            return
        if not self._turns and role == "assistant":
            self.add("user", [_text(NOTHING)])
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["content"].extend(blocks)
        else:
            self._turns.append({"role": role, "content": blocks})

    def end(self, *, paused: bool, prefill: bool) -> None:
        """The last word is the model's: it goes on from it where it can, else it is asked to."""
        if paused or not self._turns or self._turns[-1]["role"] != "assistant":
            return
        last = self._turns[-1]["content"][-1]
        if not prefill:
            self.add("user", [_text(ON)])
        elif last.get("type") == "text":
            last["text"] = last["text"].rstrip()

    def all(self) -> list[dict[str, Any]]:
        """Return the messages, results of calls first in each."""
        for turn in self._turns:
            if turn["role"] == "user":
                turn["content"].sort(key=_after_results)
        return self._turns or [{"role": "user", "content": [_text(NOTHING)]}]


def _after_results(block: dict[str, Any]) -> bool:
    return bool(block["type"] != "tool_result")


def _assistant(model: str, message: AssistantMessage, ids: dict[CallId, str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    left = {call.id: call for call in message.calls}
    for part in message.content:
        if isinstance(part, Text | Stored):
            blocks += _words(part)
        elif isinstance(part, Reasoning):
            block = _own(model, message, part)
            blocks += [block] if block is not None else []
        elif isinstance(part, CallRef) and part.id in left:
            blocks.append(_call(left.pop(part.id), ids))
    return blocks + [_call(call, ids) for call in left.values()]


def _own(model: str, message: AssistantMessage, part: Reasoning) -> dict[str, Any] | None:
    """Return the provider's own block.

    The vendor's models refuse a thought that is not signed, as one that reached the length limit, and one that another
    server of this wire signed; those servers take any.
    """
    block: Any = history.own(part, WIRE)
    if not isinstance(block, dict):
        return None
    own = cast("dict[str, Any]", block)
    signed = bool(own.get("signature")) and (VENDOR in message.model or not message.model)
    return own if own.get("type") != "thinking" or VENDOR not in model or signed else None


def _call(call: ToolCall, ids: dict[CallId, str]) -> dict[str, Any]:
    return {"type": "tool_use", "id": ids[call.id], "name": history.called(call.name), "input": history.arguments(call)}


def _result(model: str, result: ToolResult, ids: dict[CallId, str]) -> list[dict[str, Any]]:
    if result.call not in ids:
        raise BadRequest(f"there is a result of the call {result.call!r}, but no message before it has made that call")
    content = _parts(model, result.content)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids[result.call]}
    after: list[dict[str, Any]] = []
    if result.failed:  # an error is words only
        after = [part for part in content if part["type"] != "text"]
        content = [part for part in content if part["type"] == "text"]
        block["is_error"] = True
    if content:
        block["content"] = content
    return [block, _text(f"From the result of {ids[result.call]}:"), *after] if after else [block]


def _parts(model: str, content: Content) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, Text | Stored):
            blocks += _words(part)
        elif isinstance(part, Image):
            blocks.append({"type": "image", "source": _source(model, part, _IMAGES)})
        elif isinstance(part, Document):
            blocks.append(_document(model, part))
        elif isinstance(part, Audio):
            raise history.cannot_take(model, part, "it does not listen")
    return blocks


def _words(part: Text | Stored) -> list[dict[str, Any]]:
    text = part.text if isinstance(part, Text) else part.preview
    if not text.strip():
        return []
    block = _text(text)
    cited = [_cited(one.opaque) for one in part.citations] if isinstance(part, Text) else []
    if any(cited):
        block["citations"] = [one for one in cited if one]
    return [block]


def _cited(opaque: JSON) -> Any:
    return cast("dict[str, Any]", opaque).get(WIRE) if isinstance(opaque, dict) else None


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _source(model: str, part: Image | Document, kinds: frozenset[str]) -> dict[str, Any]:
    kind, data = _bytes(part)
    if part.url and not data:
        if not part.url.startswith(("https://", "http://")):
            raise history.cannot_take(model, part, "its address must begin with https://, http:// or data:")
        return {"type": "url", "url": part.url}
    if not data:
        raise history.cannot_take(model, part, "its bytes are not at hand")
    if kind not in kinds:
        raise history.cannot_take(model, part, f"{kind!r} is not one of {', '.join(sorted(kinds))}")
    return {"type": "base64", "media_type": kind, "data": data}


def _document(model: str, part: Document) -> dict[str, Any]:
    kind, data = _bytes(part)
    plain = kind.startswith("text/") or kind in _TEXTS
    if plain and not data:
        raise history.cannot_take(model, part, "it reads only PDF files by their address; give the text itself")
    if plain:
        source = {"type": "text", "media_type": "text/plain", "data": _decoded(model, part, data)}
    else:
        source = _source(model, part, frozenset({_PDF}))
    return {"type": "document", "source": source, **({"title": part.name} if part.name else {})}


def _bytes(part: Image | Document) -> tuple[str, str]:
    """Return the kind of a part and its base64, also of one that has it in its address."""
    head, comma, data = part.url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return part.media_type or head[5:-7].partition(";")[0], data
    return history.media_type(part), part.data


def _decoded(model: str, part: Document, data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise history.cannot_take(model, part, f"it is not UTF-8 text in base64 ({error})") from error
