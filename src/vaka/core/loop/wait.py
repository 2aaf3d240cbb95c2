"""Wait for a decision in the log, or take the default one, as the ``AskMode`` of the runtime says."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from vaka.core.loop.stop import StopSignal, Timer
from vaka.core.ports.env import Env, format_timestamp
from vaka.core.ports.log import Log
from vaka.core.types.control import ApprovalExpired, ApprovalResolved, QuestionAnswered, QuestionAsked
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, DecisionId, EventScope
from vaka.core.types.state import DecisionRecord


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
                await expire_decision(self.log, self.scope, decision)
            elif self.env.ask == "suspend":
                raise DecisionPending(id)
            else:
                await self.log.append(self.scope, default_decision(decision))

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
                await expire_decision(log, self.scope, decision)
        return decision.answered.answer if decision.answered else None


def default_decision(decision: DecisionRecord) -> Body:
    """Return the decision that is taken when no person can be asked."""
    if decision.approval is None:
        return QuestionAnswered(question=decision.id, answer=None, by="vaka")
    why = "no person can be asked here"
    return ApprovalResolved(approval=decision.id, decision="reject", message=why, by="vaka")


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
            await expire_decision(log, scope, decision)
        else:
            await _wait_for_change(log, left)


async def expire_decision(log: Log, scope: EventScope, decision: DecisionRecord) -> None:
    """Append the expiry of a decision; an expired approval is a rejection."""
    if decision.approval is not None:
        await log.append(scope, ApprovalExpired(approval=decision.id))
    else:
        await log.append(scope, QuestionAnswered(question=decision.id, answer=None, by="expiry"))


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
