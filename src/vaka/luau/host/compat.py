"""Host functions that only ``__builtin`` and ``rt`` call: ``kvs_*``, ``cache_*`` and ``env``."""

import time
from collections import OrderedDict
from collections.abc import Callable

from vaka.core.types.errors import ScriptError, VakaError
from vaka.core.types.ids import JSON
from vaka.luau.host import ctx_functions
from vaka.luau.host.host_services import HostServices, unavailable_function
from vaka.luau.host.prompt_args import as_string
from vaka.luau.protocol import HostFunction, HostFunctions, pack, unpack


def kvs_functions(services: HostServices) -> HostFunctions:
    """``kvs.get``, ``kvs.set`` and ``kvs.del``."""
    values, prefix = services.values, services.prefix
    if values is None:
        names = ("get", "set", "del")
        return {
            f"kvs.{name}": unavailable_function(f"kvs_{name}", "this script has nowhere to keep values")
            for name in names
        }

    async def get(key: JSON) -> JSON:
        return unpack(await values.get(prefix + as_string(key, "key")))

    async def put(key: JSON, value: JSON = None) -> None:
        try:
            await values.put(prefix + as_string(key, "key"), pack(value))
        except VakaError as error:
            raise ScriptError(str(error)) from error

    async def remove(key: JSON) -> None:
        await values.put(prefix + as_string(key, "key"), None)

    return {
        "kvs.get": HostFunction(get),
        "kvs.set": HostFunction(put, durable=True),
        "kvs.del": HostFunction(remove, durable=True),
    }


MAX_CACHE_ENTRIES = 10_000


class MemoryCache:
    """Values of one process, the least used of which go first; each script gets a copy."""

    def __init__(self, max_entries: int = MAX_CACHE_ENTRIES, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_entries, self._clock = max_entries, clock
        self._entries: OrderedDict[str, tuple[JSON, float | None]] = OrderedDict()

    def get(self, key: str) -> JSON:
        """Return a value, ``None`` if it is not there or too old."""
        kept = self._entries.get(key)
        if kept is None:
            return None
        value, until = kept
        if until is not None and self._clock() >= until:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return unpack(value)

    def set(self, key: str, value: JSON, ttl: float | None = None) -> None:
        """Keep a value, for ``ttl`` seconds at most; ``None`` removes it."""
        self._entries.pop(key, None)
        if value is None or (ttl is not None and ttl <= 0):
            return
        self._entries[key] = (pack(value), None if ttl is None else self._clock() + ttl)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)


def cache_functions(services: HostServices) -> HostFunctions:
    """``cache.get``, ``cache.set`` and ``cache.del``."""
    cache, prefix = services.cache, services.prefix
    if cache is None:
        names = ("get", "set", "del")
        return {f"cache.{name}": unavailable_function(f"cache_{name}", "this script has no cache") for name in names}

    async def get(key: JSON) -> JSON:
        return cache.get(prefix + as_string(key, "key"))

    async def put(key: JSON, value: JSON = None, ttl: JSON = None) -> None:
        if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float)):
            raise ScriptError(f"cache_set: the time to live must be a number of seconds, not {ttl!r}")
        cache.set(prefix + as_string(key, "key"), value, ttl)

    async def remove(key: JSON) -> None:
        cache.set(prefix + as_string(key, "key"), None)

    return {"cache.get": HostFunction(get), "cache.set": HostFunction(put), "cache.del": HostFunction(remove)}


def env_functions(services: HostServices) -> HostFunctions:
    """``env``: the value of a variable that is on the list; nothing for one that is not, or is empty."""

    async def env(key: JSON) -> JSON:
        return services.env.get(as_string(key, "key")) or None

    return {"env": HostFunction(env, local=True)}


__all__ = ["MemoryCache", "compat_functions", "surface_functions"]


def compat_functions(services: HostServices) -> HostFunctions:
    """Return what only ``__builtin`` and ``rt`` call."""
    return {**kvs_functions(services), **cache_functions(services), **env_functions(services)}


def surface_functions(services: HostServices) -> HostFunctions:
    """Return everything the three surfaces call."""
    return {**ctx_functions(services), **compat_functions(services)}
