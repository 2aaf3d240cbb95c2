"""What people have said of a call, and what they are asked: a yes holds for what it was given for, and nothing else."""

from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from vaka.core.loop.result import failure
from vaka.core.loop.scope import Turn
from vaka.core.ports.policy import Granting, Placed, Policy
from vaka.core.ports.tool import Tool
from vaka.core.session.decision import decided, expire, overdue
from vaka.core.session.log import stamp
from vaka.core.session.state import Decision
from vaka.core.types.control import ApprovalRequested, ApprovalResolved, QuestionAnswered
from vaka.core.types.event import Body
from vaka.core.types.ids import CallId, DecisionId, Digest, digest_of
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.tool import Arguments, Ask, Grant, Problem, ToolSpec


class Asked(Protocol):
    """A call that a person may have to decide on."""

    @property
    def tool(self) -> Tool:
        """The tool that is called."""
        ...

    @property
    def call(self) -> ToolCall:
        """The call as it would run now."""
        ...


def rules_of(turn: Turn, spec: ToolSpec) -> Policy:
    """Return the rules a call is judged by: those of the runtime, with what people have allowed in this session.

    They look at paths from where the session's next command begins.
    """
    policy, grants, folder = _granting(turn), _grants(turn, spec), turn.folder
    if policy is not None:
        return policy.granted(grants) if grants else policy
    rules = turn.env.policy
    return cast("Placed", rules).at(folder) if folder and hasattr(rules, "at") else rules


def satisfied(turn: Turn, asked: Asked, ask: Ask, decisions: list[Decision]) -> bool:
    """Return whether a person has agreed to just this: the arguments, the tool and everything that asks, in time."""
    about = [d for d in decisions if d.approval is not None and ask.names <= d.approval.names]
    if not about or _folder_of(about[-1]) != ask.folder:
        return False
    return _agreed(turn, asked, about[-1])  # what is asked again takes the place of what was before


def granted(turn: Turn, asked: Asked, ask: Ask) -> bool:
    """Return whether what people have allowed in this session answers a question of a middleware."""
    policy = _granting(turn)
    return policy is not None and any(
        ask.names <= set(grant.answers) and policy.covers(grant.rule, asked.call, asked.tool.spec)
        for grant in _grants(turn, asked.tool.spec)
    )


def _folder_of(decision: Decision) -> str:
    return decision.approval.folder if decision.approval is not None else ""


def _agreed(turn: Turn, asked: Asked, decision: Decision) -> bool:
    request, said = decision.approval, decision.resolved
    if request is None or said is None or request.spec != asked.tool.spec.digest:
        return False
    if request.expires and stamp(turn.env.clock.time()) >= request.expires:
        return False
    meant = request.digest if said.edit is None else _digest(asked.tool, said.edit)
    return digest_of(asked.call.arguments) == meant


def _digest(tool: Tool, edit: dict[str, Any]) -> Digest | None:
    """Name the arguments a person wrote as the tool reads them."""
    parsed = tool.parse(edit)
    return None if isinstance(parsed, Problem) else digest_of(parsed.value)


def _grants(turn: Turn, spec: ToolSpec) -> list[Grant]:
    """Return what is still allowed and means this tool: one that has changed is another one."""
    if not turn.state.grants:
        return []
    now = stamp(turn.env.clock.time())
    return [
        grant for grant in turn.state.grants
        if (not grant.until or now < grant.until) and (grant.tool != spec.name or grant.spec == spec.digest)
    ]  # fmt: skip


def _granting(turn: Turn) -> Granting | None:
    policy, folder = turn.env.policy, turn.folder
    if not hasattr(policy, "granted"):
        return None
    return cast("Granting", cast("Placed", policy).at(folder) if folder and hasattr(policy, "at") else policy)


def refusal(call: CallId, decisions: list[Decision]) -> ToolResult | None:
    """Return the result of a call that people have refused, or not allowed in time."""
    for decision in decisions:
        if decision.expired:
            return failure(call, "expired", "nobody approved this call in time, so it was not run")
        if decision.resolved is not None and decision.resolved.decision == "reject":
            said = decision.resolved.message.strip()
            return failure(
                call, "denied", f"a person refused this call: {said}" if said else "a person refused this call"
            )
        if not _allowed(decision):
            return failure(call, "denied", "the answer to this call was not one of those allowed, so it was not run")
    return None


def _allowed(decision: Decision) -> bool:
    """Whether what a person said is among what they were asked to say."""
    asked, said = decision.approval, decision.resolved
    if asked is None or said is None or not asked.decisions:
        return True
    return ("edit" if said.edit is not None else "approve") in asked.decisions


def edit_of(tool: Tool, decisions: list[Decision]) -> tuple[dict[str, Any] | None, str]:
    """Return the arguments that a person gave a call last, and what is wrong with those of the last answer, if so.

    What the tool does not take counts as not said.
    """
    edit: dict[str, Any] | None = None
    problem = ""
    for said in [decision.resolved for decision in decisions if decision.resolved is not None]:
        parsed = tool.parse(said.edit) if said.edit is not None else None
        problem = parsed.message if isinstance(parsed, Problem) else ""
        edit = parsed.value if isinstance(parsed, Arguments) else edit
    return edit, problem


def again(turn: Turn, asked: Asked, ask: Ask | None, decisions: list[Decision], problem: str) -> ApprovalRequested:
    """Return the question once more, to a person whose arguments cannot be used; as it was if nothing else asks now."""
    before = [decision.approval for decision in decisions if decision.approval is not None and decision.resolved][-1]
    ask = ask or Ask(
        rule=before.rule, layer=before.layer, reason=before.reason, message=before.message, grant=before.grant,
        decisions=before.decisions, scopes=before.scopes, asks=before.asks, folder=before.folder,
    )  # fmt: skip
    why = f"{asked.call.name} does not take the arguments that a person gave it: {'; '.join(problem.splitlines())}"
    return request(turn, asked, msgspec.structs.replace(ask, reason=why))


def request(turn: Turn, asked: Asked, ask: Ask) -> ApprovalRequested:
    """Return the question to a person. Where the rules cannot keep what is allowed, a yes counts once."""
    ttl, spec, policy = turn.recipe.limits.approval_ttl, asked.tool.spec, _granting(turn)
    return ApprovalRequested(
        approval=DecisionId(turn.env.ids.new("apr")), call=asked.call, digest=digest_of(asked.call.arguments),
        spec=spec.digest, reason=ask.reason, rule=ask.rule, layer=ask.layer, message=ask.message,
        decisions=ask.decisions, grant=ask.grant if policy is not None else "", scopes=ask.scopes,
        asks=ask.asks if ask.asks != (ask.rule,) else (), agent=turn.agent, effect=spec.effect,
        cwd=(policy.cwd or "") if policy is not None else "", folder=ask.folder,
        expires=stamp(turn.env.clock.time() + ttl) if ttl is not None else "", lasts=turn.recipe.limits.grant_ttl,
    )  # fmt: skip


def of_middleware(turn: Turn, asked: Asked, ask: Ask) -> Ask:
    """Return a question as it is put: what a middleware asks it asks in every session, whatever settings allow."""
    policy = _granting(turn)
    grant = ask.grant or (policy.narrow(asked.call, asked.tool.spec) if policy is not None else "")
    return msgspec.structs.replace(ask, grant=grant, scopes=ask.scopes or ("once", "session"))


def same(known: ApprovalRequested | None, new: ApprovalRequested) -> bool:
    """Return whether a question was asked before."""
    return known is not None and (known.digest, known.spec, known.names, known.folder) == (
        new.digest, new.spec, new.names, new.folder,
    )  # fmt: skip


def unasked(request: ApprovalRequested) -> ToolResult:
    """Return the result of a call that nobody is asked about any more."""
    why = "a person refused another call and said nothing more, so the turn ended and this call was not run"
    return failure(request.call.id, "interrupted", why)


async def awaited(turn: Turn, id: DecisionId, needed: Callable[[], bool] = lambda: True) -> bool:
    """Wait for a decision if this is a place to wait; return whether it is taken, here perhaps by default.

    It is no longer waited for when it is not ``needed``; that counts as taken.
    """

    def patient() -> bool:
        return turn.env.patient() and needed()

    while (decision := turn.state.decisions[id]).waiting and needed():
        if turn.env.ask == "wait":
            with turn.timer.paused(), turn.stop.region():
                await decided(turn.log, turn.at, id, patient)
        elif overdue(turn.log, decision):
            await expire(turn.log, turn.at, decision)
        elif turn.env.ask == "suspend":
            return False
        else:
            await turn.log.append(turn.at, nobody(decision))
    return True


def nobody(decision: Decision) -> Body:
    """Return the decision that is taken when nobody can be asked."""
    if decision.approval is None:
        return QuestionAnswered(question=decision.id, answer=None, by="vaka")
    why = "nobody can be asked here"
    return ApprovalResolved(approval=decision.id, decision="reject", message=why, by="vaka")


def needless(turn: Turn, call: CallId) -> list[ApprovalResolved]:
    """Return the answers to questions about a call that what people have allowed meanwhile answers."""
    waiting = [d.id for d in turn.state.decisions.values() if d.call == call and d.approval and d.waiting]
    why = "what was allowed meanwhile covers it"
    return [ApprovalResolved(approval=id, decision="approve", message=why, by="vaka") for id in waiting]
