"""Leases: the right to write a session for some seconds, renewed over whichever connection works."""

import asyncio
import logging
import math
from collections.abc import Mapping
from uuid import UUID

from vaka.core.ports.store import SessionInfo
from vaka.core.types.ids import Term
from vaka.stores.postgres.database import PostgresDatabase, boot_time
from vaka.stores.postgres.encoding import PostgresKey
from vaka.stores.postgres.heartbeat import CONNECTION_ERRORS, Heartbeat

LEASE_MARGIN = 0.1
"""The part of a lease that is not relied on, for clocks that run at different speeds."""

_log = logging.getLogger(__name__)


class Lease:
    """The right to write one session, as far as this process knows."""

    __slots__ = ("info", "owner", "place", "renewed", "term", "tried")

    def __init__(
        self, place: PostgresKey, info: SessionInfo, term: Term, owner: UUID, renewed: float = math.inf
    ) -> None:
        self.place = place
        self.info = info
        self.term = term
        self.owner = owner
        self.renewed = renewed
        """When the statement that last renewed it was sent; infinite for a new session, which has no lease yet."""
        self.tried = renewed < math.inf
        """Whether the server may have a row of it."""

    def is_held(self, duration: float) -> bool:
        """Whether the lease is certainly still valid on the server."""
        return boot_time() < self.renewed + duration * (1 - LEASE_MARGIN)


# A locked row is being written: by its writer, which renews the lease as well, or by a short offer.
_RENEW_LEASES = (
    "with mine as (select s.namespace, s.id from vaka.sessions s "
    "join unnest($1::bytea[], $2::bytea[], $3::uuid[]) as c (namespace, id, owner) "
    "on s.namespace = c.namespace and s.id = c.id and s.owner = c.owner for no key update of s skip locked) "
    "update vaka.sessions s set lease_until = now() + make_interval(secs => $4) from mine "
    "where s.namespace = mine.namespace and s.id = mine.id returning s.owner"
)


class LeaseRenewal:
    """Renews the leases of a handle three times in their duration, while there are any.

    The statement goes to a connection of the pool, which therefore has one open for the next append, or else to the
    connection of the heartbeat, which was opened before the first claim. If neither works, it is repeated until one
    does, and the log of the process says how long the leases still last.
    """

    def __init__(
        self, database: PostgresDatabase, heartbeat: Heartbeat, leases: Mapping[UUID, Lease], duration: float
    ) -> None:
        self._database = database
        self._heartbeat = heartbeat
        self._leases = leases
        self._duration = duration
        self._interval = duration / 3
        self._timeout = min(5.0, max(1.0, self._interval))
        self._task: asyncio.Task[None] | None = None
        self._failing_since: float | None = None
        self._reported_lost: set[UUID] = set()

    def wake(self) -> None:
        """Begin to renew leases, unless it has begun."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._leases and not self._database.closed:
            await asyncio.sleep(self._interval if self._failing_since is None else min(0.5, self._interval / 8))
            await self._renew_due()

    async def _renew_due(self) -> None:
        now = boot_time()
        due = [lease for lease in self._leases.values() if lease.tried and now - lease.renewed > self._interval / 2]
        if not due:
            return
        try:
            await self._renew(due)
        except CONNECTION_ERRORS as error:
            self._report_failure(due, error)
        else:
            if self._failing_since is not None:
                _log.warning("leases are renewed again after %.1f s", boot_time() - self._failing_since)
            self._failing_since = None
            self._reported_lost.clear()

    async def _renew(self, due: list[Lease]) -> None:
        arguments = (
            [lease.place.namespace for lease in due],
            [lease.place.session for lease in due],
            [lease.owner for lease in due],
            self._duration,
        )
        sent = boot_time()
        try:
            rows = await self._database.fetch_once(_RENEW_LEASES, *arguments, timeout=self._timeout)
        except CONNECTION_ERRORS as error:
            sent = boot_time()
            try:
                rows = await self._heartbeat.fetch(_RENEW_LEASES, *arguments, timeout=self._timeout)
            except CONNECTION_ERRORS:
                raise error from None  # the pool's says more than that there is no connection
        for (owner,) in rows:
            if (lease := self._leases.get(owner)) is not None:
                lease.renewed = sent

    def _report_failure(self, due: list[Lease], error: Exception) -> None:
        """Log the beginning of an outage, and once the end of each lease that it outlasts."""
        cause = self._database.unreachable_error(error)
        if self._failing_since is None:
            self._failing_since = boot_time()
            left = min(lease.renewed for lease in due) + self._duration - boot_time()
            _log.error(
                "the leases of %d running sessions cannot be renewed, the first one ends in %.1f s: %s",
                len(due),
                max(left, 0.0),
                cause,
            )
        lost = [lease for lease in due if not lease.is_held(self._duration) and lease.owner not in self._reported_lost]
        for lease in lost:
            self._reported_lost.add(lease.owner)
            _log.error(
                "the lease of session %r has ended: another process may run it, and what this one writes may be "
                "refused: %s",
                lease.info.id,
                cause,
            )
