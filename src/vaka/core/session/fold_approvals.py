"""The part of the fold that handles approvals, questions and grants."""

from collections.abc import Callable
from typing import Any

from vaka.core.session.state import DecisionRecord, SessionState
from vaka.core.types import control
from vaka.core.types.event import Body, Event
from vaka.core.types.tool import Grant


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
    elif body.scope != "once" and body.rule:
        _add_grant(state, decision.approval, body)


def _add_grant(state: SessionState, requested: control.ApprovalRequested, resolved: control.ApprovalResolved) -> None:
    answers, tool = tuple(sorted(requested.rule_names)), requested.call.name
    grant = Grant(rule=resolved.rule, answers=answers, tool=tool, spec=requested.spec, until=resolved.until)
    if grant not in state.grants:
        state.grants.append(grant)


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
    control.ApprovalRequested: _approval_requested, control.ApprovalResolved: _approval_resolved,
    control.ApprovalExpired: _approval_expired, control.QuestionAsked: _question_asked,
    control.QuestionAnswered: _question_answered,
}  # fmt: skip
