"""What scripts store: ``ctx.agent.state``, ``.history`` and ``.memory``; ``kvs_*`` and ``cache_*``."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from vaka.core.loop.children.script_journal import ScriptRequest
from vaka.core.ports.store import KeyValueStore
from vaka.core.types.errors import ScriptError, VakaError
from vaka.core.types.ids import JSON
from vaka.luau.protocol import HostFunction, HostFunctions, as_count, as_string, as_table, pack, unpack
from vaka.luau.services import AgentMemory, HostServices, unavailable_function

MAX_SEARCHED_MESSAGES = 10_000
"""Messages that ``memory:query`` searches, counted from the newest."""
_FUNCTION_NAMES = (
    "state.all", "state.set", "history.recent", "history.append", "history.revert",
    "memory.summary", "memory.set_summary", "memory.query",
)  # fmt: skip

_WORD = re.compile(r"[a-z0-9_]+|[^\W\d_a-z]+")
_ROLES = frozenset({"user", "assistant", "system", "tool"})


def stored_memory(values: KeyValueStore, prefix: str) -> AgentMemory:
    """Return state, history and summary in a key-value store, for agents without a session."""
    return AgentMemory(
        _StoredState(values, f"{prefix}state"),
        _StoredHistory(values, f"{prefix}history"),
        _StoredSummary(values, f"{prefix}summary"),
    )


class _StoredState:
    def __init__(self, values: KeyValueStore, key: str) -> None:
        self._values, self._key = values, key

    async def all(self) -> dict[str, JSON]:
        return dict(await self._values.get(self._key) or {})

    async def set(self, key: str, value: JSON) -> None:
        values = await self.all() | {key: value}
        await self._values.put(self._key, {name: item for name, item in values.items() if item is not None})


class _StoredHistory:
    def __init__(self, values: KeyValueStore, key: str) -> None:
        self._values, self._key = values, key

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        return (await self._read_messages())[-count:] if count else []

    async def append(self, message: Mapping[str, JSON], request: ScriptRequest | None = None) -> None:
        await self._values.put(self._key, [*await self._read_messages(), dict(message)])

    async def revert(self, request: ScriptRequest) -> None:
        messages = await self._read_messages()
        user_positions = [at for at, message in enumerate(messages) if message.get("role") == "user"]
        await self._values.put(self._key, messages[: user_positions[-1]] if user_positions else [])

    async def _read_messages(self) -> list[Mapping[str, JSON]]:
        return list(await self._values.get(self._key) or [])


class _StoredSummary:
    def __init__(self, values: KeyValueStore, key: str) -> None:
        self._values, self._key = values, key

    async def read(self) -> str:
        return await self._values.get(self._key) or ""

    async def write(self, text: str) -> None:
        await self._values.put(self._key, text)


def memory_functions(services: HostServices) -> HostFunctions:
    """``state.*``, ``history.*`` and ``memory.*``."""
    if services.memory is None:
        return {
            name: unavailable_function(f"agent.{name.partition('.')[0]}", "this script has no agent")
            for name in _FUNCTION_NAMES
        }
    state, history, summary = services.memory.state, services.memory.history, services.memory.summary

    async def set_value(key: JSON, value: JSON = None) -> None:
        await state.set(as_string(key, "agent.state: a key"), value)

    async def recent(count: JSON = 10) -> JSON:
        return [dict(message) for message in await history.recent(as_count(count, "how many"))]

    async def append(request: ScriptRequest, message: JSON) -> None:
        await history.append(parse_history_message(message), request)

    async def write_summary(text: JSON) -> None:
        await summary.write(as_string(text, "memory: the summary"))

    async def query(question: JSON, count: JSON = 5) -> JSON:
        words, messages = as_string(question, "memory: the question"), await history.recent(MAX_SEARCHED_MESSAGES)
        return rank_messages(words, messages, as_count(count, "how many"))

    return {
        "state.all": HostFunction(state.all),
        "state.set": HostFunction(set_value, durable=True),
        "history.recent": HostFunction(recent),
        "history.append": HostFunction(append, wants_request=True, durable=True),
        "history.revert": HostFunction(history.revert, wants_request=True, durable=True),
        "memory.summary": HostFunction(summary.read),
        "memory.set_summary": HostFunction(write_summary, durable=True),
        "memory.query": HostFunction(query),
    }


def parse_history_message(value: JSON) -> dict[str, JSON]:
    """Return a message as it is stored; raise ``ScriptError`` for an invalid one."""
    fields = as_table(value, "a message")
    role = "assistant" if fields.get("role") == "model" else str(fields.get("role"))
    if role not in _ROLES:
        raise ScriptError(f"unknown role {role!r}; expected user, assistant, system or tool")
    return {"role": role, "content": as_string(fields.get("content"), "the content of a message")}


def words_of(text: str) -> set[str]:
    """Return the words of a text; in scripts without spaces (Chinese, Japanese) pairs of characters count as words."""
    words: set[str] = set()
    for word in _WORD.findall(text.lower()):
        if word.isascii() or len(word) == 1:
            words.add(word)
        else:
            words.update(word[at : at + 2] for at in range(len(word) - 1))
    return words


def rank_messages(question: str, messages: Sequence[Mapping[str, JSON]], count: int) -> list[JSON]:
    """Return the messages that share the most words with a question, the newest first among equals."""
    wanted = words_of(question)
    ranked: list[tuple[float, int, JSON]] = []
    for at, message in enumerate(messages):
        shared = wanted & words_of(str(message.get("content", "")))
        if shared:
            ranked.append((len(shared) / len(wanted), at, dict(message)))
    ranked.sort(key=lambda item: (-item[0], -item[1]))
    return [message | {"score": round(score, 3)} for score, _, message in ranked[:count]]


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
