"""What a tool gave back becomes the one result of its call."""

from typing import Any

import msgspec

from vaka.core.types.content import Audio, CallRef, Content, Document, Image, Reasoning, Stored, Text, clean
from vaka.core.types.ids import JSON, CallId
from vaka.core.types.message import Reason, ToolResult

_PARTS = (Text, Image, Audio, Document, Stored, Reasoning, CallRef)

_write, _read = msgspec.json.Encoder().encode, msgspec.json.Decoder(ToolResult).decode


def as_result(call: CallId, value: Any) -> ToolResult:
    """Return ``value`` as a result: text as it is, parts as they are, other data as JSON."""
    if isinstance(value, ToolResult):
        content, data = _clean(value.content), _plain(msgspec.to_builtins(value.value))
        return _storable(msgspec.structs.replace(value, call=call, content=content, value=data))
    if isinstance(value, str):
        return ToolResult(call=call, content=(Text(text=clean(value)),))
    if isinstance(value, _PARTS):
        return _storable(ToolResult(call=call, content=_clean((value,))))
    parts = _parts(value)
    if parts:
        return _storable(ToolResult(call=call, content=_clean(parts)))
    plain = _plain(msgspec.to_builtins(value))
    return ToolResult(call=call, content=(Text(text=msgspec.json.encode(plain).decode()),), value=plain)


def failure(call: CallId, reason: Reason, text: str) -> ToolResult:
    """Return a failed result that tells the model why."""
    return ToolResult(call=call, content=(Text(text=clean(text)),), failed=True, reason=reason)


def _parts(value: Any) -> Content:
    """Return a list of nothing but parts as content, anything else as none."""
    given: list[Any] = list(value) if type(value) in {list, tuple} else []
    return tuple(given) if all(isinstance(part, _PARTS) for part in given) else ()


def _storable(result: ToolResult) -> ToolResult:
    """Return ``result`` as the log will give it back; raise when the log cannot keep it."""
    return _read(_write(result))


def _clean(content: Content) -> Content:
    return tuple(
        msgspec.structs.replace(part, text=clean(part.text)) if isinstance(part, Text) else part for part in content
    )


def _plain(value: JSON) -> JSON:
    """Replace what JSON text cannot carry."""
    if isinstance(value, str):
        return clean(value)
    if type(value) in {list, tuple}:
        return [_plain(item) for item in value]
    if hasattr(value, "items"):
        return {clean(str(key)): _plain(item) for key, item in value.items()}
    return value
