"""A call that had begun when its process died: run it again, or find out what became of it."""

from typing import Literal

import msgspec

from vaka.core.loop.scope import Turn
from vaka.core.session.decision import seconds_until
from vaka.core.session.state import Decision, OpenCall, call_id
from vaka.core.types.content import Text
from vaka.core.types.control import QuestionAsked
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, DecisionId
from vaka.core.types.message import ToolResult
from vaka.core.types.progress import ToolCalled, ToolFailed

OUTCOMES = ("happened", "did not happen", "leave it")
_LOST = "The process stopped while this call was running."


def again(turn: Turn, open: OpenCall) -> bool:
    """Whether a begun call may simply run again: its tool said so when it began, and still says so."""
    tool = turn.tools.get(open.call.name)
    return open.effect != "once" and (tool is None or tool.spec.effect != "once")


async def let_it_end(turn: Turn, open: OpenCall) -> None:
    """Wait until a lost ``once`` call can no longer be at work: its deadline has passed."""
    if open.deadline:
        left, tool = seconds_until(turn.log, open.deadline), turn.tools.get(open.call.name)
        if tool is not None and tool.spec.timeout is not None:
            left = min(left, tool.spec.timeout)  # more only by a clock that was set back
        if left > 0:
            with turn.stop.region():
                await turn.env.clock.sleep(left)


def question(turn: Turn, open: OpenCall) -> QuestionAsked:
    """Return what a person is asked about a lost call."""
    arguments = msgspec.json.encode(open.call.arguments).decode()
    return QuestionAsked(
        question=question_id(turn, open), call=open.call.id, kind="outcome", options=OUTCOMES,
        text=f"{_LOST} Did {open.call.name} {arguments} happen? Answer {{'outcome': 'happened', 'result': …}}, "
        "{'outcome': 'did not happen'} to run it as a new call, or {'outcome': 'leave it'}.",
    )  # fmt: skip


def question_id(turn: Turn, open: OpenCall) -> DecisionId:
    """Return the id of that question: the same after every restart."""
    return DecisionId(f"qst_{turn.id}_{open.call.id}_outcome")


def unknown(open: OpenCall) -> ToolResult:
    """Return the result of a call nobody knows the outcome of."""
    return open.sealed("outcome_unknown", _LOST)


def outcome(decision: Decision) -> tuple[Literal["happened", "repeat", "leave"], JSON]:
    """Read a person's answer; anything unclear leaves the call alone."""
    answer: JSON = decision.answered.answer if decision.answered else None
    whole: dict[str, JSON] = answer if hasattr(answer, "get") else {"outcome": answer}
    said = whole.get("outcome")
    if said == OUTCOMES[0]:
        return "happened", whole.get("result")
    if said == OUTCOMES[1]:
        return "repeat", None
    return "leave", None


def repeat(turn: Turn, open: OpenCall) -> tuple[list[Body], OpenCall]:
    """Return the events that end a lost call and begin it anew under its own id and key."""
    number = turn.next_call
    call = msgspec.structs.replace(open.call, id=call_id(turn.path, number))
    ended = ToolResult(
        call=open.call.id, failed=True, reason="outcome_unknown",
        content=(Text(text=f"{_LOST} A person says it did not happen; it runs again as {call.id}."),),
    )  # fmt: skip
    fresh = OpenCall(call=call, path=open.path, message=open.message, step=open.step, number=number)
    return [ToolFailed(result=ended), ToolCalled(call=call, message_id=open.message)], fresh
