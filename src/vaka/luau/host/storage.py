"""What scripts store: ``ctx.agent.state``, ``.history`` and ``.memory``; ``kvs_*`` and ``cache_*``."""

from collections.abc import Mapping, Sequence

from vaka.core.loop.script_journal import ScriptRequest
from vaka.core.ports.values import KeyValueStore, session_values_prefix
from vaka.core.types.errors import ScriptError, VakaError
from vaka.core.types.ids import JSON
from vaka.luau.protocol import HostFunction, HostFunctions, as_count, as_string, as_table, pack, unpack
from vaka.luau.services import HostServices
from vaka.text.words import split_words, unspaced_characters

MAX_SEARCHED_MESSAGES = 10_000
"""Messages that ``memory:query`` searches, counted from the newest."""
_ROLES = frozenset({"user", "assistant", "system", "tool"})


class StoredMemory:
    """The memory of an agent without a session, in a key-value store; implements ``AgentMemory``."""

    def __init__(self, values: KeyValueStore, prefix: str) -> None:
        self._values, self._prefix = values, prefix

    async def state(self) -> dict[str, JSON]:
        return dict(await self._get("state") or {})

    async def set_value(self, key: str, value: JSON) -> None:
        values = await self.state() | {key: value}
        await self._put("state", {name: item for name, item in values.items() if item is not None})

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        return (await self._messages())[-count:] if count else []

    async def append(self, message: Mapping[str, JSON], request: ScriptRequest | None = None) -> None:
        await self._put("history", [*await self._messages(), dict(message)])

    async def revert(self, request: ScriptRequest) -> None:
        messages = await self._messages()
        user_positions = [at for at, message in enumerate(messages) if message.get("role") == "user"]
        if user_positions:
            await self._put("history", messages[: user_positions[-1]])

    async def summary(self) -> str:
        return await self._get("summary") or ""

    async def set_summary(self, text: str) -> None:
        await self._put("summary", text)

    async def _messages(self) -> list[Mapping[str, JSON]]:
        return list(await self._get("history") or [])

    async def _get(self, name: str) -> JSON:
        return await self._values.get(self._prefix + name)

    async def _put(self, name: str, value: JSON) -> None:
        await self._values.put(self._prefix + name, value)


def memory_functions(services: HostServices) -> HostFunctions:
    """``state.*``, ``history.*`` and ``memory.*``."""
    memory = services.memory

    async def set_value(key: JSON, value: JSON = None) -> None:
        await memory.set_value(as_string(key, "agent.state: a key"), value)

    async def recent(count: JSON = 10) -> JSON:
        return [dict(message) for message in await memory.recent(as_count(count, "how many"))]

    async def append(request: ScriptRequest, message: JSON) -> None:
        await memory.append(parse_history_message(message), request)

    async def write_summary(text: JSON) -> None:
        await memory.set_summary(as_string(text, "memory: the summary"))

    async def query(question: JSON, count: JSON = 5) -> JSON:
        words, messages = as_string(question, "memory: the question"), await memory.recent(MAX_SEARCHED_MESSAGES)
        return rank_messages(words, messages, as_count(count, "how many"))

    return {
        "state.all": HostFunction(memory.state),
        "state.set": HostFunction(set_value, durable=True),
        "history.recent": HostFunction(recent),
        "history.append": HostFunction(append, wants_request=True, durable=True),
        "history.revert": HostFunction(memory.revert, wants_request=True, durable=True),
        "memory.summary": HostFunction(memory.summary),
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


def rank_messages(question: str, messages: Sequence[Mapping[str, JSON]], count: int) -> list[JSON]:
    """Return the messages that share the most words with a question, the newest first among equals."""
    wanted = set(split_words(question))
    ranked: list[tuple[float, int, JSON]] = []
    for at, message in enumerate(messages):
        words = split_words(str(message.get("content", "")))
        shared = wanted.intersection((*words, *unspaced_characters(" ".join(words)).split()))
        if shared:
            ranked.append((len(shared) / len(wanted), at, dict(message)))
    ranked.sort(key=lambda item: (-item[0], -item[1]))
    return [message | {"score": round(score, 3)} for score, _, message in ranked[:count]]


def value_functions(services: HostServices) -> HostFunctions:
    """``kvs.get``, ``kvs.set`` and ``kvs.del``."""
    values = services.runtime.values

    def storage_key(key: JSON) -> str:
        return services.storage + as_string(key, "key")

    async def get(key: JSON) -> JSON:
        return unpack(await values.get(storage_key(key)))

    async def put(key: JSON, value: JSON = None) -> None:
        try:
            await values.put(storage_key(key), pack(value))
        except VakaError as error:
            raise ScriptError(str(error)) from error

    async def remove(key: JSON) -> None:
        await values.put(storage_key(key), None)

    return {
        "kvs.get": HostFunction(get),
        "kvs.set": HostFunction(put, durable=True),
        "kvs.del": HostFunction(remove, durable=True),
    }


def cache_functions(services: HostServices) -> HostFunctions:
    """``cache.get``, ``cache.set`` and ``cache.del``."""
    cache = services.runtime.cache

    async def storage_key(key: JSON) -> str:
        """Return a key of the cache; a session that is created again under its old id does not find the old values."""
        full_key = services.storage + as_string(key, "key")
        turn = services.journal.turn if services.journal is not None else None
        if turn is None or not services.storage.startswith(session_values_prefix(turn.session)):
            return full_key
        info = await turn.log.store.sessions.find(turn.session)
        return f"{info.created if info is not None else ''} {full_key}"

    async def get(key: JSON) -> JSON:
        return cache.get(await storage_key(key))

    async def put(key: JSON, value: JSON = None, ttl: JSON = None) -> None:
        if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float)):
            raise ScriptError(f"cache_set: the time to live must be a number of seconds, not {ttl!r}")
        cache.set(await storage_key(key), value, ttl)

    async def remove(key: JSON) -> None:
        cache.set(await storage_key(key), None)

    return {
        "cache.get": HostFunction(get),
        "cache.set": HostFunction(put),
        "cache.del": HostFunction(remove),
    }
