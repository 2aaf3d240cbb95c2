"""The answers of an agent as events and objects of OpenAI's Responses API.

::

    encoder = ResponseEncoder(model="guide")
    async for event in session.stream(request.content):
        for stream_event in encoder.encode(event):
            send(to_sse(stream_event))
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types import control, progress
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath, CallId
from vaka.core.types.message import ToolCall, ToolResult, Usage
from vaka.views.answers import (
    AnswerBegan,
    AnswerEnded,
    AnswerPart,
    AnswerPiece,
    AnswerReader,
    CallBegan,
    CallEnded,
    DecisionAsked,
    MessageEnded,
    MessageWithdrawn,
    is_client_call,
)
from vaka.views.message_blocks import BlockKind
from vaka.views.openai import arguments_of, describe_decision, seconds_of
from vaka.views.responses_requests import SERVER_LABEL

ResponseEvent: TypeAlias = dict[str, Any]
"""An event with ``type`` and ``sequence_number``."""

_ItemStatus: TypeAlias = Literal["completed", "incomplete"]

SECTION = 2**24
"""Sequence numbers of a new section begin at the next multiple of this; see ``ResponseEncoder``."""

_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}
ITEM_SEPARATOR = "."
"""Stands between the response and the name of an item in the id of the item."""
_ERROR_CODES = {
    "rate_limited": "rate_limit_exceeded",
    "bad_request": "invalid_prompt",
    "context_too_long": "invalid_prompt",
}
"""The codes of a failed response; there are few, and each other failure is a ``server_error``."""
_PREFIXES: dict[BlockKind, str] = {"text": "msg", "reasoning": "rs"}


def to_sse(event: ResponseEvent) -> bytes:
    """Return an event as a server-sent event."""
    return f"event: {event['type']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


def resume_after(events: Iterable[ResponseEvent], starting_after: int) -> Iterator[ResponseEvent]:
    """Yield what follows the sequence number ``starting_after``; a delta that contains it is cut there."""
    for event in events:
        unread = event["sequence_number"] - starting_after
        if unread <= 0:
            continue
        if event["type"].endswith(".delta") and unread < len(event["delta"]):
            yield {**event, "delta": event["delta"][-unread:]}
        else:
            yield event


def response_of_item(item: str) -> str:
    """Return the id of the response that an item is part of; ``""`` for an id that names none."""
    name, separator, _ = item.partition(ITEM_SEPARATOR)
    body = name.partition("_")[2]
    return f"resp_{body}" if separator and body else ""


def parse_response_id(id: str) -> tuple[str, int]:
    """Return the turn of a response, and the event it begins with: 0 for the start of the turn."""
    turn, _, seq = id.removeprefix("resp_").rpartition("-")
    return (turn, int(seq)) if turn and seq.isdecimal() else (id.removeprefix("resp_"), 0)


class _TextItem:
    """The open item of a text or of reasoning."""

    def __init__(self, piece: AnswerPiece, index: int, id: str) -> None:
        self.block = (piece.message, piece.kind, piece.block)
        self.index = index
        self.id = id
        self.kind: BlockKind = piece.kind
        self.logprobs: dict[str, Any] = {"logprobs": []} if piece.kind == "text" else {}
        """A field that clients expect of the events of a text."""
        self.texts: list[str] = []

    @property
    def place(self) -> dict[str, Any]:
        """The fields that name the part in its events."""
        number = {"content_index": 0} if self.kind == "text" else {"summary_index": 0}
        return {"item_id": self.id, "output_index": self.index, **number}

    def part(self, text: str) -> dict[str, Any]:
        if self.kind == "text":
            return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        return {"type": "summary_text", "text": text}

    def item(self, status: str, *parts: dict[str, Any]) -> dict[str, Any]:
        if self.kind == "text":
            return {"id": self.id, "type": "message", "role": "assistant", "status": status, "content": [*parts]}
        return {"id": self.id, "type": "reasoning", "status": status, "summary": [*parts]}


class ResponseEncoder:
    """Turns the events of one agent of a session into events of responses: one response for each turn.

    ``path``, ``routers`` and ``model`` are as in ``ChatEncoder``. ``client_tools`` are the names of the tools that the
    client runs; their calls are ``function_call`` items, calls of other tools ``mcp_call`` items of the server
    ``server_label``. ``echo`` are fields of the request that the response repeats, such as ``metadata``; ``id`` is the
    id of the responses, by default one made of the turn. Call ``finish`` when the turn waits for a decision: the
    response is completed with ``mcp_approval_request`` or ``function_call`` items, and what follows the decision is
    another response.

    A stored log gives the same sequence numbers as the live events, so ``resume_after`` continues a stream that was
    cut. A delta counts as many numbers as it has code points. After each message, at the end, and where the shown text
    may not be in the log, the numbers go on at the next multiple of ``SECTION``. Items of a message that was discarded
    end as ``incomplete`` and are not part of the final response; in a stored log they do not appear.
    """

    def __init__(
        self,
        path: AgentPath = (),
        *,
        routers: Collection[str] = (),
        model: str = "",
        client_tools: Collection[str] = (),
        echo: Mapping[str, Any] | None = None,
        server_label: str = SERVER_LABEL,
        id: str = "",
    ) -> None:
        self._reader, self._id = AnswerReader(path, routers), id
        self._model = model
        self._client_tools = client_tools
        self._echo = dict(echo or {})
        self._label = server_label
        self._response: dict[str, Any] = {}
        self._items: list[dict[str, Any] | None] = []
        """The output; ``None`` for items that do not count."""
        self._is_open = False
        self._number = 0
        self._stop = ""
        self._text: _TextItem | None = None
        self._message_items: list[int] = []
        """The items of the open message."""
        self._calls: dict[CallId, int] = {}
        """The items of the calls that run."""
        self._client_calls: set[CallId] = set()

    @property
    def response(self) -> dict[str, Any]:
        """The response as it is now. Empty before the first event of a turn."""
        if not self._response:
            return {}
        return {**self._response, "output": [item for item in self._items if item is not None]}

    @property
    def last_number(self) -> int:
        """The sequence number of the last event."""
        return self._number - 1

    def encode(self, event: Event) -> list[ResponseEvent]:
        """Return the events of an event, often none."""
        was_open = self._is_open
        encoded = [one for part in self._reader.read(event) for one in self._encode(part)]
        if was_open and isinstance(event.data, progress.MessageDiscarded | progress.TurnResumed):
            self._start_section()  # what was shown of the message is not in the log
        return encoded + (self.finish() if isinstance(event.data, control.StreamEnd) else [])

    def steer(self) -> list[ResponseEvent]:
        """Return the end of a response whose turn goes on with another input; nothing if no response is open."""
        if not self._is_open:
            return []
        usage = self._reader.usage
        self._reader.suspend()
        closed = self._close_text("incomplete")
        self._start_section()
        closed += self._close_calls()
        return closed + self._end_response("incomplete", usage, incomplete_details={"reason": "steered"})

    def finish(self) -> list[ResponseEvent]:
        """Return the end of the response of a turn that waits; nothing if no response is open."""
        if not self._is_open:
            return []
        pending, usage = self._reader.pending, self._reader.usage
        self._reader.suspend()
        events = self._close_text("incomplete")
        self._start_section()
        events += self._close_calls()
        for asked in pending:
            if isinstance(asked, control.QuestionAsked) and not is_client_call(asked):
                events += self._write(AnswerPiece(asked.question, "text", 0, describe_decision(asked)))
                events += self._close_text("completed")
        return events + self._end_response("completed", usage)

    def _encode(self, part: AnswerPart) -> list[ResponseEvent]:
        match part:
            case AnswerBegan():
                return self._begin(part)
            case AnswerPiece():
                return self._write(part)
            case MessageEnded(stop=stop):
                self._stop = stop
                self._start_section()
                closed = self._close_text("completed")
                self._message_items.clear()
                return closed
            case MessageWithdrawn():
                return self._withdraw()
            case CallBegan(call=call):
                return self._begin_call(call)
            case CallEnded(call=call, result=result):
                return self._end_call(call, result)
            case DecisionAsked():
                return self._ask(part)
            case AnswerEnded():
                return self._end(part)

    # --------------------------------------------------------------------------------------------------- the response

    def _begin(self, part: AnswerBegan) -> list[ResponseEvent]:
        self._items.clear()
        self._message_items.clear()
        self._calls.clear()
        self._client_calls.clear()
        self._is_open = True
        self._number = 0
        self._stop = ""
        self._text = None
        id = self._id or f"resp_{part.turn}" + (f"-{part.seq}" if part.seq else "")
        self._response = empty_response(id, self._model or part.agent, seconds_of(part.ts), self._echo)
        return [self._event(f"response.{name}", response=self.response) for name in ("created", "in_progress")]

    def _end(self, part: AnswerEnded) -> list[ResponseEvent]:
        self._start_section()
        closed = self._close_calls()
        if part.status == "failed":
            failure = part.failure
            error = {"code": _ERROR_CODES.get(failure.code, "server_error"), "message": failure.message}
            return closed + self._end_response("failed", part.usage, error=error)
        if part.status in {"cancelled", "interrupted"}:
            return closed + self._end_response("cancelled", part.usage)
        reason = "max_output_tokens" if part.status == "limit" else _INCOMPLETE.get(self._stop)
        if reason is None:
            return closed + self._end_response("completed", part.usage)
        return closed + self._end_response("incomplete", part.usage, incomplete_details={"reason": reason})

    def _end_response(self, status: str, usage: Usage, **fields: Any) -> list[ResponseEvent]:
        self._is_open = False
        self._response = {**self._response, "status": status, "usage": usage_of(usage), **fields}
        type = "incomplete" if status == "cancelled" else status  # there is no event for a cancelled response
        return [self._event(f"response.{type}", response=self.response)]

    def _start_section(self) -> None:
        self._number = (self._number // SECTION + 1) * SECTION

    def _event(self, type: str, **fields: Any) -> ResponseEvent:
        number, self._number = self._number, self._number + 1
        return {"type": type, "sequence_number": number, **fields}

    def _delta(self, type: str, text: str, place: dict[str, Any]) -> list[ResponseEvent]:
        if not text:
            return []
        self._number += len(text) - 1
        return [self._event(f"{type}.delta", delta=text, **place)]

    # ------------------------------------------------------------------------------------------------------- the items

    def _item_id(self, prefix: str, name: str) -> str:
        """Return the id of an item. In a response with an id it names the response, so that it can be looked up."""
        return f"{prefix}_{self._id.removeprefix('resp_')}{ITEM_SEPARATOR}{name}" if self._id else f"{prefix}_{name}"

    def _write(self, piece: AnswerPiece) -> list[ResponseEvent]:
        opened: list[ResponseEvent] = []
        if self._text is None or self._text.block != (piece.message, piece.kind, piece.block):
            opened = self._close_text("completed")
            index = len(self._items)
            id = self._item_id(_PREFIXES[piece.kind], f"{piece.message}_{len(self._message_items)}")
            self._text = _TextItem(piece, index, id)
            self._message_items.append(index)
            opened += self._add_item(self._text.item("in_progress"))
            opened.append(self._event(_part_event(piece.kind, "added"), part=self._text.part(""), **self._text.place))
        text = self._text
        text.texts.append(piece.text)
        return opened + self._delta(_text_event(piece.kind), piece.text, text.place | text.logprobs)

    def _close_text(self, status: _ItemStatus) -> list[ResponseEvent]:
        item, self._text = self._text, None
        if item is None:
            return []
        whole = "".join(item.texts)
        return [
            self._event(f"{_text_event(item.kind)}.done", text=whole, **item.place, **item.logprobs),
            self._event(_part_event(item.kind, "done"), part=item.part(whole), **item.place),
            *self._finish_item(item.index, item.item(status, item.part(whole))),
        ]

    def _withdraw(self) -> list[ResponseEvent]:
        closed = self._close_text("incomplete")
        for index in self._message_items:
            self._items[index] = None
        self._message_items.clear()
        return closed

    def _begin_call(self, call: ToolCall) -> list[ResponseEvent]:
        if call.id in self._calls or call.name in self._client_tools:  # it runs again after a crash
            return []
        index = self._calls[call.id] = len(self._items)
        item = {
            "id": self._item_id("mcp", call.id),
            "type": "mcp_call",
            "status": "in_progress",
            "name": call.name,
            "arguments": "",
            "server_label": self._label,
            "output": None,
            "error": None,
        }
        arguments, place = arguments_of(call), {"item_id": item["id"], "output_index": index}
        events = [*self._add_item(item), self._event("response.mcp_call.in_progress", **place)]
        self._items[index] = {**item, "arguments": arguments}
        events += self._delta("response.mcp_call_arguments", arguments, place)
        return [*events, self._event("response.mcp_call_arguments.done", arguments=arguments, **place)]

    def _end_call(self, call: ToolCall | None, result: ToolResult) -> list[ResponseEvent]:
        if result.call in self._client_calls:
            return self._drop_call(result.call)
        begun = self._begin_call(call) if call is not None else []
        if result.call not in self._calls:
            return begun
        index = self._calls.pop(result.call)
        status = "failed" if result.failed else "completed"
        outcome: dict[str, Any] = {"status": status, "output": result.text}
        if result.failed:
            content = [{"type": "text", "text": result.text}]
            outcome = {"status": status, "error": {"type": "mcp_tool_execution_error", "content": content}}
        item = {**(self._items[index] or {}), **outcome}
        ended = self._event(f"response.mcp_call.{status}", item_id=item["id"], output_index=index)
        return [*begun, ended, *self._finish_item(index, item)]

    def _drop_call(self, call: CallId) -> list[ResponseEvent]:
        """End the item of a call that the client runs, although its tool is not one of ``client_tools``."""
        index = self._calls.pop(call, None)
        return [] if index is None else self._finish_item(index, {**(self._items[index] or {}), "status": "incomplete"})

    def _ask(self, part: DecisionAsked) -> list[ResponseEvent]:
        index = len(self._items)
        if isinstance(part.asked, control.ApprovalRequested):
            asked = part.asked
            item = {
                "id": asked.approval,
                "type": "mcp_approval_request",
                "name": asked.call.name,
                "arguments": arguments_of(asked.call),
                "server_label": self._label,
            }
            return [*self._add_item(item), *self._finish_item(index, item)]
        call = part.call
        if call is None or not is_client_call(part.asked):
            return []
        self._client_calls.add(call.id)
        item = {
            "id": self._item_id("fc", call.id),
            "type": "function_call",
            "status": "in_progress",
            "name": call.name,
            "call_id": call.id,
            "arguments": "",
        }
        arguments, place = arguments_of(call), {"item_id": item["id"], "output_index": index}
        events = self._add_item(item) + self._delta("response.function_call_arguments", arguments, place)
        events.append(
            self._event("response.function_call_arguments.done", arguments=arguments, name=call.name, **place)
        )
        return events + self._finish_item(index, {**item, "arguments": arguments, "status": "completed"})

    def _close_calls(self) -> list[ResponseEvent]:
        return [event for call in [*self._calls] for event in self._drop_call(call)]

    def _add_item(self, item: dict[str, Any]) -> list[ResponseEvent]:
        self._items.append(item)
        return [self._event("response.output_item.added", item=item, output_index=len(self._items) - 1)]

    def _finish_item(self, index: int, item: dict[str, Any]) -> list[ResponseEvent]:
        self._items[index] = item
        return [self._event("response.output_item.done", item=item, output_index=index)]


def empty_response(
    id: str, model: str, created: int, echo: Mapping[str, Any], status: str = "in_progress"
) -> dict[str, Any]:
    """Return a response without output: its turn begins, or its input waits or was withdrawn."""
    return {
        "id": id,
        "object": "response",
        "created_at": float(created),
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "previous_response_id": None,
        "usage": None,
        **echo,
    }


def _text_event(kind: BlockKind) -> str:
    return "response.output_text" if kind == "text" else "response.reasoning_summary_text"


def _part_event(kind: BlockKind, change: str) -> str:
    return f"response.content_part.{change}" if kind == "text" else f"response.reasoning_summary_part.{change}"


def usage_of(usage: Usage) -> dict[str, Any]:
    """Return what a turn cost as ``ResponseUsage``."""
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "total_tokens": usage.total,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def to_response(events: Iterable[Event], encoder: ResponseEncoder, *, waiting: bool = False) -> dict[str, Any]:
    """Return the response of the durable ones of ``events``, read by a new ``encoder``; empty if there is no turn.

    A turn that still runs is ``in_progress``. ``waiting``: the turn waits for a decision where the events end, so the
    response is completed.
    """
    for event in events:
        if event.data.durable:
            encoder.encode(event)
    if waiting:
        encoder.finish()
    return encoder.response
