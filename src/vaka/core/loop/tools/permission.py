"""Decide whether a call may run: parse, validate, before_tool, policy, approval."""

from typing import Any, TypeAlias

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.tools.approvals import (
    ask_again,
    build_request,
    complete_middleware_ask,
    is_approved,
    is_granted,
    last_edit_of,
    policy_for,
    rejection_result,
)
from vaka.core.loop.tools.result import as_result, failed_result
from vaka.core.ports.tool import Tool
from vaka.core.session.state import OpenCall
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.tool import PROTECTED_LAYER, Ask, Deny, InvalidArguments

TRUNCATED_TEXT = (
    "This call was not run: the answer ended before it was whole, so part of the call may be missing. "
    "Make the call again, shorter or in several steps."
)


class PreparedCall(msgspec.Struct, frozen=True):
    """A call that passed validation and middleware; ``middleware_ask`` is an approval that a middleware requires."""

    tool: Tool
    call: ToolCall
    middleware_ask: Ask | None = None


class PermittedCall(msgspec.Struct, frozen=True):
    """A call that may run, and the folder in which the policy has judged it."""

    tool: Tool
    call: ToolCall
    folder: str = ""


Permission: TypeAlias = PermittedCall | ToolResult | ApprovalRequested


async def prepare_call(turn: Turn, open_call: OpenCall) -> PreparedCall | ToolResult:
    """Parse and validate a call and run ``before_tool``; a returned result ends the call."""
    tool, call = turn.tools.get(open_call.call.name), open_call.call
    if tool is None:
        return failed_result(call.id, "unknown_tool", _unknown_tool_text(turn, call.name))
    if not turn.env.policy.visible(tool.spec):
        return failed_result(call.id, "denied", f"{call.name} is not allowed here")
    if call.truncated:
        return failed_result(call.id, "invalid_arguments", TRUNCATED_TEXT)
    unread = call.raw and not call.repaired
    if unread or call.id in turn.state.open:  # a call parsed in this step is known to be valid
        parsed = tool.parse(call.raw if unread else call.arguments)
        if isinstance(parsed, InvalidArguments):
            return failed_result(call.id, "invalid_arguments", parsed.message)
        if unread:
            raw = call.raw if parsed.repaired else ""
            call = msgspec.structs.replace(call, arguments=parsed.value, raw=raw, repaired=parsed.repaired)
    changed, end, asked = await turn.middleware.before_tool(turn, call)
    if isinstance(end, Deny):
        return failed_result(call.id, "denied", end.reason or "a middleware refused this call")
    if isinstance(end, ToolResult):
        return as_result(call.id, end)
    turn.admitted_calls[call.name] += 1
    if open_call.phase == "started" or changed.arguments == call.arguments:
        return PreparedCall(tool, call, asked)  # a started call runs again with the same arguments
    return _validate_changed(tool, changed, asked)


def check_permission(turn: Turn, prepared: PreparedCall) -> Permission:
    """Judge a call by the policy and by earlier decisions. ``Deny`` wins; an ``Ask`` that was approved is satisfied."""
    decisions = [d for d in turn.state.decisions.values() if d.call == prepared.call.id and d.approval is not None]
    rejection = rejection_result(prepared.call.id, decisions)
    if rejection is not None:
        return rejection
    edit, problem = last_edit_of(prepared.tool, decisions)
    edited = _apply_edit(prepared, edit)
    tool, call, spec = edited.tool, edited.call, edited.tool.spec
    verdict = policy_for(turn, spec).judge(call, spec, turn.path)
    if isinstance(verdict, Deny):
        return failed_result(call.id, "denied", verdict.reason or f"{call.name} is not allowed here")
    for ask in (verdict, edited.middleware_ask):
        if not isinstance(ask, Ask) or is_approved(turn, edited, ask, decisions):
            continue
        if ask is not verdict and is_granted(turn, edited, ask):
            continue
        if edit is not None and ask.layer == PROTECTED_LAYER:
            return failed_result(call.id, "denied", f"a person changed this call, but not into that: {ask.reason}")
        ask = ask if ask is verdict else complete_middleware_ask(turn, edited, ask)
        return ask_again(turn, edited, ask, decisions, problem) if problem else build_request(turn, edited, ask)
    return (
        ask_again(turn, edited, None, decisions, problem) if problem else PermittedCall(tool, call, turn.shell_folder)
    )


def _validate_changed(tool: Tool, call: ToolCall, asked: Ask | None) -> PreparedCall | ToolResult:
    parsed = tool.parse(call.arguments)
    if isinstance(parsed, InvalidArguments):
        return failed_result(call.id, "invalid_arguments", parsed.message)
    return PreparedCall(tool, msgspec.structs.replace(call, arguments=parsed.value), asked)


def _unknown_tool_text(turn: Turn, name: str) -> str:
    names = ", ".join(sorted(name for name, tool in turn.tools.items() if turn.env.policy.visible(tool.spec)))
    return f"there is no tool {name!r}; the tools are: {names}" if names else f"there is no tool {name!r}"


def _apply_edit(prepared: PreparedCall, edit: dict[str, Any] | None) -> PreparedCall:
    """Return the call with the arguments that a person has edited."""
    if edit is None:
        return prepared
    call = msgspec.structs.replace(prepared.call, arguments=edit, raw="", repaired="")
    return PreparedCall(prepared.tool, call, prepared.middleware_ask)
