"""The common part of the doors of chat protocols: the turn of a request, and the frames of its events.

A chat request brings new messages, decisions and results of tools that the client has run. ``open_turn`` gives them to
the session and returns the turn that follows from them; ``encode_turn`` writes its events until it ends or waits.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from vaka.agents.react import Agent
from vaka.core.types import control, progress
from vaka.core.types.control import Asked, decision_of
from vaka.core.types.errors import BadRequest, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor
from vaka.core.types.message import ToolResult
from vaka.core.types.pending_decisions import PendingDecisions
from vaka.runtime.options import ApprovalAnswer
from vaka.runtime.session import Session
from vaka.server.answer_start import AnswerStart
from vaka.server.kit.guard import require_scope
from vaka.server.kit.identifiers import check_id
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, not_found
from vaka.server.kit.service import AgentService, PromptInput
from vaka.server.request_agent import make_client_tools
from vaka.server.turn_events import TurnEvents
from vaka.views.chat_input import ChatInput, Decision

REFUSED_REQUESTS = frozenset({BadRequest.code})
"""The errors of a turn that mean that the request was wrong, such as a file that the model does not take."""
DEFAULT_REJECTION = "The user rejected this call."
"""The text for the model after a rejection without a reason; without a text the turn would end."""


class ChatTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that a client reads."""

    session: Session[Any]
    events: TurnEvents
    seen: int = 0
    """The seq of the last event that the client has."""
    head: int = 0
    """The head of the log when the request came: earlier pauses are over, except for decisions in ``waiting_for``."""
    waiting_for: frozenset[str] = frozenset()
    """The ids of decisions that were open then and that the request does not make."""

    def is_paused(self, batch: Sequence[Event]) -> bool:
        """Return whether the turn waits for decisions after these events, and goes on in another request."""
        seq = batch[-1].seq if batch else 0
        if not self.events.waiting or 0 < seq <= self.seen:
            return False
        if 0 < seq <= self.head:
            return all(decision_of(asked) in self.waiting_for for _, asked in self.events.pending.asked)
        return True


class TurnEncoder(Protocol):
    """Writes events in the form of a protocol; see ``views``."""

    def encode(self, event: Event) -> list[dict[str, Any]]: ...

    def skip(self, event: Event) -> None: ...

    def finish(self, reason: str) -> list[dict[str, Any]]: ...


def rewritten_key(message: str, turn: str) -> str:
    """Return the key of an input that replaces the answered input of a turn: clients can repeat the id of a message."""
    return f"{message}@{turn}"


def message_of(key: str) -> str:
    """Return the id of the message that an input was made of, by its key."""
    return key.rpartition("@")[0] or key


class LastTurn:
    """The inputs and open decisions of the last turn of a session."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.id = events[0].turn if events else ""
        self.before = events[0].seq - 1 if events else 0
        self.asked: dict[str, Asked] = {}
        self.calls: dict[str, str] = {}
        """The decisions that stand for calls of client tools, by call."""
        self.inputs: set[str] = set()
        self._events = events
        for event in events:
            match event.data:
                case control.ApprovalRequested() as body:
                    self.asked[body.approval] = body
                case control.QuestionAsked() as body:
                    self.asked[body.question] = body
                    if body.kind == "result" and body.call:
                        self.calls[body.call] = body.question
                case progress.TurnStarted(inputs=inputs) | progress.StepStarted(inputs=inputs):
                    self.inputs.update(inputs)
                    self.inputs.update(map(message_of, inputs))
                case _:
                    pass

    def new_inputs(self, inputs: Sequence[control.InputAdded]) -> Sequence[control.InputAdded]:
        """Return the inputs after the last input that the turn has taken: clients send messages in order."""
        known = max((at for at, added in enumerate(inputs) if added.key in self.inputs), default=-1)
        return inputs[known + 1 :]

    def seen_before(self, decisions: Collection[str]) -> int:
        """Return the seq of the event after which the turn waited for one of these decisions: the client has it."""
        pending, seen = PendingDecisions(), 0
        for event in self._events:
            pending.note(event)
            if any(decision_of(asked) in decisions for _, asked in pending.asked):
                seen = event.seq if pending.is_waiting_after(event.data) or not seen else seen
        return seen


async def enter_chat(service: AgentService, principal: Principal, agent: Agent, request: ChatInput) -> Session[Any]:
    """Return the session of a request, with its tools and instructions; a message of the user may create it."""
    tools = make_client_tools(agent, [(tool.name, tool.description, tool.parameters) for tool in request.tools])
    enter = service.enter_session if request.inputs else service.open_session
    return await enter(principal, request.session, agent=agent.name, tools=tools, instructions=request.instructions)


async def open_turn(
    service: AgentService,
    principal: Principal,
    session: Session[Any],
    request: ChatInput,
    *,
    while_waiting: Literal["reject", "interrupt"],
) -> ChatTurn:
    """Give a request to a session and return the turn that answers it.

    ``while_waiting`` says what a new message does while the turn waits for decisions. Raises ``Problem`` for decisions
    that the last turn has not asked for (404), a message that must wait (409) and a request with nothing new (400).
    """
    for added in request.inputs:
        check_id(message_of(added.key), "message id", field="messages")
    info = await service.find_session(principal, session.id)
    runtime = await service.runtime_of(principal)
    waiting = {row.id for row in await runtime.decisions(session.id)} if info.pending else set[str]()
    is_simple = len(request.inputs) == 1 and not (request.decisions or request.results or info.turn)
    last = LastTurn(() if is_simple or not info.head else await session.last_turn())
    made = _Answers(principal, last, request, waiting)
    inputs = last.new_inputs(request.inputs) or request.inputs[-1:]
    seen = 0
    if inputs:
        is_new = inputs[-1].key not in last.inputs
        if is_new and waiting and not made.ids and while_waiting == "reject":
            raise Problem(409, "waiting", f"the session takes a new message after decisions about {_list(waiting)}")
        prompt = PromptInput(
            prompt=[part for added in inputs for part in added.content],
            key=inputs[-1].key,
            on_busy="steer" if made.ids else "interrupt" if while_waiting == "interrupt" else "queue",
        )
        events = await service.start_turn(principal, session, prompt)
    elif made.ids or info.turn:
        seen = last.seen_before(made.ids)
        wake = bool(made.ids) or not waiting  # a turn that waits may need tools that this request does not have
        events = await service.attach_turn(principal, session, turn=last.id, after=Cursor(0, last.before), wake=wake)
    else:
        detail = "the request has no new message of the user, no decision and no result that the session waits for"
        raise Problem(400, "nothing_new", detail)
    await made.apply(service, session)
    return ChatTurn(
        session=session, events=events, seen=seen, head=info.head, waiting_for=frozenset(waiting - made.ids)
    )


class _Answers:
    """The decisions and results of a request that the last turn has asked for."""

    def __init__(self, principal: Principal, last: LastTurn, request: ChatInput, waiting: Collection[str]) -> None:
        """Raise ``Problem`` for a decision that the turn has not asked for (404) or the caller may not make (403)."""
        self._principal = principal
        self._waiting = waiting
        self._decisions = request.decisions
        self._results = [(last.calls[result.call], result) for result in request.results if result.call in last.calls]
        made = {control.key_of(decision) for decision in request.decisions}
        for id in made - last.asked.keys():
            raise not_found(f"decision {id[:80]!r} in the last turn of the session; it waits for {_list(waiting)}")
        approvals = any(isinstance(decision, control.ApprovalResolved) for decision in request.decisions)
        if approvals:
            require_scope(principal, "approvals:write", "a decision about a call")
        self.ids = made | {question for question, _ in self._results}

    async def apply(self, service: AgentService, session: Session[Any]) -> None:
        """Make what is still open; of what was decided before, the first decision counts."""
        results = [result for question, result in self._results if question in self._waiting]
        decisions = [decision for decision in self._decisions if control.key_of(decision) in self._waiting]
        explained = [
            msgspec.structs.replace(decision, message=decision.message or DEFAULT_REJECTION)
            if isinstance(decision, control.ApprovalResolved) and decision.decision == "reject"
            else decision
            for decision in decisions
        ]
        await settle(service, self._principal, session, results, explained)


async def settle(
    service: AgentService,
    principal: Principal,
    session: Session[Any],
    results: Iterable[ToolResult],
    decisions: Iterable[Decision],
) -> list[Event]:
    """Give results of calls to a session, and make decisions; return their events."""
    events = [
        await service.answer_call(principal, session.id, result.call, result, failed=result.failed)
        for result in results
    ]
    for decision in decisions:
        if isinstance(decision, control.QuestionAnswered):
            events.append(await service.answer(principal, decision.question, decision.answer))
            continue
        approve, message = decision.decision == "approve", decision.message
        more: ApprovalAnswer = {"message": message, "edit": decision.edit, "scope": decision.scope}
        events.append(await service.resolve(principal, decision.approval, approve=approve, **more))
    return events


async def encode_turn(
    turn: ChatTurn,
    encoder: TurnEncoder,
    to_sse: Callable[[dict[str, Any]], bytes],
    make_error: Callable[[str], list[dict[str, Any]]],
    start: AnswerStart,
) -> AsyncGenerator[bytes]:
    """Yield the events of a turn as frames until it ends or waits; ``make_error`` describes a turn that never began."""
    reason, is_empty = "the turn was withdrawn before it began", True
    try:
        async with turn.events as events:
            while not events.ended:
                batch = await events.next_batch()
                frames: list[bytes] = []
                for event in batch:
                    start.note(event, is_earlier=0 < event.seq <= turn.seen)
                    if 0 < event.seq <= turn.seen:
                        encoder.skip(event)
                    else:
                        frames += map(to_sse, encoder.encode(event))
                if frames:
                    is_empty = False
                    yield b"".join(frames)
                if turn.is_paused(batch):
                    break
    except VakaError as error:
        reason = str(error)
    chunks = encoder.finish(reason) or (make_error(reason) if is_empty else [])
    if chunks:
        yield b"".join(map(to_sse, chunks))


def _list(ids: Iterable[str]) -> str:
    return ", ".join(sorted(ids)[:20]) or "none"
