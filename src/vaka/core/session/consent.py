"""What people are asked, what they say and what they allow: the part of the fold that is about that."""

from vaka.core.session.state import Decision, State
from vaka.core.types import control
from vaka.core.types.event import Event
from vaka.core.types.tool import Grant


def requested(state: State, event: Event, body: control.ApprovalRequested) -> None:
    """A call waits for a person."""
    state.decisions[body.approval] = Decision(id=body.approval, call=body.call.id, path=event.path, approval=body)
    call = state.open.get(body.call.id)
    if call:
        call.approval = body.approval


def resolved(state: State, event: Event, body: control.ApprovalResolved) -> None:
    """The first answer counts, if it came in time."""
    decision = state.decisions.get(body.approval)
    if decision is None or decision.approval is None or not decision.waiting:
        return
    if decision.approval.expires and event.ts >= decision.approval.expires:
        decision.expired = True
        return
    decision.resolved = body
    if body.decision == "reject":
        _refuse(state, decision, decision.approval, body)
    elif body.scope != "once" and body.rule:
        _grant(state, decision.approval, body)


def _refuse(state: State, decision: Decision, asked: control.ApprovalRequested, said: control.ApprovalResolved) -> None:
    """A no without a word leaves the root agent nothing to go on with; a child has a parent, and a script its lines."""
    call = state.open.get(asked.call.id)
    if state.turn and call and call.message and not decision.path and not said.message.strip():
        state.turn.rejected = asked.call.name


def _grant(state: State, asked: control.ApprovalRequested, said: control.ApprovalResolved) -> None:
    answers, tool = tuple(sorted(asked.names)), asked.call.name
    grant = Grant(rule=said.rule, answers=answers, tool=tool, spec=asked.spec, until=said.until)
    if grant not in state.grants:
        state.grants.append(grant)


def lapse(state: State, now: str) -> None:
    """What was allowed until some time is over once the log has come to it, also when a clock goes back later."""
    if any(grant.until and now >= grant.until for grant in state.grants):
        state.grants = [grant for grant in state.grants if not grant.until or now < grant.until]


def expired(state: State, event: Event, body: control.ApprovalExpired) -> None:
    """Nobody decided in time."""
    decision = state.decisions.get(body.approval)
    if decision and decision.waiting:
        decision.expired = True


def asked(state: State, event: Event, body: control.QuestionAsked) -> None:
    """A person is asked something."""
    state.decisions[body.question] = Decision(id=body.question, call=body.call, path=event.path, question=body)


def answered(state: State, event: Event, body: control.QuestionAnswered) -> None:
    """The first answer counts."""
    decision = state.decisions.get(body.question)
    if decision and decision.waiting:
        decision.answered = body
