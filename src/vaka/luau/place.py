"""A script's place in a session: what it keeps is in the log, and what it calls is governed."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import msgspec

from vaka.core.loop.nest import Nest, Request
from vaka.core.loop.prompt import messages
from vaka.core.loop.texts import LARGE, restore
from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import text_of
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON, Path
from vaka.core.types.message import Message, ToolMessage, UserMessage
from vaka.core.types.monitor import Logged, UsageRecorded
from vaka.core.types.tool import Arguments, Problem, ToolSpec
from vaka.luau.host.http import http_tools
from vaka.luau.host.parts import Parts
from vaka.luau.lent import Lent
from vaka.luau.script import plain

HISTORY, SUMMARY = "$history", "$summary"
"""Where the state of a session has what scripts added to its history, and the summary of it."""
CREATE = "create_agent"
"""What the tool is called by which a script talks to an agent it describes itself."""
RESERVED = "$"
"""How names of the state begin that are not a script's own."""


class Values:
    """The state of a session, as of now."""

    def __init__(self, nest: Nest) -> None:
        self._nest = nest

    def get(self, key: str) -> JSON:
        """Return a value, written already or about to be."""
        return self._now().get(key)

    def below(self, prefix: str) -> list[JSON]:
        """Return the values whose names begin with ``prefix/``, in the order they came."""
        return [value for key, value in self._now().items() if key.startswith(f"{prefix}/")]

    def put(self, key: str, value: JSON) -> None:
        """Keep a value with the next write."""
        turn, size = self._nest.turn, len(msgspec.json.encode(value))
        if size > LARGE:
            raise ScriptError(f"{key}: a value has at most {LARGE} bytes, this one {size}; keep large ones elsewhere")
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
    """What was said in a session, with what scripts added to it and without what they took back.

    Each addition and each revert is a value of its own, by the request that made it: made again after a crash it is the
    same one.
    """

    def __init__(self, nest: Nest, values: Values, path: Path) -> None:
        self._nest, self._values, self._path = nest, values, path

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        """Return the last messages."""
        return [message for _, message in await self._all()][-count:] if count else []

    async def append(self, message: Mapping[str, JSON], request: Request | None = None) -> None:
        """Add a message."""
        self._put(request, {"at": len(await self._whole()), "message": dict(message)})

    async def revert(self, request: Request) -> None:
        """Take back everything from the last thing a user said on."""
        spoken = [place for place, message in await self._all() if message["role"] == "user"]
        if spoken:
            self._put(request, {"from": spoken[-1], "to": len(await self._whole())})

    async def _all(self) -> list[tuple[int, dict[str, JSON]]]:
        found: list[tuple[int, dict[str, JSON]]] = list(enumerate(await self._whole()))
        for change in self._values.below(HISTORY):
            if "message" in change:
                found.append((change["at"], change["message"]))
            else:
                found = [item for item in found if not change["from"] <= item[0] <= change["to"]]
        return sorted(found, key=lambda item: item[0])

    async def _whole(self) -> list[dict[str, JSON]]:
        log = self._nest.turn.log
        said = await restore(log.store.blobs, messages(log.window.at(self._path), self._path))
        return [{"role": _role(message), "content": _words(message)} for message in said]

    def _put(self, request: Request | None, change: JSON) -> None:
        start, path = self._nest.answered[0], "/".join(self._nest.turn.path)
        self._values.put(f"{HISTORY}/{start.at}/{path}/{request.number if request else 0}", change)


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


class Others:
    """Other agents a script talks to, as one tool, so that rules can speak of it; implements ``Tool``."""

    def __init__(self, lent: Lent, layer: str) -> None:
        self._find = lent.agents
        self.spec = ToolSpec(
            name=CREATE, description="Let another agent answer.", effect="resume", timeout=None, poll=True, layer=layer
        )

    def parse(self, raw: "str | dict[str, Any]") -> Arguments | Problem:
        """Return the arguments, which the script's own host made."""
        return Arguments(msgspec.json.decode(raw) if isinstance(raw, str) else raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        """Run the agent."""
        tool = self._find(arguments["name"], arguments["config"])
        if tool is None:
            raise ScriptError(f"create_agent: there is no agent {arguments['name']!r} here")
        return await tool.call(context, {"prompt": arguments["prompt"]})


def furnish(
    lent: Lent, nest: Nest, path: Path, closing: AsyncExitStack, more: Parts | None = None, layer: str = "code"
) -> Parts:
    """Return what a script may call; ``path`` is whose conversation it sees, ``more`` what only it has.

    ``layer`` is where the script comes from: what it does by itself is judged as coming from there.
    """
    turn, values = nest.turn, Values(nest)
    known = set(turn.tools)
    turn.tools = {**http_tools(lent.network, layer), CREATE: Others(lent, layer), **turn.tools}

    def cost(usage: UsageRecorded) -> None:
        turn.log.later(turn.at, usage)

    def log(level: str, line: str) -> None:
        if not nest.replaying:
            turn.log.later(turn.at, Logged(level=level, message=line))  # type: ignore[arg-type]  # one of the levels

    async def chat(request: Request, name: str, config: JSON, history: Sequence[JSON], said: str) -> str:
        prompt = _told(history, said)
        if name in known and not config:  # it has a name of its own that rules may speak of
            return str(plain(await nest.invoke(request, name, {"prompt": prompt})))
        return str(plain(await nest.invoke(request, CREATE, {"name": name, "config": config, "prompt": prompt})))

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
