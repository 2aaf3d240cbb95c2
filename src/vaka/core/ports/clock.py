"""The clock and id generator ports, so that tests can control them, and timestamps."""

from datetime import UTC, datetime
from functools import lru_cache
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


def format_timestamp(seconds: float) -> str:
    """Return a time as RFC 3339 in UTC with milliseconds."""
    return format_milliseconds(int(seconds * 1000))


def format_milliseconds(milliseconds: int) -> str:
    """Return milliseconds since 1970 as RFC 3339 in UTC."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_format_second(seconds)}.{rest:03}Z"


@lru_cache(maxsize=64)
def _format_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
