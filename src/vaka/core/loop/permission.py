"""Permission for a call: the verdict of the policy, the approvals and grants that cover it, and the request of one."""

from typing import Any, TypeAlias, cast

import msgspec

from vaka.core.ports.env import Env, format_timestamp
from vaka.core.ports.log import Log
from vaka.core.ports.policy import GrantingPolicy, Policy, SessionPolicy
from vaka.core.ports.tool import Tool
from vaka.core.types.control import ApprovalRequested, ApprovalResolved
from vaka.core.types.event import Body
from vaka.core.types.ids import AgentPath, CallId, DecisionId, Digest, digest_of
from vaka.core.types.limits import Limits
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.state import DecisionRecord
from vaka.core.types.tool import (
    NO_ACCESS,
    PROTECTED_LAYER,
    Allow,
    Ask,
    CommandAccess,
    Deny,
    Grant,
    InvalidArguments,
    ParsedArguments,
    ToolSpec,
)
from vaka.core.types.tool_result import failed_result
from vaka.core.types.traits import NO_TRAITS, find_traits


class PreparedCall(msgspec.Struct, frozen=True):
    """A call that passed validation and middleware."""

    tool: Tool
    call: ToolCall
    middleware_verdict: Ask | Allow | None = None
    """An approval that a middleware requires, or its answer to the questions of rules."""


class PermittedCall(msgspec.Struct, frozen=True):
    """A call that may run, and the folder and access with which the policy has judged it, as in ``Allow``."""

    tool: Tool
    call: ToolCall
    folder: str | None = None
    access: CommandAccess = NO_ACCESS


Permission: TypeAlias = PermittedCall | ToolResult | ApprovalRequested


class CallPermissions:
    """Permission for the calls of one agent in a turn."""

    def __init__(self, log: Log, env: Env, limits: Limits, agent: str, path: AgentPath) -> None:
        self.log = log
        self.env = env
        self.limits = limits
        self.agent = agent
        self.path = path

    def decide(
        self, prepared: PreparedCall, earlier: DecisionId | None, events: list[Body]
    ) -> PermittedCall | ToolResult | DecisionId:
        """Return the permitted call, the result that ends it, or the id of the decision it must wait for.

        ``earlier`` is the last decision the call has waited for. What must be written first is appended to ``events``.
        """
        if not self.log.state.decisions and prepared.middleware_verdict is None:
            spec = prepared.tool.spec
            verdict = self._policy_for(prepared.tool).judge(prepared.call, spec, self.path)
            if isinstance(verdict, Allow):
                return PermittedCall(prepared.tool, prepared.call, verdict.folder, verdict.access)
        permission = self._judge(prepared)
        if isinstance(permission, PermittedCall):
            answers = self._answers_from_grants(permission.call.id)
            events.extend(answers)
            # A person may reject before the answers are written: the call is judged again after the write.
            return answers[0].approval if answers else permission
        if isinstance(permission, ToolResult):
            return permission
        known = self.log.state.decisions.get(earlier) if earlier else None
        if self.asking_disabled:
            why = "a person refused another call and said nothing more, so the turn ended and this call was not run"
            return failed_result(permission.call.id, "interrupted", why)
        if known is not None and self._is_pending(known, permission, prepared.tool):
            return known.id
        if self.env.ask == "deny":
            why = permission.reason or f"{permission.call.name} needs approval"
            return failed_result(permission.call.id, "denied", f"{why}; no person can be asked here, so it was not run")
        events.append(permission)
        return permission.approval

    def find_request(self, prepared: PreparedCall, earlier: DecisionId | None) -> ApprovalRequested | None:
        """Return the request that ``decide`` would make for a call, ``None`` when it would make none."""
        known = self.log.state.decisions.get(earlier) if earlier else None
        request = None if self.asking_disabled else self._judge(prepared)
        if not isinstance(request, ApprovalRequested):
            return None
        return None if known and self._is_pending(known, request, prepared.tool) else request

    @property
    def asking_disabled(self) -> bool:
        """Whether no more approvals are requested: a rejection without a message ends the turn."""
        running = self.log.state.turn
        return running is not None and bool(running.rejected)

    def _judge(self, prepared: PreparedCall) -> Permission:
        """Judge a call by policy and earlier decisions. ``Deny`` wins; an ``Ask`` that was approved is satisfied."""
        state, call_id = self.log.state, prepared.call.id
        decisions = [d for d in state.decisions.values() if d.call == call_id and d.approval is not None]
        refusal = next(filter(None, [decision.refusal for decision in decisions]), None)
        if refusal is not None:
            return failed_result(call_id, *refusal)
        edit, problem = _last_edit_of(prepared.tool, decisions)
        edited = _apply_edit(prepared, edit)
        call, spec = edited.call, edited.tool.spec
        verdict = self._policy_for(edited.tool).judge(call, spec, self.path)
        if isinstance(verdict, Deny):
            return failed_result(call.id, "denied", verdict.reason or f"{call.name} is not allowed here")
        allowed = isinstance(edited.middleware_verdict, Allow)
        for ask in (verdict, edited.middleware_verdict):
            if not isinstance(ask, Ask) or self._is_approved(edited, ask, decisions):
                continue
            if allowed and ask.layer != PROTECTED_LAYER:
                continue
            if ask is not verdict and self._is_granted(edited, ask):
                continue
            if edit is not None and ask.layer == PROTECTED_LAYER:
                return failed_result(call.id, "denied", f"a person changed this call, but not into that: {ask.reason}")
            ask = ask if ask is verdict else self._complete_middleware_ask(edited, ask)
            return self._ask_again(edited, ask, decisions, problem) if problem else self._build_request(edited, ask)
        if problem:
            return self._ask_again(edited, None, decisions, problem)
        return PermittedCall(edited.tool, call, verdict.folder, verdict.access)

    def _policy_for(self, tool: Tool) -> Policy:
        """Return the policy that judges a call: the runtime's policy with the values and grants of this session."""
        rules = self._session_policy(tool)
        grants = self._active_grants(tool.spec) if self.log.state.grants else []
        if self.env.owner_grants:
            grants = [*grants, *self.env.owner_grants.get(self.log.session, ())]
        return cast("GrantingPolicy", rules).with_grants(grants) if grants and hasattr(rules, "with_grants") else rules

    def _session_policy(self, tool: Tool) -> Policy:
        policy = self.env.policy
        if not hasattr(policy, "for_call"):
            return policy
        traits = getattr(tool, "traits", NO_TRAITS)
        if traits is not NO_TRAITS:
            traits = find_traits(tool, "")
        return cast("SessionPolicy", policy).for_call(tool.spec, self.path, self.log.get_value, traits)

    def _granting_policy(self, tool: Tool) -> GrantingPolicy | None:
        return cast("GrantingPolicy", self._session_policy(tool)) if hasattr(self.env.policy, "with_grants") else None

    def _active_grants(self, spec: ToolSpec) -> list[Grant]:
        """Return the grants that have not expired and were given for this version of the tool."""
        now = format_timestamp(self.env.clock.time())
        return [
            grant
            for grant in self.log.state.grants
            if (not grant.until or now < grant.until) and (grant.tool != spec.name or grant.spec == spec.digest)
        ]

    def _is_approved(self, prepared: PreparedCall, ask: Ask, decisions: list[DecisionRecord]) -> bool:
        """Return whether an approval covers these arguments, this version of the tool and all rules, and is valid."""
        matching = [d for d in decisions if d.approval is not None and ask.rule_names <= d.approval.rule_names]
        if not matching:
            return False
        request, resolved = matching[-1].approval, matching[-1].resolved  # a later request replaces earlier ones
        if request is None or resolved is None or request.folder != (ask.folder or ""):
            return False
        if request.spec != prepared.tool.spec.digest or not self._holds_here(matching[-1], prepared.tool):
            return False
        if request.expires and format_timestamp(self.env.clock.time()) >= request.expires:
            return False
        approved = request.digest if resolved.edit is None else _edited_digest(prepared.tool, resolved.edit)
        return digest_of(prepared.call.arguments) == approved

    def _is_pending(self, known: DecisionRecord, request: ApprovalRequested, tool: Tool) -> bool:
        """Return whether a decision that is not taken yet is about the same call, rules and folders as a request."""
        is_same = known.approval is not None and known.approval.subject == request.subject
        return known.waiting and is_same and self._holds_here(known, tool)

    def _holds_here(self, decision: DecisionRecord, tool: Tool) -> bool:
        """Return whether an approval was requested for the folder that the session belongs to now.

        The folder of the process counts only for a tool that works in it, in a session that is bound to no folder.
        """
        request, policy = decision.approval, self._granting_policy(tool)
        if decision.moved or request is None:
            return False
        if self.log.state.workspace is not None or policy is None or not policy.works_in_folder(tool.spec):
            return True
        return request.cwd in ("", policy.cwd)

    def _is_granted(self, prepared: PreparedCall, ask: Ask) -> bool:
        """Return whether a grant of this session satisfies the ``Ask`` of a middleware."""
        policy = self._granting_policy(prepared.tool)
        return policy is not None and any(
            ask.rule_names <= set(grant.answers) and policy.covers(grant.rule, prepared.call, prepared.tool.spec)
            for grant in self._active_grants(prepared.tool.spec)
        )

    def _complete_middleware_ask(self, prepared: PreparedCall, ask: Ask) -> Ask:
        """Return the ``Ask`` of a middleware with a grant and scopes; by default only for the call or the session."""
        policy = self._granting_policy(prepared.tool)
        grant = ask.grant or (policy.rule_for(prepared.call, prepared.tool.spec) if policy is not None else "")
        return msgspec.structs.replace(ask, grant=grant, scopes=ask.scopes or ("once", "session"))

    def _ask_again(
        self, prepared: PreparedCall, ask: Ask | None, decisions: list[DecisionRecord], problem: str
    ) -> ApprovalRequested:
        """Return a new request after edited arguments were invalid; without ``ask`` it repeats the earlier one."""
        before = [d.approval for d in decisions if d.approval is not None and d.resolved][-1]
        ask = ask or Ask(
            rule=before.rule,
            layer=before.layer,
            reason=before.reason,
            message=before.message,
            grant=before.grant,
            decisions=before.decisions,
            scopes=before.scopes,
            asks=before.asks,
            folder=before.folder,
        )
        name, problem = prepared.call.name, "; ".join(problem.splitlines())
        why = f"{name} does not take the arguments that a person gave it: {problem}"
        return self._build_request(prepared, msgspec.structs.replace(ask, reason=why))

    def _build_request(self, prepared: PreparedCall, ask: Ask) -> ApprovalRequested:
        """Return the approval request. It offers no grant unless the policy supports grants."""
        ttl, policy = self.limits.approval_ttl, self._granting_policy(prepared.tool)
        spec = prepared.tool.spec
        return ApprovalRequested(
            approval=DecisionId(self.env.ids.new_id("apr")),
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
            agent=self.agent,
            effect=spec.effect,
            cwd=(policy.cwd or "") if policy is not None else "",
            folder=ask.folder or "",
            expires=format_timestamp(self.env.clock.time() + ttl) if ttl is not None else "",
            lasts=self.limits.grant_ttl,
        )

    def _answers_from_grants(self, call: CallId) -> list[ApprovalResolved]:
        """Return approvals for the open requests of a call that grants given meanwhile cover."""
        waiting = [d.id for d in self.log.state.decisions.values() if d.call == call and d.approval and d.waiting]
        why = "what was allowed meanwhile covers it"
        return [ApprovalResolved(approval=id, decision="approve", message=why, by="vaka") for id in waiting]


def _edited_digest(tool: Tool, edit: dict[str, Any]) -> Digest | None:
    """Return the digest of edited arguments as the tool parses them."""
    parsed = tool.parse(edit)
    return None if isinstance(parsed, InvalidArguments) else digest_of(parsed.value)


def _apply_edit(prepared: PreparedCall, edit: dict[str, Any] | None) -> PreparedCall:
    """Return the call with the arguments that a person has edited."""
    if edit is None:
        return prepared
    call = msgspec.structs.replace(prepared.call, arguments=edit, raw="", repaired="")
    return PreparedCall(prepared.tool, call, prepared.middleware_verdict)


def _last_edit_of(tool: Tool, decisions: list[DecisionRecord]) -> tuple[dict[str, Any] | None, str]:
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
