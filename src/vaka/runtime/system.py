"""The real clock and real names."""

import asyncio
import os
import time


class SystemClock:
    """The machine's clocks."""

    def time(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        await asyncio.sleep(seconds)


class RandomIds:
    """Names that sort by time and are not guessed."""

    def __init__(self) -> None:
        self._pool = ""
        self._at = 0

    def new(self, prefix: str) -> str:
        """Return ``prefix_`` with the time in milliseconds and 40 random bits."""
        if self._at + 10 > len(self._pool):
            self._pool, self._at = os.urandom(1000).hex(), 0  # one system call for two hundred names
        drawn = self._pool[self._at : self._at + 10]
        self._at += 10
        return f"{prefix}_{time.time_ns() // 1_000_000:011x}{drawn}"
