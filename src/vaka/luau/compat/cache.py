"""``cache_get``, ``cache_set`` and ``cache_del``: values by name that may be gone at any time."""

import time
from collections import OrderedDict
from collections.abc import Callable

from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.host.arguments import text
from vaka.luau.host.parts import Parts, missing
from vaka.luau.script import Functions, HostFunction
from vaka.luau.values import pack, unpack

MOST_KEPT = 10_000


class Cache:
    """Values of one process, the least used of which go first; each script gets a copy."""

    def __init__(self, most: int = MOST_KEPT, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._kept: OrderedDict[str, tuple[JSON, float | None]] = OrderedDict()

    def get(self, key: str) -> JSON:
        """Return a value, ``None`` if it is not there or too old."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        value, until = kept
        if until is not None and self._clock() >= until:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return unpack(value)

    def set(self, key: str, value: JSON, ttl: float | None = None) -> None:
        """Keep a value, for ``ttl`` seconds at most; ``None`` removes it."""
        self._kept.pop(key, None)
        if value is None or (ttl is not None and ttl <= 0):
            return
        self._kept[key] = (pack(value), None if ttl is None else self._clock() + ttl)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


def cache_functions(parts: Parts) -> Functions:
    """``cache.get``, ``cache.set`` and ``cache.del``."""
    cache, prefix = parts.cache, parts.prefix
    if cache is None:
        names = ("get", "set", "del")
        return {f"cache.{name}": missing(f"cache_{name}", "this script has no cache") for name in names}

    async def get(key: JSON) -> JSON:
        return cache.get(prefix + text(key, "key"))

    async def put(key: JSON, value: JSON = None, ttl: JSON = None) -> None:
        if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float)):
            raise ScriptError(f"cache_set: the time to live must be a number of seconds, not {ttl!r}")
        cache.set(prefix + text(key, "key"), value, ttl)

    async def remove(key: JSON) -> None:
        cache.set(prefix + text(key, "key"), None)

    return {"cache.get": HostFunction(get), "cache.set": HostFunction(put), "cache.del": HostFunction(remove)}
