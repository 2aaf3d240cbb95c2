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
"""Another agent's answer: the request, its name, its configuration, the conversation so far, and what is said now."""


class ScriptState(Protocol):
    """What an agent keeps by name."""

    async def all(self) -> dict[str, JSON]:
        """Return everything."""
        ...

    async def set(self, key: str, value: JSON) -> None:
        """Keep a value; ``None`` removes it."""
        ...


class ScriptHistory(Protocol):
    """What was said, oldest first, as ``{"role": …, "content": …}``."""

    async def recent(self, count: int) -> Sequence[Mapping[str, JSON]]:
        """Return the last messages."""
        ...

    async def append(self, message: Mapping[str, JSON], request: ScriptRequest | None = None) -> None:
        """Add a message; the same request twice adds it once."""
        ...

    async def revert(self, request: ScriptRequest) -> None:
        """Take back everything from the last message of a user on; the same request twice is once."""
        ...


class ScriptSummary(Protocol):
    """What an agent remembers in a few words."""

    async def read(self) -> str:
        """Return it, ``""`` if there is none."""
        ...

    async def write(self, text: str) -> None:
        """Replace it."""
        ...


class ScriptCache(Protocol):
    """Values that may be gone at any time."""

    def get(self, key: str) -> JSON:
        """Return a value, ``None`` if it is not there."""
        ...

    def set(self, key: str, value: JSON, ttl: float | None = None) -> None:
        """Keep a value, for ``ttl`` seconds at most; ``None`` removes it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostServices:
    """Everything a script's host functions are made of. All of it is optional: what is missing is not available."""

    nest: ScriptJournal | None = None
    """The place of the script in a session: with it calls of tools and of http are governed as a model's are."""
    network: Network | None = None
    models: Callable[[str], Model] | None = None
    """Finds a model by name; raises a ``VakaError`` when there is none."""
    usage: Callable[[UsageRecorded], None] | None = None
    """Told what each model call cost."""
    fits: Callable[[JSON, JSON], str] | None = None
    """Says what is wrong with a value by a JSON Schema (schema, value); nothing when it fits."""
    invoke: Callable[[ScriptRequest, str, dict[str, Any]], Awaitable[JSON]] | None = None
    """Calls a tool where there is no ``nest``."""
    agents: AskAgent | None = None
    state: ScriptState | None = None
    history: ScriptHistory | None = None
    summary: ScriptSummary | None = None
    values: KeyValueStore | None = None
    """Where ``kvs_*`` keeps its values, under ``prefix``."""
    prefix: str = "script/"
    cache: ScriptCache | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """The variables of the environment that scripts may see: these and no others."""
    log: Callable[[str, str], None] | None = None
    """Takes a level (``debug``, ``info``, ``warning``, ``error``) and a line."""
    input: Callable[[ScriptRequest], Awaitable[JSON]] | None = None
    """Returns what the caller of a tool says next, when it does."""
    output: Callable[[JSON, str | None], Awaitable[None]] | None = None
    """Takes what a tool puts out, and an error; called again when the script is replayed."""
    recv: Callable[[ScriptRequest], Awaitable[JSON]] | None = None
    """Returns what an agent hears next, as ``chunks.heard`` makes it, or ``None`` when it is closed."""
    emit: Callable[[JSON], Awaitable[None]] | None = None
    """Takes what an agent says, for ``chunks.said`` to read; called again when the script is replayed."""
    style: Callable[[str], None] | None = None
    """Told what an agent's script has: ``run``, ``input`` for ``on_input``, or ``main`` for neither."""
    clock: Clock | None = None
    uuid: Callable[[], str] | None = None
    closing: AsyncExitStack | None = None
    """Where streams put their end, to be closed with the script. Without it answers are read whole before they are
    handed over in pieces."""


def unavailable_function(name: str, why: str) -> HostFunction:
    """Return a host function that says that it is not there. It is recorded as others are: what is missing now may
    be there when the script is replayed.
    """

    async def raise_unavailable(*_: JSON) -> None:
        raise ScriptError(f"{name} is not available here: {why}")

    return HostFunction(raise_unavailable)
