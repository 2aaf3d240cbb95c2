"""From what a function returned to what a model and a log can read."""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard, get_args

import msgspec

from vaka.core.types.ids import JSON, CallId
from vaka.core.types.message import FailureReason, Part, Text, ToolResult, replace_surrogates
from vaka.tools.schema.json_schema import encode_unknown
from vaka.tools.schema.json_types import is_object

_PART_TYPES: tuple[type, ...] = get_args(Part)
ToolReturn: TypeAlias = "ToolResult | Part | Sequence[Part] | JSON"
"""What a tool gives back to the loop."""


class NotSerializable(ValueError):
    """A value that JSON cannot carry."""


def normalize_output(value: Any) -> ToolReturn:
    """Return content as it is and anything else as plain JSON data; raise ``NotPlain`` when that cannot be."""
    if isinstance(value, str):
        return replace_surrogates(str(value))
    if isinstance(value, ToolResult):
        return msgspec.structs.replace(
            value, content=tuple(map(_clean_part, value.content)), value=_to_json(value.value)
        )
    if isinstance(value, _PART_TYPES):
        return _clean_part(value)
    if _is_parts(value):
        return tuple(_clean_part(part) for part in value)
    return _to_json(value)


def is_content(value: Any) -> bool:
    """Tell whether what ``plain`` returned is parts or a whole result, not data."""
    return isinstance(value, (ToolResult, tuple, *_PART_TYPES))


def failed_result(call: CallId, message: str, *, invalid_arguments: bool = False) -> ToolResult:
    """Return the failed result that tells the model what went wrong."""
    reason: FailureReason = "invalid_arguments" if invalid_arguments else "error"
    return ToolResult(call=call, content=(Text(text=replace_surrogates(message)),), failed=True, reason=reason)


def _is_sequence(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _is_parts(value: Any) -> TypeGuard[Sequence[Any]]:
    return _is_sequence(value) and len(value) > 0 and all(isinstance(item, _PART_TYPES) for item in value)


def _clean_part(part: Any) -> Any:
    return msgspec.structs.replace(part, text=replace_surrogates(part.text)) if isinstance(part, Text) else part


def _to_json(value: Any) -> JSON:
    if isinstance(value, bytes | bytearray | memoryview):
        raise NotSerializable(
            "it returned bytes; return text, or a part such as Image(media_type='image/png', data=<base64>)"
        )
    try:
        return _clean_json(msgspec.to_builtins(value, enc_hook=encode_unknown, str_keys=True))
    except RecursionError:
        raise NotSerializable("it returned data that is nested too deeply, or contains itself") from None
    except (TypeError, ValueError, NotImplementedError, msgspec.MsgspecError) as error:
        raise NotSerializable(f"it returned {type(value).__name__}, which is not JSON data ({error})") from error


def _clean_json(value: Any) -> JSON:
    """Plain data that every JSON reader takes: no lone surrogates; NaN and infinities as text."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if is_object(value):
        return {replace_surrogates(key): _clean_json(item) for key, item in value.items()}
    if _is_sequence(value):
        return [_clean_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    return value
