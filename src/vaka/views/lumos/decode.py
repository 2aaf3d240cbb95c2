"""Lumosai events as events of a log."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from vaka.core.types import control, progress
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Body, Custom, Event
from vaka.core.types.ids import JSON, CallId, MessageId, SessionId, TurnId
from vaka.core.types.message import CallRef, Content, ToolCall, ToolResult, Usage, as_content
from vaka.views.lumos.event import CUSTOM_PREFIX, LumosEvent


def from_lumos(
    messages: "Iterable[LumosEvent | bytes | str | Mapping[str, Any]]", *, session: str = "lumos"
) -> Iterator[Event]:
    """Yield the events of the log that Lumosai events carry, or live events of ``session`` of the same meaning."""
    decoder = LumosDecoder(session)
    for message in messages:
        yield from decoder.decode(message if isinstance(message, LumosEvent) else LumosEvent.from_json(message))


class _WireMessage(msgspec.Struct, frozen=True):
    content: str = ""


class _WireStep(msgspec.Struct, frozen=True):
    id: str = ""
    output: _WireMessage | None = None


class _WireResult(msgspec.Struct, frozen=True):
    status: str
    result: JSON = None


class _WireCounts(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _WireGeneration(msgspec.Struct, frozen=True):
    response: str = ""
    usage: _WireCounts | None = None


class LumosDecoder:
    """Turns Lumosai events into events of a log: the events that they carry, or live events of ``session``.

    In a stream with sources, an event without one repeats a part of an event before it and is skipped. In a stream
    without, what has no counterpart becomes ``custom.lumos.<type>``, which ``LumosEncoder`` turns back.
    """

    def __init__(self, session: str = "lumos") -> None:
        self._session, self._has_sources = SessionId(session), False
        self._runs = self._number = self._offset = 0
        self._agent = self._step = ""
        self._calls: list[CallId] = []
        self._text = ""
        self._decoders: dict[str, Callable[[dict[str, Any]], list[Body]]] = {
            "AgentStarted": self._start_run,
            "AgentStopped": lambda _: [],
            "TextDelta": self._decode_text,
            "ToolCallStart": self._decode_call,
            "ToolCallComplete": _decode_result,
            "StepComplete": self._decode_step,
            "GenerationComplete": _decode_generation,
            "Error": _decode_error,
            "MemoryUpdate": _decode_memory,
        }

    def decode(self, event: LumosEvent) -> list[Event]:
        """Return the events of a Lumosai event. Raises ``InvalidInput`` for fields of a wrong type."""
        if event.source is not None:
            self._has_sources = True
            return [event.source]
        if self._has_sources:
            return []
        decoder = self._decoders.get(event.type)
        try:
            bodies = decoder(event.data) if decoder is not None else []
            time = msgspec.convert(event.data.get("timestamp", ""), str)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"the Lumosai event {event.type} has a field of the wrong type: {error}") from error
        if decoder is None or (event.type == "MemoryUpdate" and not bodies):
            bodies = [Custom(name=f"{CUSTOM_PREFIX}{event.type}", value=event.data)]
        turn = TurnId(f"run_{self._runs}")
        return [Event(data=body, session=self._session, ts=time, turn=turn, step=self._number) for body in bodies]

    def _start_run(self, data: dict[str, Any]) -> list[Body]:
        self._agent = msgspec.convert(data["agent_id"], str)
        self._runs = self._runs + 1
        self._number = 0
        self._step = ""
        return [progress.TurnStarted(agent=self._agent, inputs=())]

    def _begin_step(self, step: str | None) -> list[Body]:
        if self._number and step in (None, "", self._step):
            return []
        self._number = self._number + 1
        self._offset = 0
        self._calls = []
        self._text = ""
        self._step = step or f"step_{self._runs}_{self._number}"
        return [progress.StepStarted(agent=self._agent, number=self._number)]

    def _decode_text(self, data: dict[str, Any]) -> list[Body]:
        delta = msgspec.convert(data["delta"], str)
        begun = self._begin_step(msgspec.convert(data.get("step_id"), str | None))
        offset, self._offset = self._offset, self._offset + len(delta)
        self._text += delta
        return [*begun, progress.TextDelta(message_id=MessageId(self._step), block=0, offset=offset, text=delta)]

    def _decode_call(self, data: dict[str, Any]) -> list[Body]:
        call = msgspec.convert(data["call"], ToolCall)
        begun = self._begin_step(msgspec.convert(data.get("step_id"), str | None))
        self._calls.append(call.id)
        return [*begun, progress.ToolCalled(call=call, message_id=MessageId(self._step))]

    def _decode_step(self, data: dict[str, Any]) -> list[Body]:
        step = msgspec.convert(data["step"], _WireStep)
        begun = self._begin_step(step.id)
        text = step.output.content if step.output is not None else self._text
        content: Content = (*(as_content(text) if text else ()), *(CallRef(id=id) for id in self._calls))
        message = progress.MessageCompleted(message_id=MessageId(self._step), content=content)
        return [*begun, message, progress.StepCompleted(number=self._number)]


def _decode_result(data: dict[str, Any]) -> list[Body]:
    call, given = CallId(msgspec.convert(data["call_id"], str)), data["result"]
    try:
        result = msgspec.convert(given, _WireResult)
    except msgspec.ValidationError:  # the value itself
        result = _WireResult(status="success", result=given)
    value = result.result
    content = as_content(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    if result.status == "error":
        return [progress.ToolFailed(result=ToolResult(call=call, content=content, failed=True, reason="error"))]
    structured = None if isinstance(value, str) else value
    return [progress.ToolCompleted(result=ToolResult(call=call, content=content, value=structured))]


def _decode_generation(data: dict[str, Any]) -> list[Body]:
    result = msgspec.convert(data["result"], _WireGeneration)
    counts = result.usage or _WireCounts()
    usage = Usage(input=counts.prompt_tokens, output=counts.completion_tokens)
    return [progress.TurnCompleted(text=result.response, usage=usage)]


def _decode_error(data: dict[str, Any]) -> list[Body]:
    code = msgspec.convert(data.get("code", "lumos"), str)
    return [progress.TurnFailed(code=code, message=msgspec.convert(data["error"], str))]


def _decode_memory(data: dict[str, Any]) -> list[Body]:
    """Return the change of a value; nothing for ``Clear``, which has no counterpart."""
    key, operation = msgspec.convert(data["key"], str), data["operation"]
    if operation == "Clear":
        return []
    change = {} if operation == "Delete" else msgspec.convert(operation, dict[str, dict[str, JSON]])
    return [control.StateChanged(key=key, value=change.get("Set", {}).get("value"))]
