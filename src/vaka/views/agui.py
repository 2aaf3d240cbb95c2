"""The events of a session as events of AG-UI, the Agent User Interaction Protocol, version 1.0.

::

    encoder = AguiEncoder(run_id=request.run_id)
    async for event in session.stream("Weather?"):
        for agui_event in encoder.encode(event):
            await send(to_sse(agui_event))

A turn is a run: ``RUN_STARTED``, its steps, messages, tool calls and child agents, and ``RUN_FINISHED`` or
``RUN_ERROR``. A turn that waits for a person ends its run with the outcome ``interrupt``, and goes on in another run.
``agui_input`` reads what a client sends.
"""

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import msgspec

from vaka.core.types import control, progress
from vaka.core.types.control import Asked
from vaka.core.types.decision_text import text_of_decision
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import JSON, AgentPath, CallId, MessageId
from vaka.core.types.message import Audio, Content, Document, Image, Part, ToolResult, Usage, as_content, text_of
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.pending_decisions import PendingDecisions
from vaka.views.failures import failure_of
from vaka.views.message_blocks import MessageBlocks, Piece
from vaka.views.routed_agents import RoutedAgents
from vaka.views.state_values import is_application_value

PROTOCOL_VERSION = "1.0"

AguiEvent: TypeAlias = dict[str, Any]
"""An event as it is on the wire: its ``type`` and its fields in camel case."""

_TOOL_BODIES = (
    progress.ToolCalled,
    progress.ToolCompleted,
    progress.ToolFailed,
    progress.SubagentStarted,
    progress.SubagentCompleted,
)

_MESSAGE_TYPES = {"text": "TEXT_MESSAGE", "reasoning": "REASONING_MESSAGE"}


def to_sse(event: AguiEvent) -> bytes:
    """Return the event as a server-sent event."""
    return b"data: " + msgspec.json.encode(event) + b"\n\n"


def result_message_id(call: str) -> str:
    """Return the id of the tool message with the result of a call that vaka has run."""
    return f"{call}-result"


class _ShownMessage:
    def __init__(self, id: str, *, is_replacement: bool = False) -> None:
        self.id = id
        self.shown_id = f"{id}-final" if is_replacement else id
        self.blocks = MessageBlocks()
        self.open_block: Piece | None = None
        """The last piece of the block that has no end yet."""

    def id_of(self, piece: Piece) -> str:
        return self.shown_id if piece.kind == "text" else f"{self.shown_id}-reasoning-{piece.block}"


class AguiEncoder:
    """Turns the events of a session into AG-UI events, with the events of child agents.

    The thread is the session. ``run_id`` is the id of the first run, which the client chooses; without it a run has the
    id of its turn. ``state`` is what the client should start from: it is sent as ``STATE_SNAPSHOT``, and changes of
    session values follow as ``STATE_DELTA``. ``answered`` are the ids of the calls whose results the client has sent
    with its request; those results are not sent back. ``routers`` are the names of the agents that
    are routers: what the agents of their routes write is shown as the root agent's.

    Feed the events of one turn after another, live or from the log, from any event on. A tool call is shown when the
    model has written all of it, because its id does not exist before. Call ``finish`` when the stream ends before the
    turn does.
    """

    def __init__(
        self, *, run_id: str = "", state: JSON = None, answered: Collection[str] = (), routers: Collection[str] = ()
    ) -> None:
        self._next_run = run_id
        self._state = state
        self._routed = RoutedAgents((), routers)
        self._decisions = PendingDecisions()
        self._client_calls = set(answered)
        self._sent: list[AguiEvent] = []
        self._session = self._turn = self._run = self._ended_turn = ""
        self._run_count = 0
        self._has_answer = self._has_skipped = False
        self._agents: dict[AgentPath, progress.SubagentStarted] = {}
        """The child agents of the turn."""
        self._active: dict[str, AgentPath] = {}
        self._announced: set[str] = set()
        """The ids of the child agents that this run has announced; ``_active`` has the agents that have not ended."""
        self._steps: dict[tuple[AgentPath, int], tuple[str, str]] = {}
        self._messages: dict[AgentPath, _ShownMessage] = {}
        self._usage: dict[str, Usage] = {}
        self._shown_calls: set[CallId] = set()
        self._replaced: set[str] = set()
        """The ids of the messages that were shown anew under another id."""
        self._encoders: dict[type[Body], Callable[[Event, Any], None]] = {
            progress.TurnStarted: self._start_turn,
            progress.TurnResumed: self._start_turn,
            progress.TurnCompleted: self._complete_turn,
            progress.TurnFailed: self._fail_turn,
            progress.TurnCancelled: self._cancel_turn,
            progress.TurnInterrupted: self._cancel_turn,
            progress.StepStarted: self._start_step,
            progress.StepCompleted: self._complete_step,
            progress.MessageStarted: self._start_message,
            progress.MessageCompleted: self._complete_message,
            progress.MessageDiscarded: self._discard_message,
            progress.ToolCalled: self._show_call,
            progress.ToolCompleted: self._show_result,
            progress.ToolFailed: self._show_result,
            progress.SubagentStarted: self._start_child,
            progress.SubagentCompleted: self._complete_child,
            control.StateChanged: self._show_state,
            UsageRecorded: self._count_usage,
            control.ApprovalResolved: self._show_decision,
            control.ApprovalExpired: self._show_decision,
            control.QuestionAnswered: self._show_decision,
            control.ApprovalRequested: self._start_turn,
            control.QuestionAsked: self._start_turn,
            **dict.fromkeys((*progress.DELTAS, progress.MessageSnapshot), self._add_delta),
        }

    def encode(self, event: Event) -> list[AguiEvent]:
        """Return the AG-UI events of an event, often none."""
        self._sent = []
        self._routed.answers(event)
        self._decisions.note(event)
        encode = self._encoders.get(type(event.data))
        if encode is None or (isinstance(event.data, _TOOL_BODIES) and self._is_answering_router(event.path)):
            return []
        if event.turn and event.turn != self._turn:
            self._begin_turn(event)
        if event.turn and event.turn == self._ended_turn:
            return []
        encode(event, event.data)
        if self._run and self._decisions.is_waiting_after(event.data):
            self._interrupt()
        return self._sent

    def skip(self, event: Event) -> None:
        """Note an event that the client has of an earlier run: what it shows is not sent again."""
        body, self._has_skipped = event.data, True
        self._routed.answers(event)
        self._decisions.note(event)
        if event.turn and event.turn != self._turn:
            self._begin_turn(event)
        if isinstance(body, progress.SubagentStarted):
            self._agents[(*event.path, body.child)] = body
        elif isinstance(body, progress.MessageCompleted) and not self._owner(event.path):
            self._has_answer = self._has_answer or bool(text_of(body.content))

    def finish(self, reason: str = "the stream ended before the turn") -> list[AguiEvent]:
        """Return the end of the open run, if there is one: its open decisions as interrupts, or an error.

        Without a run, decisions that ``skip`` has noted and that are still open are a run of their own.
        """
        self._sent = []
        if (self._run or self._has_skipped) and self._decisions.asked:
            self._interrupt()
        elif self._run:
            self._fail("stream_ended", reason)
        return self._sent

    # ------------------------------------------------------------------------------------------------------- the run

    def _begin_turn(self, event: Event) -> None:
        if self._run:  # its end was missed
            self._fail("stream_ended", "the end of the run was not received")
        self._session, self._turn = event.session, event.turn
        self._run_count, self._has_answer = 0, False
        self._agents.clear()

    def _start_run(self) -> None:
        self._run_count += 1
        self._has_skipped = False
        later = f"{self._turn}-{self._run_count}" if self._run_count > 1 else self._turn
        self._run, self._next_run = self._next_run or later or "run", ""
        for state in (self._active, self._announced, self._steps, self._messages, self._usage, self._shown_calls):
            state.clear()
        ids = {"threadId": self._session, "runId": self._run}
        self._sent.append({"type": "RUN_STARTED", **ids, "protocolVersion": PROTOCOL_VERSION})
        if self._state is not None:
            self._sent.append({"type": "STATE_SNAPSHOT", "snapshot": self._state})
            self._state = None

    def _start_turn(self, event: Event, body: Body) -> None:
        """Start a run, unless the turn goes on in the open one."""
        if not self._run:
            self._start_run()

    def _complete_turn(self, event: Event, body: progress.TurnCompleted) -> None:
        if body.text and not self._has_answer:  # no event has shown it, such as the answer of a router
            message = progress.MessageCompleted(message_id=MessageId(event.turn), content=as_content(body.text))
            self._complete_message(event, message)
        fields: AguiEvent = {"outcome": {"type": "success"}, "result": body.text}
        if body.stop == "limit":
            fields["metadata"] = {"stop": "limit", "limit": body.limit}
        self._end_run("RUN_FINISHED", fields)
        self._ended_turn = event.turn

    def _fail_turn(self, event: Event, body: progress.TurnFailed) -> None:
        failure = failure_of(body)
        details = {name: value for name, value in failure.details.items() if name != "code"}
        self._fail(failure.code, failure.message, metadata=details)
        self._ended_turn = event.turn

    def _cancel_turn(self, event: Event, body: progress.TurnCancelled | progress.TurnInterrupted) -> None:
        note = {"metadata": {"note": body.note}} if body.note else {}
        self._end_run("RUN_FINISHED", {"outcome": {"type": "cancelled"}, **note}, child_error="cancelled")
        self._ended_turn = event.turn

    def _fail(self, code: str, message: str, **fields: Any) -> None:
        self._end_run("RUN_ERROR", {"message": message, "code": code, **fields}, child_error=message)

    def _interrupt(self) -> None:
        """End the run with the decisions that the turn waits for; calls of client tools are named by their ids."""
        interrupts: list[AguiEvent] = []
        calls: list[str] = []
        owned: dict[str, list[str]] = {}
        for path, asked in self._decisions.asked:
            if isinstance(asked, control.QuestionAsked) and asked.kind == "result":
                calls.append(asked.call or "")
                self._client_calls.add(calls[-1])
                continue
            owner = self._owner(path)
            interrupts.append(_interrupt_of(asked) | ({"subagentRunId": owner} if owner else {}))
            owned.setdefault(owner, []).append(interrupts[-1]["id"])
        outcome: AguiEvent = {"type": "interrupt", "interrupts": interrupts}
        if not interrupts:
            outcome = {"type": "success", "pendingToolCallIds": calls}
        self._end_run("RUN_FINISHED", {"outcome": outcome}, suspended=owned)

    def _end_run(
        self, type: str, fields: AguiEvent, *, suspended: dict[str, list[str]] | None = None, child_error: str = ""
    ) -> None:
        """End everything that is open, and the run."""
        if not self._run:
            self._start_run()
        for path in list(self._messages):
            self._end_message(path)
        for owner, name in self._steps.values():
            self._send("STEP_FINISHED", owner, stepName=name)
        self._steps.clear()
        for id in reversed(self._active):
            if suspended is not None:
                outcome = {"type": "suspended", "interruptIds": suspended.get(id, [])}
                self._send("SUBAGENT_FINISHED", id, outcome=outcome)
            elif child_error:
                self._send("SUBAGENT_ERROR", id, message=child_error)
            else:
                self._send("SUBAGENT_FINISHED", id)
        if type == "RUN_FINISHED":
            fields = {"threadId": self._session, "runId": self._run, **fields}
        usage = [_usage_of(model, usage) for model, usage in self._usage.items()]
        self._sent.append({"type": type, **fields, **({"usage": usage} if usage else {})})
        self._run = ""

    # ------------------------------------------------------------------------------------------------ agents and steps

    def _is_answering_router(self, path: AgentPath) -> bool:
        return self._routed.is_router(path) and not self._owner(path)

    def _owner(self, path: AgentPath) -> str:
        """Return the id of a child agent; ``""`` for the root agent, and for agents that answer in its place."""
        end = 0
        while end < len(path) and self._routed.is_router(path[:end]):
            end += 1
        return "/".join(path) if len(path) > end else ""

    def _announce(self, path: AgentPath) -> str:
        """Announce the child agent at ``path`` and the agents above it in this run, and return its id."""
        if not self._run:
            self._start_run()
        id = self._owner(path)
        if not id or id in self._announced:
            return id
        parent = self._announce(path[:-1])
        started = self._agents.get(path)
        fields = {"name": started.agent if started is not None else path[-1]}
        if parent:
            fields["parentSubagentRunId"] = parent
        if started is not None:
            fields["parentToolCallId"] = started.call
        self._announced.add(id)
        self._active[id] = path
        self._send("SUBAGENT_STARTED", id, **fields)
        return id

    def _start_child(self, event: Event, body: progress.SubagentStarted) -> None:
        path = (*event.path, body.child)
        self._agents[path] = body
        self._announce(path)

    def _complete_child(self, event: Event, body: progress.SubagentCompleted) -> None:
        path = (*event.path, body.child)
        id = self._announce(path)
        if id not in self._active:
            return
        self._end_message(path)
        for key in [key for key in self._steps if key[0] == path]:
            self._send("STEP_FINISHED", id, stepName=self._steps.pop(key)[1])
        del self._active[id]
        if body.failed:
            message = body.text or body.reason or body.stop
            self._send("SUBAGENT_ERROR", id, message=message, **({"code": body.reason} if body.reason else {}))
        else:
            self._send("SUBAGENT_FINISHED", id, result=body.text if body.value is None else body.value)

    def _start_step(self, event: Event, body: progress.StepStarted) -> None:
        step = (self._announce(event.path), f"{body.agent} {body.number}")
        if step not in self._steps.values():
            self._steps[event.path, body.number] = step
            self._send("STEP_STARTED", step[0], stepName=step[1])

    def _complete_step(self, event: Event, body: progress.StepCompleted) -> None:
        step = self._steps.pop((event.path, body.number), None)
        if step is not None:
            self._send("STEP_FINISHED", step[0], stepName=step[1])

    # ------------------------------------------------------------------------------------------------------- messages

    def _start_message(self, event: Event, body: progress.MessageStarted) -> None:
        self._message_of(event.path, body.message_id)

    def _message_of(self, path: AgentPath, id: str) -> _ShownMessage:
        message = self._messages.get(path)
        if message is None or message.id != id:
            self._end_message(path)
            self._announce(path)
            message = self._messages[path] = _ShownMessage(id)
        return message

    def _end_message(self, path: AgentPath) -> None:
        message = self._messages.pop(path, None)
        if message is not None:
            self._end_block(self._owner(path), message)

    def _add_delta(self, event: Event, body: progress.Delta | progress.MessageSnapshot) -> None:
        output = progress.ToolOutputDelta.type
        if output in (body.type, getattr(body, "of", "")):
            stream = getattr(body, "stream", "stdout")
            value = {"toolCallId": body.message_id, "stream": stream, "offset": body.offset, "text": body.text}
            self._send("CUSTOM", self._announce(event.path), name="tool.output", value=value)
            return
        message = self._message_of(event.path, body.message_id)
        self._show_pieces(event.path, message, message.blocks.add_delta(body))

    def _complete_message(self, event: Event, body: progress.MessageCompleted) -> None:
        message = self._message_of(event.path, body.message_id)
        if not message.blocks.fits(body):
            self._discard(event.path, message, "changed")
            self._replaced.add(body.message_id)
            message = self._messages[event.path] = _ShownMessage(body.message_id, is_replacement=True)
        self._show_pieces(event.path, message, message.blocks.complete(body))
        self._end_message(event.path)

    def _discard_message(self, event: Event, body: progress.MessageDiscarded) -> None:
        message = self._messages.get(event.path)
        if message is not None and message.id == body.message_id:
            self._discard(event.path, message, body.reason)

    def _discard(self, path: AgentPath, message: _ShownMessage, reason: str) -> None:
        """End a message whose text does not count: the protocol has no event that takes text back."""
        has_text = message.blocks.has_text
        self._end_message(path)
        if has_text:
            value = {"messageId": message.shown_id, "reason": reason}
            self._send("CUSTOM", self._owner(path), name="message.discarded", value=value)

    def _show_pieces(self, path: AgentPath, message: _ShownMessage, pieces: list[Piece]) -> None:
        owner = self._owner(path)
        for piece in pieces:
            is_text, id = piece.kind == "text", message.id_of(piece)
            self._has_answer = self._has_answer or (is_text and not owner)
            if message.open_block is None or message.open_block[:2] != piece[:2]:
                self._end_block(owner, message)
                if not is_text:
                    self._send("REASONING_START", owner, messageId=id)
                role = "assistant" if is_text else "reasoning"
                self._send(f"{_MESSAGE_TYPES[piece.kind]}_START", owner, messageId=id, role=role)
            message.open_block = piece
            self._send(f"{_MESSAGE_TYPES[piece.kind]}_CONTENT", owner, messageId=id, delta=piece.text)

    def _end_block(self, owner: str, message: _ShownMessage) -> None:
        block, message.open_block = message.open_block, None
        if block is not None:
            self._send(f"{_MESSAGE_TYPES[block.kind]}_END", owner, messageId=message.id_of(block))
            if block.kind == "reasoning":
                self._send("REASONING_END", owner, messageId=message.id_of(block))

    # ---------------------------------------------------------------------------------------------- tools and the rest

    def _show_call(self, event: Event, body: progress.ToolCalled) -> None:
        call, owner = body.call, self._announce(event.path)
        if call.id in self._shown_calls:
            return
        self._shown_calls.add(call.id)
        shown_id = f"{body.message_id}-final" if body.message_id in self._replaced else body.message_id
        parent = {"parentMessageId": shown_id} if shown_id else {}
        arguments = call.raw or msgspec.json.encode(call.arguments).decode()
        self._send("TOOL_CALL_START", owner, toolCallId=call.id, toolCallName=call.name, **parent)
        self._send("TOOL_CALL_ARGS", owner, toolCallId=call.id, delta=arguments)
        self._send("TOOL_CALL_END", owner, toolCallId=call.id)

    def _show_result(self, event: Event, body: progress.ToolCompleted | progress.ToolFailed) -> None:
        result = body.result
        if result.call in self._client_calls:
            return
        failure = {"metadata": {"failed": True, "reason": result.reason}} if result.failed else {}
        fields = {"messageId": result_message_id(result.call), "toolCallId": result.call, "role": "tool"}
        content = _content_of(result)
        self._send("TOOL_CALL_RESULT", self._announce(event.path), **fields, content=content, **failure)

    def _show_state(self, event: Event, body: control.StateChanged) -> None:
        if (self._run or event.turn) and is_application_value(body.key):
            path = "/" + body.key.replace("~", "~0").replace("/", "~1")
            change = {"op": "add", "path": path, "value": body.value}
            self._send("STATE_DELTA", self._announce(event.path), delta=[change])

    def _show_decision(
        self, event: Event, body: control.ApprovalResolved | control.ApprovalExpired | control.QuestionAnswered
    ) -> None:
        """Show a decision that was made while the run goes on; who it comes from already knows it."""
        if self._run:
            value: AguiEvent = {"interruptId": control.key_of(body)}
            if isinstance(body, control.ApprovalResolved):
                value |= {"decision": body.decision, "message": body.message}
            self._send("CUSTOM", self._announce(event.path), name=body.type, value=value)

    def _count_usage(self, event: Event, body: UsageRecorded) -> None:
        if event.turn and not self._run:
            self._start_run()
        self._usage[body.model] = self._usage.get(body.model, Usage()) + body.usage

    def _send(self, type: str, subagent: str = "", **fields: Any) -> None:
        self._sent.append({"type": type, **({"subagentRunId": subagent} if subagent else {}), **fields})


def _interrupt_of(body: Asked) -> AguiEvent:
    text = text_of_decision(body)
    if isinstance(body, control.ApprovalRequested):
        properties: AguiEvent = {"approved": {"type": "boolean"}, "message": {"type": "string"}}
        if not body.decisions or "edit" in body.decisions:
            properties["editedArgs"] = {"type": "object"}
        schema = {"type": "object", "properties": properties, "required": ["approved"]}
        interrupt: AguiEvent = {
            "id": body.approval,
            "reason": "tool_call",
            "toolCallId": body.call.id,
            "responseSchema": schema,
            "message": text.reason or text.title,
            "metadata": {"toolName": body.call.name, "arguments": body.call.arguments, "rule": body.rule},
        }
        return interrupt | ({"expiresAt": body.expires} if body.expires else {})
    interrupt = {"id": body.question, "reason": "input_required", "message": body.text}
    if body.options:
        interrupt["responseSchema"] = {"type": "string", "enum": list(body.options)}
    if body.call:
        interrupt["toolCallId"] = body.call
    return interrupt | ({"expiresAt": body.expires} if body.expires else {})


def _usage_of(model: str, usage: Usage) -> AguiEvent:
    counts = {
        "model": model,
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "totalTokens": usage.total,
        "reasoningTokens": usage.reasoning,
        "cachedInputTokens": usage.cache_read,
        "cacheWriteInputTokens": usage.cache_write,
    }
    required = ("inputTokens", "outputTokens", "totalTokens")
    return {name: value for name, value in counts.items() if value or name in required}


def _content_of(result: ToolResult) -> "str | list[AguiEvent]":
    if not any(isinstance(part, Image | Audio | Document) for part in result.content):
        return result.text
    return [part for given in result.content if (part := _part_of(given)) is not None]


def _part_of(part: Part) -> AguiEvent | None:
    if not isinstance(part, Image | Audio | Document):
        content: Content = (part,)
        text = text_of(content)
        return {"type": "text", "text": text} if text else None
    kind = {Image: "image", Audio: "audio", Document: "document"}[type(part)]
    mime = {"mimeType": part.media_type} if part.media_type else {}
    if part.data:
        source = {"type": "data", "value": part.data, "mimeType": part.media_type or "application/octet-stream"}
    elif part.url:
        source = {"type": "url", "value": part.url, **mime}
    else:
        source = {"type": "file", "value": part.blob or "", "provider": "vaka", **mime}
    return {"type": kind, "source": source}
