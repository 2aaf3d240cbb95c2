"""What the handles on one database share."""

import asyncio
import math
from collections.abc import Coroutine
from typing import TypeVar
from uuid import UUID

from vaka.core.types.errors import Closed, VakaError
from vaka.stores.postgres.claims import Claim
from vaka.stores.postgres.database import Database
from vaka.stores.postgres.live import Sharing
from vaka.stores.postgres.pulse import Pulse
from vaka.stores.postgres.text import Place
from vaka.stores.postgres.wakes import Elsewhere, Here, Talk
from vaka.stores.postgres.writer import Write, Writer

T = TypeVar("T")

_RELEASE = "update vaka.sessions set owner = null, lease_until = null where namespace = $1 and id = $2 and owner = $3"


class Hub:
    """Connections, claims and those who wait: one of each for all namespaces."""

    def __init__(self, database: Database, lease: float) -> None:
        self.database, self.lease = database, lease
        self.claims: dict[UUID, Claim] = {}
        self.here, self.elsewhere = Here(), Elsewhere()
        self.talk = Talk(self.here, self.elsewhere)
        self.pulse = Pulse(database, self.talk, self.claims, lease, self._busy)
        self.sharing = Sharing(database, self.talk)
        self._tasks: set[asyncio.Task[object]] = set()
        self.writer = Writer(database, lease, self._committed)

    async def release(self, claim: Claim) -> None:
        """End a claim."""
        if self.claims.pop(claim.owner, None) is not None and claim.tried:
            await self.give_back(claim.place, claim.owner)

    async def give_back(self, place: Place, owner: UUID) -> None:
        """Let the server forget a claim."""
        await self.database.fetch(_RELEASE, place.namespace, place.session, owner)

    async def close(self) -> None:
        """End every claim and let go of everything."""
        self.here.close(Closed("this store was closed"))
        await self.writer.close()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self.sharing.close()
        await self.pulse.close()
        try:
            for claim in list(self.claims.values()):
                await self.release(claim)
        except VakaError:  # the server is away: the leases run out by themselves
            self.claims.clear()
        await self.database.close()

    def start(self, work: Coroutine[object, object, T]) -> "asyncio.Task[T]":
        """Do ``work`` to its end, also when the one who waits for it gives up; ``close`` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has seen it, or does not want to know any more

    def _busy(self) -> bool:
        return bool(self.here or self.sharing or any(claim.tried for claim in self.claims.values()))

    def _committed(self, write: Write) -> None:
        claim, place = write.claim, write.place
        if claim is not None and write.release:
            self.claims.pop(claim.owner, None)
        elif claim is not None:
            first = claim.renewed == math.inf
            claim.renewed, claim.info = write.sent, write.info
            if first:
                self.pulse.wake()
        self.here.grown(place.key, write.info.head)
        self.sharing.committed(place.key)
