"""Host functions that only ``__builtin`` and ``rt`` call: ``kvs_*``, ``cache_*`` and ``env``."""

import time
from collections import OrderedDict
from collections.abc import Callable

from vaka.core.types.errors import ScriptError, VakaError
from vaka.core.types.ids import JSON
from vaka.luau.host.host_services import HostServices, unavailable_function
from vaka.luau.host.prompt_args import as_string
from vaka.luau.protocol import HostFunction, HostFunctions, pack, unpack


def _unavailable_functions(table: str, why: str) -> HostFunctions:
    return {f"{table}.{name}": unavailable_function(f"{table}_{name}", why) for name in ("get", "set", "del")}


def kvs_functions(services: HostServices) -> HostFunctions:
    """``kvs.get``, ``kvs.set`` and ``kvs.del``."""
    values, prefix = services.storage.values, services.storage.prefix
    if values is None:
        return _unavailable_functions("kvs", "this script has no key-value store")

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
    """An LRU cache in memory; each script gets a copy of a value."""

    def __init__(self, max_entries: int = MAX_CACHE_ENTRIES, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_entries, self._clock = max_entries, clock
        self._entries: OrderedDict[str, tuple[JSON, float | None]] = OrderedDict()

    def get(self, key: str) -> JSON:
        """Return a value, ``None`` if it is missing or expired."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, expires = entry
        if expires is not None and self._clock() >= expires:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return unpack(value)

    def set(self, key: str, value: JSON, ttl: float | None = None) -> None:
        """Store a value for at most ``ttl`` seconds; ``None`` removes it."""
        self._entries.pop(key, None)
        if value is None or (ttl is not None and ttl <= 0):
            return
        self._entries[key] = (pack(value), None if ttl is None else self._clock() + ttl)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)


def cache_functions(services: HostServices) -> HostFunctions:
    """``cache.get``, ``cache.set`` and ``cache.del``."""
    cache, prefix = services.storage.cache, services.storage.prefix
    if cache is None:
        return _unavailable_functions("cache", "this script has no cache")

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
    """``env``: the value of an environment variable that scripts may read; nil for any other, and for an empty one."""

    async def env(key: JSON) -> JSON:
        return services.env.variables.get(as_string(key, "key")) or None

    return {"env": HostFunction(env, local=True)}
