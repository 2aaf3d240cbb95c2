"""Wait for a decision in the log, or expire it."""

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
