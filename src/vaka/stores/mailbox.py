"""How snapshots of open blocks travel: the newest of each, not too often."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from vaka.core.types.event import Event
from vaka.core.types.progress import MessageSnapshot

EVERY = 0.1
"""Seconds between two snapshots of the same blocks."""


class Mailbox:
    """Keeps the newest snapshot of each open block until its follower takes it, so that a slow one holds up nobody."""

    def __init__(self) -> None:
        self._newest: dict[object, Event] = {}
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, event: Event) -> None:
        """Hand over a snapshot; it takes the place of an older one of its block."""
        data = event.data
        if isinstance(data, MessageSnapshot):
            self._newest[event.path, data.message_id, data.block, data.of] = event
            self._wake.set()

    def close(self) -> None:
        """Let the follower end."""
        self._closed = True
        self._wake.set()

    async def take(self) -> AsyncGenerator[Event]:
        """Yield what is put, until the box is closed."""
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            while self._newest and not self._closed:
                yield self._newest.pop(next(iter(self._newest)))


class Pulse:
    """Calls ``send`` at the first touch, and then at most every 100 ms while there are touches."""

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def touch(self) -> None:
        """Something has changed."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next, loop.time()), self._fire)

    def stop(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._next = asyncio.get_running_loop().time() + EVERY
        self._send()
