"""The services of scripts: the engine, the runtime's services, and the services of one script's host functions."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from vaka.core.loop.script_journal import ScriptJournal, ScriptRequest
from vaka.core.ports.agent import AgentServices, ToolArgumentParser
from vaka.core.ports.model import Model
from vaka.core.ports.net import Network
from vaka.core.ports.tool import Tool
from vaka.core.ports.transformer import TransformerFactory
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.monitor import UsageRecorded
from vaka.luau.program import Program
from vaka.luau.protocol import HostFunction, Script, pack, unpack
from vaka.luau.vm import PrintLine, VmRunner
from vaka.luau.worker import WorkerPool


class ChildAgents(Protocol):
    """The child agents of a script."""

    async def send(self, request: ScriptRequest, name: str, config: JSON, after: str, message: str) -> tuple[str, str]:
        """Return the answer of an agent and the child that ran it: its name, or its path if the parent has one.

        ``after`` is the child whose conversation it continues, ``""`` for a new conversation.
        """
        ...

    def child_of(self, request: ScriptRequest) -> str:
        """Return the child that answers a request, ``""`` before it has begun."""
        ...

    async def text_of(self, child: str) -> str:
        """Return what a child has said so far."""
        ...

    async def wait(self) -> None:
        """Wait until a child may have said more, or ``wake`` is called."""
        ...

    def wake(self) -> None:
        """End the current waits."""
        ...


class AgentMemory(Protocol):
    """What an agent stores between inputs: named values, messages and a summary.

    Messages are ``{"role": …, "content": …}``, oldest first.
    """

    async def state(self) -> dict[str, JSON]:
        """Return the named values."""
        ...

    async def set_value(self, key: str, value: JSON) -> None:
        """Store a value; ``None`` removes it."""
        ...

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        """Return the last ``count`` messages."""
        ...

    async def append(self, message: Mapping[str, JSON], request: ScriptRequest | None = None) -> None:
        """Add a message; repeating the same request adds it only once."""
        ...

    async def revert(self, request: ScriptRequest) -> None:
        """Remove the last user message and everything after it; repeating the same request has no effect."""
        ...

    async def summary(self) -> str:
        """Return the summary, ``""`` if there is none."""
        ...

    async def set_summary(self, text: str) -> None: ...


MAX_CACHE_ENTRIES = 10_000


class MemoryCache:
    """Values that may be evicted at any time, the least recently used first; each script gets a copy of a value."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptIo:
    """The two ends of a conversation: ``input`` and ``output`` of a tool, ``recv`` and ``emit`` of an agent."""

    input: Callable[[ScriptRequest], Awaitable[JSON]] | None = None
    """Returns the next input of a tool's caller."""
    output: Callable[[JSON, str | None], Awaitable[None]] | None = None
    """Receives what a tool outputs, and an error; called again when the script is replayed."""
    recv: Callable[[ScriptRequest], Awaitable[JSON]] | None = None
    """Returns the next input of an agent, as made by ``chunk_of_content``, or ``None`` when it is closed."""
    emit: Callable[[JSON], Awaitable[None]] | None = None
    """Receives what an agent emits, for ``parse_chunk``; called again when the script is replayed."""
    set_style: Callable[[str], None] | None = None
    """Called with the style of an agent's script: ``run``, ``input`` for ``on_input``, or ``main`` for neither."""
    has_open_message: Callable[[], bool] = lambda: True
    """Whether the next message of the agent belongs to its answer to the last input; true for a tool's agent."""


def unavailable_function(name: str, why: str) -> HostFunction:
    """Return a host function that raises ``ScriptError``. Its error is recorded like any answer: a service that is
    missing now may be present when the script is replayed.
    """

    async def raise_unavailable(*_: JSON) -> None:
        raise ScriptError(f"{name} is not available here: {why}")

    return HostFunction(raise_unavailable)


def _refuse_model(function: str, verb: str, name: JSON) -> ScriptError:
    """Return the error for a model that an untrusted script must not name, and how the script becomes trusted."""
    return ScriptError(
        f"{function} is not available here: this script may {verb} the model 'default' only, not {name!r}, because it "
        f"is confined; scripts are trusted with trusted=True in Python, after `vaka trust` for a folder of "
        f"definitions, and with --add-dir FOLDER for files outside of the project"
    )


class ScriptRunner(Protocol):
    """Opens scripts in a VM of some process."""

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once; ``print_line`` receives each line it prints."""
        ...

    async def close(self) -> None:
        """Free all VMs and processes; a second call does nothing."""
        ...


class ScriptEngine:
    """Runs trusted scripts in this process and untrusted ones in workers, which start on first use."""

    def __init__(self, *, trusted: ScriptRunner | None = None, untrusted: ScriptRunner | None = None) -> None:
        self._trusted_runner = trusted or VmRunner()
        self._untrusted_runner = untrusted or WorkerPool()

    def open(self, program: Program, print_line: PrintLine | None = None) -> Script:
        """Return a script that can be started once; ``print_line`` receives each line it prints."""
        return (self._trusted_runner if program.trusted else self._untrusted_runner).open(program, print_line)

    async def close(self) -> None:
        """End the workers and free the idle VMs."""
        await self._untrusted_runner.close()
        await self._trusted_runner.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptServices:
    """The services of the runtime that scripts use."""

    runner: ScriptRunner
    find_model: Callable[[str], Model]
    """Finds a model by name, ``default`` is the agent's own; raises a ``VakaError`` when there is none."""
    network: Network
    values: KeyValueStore
    cache: MemoryCache
    argument_parser: Callable[[dict[str, Any]], ToolArgumentParser]
    """Makes a parser from a JSON Schema."""
    find_schema_problem: Callable[[JSON, JSON], str]
    """Returns why a value does not fit a JSON Schema (schema, value), ``""`` when it fits."""
    find_agent: Callable[[str, JSON], Tool | None]
    """Finds an agent by name and configuration, as a tool that takes a prompt."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """The environment variables that scripts may read: these and no others."""
    user: str = ""
    """The user of scripts in sessions whose metadata names none."""
    builtin_transformers: Mapping[str, TransformerFactory] = field(default_factory=dict[str, TransformerFactory])
    """The transformers of vaka by name: every script can open them."""
    transformers: Mapping[str, TransformerFactory] = field(default_factory=dict[str, TransformerFactory])
    """The transformers of the runtime's options: only trusted scripts can open them."""

    def for_untrusted(self) -> "ScriptServices":
        """Return the services of an untrusted script: only its agent's own model, whose name cannot be a file, and
        only built-in transformers.
        """

        def find_own_model(name: str) -> Model:
            model = self.find_model("default")
            if name not in ("default", model.name):
                raise _refuse_model("generate", "ask", name)
            return model

        def find_agent(name: str, config: JSON) -> Tool | None:
            model = config["model"] if hasattr(config, "keys") and "model" in config else None
            if model not in (None, "default"):
                raise _refuse_model("create_agent", "name", model)
            return self.find_agent(name, config)

        return replace(self, find_model=find_own_model, find_agent=find_agent, transformers={})


class SharedScripts:
    """The engine and the cache, which all scripts of one runtime share."""

    def __init__(self) -> None:
        self.engine, self.cache = ScriptEngine(), MemoryCache()

    async def close(self) -> None:
        await self.engine.close()


def make_script_services(services: AgentServices) -> ScriptServices:
    """Return the services of scripts, made from the services of their agent."""
    scripts = services.share(SharedScripts)
    return ScriptServices(
        runner=scripts.engine,
        cache=scripts.cache,
        find_model=services.find_model,
        find_agent=services.find_agent,
        network=services.network,
        values=services.values,
        env=services.env,
        user=services.user,
        argument_parser=services.argument_parser,
        find_schema_problem=services.find_schema_problem,
        builtin_transformers=services.builtin_transformers,
        transformers=services.transformers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostServices:
    """Everything that the host functions of one script are made of."""

    runtime: ScriptServices
    memory: AgentMemory
    exit_stack: AsyncExitStack
    """Closes open streams with the script."""
    storage: str = "script/"
    """The prefix of its keys in the key-value store and the cache."""
    io: ScriptIo = field(default_factory=ScriptIo)
    journal: ScriptJournal | None = None
    """The script's journal in a session: with it calls of tools and of http obey the same rules as a model's calls."""
    invoke: Callable[[ScriptRequest, str, dict[str, Any]], Awaitable[JSON]] | None = None
    """Calls a tool where there is no ``journal``."""
    agents: ChildAgents | None = None
    record_usage: Callable[[UsageRecorded], None] | None = None
    """Called with the usage of each model call."""
    log: Callable[[str, str], None] | None = None
    """Receives a level (``debug``, ``info``, ``warning``, ``error``) and a line."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
