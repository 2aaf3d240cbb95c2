"""Host services of a script inside a session: state, history and summary in the log, calls under the policy."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from vaka.core.loop.blobs import BLOB_THRESHOLD, restore_content, restore_messages
from vaka.core.loop.prompt import build_messages
from vaka.core.loop.script_journal import ScriptJournal, ScriptRequest
from vaka.core.ports.tool import ToolContext
from vaka.core.session.fanout import Follower
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import ScriptError
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, AgentPath
from vaka.core.types.message import Message, ToolMessage, UserMessage, text_of
from vaka.core.types.monitor import Logged
from vaka.core.types.progress import MessageCompleted, MessageSnapshot, TextDelta
from vaka.core.types.state import agent_key
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec
from vaka.luau.host.http import http_tools
from vaka.luau.protocol import value_of_result
from vaka.luau.services import HostServices, ScriptIo, ScriptServices

HISTORY_KEY = "$history"
SUMMARY_KEY = "$summary"
CHILD_KEY = "$agent"
"""Keys in a session's state: changes that scripts made to the history, the summary, and values of child agents."""
CREATE_AGENT = "create_agent"
"""The tool through which a script calls an agent that it configures itself."""
RESERVED_PREFIX = "$"
"""Prefix of state keys that scripts cannot set."""


class LoggedMemory:
    """The memory of the agent at ``path``: values of the session's state; implements ``AgentMemory``.

    A value is written, or deferred to the next write. The root agent and each child agent have values of their own.
    Scripts see the logged messages of the agent, with messages that they appended, without messages they reverted.
    Each such change is one value, keyed by the request that made it: repeated after a crash it overwrites itself.
    """

    def __init__(self, journal: ScriptJournal, path: AgentPath, has_open_message: Callable[[], bool]) -> None:
        self._journal = journal
        self._path = path
        self._has_open_message = has_open_message
        own = journal.turn.log.window.conversation_start(path)
        self._prefix = f"{CHILD_KEY}/{'/'.join(own)}/:" if path else ""

    async def state(self) -> dict[str, JSON]:
        return {key: value for key, value in self._values().items() if not key.startswith(RESERVED_PREFIX)}

    async def set_value(self, key: str, value: JSON) -> None:
        """Store a value; ``None`` removes it. Raises ``ScriptError`` for a reserved key."""
        if key.startswith(RESERVED_PREFIX):
            raise ScriptError(
                f"agent.state: key {key!r} is reserved: scripts cannot set keys that start with {RESERVED_PREFIX}"
            )
        self._put(key, value)

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        return [message for _, message in await self._edited_messages()][-count:] if count else []

    async def append(self, message: Mapping[str, JSON], request: ScriptRequest | None = None) -> None:
        self._record_change(request, {"at": len(await self._logged_messages()), "message": dict(message)})

    async def revert(self, request: ScriptRequest) -> None:
        user_positions = [at for at, message in await self._edited_messages() if message["role"] == "user"]
        if user_positions:
            next_position = len(await self._logged_messages())
            last = next_position if self._has_open_message() else next_position - 1
            self._record_change(request, {"from": user_positions[-1], "to": last})

    async def summary(self) -> str:
        return self._values().get(SUMMARY_KEY) or ""

    async def set_summary(self, text: str) -> None:
        self._put(SUMMARY_KEY, text)

    def _values(self) -> dict[str, JSON]:
        log = self._journal.turn.log
        values, start = {**log.state.values, **log.pending.values}, len(self._prefix)
        return {
            key[start:]: value for key, value in values.items() if value is not None and key.startswith(self._prefix)
        }

    def _put(self, key: str, value: JSON) -> None:
        """Defer a value to the next write."""
        turn, size = self._journal.turn, len(msgspec.json.encode(value))
        if size > BLOB_THRESHOLD:
            raise ScriptError(f"{key}: the value has {size} bytes; expected at most {BLOB_THRESHOLD}")
        turn.log.defer(turn.scope, StateChanged(key=self._prefix + key, value=value))

    async def _edited_messages(self) -> list[tuple[int, dict[str, JSON]]]:
        messages: list[tuple[int, dict[str, JSON]]] = list(enumerate(await self._logged_messages()))
        for key, change in self._values().items():
            if not key.startswith(f"{HISTORY_KEY}/"):
                continue
            if "message" in change:
                messages.append((change["at"], change["message"]))
            else:
                messages = [item for item in messages if not change["from"] <= item[0] <= change["to"]]
        return sorted(messages, key=lambda item: item[0])

    async def _logged_messages(self) -> list[dict[str, JSON]]:
        log = self._journal.turn.log
        messages = await restore_messages(log.store.blobs, build_messages(log.window.events_at(self._path), self._path))
        return [_history_entry(message) for message in messages]

    def _record_change(self, request: ScriptRequest | None, change: JSON) -> None:
        start, path = self._journal.answers[0], "/".join(self._journal.turn.path)
        self._put(f"{HISTORY_KEY}/{start.at}/{path}/{request.number if request else 0}", change)


class CreateAgentTool:
    """Calls an agent that a script configures, as a tool, so that policy rules can name it; implements ``Tool``."""

    def __init__(self, services: ScriptServices, layer: str) -> None:
        self._find_agent = services.find_agent
        self.spec = ToolSpec(
            name=CREATE_AGENT,
            description="Let another agent answer.",
            effect="resume",
            timeout=None,
            poll=True,
            layer=layer,
        )

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        return ParsedArguments(msgspec.json.decode(raw) if isinstance(raw, str) else raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        tool = self._find_agent(arguments["name"], arguments["config"])
        if tool is None:
            raise ScriptError(f"create_agent: unknown agent {arguments['name']!r}")
        return await tool.call(context, {"prompt": arguments["prompt"]})


class _WakeUp(Follower):
    """A follower that reads nothing: it wakes its waiters when something was said or written."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def push(self, event: Event) -> None:
        self.changed.set()

    def advance_head(self, head: int, turn_ended: bool = True) -> None:
        self.changed.set()


class LoggedChildAgents:
    """The child agents of a script in a session; implements ``ChildAgents``."""

    def __init__(self, journal: ScriptJournal, agent_tools: Collection[str], exit_stack: AsyncExitStack) -> None:
        self._journal = journal
        self._agent_tools = agent_tools
        self._exit_stack = exit_stack
        self._wake_up: _WakeUp | None = None

    async def send(self, request: ScriptRequest, name: str, config: JSON, after: str, message: str) -> tuple[str, str]:
        tool, arguments = name, {"prompt": message}
        if name not in self._agent_tools or config:  # otherwise the agent is a tool that policy rules can name
            tool, arguments = CREATE_AGENT, {"name": name, "config": config, **arguments}
        parent, _, sibling = after.rpartition("/")
        if parent == agent_key(self._journal.turn.path):
            after = sibling  # a child of the same parent is known by its name
        result = await self._journal.call_tool(request, tool, arguments, after=after)
        return str(value_of_result(result)), self.child_of(request)

    def child_of(self, request: ScriptRequest) -> str:
        child, path = self._journal.child_of(request), self._journal.turn.path
        return agent_key((*path, child)) if child and path else child  # the path of a script's next turn is another one

    async def text_of(self, child: str) -> str:
        log = self._journal.turn.log
        path = tuple(child.split("/")) if "/" in child else (*self._journal.turn.path, child)
        messages = [
            await restore_content(log.store.blobs, event.data.content)
            for event in log.window.events
            if event.path == path and isinstance(event.data, MessageCompleted)
        ]
        open_texts = [
            event.data.text
            for event in log.fanout.snapshots()
            if event.path == path and isinstance(event.data, MessageSnapshot) and event.data.of == TextDelta.type
        ]
        return "".join([*map(text_of, messages), *open_texts])

    async def wait(self) -> None:
        if self._wake_up is None:
            followers = self._journal.turn.log.fanout.followers
            self._wake_up = _WakeUp()
            followers.add(self._wake_up)
            self._exit_stack.callback(followers.discard, self._wake_up)
            return  # something may have been said before this follower was there
        self._wake_up.changed.clear()
        await self._wake_up.changed.wait()

    def wake(self) -> None:
        if self._wake_up is not None:
            self._wake_up.changed.set()


def build_host_services(
    services: ScriptServices,
    journal: ScriptJournal,
    path: AgentPath,
    exit_stack: AsyncExitStack,
    io: ScriptIo,
    storage: str,
    layer: str = "code",
) -> HostServices:
    """Return the host services of a script in a session; ``path`` names the agent whose conversation it sees.

    ``storage`` is the prefix of its keys in the key-value store and the cache.
    ``layer`` is where the script comes from: the policy judges its http requests and agent calls by that layer.
    """
    turn = journal.turn
    agents = LoggedChildAgents(journal, set(turn.tools), exit_stack)
    turn.tools = {**http_tools(services.network, layer), CREATE_AGENT: CreateAgentTool(services, layer), **turn.tools}

    def write_log(level: str, line: str) -> None:
        if not journal.replaying:
            turn.log.defer(turn.scope, Logged(level=level, message=line))  # type: ignore[arg-type]  # one of the levels

    return HostServices(
        runtime=services,
        memory=LoggedMemory(journal, path, io.has_open_message),
        exit_stack=exit_stack,
        io=io,
        journal=journal,
        storage=storage,
        agents=agents,
        log=write_log,
        sleep=turn.env.clock.sleep,
        record_usage=lambda usage: turn.log.defer(turn.scope, usage),
    )


def _history_entry(message: Message) -> dict[str, JSON]:
    if isinstance(message, ToolMessage):
        return {"role": "tool", "content": "\n".join(result.text for result in message.results)}
    return {"role": "user" if isinstance(message, UserMessage) else "assistant", "content": text_of(message.content)}
