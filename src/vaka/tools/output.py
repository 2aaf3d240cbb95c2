"""From what a function returned to what a model and a log can read."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard, get_args

import msgspec

from vaka.core.types.content import Part, Text, clean
from vaka.core.types.ids import JSON, CallId
from vaka.core.types.message import Reason, ToolResult
from vaka.tools.schema import encode
from vaka.tools.values import is_object

_PARTS: tuple[type, ...] = get_args(Part)
Returned: TypeAlias = "ToolResult | Part | Sequence[Part] | JSON"
"""What a tool gives back to the loop."""


class NotPlain(ValueError):
    """A value that JSON cannot carry."""


def plain(value: Any) -> Returned:
    """Return content as it is and anything else as plain JSON data; raise ``NotPlain`` when that cannot be."""
    if isinstance(value, str):
        return clean(str(value))
    if isinstance(value, ToolResult):
        return msgspec.structs.replace(value, content=tuple(map(_part, value.content)), value=_data(value.value))
    if isinstance(value, _PARTS):
        return _part(value)
    if _is_parts(value):
        return tuple(_part(part) for part in value)
    return _data(value)


def is_content(value: Any) -> bool:
    """Tell whether what ``plain`` returned is parts or a whole result, not data."""
    return isinstance(value, (ToolResult, tuple, *_PARTS))


def failure(call: CallId, message: str, *, arguments: bool = False) -> ToolResult:
    """Return the failed result that tells the model what went wrong."""
    reason: Reason = "invalid_arguments" if arguments else "error"
    return ToolResult(call=call, content=(Text(text=clean(message)),), failed=True, reason=reason)


def _is_sequence(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _is_parts(value: Any) -> TypeGuard[Sequence[Any]]:
    return _is_sequence(value) and len(value) > 0 and all(isinstance(item, _PARTS) for item in value)


def _part(part: Any) -> Any:
    return msgspec.structs.replace(part, text=clean(part.text)) if isinstance(part, Text) else part


def _data(value: Any) -> JSON:
    if isinstance(value, bytes | bytearray | memoryview):
        raise NotPlain("it returned bytes; return text, or a part such as Image(media_type='image/png', data=<base64>)")
    try:
        return _cleaned(msgspec.to_builtins(value, enc_hook=encode, str_keys=True))
    except RecursionError:
        raise NotPlain("it returned data that is nested too deeply, or contains itself") from None
    except (TypeError, ValueError, NotImplementedError, msgspec.MsgspecError) as error:
        raise NotPlain(f"it returned {type(value).__name__}, which is not JSON data ({error})") from error


def _cleaned(value: Any) -> JSON:
    """Plain data that every JSON reader takes: no lone surrogates; NaN and infinities as text."""
    if isinstance(value, str):
        return clean(value)
    if is_object(value):
        return {clean(key): _cleaned(item) for key, item in value.items()}
    if _is_sequence(value):
        return [_cleaned(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    return value
