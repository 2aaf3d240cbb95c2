"""Asking a person through the log, and waiting for what they say."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from vaka.core.session.log import Log
from vaka.core.session.place import Place
from vaka.core.session.state import Decision
from vaka.core.types.control import ApprovalExpired, QuestionAnswered
from vaka.core.types.ids import DecisionId


async def decided(log: Log, place: Place, id: DecisionId, patient: Callable[[], bool] | None = None) -> Decision:
    """Wait until someone has decided, in whichever process, or the time is over; or, ``patient`` no more, give up."""
    while True:
        decision = log.state.decisions[id]
        if not decision.waiting or (patient is not None and not patient()):
            return decision
        left = _left(log, decision)
        if left is not None and left <= 0:
            await expire(log, place, decision)
            continue
        await _change(log, left)


async def expire(log: Log, place: Place, decision: Decision) -> None:
    """Write down that nobody decided in time; for an approval that is a no."""
    if decision.approval is not None:
        await log.append(place, ApprovalExpired(approval=decision.id))
    else:
        await log.append(place, QuestionAnswered(question=decision.id, answer=None, by="expiry"))


def overdue(log: Log, decision: Decision) -> bool:
    """Whether the time to decide is over."""
    left = _left(log, decision)
    return left is not None and left <= 0


def _left(log: Log, decision: Decision) -> float | None:
    return seconds_until(log, decision.expires) if decision.expires else None


def seconds_until(log: Log, when: str) -> float:
    """Return how long it is until a time of the log, negative when it has passed."""
    return _seconds(when) - log.clock.time()


def _seconds(when: str) -> float:
    return datetime.fromisoformat(when).timestamp()


async def _change(log: Log, left: float | None) -> None:
    """Return after the next event, or when ``left`` seconds have passed."""
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(log.changed())]
    if left is not None:
        waits.append(asyncio.ensure_future(log.clock.sleep(left)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
