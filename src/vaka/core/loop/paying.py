"""Who pays for what is used in a task: the turn that is at work there, and the tool call inside it.

For what is used without a word about who wants it, such as an embedder that a tool was made with.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from vaka.core.loop.budget import require
from vaka.core.loop.scope import Turn
from vaka.core.types.ids import CallId
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.usage import Usage


class Payer(NamedTuple):
    """A turn, and the call that its tool serves, if one does."""

    turn: Turn
    call: CallId | None = None


_NOW: ContextVar[Payer | None] = ContextVar("vaka.payer", default=None)


@contextmanager
def at_work(turn: Turn) -> Generator[None]:
    """Let a turn pay for what is used inside, and in tasks that begin there, until it is over."""
    before = _NOW.set(Payer(turn))
    try:
        yield
    finally:
        turn.over = True
        _NOW.reset(before)


def serve(turn: Turn, call: CallId) -> None:
    """Let a call pay for what is used in this task from now on."""
    _NOW.set(Payer(turn, call))


async def payable(usage: Usage, unpriced: str = "") -> None:
    """Return when the budgets of whoever pays here have room for ``usage``; nobody has no budget.

    Raises ``Stopped`` when they never will, and ``ConfigError`` when there is a budget in money, and ``unpriced`` says
    why the price is not known.
    """
    now = _NOW.get()
    if now is not None and not now.turn.over:
        await require(now.turn, usage, unpriced)


def charge(model: str, usage: Usage) -> bool:
    """Put down what was used in the log of whoever pays here; return whether there is anybody."""
    now = _NOW.get()
    if now is None or now.turn.over:
        return False
    turn = now.turn
    turn.log.later(turn.at, UsageRecorded(model=model, usage=usage, agent=turn.agent, call=now.call))
    return True
