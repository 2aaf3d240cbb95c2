"""Who waits for which log to grow."""

import asyncio
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Waiters(Generic[K]):
    """Futures that get the head of a log as soon as it is above what they know."""

    def __init__(self) -> None:
        self._waiting: dict[K, dict[asyncio.Future[int], int]] = {}

    async def wait(self, key: K, after: int) -> int:
        """Return the head once ``wake`` told one above ``after``."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(key, {})
        waiting[future] = after
        try:
            return await future
        finally:
            waiting.pop(future, None)
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]

    def wake(self, key: K, head: int) -> None:
        """Tell those who wait for ``key`` its head."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            for future, after in waiting.items():
                if head > after and not future.done():
                    future.set_result(head)

    def fail(self, keys: Iterable[K], error: Exception) -> None:
        """Raise ``error`` in those who wait for ``keys``."""
        for key in keys:
            for future in self._waiting.get(key, ()):
                if not future.done():
                    future.set_exception(error)

    def keys(self) -> list[K]:
        """Return what is waited for."""
        return list(self._waiting)

    def __contains__(self, key: K) -> bool:
        return key in self._waiting
