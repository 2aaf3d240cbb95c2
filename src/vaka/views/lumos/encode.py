"""Events of a log as Lumosai events."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, cast

import msgspec

from vaka.core.types import control, progress
from vaka.core.types.event import Body, Custom, Event
from vaka.core.types.ids import JSON, AgentPath, CallId
from vaka.core.types.message import ToolCall, ToolResult, Usage, text_of
from vaka.core.types.monitor import UsageRecorded
from vaka.views.lumos.event import CARRIED, CUSTOM_PREFIX, DISCARDED, LumosEvent, StreamingConfig
from vaka.views.message_blocks import MessageBlocks, Piece, kind_of
from vaka.views.routed_agents import RoutedAgents

_DECISIONS = (
    control.ApprovalRequested,
    control.ApprovalResolved,
    control.ApprovalExpired,
    control.QuestionAsked,
    control.QuestionAnswered,
)


def to_lumos(
    events: Iterable[Event], config: StreamingConfig | None = None, *, path: AgentPath = ()
) -> Iterator[LumosEvent]:
    """Yield the Lumosai events of one agent; each event of the log is in exactly one of them."""
    encoder = LumosEncoder(config, path=path, lossless=True)
    for event in events:
        yield from encoder.encode(event)


def _tool_call(call: ToolCall) -> dict[str, Any]:
    raw = {"raw": call.raw} if call.raw and not call.arguments else {}
    return {"id": call.id, "name": call.name, "arguments": call.arguments, **raw}


def _text_of_result(value: JSON) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _count_tokens(usage: Usage) -> dict[str, int]:
    return {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.total}


def _message(role: str, text: str, name: str = "") -> dict[str, Any]:
    return {"role": role, "content": text, **({"name": name} if name else {})}


class _Step:
    """A step while it runs, and its ``AgentStep``."""

    def __init__(self, id: str, number: int, input: list[dict[str, Any]]) -> None:
        self.id = id
        self.number = number
        self.input = input
        self.output: dict[str, Any] | None = None
        self.calls: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {}
        self.usage = Usage()

    def to_agent_step(self) -> dict[str, Any]:
        kind = "final" if not self.calls else "initial" if self.number == 1 else "tool"
        return {
            "id": self.id,
            "step_type": kind,
            "input": self.input,
            "output": self.output,
            "tool_calls": self.calls,
            "tool_results": self.results,
            "metadata": self.metadata,
        }


class _AnswerText:
    """The text of one answer: the blocks that have come, and what was not sent yet."""

    def __init__(self, message_id: str = "") -> None:
        self.message_id, self.blocks = message_id, MessageBlocks()
        self.unsent = ""
        self.sent_size = 0

    def add(self, pieces: list[Piece]) -> None:
        self.unsent += "".join(piece.text for piece in pieces if piece.kind == "text")

    def take(self) -> str:
        text, self.unsent = self.unsent, ""
        self.sent_size += len(text)
        return text


class LumosEncoder:
    """Turns the events of one agent of a session into Lumosai events.

    ``path`` names the agent, the root agent by default; child agents are shown by their tool call and by
    ``CollaborationStarted`` and ``CollaborationCompleted``. ``routers`` are the names of the agents that are routers:
    what the agents of their routes write is shown as theirs. Approvals and questions are ``Custom`` events.

    ``steps`` of ``GenerationComplete`` are those whose events were encoded: feed the events of a turn from its
    beginning.
    """

    def __init__(
        self,
        config: StreamingConfig | None = None,
        *,
        path: AgentPath = (),
        routers: Collection[str] = (),
        streaming_mode: str = "direct",
        lossless: bool = False,
    ) -> None:
        self._config = config or StreamingConfig()
        self._path = path
        self._mode = streaming_mode
        self._lossless = lossless
        self._routed = RoutedAgents(path, routers)
        self._agent = self._run = self._session = self._time = ""
        self._inputs: dict[str, str] = {}
        self._next_input: list[dict[str, Any]] = []
        self._steps: list[dict[str, Any]] = []
        self._usage = Usage()
        """The usage of the steps that have ended."""
        self._step: _Step | None = None
        self._text = _AnswerText()
        self._has_text = False
        """Whether the run has shown a text."""
        self._names: dict[CallId, str] = {}

    def encode(self, event: Event) -> list[LumosEvent]:
        """Return the Lumosai events of an event, often none."""
        self._session = event.session
        self._time = event.ts
        body = event.data
        if self._routed.answers(event):
            shown = self._encode(event, body)
        else:
            shown = self._encode_of_parent(event, body) if self._path and event.path == self._path[:-1] else []
        if not self._lossless:
            return shown
        first = shown[0] if shown else LumosEvent(type="Metadata", data={"key": CARRIED, "value": None})
        return [msgspec.structs.replace(first, source=event), *shown[1:]]

    def _encode(self, event: Event, body: Body) -> list[LumosEvent]:
        match body:
            case progress.TextDelta() | progress.ReasoningDelta() | progress.MessageSnapshot():
                return self._encode_delta(body)
            case progress.MessageCompleted() | progress.MessageDiscarded():
                return self._encode_message(body)
            case progress.ToolCalled() | progress.ToolStarted() | progress.ToolCompleted() | progress.ToolFailed():
                return [] if self._routed.is_router(event.path) else self._encode_tool(body)
            case progress.SubagentStarted() | progress.SubagentCompleted():
                return self._encode_child(event.path, body)
            case progress.StepStarted() | progress.StepCompleted() | UsageRecorded():
                return self._encode_step(event, body)
            case control.StateChanged(key=key, value=value):
                return self._encode_memory(key, value)
            case Custom(name=name, value=value):
                return self._encode_custom(name, value)
            case _:
                return self._encode_decision(event, body) or self._encode_turn(event, body)

    # ------------------------------------------------------------------------------------------------- turns and steps

    def _encode_turn(self, event: Event, body: Body) -> list[LumosEvent]:
        match body:
            case control.InputAdded(key=key, content=content):
                self._inputs[key] = text_of(content)
                return []
            case progress.TurnStarted(agent=agent, inputs=inputs, content=content):
                texts = [text_of(content)] if content is not None else [self._inputs.pop(key, "") for key in inputs]
                return self._start(event, agent, texts)
            case progress.TurnResumed(agent=agent):
                return [] if self._run == event.turn else self._start(event, agent, [])
            case progress.TurnCompleted(text=text, usage=usage, stop=stop, limit=limit):
                return self._complete(text, usage, {"stop": stop, **({"limit": limit} if limit else {})})
            case progress.TurnFailed(message=message, code=code):
                return self._fail(message, code)
            case progress.TurnCancelled(note=note):
                return self._fail(note or "cancelled", "cancelled")
            case progress.TurnInterrupted(note=note):
                return self._fail(note or "interrupted", "interrupted")
            case _:
                return []

    def _encode_of_parent(self, event: Event, body: Body) -> list[LumosEvent]:
        """Return the events for an event of the parent agent, which starts and ends this one."""
        match body:
            case progress.SubagentStarted(child=child, agent=agent, content=content) if child == self._path[-1]:
                return self._start(event, agent, [text_of(content)])
            case progress.SubagentCompleted(child=child) if child == self._path[-1]:
                if body.failed:
                    return self._fail(body.stop, body.reason)
                return self._complete(body.text, self._usage, {"stop": body.stop})
            case _:
                return []

    def _start(self, event: Event, agent: str, inputs: list[str]) -> list[LumosEvent]:
        self._agent = agent
        self._run = event.turn
        self._steps = []
        self._step = None
        self._usage = Usage()
        self._has_text = False
        self._next_input = [_message("user", text) for text in inputs]
        run, mode = self._metadata("run_id", event.turn), self._metadata("streaming_mode", self._mode)
        return [*run, *mode, self._event("AgentStarted", agent_id=agent, timestamp=self._time)]

    def _complete(self, text: str, usage: Usage, metadata: dict[str, Any]) -> list[LumosEvent]:
        sent = [] if self._has_text else self._simulate(text)
        about = {"run_id": self._run, "session_id": self._session, **metadata}
        result = {"response": text, "steps": self._steps, "usage": _count_tokens(usage), "metadata": about}
        return [*sent, self._event("GenerationComplete", result=result), self._end_run()]

    def _fail(self, message: str, code: str) -> list[LumosEvent]:
        rest = self._send_text()
        error = self._event("Error", error=message, code=code, **self._step_id())
        return [*rest, error, self._end_run()]

    def _end_run(self) -> LumosEvent:
        self._run = ""
        return self._event("AgentStopped", agent_id=self._agent, timestamp=self._time)

    def _encode_step(
        self, event: Event, body: progress.StepStarted | progress.StepCompleted | UsageRecorded
    ) -> list[LumosEvent]:
        step = self._step
        match body:
            case progress.StepStarted(number=number, inputs=inputs):
                joined = [_message("user", self._inputs.pop(key, "")) for key in inputs]
                id = ".".join([event.turn, *event.path, str(number)])
                self._step = _Step(id, number, self._next_input + joined)
                self._next_input = []
            case UsageRecorded(usage=usage, model=model) if step is not None and body.call is None:
                step.usage += usage
                step.metadata |= {"model": model, "usage": _count_tokens(step.usage)}
            case progress.StepCompleted() if step is not None:
                self._next_input = [
                    _message("tool", _text_of_result(result["result"]), result["name"]) for result in step.results
                ]
                self._steps.append(step.to_agent_step())
                self._usage += step.usage
                return [self._event("StepComplete", step=self._steps[-1], step_id=step.id)]
            case _:
                pass
        return []

    # ------------------------------------------------------------------------------------------------------------ text

    def _encode_delta(
        self, body: progress.TextDelta | progress.ReasoningDelta | progress.MessageSnapshot
    ) -> list[LumosEvent]:
        kind = kind_of(body)
        if kind == "reasoning":
            return self._metadata("reasoning", body.text, **self._step_id())
        if kind is None:
            return []
        if self._text.message_id != body.message_id:
            self._text = _AnswerText(body.message_id)
        self._text.add(self._text.blocks.add_delta(body))
        return self._send_text() if len(self._text.unsent) >= self._config.text_buffer_size else []

    def _send_text(self) -> list[LumosEvent]:
        text = self._text.take()
        self._has_text = self._has_text or bool(text)
        return [self._event("TextDelta", delta=text, **self._step_id())] if text else []

    def _encode_message(self, body: progress.MessageCompleted | progress.MessageDiscarded) -> list[LumosEvent]:
        text = self._text if self._text.message_id == body.message_id else _AnswerText(body.message_id)
        self._text = _AnswerText()
        if isinstance(body, progress.MessageDiscarded):
            lost = {"characters": text.sent_size, "reason": body.reason, **self._step_id()}
            return [self._event("Metadata", key=DISCARDED, value=lost)] if text.sent_size else []
        whole = text_of(body.content)
        if self._step is not None:
            self._step.output = _message("assistant", whole) if whole else None
        sent = self._simulate(whole) if text.blocks.is_empty else self._finish_text(text, body)
        about = {"message": whole, "timestamp": self._time}
        return sent + ([self._event("MessageSent", **about)] if whole and self._config.emit_metadata else [])

    def _finish_text(self, text: _AnswerText, body: progress.MessageCompleted) -> list[LumosEvent]:
        """Send the rest of an answer that was streamed."""
        text.add(text.blocks.complete(body))
        self._text = text
        return self._send_text()

    def _simulate(self, text: str) -> list[LumosEvent]:
        """Return an answer that was not streamed in pieces that say so."""
        size, self._has_text = self._config.text_buffer_size, self._has_text or bool(text)
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        return [self._event("TextDelta", delta=piece, simulated=True, **self._step_id()) for piece in pieces]

    # ----------------------------------------------------------------------------------------------- tools and children

    def _encode_tool(
        self, body: progress.ToolCalled | progress.ToolStarted | progress.ToolCompleted | progress.ToolFailed
    ) -> list[LumosEvent]:
        match body:
            case progress.ToolCalled(call=call):
                self._names[call.id] = call.name
                if self._step is not None:
                    self._step.calls.append(_tool_call(call))
                return [self._event("ToolCallStart", call=_tool_call(call), **self._step_id())]
            case progress.ToolStarted(call=call):
                self._names[call.id] = call.name
                fields = {"tool_name": call.name, "arguments": call.arguments, "timestamp": self._time}
                return [self._event("ToolCalled", **fields)] if self._config.emit_metadata else []
            case _:
                return self._encode_result(body.result)

    def _encode_result(self, result: ToolResult) -> list[LumosEvent]:
        value = result.text if result.failed or result.value is None else result.value
        shape = {
            "call_id": result.call,
            "name": self._names.pop(result.call, ""),
            "result": value,
            "status": "error" if result.failed else "success",
        }
        if self._step is not None:
            self._step.results.append(shape)
        reason = {"reason": result.reason} if result.reason else {}
        return [self._event("ToolCallComplete", call_id=result.call, result=shape, **reason, **self._step_id())]

    def _encode_child(
        self, path: AgentPath, body: progress.SubagentStarted | progress.SubagentCompleted
    ) -> list[LumosEvent]:
        about = {"session_id": "/".join((*path, body.child)), "participants": [body.agent], "timestamp": self._time}
        if isinstance(body, progress.SubagentStarted):
            return [self._event("CollaborationStarted", task_description=text_of(body.content), **about)]
        results = {body.agent: body.text or body.stop} if body.failed else {body.agent: body.text}
        return [self._event("CollaborationCompleted", results=results, **about)]

    # ---------------------------------------------------------------------------------------------------- other events

    def _encode_memory(self, key: str, value: JSON) -> list[LumosEvent]:
        if not self._config.emit_memory_updates or key.startswith("$"):  # a value of vaka's own
            return []
        operation = "Delete" if value is None else {"Set": {"value": value}}
        return [self._event("MemoryUpdate", key=key, operation=operation)]

    def _encode_custom(self, name: str, value: JSON) -> list[LumosEvent]:
        if name.startswith(CUSTOM_PREFIX) and isinstance(value, dict):  # an event of another Lumosai server
            return [LumosEvent(type=name.removeprefix(CUSTOM_PREFIX), data=cast("dict[str, Any]", value))]
        return self._metadata(name, value)

    def _encode_decision(self, event: Event, body: Body) -> list[LumosEvent]:
        if not isinstance(body, _DECISIONS):
            return []
        return [self._event("Custom", event_name=event.type, data=msgspec.to_builtins(body), timestamp=self._time)]

    def _step_id(self) -> dict[str, str]:
        return {"step_id": self._step.id} if self._step is not None else {}

    def _metadata(self, key: str, value: JSON, **more: Any) -> list[LumosEvent]:
        return [self._event("Metadata", key=key, value=value, **more)] if self._config.emit_metadata else []

    def _event(self, type: str, **data: Any) -> LumosEvent:
        return LumosEvent(type=type, data=data)
