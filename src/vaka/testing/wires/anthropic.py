"""Anthropic's Messages stream: one block after the other, thinking with a signature."""

from typing import Any

from vaka.testing.wires.scripted_answer import ScriptedAnswer, ScriptedFailure, derive_id, encode_sse, parse_answer

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
STOP_REASONS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "pause": "pause_turn"}
ERROR_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 504: "timeout_error",
    529: "overloaded_error",
}  # fmt: skip


def render_answer(answer: dict[str, Any], body: dict[str, Any]) -> list[bytes]:
    """Return the events of an answer to a request; only a complete answer ends with ``message_stop``."""
    line = parse_answer(answer)
    data = [_message_start(line, body)]
    for index, (block, deltas, closed) in enumerate(_content_blocks(line, body)):
        data.append({"type": "content_block_start", "index": index, "content_block": block})
        data += [{"type": "ping"}] if not index else []
        data += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        data += [{"type": "content_block_stop", "index": index}] if closed else []
    if line.is_complete:
        stop = STOP_REASONS.get(line.stop_reason, line.stop_reason)
        why = {"type": "refusal", "category": None, "explanation": None} if stop == "refusal" else None
        ended = {"stop_reason": stop, "stop_sequence": None, "stop_details": why}
        data += [{"type": "message_delta", "delta": ended, "usage": _usage_of(line, body)}, {"type": "message_stop"}]
    elif line.has_content and line.error is not None:
        data.append(render_error(line.error))
    return [encode_sse(each, each["type"]) for each in data]


def render_error(failure: ScriptedFailure) -> dict[str, Any]:
    """Return an error in the provider's format, alone or in the middle of a stream."""
    kind = ERROR_TYPES.get(failure.status, "api_error" if failure.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": failure.message}, "request_id": "req_0123456789"}


def _message_start(line: ScriptedAnswer, body: dict[str, Any]) -> dict[str, Any]:
    usage = _usage_of(line, body)
    usage |= {"output_tokens": min(usage["output_tokens"], 1), "service_tier": "standard"}
    message: dict[str, Any] = {
        "id": derive_id("msg_", body), "type": "message", "role": "assistant", "model": body.get("model", ""),
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    return {"type": "message_start", "message": message}


def _content_blocks(
    line: ScriptedAnswer, body: dict[str, Any]
) -> list[tuple[dict[str, Any], list[dict[str, Any]], bool]]:
    """Return each block's start, its deltas, and whether it is closed."""
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]], bool]] = []
    if line.reasoning:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in line.reasoning_pieces]
        deltas.append({"type": "signature_delta", "signature": derive_id("Eq", body, line.reasoning)})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas, True))
    if line.text_pieces:
        deltas = [{"type": "text_delta", "text": piece} for piece in line.text_pieces]
        blocks.append(({"type": "text", "text": ""}, deltas, line.is_complete or bool(line.calls)))
    for index, call in enumerate(line.calls):
        id = call.id or derive_id("toolu_", body, index)
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *call.pieces)]
        blocks.append(({"type": "tool_use", "id": id, "name": call.name, "input": {}}, deltas, True))
    return blocks


def _usage_of(line: ScriptedAnswer, body: dict[str, Any]) -> dict[str, Any]:
    tokens = line.usage_for(body)
    usage: dict[str, Any] = {
        "input_tokens": max(tokens.input - tokens.cache_read - tokens.cache_write, 0),
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": tokens.output,
    }
    return {**usage, "output_tokens_details": {"thinking_tokens": tokens.reasoning}} if tokens.reasoning else usage
