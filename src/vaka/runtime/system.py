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

    def new(self, prefix: str) -> str:
        """Return ``prefix_`` with the time in milliseconds and 40 random bits."""
        return f"{prefix}_{time.time_ns() // 1_000_000:011x}{os.urandom(5).hex()}"
