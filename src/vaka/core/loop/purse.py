"""What model calls that are under way may still cost: nobody else of the turn may spend it meanwhile."""

import asyncio
from contextvars import ContextVar

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.ids import Path
from vaka.core.types.usage import Usage

_MINE: ContextVar["Hold | None"] = ContextVar("vaka.hold", default=None)
"""What the model call holds that this task is in: whatever is used inside of it cannot wait for its end."""


class Hold(msgspec.Struct, eq=False):
    """What one model call may cost, from before it begins until what it did cost is put down."""

    prompt: Prompt
    """The prompt, with its answer bounded by what is left."""
    path: Path = ()
    usage: Usage = Usage()
    steady: bool = True
    """Whether it ends by itself: only for such calls others may wait."""
    purse: "Purse | None" = None

    def settle(self, usage: Usage) -> None:
        """The answer is there and has cost ``usage``: nobody waits for it any more, also not whoever looks at it."""
        self.usage, self.steady = usage, False
        if self.purse is not None:
            self.purse.nudge()

    def release(self) -> None:
        """Let others spend what is left; safe to call twice."""
        purse, self.purse = self.purse, None
        if purse is not None:
            purse.holds.remove(self)
            purse.nudge()


class Purse:
    """What is held of the budgets of one turn; its agents, tools and scripts share it."""

    def __init__(self) -> None:
        self.holds: list[Hold] = []
        self.asked: dict[str, int] = {}
        """The last model call of each agent that a tool has begun here; it may not be in the log yet."""
        self._changed: asyncio.Event | None = None

    def held(self, path: Path, *, without: Hold | None = None, steady: bool = True) -> Usage:
        """Return what is held of the budget of the agent at ``path``, by itself or by anyone below it."""
        mine = [hold for hold in self.holds if hold.path[: len(path)] == path and hold is not without]
        return sum([hold.usage for hold in mine if steady or not hold.steady or hold is _MINE.get()], Usage())

    def hold(self, hold: Hold) -> Hold:
        """Keep others from spending what a call may cost."""
        hold.purse = self
        self.holds.append(hold)
        _MINE.set(hold)
        return hold

    async def changed(self) -> None:
        """Return when something is no longer held."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def nudge(self) -> None:
        """Let everyone who waits look again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None
