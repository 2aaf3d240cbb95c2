"""What the server of MCP clients needs of a runtime: its sessions, and the agents that answer."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from vaka.core.ports.env import Env
from vaka.core.ports.store import PendingDecision, Store
from vaka.core.types.control import RunSettings
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, SessionId


@runtime_checkable
class ServedResponse(Protocol):
    """The response of a turn."""

    @property
    def text(self) -> str: ...

    @property
    def session_id(self) -> str: ...

    @property
    def turn_id(self) -> str: ...

    @property
    def stop(self) -> str: ...

    @property
    def limit(self) -> str: ...

    @property
    def error(self) -> str: ...

    @property
    def output(self) -> object: ...


class ServedTurn(Protocol):
    """A turn whose events can be read."""

    @property
    def response(self) -> ServedResponse:
        """The response, after the last event. Raises ``TurnError``."""
        ...

    async def wait(self) -> ServedResponse: ...

    def __aiter__(self) -> AsyncIterator[Event]: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


class ServedSession(Protocol):
    """A session that calls of clients run turns of."""

    @property
    def id(self) -> SessionId: ...

    def stream(
        self, prompt: str, /, *, key: str = "", earlier: bool = False, options: Mapping[str, JSON] | None = None
    ) -> ServedTurn: ...

    def resume(self) -> ServedTurn: ...

    async def interrupt(self, note: str = "", /, *, by: str = "") -> object: ...

    async def withdraw(self, key: str, /) -> bool: ...

    async def update(self, *, owner: str, by: str) -> object: ...


class OpenSession(Protocol):
    """Returns the session of an agent with an id, or a new one. Raises ``InvalidInput``."""

    def __call__(self, *, id: str, run_settings: RunSettings | None = None) -> Awaitable[ServedSession]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServableAgent:
    """An agent that clients may ask."""

    name: str
    description: str
    open: OpenSession


class ServingRuntime(Protocol):
    """The store of sessions, and their open decisions."""

    @property
    def store(self) -> Store: ...

    @property
    def env(self) -> Env: ...

    async def decisions(self, session: str | None = None) -> Sequence[PendingDecision]: ...


class DescribeFailure(Protocol):
    """Returns the message for a turn that has failed, by the code and the message of its error."""

    def __call__(self, code: str, message: str, /) -> str: ...
