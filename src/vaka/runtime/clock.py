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
        self._random: list[str] = []
        """Ten random digits each, for the next ids."""
        self._milliseconds, self._time = 0, ""
        """The time of the last id, and its digits."""

    def new_id(self, prefix: str) -> str:
        """Return ``prefix_`` with the time in milliseconds and 40 random bits."""
        if not self._random:
            digits = os.urandom(1000).hex()  # one system call for two hundred ids
            self._random = [digits[at : at + 10] for at in range(0, len(digits), 10)]
        now = time.time_ns() // 1_000_000
        if now != self._milliseconds:  # several ids are made in one millisecond
            self._milliseconds, self._time = now, f"{now:011x}"
        return f"{prefix}_{self._time}{self._random.pop()}"
