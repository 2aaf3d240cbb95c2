"""Prepare a call for the decision whether it may run: parse, validate, ``before_tool``."""

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.permission import PreparedCall
from vaka.core.loop.tool_result import as_result, failed_result
from vaka.core.ports.tool import Tool
from vaka.core.types.message import ToolCall, ToolResult
from vaka.core.types.state import OpenCall
from vaka.core.types.tool import Allow, Ask, Deny, InvalidArguments

TRUNCATED_TEXT = (
    "This call was not run: the answer ended before it was whole, so part of the call may be missing. "
    "Make the call again, shorter or in several steps."
)


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
    chain = turn.middleware
    changed, end, verdict = await chain.run_before_tool(turn, call) if chain.before_tool else (call, None, None)
    if isinstance(end, Deny):
        return failed_result(call.id, "denied", end.reason or "a middleware refused this call")
    if isinstance(end, ToolResult):
        return as_result(call.id, end)
    turn.admitted_calls[call.name] += 1
    if open_call.phase == "started" or changed.arguments == call.arguments:
        return PreparedCall(tool, call, verdict)  # a started call runs again with the same arguments
    return validate_changed(tool, changed, verdict)


def validate_changed(tool: Tool, call: ToolCall, verdict: Ask | Allow | None) -> PreparedCall | ToolResult:
    """Return the prepared call with arguments that a middleware has changed, or the result that refuses them."""
    parsed = tool.parse(call.arguments)
    if isinstance(parsed, InvalidArguments):
        return failed_result(call.id, "invalid_arguments", parsed.message)
    return PreparedCall(tool, msgspec.structs.replace(call, arguments=parsed.value), verdict)


def _unknown_tool_text(turn: Turn, name: str) -> str:
    names = ", ".join(sorted(name for name, tool in turn.tools.items() if turn.env.policy.visible(tool.spec)))
    return f"there is no tool {name!r}; the tools are: {names}" if names else f"there is no tool {name!r}"
