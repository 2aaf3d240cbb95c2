"""OpenAI Chat Completions, as its API streams it; reasoning as the compatible vendors send it."""

from typing import Any

from vaka.testing.wires.line import CREATED, Failure, Line, event, name, read

PING = b": keep-alive\n\n"
STOPS = {"end": "stop", "calls": "tool_calls", "length": "length", "refusal": "content_filter"}
KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    429: "rate_limit_error",
}  # fmt: skip


def render(answer: dict[str, Any], body: dict[str, Any]) -> list[bytes]:
    """Return the events of an answer to a request; only a whole answer has the last, ``[DONE]``."""
    line = read(answer)
    asked: dict[str, Any] = body.get("stream_options") or {}
    frame = {
        "id": name("chatcmpl-", body), "object": "chat.completion.chunk", "created": CREATED,
        "model": body.get("model", ""), "service_tier": "default", "system_fingerprint": "fp_0123456789",
    }  # fmt: skip
    usage: dict[str, Any] = {"usage": None} if asked.get("include_usage") else {}
    said: list[tuple[dict[str, Any], str | None]] = [(delta, None) for delta in _deltas(line, body)]
    if line.whole:
        said.append(({}, _finish(line)))
    events = [
        event({**frame, "choices": [_choice(delta, end)], **usage, "obfuscation": "x" * (number % 7)})
        for number, (delta, end) in enumerate(said)
    ]
    if line.whole:
        events += [event({**frame, "choices": [], "usage": _usage(line, body)})] if usage else []
        events.append(b"data: [DONE]\n\n")
    elif line.says and line.error is not None:
        events.append(event(error(line.error)))
    return events


def error(failure: Failure) -> dict[str, Any]:
    """Return an error as this provider words it, alone or in the middle of a stream."""
    kind = KINDS.get(failure.status, "server_error" if failure.status >= 500 else "invalid_request_error")
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": kind}}


def _finish(line: Line) -> str:
    if line.reason == "refusal" and line.pieces:
        return "stop"  # the words are a refusal themselves
    return STOPS.get(line.reason, line.reason)


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _deltas(line: Line, body: dict[str, Any]) -> list[dict[str, Any]]:
    words = "refusal" if line.reason == "refusal" else "content"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if line.calls else "", "refusal": None}]
    deltas += [{"reasoning_content": piece} for piece in line.thoughts]
    deltas += [{words: piece} for piece in line.pieces]
    rounds: list[list[dict[str, Any]]] = []
    for index, call in enumerate(line.calls):
        id = call.id or name("call_", body, index)
        opening = {"index": index, "id": id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        rounds.append([opening, *({"index": index, "function": {"arguments": piece}} for piece in call.pieces)])
    for turn in range(max(map(len, rounds), default=0)):  # pieces of several calls may come in turns
        deltas += [{"tool_calls": [parts[turn]]} for parts in rounds if turn < len(parts)]
    return deltas


def _usage(line: Line, body: dict[str, Any]) -> dict[str, Any]:
    tokens = line.tokens(body)
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
