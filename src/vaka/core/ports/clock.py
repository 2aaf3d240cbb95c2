"""Time and names, so that tests can own them."""

from typing import Protocol


class Clock(Protocol):
    """What time it is."""

    def time(self) -> float:
        """Seconds since 1970, for people: it may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds from some start, for measuring: it never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of this clock."""
        ...


class IdGenerator(Protocol):
    """Where new names come from."""

    def new(self, prefix: str) -> str:
        """Return a name nobody has used, beginning with ``prefix``."""
        ...
