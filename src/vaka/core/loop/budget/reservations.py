"""Reservations: the estimated usage of running model calls, which other calls must not spend."""

import asyncio
from contextvars import ContextVar

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.ids import AgentPath
from vaka.core.types.message import Usage

_CURRENT_RESERVATION: ContextVar["Reservation | None"] = ContextVar("vaka.hold", default=None)
"""The reservation of the model call this task runs in: work inside that call cannot wait for its release."""


class Reservation(msgspec.Struct, eq=False):
    """The estimated usage of one model call, reserved from before its start until its real usage is recorded."""

    prompt: Prompt
    """The prompt, with ``max_tokens`` lowered to what the budgets allow."""
    path: AgentPath = ()
    usage: Usage = Usage()
    waitable: bool = True
    """Whether other calls may wait for its release: it ends by itself."""
    reservations: "Reservations | None" = None

    def settle(self, usage: Usage) -> None:
        """Replace the estimate by the real ``usage``; other calls no longer wait for this one."""
        self.usage, self.waitable = usage, False
        if self.reservations is not None:
            self.reservations.wake_waiters()

    def release(self) -> None:
        """Return the reserved usage to the budgets; a second call has no effect."""
        owner, self.reservations = self.reservations, None
        if owner is not None:
            owner.active.remove(self)
            owner.wake_waiters()


class Reservations:
    """The active reservations of one turn, shared by its agents, tools and scripts."""

    def __init__(self) -> None:
        self.active: list[Reservation] = []
        self.model_calls: dict[str, int] = {}
        """The number of the last model call of each agent that a tool has started; it may not be in the log yet."""
        self._changed: asyncio.Event | None = None

    def reserved_usage(
        self, path: AgentPath, *, without: Reservation | None = None, include_waitable: bool = True
    ) -> Usage:
        """Return the usage that the agent at ``path`` and its children have reserved."""
        active = [entry for entry in self.active if entry.path[: len(path)] == path and entry is not without]
        return sum(
            [
                entry.usage
                for entry in active
                if include_waitable or not entry.waitable or entry is _CURRENT_RESERVATION.get()
            ],
            Usage(),
        )

    def add(self, reservation: Reservation) -> Reservation:
        """Activate a reservation, and make it the current one of this task."""
        reservation.reservations = self
        self.active.append(reservation)
        _CURRENT_RESERVATION.set(reservation)
        return reservation

    async def wait_for_release(self) -> None:
        """Wait until a reservation is settled or released."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def wake_waiters(self) -> None:
        """Wake all tasks in ``wait_for_release``."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None
