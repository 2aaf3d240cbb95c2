"""Env: the services of the runtime that all turns share."""

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, TypeAlias

from vaka.core.ports.clock import Clock, IdGenerator
from vaka.core.ports.policy import Policy
from vaka.core.ports.tool import World
from vaka.core.types.ids import Digest, SessionId

AskMode: TypeAlias = Literal["wait", "suspend", "deny"]
"""What a turn does when it needs a decision: wait for it, suspend with the request in the log, or deny it."""


class Env:
    """The services of the runtime that all turns share."""

    def __init__(self, clock: Clock, ids: IdGenerator, policy: Policy, ask: AskMode = "wait") -> None:
        self.clock, self.ids, self.policy, self.ask = clock, ids, policy, ask
        self.stored_digests: set[Digest] = set()
        """Digests of prompt texts that are stored as blobs already."""
        self.make_world: Callable[[], World] = World
        """Creates ``world`` on first use."""
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
