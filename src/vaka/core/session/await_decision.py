"""Wait for a decision in the log, or let it expire."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from vaka.core.session.log import Log
from vaka.core.session.state import DecisionRecord
from vaka.core.types.control import ApprovalExpired, QuestionAnswered
from vaka.core.types.ids import DecisionId, EventScope


async def wait_for_decision(
    log: Log, scope: EventScope, id: DecisionId, keep_waiting: Callable[[], bool] | None = None
) -> DecisionRecord:
    """Wait until someone has decided, in whichever process, or the time is over; or, ``patient`` no more, give up."""
    while True:
        decision = log.state.decisions[id]
        if not decision.waiting or (keep_waiting is not None and not keep_waiting()):
            return decision
        left = _seconds_left(log, decision)
        if left is not None and left <= 0:
            await expire_decision(log, scope, decision)
            continue
        await _wait_for_change(log, left)


async def expire_decision(log: Log, scope: EventScope, decision: DecisionRecord) -> None:
    """Write down that nobody decided in time; for an approval that is a no."""
    if decision.approval is not None:
        await log.append(scope, ApprovalExpired(approval=decision.id))
    else:
        await log.append(scope, QuestionAnswered(question=decision.id, answer=None, by="expiry"))


def is_overdue(log: Log, decision: DecisionRecord) -> bool:
    """Whether the time to decide is over."""
    left = _seconds_left(log, decision)
    return left is not None and left <= 0


def _seconds_left(log: Log, decision: DecisionRecord) -> float | None:
    return seconds_until(log, decision.expires) if decision.expires else None


def seconds_until(log: Log, when: str) -> float:
    """Return how long it is until a time of the log, negative when it has passed."""
    return _timestamp_of(when) - log.clock.time()


def _timestamp_of(when: str) -> float:
    return datetime.fromisoformat(when).timestamp()


async def _wait_for_change(log: Log, left: float | None) -> None:
    """Return after the next event, or when ``left`` seconds have passed."""
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(log.wait_for_change())]
    if left is not None:
        waits.append(asyncio.ensure_future(log.clock.sleep(left)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
