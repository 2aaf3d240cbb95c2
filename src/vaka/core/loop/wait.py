"""The decisions of people: wait for one in the log, or take the default, as the ``AskMode`` of the runtime says.

A call that was lost needs one too: its tool was running when its process stopped, and only a person knows its outcome.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from vaka.core.loop.stop import StopSignal, Timer
from vaka.core.ports.env import Env, format_timestamp
from vaka.core.ports.log import Log
from vaka.core.ports.tool import Tool
from vaka.core.types.control import QuestionAsked
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, DecisionId, EventScope
from vaka.core.types.message import Text, ToolResult
from vaka.core.types.outcome import LOST_TEXT, outcome_question, parse_outcome
from vaka.core.types.progress import ToolCalled, ToolFailed
from vaka.core.types.state import DecisionRecord, OpenCall, call_id
from vaka.core.types.tool_result import as_result


class DecisionPending(Exception):  # not an error: a person is asked
    """Work needs the decision of a person, and the ``AskMode`` is to suspend."""

    def __init__(self, *decisions: DecisionId) -> None:
        super().__init__(", ".join(decisions))
        self.decisions = decisions


class DecisionWaits:
    """The waits of one agent in one step for decisions."""

    def __init__(self, log: Log, scope: EventScope, env: Env, stop: StopSignal, timer: Timer) -> None:
        self.log = log
        self.scope = scope
        self.env = env
        self.stop = stop
        self.timer = timer

    async def wait(self, id: DecisionId, needed: Callable[[], bool] = lambda: True) -> None:
        """Wait for a decision, or take the default one; return as soon as it is no longer ``needed``.

        Raises ``DecisionPending`` to suspend the turn.
        """

        def keep_waiting() -> bool:
            return self.env.can_wait() and needed()

        while (decision := self.log.state.decisions[id]).waiting and needed():
            if self.env.ask == "wait":
                with self.timer.pause(), self.stop.cancellable():
                    await wait_for_decision(self.log, self.scope, id, keep_waiting)
            elif is_overdue(self.log, decision):
                await self.log.append(self.scope, decision.expiry_event())
            elif self.env.ask == "suspend":
                raise DecisionPending(id)
            else:
                await self.log.append(self.scope, decision.default_answer())

    async def ask(self, question: QuestionAsked, timer: Timer, expires_in: float | None = None) -> JSON:
        """Ask once and return the answer, ``None`` when it expires after some seconds or no one may be asked.

        ``timer`` is paused during the wait. Raises ``DecisionPending`` to suspend the turn.
        """
        log, id = self.log, question.question

        def may_ask() -> bool:
            return log.state.turn is None or not log.state.turn.rejected

        if id not in log.state.decisions:
            if self.env.ask == "deny" or not may_ask():
                return None
            if expires_in is not None:
                expires = format_timestamp(self.env.clock.time() + expires_in)
                question = msgspec.structs.replace(question, expires=expires)
            await log.append(self.scope, question)
        while (decision := log.state.decisions[id]).waiting and may_ask():
            if self.env.ask == "wait":
                with timer.pause():
                    await wait_for_decision(log, self.scope, id, lambda: self.env.can_wait() and may_ask())
            elif self.env.ask == "suspend" and not is_overdue(log, decision):
                raise DecisionPending(id)
            else:
                await log.append(self.scope, decision.expiry_event())
        return decision.answered.answer if decision.answered else None


async def wait_for_decision(
    log: Log, scope: EventScope, id: DecisionId, keep_waiting: Callable[[], bool] | None = None
) -> DecisionRecord:
    """Return a decision once it is taken, in any process, or has expired; undecided when ``keep_waiting`` is false."""
    while True:
        decision = log.state.decisions[id]
        if not decision.waiting or (keep_waiting is not None and not keep_waiting()):
            return decision
        left = seconds_until(log, decision.expires) if decision.expires else None
        if left is not None and left <= 0:
            await log.append(scope, decision.expiry_event())
        else:
            await _wait_for_change(log, left)


def is_overdue(log: Log, decision: DecisionRecord) -> bool:
    return bool(decision.expires) and seconds_until(log, decision.expires) <= 0


def seconds_until(log: Log, when: str) -> float:
    """Return the seconds until a timestamp of the log, negative when it has passed."""
    return datetime.fromisoformat(when).timestamp() - log.clock.time()


async def _wait_for_change(log: Log, timeout: float | None) -> None:
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(log.wait_for_change())]
    if timeout is not None:
        waits.append(asyncio.ensure_future(log.clock.sleep(timeout)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


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
            return open_call.sealed_result("outcome_unknown", LOST_TEXT)
        await log.append(waits.scope, outcome_question(id, open_call))
    await waits.wait(id)
    outcome, value = parse_outcome(log.state.decisions[id])
    if outcome == "happened":
        return as_result(open_call.call.id, "" if value is None else value)
    return open_call.sealed_result("outcome_unknown", LOST_TEXT) if outcome == "leave" else None


def restart_call(log: Log, open_call: OpenCall) -> tuple[list[Body], OpenCall]:
    """Return the events that end a lost call and repeat it as a new call, and that call, with a new id and key."""
    number = log.pending.next_call_number(log.state, open_call.path)
    call = msgspec.structs.replace(open_call.call, id=call_id(open_call.path, number))
    ended = ToolResult(
        call=open_call.call.id,
        failed=True,
        reason="outcome_unknown",
        content=(Text(text=f"{LOST_TEXT} A person says it did not happen; it runs again as {call.id}."),),
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
