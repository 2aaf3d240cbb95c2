"""The CPU time of building and encoding requests: of a long conversation with a few new messages, of many tools."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from bench.measure import MedianRange, raised_priority
from bench.row import Row
from vaka.core.ports.model import Prompt
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    CallRef,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.core.types.tool import ToolSpec
from vaka.models.anthropic import model as anthropic
from vaka.models.compatibility import HistoryAdapter
from vaka.models.gemini import model as gemini
from vaka.models.openai_chat import model as chat
from vaka.models.openai_chat.vendors import VendorProfile
from vaka.models.openai_responses import model as responses
from vaka.models.prefixes import Comparison
from vaka.models.request_items import RequestMemo, encode_body

NEW = 3
"""New messages in each request."""
_COUNTS = (10, 100, 1_000, 10_000)
_TARGET = 2.0
_TOOLS = 10
_MANY_TOOLS = 500


class _Wire(NamedTuple):
    write: Callable[[Prompt, Any], dict[str, Any]]
    new_writer: Callable[[], Any]


_WIRES = {
    "anthropic": _Wire(
        lambda prompt, memo: anthropic.to_request("claude-sonnet-4-5", prompt, memo=memo).body,
        lambda: anthropic.AnthropicWriter("claude-sonnet-4-5"),
    ),
    "openai_chat": _Wire(
        lambda prompt, memo: chat.to_request("gpt-5", prompt, memo=memo),
        lambda: chat.ChatWriter("gpt-5", VendorProfile()),
    ),
    "openai_responses": _Wire(
        lambda prompt, memo: responses.to_request("gpt-5", prompt, memo=memo),
        lambda: responses.ResponsesWriter("gpt-5", responses.ResponsesCapabilities()),
    ),
    "gemini": _Wire(
        lambda prompt, memo: gemini.to_request("gemini-2.5-pro", prompt, memo=memo),
        lambda: gemini.GeminiWriter("gemini-2.5-pro"),
    ),
}


def make_conversation(count: int) -> list[Message]:
    """Return ``count`` messages: questions, calls, results and answers in turn."""
    messages: list[Message] = []
    for number in range(count // 4 + 1):
        call = ToolCall(
            id=CallId(f"call_{number}"),
            name="tool_1",
            arguments={"path": f"src/{number}.py", "start": number},
            provider_id=f"toolu_{number}",
        )
        messages += [
            UserMessage(content=(Text(text=f"Please look at file {number}. " * 5),)),
            AssistantMessage(
                id=MessageId(f"m{number}"),
                content=(Text(text="I read it. " * 5), CallRef(id=call.id)),
                calls=(call,),
                stop="calls",
            ),
            ToolMessage(results=(ToolResult(call=call.id, content=(Text(text="a line of text\n" * 20),)),)),
            AssistantMessage(id=MessageId(f"n{number}"), content=(Text(text="It is fine. " * 8),), stop="end"),
        ]
    return messages[:count]


def make_tools(count: int, *, strict: bool = False) -> tuple[ToolSpec, ...]:
    """Return ``count`` tools, also in OpenAI's strict dialect where ``strict`` asks for it."""
    properties = {"path": {"type": "string", "description": "The path of the file."}, "start": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": ["path"], "additionalProperties": False}
    return tuple(
        ToolSpec(
            name=f"tool_{number}", description="Read a file of the workspace. " * 3, parameters=schema, strict=strict
        )
        for number in range(count)
    )


class RequestWriter:
    """Writes the requests of conversations as a model does: adapts the history, then builds and encodes the body."""

    def __init__(self, wire: str, *, keep: bool) -> None:
        self._write = _WIRES[wire].write
        self._keeps = keep
        self._comparison = Comparison()
        self._memo = RequestMemo(_WIRES[wire].new_writer, self._comparison) if keep else None
        self._history = self._new_history()
        self.tools = make_tools(_TOOLS)

    def write(self, messages: tuple[Message, ...], session: str) -> tuple[bytes, float]:
        """Return the body of a request, and the seconds of CPU."""
        prompt = Prompt(messages=messages, system="You are a careful assistant.", tools=self.tools, session=session)
        history = self._history if self._keeps else self._new_history()
        begun = time.thread_time()
        prompt, _ = history.adapt(prompt)
        body = encode_body(self._write(prompt, self._memo))
        self._comparison.clear()
        return body, time.thread_time() - begun

    def _new_history(self) -> HistoryAdapter:
        return HistoryAdapter("m", "https://provider.example/v1", lambda part: part, self._comparison)


def time_first_requests(wire: str, count: int, repeats: int, *, keep: bool) -> list[float]:
    """Return the seconds of requests of ``count`` messages, all new, and of new tools."""
    writer, messages = RequestWriter(wire, keep=keep), tuple(make_conversation(count))
    taken: list[float] = []
    for number in range(repeats):
        writer.tools = make_tools(_TOOLS)
        taken.append(writer.write(messages, f"session {number}")[1])
    return taken


def time_next_requests(wire: str, count: int, repeats: int) -> tuple[list[float], float]:
    """Return the seconds of requests of at least ``count`` messages, a few of them new, and of copying their bytes."""
    writer, messages = RequestWriter(wire, keep=True), make_conversation(count + NEW * (repeats + 1))
    taken: list[float] = []
    body, _ = writer.write(tuple(messages[:count]), "session")
    for end in range(count + NEW, count + NEW * (repeats + 1), NEW):
        body, seconds = writer.write(tuple(messages[:end]), "session")
        taken.append(seconds)
    return taken, MedianRange.of([_time_copy(body) for _ in range(9)]).value


def time_tools(wire: str, count: int, repeats: int, *, unchanged: bool) -> list[float]:
    """Return the seconds of requests of ten messages, a few of them new, and of ``count`` tools, all strict."""
    writer, messages = RequestWriter(wire, keep=True), make_conversation(10 + NEW * repeats)
    writer.tools = make_tools(count, strict=True)
    taken: list[float] = []
    writer.write(tuple(messages[:10]), "session")
    for end in range(10 + NEW, len(messages) + 1, NEW):
        if not unchanged:
            writer.tools = make_tools(count, strict=True)
        taken.append(writer.write(tuple(messages[:end]), "session")[1])
    return taken


def _time_copy(body: bytes) -> float:
    raw = {"messages": [msgspec.Raw(body)]}
    begun = time.thread_time()
    encode_body(raw)
    return time.thread_time() - begun


def measure_requests(quick: bool) -> list[Row]:
    """Measure each wire: requests with a few new messages, compared with writing the whole conversation."""
    repeats = 20 if quick else 100
    rows: list[Row] = []
    for wire in _WIRES:
        with raised_priority() as how:
            time_first_requests(wire, NEW, 20, keep=True)
            small = MedianRange.of(time_first_requests(wire, NEW, repeats, keep=True)).value
            for count in _COUNTS:
                value, low, high = (part * 1e6 for part in MedianRange.of(time_next_requests(wire, count, repeats)[0]))
                raw = MedianRange.of(time_first_requests(wire, count, 5, keep=False)).value * 1e6
                note = f"{NEW} are new; raw: the whole conversation is written; {how}"
                rows.append(
                    Row(
                        name=f"request of {count:,} messages, {wire}",
                        value=value,
                        unit="µs CPU",
                        low=low,
                        high=high,
                        raw=raw,
                        ratio=value / raw,
                        note=note,
                    )
                )
            taken, copy = time_next_requests(wire, 2_000, repeats)
            rows.append(_measure_tools(wire, repeats, how))
        rows.append(
            Row(
                name=f"request of 2,000 messages, relative to one of {NEW}, {wire}",
                unit="×",
                target=_TARGET,
                value=(MedianRange.of(taken).value - copy) / small,
                note=f"without the {copy * 1e6:.0f} µs of copying",
            )
        )
    return rows


def _measure_tools(wire: str, repeats: int, how: str) -> Row:
    """Measure requests of many tools, compared with those whose tools are new."""
    value, low, high = (part * 1e6 for part in MedianRange.of(time_tools(wire, _MANY_TOOLS, repeats, unchanged=True)))
    raw = MedianRange.of(time_tools(wire, _MANY_TOOLS, 9, unchanged=False)).value * 1e6
    return Row(
        name=f"request of {_MANY_TOOLS} tools, {wire}",
        value=value,
        unit="µs CPU",
        low=low,
        high=high,
        raw=raw,
        ratio=value / raw,
        note=f"the list of the last request, {NEW} messages are new; raw: a new list; {how}",
    )
