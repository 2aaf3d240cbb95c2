"""What definitions and the GenX face need of a runtime and of other features."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from vaka.agents.react import Agent, ToolLike
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.env import Env
from vaka.core.ports.store import Store
from vaka.core.session.branches import TimedEntry
from vaka.core.session.follow import FollowerHub
from vaka.core.session.snapshot import OpenedSession
from vaka.core.types.event import Event
from vaka.core.types.ids import Cursor, SessionId
from vaka.core.types.imported_turns import LogEntry
from vaka.core.types.message import Content, Message


class DefinitionParts(Protocol):
    """The parts of agents and tools that definitions name and that other folders make."""

    def select_builtin_tools(self, names: Iterable[str] | None, /) -> Sequence[str]:
        """Return the names of built-in tools, of all without ``names``. Raises ``InvalidInput`` for an unknown one."""
        ...

    def builtin_name_of(self, name: str, /) -> str:
        """Return the name of a built-in tool for any of its aliases, and any other name unchanged."""
        ...

    def make_script_agent(
        self, name: str, script: str | Path, *, libs: Sequence[Path], trusted: bool, layer: str, **more: Any
    ) -> Agent:
        """Return the agent of a Luau script; ``more`` are arguments of ``Agent``."""
        ...

    def make_script_tool(
        self,
        script: str | Path,
        *,
        name: str,
        description: str,
        params: dict[str, Any] | None,
        libs: Sequence[Path],
        trusted: bool,
        layer: str,
    ) -> ToolLike:
        """Return the tool of a Luau script."""
        ...

    def keep_server_tools(self, names: Sequence[str], /) -> Middleware:
        """Return middleware that offers an agent only those tools of MCP servers that it names."""
        ...

    def reads_file(self, model: str, /) -> bool:
        """Return whether a model of this name reads a file."""
        ...


class StoredTurn(Protocol):
    """The part of a turn that has been read."""

    @property
    def turn(self) -> str: ...
    @property
    def ended(self) -> bool: ...


class EventBatches(Protocol):
    """Reads the events of a turn as they are written."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(self, *_: object) -> None: ...
    async def next_batch(self) -> list[Event]: ...


class SessionWork(Protocol):
    """The work behind a session: turns that are read in batches, and entries of its log."""

    @property
    def store(self) -> Store: ...

    async def open_turn(self, prompt: Content, on_busy: Literal["interrupt"], /) -> tuple[EventBatches, StoredTurn]:
        """Store an input and return the reader of the turn that answers it."""
        ...

    async def open_unfinished_turn(self) -> tuple[EventBatches | None, StoredTurn]:
        """Continue unfinished work and return the reader of its turn, ``None`` without such work."""
        ...

    async def append_entries(
        self, compose: Callable[[OpenedSession], Awaitable[Sequence[TimedEntry]]], /
    ) -> Sequence[Event]:
        """Append what ``compose`` returns for the current state. Raises ``Busy`` while a turn runs."""
        ...

    async def find_boundary_before(self, started: int, /) -> int:
        """Return the last position before a turn, given its ``turn.started``, and before the inputs before it."""
        ...

    async def append_imported(self, compose: Callable[[OpenedSession], Sequence[LogEntry]], /) -> None:
        """Append entries of a conversation that was held elsewhere; large texts become blobs first."""
        ...


class GenxSession(Protocol):
    """A session as ``Runtime.open`` returns it."""

    @property
    def id(self) -> SessionId: ...
    @property
    def agent(self) -> Agent[Any, Any]: ...
    @property
    def _binding(self) -> SessionWork: ...

    async def messages(self) -> tuple[Message, ...]: ...
    async def last_turn(self) -> tuple[Event, ...]: ...
    async def interrupt(self, note: str = "") -> None: ...
    async def close(self, reason: str = "") -> None: ...


class GenxHost(Protocol):
    """A ``vaka.Runtime``, as far as its GenX face uses it."""

    @property
    def store(self) -> Store: ...
    @property
    def env(self) -> Env: ...
    @property
    def hub(self) -> FollowerHub: ...
    @property
    def _definition_parts(self) -> DefinitionParts: ...

    async def open(self, agent: Agent[Any, Any], *, id: str = "") -> GenxSession: ...
    async def rewind(self, session: str, to: Cursor | str, *, interrupt: bool = False) -> Event: ...


def parts_of(host: GenxHost) -> DefinitionParts:
    """Return what a runtime gives to definitions."""
    # ``vaka.Runtime`` shows programs only what they use.
    return host._definition_parts  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # declared above


def work_of(session: GenxSession) -> SessionWork:
    """Return the work behind a session."""
    # ``Session`` is the public face of its binding, and the GenX face is another one.
    return session._binding  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # declared above
