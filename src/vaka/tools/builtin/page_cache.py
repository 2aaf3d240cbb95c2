"""Pages that were fetched lately, for each network apart: a runtime has one, so none sees what another fetched."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from vaka.core.ports.net import Network

SECONDS = 15 * 60.0
PAGES = 128
CHARACTERS = 32 * 1024**2

T = TypeVar("T")


class Cache(Generic[T]):
    """Values for a time; what nobody asked for the longest goes first when they are too many or too large."""

    def __init__(
        self, now: Callable[[], float] = time.monotonic, *, seconds: float = SECONDS, most: int = PAGES,
        size: int = CHARACTERS,
    ) -> None:  # fmt: skip
        self._now, self._seconds, self._most, self._size = now, seconds, most, size
        self._kept: OrderedDict[str, tuple[float, int, T]] = OrderedDict()
        self._total = 0

    def get(self, key: str) -> T | None:
        """Return a value that is not too old."""
        found = self._kept.get(key)
        if found is None:
            return None
        if self._now() - found[0] >= self._seconds:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return found[2]

    def put(self, key: str, value: T, size: int) -> None:
        """Keep a value that takes up ``size``; one that is too large alone is not kept."""
        self._drop(key)
        if size > self._size:
            return
        self._kept[key] = (self._now(), size, value)
        self._total += size
        while len(self._kept) > self._most or self._total > self._size:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: str) -> None:
        found = self._kept.pop(key, None)
        self._total -= found[1] if found else 0


_caches: "WeakKeyDictionary[Network, Cache[object]]" = WeakKeyDictionary()


def cache_of(network: Network) -> Cache[object]:
    """Return the cache of a network; it is gone when the network is."""
    return _caches.setdefault(network, Cache())
