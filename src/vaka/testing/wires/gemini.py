"""Gemini's streamGenerateContent: complete parts and calls, with a signature after thinking.

A call whose arguments are not a JSON object cannot be expressed in this format: the answer ends with
``MALFORMED_FUNCTION_CALL``, as the API's does.
"""

import base64
from typing import Any

import msgspec

from vaka.testing.wires.scripted_answer import (
    ScriptedAnswer,
    ScriptedCall,
    ScriptedFailure,
    derive_id,
    encode_sse,
    parse_answer,
)

PING = b": keep-alive\n\n"
FINISH_REASONS = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
ERROR_STATUSES = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED",
    429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip


def render_answer(answer: dict[str, Any], body: dict[str, Any]) -> list[bytes]:
    """Return the events of an answer to a request; only a complete answer has a finish reason, in its last event."""
    line = parse_answer(answer)
    frame = {
        "usageMetadata": _usage_of(line, body),
        "modelVersion": body.get("model", ""),
        "responseId": derive_id("r", body),
    }
    parts = _content_parts(line, body) or ([{"text": ""}] if line.is_complete else [])
    candidates: list[dict[str, Any]] = [{"content": {"parts": [part], "role": "model"}, "index": 0} for part in parts]
    if line.is_complete:
        candidates[-1] |= _finish_fields(line)
    events = [{"candidates": [candidate], **frame} for candidate in candidates]
    if line.has_content and line.error is not None:
        events.append(render_error(line.error))
    return [encode_sse(event) for event in events]


def render_error(failure: ScriptedFailure) -> dict[str, Any]:
    """Return an error in the provider's format, alone or in the middle of a stream."""
    status = ERROR_STATUSES.get(failure.status, "UNAVAILABLE" if failure.status >= 500 else "FAILED_PRECONDITION")
    error: dict[str, Any] = {"code": failure.status, "message": failure.message, "status": status}
    if failure.retry_after is not None:
        kind = "type.googleapis.com/google.rpc.RetryInfo"
        error["details"] = [{"@type": kind, "retryDelay": f"{failure.retry_after:g}s"}]
    return {"error": error}


def _finish_fields(line: ScriptedAnswer) -> dict[str, Any]:
    malformed = _find_malformed_call(line)
    if malformed is not None:
        message = f"Malformed function call: {malformed.name}({malformed.arguments_text})"
        return {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": message}
    return {"finishReason": FINISH_REASONS.get(line.stop_reason, line.stop_reason)}


def _content_parts(line: ScriptedAnswer, body: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in line.reasoning_pieces]
    parts += [{"text": piece} for piece in line.text_pieces]
    signature: dict[str, Any] = {}
    if line.reasoning:
        signature = {"thoughtSignature": base64.b64encode(derive_id("", body, line.reasoning).encode()).decode()}
    for call in line.calls if _find_malformed_call(line) is None else ():
        id = {"id": call.id} if call.id else {}
        parts.append({"functionCall": {"name": call.name, "args": _parse_arguments(call), **id}, **signature})
        signature = {}  # only the first call of a step has one
    if signature and line.is_complete:
        parts.append({"text": "", **signature})
    return parts


def _find_malformed_call(line: ScriptedAnswer) -> ScriptedCall | None:
    return next((call for call in line.calls if _parse_arguments(call) is None), None)


def _parse_arguments(call: ScriptedCall) -> dict[str, Any] | None:
    if isinstance(call.arguments, dict):
        return call.arguments
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _usage_of(line: ScriptedAnswer, body: dict[str, Any]) -> dict[str, Any]:
    tokens = line.usage_for(body)
    usage: dict[str, Any] = {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": max(tokens.output - tokens.reasoning, 0),
        "totalTokenCount": tokens.input + tokens.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens.input}],
    }
    thought = {"thoughtsTokenCount": tokens.reasoning} if tokens.reasoning else {}
    cached = {"cachedContentTokenCount": tokens.cache_read} if tokens.cache_read else {}
    return {**usage, **thought, **cached}
