"""From what the model asked to what may run: read, validate, middleware, rules, a person.

The same path serves every call, also after a restart: what was decided before is in the log and is looked up there.
"""

from typing import Any, TypeAlias

import msgspec

from vaka.core.loop.approval import again, edit_of, granted, of_middleware, refusal, request, rules_of, satisfied
from vaka.core.loop.result import as_result, failure
from vaka.core.loop.scope import Turn
from vaka.core.ports.tool import Tool
from vaka.core.session.state import OpenCall
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.tool import PROTECTED, Ask, Deny, Problem

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
    """A call that may run, and where: the rules looked at it from there."""

    tool: Tool
    call: ToolCall
    folder: str = ""


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
    refused = refusal(candidate.call.id, decisions)
    if refused is not None:
        return refused
    edit, problem = edit_of(candidate.tool, decisions)
    edited = _edited(candidate, edit)
    tool, call, spec = edited.tool, edited.call, edited.tool.spec
    verdict = rules_of(turn, spec).judge(call, spec, turn.path)
    if isinstance(verdict, Deny):
        return failure(call.id, "denied", verdict.reason or f"{call.name} is not allowed here")
    for ask in (verdict, edited.asked):
        if not isinstance(ask, Ask) or satisfied(turn, edited, ask, decisions):
            continue
        if ask is not verdict and granted(turn, edited, ask):
            continue
        if edit is not None and ask.layer == PROTECTED:
            return failure(call.id, "denied", f"a person changed this call, but not into that: {ask.reason}")
        ask = ask if ask is verdict else of_middleware(turn, edited, ask)
        return again(turn, edited, ask, decisions, problem) if problem else request(turn, edited, ask)
    return again(turn, edited, None, decisions, problem) if problem else Ready(tool, call, turn.folder)


def _validated(tool: Tool, call: ToolCall, asked: Ask | None) -> Candidate | ToolResult:
    parsed = tool.parse(call.arguments)
    if isinstance(parsed, Problem):
        return failure(call.id, "invalid_arguments", parsed.message)
    return Candidate(tool, msgspec.structs.replace(call, arguments=parsed.value), asked)


def _unknown(turn: Turn, name: str) -> str:
    names = ", ".join(sorted(name for name, tool in turn.tools.items() if turn.env.policy.visible(tool.spec)))
    return f"there is no tool {name!r}; the tools are: {names}" if names else f"there is no tool {name!r}"


def _edited(candidate: Candidate, edit: dict[str, Any] | None) -> Candidate:
    """Return the call with the arguments a person gave it."""
    if edit is None:
        return candidate
    call = msgspec.structs.replace(candidate.call, arguments=edit, raw="", repaired="")
    return Candidate(candidate.tool, call, candidate.asked)
