"""OpenAI Responses, as its API streams it: items open, grow, close, and stand in the last event whole."""

from collections.abc import Iterator
from typing import Any

from vaka.testing.wires.line import CREATED, Call, Failure, Line, event, name, read

PING = b": keep-alive\n\n"
INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}
KINDS = {401: "invalid_api_key", 403: "permission_denied", 404: "not_found", 429: "rate_limit_exceeded"}


def render(answer: dict[str, Any], body: dict[str, Any]) -> list[bytes]:
    """Return the events of an answer to a request; only a whole answer has the last, which holds all of it."""
    line = read(answer)
    return [
        event({"type": kind, "sequence_number": number, **data}, kind)
        for number, (kind, data) in enumerate(_events(line, body))
    ]


def error(failure: Failure) -> dict[str, Any]:
    """Return an error as this provider words it."""
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"
    code = KINDS.get(failure.status, kind)
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": code}}


def _events(line: Line, body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = _response(line, body, "in_progress", [])
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    items: list[dict[str, Any]] = []
    if line.reasoning:
        yield from _reasoning(line, body, items)
    if line.pieces or (line.says and not line.calls and not line.reasoning):
        yield from _message(line, body, items)
    if line.calls:
        yield from _calls(line, body, items)
    if line.whole:
        status = "completed" if _why(line) is None else "incomplete"
        yield f"response.{status}", {"response": _response(line, body, status, items)}
    elif line.says and line.error is not None:
        said = error(line.error)["error"]
        yield "error", {"code": said["code"], "message": said["message"], "param": None}


def _why(line: Line) -> dict[str, Any] | None:
    """Return why an answer is not complete; one whose words are a refusal is."""
    if line.reason not in INCOMPLETE or (line.reason == "refusal" and line.pieces):
        return None
    return {"reason": INCOMPLETE[line.reason]}


def _reasoning(line: Line, body: dict[str, Any], items: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    at = {"item_id": name("rs_", body, "reasoning"), "output_index": len(items)}
    text = "".join(line.thoughts)
    item: dict[str, Any] = {"id": at["item_id"], "type": "reasoning", "summary": []}
    secret: dict[str, Any] = {}
    if "reasoning.encrypted_content" in (body.get("include") or ()):
        secret = {"encrypted_content": name("gAAAAA", body, line.reasoning)}
    yield "response.output_item.added", {"output_index": len(items), "item": {**item, **secret}}
    part = {**at, "summary_index": 0}
    yield "response.reasoning_summary_part.added", {**part, "part": {"type": "summary_text", "text": ""}}
    for piece in line.thoughts:
        yield "response.reasoning_summary_text.delta", {**part, "delta": piece, "obfuscation": "x"}
    yield "response.reasoning_summary_text.done", {**part, "text": text}
    yield "response.reasoning_summary_part.done", {**part, "part": {"type": "summary_text", "text": text}}
    items.append({**item, "summary": [{"type": "summary_text", "text": text}], **secret})
    yield "response.output_item.done", {"output_index": len(items) - 1, "item": items[-1]}


def _message(line: Line, body: dict[str, Any], items: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    at = {"item_id": name("msg_", body, "message"), "output_index": len(items)}
    item: dict[str, Any] = {
        "id": at["item_id"], "type": "message", "status": "in_progress", "content": [], "role": "assistant",
    }  # fmt: skip
    yield "response.output_item.added", {"output_index": len(items), "item": item}
    refused = line.reason == "refusal" and bool(line.pieces)
    kind, word = ("refusal", "refusal") if refused else ("output_text", "text")
    rest: dict[str, Any] = {} if refused else {"annotations": [], "logprobs": []}
    place = {**at, "content_index": 0}
    logprobs: dict[str, Any] = {} if refused else {"logprobs": []}
    yield "response.content_part.added", {**place, "part": {"type": kind, **rest, word: ""}}
    for piece in line.pieces:
        yield f"response.{kind}.delta", {**place, "delta": piece, **logprobs, "obfuscation": "x"}
    if not line.whole:
        return
    part = {"type": kind, **rest, word: "".join(line.pieces)}
    yield f"response.{kind}.done", {**place, word: part[word], **logprobs}
    yield "response.content_part.done", {**place, "part": part}
    items.append({**item, "status": "completed" if _why(line) is None else "incomplete", "content": [part]})
    yield "response.output_item.done", {"output_index": len(items) - 1, "item": items[-1]}


def _calls(line: Line, body: dict[str, Any], items: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Open all calls, let them grow in turns, close them: the places say whose a piece is."""
    opened = [(len(items) + index, call, _call(call, body, index)) for index, call in enumerate(line.calls)]
    for place, _, item in opened:
        yield "response.output_item.added", {"output_index": place, "item": item}
    for turn in range(max(len(call.pieces) for call in line.calls)):
        for place, call, item in opened:
            if turn < len(call.pieces):
                yield "response.function_call_arguments.delta", {
                    "item_id": item["id"], "output_index": place, "delta": call.pieces[turn], "obfuscation": "x",
                }  # fmt: skip
    if not line.whole:
        return
    for place, call, item in opened:
        yield "response.function_call_arguments.done", {
            "item_id": item["id"], "output_index": place, "arguments": call.written,
        }  # fmt: skip
        cut = line.reason == "length" and call is line.calls[-1]
        items.append({**item, "status": "incomplete" if cut else "completed", "arguments": call.written})
        yield "response.output_item.done", {"output_index": place, "item": items[-1]}


def _call(call: Call, body: dict[str, Any], index: int) -> dict[str, Any]:
    return {
        "id": name("fc_", body, index), "type": "function_call", "status": "in_progress", "arguments": "",
        "call_id": call.id or name("call_", body, index), "name": call.name,
    }  # fmt: skip


def _response(line: Line, body: dict[str, Any], status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    done = status != "in_progress"
    return {
        "id": name("resp_", body), "object": "response", "created_at": CREATED, "status": status, "background": False,
        "completed_at": CREATED + 1 if status == "completed" else None, "error": None,
        "incomplete_details": _why(line) if done else None, "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"), "max_tool_calls": None, "model": body.get("model", ""),
        "output": list(items), "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None, "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None}, "safety_identifier": None,
        "service_tier": "default" if done else "auto", "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0), "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"), "tools": body.get("tools") or [], "top_logprobs": 0,
        "top_p": body.get("top_p", 1.0), "truncation": "disabled", "usage": _usage(line, body) if done else None,
        "user": None, "metadata": body.get("metadata") or {},
    }  # fmt: skip


def _usage(line: Line, body: dict[str, Any]) -> dict[str, Any]:
    tokens = line.tokens(body)
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }
