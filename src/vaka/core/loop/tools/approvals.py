"""Approvals of a call: which exist, whether they cover it, and which must be requested."""

from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.tools.result import failed_result
from vaka.core.ports.policy import FolderAwarePolicy, GrantingPolicy, Policy
from vaka.core.ports.tool import Tool
from vaka.core.session.await_decision import expire_decision, is_overdue, wait_for_decision
from vaka.core.session.log import format_timestamp
from vaka.core.session.state import DecisionRecord
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, QuestionAnswered
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, DecisionId, Digest, digest_of
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.tool import Ask, Grant, InvalidArguments, ParsedArguments, ToolSpec


class ApprovableCall(Protocol):
    """A call that a person may have to decide on."""

    @property
    def tool(self) -> Tool:
        """The tool that is called."""
        ...

    @property
    def call(self) -> ToolCall:
        """The call as it would run now."""
        ...


def policy_for(turn: Turn, spec: ToolSpec) -> Policy:
    """Return the policy that judges a call: that of the runtime, with the grants of this session.

    It resolves relative paths in the folder in which the agent's next command starts.
    """
    rules, grants = _policy_in_folder(turn), _active_grants(turn, spec)
    return cast("GrantingPolicy", rules).with_grants(grants) if grants and hasattr(rules, "with_grants") else rules


def is_approved(turn: Turn, prepared: ApprovableCall, ask: Ask, decisions: list[DecisionRecord]) -> bool:
    """Return whether an approval covers these arguments, this version of the tool and all rules, and is valid."""
    matching = [d for d in decisions if d.approval is not None and ask.rule_names <= d.approval.rule_names]
    if not matching or _folder_of(matching[-1]) != ask.folder:
        return False
    return _approval_matches(turn, prepared, matching[-1])  # a later request replaces earlier ones


def is_granted(turn: Turn, prepared: ApprovableCall, ask: Ask) -> bool:
    """Return whether a grant of this session satisfies the ``Ask`` of a middleware."""
    policy = _granting_policy(turn)
    return policy is not None and any(
        ask.rule_names <= set(grant.answers) and policy.covers(grant.rule, prepared.call, prepared.tool.spec)
        for grant in _active_grants(turn, prepared.tool.spec)
    )


def _folder_of(decision: DecisionRecord) -> str:
    return decision.approval.folder if decision.approval is not None else ""


def _approval_matches(turn: Turn, prepared: ApprovableCall, decision: DecisionRecord) -> bool:
    request, resolved = decision.approval, decision.resolved
    if request is None or resolved is None or request.spec != prepared.tool.spec.digest:
        return False
    if request.expires and format_timestamp(turn.env.clock.time()) >= request.expires:
        return False
    approved = request.digest if resolved.edit is None else _edited_digest(prepared.tool, resolved.edit)
    return digest_of(prepared.call.arguments) == approved


def _edited_digest(tool: Tool, edit: dict[str, Any]) -> Digest | None:
    """Return the digest of edited arguments as the tool parses them."""
    parsed = tool.parse(edit)
    return None if isinstance(parsed, InvalidArguments) else digest_of(parsed.value)


def _active_grants(turn: Turn, spec: ToolSpec) -> list[Grant]:
    """Return the grants that have not expired and were given for this version of the tool."""
    if not turn.state.grants:
        return []
    now = format_timestamp(turn.env.clock.time())
    return [
        grant for grant in turn.state.grants
        if (not grant.until or now < grant.until) and (grant.tool != spec.name or grant.spec == spec.digest)
    ]  # fmt: skip


def _granting_policy(turn: Turn) -> GrantingPolicy | None:
    return cast("GrantingPolicy", _policy_in_folder(turn)) if hasattr(turn.env.policy, "with_grants") else None


def _policy_in_folder(turn: Turn) -> Policy:
    policy, folder = turn.env.policy, turn.shell_folder
    return cast("FolderAwarePolicy", policy).in_folder(folder) if folder and hasattr(policy, "in_folder") else policy


def rejection_result(call: CallId, decisions: list[DecisionRecord]) -> ToolResult | None:
    """Return the result of a call whose approval was rejected or has expired, ``None`` for any other."""
    for decision in decisions:
        if decision.expired:
            return failed_result(call, "expired", "no person approved this call in time, so it was not run")
        if decision.resolved is not None and decision.resolved.decision == "reject":
            message = decision.resolved.message.strip()
            return failed_result(
                call, "denied", f"a person refused this call: {message}" if message else "a person refused this call"
            )
        if not _is_allowed_answer(decision):
            return failed_result(
                call, "denied", "the answer to this call was not one of those allowed, so it was not run"
            )
    return None


def _is_allowed_answer(decision: DecisionRecord) -> bool:
    """Whether the answer is one of the decisions that the request allows."""
    request, resolved = decision.approval, decision.resolved
    if request is None or resolved is None or not request.decisions:
        return True
    return ("edit" if resolved.edit is not None else "approve") in request.decisions


def last_edit_of(tool: Tool, decisions: list[DecisionRecord]) -> tuple[dict[str, Any] | None, str]:
    """Return the last valid arguments that a person has given a call, and the problem of the last answer, if any.

    Arguments that the tool cannot parse are ignored.
    """
    edit: dict[str, Any] | None = None
    problem = ""
    for resolved in [decision.resolved for decision in decisions if decision.resolved is not None]:
        parsed = tool.parse(resolved.edit) if resolved.edit is not None else None
        problem = parsed.message if isinstance(parsed, InvalidArguments) else ""
        edit = parsed.value if isinstance(parsed, ParsedArguments) else edit
    return edit, problem


def ask_again(
    turn: Turn, prepared: ApprovableCall, ask: Ask | None, decisions: list[DecisionRecord], problem: str
) -> ApprovalRequested:
    """Return a new request after edited arguments were invalid; without ``ask`` it repeats the earlier one."""
    before = [decision.approval for decision in decisions if decision.approval is not None and decision.resolved][-1]
    ask = ask or Ask(
        rule=before.rule, layer=before.layer, reason=before.reason, message=before.message, grant=before.grant,
        decisions=before.decisions, scopes=before.scopes, asks=before.asks, folder=before.folder,
    )  # fmt: skip
    why = f"{prepared.call.name} does not take the arguments that a person gave it: {'; '.join(problem.splitlines())}"
    return build_request(turn, prepared, msgspec.structs.replace(ask, reason=why))


def build_request(turn: Turn, prepared: ApprovableCall, ask: Ask) -> ApprovalRequested:
    """Return the approval request. It offers no grant unless the policy supports grants."""
    ttl, spec, policy = turn.recipe.limits.approval_ttl, prepared.tool.spec, _granting_policy(turn)
    return ApprovalRequested(
        approval=DecisionId(turn.env.ids.new_id("apr")),
        call=prepared.call,
        digest=digest_of(prepared.call.arguments),
        spec=spec.digest,
        reason=ask.reason,
        rule=ask.rule,
        layer=ask.layer,
        message=ask.message,
        decisions=ask.decisions,
        grant=ask.grant if policy is not None else "",
        scopes=ask.scopes,
        asks=ask.asks if ask.asks != (ask.rule,) else (),
        agent=turn.agent,
        effect=spec.effect,
        cwd=(policy.cwd or "") if policy is not None else "",
        folder=ask.folder,
        expires=format_timestamp(turn.env.clock.time() + ttl) if ttl is not None else "",
        lasts=turn.recipe.limits.grant_ttl,
    )


def complete_middleware_ask(turn: Turn, prepared: ApprovableCall, ask: Ask) -> Ask:
    """Return the ``Ask`` of a middleware with a grant and scopes; by default only for the call or the session."""
    policy = _granting_policy(turn)
    grant = ask.grant or (policy.rule_for(prepared.call, prepared.tool.spec) if policy is not None else "")
    return msgspec.structs.replace(ask, grant=grant, scopes=ask.scopes or ("once", "session"))


def is_same_request(known: ApprovalRequested | None, new: ApprovalRequested) -> bool:
    """Return whether two requests are about the same arguments, tool, rules and folder."""
    return known is not None and (known.digest, known.spec, known.rule_names, known.folder) == (
        new.digest, new.spec, new.rule_names, new.folder,
    )  # fmt: skip


def not_asked_result(request: ApprovalRequested) -> ToolResult:
    """Return the result of a call whose approval is no longer requested."""
    why = "a person refused another call and said nothing more, so the turn ended and this call was not run"
    return failed_result(request.call.id, "interrupted", why)


async def wait_until_decided(turn: Turn, id: DecisionId, needed: Callable[[], bool] = lambda: True) -> bool:
    """Wait for a decision, or take the default one, as ``Env.ask`` says; return ``False`` to suspend the turn.

    The wait ends with ``True`` as soon as the decision is no longer ``needed``.
    """

    def keep_waiting() -> bool:
        return turn.env.can_wait() and needed()

    while (decision := turn.state.decisions[id]).waiting and needed():
        if turn.env.ask == "wait":
            with turn.timer.pause(), turn.stop.cancellable():
                await wait_for_decision(turn.log, turn.scope, id, keep_waiting)
        elif is_overdue(turn.log, decision):
            await expire_decision(turn.log, turn.scope, decision)
        elif turn.env.ask == "suspend":
            return False
        else:
            await turn.log.append(turn.scope, default_decision(decision))
    return True


def default_decision(decision: DecisionRecord) -> Body:
    """Return the decision that is taken when no person can be asked."""
    if decision.approval is None:
        return QuestionAnswered(question=decision.id, answer=None, by="vaka")
    why = "no person can be asked here"
    return ApprovalResolved(approval=decision.id, decision="reject", message=why, by="vaka")


def answers_from_grants(turn: Turn, call: CallId) -> list[ApprovalResolved]:
    """Return approvals for the open requests of a call that grants given meanwhile cover."""
    waiting = [d.id for d in turn.state.decisions.values() if d.call == call and d.approval and d.waiting]
    why = "what was allowed meanwhile covers it"
    return [ApprovalResolved(approval=id, decision="approve", message=why, by="vaka") for id in waiting]
