"""Middleware for tool calls: approval, cool-down, retry, a limit of invalid calls, and results for imported calls."""

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.loop.call_context import CallContext
from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.loop.permission import PermittedCall
from vaka.core.loop.run_tool import run_in_context
from vaka.core.loop.stop import TurnStopped
from vaka.core.loop.wait import DecisionPending
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import ConfigError
from vaka.core.types.ids import AgentPath, CallId, MessageId, SessionId
from vaka.core.types.message import AssistantMessage, CallRef, FailureReason, Message, ToolCall, ToolMessage, ToolResult
from vaka.core.types.progress import ToolCompleted, ToolFailed
from vaka.core.types.state import OpenCall
from vaka.core.types.tool import Ask
from vaka.core.types.tool_result import failed_result

AllowedDecision: TypeAlias = Literal["approve", "edit", "reject"]

MAX_PAUSE = 30.0
"""The longest pause before a retry, in seconds."""
MAX_SESSIONS = 1024
"""Sessions whose tool calls are remembered."""
INVALID_CALLS_LIMIT = "invalid_calls"
CANCELLED = "This call has no result: the conversation went on before there was one."
MALFORMED = "This call was not run: its arguments could not be read."


class Review(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an approval of a tool is requested. A call can always be rejected."""

    allowed_decisions: tuple[AllowedDecision, ...] = ("approve", "edit", "reject")
    message: str = ""
    """The text of the request, instead of the default question."""


class Approval(Middleware):
    """Requests an approval before the named tools run; where no person can be asked they do not run.

    ``True`` asks, ``False`` does not, and a ``Review`` (or a mapping with its fields) sets how to ask. The name ``*``
    stands for every tool that is not named. With ``False`` the policy may still ask or deny.
    """

    def __init__(self, tools: "Mapping[str, bool | Review | Mapping[str, Any]]") -> None:
        self._reviews = {name: _parse_review(name, value) for name, value in tools.items()}

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | Ask:
        review = self._reviews.get(call.name, self._reviews.get("*"))
        if review is None:
            return call
        return Ask(
            reason=f"{call.name} needs approval",
            message=review.message,
            decisions=() if len(set(review.allowed_decisions)) == 3 else review.allowed_decisions,
        )


def _parse_review(name: str, value: Any) -> Review | None:
    if isinstance(value, bool):
        return Review() if value else None
    try:
        review = value if isinstance(value, Review) else msgspec.convert(dict(value), Review)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        expected = "true, false or {allowed_decisions, message}"
        raise ConfigError(f"approval of {name!r} must be {expected}, not {value!r}: {error}") from error
    if not {"approve", "edit"} & set(review.allowed_decisions):
        raise ConfigError(
            f"approval of {name!r} must allow 'approve' or 'edit'; to forbid a tool, deny it in the rules"
        )
    return review


class CoolDownRule(msgspec.Struct, frozen=True, kw_only=True):
    """The cool-down of a tool: seconds, steps of the agent, or both; with ``failures`` only after as many in a row."""

    seconds: float = 0.0
    steps: int = 0
    failures: int = 0


class _ToolUse(msgspec.Struct):
    """The last call of a tool in a session."""

    at: float = 0.0
    turn: tuple[str, AgentPath] = ("", ())
    """The turn and the agent that made the call; ``step`` is a step of that agent."""
    step: int = 0
    failures: int = 0
    """Failures in a row."""
    admitted: tuple[tuple[str, AgentPath], int, str] = (("", ()), 0, "")
    """The turn and agent, the step and the id of the last call that was allowed; others of that step are refused."""


class CoolDown(Middleware):
    """Refuses calls of a tool during its cool-down, with the time left. The name ``*`` stands for all other tools.

    Calls are remembered in this process, by session.
    """

    def __init__(self, tools: "Mapping[str, CoolDownRule | float]") -> None:
        self._rules = {
            name: rule if isinstance(rule, CoolDownRule) else CoolDownRule(seconds=rule) for name, rule in tools.items()
        }
        for name, rule in self._rules.items():
            valid = 0 <= rule.seconds < float("inf") and rule.steps >= 0 and rule.failures >= 0
            if not valid or not (rule.seconds or rule.steps):
                raise ConfigError(f"the cool-down of {name!r} must have seconds or steps above 0, not {rule!r}")
        self._uses: OrderedDict[SessionId, dict[str, _ToolUse]] = OrderedDict()

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | ToolResult:
        rule = self._rule_for(call.name)
        if rule is None:
            return call
        use = self._use_of(turn.session, call.name)
        refusal = self._refusal_text(turn, call.name, rule, use)
        if not refusal and not rule.failures:
            step = ((turn.id, turn.path), turn.scope.step)
            if use.admitted[:2] != step:
                use.admitted = (*step, call.id)
            elif use.admitted[2] != call.id:
                refusal = f"{call.name} can be called once in a step; do something else meanwhile"
        return failed_result(call.id, "denied", refusal) if refusal else call

    def _refusal_text(self, turn: Turn, name: str, rule: CoolDownRule, use: _ToolUse) -> str:
        if not use.turn[0] or use.failures < rule.failures:
            return ""
        seconds = rule.seconds - (turn.env.clock.monotonic() - use.at)
        steps = rule.steps - (turn.scope.step - use.step) + 1 if use.turn == (turn.id, turn.path) else 0
        left = [f"{seconds:.1f} s"] if seconds > 0 else []
        left += [f"{steps} more steps"] if steps > 0 else []
        why = f" after {use.failures} failures in a row" if rule.failures else ""
        return f"{name} is cooling down{why} for {' and '.join(left)}; do something else meanwhile" if left else ""

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        if self._rule_for(call.name) is not None:
            use = self._use_of(turn.session, call.name)
            use.at, use.step = turn.env.clock.monotonic(), turn.scope.step
            use.turn = (turn.id, turn.path)
            use.failures = use.failures + 1 if result.failed else 0
        return result

    def _rule_for(self, name: str) -> CoolDownRule | None:
        return self._rules.get(name) or self._rules.get("*")

    def _use_of(self, session: SessionId, tool: str) -> _ToolUse:
        uses = self._uses.setdefault(session, {})
        self._uses.move_to_end(session)
        if len(self._uses) > MAX_SESSIONS:
            self._uses.popitem(last=False)
        return uses.setdefault(tool, _ToolUse())


class ToolRetry(Middleware):
    """Repeats a failed call of a ``read`` tool up to ``times`` times; the pause doubles each time.

    Errors and timeouts are retried; denied, stopped and invalid calls are not. ``tools`` restricts it to some tools. A
    tool with another effect than ``read`` is never repeated.
    """

    inherited = ()

    def __init__(self, times: int = 2, *, pause: float = 0.5, tools: Collection[str] | None = None) -> None:
        if times < 1 or not 0 <= pause < float("inf"):
            raise ConfigError(f"times must be at least 1 and pause at least 0 seconds, not {times!r} and {pause!r}")
        self._times = times
        self._pause = pause
        self._tools = None if tools is None else frozenset(tools)

    async def after_tool(self, turn: Turn, call: ToolCall, result: ToolResult) -> ToolResult:
        tool = turn.tools.get(call.name)
        if tool is None or tool.spec.effect != "read" or (self._tools is not None and call.name not in self._tools):
            return result
        for number in range(1, self._times + 1):
            if not result.failed or result.reason not in ("error", "timeout"):
                break
            try:
                with turn.stop.cancellable():
                    await turn.env.clock.sleep(min(self._pause * 2 ** (number - 1), MAX_PAUSE))
            except TurnStopped:
                break
            result = await _rerun_read_call(turn, call, number) or result
        return result


async def _rerun_read_call(turn: Turn, call: ToolCall, retry_number: int) -> ToolResult | None:
    """Run a ``read`` call once more and return its result, ``None`` when it waits for a person.

    The log gets no events of the rerun, only the result that the middleware returns.
    """
    tool, open = turn.tools[call.name], turn.state.open.get(call.id)
    known = open or OpenCall(call=call, path=turn.path, message=MessageId(""), step=turn.scope.step, number=0)
    known = msgspec.structs.replace(known, asked=())  # the rerun makes model calls of its own
    permitted = PermittedCall(tool, call)
    try:
        return await run_in_context(permitted, CallContext(turn, known, permitted, retry_number))
    except DecisionPending:
        return None


class InvalidCallLimit(Middleware):
    """Ends a turn after ``Limits.stop_invalid`` steps in a row in which every call had invalid arguments."""

    async def after_step(self, turn: Turn) -> str:
        """Return the name of the limit when the last steps, this one included, had only invalid calls."""
        threshold = turn.limits.stop_invalid
        results = turn.log.pending.results
        steps = dict[int, bool]()
        if not threshold:
            return ""
        for scope, result in results:
            if scope.path == turn.path and result.reason != "invalid_arguments":
                return ""
        pending = [(scope.step, result) for scope, result in results if scope.path == turn.path]
        stored = [
            (event.step, event.data.result)
            for event in turn.log.window.events_at(turn.path)
            if event.turn == turn.id and isinstance(event.data, ToolCompleted | ToolFailed)
        ]
        for step, result in (*stored, *pending):
            steps[step] = steps.get(step, True) and result.reason == "invalid_arguments"
        first = max(turn.scope.step - threshold, 0)
        last = [steps.get(number, False) for number in range(turn.scope.step, first, -1)]
        return INVALID_CALLS_LIMIT if len(last) == threshold and all(last) else ""


class PatchToolCalls(Middleware):
    """Gives every call in the prompt exactly one result, right after the message that made it.

    The log of a session always has them; a history that other middleware imports may not.
    """

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        messages = patch_messages(prompt.messages)
        return prompt if messages == prompt.messages else msgspec.structs.replace(prompt, messages=messages)


def patch_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return messages with exactly one result for each call; of several the first counts, unmatched ones are dropped.

    Calls of one message that have the same id, or none, get unique ids, and the results are matched in order.
    """
    history = list(messages)
    patched: list[Message] = []
    for at, message in enumerate(history):
        if isinstance(message, ToolMessage):
            continue
        if not isinstance(message, AssistantMessage) or not message.calls:
            patched.append(message)
            continue
        by_id = _results_of_calls(message, history[at + 1 :])
        calls = _with_unique_ids(message.calls)
        results = [_result_for(new, by_id[old.id]) for old, new in zip(message.calls, calls, strict=True)]
        patched.append(message if calls == message.calls else _rename_calls(message, calls))
        patched.append(ToolMessage(results=tuple(results)))
    return tuple(patched)


def _results_of_calls(message: AssistantMessage, later: Sequence[Message]) -> dict[str, deque[ToolResult]]:
    """Return the results of a message's calls by id, up to the next message that uses one of the ids again."""
    counts = Counter(call.id for call in message.calls)
    results: dict[str, deque[ToolResult]] = {id: deque() for id in counts}
    for other in later:
        if isinstance(other, AssistantMessage) and any(call.id in counts for call in other.calls):
            break
        for result in other.results if isinstance(other, ToolMessage) else ():
            if result.call in results:
                results[result.call].append(result)
        if all(len(results[id]) >= count for id, count in counts.items()):
            break
    return results


def _with_unique_ids(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    original_ids = {call.id for call in calls}
    used_ids: set[str] = {""}
    unique: list[ToolCall] = []
    for call in calls:
        id, number = call.id, 1
        while id in used_ids or (id != call.id and id in original_ids):
            number += 1
            id = CallId(f"{call.id or 'call'}_{number}")
        used_ids.add(id)
        unique.append(call if id == call.id else msgspec.structs.replace(call, id=id, provider_id=""))
    return tuple(unique)


def _rename_calls(message: AssistantMessage, calls: tuple[ToolCall, ...]) -> AssistantMessage:
    """Return a message with renamed calls; references in its content are renamed in the same order."""
    new_ids = {call.id: deque[CallId]() for call in message.calls}
    for old, new in zip(message.calls, calls, strict=True):
        new_ids[old.id].append(new.id)
    content = [
        CallRef(id=new_ids[part.id].popleft()) if isinstance(part, CallRef) else part
        for part in message.content
        if not isinstance(part, CallRef) or new_ids.get(part.id)
    ]
    return msgspec.structs.replace(message, content=tuple(content), calls=calls)


def _result_for(call: ToolCall, results: deque[ToolResult]) -> ToolResult:
    if not results:
        return _missing_result(call)
    result = results.popleft()
    return result if result.call == call.id else msgspec.structs.replace(result, call=call.id)


def _missing_result(call: ToolCall) -> ToolResult:
    malformed = bool(call.raw and not call.repaired)
    text = MALFORMED if malformed else CANCELLED
    reason: FailureReason = "invalid_arguments" if malformed else "cancelled"
    return failed_result(call.id, reason, text)
