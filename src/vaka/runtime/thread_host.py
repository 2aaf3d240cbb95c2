"""The sessions of a runtime, as threads use them."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vaka.agents.react import Agent
from vaka.core.ports.env import Clock, IdGenerator
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.branches import TimedEntry
from vaka.core.session.snapshot import OpenedSession
from vaka.core.types.control import SessionOpened, SessionUpdated
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.imported_turns import LogEntry
from vaka.core.types.state import SessionState
from vaka.runtime.log_imports import store_entries
from vaka.runtime.session import Session
from vaka.runtime.session_binding import SessionBinding
from vaka.runtime.session_edits import (
    CheckSession,
    check_merged_metadata,
    check_version,
    delete_session,
    make_update,
    read_kept_backwards,
)

if TYPE_CHECKING:
    from vaka.runtime.drivers import SessionDrivers
    from vaka.runtime.runtime import Runtime


class RuntimeThreadHost:
    """Satisfies ``AgentHost`` of ``vaka.threads.host`` for a runtime."""

    def __init__(self, runtime: "Runtime", drivers: "SessionDrivers") -> None:
        self._runtime = runtime
        self._drivers = drivers
        self._agent: Agent[Any, Any] = Agent("threads")
        """The agent of edits, which run no turn."""

    @property
    def store(self) -> Store:
        return self._runtime.store

    @property
    def clock(self) -> Clock:
        return self._runtime.env.clock

    @property
    def ids(self) -> IdGenerator:
        return self._runtime.env.ids

    async def open_session(self, agent: Agent[Any, Any], id: str = "") -> Session[Any]:
        return await self._runtime.open(agent, id=id)

    async def create_session(
        self, session: SessionId, agent: str, *, title: str, owner: str, metadata: Mapping[str, Any]
    ) -> None:
        body = make_update(title, owner, None, metadata, "")
        await self._drivers.update(session, body, SessionOpened(agent=agent), create=True)

    async def update_session(
        self,
        session: SessionId,
        *,
        title: str | None,
        metadata: Mapping[str, Any] | None,
        by: str,
        version: int | None,
    ) -> None:
        await self._runtime.update_session(session, title=title, metadata=metadata, by=by, version=version)

    async def set_state(
        self,
        session: SessionId,
        state: str,
        *,
        by: str,
        version: int | None = None,
        check: CheckSession | None = None,
    ) -> None:
        checks = [each for each in (check_version(session, version), check) if each is not None]

        def check_all(info: SessionInfo | None) -> None:
            for each in checks:
                each(info)

        await self._drivers.update(session, SessionUpdated(state=state, by=by), check=check_all)

    async def append_entries(
        self,
        session: SessionId,
        compose: Callable[[OpenedSession], Awaitable[Sequence[TimedEntry]]],
        info: SessionInfo | None = None,
    ) -> Sequence[Event]:
        binding = SessionBinding(self._runtime, self._drivers, self._agent, session, {})
        return await binding.append_entries(compose, info)

    async def store_entries(
        self, session: SessionId, state: SessionState, entries: Sequence[LogEntry]
    ) -> Sequence[TimedEntry]:
        return await store_entries(self._runtime, session, state, entries)

    def check_metadata(self, session: SessionId, info: SessionInfo | None, changes: Mapping[str, Any]) -> None:
        check_merged_metadata(session, info, changes)

    def read_kept_backwards(self, session: SessionId, upto: int) -> AsyncGenerator[Event]:
        return read_kept_backwards(self.store, session, upto)

    async def wait_idle(self, session: SessionId) -> None:
        await self._drivers.wait_idle(session)

    async def delete_session(self, session: SessionId) -> None:
        await delete_session(self.store, session)
        self._runtime.hub.end_followers(session)
