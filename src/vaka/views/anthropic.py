"""The events of an agent as Anthropic-shaped stream events, with agentsdk's events for iterations and tool runs.

::

    encoder = StreamEncoder()
    async for event in session.stream("Weather?"):
        for stream_event in encoder.encode(event):
            print(stream_event.to_json())

The order of one run is ``agent_start``; for each step ``iteration_start``, ``message_start``, the content blocks one
after another, ``message_delta``, ``message_stop``, the events of the tool runs, ``iteration_stop``; then
``agent_stop``, or ``error`` for a turn without an answer.
"""

from collections.abc import Collection
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types import progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import JSON, AgentPath, CallId, MessageId
from vaka.core.types.message import CallRef, Part, Reasoning, Stored, Text, ToolCall, ToolResult, Usage, as_content
from vaka.core.types.monitor import UsageRecorded
from vaka.views.routed_agents import RoutedAgents

StreamEventType: TypeAlias = Literal[
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "agent_start",
    "agent_stop",
    "iteration_start",
    "iteration_stop",
    "tool_execution_start",
    "tool_execution_output",
    "tool_execution_result",
    "error",
]

_STOP_REASONS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "stop": "stop_sequence"}

_BLOCKS: dict[str, dict[str, str]] = {
    "text": {"type": "text", "text": ""},
    "reasoning": {"type": "thinking", "thinking": "", "signature": ""},
    "call": {"type": "tool_use"},
}

_DELTAS = {
    "text": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "call": ("input_json_delta", "partial_json"),
}
"""The type of the deltas of a block, and the field with its text."""

_ToolBody: TypeAlias = progress.ToolStarted | progress.ToolCompleted | progress.ToolFailed

_DELTA_KINDS: dict[str, str] = {
    progress.TextDelta.type: "text",
    progress.ReasoningDelta.type: "reasoning",
    progress.ToolArgsDelta.type: "call",
}


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of the stream; fields that its type does not use are left out of its JSON."""

    type: StreamEventType
    session_id: str = ""
    message: dict[str, Any] | None = None
    """``message_start``: the message with its ``id``, ``model`` and an empty ``content``."""
    index: int | None = None
    """The number of a content block in its message."""
    content_block: dict[str, Any] | None = None
    """``content_block_start``: an empty ``text``, ``thinking`` or ``tool_use`` block."""
    delta: dict[str, Any] | None = None
    """The piece of a block, or the ``stop_reason`` of a message."""
    usage: dict[str, int] | None = None
    tool_use_id: str = ""
    """The id of the ``tool_use`` block whose call this is about."""
    name: str = ""
    output: JSON = None
    is_stderr: bool = False
    is_error: bool = False
    iteration: int = 0
    """The number of the step, from 1."""
    total_iterations: int = 0

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def to_sse(self) -> bytes:
        """Return the event as a server-sent event."""
        return f"event: {self.type}\ndata: {self.to_json()}\n\n".encode()


PING = StreamEvent(type="ping")
"""Keeps a connection alive; a server sends it while no other event comes."""


class _Block:
    """A content block: ``unsent`` is its text that no delta has carried yet."""

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind, self.name = kind, name
        self.received = 0
        self.unsent = ""
        self.arguments: list[str] = []
        self.index: int | None = None

    def add(self, offset: int, text: str) -> None:
        """Add text that begins at ``offset``; what came before is ignored, as is text after a gap."""
        if offset > self.received:
            return
        text = text[self.received - offset :]
        self.received += len(text)
        self.unsent += text
        if self.kind == "call":
            self.arguments.append(text)

    @property
    def is_complete(self) -> bool:
        """Whether a block after it may begin: the arguments of a call must be a whole JSON value first."""
        if self.kind != "call":
            return True
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        try:
            msgspec.json.decode("".join(self.arguments))
        except msgspec.DecodeError:
            return False
        return True


class _Message:
    """A message whose blocks are sent one after another, in the order of their numbers."""

    def __init__(self, id: str, session: str) -> None:
        self.id, self.session = id, session
        self.blocks: dict[int, _Block] = {}
        self.completed: progress.MessageCompleted | None = None
        self.calls: dict[CallId, ToolCall] = {}
        self.call_blocks: dict[CallId, int] = {}
        """The number of the block of each call; ``fill`` sets it."""
        self.usage: Usage | None = None
        self._current: _Block | None = None
        self._next_index = 0

    def block_at(self, number: int, kind: str, name: str = "") -> _Block:
        block = self.blocks.setdefault(number, _Block(kind, name))
        block.name = block.name or name
        return block

    @property
    def has_all_calls(self) -> bool:
        """Whether each call of the completed message is known."""
        content = self.completed.content if self.completed is not None else ()
        return all(part.id in self.calls for part in content if isinstance(part, CallRef))

    def send(self, *, final: bool = False) -> list[StreamEvent]:
        """Return the events of everything that can be sent now; ``final``: no more text comes."""
        sent: list[StreamEvent] = []
        while True:
            waiting = [number for number, block in self.blocks.items() if block.index is None]
            block = self._current
            if block is None:
                if not waiting:
                    return sent
                number = min(waiting)
                block = self.blocks[number]
                if block.kind == "call" and not block.name and not final:
                    return sent
                sent.append(self._start(number, block))
            elif not block.unsent and not (final or (waiting and block.is_complete)):
                return sent
            if block.unsent:
                kind, field = _DELTAS[block.kind]
                delta = {"type": kind, field: block.unsent}
                sent.append(self._event("content_block_delta", index=block.index, delta=delta))
                block.unsent = ""
            elif self._current is not None:
                sent.append(self._event("content_block_stop", index=block.index))
                block = None
            self._current = block

    def _start(self, number: int, block: _Block) -> StreamEvent:
        block.index, self._next_index = self._next_index, self._next_index + 1
        shape: dict[str, Any] = dict(_BLOCKS[block.kind])
        if block.kind == "call":
            shape |= {"id": f"{self.id}_{number}", "name": block.name, "input": {}}
        return self._event("content_block_start", index=block.index, content_block=shape)

    def fill(self) -> None:
        """Add what the completed message has and no delta carried."""
        completed = self.completed
        if completed is None or (completed.cut and self.blocks):
            return  # the blocks of a message that was cut have lost their numbers
        for number, part in enumerate(completed.content):
            kind, text, name = self._describe(part)
            known = self.blocks.get(number)
            if known is not None and (known.kind, known.name) != (kind, name):  # middleware has changed the message
                number = max(*self.blocks, len(completed.content)) + 1
            if isinstance(part, CallRef):
                self.call_blocks[part.id] = number
            if text:
                block = self.block_at(number, kind, name)
                if kind != "call" or not block.received:
                    block.add(0, text)

    def _describe(self, part: Part) -> tuple[str, str, str]:
        """Return the kind of the block of a part, its text, and the name of its tool."""
        match part:
            case Text(text=text) | Stored(preview=text):
                return "text", text, ""
            case Reasoning(text=text):
                return "reasoning", text, ""
            case CallRef(id=id) if id in self.calls:
                call = self.calls[id]
                return "call", call.raw or msgspec.json.encode(call.arguments).decode(), call.name
            case _:
                return "", "", ""

    def _event(self, type: StreamEventType, **fields: Any) -> StreamEvent:
        return StreamEvent(type=type, session_id=self.session, **fields)


class StreamEncoder:
    """Turns the events of one agent of a session into stream events.

    ``path`` names the agent: the root agent by default, or a child agent by the path of its events. Child agents of
    the agent are shown by their tool call alone; give each an encoder of its own. ``routers`` are the names of the
    agents that are routers: what the agents of their routes write is shown as theirs. Feed the events of one turn after
    another, live or from the log: without live deltas each block is one delta. Approvals, questions and changes of
    state have no stream event.

    A message that is discarded because the model is asked again ends with the ``stop_reason`` ``discarded``; another
    ``message_start`` follows. The id of a ``tool_use`` block is not the id of the call in the log, which does not
    exist yet when the block begins.
    """

    def __init__(self, path: AgentPath = (), *, routers: Collection[str] = ()) -> None:
        self._path, self._routed = path, RoutedAgents(path, routers)
        self._session = ""
        self._message: _Message | None = None
        self._is_open = self._has_message = False
        self._iteration = 0
        self._tools: dict[CallId, tuple[str, str]] = {}
        """The ``tool_use_id`` and the name of each call of the step."""
        self._started: set[CallId] = set()

    def encode(self, event: Event) -> list[StreamEvent]:
        """Return the stream events of an event, often none."""
        self._session, body = event.session, event.data
        if self._path and event.path == self._path[:-1]:
            return self._encode_start_or_end_of_child(event, body)
        if not self._routed.answers(event) or (
            self._routed.is_router(event.path) and isinstance(body, progress.ToolCalled | _ToolBody)
        ):
            return []
        if isinstance(body, progress.Delta | progress.MessageSnapshot):
            return self._encode_delta(body)
        if isinstance(body, UsageRecorded | progress.ToolCalled):
            return self._encode_details(body)
        before = self._finish_message() if event.channel == "progress" else []
        if isinstance(body, progress.MessageStarted | progress.MessageCompleted | progress.MessageDiscarded):
            return before + self._encode_message(body)
        if isinstance(body, _ToolBody):
            return before + self._encode_tool(body)
        return before + self._encode_course(event, body)

    # ------------------------------------------------------------------------------------------- the run and its steps

    def _encode_course(self, event: Event, body: Body) -> list[StreamEvent]:
        match body:
            case progress.TurnStarted() | progress.TurnResumed():
                return self._start_agent()
            case progress.StepStarted(number=number):
                self._iteration = number
                self._tools.clear()
                self._started.clear()
                return [self._event("iteration_start", iteration=number)]
            case progress.StepCompleted(number=number):
                return [self._event("iteration_stop", iteration=number)]
            case progress.TurnCompleted(text=text, stop=stop, limit=limit):
                answer = self._write_answer(event.turn, text) if text and not self._has_message else []
                return answer + self._stop_agent({"stop": stop, "limit": limit} if stop == "limit" else None)
            case progress.TurnFailed(message=message):
                return self._fail(message)
            case progress.TurnCancelled(note=note):
                return self._fail(note or "cancelled")
            case progress.TurnInterrupted(note=note):
                return self._fail(note or "interrupted")
            case _:
                return []

    def _encode_start_or_end_of_child(self, event: Event, body: Body) -> list[StreamEvent]:
        """Return the events for an event of the parent: it starts and ends this agent."""
        match body:
            case progress.SubagentStarted(child=child) if child == self._path[-1]:
                return self._start_agent()
            case progress.SubagentCompleted(child=child, failed=failed) if child == self._path[-1]:
                return self._finish_message() + (self._fail(body.stop) if failed else self._stop_agent(None))
            case progress.TurnFailed() | progress.TurnCancelled() | progress.TurnInterrupted() if self._is_open:
                return self._finish_message() + self._encode_course(event, body)
            case _:
                return []

    def _start_agent(self) -> list[StreamEvent]:
        if self._is_open:  # the turn goes on after a decision
            return []
        self._is_open, self._has_message = True, False
        return [self._event("agent_start")]

    def _stop_agent(self, output: JSON) -> list[StreamEvent]:
        self._is_open = False
        return [self._event("agent_stop", total_iterations=self._iteration, output=output)]

    def _fail(self, message: str) -> list[StreamEvent]:
        self._is_open = False
        return [self._event("error", output=message, is_error=True)]

    # ------------------------------------------------------------------------------------------------------- messages

    def _encode_message(
        self, body: progress.MessageStarted | progress.MessageCompleted | progress.MessageDiscarded
    ) -> list[StreamEvent]:
        if isinstance(body, progress.MessageDiscarded):
            return self._discard_message()
        message = self._message
        opened: list[StreamEvent] = []
        if message is None or message.id != body.message_id:
            opened = self._discard_message()
            self._has_message = True
            message = self._message = _Message(body.message_id, self._session)
            shape: dict[str, Any] = {
                "id": body.message_id,
                "type": "message",
                "role": "assistant",
                "model": body.model,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 0, "output_tokens": 0},
            }
            opened.append(self._event("message_start", message=shape))
        if isinstance(body, progress.MessageCompleted):
            message.completed = body
        return opened

    def _write_answer(self, turn: str, text: str) -> list[StreamEvent]:
        """Return the message of an answer that no event of the run has shown, such as the answer of a router."""
        message = progress.MessageCompleted(message_id=MessageId(turn), content=as_content(text), stop="end")
        return self._encode_message(message) + self._finish_message()

    def _encode_delta(self, body: progress.Delta | progress.MessageSnapshot) -> list[StreamEvent]:
        if isinstance(body, progress.ToolOutputDelta) or (
            isinstance(body, progress.MessageSnapshot) and body.of == progress.ToolOutputDelta.type
        ):
            return self._encode_output(CallId(body.message_id), body.text)
        opened: list[StreamEvent] = []
        if self._message is None or self._message.id != body.message_id:  # this stream began within the message
            opened = self._finish_message() + self._encode_message(progress.MessageStarted(message_id=body.message_id))
        message = self._message
        assert message is not None  # noqa: S101  # it was just opened
        kind = _DELTA_KINDS[body.of if isinstance(body, progress.MessageSnapshot) else body.type]
        message.block_at(body.block, kind, getattr(body, "name", "")).add(body.offset, body.text)
        return opened + message.send()

    def _encode_details(self, body: UsageRecorded | progress.ToolCalled) -> list[StreamEvent]:
        """Note the usage or a call of the completed message; return its end once nothing is missing."""
        message = self._message
        if isinstance(body, progress.ToolCalled):
            self._tools.setdefault(body.call.id, (body.call.id, body.call.name))
        if message is None or message.completed is None:
            return []
        if isinstance(body, progress.ToolCalled):
            message.calls[body.call.id] = body.call
        else:
            message.usage = body.usage
        return self._finish_message() if message.usage is not None and message.has_all_calls else []

    def _finish_message(self) -> list[StreamEvent]:
        """End the completed message, if there is one."""
        message = self._message
        if message is None or message.completed is None:
            return []
        message.fill()
        for id, number in message.call_blocks.items():
            self._tools[id] = (f"{message.id}_{number}", message.calls[id].name if id in message.calls else "")
        stop = message.completed.stop
        return self._end_message(message, _STOP_REASONS.get(stop, stop))

    def _discard_message(self) -> list[StreamEvent]:
        """End the open message, if there is one, without an answer."""
        return [] if self._message is None else self._end_message(self._message, "discarded")

    def _end_message(self, message: _Message, stop_reason: str) -> list[StreamEvent]:
        self._message = None
        usage = message.usage or Usage()
        counts = {"input_tokens": usage.input, "output_tokens": usage.output}
        delta = {"stop_reason": stop_reason, "stop_sequence": None}
        ending = [self._event("message_delta", delta=delta, usage=counts), self._event("message_stop")]
        return message.send(final=True) + ending

    # ---------------------------------------------------------------------------------------------------------- tools

    def _encode_tool(self, body: _ToolBody) -> list[StreamEvent]:
        if not isinstance(body, progress.ToolStarted):
            return self._encode_result(body.result)
        call = body.call
        if call.id in self._started:  # it runs again after a crash
            return []
        self._started.add(call.id)
        self._tools.setdefault(call.id, (call.id, call.name))
        return [self._tool_event("tool_execution_start", call.id)]

    def _encode_output(self, call: CallId, text: str) -> list[StreamEvent]:
        return [self._tool_event("tool_execution_output", call, output=text)]

    def _encode_result(self, result: ToolResult) -> list[StreamEvent]:
        metadata: dict[str, JSON] = {"reason": result.reason} if result.reason else {}
        if result.value is not None:
            metadata["value"] = result.value
        output = {"output": result.text, "metadata": metadata}
        return [
            self._tool_event("tool_execution_output", result.call, output=result.text, is_error=result.failed),
            self._tool_event("tool_execution_result", result.call, output=output, is_error=result.failed),
        ]

    def _tool_event(self, type: StreamEventType, call: CallId, **fields: Any) -> StreamEvent:
        id, name = self._tools.get(call, (call, ""))
        return self._event(type, tool_use_id=id, name=name, iteration=self._iteration, **fields)

    def _event(self, type: StreamEventType, **fields: Any) -> StreamEvent:
        return StreamEvent(type=type, session_id=self._session, **fields)
