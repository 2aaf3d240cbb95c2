"""``ctx.agent.state``, ``.history`` and ``.memory``: what an agent keeps between the things it is told."""

import re
from collections.abc import Mapping, Sequence

from vaka.core.loop.nest import Request
from vaka.core.ports.store import KeyValue
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.host.arguments import table, text, whole
from vaka.luau.host.parts import History, Parts, State, Summary, missing
from vaka.luau.script import Functions, HostFunction

MOST_SEARCHED = 10_000
"""Messages that ``memory:query`` looks through, counted from the newest."""

_WORD = re.compile(r"[a-z0-9_]+|[^\W\d_a-z]+")
_ROLES = frozenset({"user", "assistant", "system", "tool"})


class Notes:
    """State, history and summary of one agent in a key-value store, for agents that have no session to keep them."""

    def __init__(self, values: KeyValue, prefix: str) -> None:
        self.state: State = _State(values, f"{prefix}state")
        self.history: History = _History(values, f"{prefix}history")
        self.summary: Summary = _Summary(values, f"{prefix}summary")


class _State:
    def __init__(self, values: KeyValue, key: str) -> None:
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


class _History:
    def __init__(self, values: KeyValue, key: str) -> None:
        self._values, self._key = values, key

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        return (await self._all())[-count:] if count else []

    async def append(self, message: Mapping[str, JSON], request: Request | None = None) -> None:
        await self._values.put(self._key, [*await self._all(), dict(message)])

    async def revert(self, request: Request) -> None:
        said = await self._all()
        spoken = [at for at, message in enumerate(said) if message.get("role") == "user"]
        await self._values.put(self._key, said[: spoken[-1]] if spoken else [])

    async def _all(self) -> list[Mapping[str, JSON]]:
        return list(await self._values.get(self._key) or [])


class _Summary:
    def __init__(self, values: KeyValue, key: str) -> None:
        self._values, self._key = values, key

    async def read(self) -> str:
        return await self._values.get(self._key) or ""

    async def write(self, text: str) -> None:
        await self._values.put(self._key, text)


def note_functions(parts: Parts) -> Functions:
    """``state.*``, ``history.*`` and ``memory.*``."""
    return {**_state_functions(parts.state), **_history_functions(parts.history), **_memory_functions(parts)}


def _state_functions(state: State | None) -> Functions:
    if state is None:
        return {name: missing("agent.state", "this script has no agent") for name in ("state.all", "state.set")}

    async def everything() -> JSON:
        return await state.all()

    async def put(key: JSON, value: JSON = None) -> None:
        await state.set(text(key, "agent.state: a key"), value)

    return {"state.all": HostFunction(everything), "state.set": HostFunction(put, lasting=True)}


def _history_functions(history: History | None) -> Functions:
    if history is None:
        names = ("history.recent", "history.append", "history.revert")
        return {name: missing("agent.history", "this script has no agent") for name in names}

    async def recent(count: JSON = 10) -> JSON:
        return [dict(message) for message in await history.recent(whole(count, "how many"))]

    async def append(request: Request, message: JSON) -> None:
        await history.append(message_of(message), request)

    async def revert(request: Request) -> None:
        await history.revert(request)

    return {
        "history.recent": HostFunction(recent),
        "history.append": HostFunction(append, asks=True, lasting=True),
        "history.revert": HostFunction(revert, asks=True, lasting=True),
    }


def _memory_functions(parts: Parts) -> Functions:
    summary, history = parts.summary, parts.history
    functions: dict[str, HostFunction] = {
        name: missing("agent.memory", "this script has no agent")
        for name in ("memory.summary", "memory.set_summary", "memory.query")
    }
    if summary is not None:

        async def read() -> JSON:
            return await summary.read()

        async def write(words: JSON) -> None:
            await summary.write(text(words, "memory: the summary"))

        functions["memory.summary"] = HostFunction(read)
        functions["memory.set_summary"] = HostFunction(write, lasting=True)
    if history is not None:

        async def query(question: JSON, count: JSON = 5) -> JSON:
            return ranked(
                text(question, "memory: the question"), await history.recent(MOST_SEARCHED), whole(count, "how many")
            )

        functions["memory.query"] = HostFunction(query)
    return functions


def message_of(value: JSON) -> dict[str, JSON]:
    """Return a message as it is kept; raise ``ScriptError`` for one that makes no sense."""
    fields = table(value, "a message")
    role = "assistant" if fields.get("role") == "model" else str(fields.get("role"))
    if role not in _ROLES:
        raise ScriptError(f"there is no role {role!r}; it is user, assistant, system or tool")
    return {"role": role, "content": text(fields.get("content"), "the content of a message")}


def words_of(said: str) -> set[str]:
    """Return the words of a text; where people write no blanks, pairs of letters stand for words."""
    found: set[str] = set()
    for word in _WORD.findall(said.lower()):
        if word.isascii() or len(word) == 1:
            found.add(word)
        else:
            found.update(word[at : at + 2] for at in range(len(word) - 1))
    return found


def ranked(question: str, said: Sequence[Mapping[str, JSON]], count: int) -> list[JSON]:
    """Return the messages that share the most words with a question, the newest first among equals."""
    wanted = words_of(question)
    found: list[tuple[float, int, JSON]] = []
    for at, message in enumerate(said):
        shared = wanted & words_of(str(message.get("content", "")))
        if shared:
            found.append((len(shared) / len(wanted), at, dict(message)))
    found.sort(key=lambda item: (-item[0], -item[1]))
    return [message | {"score": round(score, 3)} for score, _, message in found[:count]]
