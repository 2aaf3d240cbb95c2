"""``ctx.agent.state``, ``.history`` and ``.memory``: what an agent stores between inputs."""

import re
from collections.abc import Mapping, Sequence

from vaka.core.loop.children.script_journal import ScriptRequest
from vaka.core.ports.store import KeyValueStore
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.host.host_services import AgentMemory, HostServices, unavailable_function
from vaka.luau.host.prompt_args import as_count, as_string, as_table
from vaka.luau.protocol import HostFunction, HostFunctions

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
