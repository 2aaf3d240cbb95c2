"""The services from which a script's host functions are built, and the protocols they implement."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from vaka.core.loop.children.script_journal import ScriptJournal, ScriptRequest
from vaka.core.ports.clock import Clock
from vaka.core.ports.model import Model
from vaka.core.ports.net import Network
from vaka.core.ports.store import KeyValueStore
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.monitor import UsageRecorded
from vaka.luau.protocol import HostFunction

AskAgent: TypeAlias = Callable[[ScriptRequest, str, JSON, Sequence[JSON], str], Awaitable[str]]
"""Asks another agent: the request, its name, its configuration, the conversation so far, and a new message."""


class ScriptState(Protocol):
    """Named values of an agent."""

    async def all(self) -> dict[str, JSON]: ...

    async def set(self, key: str, value: JSON) -> None:
        """Store a value; ``None`` removes it."""
        ...


class ScriptHistory(Protocol):
    """The messages of a conversation, oldest first, as ``{"role": …, "content": …}``."""

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        """Return the last ``count`` messages."""
        ...

    async def append(self, message: Mapping[str, JSON], request: ScriptRequest | None = None) -> None:
        """Add a message; repeating the same request adds it only once."""
        ...

    async def revert(self, request: ScriptRequest) -> None:
        """Remove the last user message and everything after it; repeating the same request has no effect."""
        ...


class ScriptSummary(Protocol):
    """The summary that an agent stores about its conversation."""

    async def read(self) -> str:
        """Return the summary, ``""`` if there is none."""
        ...

    async def write(self, text: str) -> None: ...


class ScriptCache(Protocol):
    """Values that may be evicted at any time."""

    def get(self, key: str) -> JSON:
        """Return a value, ``None`` if it is missing."""
        ...

    def set(self, key: str, value: JSON, ttl: float | None = None) -> None:
        """Store a value for at most ``ttl`` seconds; ``None`` removes it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """The models a script may ask."""

    find: Callable[[str], Model]
    """Finds a model by name; raises a ``VakaError`` when there is none."""
    record_usage: Callable[[UsageRecorded], None] | None = None
    """Called with the usage of each model call."""
    find_schema_problem: Callable[[JSON, JSON], str] | None = None
    """Returns why a value does not fit a JSON Schema (schema, value), ``""`` when it fits."""


@dataclass(frozen=True, slots=True)
class AgentMemory:
    """What an agent stores between inputs."""

    state: ScriptState
    history: ScriptHistory
    summary: ScriptSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStorage:
    """The stores behind ``kvs_*`` and ``cache_*``; keys are stored under ``prefix``."""

    values: KeyValueStore | None = None
    cache: ScriptCache | None = None
    prefix: str = "script/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptIo:
    """The two ends of a conversation: ``input`` and ``output`` of a tool, ``recv`` and ``emit`` of an agent."""

    input: Callable[[ScriptRequest], Awaitable[JSON]] | None = None
    """Returns the next input of a tool's caller."""
    output: Callable[[JSON, str | None], Awaitable[None]] | None = None
    """Receives what a tool outputs, and an error; called again when the script is replayed."""
    recv: Callable[[ScriptRequest], Awaitable[JSON]] | None = None
    """Returns the next input of an agent, as made by ``io.chunk_of_content``, or ``None`` when it is closed."""
    emit: Callable[[JSON], Awaitable[None]] | None = None
    """Receives what an agent emits, for ``io.parse_chunk``; called again when the script is replayed."""
    set_style: Callable[[str], None] | None = None
    """Called with the style of an agent's script: ``run``, ``input`` for ``on_input``, or ``main`` for neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEnvironment:
    """Environment variables, logging, time and clean-up."""

    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """The environment variables that scripts may read: these and no others."""
    log: Callable[[str, str], None] | None = None
    """Receives a level (``debug``, ``info``, ``warning``, ``error``) and a line."""
    clock: Clock | None = None
    new_uuid: Callable[[], str] | None = None
    exit_stack: AsyncExitStack | None = None
    """Closes open streams with the script. Without it a model's answer is read completely before its first piece is
    delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostServices:
    """Everything a script's host functions are made of. A service that is missing raises an error in the script."""

    journal: ScriptJournal | None = None
    """The script's journal in a session: with it calls of tools and of http obey the same rules as a model's calls."""
    network: Network | None = None
    invoke: Callable[[ScriptRequest, str, dict[str, Any]], Awaitable[JSON]] | None = None
    """Calls a tool where there is no ``journal``."""
    ask_agent: AskAgent | None = None
    models: ModelAccess | None = None
    memory: AgentMemory | None = None
    storage: ScriptStorage = field(default_factory=ScriptStorage)
    io: ScriptIo = field(default_factory=ScriptIo)
    env: ScriptEnvironment = field(default_factory=ScriptEnvironment)


def unavailable_function(name: str, why: str) -> HostFunction:
    """Return a host function that raises ``ScriptError``. Its error is recorded like any answer: a service that is
    missing now may be present when the script is replayed.
    """

    async def raise_unavailable(*_: JSON) -> None:
        raise ScriptError(f"{name} is not available here: {why}")

    return HostFunction(raise_unavailable)
