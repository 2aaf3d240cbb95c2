"""What a tool gave back becomes the one result of its call."""

from typing import Any

import msgspec

from vaka.core.types.content import Audio, CallRef, Content, Document, Image, Reasoning, Stored, Text, clean
from vaka.core.types.ids import CallId
from vaka.core.types.message import Reason, ToolResult

_PARTS = (Text, Image, Audio, Document, Stored, Reasoning, CallRef)


def as_result(call: CallId, value: Any) -> ToolResult:
    """Return ``value`` as a result: text as it is, parts as they are, other data as JSON."""
    if isinstance(value, ToolResult):
        return msgspec.structs.replace(value, call=call, content=_clean(value.content))
    if isinstance(value, str):
        return ToolResult(call=call, content=(Text(text=clean(value)),))
    if isinstance(value, _PARTS):
        return ToolResult(call=call, content=_clean((value,)))
    if isinstance(value, list | tuple) and value and all(isinstance(part, _PARTS) for part in value):
        return ToolResult(call=call, content=_clean(tuple(value)))
    plain = _plain(msgspec.to_builtins(value))
    return ToolResult(call=call, content=(Text(text=msgspec.json.encode(plain).decode()),), value=plain)


def failure(call: CallId, reason: Reason, text: str) -> ToolResult:
    """Return a failed result that tells the model why."""
    return ToolResult(call=call, content=(Text(text=clean(text)),), failed=True, reason=reason)


def _clean(content: Content) -> Content:
    return tuple(Text(text=clean(part.text)) if isinstance(part, Text) else part for part in content)


def _plain(value: Any) -> Any:
    """Replace what JSON text cannot carry."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
