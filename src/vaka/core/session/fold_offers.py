"""The part of the fold for what others offer to a session: inputs, interrupts, and answers to what it asks them."""

from collections.abc import Callable, Iterable
from typing import Any

from vaka.core.types import control, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope
from vaka.core.types.state import DecisionRecord, QueuedInput, SessionState
from vaka.core.types.tool import Grant


def take_inputs(state: SessionState, seq: int, keys: Iterable[str]) -> None:
    """Record the event that takes inputs; they wait no more."""
    for key in keys:
        queued = state.inputs.pop(key, None)
        if queued:
            state.taken[queued.seq] = seq


def withdrawn_inputs(entries: Iterable[tuple[EventScope, Body]]) -> set[str]:
    """Return the keys of the inputs that events withdraw which are about to be written."""
    return {body.input for _, body in entries if isinstance(body, control.InputWithdrawn)}


def _input_added(state: SessionState, event: Event, body: control.InputAdded) -> None:
    state.closed = False
    state.inputs.setdefault(body.key, QueuedInput(key=body.key, seq=event.seq, policy=body.policy))
    if body.policy == "interrupt" and state.turn and state.turn.interrupted is None:
        state.turn.interrupted = "a new input takes its place"


def _input_withdrawn(state: SessionState, event: Event, body: control.InputWithdrawn) -> None:
    state.inputs.pop(body.input, None)


def _turn_queued(state: SessionState, event: Event, body: progress.TurnQueued) -> None:
    queued = state.inputs.get(body.input)
    if queued:
        queued.announced = True


def _interrupt_requested(state: SessionState, event: Event, body: control.InterruptRequested) -> None:
    if state.turn and state.turn.interrupted is None:
        state.turn.interrupted = body.note


def _approval_requested(state: SessionState, event: Event, body: control.ApprovalRequested) -> None:
    state.decisions[body.approval] = DecisionRecord(id=body.approval, call=body.call.id, path=event.path, approval=body)
    call = state.open.get(body.call.id)
    if call:
        call.approval = body.approval


def _approval_resolved(state: SessionState, event: Event, body: control.ApprovalResolved) -> None:
    """Take the first answer, if it is in time."""
    decision = state.decisions.get(body.approval)
    if decision is None or decision.approval is None or not decision.waiting:
        return
    if decision.approval.expires and event.ts >= decision.approval.expires:
        decision.expired = True
        return
    decision.resolved = body
    if body.decision == "reject":
        # A rejection without a message ends the turn of the root agent; a child and a script go on with the failure.
        call = state.open.get(decision.approval.call.id)
        if state.turn and call and call.message and not decision.path and not body.message.strip():
            state.turn.rejected = call.call.name
    elif body.scope != "once" and body.rule and not decision.moved:
        _add_grant(state, decision.approval, body)


def _add_grant(state: SessionState, requested: control.ApprovalRequested, resolved: control.ApprovalResolved) -> None:
    answers, tool = tuple(sorted(requested.rule_names)), requested.call.name
    grant = Grant(rule=resolved.rule, answers=answers, tool=tool, spec=requested.spec, until=resolved.until)
    if grant not in state.grants:
        state.grants.append(grant)


def leave_folder(state: SessionState, old: control.SessionWorkspace | None, new: control.SessionWorkspace) -> None:
    """Void the grants and approvals of a session that is bound to another folder: they hold only in the one before.

    A session that was bound to no folder keeps the approvals that were requested in the new folder.
    """
    state.grants = []
    for decision in state.decisions.values():
        if decision.approval is not None and (old is not None or decision.approval.cwd != new.root):
            decision.moved = True


def drop_expired_grants(state: SessionState, now: str) -> None:
    """Drop grants that end at or before ``now``, the time of an event: they stay ended if the clock is set back."""
    if any(grant.until and now >= grant.until for grant in state.grants):
        state.grants = [grant for grant in state.grants if not grant.until or now < grant.until]


def _approval_expired(state: SessionState, event: Event, body: control.ApprovalExpired) -> None:
    decision = state.decisions.get(body.approval)
    if decision and decision.waiting:
        decision.expired = True


def _question_asked(state: SessionState, event: Event, body: control.QuestionAsked) -> None:
    state.decisions[body.question] = DecisionRecord(id=body.question, call=body.call, path=event.path, question=body)


def _question_answered(state: SessionState, event: Event, body: control.QuestionAnswered) -> None:
    decision = state.decisions.get(body.question)
    if decision and decision.waiting:
        decision.answered = body


HANDLERS: dict[type[Body], Callable[[SessionState, Event, Any], None]] = {
    control.InputAdded: _input_added,
    control.InputWithdrawn: _input_withdrawn,
    control.InterruptRequested: _interrupt_requested,
    progress.TurnQueued: _turn_queued,
    control.ApprovalRequested: _approval_requested,
    control.ApprovalResolved: _approval_resolved,
    control.ApprovalExpired: _approval_expired,
    control.QuestionAsked: _question_asked,
    control.QuestionAnswered: _question_answered,
}
