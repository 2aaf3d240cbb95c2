"""``ctx.agent.state``, ``.history`` and ``.memory``: what an agent keeps between inputs."""

import re
from collections.abc import Mapping, Sequence

from vaka.core.loop.children.script_journal import ScriptRequest
from vaka.core.ports.store import KeyValueStore
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.host.host_services import HostServices, ScriptHistory, ScriptState, ScriptSummary, unavailable_function
from vaka.luau.host.prompt_args import as_count, as_string, as_table
from vaka.luau.protocol import HostFunction, HostFunctions

MAX_SEARCHED_MESSAGES = 10_000
"""Messages that ``memory:query`` looks through, counted from the newest."""

_WORD = re.compile(r"[a-z0-9_]+|[^\W\d_a-z]+")
_ROLES = frozenset({"user", "assistant", "system", "tool"})


class StoredMemory:
    """State, history and summary of one agent in a key-value store, for agents that have no session to keep them."""

    def __init__(self, values: KeyValueStore, prefix: str) -> None:
        self.state: ScriptState = _StoredState(values, f"{prefix}state")
        self.history: ScriptHistory = _StoredHistory(values, f"{prefix}history")
        self.summary: ScriptSummary = _StoredSummary(values, f"{prefix}summary")


class _StoredState:
    def __init__(self, values: KeyValueStore, key: str) -> None:
        self._values, self._key = values, key

    async def all(self) -> dict[str, JSON]:
        return dict(await self._values.get(self._key) or {})

    async def set(self, key: str, value: JSON) -> None:
        kept = await self.all()
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = value
        await self._values.put(self._key, kept)


class _StoredHistory:
    def __init__(self, values: KeyValueStore, key: str) -> None:
        self._values, self._key = values, key

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        return (await self._read_messages())[-count:] if count else []

    async def append(self, message: Mapping[str, JSON], request: ScriptRequest | None = None) -> None:
        await self._values.put(self._key, [*await self._read_messages(), dict(message)])

    async def revert(self, request: ScriptRequest) -> None:
        said = await self._read_messages()
        spoken = [at for at, message in enumerate(said) if message.get("role") == "user"]
        await self._values.put(self._key, said[: spoken[-1]] if spoken else [])

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
    return {**_state_functions(services.state), **_history_functions(services.history), **_summary_functions(services)}


def _state_functions(state: ScriptState | None) -> HostFunctions:
    if state is None:
        return {
            name: unavailable_function("agent.state", "this script has no agent") for name in ("state.all", "state.set")
        }

    async def read_state() -> JSON:
        return await state.all()

    async def set_value(key: JSON, value: JSON = None) -> None:
        await state.set(as_string(key, "agent.state: a key"), value)

    return {"state.all": HostFunction(read_state), "state.set": HostFunction(set_value, durable=True)}


def _history_functions(history: ScriptHistory | None) -> HostFunctions:
    if history is None:
        names = ("history.recent", "history.append", "history.revert")
        return {name: unavailable_function("agent.history", "this script has no agent") for name in names}

    async def recent(count: JSON = 10) -> JSON:
        return [dict(message) for message in await history.recent(as_count(count, "how many"))]

    async def append(request: ScriptRequest, message: JSON) -> None:
        await history.append(parse_history_message(message), request)

    async def revert(request: ScriptRequest) -> None:
        await history.revert(request)

    return {
        "history.recent": HostFunction(recent),
        "history.append": HostFunction(append, wants_request=True, durable=True),
        "history.revert": HostFunction(revert, wants_request=True, durable=True),
    }


def _summary_functions(services: HostServices) -> HostFunctions:
    summary, history = services.summary, services.history
    functions: dict[str, HostFunction] = {
        name: unavailable_function("agent.memory", "this script has no agent")
        for name in ("memory.summary", "memory.set_summary", "memory.query")
    }
    if summary is not None:

        async def read() -> JSON:
            return await summary.read()

        async def write(words: JSON) -> None:
            await summary.write(as_string(words, "memory: the summary"))

        functions["memory.summary"] = HostFunction(read)
        functions["memory.set_summary"] = HostFunction(write, durable=True)
    if history is not None:

        async def query(question: JSON, count: JSON = 5) -> JSON:
            return rank_messages(
                as_string(question, "memory: the question"),
                await history.recent(MAX_SEARCHED_MESSAGES),
                as_count(count, "how many"),
            )

        functions["memory.query"] = HostFunction(query)
    return functions


def parse_history_message(value: JSON) -> dict[str, JSON]:
    """Return a message as it is kept; raise ``ScriptError`` for one that makes no sense."""
    fields = as_table(value, "a message")
    role = "assistant" if fields.get("role") == "model" else str(fields.get("role"))
    if role not in _ROLES:
        raise ScriptError(f"there is no role {role!r}; it is user, assistant, system or tool")
    return {"role": role, "content": as_string(fields.get("content"), "the content of a message")}


def words_of(text: str) -> set[str]:
    """Return the words of a text; where people write no blanks, pairs of letters stand for words."""
    found: set[str] = set()
    for word in _WORD.findall(text.lower()):
        if word.isascii() or len(word) == 1:
            found.add(word)
        else:
            found.update(word[at : at + 2] for at in range(len(word) - 1))
    return found


def rank_messages(question: str, messages: Sequence[Mapping[str, JSON]], count: int) -> list[JSON]:
    """Return the messages that share the most words with a question, the newest first among equals."""
    wanted = words_of(question)
    found: list[tuple[float, int, JSON]] = []
    for at, message in enumerate(messages):
        shared = wanted & words_of(str(message.get("content", "")))
        if shared:
            found.append((len(shared) / len(wanted), at, dict(message)))
    found.sort(key=lambda item: (-item[0], -item[1]))
    return [message | {"score": round(score, 3)} for score, _, message in found[:count]]
