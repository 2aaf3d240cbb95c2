"""OpenAI's two stream formats: Chat Completions (with reasoning as compatible vendors send it) and Responses."""

from collections.abc import Iterator
from typing import Any

from vaka.testing.wires.scripted_answer import (
    CREATED_AT,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedFailure,
    derive_id,
    encode_sse,
    parse_answer,
)

CHAT_PING = b": keep-alive\n\n"

CHAT_FINISH_REASONS = {"end": "stop", "calls": "tool_calls", "length": "length", "refusal": "content_filter"}

CHAT_ERROR_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    429: "rate_limit_error",
}  # fmt: skip


def render_chat_answer(answer: dict[str, Any], body: dict[str, Any]) -> list[bytes]:
    """Return the events of an answer to a request; only a complete answer ends with ``[DONE]``."""
    line = parse_answer(answer)
    stream_options: dict[str, Any] = body.get("stream_options") or {}
    frame = {
        "id": derive_id("chatcmpl-", body), "object": "chat.completion.chunk", "created": CREATED_AT,
        "model": body.get("model", ""), "service_tier": "default", "system_fingerprint": "fp_0123456789",
    }  # fmt: skip
    usage: dict[str, Any] = {"usage": None} if stream_options.get("include_usage") else {}
    deltas: list[tuple[dict[str, Any], str | None]] = [(delta, None) for delta in _chat_deltas(line, body)]
    if line.is_complete:
        deltas.append(({}, _chat_finish_reason(line)))
    events = [
        encode_sse({**frame, "choices": [_chat_choice(delta, end)], **usage, "obfuscation": "x" * (number % 7)})
        for number, (delta, end) in enumerate(deltas)
    ]
    if line.is_complete:
        events += [encode_sse({**frame, "choices": [], "usage": _chat_usage(line, body)})] if usage else []
        events.append(b"data: [DONE]\n\n")
    elif line.has_content and line.error is not None:
        events.append(encode_sse(render_chat_error(line.error)))
    return events


def render_chat_error(failure: ScriptedFailure) -> dict[str, Any]:
    """Return an error in the provider's format, alone or in the middle of a stream."""
    kind = CHAT_ERROR_TYPES.get(failure.status, "server_error" if failure.status >= 500 else "invalid_request_error")
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": kind}}


def _chat_finish_reason(line: ScriptedAnswer) -> str:
    if line.stop_reason == "refusal" and line.text_pieces:
        return "stop"  # the text itself is the refusal
    return CHAT_FINISH_REASONS.get(line.stop_reason, line.stop_reason)


def _chat_choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _chat_deltas(line: ScriptedAnswer, body: dict[str, Any]) -> list[dict[str, Any]]:
    words = "refusal" if line.stop_reason == "refusal" else "content"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if line.calls else "", "refusal": None}]
    deltas += [{"reasoning_content": piece} for piece in line.reasoning_pieces]
    deltas += [{words: piece} for piece in line.text_pieces]
    rounds: list[list[dict[str, Any]]] = []
    for index, call in enumerate(line.calls):
        id = call.id or derive_id("call_", body, index)
        opening = {"index": index, "id": id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        rounds.append([opening, *({"index": index, "function": {"arguments": piece}} for piece in call.pieces)])
    for turn in range(max(map(len, rounds), default=0)):  # the pieces of several calls are interleaved
        deltas += [{"tool_calls": [parts[turn]]} for parts in rounds if turn < len(parts)]
    return deltas


def _chat_usage(line: ScriptedAnswer, body: dict[str, Any]) -> dict[str, Any]:
    tokens = line.usage_for(body)
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {
            "cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write, "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning, "audio_tokens": 0, "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }  # fmt: skip


RESPONSES_PING = b": keep-alive\n\n"

INCOMPLETE_REASONS = {"length": "max_output_tokens", "refusal": "content_filter"}

RESPONSES_ERROR_CODES = {401: "invalid_api_key", 403: "permission_denied", 404: "not_found", 429: "rate_limit_exceeded"}


def render_responses_answer(answer: dict[str, Any], body: dict[str, Any]) -> list[bytes]:
    """Return the events of an answer to a request; only a complete answer ends with the whole response object."""
    line = parse_answer(answer)
    return [
        encode_sse({"type": kind, "sequence_number": number, **data}, kind)
        for number, (kind, data) in enumerate(_responses_events(line, body))
    ]


def render_responses_error(failure: ScriptedFailure) -> dict[str, Any]:
    """Return an error in the provider's format."""
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"
    code = RESPONSES_ERROR_CODES.get(failure.status, kind)
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": code}}


def _responses_events(line: ScriptedAnswer, body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = _response_object(line, body, "in_progress", [])
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    items: list[dict[str, Any]] = []
    if line.reasoning:
        yield from _reasoning_events(line, body, items)
    if line.text_pieces or (line.has_content and not line.calls and not line.reasoning):
        yield from _message_events(line, body, items)
    if line.calls:
        yield from _call_events(line, body, items)
    if line.is_complete:
        status = "completed" if _incomplete_details(line) is None else "incomplete"
        yield f"response.{status}", {"response": _response_object(line, body, status, items)}
    elif line.has_content and line.error is not None:
        error = render_responses_error(line.error)["error"]
        yield "error", {"code": error["code"], "message": error["message"], "param": None}


def _incomplete_details(line: ScriptedAnswer) -> dict[str, Any] | None:
    """Return why an answer is incomplete; a refusal with text is complete."""
    if line.stop_reason not in INCOMPLETE_REASONS or (line.stop_reason == "refusal" and line.text_pieces):
        return None
    return {"reason": INCOMPLETE_REASONS[line.stop_reason]}


def _reasoning_events(
    line: ScriptedAnswer, body: dict[str, Any], items: list[dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    at = {"item_id": derive_id("rs_", body, "reasoning"), "output_index": len(items)}
    text = "".join(line.reasoning_pieces)
    item: dict[str, Any] = {"id": at["item_id"], "type": "reasoning", "summary": []}
    secret: dict[str, Any] = {}
    if "reasoning.encrypted_content" in (body.get("include") or ()):
        secret = {"encrypted_content": derive_id("gAAAAA", body, line.reasoning)}
    yield "response.output_item.added", {"output_index": len(items), "item": {**item, **secret}}
    part = {**at, "summary_index": 0}
    yield "response.reasoning_summary_part.added", {**part, "part": {"type": "summary_text", "text": ""}}
    for piece in line.reasoning_pieces:
        yield "response.reasoning_summary_text.delta", {**part, "delta": piece, "obfuscation": "x"}
    yield "response.reasoning_summary_text.done", {**part, "text": text}
    yield "response.reasoning_summary_part.done", {**part, "part": {"type": "summary_text", "text": text}}
    items.append({**item, "summary": [{"type": "summary_text", "text": text}], **secret})
    yield "response.output_item.done", {"output_index": len(items) - 1, "item": items[-1]}


def _message_events(
    line: ScriptedAnswer, body: dict[str, Any], items: list[dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    at = {"item_id": derive_id("msg_", body, "message"), "output_index": len(items)}
    item: dict[str, Any] = {
        "id": at["item_id"], "type": "message", "status": "in_progress", "content": [], "role": "assistant",
    }  # fmt: skip
    yield "response.output_item.added", {"output_index": len(items), "item": item}
    refused = line.stop_reason == "refusal" and bool(line.text_pieces)
    kind, word = ("refusal", "refusal") if refused else ("output_text", "text")
    rest: dict[str, Any] = {} if refused else {"annotations": [], "logprobs": []}
    place = {**at, "content_index": 0}
    logprobs: dict[str, Any] = {} if refused else {"logprobs": []}
    yield "response.content_part.added", {**place, "part": {"type": kind, **rest, word: ""}}
    for piece in line.text_pieces:
        yield f"response.{kind}.delta", {**place, "delta": piece, **logprobs, "obfuscation": "x"}
    if not line.is_complete:
        return
    part = {"type": kind, **rest, word: "".join(line.text_pieces)}
    yield f"response.{kind}.done", {**place, word: part[word], **logprobs}
    yield "response.content_part.done", {**place, "part": part}
    items.append(
        {**item, "status": "completed" if _incomplete_details(line) is None else "incomplete", "content": [part]}
    )
    yield "response.output_item.done", {"output_index": len(items) - 1, "item": items[-1]}


def _call_events(
    line: ScriptedAnswer, body: dict[str, Any], items: list[dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Open all calls, send their pieces in turns, close them; ``output_index`` tells them apart."""
    opened = [(len(items) + index, call, _call_item(call, body, index)) for index, call in enumerate(line.calls)]
    for place, _, item in opened:
        yield "response.output_item.added", {"output_index": place, "item": item}
    for turn in range(max(len(call.pieces) for call in line.calls)):
        for place, call, item in opened:
            if turn < len(call.pieces):
                yield "response.function_call_arguments.delta", {
                    "item_id": item["id"], "output_index": place, "delta": call.pieces[turn], "obfuscation": "x",
                }  # fmt: skip
    if not line.is_complete:
        return
    for place, call, item in opened:
        yield "response.function_call_arguments.done", {
            "item_id": item["id"], "output_index": place, "arguments": call.arguments_text,
        }  # fmt: skip
        cut = line.stop_reason == "length" and call is line.calls[-1]
        items.append({**item, "status": "incomplete" if cut else "completed", "arguments": call.arguments_text})
        yield "response.output_item.done", {"output_index": place, "item": items[-1]}


def _call_item(call: ScriptedCall, body: dict[str, Any], index: int) -> dict[str, Any]:
    return {
        "id": derive_id("fc_", body, index), "type": "function_call", "status": "in_progress", "arguments": "",
        "call_id": call.id or derive_id("call_", body, index), "name": call.name,
    }  # fmt: skip


def _response_object(
    line: ScriptedAnswer, body: dict[str, Any], status: str, items: list[dict[str, Any]]
) -> dict[str, Any]:
    done = status != "in_progress"
    return {
        "id": derive_id("resp_", body), "object": "response", "created_at": CREATED_AT, "status": status,
        "background": False, "completed_at": CREATED_AT + 1 if status == "completed" else None, "error": None,
        "incomplete_details": _incomplete_details(line) if done else None, "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"), "max_tool_calls": None, "model": body.get("model", ""),
        "output": list(items), "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None, "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None}, "safety_identifier": None,
        "service_tier": "default" if done else "auto", "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0), "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"), "tools": body.get("tools") or [], "top_logprobs": 0,
        "top_p": body.get("top_p", 1.0), "truncation": "disabled",
        "usage": _responses_usage(line, body) if done else None, "user": None, "metadata": body.get("metadata") or {},
    }  # fmt: skip


def _responses_usage(line: ScriptedAnswer, body: dict[str, Any]) -> dict[str, Any]:
    tokens = line.usage_for(body)
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }
