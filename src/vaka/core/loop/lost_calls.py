"""Lost calls: tools that were running when their process stopped. A person says what became of a ``once`` call."""

from typing import Literal

import msgspec

from vaka.core.loop.tool_result import as_result
from vaka.core.loop.wait import DecisionWaits, seconds_until
from vaka.core.ports.log import Log
from vaka.core.ports.tool import Tool
from vaka.core.types.control import QuestionAsked
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, DecisionId
from vaka.core.types.message import Text, ToolResult
from vaka.core.types.progress import ToolCalled, ToolFailed
from vaka.core.types.state import DecisionRecord, OpenCall, call_id

OUTCOMES = ("happened", "did not happen", "leave it")

_LOST_TEXT = "The process stopped while this call was running."


def may_rerun(open_call: OpenCall, tool: Tool | None) -> bool:
    """Whether a started call may run again: the effect of its tool is not ``once``, neither at its start nor now."""
    return open_call.effect != "once" and (tool is None or tool.spec.effect != "once")


async def resolve_lost_call(waits: DecisionWaits, open_call: OpenCall, tool: Tool | None) -> ToolResult | None:
    """Return the result of a lost ``once`` call, ``None`` when it did not happen and is to run as a new call.

    Raises ``DecisionPending`` while the outcome is unknown and the turn is to suspend.
    """
    log, id = waits.log, DecisionId(f"qst_{waits.scope.turn}_{open_call.call.id}_outcome")
    if id not in log.state.decisions:
        if not log.predecessor_died():
            await _wait_for_deadline(waits, open_call, tool)
        if waits.env.ask == "deny":
            return open_call.sealed_result("outcome_unknown", _LOST_TEXT)
        await log.append(waits.scope, _outcome_question(id, open_call))
    await waits.wait(id)
    outcome, value = _parse_outcome(log.state.decisions[id])
    if outcome == "happened":
        return as_result(open_call.call.id, "" if value is None else value)
    return open_call.sealed_result("outcome_unknown", _LOST_TEXT) if outcome == "leave" else None


def restart_call(log: Log, open_call: OpenCall) -> tuple[list[Body], OpenCall]:
    """Return the events that end a lost call and repeat it as a new call, and that call, with a new id and key."""
    number = log.pending.next_call_number(log.state, open_call.path)
    call = msgspec.structs.replace(open_call.call, id=call_id(open_call.path, number))
    ended = ToolResult(
        call=open_call.call.id,
        failed=True,
        reason="outcome_unknown",
        content=(Text(text=f"{_LOST_TEXT} A person says it did not happen; it runs again as {call.id}."),),
    )
    fresh = OpenCall(call=call, path=open_call.path, message=open_call.message, step=open_call.step, number=number)
    return [ToolFailed(result=ended), ToolCalled(call=call, message_id=open_call.message)], fresh


async def _wait_for_deadline(waits: DecisionWaits, open_call: OpenCall, tool: Tool | None) -> None:
    """Wait until the deadline of a lost ``once`` call has passed: another process may still run it."""
    if open_call.deadline:
        left = seconds_until(waits.log, open_call.deadline)
        if tool is not None and tool.spec.timeout is not None:
            left = min(left, tool.spec.timeout)  # more is left only if the clock was set back
        if left > 0:
            with waits.stop.cancellable():
                await waits.env.clock.sleep(left)


def _outcome_question(id: DecisionId, open_call: OpenCall) -> QuestionAsked:
    arguments = msgspec.json.encode(open_call.call.arguments).decode()
    return QuestionAsked(
        question=id,
        call=open_call.call.id,
        kind="outcome",
        options=OUTCOMES,
        text=f"{_LOST_TEXT} Did {open_call.call.name} {arguments} happen? Answer 'happened', 'did not happen' "
        "to run it as a new call, or 'leave it'. An answer with its result is "
        '{"outcome": "happened", "result": …}.',
    )


def _parse_outcome(decision: DecisionRecord) -> tuple[Literal["happened", "repeat", "leave"], JSON]:
    """Parse the answer to an outcome question; an answer in no known form means ``leave``."""
    answer: JSON = decision.answered.answer if decision.answered else None
    if isinstance(answer, str):
        answer = _parse_text(answer)
    fields: dict[str, JSON] = answer if hasattr(answer, "get") else {"outcome": answer}
    outcome = fields.get("outcome")
    if outcome == OUTCOMES[0]:
        return "happened", fields.get("result")
    if outcome == OUTCOMES[1]:
        return "repeat", None
    return "leave", None


def _parse_text(text: str) -> JSON:
    """Return the object that a text contains, else the text: clients of chat protocols answer with text alone."""
    try:
        found: JSON = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text.strip()
    return found if hasattr(found, "get") else text.strip()
