"""The clock and the ids of a runtime that is given none: those of the operating system."""

import asyncio
import os
import time


class SystemClock:
    """The clocks of the operating system."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class RandomIds:
    """Ids that sort by creation time and cannot be guessed."""

    def __init__(self) -> None:
        self._pool = ""
        self._offset = self._milliseconds = 0
        self._time = ""
        """The digits of the last time."""

    def new_id(self, prefix: str) -> str:
        """Return ``prefix_`` with the time in milliseconds and 40 random bits."""
        if self._offset + 10 > len(self._pool):
            self._pool, self._offset = os.urandom(1000).hex(), 0  # one system call for two hundred ids
        random_bits = self._pool[self._offset : self._offset + 10]
        self._offset += 10
        now = time.time_ns() // 1_000_000
        if now != self._milliseconds:  # several ids are made in one millisecond
            self._milliseconds, self._time = now, f"{now:011x}"
        return f"{prefix}_{self._time}{random_bits}"
