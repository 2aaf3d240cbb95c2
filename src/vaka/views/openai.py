"""The answers of an agent as objects of OpenAI's Chat Completions API.

::

    encoder = ChatEncoder(model="guide")
    async for event in session.stream(request.content):
        for chunk in encoder.encode(event):
            send(to_sse(chunk))
    send(DONE)
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from vaka.core.types import control
from vaka.core.types.control import Asked
from vaka.core.types.decision_text import text_of_decision
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

ChatObject: TypeAlias = dict[str, Any]
"""A ``chat.completion.chunk``, a ``chat.completion``, or ``{"error": {…}}``."""

DONE = b"data: [DONE]\n\n"
"""The last line of a stream without an error."""

_FINISH_REASONS = {"length": "length", "refusal": "content_filter"}
_GAP = "\n\n"


_ERROR_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


def error_type_of(status: int) -> str:
    """Return the ``type`` of an error by its HTTP status."""
    return _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")


def to_sse(chunk: ChatObject) -> bytes:
    """Return an object as a server-sent event."""
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def seconds_of(ts: str) -> int:
    """Return the Unix time of an event, 0 for one without a time."""
    return int(datetime.fromisoformat(ts).timestamp()) if ts else 0


def arguments_of(call: ToolCall) -> str:
    """Return the arguments of a call as JSON, or as the model wrote them if they are not valid."""
    return call.raw or msgspec.json.encode(call.arguments).decode()


def describe_decision(asked: Asked) -> str:
    """Return what a person is asked, with the reply that ``parse_reply`` of ``openai_requests`` understands."""
    line = text_of_decision(asked).line
    if isinstance(asked, control.QuestionAsked):
        return line
    return f"{line} Reply 'approve {asked.approval}' or 'reject {asked.approval}'."


class ChatEncoder:
    """Turns the events of one agent of a session into chunks: one completion for each turn.

    ``path`` names the agent, the root agent by default; ``routers`` are the names of the agents that are routers: the
    agents of their routes answer as them. ``model`` is the name in the chunks, by default the agent's.
    ``include_usage`` adds the chunk with the usage, ``reasoning`` the field ``reasoning_content`` of the deltas.

    The texts of the messages of a turn are one text, with an empty line between two messages. Tools that the runtime
    runs are not shown; calls whose results the client must send are ``tool_calls`` with the ids of the log. Call
    ``finish`` when the turn waits for a decision: the completion ends with the calls, or with a text that says what is
    asked. A turn without an answer ends in ``{"error": {…}}``, after which no ``DONE`` is sent.

    What was shown of a message that is discarded cannot be taken back. If the next message begins with the same text,
    it is continued, otherwise it begins after an empty line.
    """

    def __init__(
        self,
        path: AgentPath = (),
        *,
        routers: Collection[str] = (),
        model: str = "",
        include_usage: bool = False,
        reasoning: bool = False,
    ) -> None:
        self._reader = AnswerReader(path, routers)
        self._model = model
        self._include_usage = include_usage
        self._reasoning = reasoning
        self._head: ChatObject = {}
        self._is_open = self._has_text = False
        self._calls = 0
        self._stop = ""
        self._written: list[str] = []
        """The text of the open message."""
        self._withdrawn = ""
        """The text of a discarded message that the next message may repeat."""

    def encode(self, event: Event) -> list[ChatObject]:
        """Return the chunks of an event, often none."""
        chunks = [chunk for part in self._reader.read(event) for chunk in self._encode(part)]
        return chunks + (self.finish() if isinstance(event.data, control.StreamEnd) else [])

    def finish(self) -> list[ChatObject]:
        """Return the end of the completion of a turn that waits; nothing if no completion is open."""
        if not self._is_open:
            return []
        pending, usage = self._reader.pending, self._reader.usage
        notices = [describe_decision(asked) for asked in pending if not is_client_call(asked)]
        self._reader.suspend()
        self._written.clear()
        written = [chunk for notice in notices for chunk in (*self._write(notice), *self._end_message(""))]
        return written + self._finish("tool_calls" if len(notices) < len(pending) else "stop", usage)

    def _encode(self, part: AnswerPart) -> list[ChatObject]:
        match part:
            case AnswerBegan():
                return self._begin(part)
            case AnswerPiece(kind="text", text=text):
                return self._write(text)
            case AnswerPiece(text=text) if self._reasoning:
                return [self._chunk({"reasoning_content": text})]
            case MessageEnded(stop=stop):
                return self._end_message(stop)
            case MessageWithdrawn():
                self._withdrawn = self._withdrawn or "".join(self._written)
                self._written.clear()
                return []
            case DecisionAsked(call=ToolCall() as call) if is_client_call(part.asked):
                return self._call(call)
            case AnswerEnded():
                return self._end(part)
            case _:
                return []

    def _begin(self, part: AnswerBegan) -> list[ChatObject]:
        id = f"chatcmpl-{part.turn}" + (f"-{part.seq}" if part.seq else "")
        self._head = {
            "id": id,
            "object": "chat.completion.chunk",
            "created": seconds_of(part.ts),
            "model": self._model or part.agent,
        }
        self._is_open = True
        self._has_text = False
        self._calls = 0
        self._stop = ""
        self._withdrawn = ""
        self._written.clear()
        return [self._chunk({"role": "assistant"})]

    def _write(self, text: str) -> list[ChatObject]:
        is_first = not self._written
        self._written.append(text)
        if self._withdrawn:
            whole, shown = "".join(self._written), self._withdrawn
            if shown.startswith(whole):
                return []
            self._withdrawn = ""
            text = whole[len(shown) :] if whole.startswith(shown) else _GAP + whole
        elif is_first and self._has_text:
            text = _GAP + text
        self._has_text = True
        return [self._chunk({"content": text})]

    def _end_message(self, stop: str) -> list[ChatObject]:
        whole, shown = "".join(self._written), self._withdrawn
        self._written.clear()
        self._stop, self._withdrawn = stop, ""
        return [self._chunk({"content": _GAP + whole})] if shown and whole and whole != shown else []

    def _call(self, call: ToolCall) -> list[ChatObject]:
        function = {"name": call.name, "arguments": arguments_of(call)}
        made = {"index": self._calls, "id": call.id, "type": "function", "function": function}
        self._calls += 1
        return [self._chunk({"tool_calls": [made]})]

    def _end(self, part: AnswerEnded) -> list[ChatObject]:
        if part.status == "limit":
            return self._finish("length", part.usage)
        if part.status == "completed":
            return self._finish(_FINISH_REASONS.get(self._stop, "stop"), part.usage)
        self._is_open = False
        failure = part.failure
        kind = error_type_of(failure.status)
        return [{"error": {"message": failure.message, "type": kind, "param": None, "code": failure.code}}]

    def _finish(self, reason: str, usage: Usage) -> list[ChatObject]:
        self._is_open = False
        last = self._chunk({}, reason)
        return [last, {**self._head, "choices": [], "usage": usage_of(usage)}] if self._include_usage else [last]

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> ChatObject:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self._include_usage else {}
        return {**self._head, "choices": [choice], **usage}


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return what a turn cost as ``CompletionUsage``."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def to_completion(
    events: Iterable[Event],
    path: AgentPath = (),
    *,
    routers: Collection[str] = (),
    model: str = "",
    reasoning: bool = False,
) -> ChatObject:
    """Return the ``chat.completion`` of one turn, or ``{"error": {…}}`` for a turn without an answer.

    Live events are ignored, so messages that were discarded leave nothing. ``events`` may end where the turn waits.
    """
    encoder = ChatEncoder(path, routers=routers, model=model, include_usage=True, reasoning=reasoning)
    chunks = [chunk for event in events if event.data.durable for chunk in encoder.encode(event)]
    return join_chunks(chunks + encoder.finish())


def join_chunks(chunks: Sequence[ChatObject]) -> ChatObject:
    """Return the ``chat.completion`` of the chunks of one turn, usage included, or ``{"error": {…}}``."""
    if not chunks or "error" in chunks[-1]:
        return chunks[-1] if chunks else {"error": _NO_TURN}
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    message: dict[str, Any] = {"role": "assistant", "refusal": None}
    for name in ("content", "reasoning_content"):
        message[name] = "".join(choice["delta"].get(name, "") for choice in choices) or None
    calls = [made for choice in choices for made in choice["delta"].get("tool_calls", ())]
    if calls:
        message["tool_calls"] = [{name: call[name] for name in ("id", "type", "function")} for call in calls]
    if message["reasoning_content"] is None:
        del message["reasoning_content"]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": choices[-1]["finish_reason"]}
    return {**chunks[-1], "object": "chat.completion", "choices": [choice]}


_NO_TURN = {"message": "there is no turn to show", "type": "server_error", "param": None, "code": "no_turn"}
