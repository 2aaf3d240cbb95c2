"""The default clock and ids of a runtime, from the operating system."""

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
        self._digits, self._used = "", 0
        """Random digits, and how many of them were used: each id takes ten."""
        self._milliseconds, self._time = 0, ""
        """The time of the last id, and its digits."""

    def new_id(self, prefix: str) -> str:
        """Return ``prefix_`` with the time in milliseconds and 40 random bits."""
        at = self._used
        digits = self._digits[at : at + 10]
        if not digits:
            self._digits, at = os.urandom(1000).hex(), 0  # one system call for two hundred ids
            digits = self._digits[:10]
        self._used = at + 10
        now = time.time_ns() // 1_000_000
        if now != self._milliseconds:  # several ids are made in one millisecond
            self._milliseconds, self._time = now, f"{now:011x}"
        return f"{prefix}_{self._time}{digits}"
