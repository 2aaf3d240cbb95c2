"""``ReadCache``: values of the store, kept for a few seconds and bounded in number."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from vaka.core.ports.env import Clock

T = TypeVar("T")

CACHE_SECONDS = 2.0
"""The age up to which a read is used again: a revoked credential is refused after this time at the latest."""
CACHE_SIZE = 4096


class ReadCache(Generic[T]):
    """Repeats a read only when the last one is older than ``CACHE_SECONDS``.

    Missing values are not kept: names that do not exist cannot displace those that do.
    """

    def __init__(self, read: Callable[[str], Awaitable[T | None]], clock: Clock, *, size: int = CACHE_SIZE) -> None:
        self._read = read
        self._clock = clock
        self._size = size
        self._entries: dict[str, tuple[float, T]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, name: str) -> T | None:
        now = self._clock.monotonic()
        entry = self._entries.get(name)
        if entry is not None and now - entry[0] < CACHE_SECONDS:
            return entry[1]
        value = await self._read(name)
        self._entries.pop(name, None)
        if value is not None:
            self._entries[name] = (now, value)
            while len(self._entries) > self._size:
                del self._entries[next(iter(self._entries))]
        return value

    def forget(self, name: str) -> None:
        self._entries.pop(name, None)
