"""The services of the runtime that all turns share, among them the clock and the id generator, and timestamps."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol, TypeAlias

from vaka.core.ports.policy import Policy
from vaka.core.ports.tool import Tool, World
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.tool import FileUse, Grant

AskMode: TypeAlias = Literal["wait", "suspend", "deny"]
"""What a turn does when it needs a decision: wait for it, suspend with the request in the log, or deny it."""


class Clock(Protocol):
    def time(self) -> float:
        """Return the seconds since 1970, for timestamps; it may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds from some start, for durations; it never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds`` of this clock."""
        ...


class IdGenerator(Protocol):
    def new_id(self, prefix: str) -> str:
        """Return a unique id that begins with ``prefix``."""
        ...


def format_timestamp(seconds: float) -> str:
    """Return a time as RFC 3339 in UTC with milliseconds."""
    return format_milliseconds(int(seconds * 1000))


@lru_cache(maxsize=64)
def format_milliseconds(milliseconds: int) -> str:
    """Return milliseconds since 1970 as RFC 3339 in UTC; cached, since many events happen in one millisecond."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_format_second(seconds)}.{rest:03}Z"


@lru_cache(maxsize=64)
def _format_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def _use_no_files(_tool: Tool, _arguments: Mapping[str, Any]) -> FileUse | None:
    return None


class Env:
    """The services of the runtime that all turns share."""

    def __init__(self, clock: Clock, ids: IdGenerator, policy: Policy, ask: AskMode = "wait") -> None:
        self.clock = clock
        self.ids = ids
        self.policy = policy
        self.ask = ask
        self.stored_digests: set[Digest | None] = {None}
        """Digests of prompt texts that are stored as blobs already; an empty text has none and needs no blob."""
        self.variables: dict[str, str] = {}
        """Environment variables of commands, in addition to the variables of this process."""
        self.owner_grants: dict[SessionId, tuple[Grant, ...]] = {}
        """The grants of owners for all their sessions, by session with a running turn."""
        self.make_world: Callable[[], World] = World
        """Creates ``world`` on first use."""
        self.find_file_use: Callable[[Tool, Mapping[str, Any]], FileUse | None] = _use_no_files
        """Returns which files a call with these arguments uses; ``None`` when it may run beside any other."""
        self.stray_tasks: set[asyncio.Task[Any]] = set()
        """Tasks of tools that did not end within the grace period of their cancellation."""

    @cached_property
    def world(self) -> World:
        """The files, commands and network that tools use."""
        return self.make_world()

    @property
    def world_created(self) -> bool:
        """Whether ``world`` was used yet."""
        return "world" in vars(self)

    async def end_commands(self, session: SessionId | None = None) -> None:
        """End the background commands of one session, or of all sessions."""
        if self.world_created and self.world.shells is not None:
            await self.world.shells.close(session)

    def can_wait(self) -> bool:
        """Whether the turn may still wait for a decision: the mode changes when the runtime closes."""
        return self.ask == "wait"
