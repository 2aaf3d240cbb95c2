"""The wire formats of the fake provider: scripted answers as the server-sent events of four providers' APIs.

Chat Completions sends reasoning as compatible vendors do. Gemini cannot express a call whose arguments are not a JSON
object: the answer ends with ``MALFORMED_FUNCTION_CALL``, as the API's does.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import msgspec

from vaka.models.scripted import Scripted

Fields: TypeAlias = dict[str, Any]

MAX_PIECES = 20
"""Maximum number of pieces of a text."""
CREATED_AT = 1_767_225_600
"""The creation time of every answer: the first second of 2026."""
KEEP_ALIVE = b": keep-alive\n\n"


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of a line."""

    name: str
    arguments: Fields | str = {}
    id: str = ""

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else msgspec.json.encode(self.arguments).decode()

    @property
    def pieces(self) -> list[str]:
        text = self.arguments_text
        size = -(-len(text) // 4) or 1
        return [text[at : at + size] for at in range(0, len(text), size)]


class ScriptedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a line."""

    status: int
    message: str = "the script says so"
    retry_after: float | None = None


class ScriptedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a line; cached and reasoning tokens are included in input and output."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float = 0.0


class ScriptedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the scripted model."""

    text: str | None = None
    chunks: tuple[str, ...] | None = None
    reasoning: str | None = None
    tool_calls: tuple[ScriptedCall, ...] = ()
    error: ScriptedFailure | None = None
    stall: float | None = None
    cut_after: int | None = None
    usage: ScriptedUsage | None = None
    stop: str | None = None

    @property
    def has_content(self) -> bool:
        """Whether the line has any part of an answer."""
        return any(value is not None for value in (self.text, self.chunks, self.reasoning)) or bool(self.tool_calls)

    @property
    def is_complete(self) -> bool:
        """Whether the answer reaches its end marker."""
        return self.has_content and self.cut_after is None and self.error is None

    @property
    def late_error(self) -> ScriptedFailure | None:
        """The error that ends the answer after its content."""
        return self.error if self.has_content else None

    @property
    def text_pieces(self) -> list[str]:
        """The pieces of the text, up to ``cut_after``."""
        return (split_words(self.text or "") if self.chunks is None else list(self.chunks))[: self.cut_after]

    @property
    def reasoning_pieces(self) -> list[str]:
        return split_words(self.reasoning or "")

    @property
    def calls(self) -> tuple[ScriptedCall, ...]:
        """The calls that are sent: none of an answer that is cut."""
        return self.tool_calls if self.cut_after is None else ()

    @property
    def stop_reason(self) -> str:
        """The stop reason, as vaka names it."""
        return self.stop or ("calls" if self.tool_calls else "end")

    def usage_for(self, body: Any) -> ScriptedUsage:
        """Return the usage of the line, or an estimate of one token for four characters."""
        if self.usage is not None:
            return self.usage
        reasoning = -(-len(self.reasoning or "") // 4)
        size = sum(map(len, self.text_pieces)) + sum(len(call.name) + len(call.arguments_text) for call in self.calls)
        input_tokens = -(-len(msgspec.json.encode(body)) // 4)
        return ScriptedUsage(input=input_tokens, output=-(-size // 4) + reasoning, reasoning=reasoning)


def parse_answer(answer: Fields) -> ScriptedAnswer:
    """Return a line of the scripted model as a value. Raises ``ConfigError`` for an invalid one."""
    Scripted([answer])
    return msgspec.convert(answer, ScriptedAnswer)


def split_words(text: str) -> list[str]:
    """Split a text between words, into at most ``MAX_PIECES`` pieces."""
    words: list[str] = re.findall(r"\S+\s*|\s+", text)
    size = -(-len(words) // MAX_PIECES) or 1
    return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def derive_id(prefix: str, body: Any, *more: object) -> str:
    """Return an id that depends only on the request."""
    seed = msgspec.json.encode([body, [str(part) for part in more]])
    return prefix + hashlib.sha256(seed).hexdigest()[:24]


def encode_sse(data: Any, kind: str = "") -> bytes:
    head = f"event: {kind}\n".encode() if kind else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


# ---------------------------------------------------------------------------------------------- OpenAI Chat Completions

_CHAT_FINISH_REASONS = {"end": "stop", "calls": "tool_calls", "length": "length", "refusal": "content_filter"}
_CHAT_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def _chat_events(line: ScriptedAnswer, body: Fields) -> list[bytes]:
    """Return the events of an answer to a request; only a complete answer ends with ``[DONE]``."""
    frame = {
        "id": derive_id("chatcmpl-", body),
        "object": "chat.completion.chunk",
        "created": CREATED_AT,
        "model": body.get("model", ""),
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    }
    stream_options: Fields = body.get("stream_options") or {}
    usage: Fields = {"usage": None} if stream_options.get("include_usage") else {}
    choices: list[tuple[Fields, str | None]] = [(delta, None) for delta in _chat_deltas(line, body)]
    if line.is_complete:
        refused = line.stop_reason == "refusal" and line.text_pieces  # the text itself is the refusal
        finish = "stop" if refused else _CHAT_FINISH_REASONS.get(line.stop_reason, line.stop_reason)
        choices.append(({}, finish))
    events: list[Fields] = [
        {
            **frame,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}],
            **usage,
            "obfuscation": "x" * (number % 7),
        }
        for number, (delta, end) in enumerate(choices)
    ]
    if line.is_complete and usage:
        events.append({**frame, "choices": [], "usage": _chat_usage(line, body)})
    elif line.late_error is not None:
        events.append(_chat_error(line.late_error))
    return [*map(encode_sse, events), *([b"data: [DONE]\n\n"] if line.is_complete else [])]


def _chat_error(failure: ScriptedFailure) -> Fields:
    kind = _CHAT_ERROR_TYPES.get(failure.status, "server_error" if failure.status >= 500 else "invalid_request_error")
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": kind}}


def _chat_deltas(line: ScriptedAnswer, body: Fields) -> list[Fields]:
    words = "refusal" if line.stop_reason == "refusal" else "content"
    deltas: list[Fields] = [{"role": "assistant", "content": None if line.calls else "", "refusal": None}]
    deltas += [{"reasoning_content": piece} for piece in line.reasoning_pieces]
    deltas += [{words: piece} for piece in line.text_pieces]
    rounds: list[list[Fields]] = []
    for index, call in enumerate(line.calls):
        id = call.id or derive_id("call_", body, index)
        opening = {"index": index, "id": id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        rounds.append([opening, *({"index": index, "function": {"arguments": piece}} for piece in call.pieces)])
    for turn in range(max(map(len, rounds), default=0)):  # the pieces of several calls are interleaved
        deltas += [{"tool_calls": [parts[turn]]} for parts in rounds if turn < len(parts)]
    return deltas


def _chat_usage(line: ScriptedAnswer, body: Fields) -> Fields:
    tokens = line.usage_for(body)
    cached = {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write}
    predicted = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {**cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning, "audio_tokens": 0, **predicted},
    }


# ----------------------------------------------------------------------------------------------------- OpenAI Responses

_INCOMPLETE_REASONS = {"length": "max_output_tokens", "refusal": "content_filter"}
_RESPONSES_CODES = {401: "invalid_api_key", 403: "permission_denied", 404: "not_found", 429: "rate_limit_exceeded"}

ResponsesEvents: TypeAlias = Iterator[tuple[str, Fields]]


def _responses_events(line: ScriptedAnswer, body: Fields) -> list[bytes]:
    """Return the events of an answer to a request; only a complete answer ends with the whole response object."""
    return [
        encode_sse({"type": kind, "sequence_number": number, **data}, kind)
        for number, (kind, data) in enumerate(_response_events(line, body))
    ]


def _responses_error(failure: ScriptedFailure) -> Fields:
    kind = "server_error" if failure.status >= 500 else "invalid_request_error"
    code = _RESPONSES_CODES.get(failure.status, kind)
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": code}}


def _response_events(line: ScriptedAnswer, body: Fields) -> ResponsesEvents:
    begun = _response_object(line, body, "in_progress", [])
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    items: list[Fields] = []
    if line.reasoning:
        yield from _reasoning_events(line, body, items)
    if line.text_pieces or (line.has_content and not line.calls and not line.reasoning):
        yield from _message_events(line, body, items)
    if line.calls:
        yield from _call_events(line, body, items)
    if line.is_complete:
        status = "completed" if _incomplete_details(line) is None else "incomplete"
        yield f"response.{status}", {"response": _response_object(line, body, status, items)}
    elif line.late_error is not None:
        error = _responses_error(line.late_error)["error"]
        yield "error", {"code": error["code"], "message": error["message"], "param": None}


def _incomplete_details(line: ScriptedAnswer) -> Fields | None:
    """Return why an answer is incomplete; a refusal with text is complete."""
    if line.stop_reason not in _INCOMPLETE_REASONS or (line.stop_reason == "refusal" and line.text_pieces):
        return None
    return {"reason": _INCOMPLETE_REASONS[line.stop_reason]}


def _reasoning_events(line: ScriptedAnswer, body: Fields, items: list[Fields]) -> ResponsesEvents:
    id, text = derive_id("rs_", body, "reasoning"), "".join(line.reasoning_pieces)
    item: Fields = {"id": id, "type": "reasoning", "summary": []}
    encrypted = "reasoning.encrypted_content" in (body.get("include") or ())
    secret: Fields = {"encrypted_content": derive_id("gAAAAA", body, line.reasoning)} if encrypted else {}
    yield "response.output_item.added", {"output_index": len(items), "item": {**item, **secret}}
    part = {"item_id": id, "output_index": len(items), "summary_index": 0}
    yield "response.reasoning_summary_part.added", {**part, "part": {"type": "summary_text", "text": ""}}
    for piece in line.reasoning_pieces:
        yield "response.reasoning_summary_text.delta", {**part, "delta": piece, "obfuscation": "x"}
    summary = {"type": "summary_text", "text": text}
    yield "response.reasoning_summary_text.done", {**part, "text": text}
    yield "response.reasoning_summary_part.done", {**part, "part": summary}
    items.append({**item, "summary": [summary], **secret})
    yield "response.output_item.done", {"output_index": len(items) - 1, "item": items[-1]}


def _message_events(line: ScriptedAnswer, body: Fields, items: list[Fields]) -> ResponsesEvents:
    id = derive_id("msg_", body, "message")
    item: Fields = {"id": id, "type": "message", "status": "in_progress", "content": [], "role": "assistant"}
    yield "response.output_item.added", {"output_index": len(items), "item": item}
    refused = line.stop_reason == "refusal" and bool(line.text_pieces)
    kind, word = ("refusal", "refusal") if refused else ("output_text", "text")
    logprobs: Fields = {} if refused else {"logprobs": []}
    part: Fields = {"type": kind, **({} if refused else {"annotations": []}), **logprobs, word: ""}
    place = {"item_id": id, "output_index": len(items), "content_index": 0}
    yield "response.content_part.added", {**place, "part": part}
    for piece in line.text_pieces:
        yield f"response.{kind}.delta", {**place, "delta": piece, **logprobs, "obfuscation": "x"}
    if line.is_complete:
        part = {**part, word: "".join(line.text_pieces)}
        yield f"response.{kind}.done", {**place, word: part[word], **logprobs}
        yield "response.content_part.done", {**place, "part": part}
        status = "completed" if _incomplete_details(line) is None else "incomplete"
        items.append({**item, "status": status, "content": [part]})
        yield "response.output_item.done", {"output_index": len(items) - 1, "item": items[-1]}


def _call_events(line: ScriptedAnswer, body: Fields, items: list[Fields]) -> ResponsesEvents:
    """Open all calls, send their pieces in turns, close them; ``output_index`` tells them apart."""
    opened: list[tuple[int, ScriptedCall, Fields]] = []
    for index, call in enumerate(line.calls):
        item = {
            "id": derive_id("fc_", body, index),
            "type": "function_call",
            "status": "in_progress",
            "arguments": "",
            "call_id": call.id or derive_id("call_", body, index),
            "name": call.name,
        }
        opened.append((len(items) + index, call, item))
        yield "response.output_item.added", {"output_index": len(items) + index, "item": item}
    for turn in range(max(len(call.pieces) for call in line.calls)):
        for place, call, item in opened:
            if turn < len(call.pieces):
                delta = {"item_id": item["id"], "output_index": place, "delta": call.pieces[turn], "obfuscation": "x"}
                yield "response.function_call_arguments.delta", delta
    for place, call, item in opened if line.is_complete else ():
        done = {"item_id": item["id"], "output_index": place, "arguments": call.arguments_text}
        yield "response.function_call_arguments.done", done
        cut = line.stop_reason == "length" and call is line.calls[-1]
        items.append({**item, "status": "incomplete" if cut else "completed", "arguments": call.arguments_text})
        yield "response.output_item.done", {"output_index": place, "item": items[-1]}


def _response_object(line: ScriptedAnswer, body: Fields, status: str, items: list[Fields]) -> Fields:
    done = status != "in_progress"
    return {
        "id": derive_id("resp_", body),
        "object": "response",
        "created_at": CREATED_AT,
        "status": status,
        "background": False,
        "completed_at": CREATED_AT + 1 if status == "completed" else None,
        "error": None,
        "incomplete_details": _incomplete_details(line) if done else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": None,
        "model": body.get("model", ""),
        "output": list(items),
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "prompt_cache_key": body.get("prompt_cache_key"),
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default" if done else "auto",
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_logprobs": 0,
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": _responses_usage(line, body) if done else None,
        "user": None,
        "metadata": body.get("metadata") or {},
    }


def _responses_usage(line: ScriptedAnswer, body: Fields) -> Fields:
    tokens = line.usage_for(body)
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


# --------------------------------------------------------------------------------------------------- Anthropic Messages

_ANTHROPIC_STOP_REASONS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "pause": "pause_turn"}
_ANTHROPIC_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def _anthropic_events(line: ScriptedAnswer, body: Fields) -> list[bytes]:
    """Return the events of an answer to a request; only a complete answer ends with ``message_stop``."""
    usage = _anthropic_usage(line, body)
    message: Fields = {
        "id": derive_id("msg_", body),
        "type": "message",
        "role": "assistant",
        "model": body.get("model", ""),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": min(usage["output_tokens"], 1), "service_tier": "standard"},
    }
    data: list[Fields] = [{"type": "message_start", "message": message}]
    for index, (block, deltas, closed) in enumerate(_anthropic_blocks(line, body)):
        data.append({"type": "content_block_start", "index": index, "content_block": block})
        data += [{"type": "ping"}] if not index else []
        data += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        data += [{"type": "content_block_stop", "index": index}] if closed else []
    if line.is_complete:
        stop = _ANTHROPIC_STOP_REASONS.get(line.stop_reason, line.stop_reason)
        why = {"type": "refusal", "category": None, "explanation": None} if stop == "refusal" else None
        ended = {"stop_reason": stop, "stop_sequence": None, "stop_details": why}
        data += [{"type": "message_delta", "delta": ended, "usage": usage}, {"type": "message_stop"}]
    elif line.late_error is not None:
        data.append(_anthropic_error(line.late_error))
    return [encode_sse(each, each["type"]) for each in data]


def _anthropic_error(failure: ScriptedFailure) -> Fields:
    kind = _ANTHROPIC_ERRORS.get(failure.status, "api_error" if failure.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": failure.message}, "request_id": "req_0123456789"}


def _anthropic_blocks(line: ScriptedAnswer, body: Fields) -> Iterator[tuple[Fields, list[Fields], bool]]:
    """Yield each block's start, its deltas, and whether it is closed."""
    if line.reasoning:
        deltas: list[Fields] = [{"type": "thinking_delta", "thinking": piece} for piece in line.reasoning_pieces]
        deltas.append({"type": "signature_delta", "signature": derive_id("Eq", body, line.reasoning)})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas, True
    if line.text_pieces:
        deltas = [{"type": "text_delta", "text": piece} for piece in line.text_pieces]
        yield {"type": "text", "text": ""}, deltas, line.is_complete or bool(line.calls)
    for index, call in enumerate(line.calls):
        id = call.id or derive_id("toolu_", body, index)
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *call.pieces)]
        yield {"type": "tool_use", "id": id, "name": call.name, "input": {}}, deltas, True


def _anthropic_usage(line: ScriptedAnswer, body: Fields) -> Fields:
    tokens = line.usage_for(body)
    return {
        "input_tokens": max(tokens.input - tokens.cache_read - tokens.cache_write, 0),
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": tokens.output,
        **({"output_tokens_details": {"thinking_tokens": tokens.reasoning}} if tokens.reasoning else {}),
    }


# ---------------------------------------------------------------------------------------- Gemini streamGenerateContent

_GEMINI_FINISH_REASONS = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
_GEMINI_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def _gemini_events(line: ScriptedAnswer, body: Fields) -> list[bytes]:
    """Return the events of an answer to a request; only a complete answer has a finish reason, in its last event."""
    usage, id = _gemini_usage(line, body), derive_id("r", body)
    frame = {"usageMetadata": usage, "modelVersion": body.get("model", ""), "responseId": id}
    malformed = next((call for call in line.calls if _parse_arguments(call) is None), None)
    parts = _gemini_parts(line, body, () if malformed else line.calls) or ([{"text": ""}] if line.is_complete else [])
    candidates: list[Fields] = [{"content": {"parts": [part], "role": "model"}, "index": 0} for part in parts]
    if line.is_complete and malformed:
        message = f"Malformed function call: {malformed.name}({malformed.arguments_text})"
        candidates[-1] |= {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": message}
    elif line.is_complete:
        candidates[-1]["finishReason"] = _GEMINI_FINISH_REASONS.get(line.stop_reason, line.stop_reason)
    events: list[Fields] = [{"candidates": [candidate], **frame} for candidate in candidates]
    if line.late_error is not None:
        events.append(_gemini_error(line.late_error))
    return [encode_sse(event) for event in events]


def _gemini_error(failure: ScriptedFailure) -> Fields:
    status = _GEMINI_STATUSES.get(failure.status, "UNAVAILABLE" if failure.status >= 500 else "FAILED_PRECONDITION")
    error: Fields = {"code": failure.status, "message": failure.message, "status": status}
    if failure.retry_after is not None:
        kind = "type.googleapis.com/google.rpc.RetryInfo"
        error["details"] = [{"@type": kind, "retryDelay": f"{failure.retry_after:g}s"}]
    return {"error": error}


def _gemini_parts(line: ScriptedAnswer, body: Fields, calls: tuple[ScriptedCall, ...]) -> list[Fields]:
    """Return complete parts and calls, with a signature after thinking."""
    parts: list[Fields] = [{"text": piece, "thought": True} for piece in line.reasoning_pieces]
    parts += [{"text": piece} for piece in line.text_pieces]
    signature: Fields = {}
    if line.reasoning:
        signature = {"thoughtSignature": base64.b64encode(derive_id("", body, line.reasoning).encode()).decode()}
    for call in calls:
        id = {"id": call.id} if call.id else {}
        parts.append({"functionCall": {"name": call.name, "args": _parse_arguments(call), **id}, **signature})
        signature = {}  # only the first call of a step has one
    if signature and line.is_complete:
        parts.append({"text": "", **signature})
    return parts


def _parse_arguments(call: ScriptedCall) -> Fields | None:
    try:
        return msgspec.json.decode(call.arguments_text, type=Fields)
    except msgspec.DecodeError:
        return None


def _gemini_usage(line: ScriptedAnswer, body: Fields) -> Fields:
    tokens = line.usage_for(body)
    return {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": max(tokens.output - tokens.reasoning, 0),
        "totalTokenCount": tokens.input + tokens.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens.input}],
        **({"thoughtsTokenCount": tokens.reasoning} if tokens.reasoning else {}),
        **({"cachedContentTokenCount": tokens.cache_read} if tokens.cache_read else {}),
    }


class WireFormat(NamedTuple):
    """One API: ``render`` returns the events of an answer to a request, ``error`` an error in the provider's format."""

    render: Callable[[ScriptedAnswer, Fields], list[bytes]]
    error: Callable[[ScriptedFailure], Fields]
    ping: bytes


WIRE_FORMATS = {
    "/chat/completions": WireFormat(_chat_events, _chat_error, KEEP_ALIVE),
    "/responses": WireFormat(_responses_events, _responses_error, KEEP_ALIVE),
    "/messages": WireFormat(_anthropic_events, _anthropic_error, b'event: ping\ndata: {"type":"ping"}\n\n'),
    ":streamGenerateContent": WireFormat(_gemini_events, _gemini_error, KEEP_ALIVE),
}
"""Wire formats by the end of the request's path."""
