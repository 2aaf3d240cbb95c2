"""The part of the fold that handles approvals, questions and grants."""

from vaka.core.session.state import DecisionRecord, SessionState
from vaka.core.types import control
from vaka.core.types.event import Event
from vaka.core.types.tool import Grant


def apply_approval_requested(state: SessionState, event: Event, body: control.ApprovalRequested) -> None:
    """A call waits for a person."""
    state.decisions[body.approval] = DecisionRecord(id=body.approval, call=body.call.id, path=event.path, approval=body)
    call = state.open.get(body.call.id)
    if call:
        call.approval = body.approval


def apply_approval_resolved(state: SessionState, event: Event, body: control.ApprovalResolved) -> None:
    """The first answer counts, if it came in time."""
    decision = state.decisions.get(body.approval)
    if decision is None or decision.approval is None or not decision.waiting:
        return
    if decision.approval.expires and event.ts >= decision.approval.expires:
        decision.expired = True
        return
    decision.resolved = body
    if body.decision == "reject":
        _record_rejection(state, decision, decision.approval, body)
    elif body.scope != "once" and body.rule:
        _add_grant(state, decision.approval, body)


def _record_rejection(
    state: SessionState,
    decision: DecisionRecord,
    requested: control.ApprovalRequested,
    resolved: control.ApprovalResolved,
) -> None:
    """A no without a word leaves the root agent nothing to go on with; a child has a parent, and a script its lines."""
    call = state.open.get(requested.call.id)
    if state.turn and call and call.message and not decision.path and not resolved.message.strip():
        state.turn.rejected = requested.call.name


def _add_grant(state: SessionState, requested: control.ApprovalRequested, resolved: control.ApprovalResolved) -> None:
    answers, tool = tuple(sorted(requested.rule_names)), requested.call.name
    grant = Grant(rule=resolved.rule, answers=answers, tool=tool, spec=requested.spec, until=resolved.until)
    if grant not in state.grants:
        state.grants.append(grant)


def drop_expired_grants(state: SessionState, now: str) -> None:
    """What was allowed until some time is over once the log has come to it, also when a clock goes back later."""
    if any(grant.until and now >= grant.until for grant in state.grants):
        state.grants = [grant for grant in state.grants if not grant.until or now < grant.until]


def apply_approval_expired(state: SessionState, event: Event, body: control.ApprovalExpired) -> None:
    """Nobody decided in time."""
    decision = state.decisions.get(body.approval)
    if decision and decision.waiting:
        decision.expired = True


def apply_question_asked(state: SessionState, event: Event, body: control.QuestionAsked) -> None:
    """A person is asked something."""
    state.decisions[body.question] = DecisionRecord(id=body.question, call=body.call, path=event.path, question=body)


def apply_question_answered(state: SessionState, event: Event, body: control.QuestionAnswered) -> None:
    """The first answer counts."""
    decision = state.decisions.get(body.question)
    if decision and decision.waiting:
        decision.answered = body
