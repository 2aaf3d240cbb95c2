"""The answers of an agent as messages of Anthropic's Messages API: one message for each turn.

::

    encoder = MessagesEncoder(model="guide")
    async for event in session.stream(request.content):
        for stream_event in encoder.encode(event):
            send(to_sse(stream_event))
"""

from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

import msgspec

from vaka.core.types import control
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath
from vaka.core.types.message import ToolCall, Usage
from vaka.views.answers import (
    AnswerBegan,
    AnswerEnded,
    AnswerPart,
    AnswerPiece,
    AnswerReader,
    DecisionAsked,
    MessageEnded,
    MessageWithdrawn,
    is_client_call,
)
from vaka.views.openai import arguments_of, describe_decision

MessageEvent: TypeAlias = dict[str, Any]
"""An event of the stream, with its ``type``."""

_STOP_REASONS = {"length": "max_tokens", "refusal": "refusal", "stop": "stop_sequence"}
_BLOCKS: dict[str, dict[str, Any]] = {
    "text": {"type": "text", "text": ""},
    "reasoning": {"type": "thinking", "thinking": "", "signature": ""},
}
_DELTAS = {"text": ("text_delta", "text"), "reasoning": ("thinking_delta", "thinking")}


def to_sse(event: MessageEvent) -> bytes:
    """Return an event as a server-sent event; clients skip those without a name."""
    return f"event: {event['type']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_type_of(status: int) -> str:
    """Return the ``type`` of an error by its HTTP status."""
    return _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def error_event(kind: str, message: str) -> MessageEvent:
    """Return an error, as an event and as the body of a response."""
    return {"type": "error", "error": {"type": kind, "message": message}}


class MessagesEncoder:
    """Turns the events of one agent of a session into the events of messages.

    ``path`` and ``routers`` are as in ``ChatEncoder``; ``model`` is the name in the messages, by default the
    agent's. ``thinking`` shows reasoning as ``thinking`` blocks.

    Tools that the runtime runs are not shown; calls whose results the client must send are ``tool_use`` blocks with the
    ids of the log. Call ``finish`` when the turn waits for a decision: the message ends with the calls, or with a text
    that says what is asked. A turn without an answer ends in an ``error`` event.

    A block of a message that is discarded is closed; the next message begins another block.
    """

    def __init__(
        self, path: AgentPath = (), *, routers: Collection[str] = (), model: str = "", thinking: bool = False
    ) -> None:
        self._reader = AnswerReader(path, routers)
        self._model, self._thinking = model, thinking
        self._is_open = False
        self._next_index = 0
        self._block: tuple[str, str, int] | None = None
        """The message, kind and number of the open block."""
        self._stop = ""

    def encode(self, event: Event) -> list[MessageEvent]:
        """Return the events of an event, often none."""
        events = [one for part in self._reader.read(event) for one in self._encode(part)]
        return events + (self.finish() if isinstance(event.data, control.StreamEnd) else [])

    def finish(self) -> list[MessageEvent]:
        """Return the end of the message of a turn that waits; nothing if no message is open."""
        if not self._is_open:
            return []
        pending, usage = self._reader.pending, self._reader.usage
        self._reader.suspend()
        events = self._close_block()
        for asked in pending:
            if not is_client_call(asked):
                events += self._write(AnswerPiece("", "text", self._next_index, describe_decision(asked)))
                events += self._close_block()
        waits_for_client = any(map(is_client_call, pending))
        return events + self._finish("tool_use" if waits_for_client else "end_turn", usage)

    def _encode(self, part: AnswerPart) -> list[MessageEvent]:
        match part:
            case AnswerBegan():
                return self._begin(part)
            case AnswerPiece(kind=kind) if kind == "text" or self._thinking:
                return self._write(part)
            case MessageEnded(stop=stop):
                self._stop = stop
                return self._close_block()
            case MessageWithdrawn():
                return self._close_block()
            case DecisionAsked(call=ToolCall() as call) if is_client_call(part.asked):
                return self._call(call)
            case AnswerEnded():
                return self._end(part)
            case _:
                return []

    def _begin(self, part: AnswerBegan) -> list[MessageEvent]:
        self._is_open = True
        self._next_index = 0
        self._block = None
        self._stop = ""
        message: dict[str, Any] = {
            "id": f"msg_{part.turn}" + (f"-{part.seq}" if part.seq else ""),
            "type": "message",
            "role": "assistant",
            "model": self._model or part.agent,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_of(Usage()),
        }
        return [{"type": "message_start", "message": message}, {"type": "ping"}]

    def _write(self, piece: AnswerPiece) -> list[MessageEvent]:
        opened: list[MessageEvent] = []
        block = (piece.message, piece.kind, piece.block)
        if self._block != block:
            opened = [*self._close_block(), self._start_block(_BLOCKS[piece.kind])]
            self._block = block
        kind, field = _DELTAS[piece.kind]
        return [*opened, self._delta({"type": kind, field: piece.text})] if piece.text else opened

    def _start_block(self, block: dict[str, Any]) -> MessageEvent:
        self._next_index += 1
        return {"type": "content_block_start", "index": self._next_index - 1, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> MessageEvent:
        return {"type": "content_block_delta", "index": self._next_index - 1, "delta": delta}

    def _close_block(self) -> list[MessageEvent]:
        if self._block is None:
            return []
        self._block = None
        return [{"type": "content_block_stop", "index": self._next_index - 1}]

    def _call(self, call: ToolCall) -> list[MessageEvent]:
        closed = self._close_block()
        started = self._start_block({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
        delta = self._delta({"type": "input_json_delta", "partial_json": arguments_of(call)})
        return [*closed, started, delta, {"type": "content_block_stop", "index": self._next_index - 1}]

    def _end(self, part: AnswerEnded) -> list[MessageEvent]:
        if part.status == "limit":
            return self._finish("max_tokens", part.usage)
        if part.status == "completed":
            return self._finish(_STOP_REASONS.get(self._stop, "end_turn"), part.usage)
        self._is_open = False
        failure = part.failure
        return [*self._close_block(), error_event(error_type_of(failure.status), failure.message)]

    def _finish(self, reason: str, usage: Usage) -> list[MessageEvent]:
        self._is_open = False
        delta = {"stop_reason": reason, "stop_sequence": None}
        ended = {"type": "message_delta", "delta": delta, "usage": usage_of(usage)}
        return [*self._close_block(), ended, {"type": "message_stop"}]


def usage_of(usage: Usage) -> dict[str, int]:
    """Return what a turn cost; ``input_tokens`` were neither read from a cache nor written to it."""
    return {
        "input_tokens": max(usage.input - usage.cache_read - usage.cache_write, 0),
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    }


def join_message(events: Iterable[MessageEvent]) -> dict[str, Any]:
    """Return the message of the events of one turn, or its error; empty if there is no turn."""
    message: dict[str, Any] = {}
    blocks: list[dict[str, Any]] = []
    for event in events:
        match event["type"]:
            case "message_start":
                message, blocks = dict(event["message"]), []
            case "content_block_start":
                blocks.append(dict(event["content_block"]))
            case "content_block_delta":
                _add_delta(blocks[-1], event["delta"])
            case "message_delta":
                message |= {**event["delta"], "usage": event["usage"]}
            case "error":
                return event
            case _:  # the end of a block or message, or a ping
                pass
    return message and {**message, "content": [_complete(block) for block in blocks]}


def _add_delta(block: dict[str, Any], delta: dict[str, Any]) -> None:
    for field in ("text", "thinking", "partial_json"):
        if field in delta:
            block[field] = block.get(field, "") + delta[field]


def _complete(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block; the input of a call is parsed, and empty if it is not an object."""
    if block["type"] != "tool_use":
        return block
    try:
        input = msgspec.json.decode(block.pop("partial_json", "{}"), type=dict[str, Any])
    except msgspec.DecodeError:
        input = {}
    return {**block, "input": input}
