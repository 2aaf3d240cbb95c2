"""The hooks of an engine as middleware: a turn fires their events and follows their decisions."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, cast

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.loop.stop import TurnStopped
from vaka.core.ports.policy import GrantingPolicy
from vaka.core.ports.turn_protocols import Approver, ContextPolicy, Continuation, Point
from vaka.core.types.context import CompactionRequest, ContextCompacted
from vaka.core.types.control import ApprovalRequested
from vaka.core.types.ending import Answer, Outcome, Reject
from vaka.core.types.message import Content, Text, ToolCall, ToolResult, text_of
from vaka.core.types.monitor import Logged
from vaka.core.types.state import agent_key
from vaka.core.types.tool import Allow, Ask, Deny
from vaka.core.types.traits import find_traits
from vaka.hooks.decision import HookDecision
from vaka.hooks.engine import HookEngine
from vaka.hooks.payload import call_fields, tool_response

HOOKS_NAME = "hooks"
"""The name of each middleware that fires hooks."""
RULE_NAME = "hook:pre_tool_use"
"""The rule that an approval is bound to when a hook asks."""

_REFUSED_COMPACTION = "hooks.refused_compaction"

_CALL_EVENTS = ("PreToolUse", "PostToolUse", "PostToolUseFailure")
_POINT_EVENTS: dict[Point, tuple[str, ...]] = {
    "before_agent": ("SessionStart", "SessionEnd", "UserPromptSubmit", "SubagentStart"),
    "before_tool": _CALL_EVENTS,
    "after_tool": _CALL_EVENTS,  # the context of PreToolUse is added to the result
    "after_agent": ("TokenUsage",),
}
"""The points of a turn, and the events that fire there."""


def make_middleware(engine: HookEngine) -> tuple[Middleware, ...]:
    """Return the middlewares that fire the hooks of an engine, with only the methods that a hook needs."""
    hooks = _HookPoints(engine)
    functions: dict[str, Callable[..., Awaitable[Any]]] = {
        point: getattr(hooks, point) for point, events in _POINT_EVENTS.items() if engine.handles(*events)
    }
    if engine.needs_sessions:
        functions["before_agent"] = hooks.before_agent
    made = list[Middleware]()
    if functions:
        points = Middleware.from_functions(HOOKS_NAME, **functions)
        points.inherited = tuple(_POINT_EVENTS)
        points.admits_steering = not engine.handles("SessionStart", "UserPromptSubmit")
        made.append(points)
    if engine.handles("PermissionRequest", "Notification", "PostToolUse", "PostToolUseFailure"):
        made.append(_ApprovalHooks(hooks))
    if engine.handles("PreCompact", "SessionStart"):
        made.append(_CompactionHooks(hooks))
    if engine.handles("Stop", "SubagentStop"):
        made.append(_StopHooks(hooks))
    return tuple(made)


class _HookPoints:
    """Fires the hooks of the points of a turn."""

    def __init__(self, engine: HookEngine) -> None:
        self.engine = engine

    async def before_agent(self, turn: Turn, content: Content) -> Content | Answer | Reject:
        if _is_resumed(turn):  # its prompt was checked when it began
            if not turn.path:
                begun = await self.engine.start_session(turn)
                self.log_messages(turn, "SessionStart", begun)
                self.engine.keep_context(turn.session, begun.context)
            return content
        if turn.path:
            decision = await self.fire(turn, "SubagentStart", _agent_fields(turn) | {"prompt": text_of(content)})
            if decision.stops:
                _stop_turn(turn, decision)
            return _with_context(content, decision)
        begun = await self.engine.start_session(turn)
        self.log_messages(turn, "SessionStart", begun)
        if begun.stops:
            return Reject(begun.stop_reason or "a hook of SessionStart ended the session")
        prompt = text_of(content)
        decision = await self.fire(turn, "UserPromptSubmit", {"prompt": prompt, "user_prompt": prompt})
        if decision.blocks or decision.stops:
            self.engine.keep_context(turn.session, begun.context)
            return Reject(decision.stop_reason or decision.reason or "a hook refused this prompt")
        return _with_context(_with_context(content, begun), decision)

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | Allow | Ask | Deny:
        decision = await self.fire(turn, "PreToolUse", self.fields_of(turn, call), call)
        turn.values.setdefault("hooks.begun", {})[call.id] = turn.env.clock.monotonic()
        if decision.stops:
            _stop_turn(turn, decision)
            return Deny(decision.stop_reason or "a hook ended the turn", rule=RULE_NAME)
        if decision.context:
            turn.values.setdefault("hooks.context", {})[call.id] = decision.context
        if decision.permission == "deny":
            return Deny(decision.reason or "a hook refused this call", rule=RULE_NAME)
        if decision.permission == "ask":
            reason = decision.reason or f"a hook asks about {call.name}"
            return Ask(reason, rule=RULE_NAME, arguments=decision.arguments)
        if decision.permission == "allow":
            return Allow(rule=RULE_NAME, arguments=decision.arguments)
        if decision.arguments is not None:
            return msgspec.structs.replace(call, arguments=decision.arguments)
        return call

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        fields = self.fields_of(turn, call)
        begun = turn.values.get("hooks.begun", {}).pop(call.id, None)
        if begun is not None:
            fields["duration_ms"] = int((turn.env.clock.monotonic() - begun) * 1000)
        if result.failed:
            fields |= {"error": result.text, "is_error": True, "is_interrupt": result.reason == "interrupted"}
            event = "PostToolUseFailure"
        else:
            response = tool_response(call, result, self.engine.settings.cwd)
            fields |= {"tool_response": response, "tool_result": result.text}
            event = "PostToolUse"
        try:
            with nullcontext() if turn.stop.reason is not None else turn.stop.cancellable():
                decision = await self.fire(turn, event, fields, call)
        except TurnStopped:  # a stop ends the hooks; the result of the call stays
            return result
        if decision.stops:
            _stop_turn(turn, decision)
        context = [*turn.values.get("hooks.context", {}).pop(call.id, ()), *decision.context]
        if decision.blocks:
            context.append(decision.reason or "a hook objects to this result")
        if not context:
            return result
        added = tuple(Text(text=f"\n\n{text}") for text in context)
        return msgspec.structs.replace(result, content=(*result.content, *added))

    async def after_agent(self, turn: Turn, outcome: Outcome) -> Outcome:
        used = turn.budget.used
        await self.fire(turn, "TokenUsage", msgspec.to_builtins(used) | {"total_tokens": used.total})
        return outcome

    async def fire(self, turn: Turn, event: str, fields: dict[str, Any], call: ToolCall | None = None) -> HookDecision:
        if not self.engine.handles(event):
            return HookDecision()
        covers = _rule_matcher(turn, call) if call is not None else None
        decision = await self.engine.fire(event, fields, session=turn.session, turn=turn, covers=covers)
        self.log_messages(turn, event, decision)
        return decision

    def log_messages(self, turn: Turn, event: str, decision: HookDecision) -> None:
        for message in decision.messages:
            turn.log.defer(turn.scope, Logged(level="warning", message=f"hook of {event}: {message}"))

    def fields_of(self, turn: Turn, call: ToolCall) -> dict[str, Any]:
        return call_fields(call, self.engine.settings.cwd, find_traits(turn.tools.get(call.name), call.name))


class _HookMiddleware(Middleware):
    """A middleware that fires hooks outside of the points of a turn."""

    def __init__(self, hooks: _HookPoints) -> None:
        self._hooks = hooks

    @property
    def name(self) -> str:
        return HOOKS_NAME


class _ApprovalHooks(_HookMiddleware, Approver):
    """Lets hooks decide about a call instead of a person, and tells them that one is asked."""

    inherited = ("decide_approval",)

    async def decide_approval(self, turn: Turn, request: ApprovalRequested) -> Allow | Deny | None:
        call = request.call
        turn.values.get("hooks.begun", {}).pop(call.id, None)  # the call's time does not include the person's
        fields = self._hooks.fields_of(turn, call) | {"reason": request.reason}
        if request.grant:
            fields["permission_suggestions"] = [_suggest_rules(request.grant.splitlines())]
        decision = await self._hooks.fire(turn, "PermissionRequest", fields, call)
        if decision.stops:
            _stop_turn(turn, decision)
        if decision.permission == "deny" or decision.stops:
            return Deny(decision.reason or decision.stop_reason or "a hook refused this call")
        if decision.permission == "allow":
            return Allow(rule="hook:permission_request", arguments=decision.arguments)
        if turn.env.ask != "deny":
            message = f"vaka needs your permission to use {call.name}"
            note = {"message": message, "title": "Permission needed", "notification_type": "permission_prompt"}
            await self._hooks.fire(turn, "Notification", note)
        return None


class _CompactionHooks(_HookMiddleware, ContextPolicy):
    """Lets hooks change or prevent a compaction."""

    inherited = ("before_compaction", "after_compaction")

    async def before_compaction(self, turn: Turn, request: CompactionRequest) -> CompactionRequest:
        """Let hooks add instructions, or prevent the compaction: never more than that."""
        fields = {
            "trigger": request.trigger,
            "custom_instructions": request.instructions,
            "estimated_tokens": request.tokens,
            "token_limit": request.window,
            "threshold": request.ratio,
            "preserve_count": request.keep_turns,
        }
        refused: str = turn.values.get(_REFUSED_COMPACTION, "") if request.trigger == "auto" else ""
        decision = HookDecision() if refused else await self._hooks.fire(turn, "PreCompact", fields)
        if decision.blocks or decision.stops:
            refused = decision.reason or decision.stop_reason or "a hook of PreCompact refused it"
            turn.values[_REFUSED_COMPACTION] = refused  # the context is too large at each later step of the turn, too
        if refused:
            return msgspec.structs.replace(request, skip=refused)
        instructions = "\n\n".join(text for text in (request.instructions, *decision.context) if text)
        return msgspec.structs.replace(request, instructions=instructions)

    async def after_compaction(self, turn: Turn, event: ContextCompacted) -> None:
        """Begin the session again for its hooks: the text that they added to a prompt may be part of the summary."""
        if turn.path or not event.summary:
            return
        begun = await self._hooks.engine.start_again(turn)
        self._hooks.log_messages(turn, "SessionStart", begun)
        self._hooks.engine.keep_context(turn.session, begun.context)


class _StopHooks(_HookMiddleware, Continuation):
    """Lets hooks send an agent on after its answer."""

    inherited = ("check_answer",)

    async def check_answer(self, turn: Turn, text: str) -> str:
        event = "SubagentStop" if turn.path else "Stop"
        fields = {"stop_hook_active": turn.agent_progress.continued > 0, "last_assistant_message": text}
        if turn.path:
            fields |= _agent_fields(turn) | {"reason": "end"}
        decision = await self._hooks.fire(turn, event, fields)
        if decision.stops or not decision.blocks:
            return ""
        return decision.reason or "A hook asks you to go on."


def _is_resumed(turn: Turn) -> bool:
    """Return whether the log has the beginning of the agent's run already."""
    return agent_key(turn.path) in turn.state.lanes if turn.path else turn.state.turn is not None


def _rule_matcher(turn: Turn, call: ToolCall) -> Callable[[str], bool]:
    """Return the function that tells whether a permission rule matches a call."""
    tool = turn.tools.get(call.name)
    policy = cast("GrantingPolicy", turn.env.policy) if hasattr(turn.env.policy, "covers") else None
    return lambda rule: policy is not None and tool is not None and policy.covers(rule, call, tool.spec)


def _suggest_rules(rules: list[str]) -> dict[str, Any]:
    """Return allow rules such as ``Bash(git push:*)`` in the form of Claude Code."""
    split = [rule.removesuffix(")").partition("(") for rule in rules]
    tables = [{"toolName": tool, **({"ruleContent": content} if content else {})} for tool, _, content in split]
    return {"type": "addRules", "rules": tables, "behavior": "allow", "destination": "session"}


def _agent_fields(turn: Turn) -> dict[str, Any]:
    return {"agent_id": turn.path[-1], "agent_type": turn.agent, "agent_name": turn.agent}


def _with_context(content: Content, decision: HookDecision) -> Content:
    return (*content, *(Text(text=f"\n\n{text}") for text in decision.context))


def _stop_turn(turn: Turn, decision: HookDecision) -> None:
    turn.stop.trigger("interrupted", decision.stop_reason or decision.reason or "a hook ended the turn")
