"""Reservations: what running model calls may still cost and others must not spend."""

import asyncio
from contextvars import ContextVar

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.ids import AgentPath
from vaka.core.types.message import Usage

_CURRENT_RESERVATION: ContextVar["Reservation | None"] = ContextVar("vaka.hold", default=None)
"""What the model call holds that this task is in: whatever is used inside of it cannot wait for its end."""


class Reservation(msgspec.Struct, eq=False):
    """What one model call may cost, from before it begins until what it did cost is put down."""

    prompt: Prompt
    """The prompt, with its answer bounded by what is left."""
    path: AgentPath = ()
    usage: Usage = Usage()
    waitable: bool = True
    """Whether it ends by itself: only for such calls others may wait."""
    reservations: "Reservations | None" = None

    def settle(self, usage: Usage) -> None:
        """Replace the estimate by the real ``usage``; other calls no longer wait for this one."""
        self.usage, self.waitable = usage, False
        if self.reservations is not None:
            self.reservations.wake_waiters()

    def release(self) -> None:
        """Let others spend what is left; safe to call twice."""
        purse, self.reservations = self.reservations, None
        if purse is not None:
            purse.active.remove(self)
            purse.wake_waiters()


class Reservations:
    """What is held of the budgets of one turn; its agents, tools and scripts share it."""

    def __init__(self) -> None:
        self.active: list[Reservation] = []
        self.model_calls: dict[str, int] = {}
        """The last model call of each agent that a tool has begun here; it may not be in the log yet."""
        self._changed: asyncio.Event | None = None

    def reserved_usage(
        self, path: AgentPath, *, without: Reservation | None = None, include_waitable: bool = True
    ) -> Usage:
        """Return what is held of the budget of the agent at ``path``, by itself or by anyone below it."""
        mine = [hold for hold in self.active if hold.path[: len(path)] == path and hold is not without]
        return sum(
            [
                hold.usage
                for hold in mine
                if include_waitable or not hold.waitable or hold is _CURRENT_RESERVATION.get()
            ],
            Usage(),
        )

    def add(self, reservation: Reservation) -> Reservation:
        """Keep others from spending what a call may cost."""
        reservation.reservations = self
        self.active.append(reservation)
        _CURRENT_RESERVATION.set(reservation)
        return reservation

    async def wait_for_release(self) -> None:
        """Return when something is no longer held."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def wake_waiters(self) -> None:
        """Let everyone who waits look again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None
