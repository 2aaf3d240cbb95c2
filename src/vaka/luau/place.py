"""A script's place in a session: what it keeps is in the log, and what it calls is governed."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from vaka.core.loop.nest import Nest, Request
from vaka.core.loop.prompt import messages
from vaka.core.loop.texts import restore
from vaka.core.types.content import text_of
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON, Path
from vaka.core.types.message import Message, ToolMessage, UserMessage
from vaka.core.types.monitor import Logged, UsageRecorded
from vaka.luau.host.http import http_tools
from vaka.luau.host.parts import Parts
from vaka.luau.lent import Lent
from vaka.luau.script import plain

HISTORY, SUMMARY = "$history", "$summary"
"""Where the state of a session has what scripts added to its history, and the summary of it."""
RESERVED = "$"
"""How names of the state begin that are not a script's own."""


class Values:
    """The state of a session, as of now."""

    def __init__(self, nest: Nest) -> None:
        self._nest = nest

    def get(self, key: str) -> JSON:
        """Return a value, written already or about to be."""
        return self._now().get(key)

    def put(self, key: str, value: JSON) -> None:
        """Keep a value with the next write."""
        turn = self._nest.turn
        turn.log.later(turn.at, StateChanged(key=key, value=value))

    async def all(self) -> dict[str, JSON]:
        """Return everything that scripts keep."""
        return {key: value for key, value in self._now().items() if not key.startswith(RESERVED)}

    async def set(self, key: str, value: JSON) -> None:
        """Keep a value; ``None`` removes it."""
        if key.startswith(RESERVED):
            raise ScriptError(f"agent.state: names that begin with {RESERVED} are not for scripts: {key!r}")
        self.put(key, value)

    def _now(self) -> dict[str, JSON]:
        log = self._nest.turn.log
        values = dict(log.state.values)
        for _, body in log.deferred:
            if isinstance(body, StateChanged):
                values[body.key] = body.value
        return {key: value for key, value in values.items() if value is not None}


class Said:
    """What was said in a session, with what scripts added to it and without what they took back."""

    def __init__(self, nest: Nest, values: Values, path: Path) -> None:
        self._nest, self._values, self._path = nest, values, path

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        """Return the last messages."""
        return [message for _, message in await self._all()][-count:] if count else []

    async def append(self, message: Mapping[str, JSON]) -> None:
        """Add a message."""
        whole, kept = await self._whole(), self._kept()
        self._keep(added=[*kept["added"], [len(whole), dict(message)]], hidden=kept["hidden"])

    async def revert(self) -> None:
        """Take back everything from the last thing a user said on."""
        whole, kept, found = await self._whole(), self._kept(), await self._all()
        spoken = [place for place, message in found if message["role"] == "user"]
        if spoken:
            added = [item for item in kept["added"] if item[0] < spoken[-1]]
            self._keep(added=added, hidden=[*kept["hidden"], [spoken[-1], len(whole)]])

    async def _all(self) -> list[tuple[int, dict[str, JSON]]]:
        whole, kept = await self._whole(), self._kept()
        found: list[tuple[int, dict[str, JSON]]] = [
            (at, message)
            for at, message in enumerate(whole)
            if not any(first <= at < end for first, end in kept["hidden"])
        ]
        found += [(place, message) for place, message in kept["added"]]
        return sorted(found, key=lambda item: item[0])

    async def _whole(self) -> list[dict[str, JSON]]:
        log = self._nest.turn.log
        said = await restore(log.store.blobs, messages(log.window.at(self._path), self._path))
        return [{"role": _role(message), "content": _words(message)} for message in said]

    def _kept(self) -> dict[str, Any]:
        return {"added": [], "hidden": [], **(self._values.get(HISTORY) or {})}

    def _keep(self, **kept: JSON) -> None:
        self._values.put(HISTORY, kept)


class Remembered:
    """The summary of a session."""

    def __init__(self, values: Values) -> None:
        self._values = values

    async def read(self) -> str:
        """Return it, ``""`` if there is none."""
        return self._values.get(SUMMARY) or ""

    async def write(self, text: str) -> None:
        """Replace it."""
        self._values.put(SUMMARY, text)


def furnish(lent: Lent, nest: Nest, path: Path, closing: AsyncExitStack, more: Parts | None = None) -> Parts:
    """Return what a script may call; ``path`` is whose conversation it sees, ``more`` what only it has."""
    turn = nest.turn
    turn.tools = {**turn.tools, **http_tools(lent.network)}
    values = Values(nest)

    def cost(usage: UsageRecorded) -> None:
        turn.log.later(turn.at, usage)

    def log(level: str, line: str) -> None:
        if not nest.replaying:
            turn.log.later(turn.at, Logged(level=level, message=line))  # type: ignore[arg-type]  # one of the levels

    async def chat(request: Request, name: str, config: JSON, history: Sequence[JSON], said: str) -> str:
        tool = lent.agents(name, config)
        if tool is None:
            raise ScriptError(f"create_agent: there is no agent {name!r} here")
        called = tool.spec.name
        turn.tools = {**turn.tools, called: tool}
        return str(plain(await nest.invoke(request, called, {"prompt": _told(history, said)})))

    return replace(
        more or Parts(), nest=nest, network=lent.network, models=lent.models, usage=cost, fits=lent.fits, agents=chat,
        state=values, history=Said(nest, values, path), summary=Remembered(values), values=lent.values,
        cache=lent.cache, env=lent.env, log=log, clock=turn.env.clock, uuid=lambda: str(uuid.uuid4()), closing=closing,
    )  # fmt: skip


def _role(message: Message) -> str:
    if isinstance(message, ToolMessage):
        return "tool"
    return "user" if isinstance(message, UserMessage) else "assistant"


def _words(message: Message) -> str:
    if isinstance(message, ToolMessage):
        return "\n".join(result.text for result in message.results)
    return text_of(message.content)


def _told(history: Sequence[JSON], said: str) -> str:
    """Return what another agent is told: each thing said to it is a conversation of its own."""
    if not history:
        return said
    lines = [f"{message['role']}: {message['content']}" for message in history]
    return "\n".join(["The conversation so far:", *lines, "", f"user: {said}"])
