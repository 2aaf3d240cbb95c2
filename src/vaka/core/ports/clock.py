"""The clock and id generator ports, so that tests can control them."""

from typing import Protocol


class Clock(Protocol):
    def time(self) -> float:
        """Return the seconds since 1970, for timestamps; it may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds from some start, for durations; it never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of this clock."""
        ...


class IdGenerator(Protocol):
    def new_id(self, prefix: str) -> str:
        """Return a unique id that begins with ``prefix``."""
        ...
