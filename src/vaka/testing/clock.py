"""Fakes of the clock, of generated ids and of randomness, controlled by the test."""

import asyncio
import random
from collections import Counter


class FakeClock:
    """A clock that stands still until the test moves it.

    ``advance`` moves ``time`` and ``monotonic`` together; ``jump`` moves only ``time``.
    With ``auto`` a sleep advances the clock by itself and returns at once.
    """

    def __init__(self, start: float = 1_700_000_000.0, *, auto: bool = False) -> None:
        self._time = start
        self._monotonic = 0.0
        self._auto = auto
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._sleep_waiters: list[asyncio.Future[None]] = []

    def time(self) -> float:
        """Seconds since 1970."""
        return self._time

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Return when the clock was advanced by ``seconds``."""
        if self._auto:
            self.advance(max(seconds, 0.0))
        if self._auto or seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sleeper = (self._monotonic + seconds, woken)
        self._sleepers.append(sleeper)
        self._wake_sleep_waiters()
        try:
            await woken
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass and wake the sleeps that are due."""
        if seconds < 0:
            raise ValueError(f"advance({seconds!r}): monotonic time never goes back; jump() moves the wall clock")
        self._time += seconds
        self._monotonic += seconds
        for sleeper in sorted(self._sleepers, key=lambda sleeper: sleeper[0]):
            if sleeper[0] <= self._monotonic:
                self._sleepers.remove(sleeper)
                if not sleeper[1].done():
                    sleeper[1].set_result(None)

    def jump(self, seconds: float) -> None:
        """Move the wall clock, forwards or back, as a corrected clock does; no sleep wakes."""
        self._time += seconds

    def drift(self, seconds: float) -> None:
        """Advance only the monotonic time, as when the wall clock was set back meanwhile; due sleeps wake."""
        self.advance(seconds)
        self._time -= seconds

    @property
    def sleep_count(self) -> int:
        return len(self._sleepers)

    async def wait_for_sleeps(self, count: int = 1) -> None:
        """Return as soon as ``count`` sleeps wait for this clock."""
        while self.sleep_count < count:
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._sleep_waiters.append(changed)
            await changed

    def _wake_sleep_waiters(self) -> None:
        for changed in self._sleep_waiters:
            if not changed.done():
                changed.set_result(None)
        self._sleep_waiters.clear()


class FakeIds:
    """Ids that count up for each prefix: ``msg_1``, ``msg_2``, ``trn_1``."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def new_id(self, prefix: str) -> str:
        self._counts[prefix] += 1
        return f"{prefix}_{self._counts[prefix]}"


class FakeRandom(random.Random):
    """Reproducible random numbers: first the given numbers in their order, then numbers of the seed."""

    def __init__(self, *numbers: float, seed: int | str = 0) -> None:
        super().__init__(seed)
        self._numbers = list(numbers)

    def random(self) -> float:
        """Return the next number, at least 0 and less than 1."""
        return self._numbers.pop(0) if self._numbers else super().random()
