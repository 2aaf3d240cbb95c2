"""The state that the namespaces of one store handle share."""

import asyncio
import math
from collections.abc import Coroutine
from typing import TypeVar
from uuid import UUID

from vaka.core.types.errors import Closed, VakaError
from vaka.stores.postgres.database import PostgresDatabase
from vaka.stores.postgres.encoding import PostgresKey
from vaka.stores.postgres.leases import Heartbeat, Lease
from vaka.stores.postgres.live import BlockWriter
from vaka.stores.postgres.notify import LocalFollowers, NotifyProtocol, RemoteFollowers
from vaka.stores.postgres.writer import GroupWriter, PendingWrite

T = TypeVar("T")

_RELEASE_LEASE = (
    "update vaka.sessions set owner = null, lease_until = null where namespace = $1 and id = $2 and owner = $3"
)


class PostgresHub:
    """Connections, leases, followers and background tasks of one handle, for all its namespaces."""

    def __init__(self, database: PostgresDatabase, lease_seconds: float) -> None:
        self.database, self.lease_seconds = database, lease_seconds
        self.leases: dict[UUID, Lease] = {}
        self.local, self.remote = LocalFollowers(), RemoteFollowers()
        self.protocol = NotifyProtocol(self.local, self.remote)
        self.heartbeat = Heartbeat(database, self.protocol, self.leases, lease_seconds, self._is_busy)
        self.block_writer = BlockWriter(database, self.protocol)
        self._tasks: set[asyncio.Task[object]] = set()
        self.writer = GroupWriter(database, lease_seconds, self._on_commit)

    async def release(self, claim: Lease) -> None:
        if self.leases.pop(claim.owner, None) is not None and claim.tried:
            await self.delete_lease(claim.place, claim.owner)

    async def delete_lease(self, place: PostgresKey, owner: UUID) -> None:
        await self.database.fetch(_RELEASE_LEASE, place.namespace, place.session, owner)

    async def close(self) -> None:
        self.local.close(Closed("this store was closed"))
        await self.writer.close()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self.block_writer.close()
        await self.heartbeat.close()
        try:
            for claim in list(self.leases.values()):
                await self.release(claim)
        except VakaError:  # the server is unreachable: the leases expire there
            self.leases.clear()
        await self.database.close()

    def start_task(self, work: Coroutine[object, object, T]) -> "asyncio.Task[T]":
        """Run ``work`` to its end even if its caller is cancelled; ``close`` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller has seen it or was cancelled

    def _is_busy(self) -> bool:
        return bool(self.local or self.block_writer or any(claim.tried for claim in self.leases.values()))

    def _on_commit(self, write: PendingWrite) -> None:
        claim, place = write.claim, write.place
        if claim is not None and write.release:
            self.leases.pop(claim.owner, None)
        elif claim is not None:
            first = claim.renewed == math.inf
            claim.renewed, claim.info = write.sent, write.info
            if first:
                self.heartbeat.wake()
        self.local.set_head(place.key, write.info.head)
        self.block_writer.on_commit(place.key)
