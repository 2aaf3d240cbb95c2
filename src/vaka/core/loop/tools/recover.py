"""Recover a call that had started when its process died: run it again, or ask a person for its outcome."""

from typing import Literal

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.session.await_decision import seconds_until
from vaka.core.session.state import DecisionRecord, OpenCall, call_id
from vaka.core.types.control import QuestionAsked
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, DecisionId
from vaka.core.types.message import Text, ToolResult
from vaka.core.types.progress import ToolCalled, ToolFailed

OUTCOMES = ("happened", "did not happen", "leave it")
_LOST_TEXT = "The process stopped while this call was running."


def may_rerun(turn: Turn, open_call: OpenCall) -> bool:
    """Whether a started call may run again: the effect of its tool is not ``once``, neither at its start nor now."""
    tool = turn.tools.get(open_call.call.name)
    return open_call.effect != "once" and (tool is None or tool.spec.effect != "once")


async def wait_for_deadline(turn: Turn, open_call: OpenCall) -> None:
    """Wait until the deadline of a lost ``once`` call has passed: another process may still run it."""
    if open_call.deadline:
        left, tool = seconds_until(turn.log, open_call.deadline), turn.tools.get(open_call.call.name)
        if tool is not None and tool.spec.timeout is not None:
            left = min(left, tool.spec.timeout)  # more is left only if the clock was set back
        if left > 0:
            with turn.stop.cancellable():
                await turn.env.clock.sleep(left)


def outcome_question(turn: Turn, open_call: OpenCall) -> QuestionAsked:
    """Return the question to a person about the outcome of a lost call."""
    arguments = msgspec.json.encode(open_call.call.arguments).decode()
    return QuestionAsked(
        question=outcome_question_id(turn, open_call),
        call=open_call.call.id,
        kind="outcome",
        options=OUTCOMES,
        text=f"{_LOST_TEXT} Did {open_call.call.name} {arguments} happen? Answer "
        "{'outcome': 'happened', 'result': …}, {'outcome': 'did not happen'} "
        "to run it as a new call, or {'outcome': 'leave it'}.",
    )


def outcome_question_id(turn: Turn, open_call: OpenCall) -> DecisionId:
    """Return the id of the outcome question: the same after every restart."""
    return DecisionId(f"qst_{turn.id}_{open_call.call.id}_outcome")


def unknown_outcome_result(open_call: OpenCall) -> ToolResult:
    """Return the result of a call whose outcome is unknown."""
    return open_call.sealed_result("outcome_unknown", _LOST_TEXT)


def parse_outcome(decision: DecisionRecord) -> tuple[Literal["happened", "repeat", "leave"], JSON]:
    """Parse the answer to an outcome question; an answer in no known form means ``leave``."""
    answer: JSON = decision.answered.answer if decision.answered else None
    fields: dict[str, JSON] = answer if hasattr(answer, "get") else {"outcome": answer}
    outcome = fields.get("outcome")
    if outcome == OUTCOMES[0]:
        return "happened", fields.get("result")
    if outcome == OUTCOMES[1]:
        return "repeat", None
    return "leave", None


def restart_call(turn: Turn, open_call: OpenCall) -> tuple[list[Body], OpenCall]:
    """Return the events that end a lost call and repeat it as a new call, and that call, with a new id and key."""
    number = turn.next_call_number
    call = msgspec.structs.replace(open_call.call, id=call_id(turn.path, number))
    ended = ToolResult(
        call=open_call.call.id, failed=True, reason="outcome_unknown",
        content=(Text(text=f"{_LOST_TEXT} A person says it did not happen; it runs again as {call.id}."),),
    )  # fmt: skip
    fresh = OpenCall(call=call, path=open_call.path, message=open_call.message, step=open_call.step, number=number)
    return [ToolFailed(result=ended), ToolCalled(call=call, message_id=open_call.message)], fresh
