"""The results of tool calls: of what a tool returned, of a failure, and of a tool that was stopped."""

from types import NoneType
from typing import Any, get_args

import msgspec

from vaka.core.types.ending import StopKind
from vaka.core.types.ids import JSON, CallId
from vaka.core.types.message import (
    Audio,
    CallRef,
    Content,
    Document,
    FailureReason,
    Image,
    Reasoning,
    Stored,
    Text,
    ToolResult,
    replace_surrogates,
)
from vaka.core.types.progress import ToolCompleted, ToolFailed
from vaka.core.types.tool import ToolSpec

_SCALARS = frozenset[type]({int, float, bool, NoneType})
_PARTS = (Text, Image, Audio, Document, Stored, Reasoning, CallRef)

_encode_result, _decode_result = msgspec.json.Encoder().encode, msgspec.json.Decoder(ToolResult).decode


def as_result(call: CallId, value: Any) -> ToolResult:
    """Return ``value`` as a result: a str as text, parts unchanged, other data as JSON."""
    if isinstance(value, ToolResult):
        content, data = _clean_parts(value.content), _clean_json(msgspec.to_builtins(value.value))
        return _round_trip(msgspec.structs.replace(value, call=call, content=content, value=data))
    if isinstance(value, str):
        return ToolResult(call=call, content=(Text(text=replace_surrogates(value)),))
    if isinstance(value, _PARTS):
        return _round_trip(ToolResult(call=call, content=_clean_parts((value,))))
    if type(value) in _SCALARS:
        data = value
    else:
        parts = _as_parts(value)
        if parts:
            return _round_trip(ToolResult(call=call, content=_clean_parts(parts)))
        data = _clean_json(msgspec.to_builtins(value))
    return ToolResult(call=call, content=(Text(text=msgspec.json.encode(data).decode()),), value=data)


def failed_result(call: CallId, reason: FailureReason, text: str) -> ToolResult:
    """Return a failed result whose text explains the failure to the model."""
    return ToolResult(call=call, content=(Text(text=replace_surrogates(text)),), failed=True, reason=reason)


def stopped_result(call: CallId, reason: StopKind, text: str, returned: ToolResult | None) -> ToolResult:
    """Return the result of a tool that was stopped: what it has returned all the same, or a failed one."""
    if returned is None or returned.reason in get_args(StopKind):
        return failed_result(call, reason, text)
    if not returned.failed:
        return returned
    return msgspec.structs.replace(returned, content=(*returned.content, Text(text=f"\n[{text}]")), reason=reason)


def unknown_outcome_text(spec: ToolSpec) -> str:
    """Return the warning for a ``once`` call that was cancelled: it may have had its effect."""
    return "; its outcome is unknown, verify before repeating it" if spec.effect == "once" else ""


def _as_parts(value: Any) -> Content:
    """Return a list or tuple of only parts as content, ``()`` for any other value."""
    items: list[Any] = list(value) if type(value) in {list, tuple} else []
    return tuple(items) if all(isinstance(item, _PARTS) for item in items) else ()


def _round_trip(result: ToolResult) -> ToolResult:
    """Return ``result`` as it is decoded from the log; raise if it cannot be encoded."""
    return _decode_result(_encode_result(result))


def _clean_parts(content: Content) -> Content:
    return tuple(
        msgspec.structs.replace(part, text=replace_surrogates(part.text)) if isinstance(part, Text) else part
        for part in content
    )


def _clean_json(value: JSON) -> JSON:
    """Replace surrogates in all strings: they cannot be encoded as UTF-8."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if type(value) in {list, tuple}:
        return [_clean_json(item) for item in value]
    if hasattr(value, "items"):
        return {replace_surrogates(str(key)): _clean_json(item) for key, item in value.items()}
    return value


def result_event(result: ToolResult) -> ToolCompleted | ToolFailed:
    """Return the event with the result of a call."""
    return ToolFailed(result=result) if result.failed else ToolCompleted(result=result)
