"""Gemini's streamGenerateContent, as its API streams it: in whole parts, calls too, signed after thinking.

A call whose arguments are no JSON object cannot be said on this wire: the answer ends as the API ends it then.
"""

import base64
from typing import Any

import msgspec

from vaka.testing.wires.line import Call, Failure, Line, event, name, read

PING = b": keep-alive\n\n"
STOPS = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
KINDS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED",
    429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip


def render(answer: dict[str, Any], body: dict[str, Any]) -> list[bytes]:
    """Return the events of an answer to a request; only a whole answer has a finish reason, in its last."""
    line = read(answer)
    frame = {"usageMetadata": _usage(line, body), "modelVersion": body.get("model", ""), "responseId": name("r", body)}
    parts = _parts(line, body) or ([{"text": ""}] if line.whole else [])
    candidates: list[dict[str, Any]] = [{"content": {"parts": [part], "role": "model"}, "index": 0} for part in parts]
    if line.whole:
        candidates[-1] |= _finish(line)
    said = [{"candidates": [candidate], **frame} for candidate in candidates]
    if line.says and line.error is not None:
        said.append(error(line.error))
    return [event(each) for each in said]


def error(failure: Failure) -> dict[str, Any]:
    """Return an error as this provider words it, alone or in the middle of a stream."""
    status = KINDS.get(failure.status, "UNAVAILABLE" if failure.status >= 500 else "FAILED_PRECONDITION")
    said: dict[str, Any] = {"code": failure.status, "message": failure.message, "status": status}
    if failure.retry_after is not None:
        kind = "type.googleapis.com/google.rpc.RetryInfo"
        said["details"] = [{"@type": kind, "retryDelay": f"{failure.retry_after:g}s"}]
    return {"error": said}


def _finish(line: Line) -> dict[str, Any]:
    broken = _broken(line)
    if broken is not None:
        words = f"Malformed function call: {broken.name}({broken.written})"
        return {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": words}
    return {"finishReason": STOPS.get(line.reason, line.reason)}


def _parts(line: Line, body: dict[str, Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in line.thoughts]
    parts += [{"text": piece} for piece in line.pieces]
    signature: dict[str, Any] = {}
    if line.reasoning:
        signature = {"thoughtSignature": base64.b64encode(name("", body, line.reasoning).encode()).decode()}
    for call in line.calls if _broken(line) is None else ():
        id = {"id": call.id} if call.id else {}
        parts.append({"functionCall": {"name": call.name, "args": _arguments(call), **id}, **signature})
        signature = {}  # only the first call of a step has one
    if signature and line.whole:
        parts.append({"text": "", **signature})
    return parts


def _broken(line: Line) -> Call | None:
    return next((call for call in line.calls if _arguments(call) is None), None)


def _arguments(call: Call) -> dict[str, Any] | None:
    if isinstance(call.arguments, dict):
        return call.arguments
    try:
        return msgspec.json.decode(call.arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _usage(line: Line, body: dict[str, Any]) -> dict[str, Any]:
    tokens = line.tokens(body)
    usage: dict[str, Any] = {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": max(tokens.output - tokens.reasoning, 0),
        "totalTokenCount": tokens.input + tokens.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens.input}],
    }
    thought = {"thoughtsTokenCount": tokens.reasoning} if tokens.reasoning else {}
    cached = {"cachedContentTokenCount": tokens.cache_read} if tokens.cache_read else {}
    return {**usage, **thought, **cached}
