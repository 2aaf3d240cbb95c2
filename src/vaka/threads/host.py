"""``ThreadHost``: what threads need of the runtime whose sessions they are."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from vaka.core.loop.middleware import Middleware
from vaka.core.ports.env import Clock, IdGenerator
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.branches import TimedEntry
from vaka.core.session.snapshot import OpenedSession
from vaka.core.types.ending import Response
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.imported_turns import LogEntry
from vaka.core.types.message import Content, Message, Part
from vaka.core.types.state import SessionState

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    AgentT = TypeVar("AgentT", bound="ThreadAgent", default=Any)
    AgentT_contra = TypeVar("AgentT_contra", bound="ThreadAgent", contravariant=True, default=Any)
else:
    from typing import TypeVar

    AgentT = TypeVar("AgentT")
    AgentT_contra = TypeVar("AgentT_contra", contravariant=True)

ComposeEntries: TypeAlias = Callable[[OpenedSession], Awaitable[Sequence[TimedEntry]]]
"""Returns the entries to append to a session as it is."""

CheckSession: TypeAlias = Callable[[SessionInfo | None], None]
"""Raises an error unless a session, by its index row, may be changed."""

TurnInput: TypeAlias = "str | Part | Content | list[Part]"
"""The input of a turn: a text, one content part, or a sequence of parts."""


class ThreadAgent(Protocol):
    """An agent that answers in a thread."""

    name: str
    middleware: tuple[Middleware[Any], ...]


class ThreadSession(Protocol):
    """An open session."""

    @property
    def id(self) -> SessionId: ...

    async def run(
        self, prompt: TurnInput, *, key: str = "", model: str = "", options: Mapping[str, Any] | None = None
    ) -> Response[Any]:
        """Run one turn and return its response. Raises ``TurnError`` when the turn ends without an answer."""
        ...

    async def messages(self) -> tuple[Message, ...]:
        """Return the conversation."""
        ...

    async def last_turn(self) -> tuple[Event, ...]:
        """Return the events of the last turn."""
        ...

    async def update(self, *, owner: str | None = None, tags: Sequence[str] | None = None) -> Event:
        """Describe the session anew."""
        ...


class ThreadHost(Protocol):
    """The sessions of a runtime."""

    @property
    def store(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def ids(self) -> IdGenerator: ...

    async def create_session(
        self, session: SessionId, agent: str, *, title: str, owner: str, metadata: Mapping[str, Any]
    ) -> None:
        """Begin the log of a session. Raises ``HeadMoved`` if it exists, and ``InvalidInput`` for its description."""
        ...

    async def update_session(
        self,
        session: SessionId,
        *,
        title: str | None,
        metadata: Mapping[str, Any] | None,
        by: str,
        version: int | None,
    ) -> None:
        """Describe a session anew. Raises ``HeadMoved`` if it has another version than ``version``."""
        ...

    async def set_state(
        self,
        session: SessionId,
        state: str,
        *,
        by: str,
        version: int | None = None,
        check: CheckSession | None = None,
    ) -> None:
        """Change the state of a session, if ``check`` does not raise. Raises ``HeadMoved`` for another version."""
        ...

    async def append_entries(
        self, session: SessionId, compose: ComposeEntries, info: SessionInfo | None = None
    ) -> Sequence[Event]:
        """Append the events that ``compose`` returns for the current state; the session exists afterwards.

        ``info`` is its index row, if it was just read. Raises ``Busy`` while a turn runs.
        """
        ...

    async def store_entries(
        self, session: SessionId, state: SessionState, entries: Sequence[LogEntry]
    ) -> Sequence[TimedEntry]:
        """Return entries that can follow a state of a session, and store large texts as blobs of the session.

        Raises ``Busy`` if the entries begin a turn and the session has an unfinished one.
        """
        ...

    def check_metadata(self, session: SessionId, info: SessionInfo | None, changes: Mapping[str, Any]) -> None:
        """Raise ``InvalidInput`` if a session cannot hold changes of its metadata together with the rest of them."""
        ...

    def read_kept_backwards(self, session: SessionId, upto: int) -> AsyncGenerator[Event]:
        """Yield the events up to ``upto`` that no rewind has removed, the newest first."""
        ...

    async def wait_idle(self, session: SessionId) -> None:
        """Wait until this process runs no turn of a session."""
        ...

    async def delete_session(self, session: SessionId) -> None:
        """Delete a session with its log, end its followers. Raises ``NotFound``, and ``Busy`` while a turn runs."""
        ...


class AgentHost(ThreadHost, Protocol[AgentT_contra]):
    """The sessions of a runtime, and its agents."""

    async def open_session(self, agent: AgentT_contra, id: str = "") -> ThreadSession:
        """Open a session with an agent; default: a new session."""
        ...
