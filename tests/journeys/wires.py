"""The streams of four APIs: OpenAI Chat Completions and Responses, Anthropic Messages, Gemini generateContent.

Each function yields server-sent events as bytes, and the pauses between them. It knows nothing of vaka.
"""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tests.journeys.answers import Answer, Call, Failure, Pause

Body: TypeAlias = dict[str, Any]
Stream: TypeAlias = Iterator[bytes | Pause]

CREATED = 1_767_225_600


def event(data: Any, kind: str = "") -> bytes:
    """Return one server-sent event."""
    head = f"event: {kind}\n" if kind else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def halves(call: Call) -> tuple[str, str]:
    """Return the arguments of a call in two pieces, as providers split them."""
    text = json.dumps(dict(call.arguments))
    return text[: len(text) // 2], text[len(text) // 2 :]


def chat_stream(answer: Answer, body: Body) -> Stream:
    """Yield an answer of Chat Completions."""
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": CREATED, "model": body["model"]}

    def chunk(delta: Body, finish: str | None = None) -> bytes:
        return event({**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": None if answer.calls else ""})
    if answer.reasoning:
        yield chunk({"reasoning_content": answer.reasoning})
    for piece in answer.pieces:
        yield piece if isinstance(piece, Pause) else chunk({"content": piece})
    if answer.cut:
        return
    for index, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
    for part in (0, 1):  # the arguments of parallel calls arrive interleaved
        for index, call in enumerate(answer.calls):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": halves(call)[part]}}]})
    yield chunk({}, "tool_calls" if answer.calls else "stop")
    usage = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}
    yield event({**frame, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def responses_stream(answer: Answer, body: Body) -> Stream:
    """Yield an answer of the Responses API."""
    numbers = iter(range(10_000))
    items: list[Body] = []

    def send(kind: str, **data: Any) -> bytes:
        return event({"type": kind, "sequence_number": next(numbers), **data}, kind)

    def response(status: str) -> Body:
        usage = {
            "input_tokens": 20,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 30,
        }
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": body["model"],
            "output": list(items),
            "parallel_tool_calls": True,
            "tools": [],
            "tool_choice": "auto",
            "usage": usage if status == "completed" else None,
            "metadata": {},
        }

    yield send("response.created", response=response("in_progress"))
    yield send("response.in_progress", response=response("in_progress"))
    if answer.reasoning:
        yield from _responses_reasoning(answer, items, send)
    if answer.pieces:
        yield from _responses_message(answer, items, send)
    if answer.cut:
        return
    yield from _responses_calls(answer, items, send)
    yield send("response.completed", response=response("completed"))


Send: TypeAlias = Callable[..., bytes]


def _responses_reasoning(answer: Answer, items: list[Body], send: Send) -> Stream:
    item: Body = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2VhbGVk"}
    place = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    part: Body = {"type": "summary_text", "text": answer.reasoning}
    yield send("response.output_item.added", output_index=0, item=item)
    yield send("response.reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""})
    yield send("response.reasoning_summary_text.delta", **place, delta=answer.reasoning)
    yield send("response.reasoning_summary_text.done", **place, text=answer.reasoning)
    yield send("response.reasoning_summary_part.done", **place, part=part)
    items.append({**item, "summary": [part]})
    yield send("response.output_item.done", output_index=0, item=items[-1])


def _responses_message(answer: Answer, items: list[Body], send: Send) -> Stream:
    index = len(items)
    item: Body = {"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    place = {"item_id": "msg_1", "output_index": index, "content_index": 0}
    part: Body = {"type": "output_text", "text": "", "annotations": []}
    yield send("response.output_item.added", output_index=index, item=item)
    yield send("response.content_part.added", **place, part=part)
    for piece in answer.pieces:
        yield piece if isinstance(piece, Pause) else send("response.output_text.delta", **place, delta=piece)
    if answer.cut:
        return
    part = {**part, "text": answer.text}
    yield send("response.output_text.done", **place, text=answer.text)
    yield send("response.content_part.done", **place, part=part)
    items.append({**item, "status": "completed", "content": [part]})
    yield send("response.output_item.done", output_index=index, item=items[-1])


def _responses_calls(answer: Answer, items: list[Body], send: Send) -> Stream:
    first = len(items)
    opened: list[Body] = [
        {"id": f"fc_{number}", "type": "function_call", "call_id": call.id, "name": call.name, "arguments": ""}
        for number, call in enumerate(answer.calls)
    ]
    for number, item in enumerate(opened):
        yield send("response.output_item.added", output_index=first + number, item={**item, "status": "in_progress"})
    for part in (0, 1):
        for number, (item, call) in enumerate(zip(opened, answer.calls, strict=True)):
            place = {"item_id": item["id"], "output_index": first + number}
            yield send("response.function_call_arguments.delta", **place, delta=halves(call)[part])
    for number, (item, call) in enumerate(zip(opened, answer.calls, strict=True)):
        text = "".join(halves(call))
        place = {"item_id": item["id"], "output_index": first + number}
        yield send("response.function_call_arguments.done", **place, arguments=text)
        items.append({**item, "arguments": text, "status": "completed"})
        yield send("response.output_item.done", output_index=first + number, item=items[-1])


def anthropic_stream(answer: Answer, body: Body) -> Stream:
    """Yield an answer of the Messages API."""
    usage = {"input_tokens": 20, "output_tokens": 1}
    message: Body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }

    def send(kind: str, **data: Any) -> bytes:
        return event({"type": kind, **data}, kind)

    yield send("message_start", message=message)
    yield send("ping")
    index = 0
    if answer.reasoning:
        block: Body = {"type": "thinking", "thinking": "", "signature": ""}
        yield send("content_block_start", index=index, content_block=block)
        for delta in (
            {"type": "thinking_delta", "thinking": answer.reasoning},
            {"type": "signature_delta", "signature": "c2lnbmVk"},
        ):
            yield send("content_block_delta", index=index, delta=delta)
        yield send("content_block_stop", index=index)
        index += 1
    if answer.pieces:
        yield send("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for piece in answer.pieces:
            if isinstance(piece, Pause):
                yield piece
            else:
                yield send("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
        if answer.cut:
            return
        yield send("content_block_stop", index=index)
        index += 1
    for number, call in enumerate(answer.calls, index):
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        yield send("content_block_start", index=number, content_block=block)
        for part in halves(call):
            yield send("content_block_delta", index=number, delta={"type": "input_json_delta", "partial_json": part})
        yield send("content_block_stop", index=number)
    ended = {"stop_reason": "tool_use" if answer.calls else "end_turn", "stop_sequence": None}
    yield send("message_delta", delta=ended, usage={"output_tokens": 10})
    yield send("message_stop")


def gemini_stream(answer: Answer, body: Body) -> Stream:
    """Yield an answer of streamGenerateContent."""
    usage = {"promptTokenCount": 20, "candidatesTokenCount": 10, "totalTokenCount": 30}

    def chunk(part: Body, **more: Any) -> bytes:
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0, **more}
        return event({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r1"})

    if answer.reasoning:
        yield chunk({"text": answer.reasoning, "thought": True})
    for piece in answer.pieces:
        yield piece if isinstance(piece, Pause) else chunk({"text": piece})
    if answer.cut:
        return
    signature = {"thoughtSignature": base64.b64encode(b"signed").decode()} if answer.reasoning else {}
    for number, call in enumerate(answer.calls):
        part = {"functionCall": {"name": call.name, "args": dict(call.arguments)}}
        yield chunk({**part, **(signature if number == 0 else {})})
    yield chunk({"text": "", **({} if answer.calls else signature)}, finishReason="STOP")


def openai_error(failure: Failure) -> Body:
    kind = "rate_limit_error" if failure.status == 429 else "server_error"
    return {"error": {"message": failure.message, "type": kind, "param": None, "code": kind}}


def anthropic_error(failure: Failure) -> Body:
    kind = "rate_limit_error" if failure.status == 429 else "api_error"
    return {"type": "error", "error": {"type": kind, "message": failure.message}}


def gemini_error(failure: Failure) -> Body:
    status = "RESOURCE_EXHAUSTED" if failure.status == 429 else "INTERNAL"
    return {"error": {"code": failure.status, "message": failure.message, "status": status}}


WIRES: dict[str, tuple[Callable[[Answer, Body], Stream], Callable[[Failure], Body]]] = {
    "/chat/completions": (chat_stream, openai_error),
    "/responses": (responses_stream, openai_error),
    "/messages": (anthropic_stream, anthropic_error),
    ":streamGenerateContent": (gemini_stream, gemini_error),
}
"""The stream and the error body of each API, by the end of the request's path."""
