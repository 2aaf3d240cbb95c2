"""The course of an agent's turns as a few kinds of parts: what the encoders of answer protocols have in common.

Deltas are applied once each and in order, and what no delta carried comes with the completed message. So the joined
pieces of a message are the same for live events, for a stored log, and for a reader that joins in the middle.
"""

from collections.abc import Collection
from typing import Literal, TypeAlias

import msgspec

from vaka.core.types import control, progress
from vaka.core.types.control import Asked
from vaka.core.types.errors import ModelRefused
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath, CallId, MessageId
from vaka.core.types.message import ToolCall, ToolResult, Usage, as_content
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.pending_decisions import PendingDecisions
from vaka.views.failures import Failure, make_failure
from vaka.views.message_blocks import BlockKind, MessageBlocks, Piece, kind_of
from vaka.views.routed_agents import RoutedAgents

AnswerStatus: TypeAlias = Literal["completed", "limit", "failed", "cancelled", "interrupted"]


class AnswerBegan(msgspec.Struct, frozen=True):
    """A turn begins, or a reader joins it. ``seq`` is 0 for the beginning of a turn and for live events."""

    turn: str
    agent: str
    ts: str
    seq: int


class AnswerPiece(msgspec.Struct, frozen=True):
    """The next piece of a block of a message."""

    message: str
    kind: BlockKind
    block: int
    text: str


class MessageEnded(msgspec.Struct, frozen=True):
    """All pieces of a message were given."""

    message: str
    stop: str


class MessageWithdrawn(msgspec.Struct, frozen=True):
    """The pieces of a message do not count: the model is asked again, or the rest was lost."""

    message: str


class CallBegan(msgspec.Struct, frozen=True):
    """A tool runs."""

    call: ToolCall


class CallEnded(msgspec.Struct, frozen=True):
    """A call has its result; ``call`` is ``None`` for a reader that joined after the call was made."""

    call: ToolCall | None
    result: ToolResult


class DecisionAsked(msgspec.Struct, frozen=True):
    """The turn waits: for an approval, for an answer, or for the result of a ``call`` that the client runs."""

    asked: Asked
    call: ToolCall | None = None


class AnswerEnded(msgspec.Struct, frozen=True):
    """The turn has ended; ``message`` and ``failure`` say why when it has no answer."""

    status: AnswerStatus
    usage: Usage
    code: str = ""
    message: str = ""
    provider_status: int = 0
    retry_after: float = 0.0

    @property
    def failure(self) -> Failure:
        """Why the turn has no answer. Only for a turn that was not completed."""
        return make_failure(self.code, self.message or self.status, self.provider_status, self.retry_after)


AnswerPart: TypeAlias = (
    AnswerBegan | AnswerPiece | MessageEnded | MessageWithdrawn | CallBegan | CallEnded | DecisionAsked | AnswerEnded
)

_TurnEnd: TypeAlias = progress.TurnCompleted | progress.TurnFailed | progress.TurnCancelled | progress.TurnInterrupted


class _OpenMessage:
    """A message whose pieces are given as they come."""

    def __init__(self, id: MessageId, path: AgentPath) -> None:
        self.id = id
        self.path = path
        self.blocks = MessageBlocks()

    def give(self, pieces: list[Piece]) -> list[AnswerPart]:
        return [AnswerPiece(self.id, *piece) for piece in pieces]


class AnswerReader:
    """Turns the events of one agent of a session into parts of its answers.

    ``path`` names the agent, ``routers`` the agents that are routers, as for the encoders.
    """

    def __init__(self, path: AgentPath = (), routers: Collection[str] = ()) -> None:
        self._path, self._routed = path, RoutedAgents(path, routers)
        self._decisions = PendingDecisions()
        self.usage = Usage()
        """The cost of the model calls of the answer that were read so far."""
        self._earlier_usage = Usage()
        """The cost of the model calls of earlier answers of the turn."""
        self._is_open = self._has_message = self._is_refused = False
        self._ended_turn = ""
        self._calls: dict[CallId, ToolCall] = {}
        self._message: _OpenMessage | None = None
        self._waiting: list[progress.MessageCompleted] = []
        """Messages of agents that write at the same time; each comes whole after the open message."""

    def read(self, event: Event) -> list[AnswerPart]:
        """Return the parts of an event, often none."""
        body = event.data
        is_repeated = isinstance(body, Asked) and body in self.pending
        self._decisions.note(event)
        if self._path and event.path == self._path[:-1]:
            return self._read_parent(event, body)
        if event.path[: len(self._path)] != self._path:
            return []
        if isinstance(body, progress.ToolCalled | progress.ToolStarted):
            self._calls[body.call.id] = body.call
        if isinstance(body, UsageRecorded):
            self.usage += body.usage
        if isinstance(body, Asked):
            return [] if is_repeated else self._read_asked(event, body)
        if not self._routed.answers(event) or event.channel != "progress" or isinstance(body, progress.TurnQueued):
            return []
        begun = self._begin(event, body)
        return begun + self._read_body(event, body) if self._is_open else []

    def suspend(self) -> None:
        """Note that the answer ends here, although the turn has not ended: what follows begins another one."""
        self._is_open, self._message = False, None
        self._earlier_usage += self.usage
        self.usage = Usage()

    # ----------------------------------------------------------------------------------------------------- the course

    def _begin(self, event: Event, body: Body) -> list[AnswerPart]:
        is_start = isinstance(body, progress.TurnStarted | progress.SubagentStarted)
        if self._is_open or (event.turn == self._ended_turn and event.turn and not is_start):
            return []
        if is_start:
            self.usage = self._earlier_usage = Usage()
            self._calls.clear()
        self._is_open, self._has_message = True, False
        return [AnswerBegan(event.turn, getattr(body, "agent", ""), event.ts, 0 if is_start else event.seq)]

    def _read_body(self, event: Event, body: Body) -> list[AnswerPart]:
        if isinstance(body, progress.Delta | progress.MessageSnapshot):
            return self._read_delta(event, body)
        if isinstance(body, _TurnEnd):
            return self._read_end(event, body)
        match body:
            case progress.MessageCompleted():
                return self._read_message(event.path, body)
            case progress.StepStarted() | progress.TurnResumed() | progress.MessageDiscarded():
                return self._withdraw() if self._is_lost(event, body) else []
            case progress.ToolStarted(call=call) if not self._routed.is_router(event.path):
                return [CallBegan(call)]
            case progress.ToolCompleted(result=result) | progress.ToolFailed(result=result):
                known = self._calls.pop(result.call, None)
                return [] if self._routed.is_router(event.path) else [CallEnded(known, result)]
            case _:
                return []

    def _read_parent(self, event: Event, body: Body) -> list[AnswerPart]:
        """Return the parts for an event of the parent: it starts and ends this agent."""
        match body:
            case progress.SubagentStarted(child=child) if child == self._path[-1]:
                return self._begin(event, body)
            case progress.SubagentCompleted(child=child) if child == self._path[-1]:
                begun = self._begin(event, body)
                status: AnswerStatus = "failed" if body.failed else "completed"
                return begun + self._end(event, status, body.text, body.reason, body.stop) if self._is_open else []
            case _ if isinstance(body, _TurnEnd) and self._is_open:
                return self._read_end(event, body)
            case _:
                return []

    def _read_end(self, event: Event, body: _TurnEnd) -> list[AnswerPart]:
        if not self._path:
            self.usage = _subtract(body.usage, self._earlier_usage)
        match body:
            case progress.TurnCompleted(text=text, stop=stop, limit=limit):
                return self._end(event, "limit" if stop == "limit" else "completed", text, limit)
            case progress.TurnFailed(code=ModelRefused.code) if self._is_refused:  # the refusal is the answer
                return self._end(event, "completed", "", "")
            case progress.TurnFailed(code=code, message=message):
                *parts, ended = self._end(event, "failed", "", code, message)
                provider = {"provider_status": body.status, "retry_after": body.retry_after}
                return [*parts, msgspec.structs.replace(ended, **provider)]
            case progress.TurnCancelled(note=note):
                return self._end(event, "cancelled", "", "cancelled", note)
            case progress.TurnInterrupted(note=note):
                return self._end(event, "interrupted", "", "interrupted", note)

    def _end(self, event: Event, status: AnswerStatus, text: str, code: str, message: str = "") -> list[AnswerPart]:
        parts = self._withdraw()
        if text and not self._has_message:  # no event has shown the answer, as with a router
            whole = progress.MessageCompleted(message_id=MessageId(event.turn), content=as_content(text), stop="end")
            parts += self._read_message(event.path, whole)
        self._is_open, self._ended_turn = False, event.turn
        self._calls.clear()
        return [*parts, AnswerEnded(status, self.usage, code, message)]

    # ------------------------------------------------------------------------------------------------------- messages

    def _read_delta(self, event: Event, body: progress.Delta | progress.MessageSnapshot) -> list[AnswerPart]:
        if kind_of(body) is None:
            return []
        if self._message is None:
            self._message = _OpenMessage(body.message_id, event.path)
        if self._message.id != body.message_id:
            return []
        self._has_message = True
        return self._message.give(self._message.blocks.add_delta(body))

    def _read_message(self, path: AgentPath, body: progress.MessageCompleted) -> list[AnswerPart]:
        message = self._message or _OpenMessage(body.message_id, path)
        if message.id != body.message_id:
            self._waiting.append(body)
            return []
        self._message = None
        self._has_message = True
        self._is_refused = body.stop == "refusal"
        pieces = message.give(message.blocks.complete(body))
        return [*pieces, MessageEnded(body.message_id, body.stop), *self._flush_waiting(path)]

    def _withdraw(self) -> list[AnswerPart]:
        """Give up the open message, if there is one, and return the parts of messages that waited for it."""
        message, self._message = self._message, None
        withdrawn: list[AnswerPart] = [] if message is None else [MessageWithdrawn(message.id)]
        return withdrawn + self._flush_waiting(() if message is None else message.path)

    def _is_lost(self, event: Event, body: Body) -> bool:
        """Return whether the open message gets no end after this event."""
        message = self._message
        if isinstance(body, progress.MessageDiscarded):
            return message is not None and message.id == body.message_id
        return message is not None and (message.path == event.path or isinstance(body, progress.TurnResumed))

    def _flush_waiting(self, path: AgentPath) -> list[AnswerPart]:
        waiting, self._waiting = self._waiting, []
        return [part for body in waiting for part in self._read_message(path, body)]

    # ------------------------------------------------------------------------------------------------------ decisions

    @property
    def pending(self) -> list[Asked]:
        """The decisions that the agent and its child agents wait for, oldest first."""
        size = len(self._path)
        return [asked for path, asked in self._decisions.asked if path[:size] == self._path]

    def _read_asked(self, event: Event, body: Asked) -> list[AnswerPart]:
        begun = self._begin(event, body)
        call = body.call if isinstance(body, control.ApprovalRequested) else self._calls.get(body.call or CallId(""))
        return [*begun, DecisionAsked(body, call)] if self._is_open else []


def _subtract(total: Usage, part: Usage) -> Usage:
    return Usage(
        input=max(total.input - part.input, 0),
        output=max(total.output - part.output, 0),
        cache_read=max(total.cache_read - part.cache_read, 0),
        cache_write=max(total.cache_write - part.cache_write, 0),
        reasoning=max(total.reasoning - part.reasoning, 0),
        cost=max(total.cost - part.cost, 0.0),
    )


def is_client_call(asked: Asked) -> bool:
    """Return whether the client is asked for the result of a call."""
    return isinstance(asked, control.QuestionAsked) and asked.kind == "result"
