"""From what the model asked to what may run: read, validate, middleware, rules, a person.

The same path serves every call, also after a restart: what was decided before is in the log and is looked up there.
"""

from typing import Any, TypeAlias

import msgspec

from vaka.core.loop.result import as_result, failure
from vaka.core.loop.scope import Turn
from vaka.core.ports.tool import Tool
from vaka.core.session.fold import grant_key
from vaka.core.session.log import stamp
from vaka.core.session.state import Decision, OpenCall
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.ids import CallId, DecisionId, Digest, digest_of
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.tool import Ask, Deny, Problem

TRUNCATED = (
    "This call was not run: the answer ended before it was whole, so part of the call may be missing. "
    "Make the call again, shorter or in several steps."
)


class Candidate(msgspec.Struct, frozen=True):
    """A call that passed validation and middleware; ``asked`` is what a middleware wants a person to decide."""

    tool: Tool
    call: ToolCall
    asked: Ask | None = None


class Ready(msgspec.Struct, frozen=True):
    """A call that may run."""

    tool: Tool
    call: ToolCall


Judged: TypeAlias = Ready | ToolResult | ApprovalRequested


async def consider(turn: Turn, open: OpenCall) -> Candidate | ToolResult:
    """Read, validate and hand a call to the middleware; a result means it ends here."""
    tool, call = turn.tools.get(open.call.name), open.call
    if tool is None:
        return failure(call.id, "unknown_tool", _unknown(turn, call.name))
    if not turn.env.policy.visible(tool.spec):
        return failure(call.id, "denied", f"{call.name} is not allowed here")
    if call.truncated:
        return failure(call.id, "invalid_arguments", TRUNCATED)
    unread = call.raw and not call.repaired
    if unread or call.id in turn.state.open:  # a call read in this very step is known to be valid
        parsed = tool.parse(call.raw if unread else call.arguments)
        if isinstance(parsed, Problem):
            return failure(call.id, "invalid_arguments", parsed.message)
        if unread:
            raw = call.raw if parsed.repaired else ""
            call = msgspec.structs.replace(call, arguments=parsed.value, raw=raw, repaired=parsed.repaired)
    changed, end, asked = await turn.chain.before_tool(turn, call)
    if isinstance(end, Deny):
        return failure(call.id, "denied", end.reason or "a middleware refused this call")
    if isinstance(end, ToolResult):
        return as_result(call.id, end)
    turn.admitted[call.name] += 1
    if open.phase == "started" or changed.arguments == call.arguments:
        return Candidate(tool, call, asked)  # what has begun runs again with what it began with
    return _validated(tool, changed, asked)


def judge(turn: Turn, candidate: Candidate) -> Judged:
    """Ask the rules, and what people have said already. Deny wins; an ask that was answered is satisfied."""
    decisions = [d for d in turn.state.decisions.values() if d.call == candidate.call.id and d.approval is not None]
    refused = _refusal(candidate.call.id, decisions)
    if refused is not None:
        return refused
    edited = _edited(candidate, decisions)
    if isinstance(edited, ToolResult):
        return edited
    tool, call, spec = edited.tool, edited.call, edited.tool.spec
    verdict = turn.env.policy.judge(call, spec, turn.path)
    if isinstance(verdict, Deny):
        return failure(call.id, "denied", verdict.reason or f"{call.name} is not allowed here")
    for ask in (verdict, edited.asked):
        if isinstance(ask, Ask) and not _satisfied(turn, edited, ask, decisions):
            return _request(turn, edited, ask)
    return Ready(tool, call)


def _validated(tool: Tool, call: ToolCall, asked: Ask | None) -> Candidate | ToolResult:
    parsed = tool.parse(call.arguments)
    if isinstance(parsed, Problem):
        return failure(call.id, "invalid_arguments", parsed.message)
    return Candidate(tool, msgspec.structs.replace(call, arguments=parsed.value), asked)


def _unknown(turn: Turn, name: str) -> str:
    names = ", ".join(sorted(name for name, tool in turn.tools.items() if turn.env.policy.visible(tool.spec)))
    return f"there is no tool {name!r}; the tools are: {names}" if names else f"there is no tool {name!r}"


def _refusal(call: CallId, decisions: list[Decision]) -> ToolResult | None:
    for decision in decisions:
        if decision.expired:
            return failure(call, "expired", "nobody approved this call in time, so it was not run")
        if decision.resolved is not None and decision.resolved.decision == "reject":
            said = decision.resolved.message
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


def _edited(candidate: Candidate, decisions: list[Decision]) -> Candidate | ToolResult:
    """Return the call with the arguments a person gave it last, checked again."""
    edits = [d.resolved.edit for d in decisions if d.resolved is not None and d.resolved.edit is not None]
    if not edits:
        return candidate
    call = msgspec.structs.replace(candidate.call, arguments=edits[-1], raw="", repaired="")
    return _validated(candidate.tool, call, candidate.asked)


def _satisfied(turn: Turn, candidate: Candidate, ask: Ask, decisions: list[Decision]) -> bool:
    spec, digest = candidate.tool.spec.digest, digest_of(candidate.call.arguments)
    if turn.state.grants.get(grant_key(candidate.call.name, ask.rule)) == spec:
        return True
    for decision in decisions:
        asked, said = decision.approval, decision.resolved
        if asked is None or said is None or asked.rule != ask.rule or asked.spec != spec:
            continue
        if digest == (asked.digest if said.edit is None else _digest(candidate.tool, said.edit)):
            return True
    return False


def _digest(tool: Tool, edit: dict[str, Any]) -> Digest | None:
    """Name the arguments a person wrote as the tool reads them."""
    parsed = tool.parse(edit)
    return None if isinstance(parsed, Problem) else digest_of(parsed.value)


def _request(turn: Turn, candidate: Candidate, ask: Ask) -> ApprovalRequested:
    ttl = turn.recipe.limits.approval_ttl
    return ApprovalRequested(
        approval=DecisionId(turn.env.ids.new("apr")), call=candidate.call, digest=digest_of(candidate.call.arguments),
        spec=candidate.tool.spec.digest, reason=ask.reason, rule=ask.rule, layer=ask.layer, message=ask.message,
        decisions=ask.decisions,
        expires=stamp(turn.env.clock.time() + ttl) if ttl is not None else "",
    )  # fmt: skip
