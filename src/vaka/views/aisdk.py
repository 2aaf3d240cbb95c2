"""The events of a session as chunks of the AI SDK's UI message stream, version 1.

::

    encoder = UiStreamEncoder(known_calls=request.known_calls)
    async for event in session.stream("Weather?"):
        for chunk in encoder.encode(event):
            await send(to_sse(chunk))
    await send(DONE)

A turn is one message of the assistant: ``start``, its steps with text, reasoning and tool calls, and ``finish``,
``error`` or ``abort``. A turn that waits for a person finishes with the reason ``tool-calls``, and goes on in the same
message. ``aisdk_input`` reads what a client sends.
"""

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import msgspec

from vaka.core.types import control, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import JSON, MessageId
from vaka.core.types.message import Audio, Document, Image, ToolCall, ToolResult, Usage, as_content, text_of
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.pending_decisions import PendingDecisions
from vaka.views.failures import failure_of
from vaka.views.message_blocks import MessageBlocks, Piece
from vaka.views.routed_agents import RoutedAgents
from vaka.views.state_values import is_application_value

UiChunk: TypeAlias = dict[str, Any]
"""A chunk as it is on the wire: its ``type`` and its fields in camel case."""

HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
    "x-vercel-ai-ui-message-stream": "v1",
}
"""The headers of a response with such a stream."""

DONE = b"data: [DONE]\n\n"
"""The end of the stream."""

_ROUTING_BODIES = (
    progress.ToolCalled,
    progress.ToolStarted,
    progress.ToolCompleted,
    progress.ToolFailed,
    progress.SubagentStarted,
    progress.SubagentCompleted,
)
_OF_ANY_AGENT = (
    progress.ToolCompleted,
    progress.ToolFailed,
    progress.SubagentStarted,
    progress.SubagentCompleted,
    UsageRecorded,
    control.ApprovalRequested,
    control.ApprovalResolved,
    control.QuestionAsked,
    control.QuestionAnswered,
    control.StateChanged,
)
"""The events that are shown of child agents, too."""


def to_sse(chunk: UiChunk) -> bytes:
    """Return the chunk as a server-sent event."""
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


class UiStreamEncoder:
    """Turns the events of the root agent of a session into chunks of a UI message stream.

    ``known_calls`` are the ids of the tool calls that the client's last message has: results of other calls than those
    and the ones of this stream would be errors for the client. The tools named by ``client_tools`` have typed parts in
    the client, ``tool-NAME``; all others are dynamic. ``routers`` are the names of the agents that are routers: what
    the agents of their routes write is shown as the root agent's. Other child agents are ``data-subagent`` parts; their
    calls are shown when they need an approval.

    Feed the events of one turn after another, live or from the log, from any event on. Call ``finish`` when the stream
    ends before the turn does.
    """

    def __init__(
        self, *, known_calls: Collection[str] = (), client_tools: Collection[str] = (), routers: Collection[str] = ()
    ) -> None:
        self._calls, self._client_tools = set(known_calls), frozenset(client_tools)
        self._routed, self._decisions = RoutedAgents((), routers), PendingDecisions()
        self._sent: list[UiChunk] = []
        self._turn = self._ended_turn = ""
        self._is_open = self._in_step = self._step_has_calls = self._is_step_of_children = self._has_answer = False
        self._has_skipped = False
        self._message: tuple[MessageId, MessageBlocks] | None = None
        self._open_block: tuple[str, str] | None = None
        """The kind and the id of the block that has no end yet."""
        self._approvals: set[str] = set()
        self._questions: dict[str, UiChunk] = {}
        """With ``_approvals`` what this stream has asked for."""
        self._asked_calls = set(known_calls)
        """The calls that may have been rejected by a person."""
        self._usage = Usage()
        self._encoders: dict[type[Body], Callable[[Event, Any], None]] = {
            progress.TurnStarted: self._start_turn,
            progress.TurnResumed: self._start_turn,
            progress.TurnCompleted: self._complete_turn,
            progress.TurnFailed: self._fail_turn,
            progress.TurnCancelled: self._abort_turn,
            progress.TurnInterrupted: self._abort_turn,
            progress.StepStarted: self._start_step,
            progress.StepCompleted: self._complete_step,
            progress.MessageStarted: self._start_message,
            progress.MessageCompleted: self._complete_message,
            progress.MessageDiscarded: self._discard_message,
            progress.ToolCalled: self._show_called,
            progress.ToolStarted: self._show_called,
            progress.ToolCompleted: self._show_result,
            progress.ToolFailed: self._show_result,
            progress.SubagentStarted: self._show_child,
            progress.SubagentCompleted: self._show_child,
            control.ApprovalRequested: self._request_approval,
            control.ApprovalResolved: self._resolve_approval,
            control.QuestionAsked: self._show_question,
            control.QuestionAnswered: self._show_answer,
            control.StateChanged: self._show_state,
            UsageRecorded: self._count_usage,
            **dict.fromkeys((*progress.DELTAS, progress.MessageSnapshot), self._add_delta),
        }

    def encode(self, event: Event) -> list[UiChunk]:
        """Return the chunks of an event, often none."""
        self._sent = []
        body, answers = event.data, self._routed.answers(event)
        self._decisions.note(event)
        encode = self._encoders.get(type(body))
        if encode is None or not (answers or isinstance(body, _OF_ANY_AGENT)):
            return []
        if answers and isinstance(body, _ROUTING_BODIES) and self._routed.is_router(event.path):
            return []
        if event.turn and event.turn != self._turn:
            self._begin_turn(event)
        if not self._turn or self._turn == self._ended_turn:  # decisions alone are not events of their turn
            return []
        encode(event, body)
        if self._is_open and self._decisions.is_waiting_after(body):
            self._finish("tool-calls")
        return self._sent

    def skip(self, event: Event) -> None:
        """Note an event that the client has of an earlier stream: what it shows is not sent again."""
        body = event.data
        answers = self._routed.answers(event)
        self._has_skipped = True
        self._decisions.note(event)
        if event.turn and event.turn != self._turn:
            self._begin_turn(event)
        if answers and isinstance(body, progress.MessageCompleted):
            self._has_answer = self._has_answer or bool(text_of(body.content))

    def finish(self, reason: str = "the stream ended before the turn") -> list[UiChunk]:
        """Return the end of the open message, if there is one: with open decisions as of a turn that waits.

        Decisions that ``skip`` has noted and that are still open are the end of a message, too.
        """
        self._sent = []
        if (self._is_open or self._has_skipped) and self._decisions.asked:
            self._finish("tool-calls")
        elif self._is_open:
            self._fail(reason)
        return self._sent

    # ---------------------------------------------------------------------------------------------------- the message

    def _begin_turn(self, event: Event) -> None:
        if self._is_open:  # its end was missed
            self._fail("the end of the turn was not received")
        self._turn = event.turn
        self._has_answer = False

    def _open(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._has_skipped = False
            self._usage = Usage()
            self._sent.append({"type": "start", "messageId": self._turn})

    def _start_turn(self, event: Event, body: Body) -> None:
        self._open()

    def _complete_turn(self, event: Event, body: progress.TurnCompleted) -> None:
        if body.text and not self._has_answer:  # no event has shown it, such as the answer of a router
            message = progress.MessageCompleted(message_id=MessageId(event.turn), content=as_content(body.text))
            self._complete_message(event, message)
        self._finish("other" if body.stop == "limit" else "stop", limit=body.limit)
        self._ended_turn = event.turn

    def _fail_turn(self, event: Event, body: progress.TurnFailed) -> None:
        self._fail(failure_of(body).message)
        self._ended_turn = event.turn

    def _abort_turn(self, event: Event, body: progress.TurnCancelled | progress.TurnInterrupted) -> None:
        self._close_step()
        self._send("abort", **({"reason": body.note} if body.note else {}))
        self._is_open = False
        self._ended_turn = event.turn

    def _fail(self, message: str) -> None:
        self._close_step()
        self._send("error", errorText=message)
        self._finish("error")

    def _finish(self, reason: str, limit: str = "") -> None:
        self._close_step()
        metadata: UiChunk = {"usage": _usage_of(self._usage)} | ({"limit": limit} if limit else {})
        self._send("finish", finishReason=reason, messageMetadata=metadata)
        self._is_open = False

    def _start_step(self, event: Event, body: progress.StepStarted) -> None:
        self._close_step()
        self._open_step()

    def _open_step(self) -> None:
        if not self._in_step:
            self._send("start-step")
            self._in_step = True

    def _open_step_of_children(self) -> None:
        """Open a step for calls of child agents: a chat goes on when all calls of its last step have an answer."""
        if not self._is_step_of_children:
            self._close_step()
        self._open_step()
        self._is_step_of_children = True

    def _complete_step(self, event: Event, body: progress.StepCompleted) -> None:
        self._close_step()

    def _close_step(self) -> None:
        self._end_message()
        if self._in_step:
            self._send("finish-step")
        self._in_step = self._step_has_calls = self._is_step_of_children = False

    # -------------------------------------------------------------------------------------------- text and reasoning

    def _start_message(self, event: Event, body: progress.MessageStarted) -> None:
        self._blocks_of(body.message_id)

    def _blocks_of(self, id: MessageId) -> MessageBlocks:
        if self._message is None or self._message[0] != id:
            self._end_message()
            if self._step_has_calls:  # of another message: the start of this step was missed
                self._close_step()
            self._message = (id, MessageBlocks())
        return self._message[1]

    def _end_message(self) -> None:
        self._end_block()
        self._message = None

    def _end_block(self) -> None:
        if self._open_block is not None:
            kind, id = self._open_block
            self._send(f"{kind}-end", id=id)
            self._open_block = None

    def _add_delta(self, event: Event, body: progress.Delta | progress.MessageSnapshot) -> None:
        if progress.ToolOutputDelta.type in (body.type, getattr(body, "of", "")):
            stream = getattr(body, "stream", "stdout")
            data = {"toolCallId": body.message_id, "stream": stream, "offset": body.offset, "text": body.text}
            self._send("data-tool-output", data=data, transient=True)
            return
        self._show_pieces(body.message_id, self._blocks_of(body.message_id).add_delta(body))

    def _complete_message(self, event: Event, body: progress.MessageCompleted) -> None:
        if not self._blocks_of(body.message_id).fits(body):  # middleware has changed the message
            self._reset_step()
        self._show_pieces(body.message_id, self._blocks_of(body.message_id).complete(body))
        self._end_message()

    def _discard_message(self, event: Event, body: progress.MessageDiscarded) -> None:
        if self._message is not None and self._message[0] == body.message_id:
            self._reset_step()

    def _reset_step(self) -> None:
        """Take back what the step has shown, which is the open message: its calls come after it."""
        is_shown = self._message is not None and not self._message[1].is_empty
        self._end_message()
        if is_shown:
            self._send("reset-step")

    def _show_pieces(self, message: MessageId, pieces: list[Piece]) -> None:
        for kind, block, text in pieces:
            self._has_answer = self._has_answer or kind == "text"
            self._open_step()
            id = f"{message}-{block}"
            if self._open_block != (kind, id):
                self._end_block()
                self._send(f"{kind}-start", id=id)
                self._open_block = (kind, id)
            self._send(f"{kind}-delta", id=id, delta=text)

    # ---------------------------------------------------------------------------------------------- tools and the rest

    def _show_called(self, event: Event, body: progress.ToolCalled | progress.ToolStarted) -> None:
        self._show_call(body.call)

    def _show_call(self, call: ToolCall) -> None:
        if call.id not in self._calls:
            self._calls.add(call.id)
            self._open_step()
            self._step_has_calls = True
            input: JSON = call.raw if call.raw and not call.arguments else call.arguments
            dynamic = {} if call.name in self._client_tools else {"dynamic": True}
            self._send("tool-input-available", toolCallId=call.id, toolName=call.name, input=input, **dynamic)

    def _show_result(self, event: Event, body: progress.ToolCompleted | progress.ToolFailed) -> None:
        result = body.result
        if result.call not in self._calls:
            return
        if result.reason == "denied" and result.call in self._asked_calls:
            self._send("tool-output-denied", toolCallId=result.call)
        elif result.failed:
            self._send("tool-output-error", toolCallId=result.call, errorText=result.text or result.reason)
        else:
            self._send("tool-output-available", toolCallId=result.call, output=_output_of(result))

    def _show_child(self, event: Event, body: progress.SubagentStarted | progress.SubagentCompleted) -> None:
        data: UiChunk = {"name": body.agent, "toolCallId": body.call, "status": "running"}
        if isinstance(body, progress.SubagentCompleted):
            data |= {"status": "failed" if body.failed else "completed", "text": body.text}
        self._send("data-subagent", id="/".join((*event.path, body.child)), data=data)

    def _request_approval(self, event: Event, body: control.ApprovalRequested) -> None:
        if event.path and body.call.id not in self._calls:
            self._open_step_of_children()
        self._show_call(body.call)
        self._approvals.add(body.approval)
        self._asked_calls.add(body.call.id)
        reason = body.message or body.reason
        fields = {"reason": reason} if reason else {}
        self._send("tool-approval-request", approvalId=body.approval, toolCallId=body.call.id, **fields)

    def _resolve_approval(self, event: Event, body: control.ApprovalResolved) -> None:
        if body.approval not in self._approvals:
            return
        self._approvals.remove(body.approval)
        fields: UiChunk = {"approvalId": body.approval, "approved": body.decision == "approve"}
        self._send("tool-approval-response", **fields, **({"reason": body.message} if body.message else {}))

    def _show_question(self, event: Event, body: control.QuestionAsked) -> None:
        if body.kind == "result":  # the call itself is the question
            self._open()
            return
        fields = {"text": body.text, "options": list(body.options), "toolCallId": body.call, "expires": body.expires}
        self._questions[body.question] = data = {name: value for name, value in fields.items() if value}
        self._send("data-question", id=body.question, data=data)

    def _show_answer(self, event: Event, body: control.QuestionAnswered) -> None:
        data = self._questions.pop(body.question, None)
        if data is not None:
            self._send("data-question", id=body.question, data={**data, "answered": body.answer is not None})

    def _show_state(self, event: Event, body: control.StateChanged) -> None:
        if (self._is_open or event.turn) and is_application_value(body.key):
            self._send("data-state", data={"key": body.key, "value": body.value}, transient=True)

    def _count_usage(self, event: Event, body: UsageRecorded) -> None:
        self._open()
        self._usage += body.usage

    def _send(self, type: str, **fields: Any) -> None:
        self._open()
        self._sent.append({"type": type, **fields})


def _output_of(result: ToolResult) -> JSON:
    if result.value is not None:
        return result.value
    if any(isinstance(part, Image | Audio | Document) for part in result.content):
        return [msgspec.to_builtins(part) for part in result.content]
    return result.text


def _usage_of(usage: Usage) -> UiChunk:
    counts = {
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "totalTokens": usage.total,
        "reasoningTokens": usage.reasoning,
        "cachedInputTokens": usage.cache_read,
    }
    required = ("inputTokens", "outputTokens", "totalTokens")
    return {name: count for name, count in counts.items() if count or name in required}
