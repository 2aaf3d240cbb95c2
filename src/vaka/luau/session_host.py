"""Host services of a script inside a session: state, history and summary in the log, calls under the policy."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import msgspec

from vaka.core.loop.blobs import BLOB_THRESHOLD, restore_messages
from vaka.core.loop.children.script_journal import ScriptJournal, ScriptRequest
from vaka.core.loop.prompt import build_messages
from vaka.core.ports.tool import ToolContext
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON, AgentPath
from vaka.core.types.message import Message, ToolMessage, UserMessage, text_of
from vaka.core.types.monitor import Logged, UsageRecorded
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec
from vaka.luau.host.host_services import HostServices
from vaka.luau.host.http import http_tools
from vaka.luau.protocol import value_of_result
from vaka.luau.services import ScriptServices

HISTORY_KEY, SUMMARY_KEY = "$history", "$summary"
"""Where the state of a session has what scripts added to its history, and the summary of it."""
CREATE_AGENT = "create_agent"
"""What the tool is called by which a script talks to an agent it describes itself."""
RESERVED_PREFIX = "$"
"""How names of the state begin that are not a script's own."""


class LoggedState:
    """The state of a session, as of now."""

    def __init__(self, journal: ScriptJournal) -> None:
        self._journal = journal

    def get(self, key: str) -> JSON:
        """Return a value, written already or about to be."""
        return self._current_values().get(key)

    def values_under(self, prefix: str) -> list[JSON]:
        """Return the values whose names begin with ``prefix/``, in the order they came."""
        return [value for key, value in self._current_values().items() if key.startswith(f"{prefix}/")]

    def put(self, key: str, value: JSON) -> None:
        """Keep a value with the next write."""
        turn, size = self._journal.turn, len(msgspec.json.encode(value))
        if size > BLOB_THRESHOLD:
            raise ScriptError(
                f"{key}: a value has at most {BLOB_THRESHOLD} bytes, this one {size}; keep large ones elsewhere"
            )
        turn.log.defer(turn.scope, StateChanged(key=key, value=value))

    async def all(self) -> dict[str, JSON]:
        """Return everything that scripts keep."""
        return {key: value for key, value in self._current_values().items() if not key.startswith(RESERVED_PREFIX)}

    async def set(self, key: str, value: JSON) -> None:
        """Keep a value; ``None`` removes it."""
        if key.startswith(RESERVED_PREFIX):
            raise ScriptError(f"agent.state: names that begin with {RESERVED_PREFIX} are not for scripts: {key!r}")
        self.put(key, value)

    def _current_values(self) -> dict[str, JSON]:
        log = self._journal.turn.log
        values = dict(log.state.values)
        for _, body in log.deferred:
            if isinstance(body, StateChanged):
                values[body.key] = body.value
        return {key: value for key, value in values.items() if value is not None}


class LoggedHistory:
    """What was said in a session, with what scripts added to it and without what they took back.

    Each addition and each revert is a value of its own, by the request that made it: made again after a crash it is the
    same one.
    """

    def __init__(self, journal: ScriptJournal, values: LoggedState, path: AgentPath) -> None:
        self._journal, self._values, self._path = journal, values, path

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        """Return the last messages."""
        return [message for _, message in await self._edited_messages()][-count:] if count else []

    async def append(self, message: Mapping[str, JSON], request: ScriptRequest | None = None) -> None:
        """Add a message."""
        self._record_change(request, {"at": len(await self._logged_messages()), "message": dict(message)})

    async def revert(self, request: ScriptRequest) -> None:
        """Take back everything from the last thing a user said on."""
        spoken = [place for place, message in await self._edited_messages() if message["role"] == "user"]
        if spoken:
            self._record_change(request, {"from": spoken[-1], "to": len(await self._logged_messages())})

    async def _edited_messages(self) -> list[tuple[int, dict[str, JSON]]]:
        found: list[tuple[int, dict[str, JSON]]] = list(enumerate(await self._logged_messages()))
        for change in self._values.values_under(HISTORY_KEY):
            if "message" in change:
                found.append((change["at"], change["message"]))
            else:
                found = [item for item in found if not change["from"] <= item[0] <= change["to"]]
        return sorted(found, key=lambda item: item[0])

    async def _logged_messages(self) -> list[dict[str, JSON]]:
        log = self._journal.turn.log
        said = await restore_messages(log.store.blobs, build_messages(log.window.events_at(self._path), self._path))
        return [{"role": _role_of(message), "content": _text_of_message(message)} for message in said]

    def _record_change(self, request: ScriptRequest | None, change: JSON) -> None:
        start, path = self._journal.answers[0], "/".join(self._journal.turn.path)
        self._values.put(f"{HISTORY_KEY}/{start.at}/{path}/{request.number if request else 0}", change)


class LoggedSummary:
    """The summary of a session."""

    def __init__(self, values: LoggedState) -> None:
        self._values = values

    async def read(self) -> str:
        """Return it, ``""`` if there is none."""
        return self._values.get(SUMMARY_KEY) or ""

    async def write(self, text: str) -> None:
        """Replace it."""
        self._values.put(SUMMARY_KEY, text)


class CreateAgentTool:
    """Other agents a script talks to, as one tool, so that rules can speak of it; implements ``Tool``."""

    def __init__(self, services: ScriptServices, layer: str) -> None:
        self._find_agent = services.agents
        self.spec = ToolSpec(
            name=CREATE_AGENT,
            description="Let another agent answer.",
            effect="resume",
            timeout=None,
            poll=True,
            layer=layer,
        )

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Return the arguments, which the script's own host made."""
        return ParsedArguments(msgspec.json.decode(raw) if isinstance(raw, str) else raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        """Run the agent."""
        tool = self._find_agent(arguments["name"], arguments["config"])
        if tool is None:
            raise ScriptError(f"create_agent: there is no agent {arguments['name']!r} here")
        return await tool.call(context, {"prompt": arguments["prompt"]})


def build_host_services(
    services: ScriptServices,
    journal: ScriptJournal,
    path: AgentPath,
    exit_stack: AsyncExitStack,
    script_services: HostServices | None = None,
    layer: str = "code",
) -> HostServices:
    """Return what a script may call; ``path`` is whose conversation it sees, ``more`` what only it has.

    ``layer`` is where the script comes from: what it does by itself is judged as coming from there.
    """
    turn, values = journal.turn, LoggedState(journal)
    known = set(turn.tools)
    turn.tools = {**http_tools(services.network, layer), CREATE_AGENT: CreateAgentTool(services, layer), **turn.tools}

    def record_usage(usage: UsageRecorded) -> None:
        turn.log.defer(turn.scope, usage)

    def write_log(level: str, line: str) -> None:
        if not journal.replaying:
            turn.log.defer(turn.scope, Logged(level=level, message=line))  # type: ignore[arg-type]  # one of the levels

    async def ask_agent(request: ScriptRequest, name: str, config: JSON, history: Sequence[JSON], said: str) -> str:
        prompt = _agent_prompt(history, said)
        if name in known and not config:  # it has a name of its own that rules may speak of
            return str(value_of_result(await journal.call_tool(request, name, {"prompt": prompt})))
        return str(
            value_of_result(
                await journal.call_tool(request, CREATE_AGENT, {"name": name, "config": config, "prompt": prompt})
            )
        )

    return replace(
        script_services or HostServices(),
        nest=journal,
        network=services.network,
        models=services.models,
        usage=record_usage,
        fits=services.fits,
        agents=ask_agent,
        state=values,
        history=LoggedHistory(journal, values, path),
        summary=LoggedSummary(values),
        values=services.values,
        cache=services.cache,
        env=services.env,
        log=write_log,
        clock=turn.env.clock,
        uuid=lambda: str(uuid.uuid4()),
        closing=exit_stack,
    )


def _role_of(message: Message) -> str:
    if isinstance(message, ToolMessage):
        return "tool"
    return "user" if isinstance(message, UserMessage) else "assistant"


def _text_of_message(message: Message) -> str:
    if isinstance(message, ToolMessage):
        return "\n".join(result.text for result in message.results)
    return text_of(message.content)


def _agent_prompt(history: Sequence[JSON], new_message: str) -> str:
    """Return what another agent is told: each thing said to it is a conversation of its own."""
    if not history:
        return new_message
    lines = [f"{message['role']}: {message['content']}" for message in history]
    return "\n".join(["The conversation so far:", *lines, "", f"user: {new_message}"])
