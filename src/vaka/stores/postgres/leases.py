"""Leases of sessions on the server's clock, and the heartbeat that renews them."""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from uuid import UUID

import asyncpg

from vaka.core.ports.store import SessionInfo
from vaka.core.types.errors import VakaError
from vaka.core.types.ids import Term
from vaka.stores.postgres.database import UNREACHABLE_ERRORS, PostgresDatabase, boot_time
from vaka.stores.postgres.encoding import PostgresKey
from vaka.stores.postgres.notify import CHANNEL, NotifyProtocol

LEASE_MARGIN = 0.1
"""The part of a lease that is not relied on, for clocks that run at different speeds."""


class Lease:
    """The right to write one session, as far as this process knows."""

    __slots__ = ("info", "owner", "place", "renewed", "term", "tried")

    def __init__(
        self, place: PostgresKey, info: SessionInfo, term: Term, owner: UUID, renewed: float = math.inf
    ) -> None:
        self.place, self.info, self.term, self.owner = place, info, term, owner
        self.renewed = renewed
        """When the statement that last renewed it was sent; infinite for a new session, which has no lease yet."""
        self.tried = renewed < math.inf
        """Whether the server may have a row of it."""

    def is_held(self, duration: float) -> bool:
        """Whether the lease is certainly still valid on the server."""
        return boot_time() < self.renewed + duration * (1 - LEASE_MARGIN)


CHECK_INTERVAL = 1.0
"""Seconds between polls of the awaited heads, in case a notification is lost."""

ANNOUNCE_INTERVAL = 5.0

ANSWER_SECONDS = 1.0
"""Seconds that other handles have to answer a ``who`` message."""

IDLE_SECONDS = 5.0
"""Seconds to stay connected when there is nothing to do."""

_NOTIFY = "select pg_notify($1, word) from unnest($2::text[]) as word"

_SELECT_HEADS = (
    "select s.namespace, s.id, s.head from vaka.sessions s "
    "join unnest($1::bytea[], $2::bytea[]) as w (namespace, id) on s.namespace = w.namespace and s.id = w.id"
)

# A locked row is being written: by its writer, which renews the lease as well, or by a short offer.
_RENEW_LEASES = (
    "with mine as (select s.namespace, s.id from vaka.sessions s "
    "join unnest($1::bytea[], $2::bytea[], $3::uuid[]) as c (namespace, id, owner) "
    "on s.namespace = c.namespace and s.id = c.id and s.owner = c.owner for no key update of s skip locked) "
    "update vaka.sessions s set lease_until = now() + make_interval(secs => $4) from mine "
    "where s.namespace = mine.namespace and s.id = mine.id returning s.owner"
)


class Heartbeat:
    """Renews leases, announces followers and polls heads while ``is_needed()``; reconnects after a lost connection."""

    def __init__(
        self,
        database: PostgresDatabase,
        protocol: NotifyProtocol,
        leases: Mapping[UUID, Lease],
        lease: float,
        is_needed: Callable[[], bool],
    ) -> None:
        self._database, self._protocol, self._leases, self._is_needed = database, protocol, leases, is_needed
        self._local, self._remote = protocol.local, protocol.remote
        self._lease, self._renew_interval = lease, lease / 3
        self._statement_timeout = min(5.0, max(1.0, self._renew_interval))
        self._task: asyncio.Task[None] | None = None
        self._wakeup = asyncio.Event()
        self._announced: set[str] = set()
        self._announce_at = self._check_at = self._renew_at = 0.0
        protocol.on_who = self.announce

    def wake(self) -> None:
        """Start the heartbeat, or let a running one look for new work."""
        if self._task is None or self._task.done():
            self._renew_at = boot_time() + self._renew_interval
            self._task = asyncio.create_task(self._run())
        self._wakeup.set()

    def announce(self) -> None:
        """Announce again what this handle follows."""
        self._announce_at = 0.0
        self._wakeup.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        until = boot_time() + IDLE_SECONDS
        while boot_time() < until and not self._database.closed:
            with suppress(*UNREACHABLE_ERRORS, asyncpg.PostgresError, VakaError):
                await self._run_connected()
            self._remote.complete_from = None
            await self._pause(min(0.25, self._renew_interval / 2))
            if self._is_needed():
                until = boot_time() + IDLE_SECONDS

    async def _run_connected(self) -> None:
        """Do what is due until nothing is needed or the connection breaks."""
        connection = await self._database.connect()
        try:
            connection.add_termination_listener(lambda _: self._wakeup.set())
            await connection.add_listener(CHANNEL, self._on_notification)
            message = self._protocol.who_message()
            await connection.execute(_NOTIFY, CHANNEL, [message], timeout=self._statement_timeout)
            self._remote.complete_from = boot_time() + ANSWER_SECONDS
            self._announced = set()
            self._announce_at = self._check_at = 0.0
            self._local.wake_watchers()
            until = boot_time() + IDLE_SECONDS
            while boot_time() < until and not connection.is_closed():
                if self._is_needed():
                    until = boot_time() + IDLE_SECONDS
                await self._run_due(connection)
                await self._pause(self._seconds_until_due())
        finally:
            await _close_connection(connection)

    async def _run_due(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        now = boot_time()
        if now >= self._renew_at:
            await self._renew_leases(connection)
        followed = self._local.followed_keys()
        due = now >= self._announce_at
        if due or not followed <= self._announced:
            messages = list(self._protocol.here_messages(followed if due else followed - self._announced))
            await connection.execute(_NOTIFY, CHANNEL, messages, timeout=self._statement_timeout)
            self._announced = followed
            if due:
                self._announce_at = now + ANNOUNCE_INTERVAL
                self._remote.prune()
        if now >= self._check_at:
            await self._check_heads(connection)
            self._check_at = now + CHECK_INTERVAL

    async def _renew_leases(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        sent = boot_time()
        old = [
            claim for claim in self._leases.values() if claim.tried and sent - claim.renewed > self._renew_interval / 2
        ]
        if old:
            names = [claim.place.namespace for claim in old], [claim.place.session for claim in old]
            rows = await connection.fetch(
                _RENEW_LEASES, *names, [claim.owner for claim in old], self._lease, timeout=self._statement_timeout
            )
            for (owner,) in rows:
                if (claim := self._leases.get(owner)) is not None:
                    claim.renewed = sent
        self._renew_at = sent + self._renew_interval

    async def _check_heads(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        places = {(place.namespace, place.session): place.key for place in self._local.awaited_sessions()}
        if places:
            namespaces, sessions = zip(*places, strict=True)
            heads = await connection.fetch(_SELECT_HEADS, namespaces, sessions, timeout=self._statement_timeout)
            for namespace, session, head in heads:
                self._local.set_head(places[namespace, session], head)

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._protocol.handle_message(payload)

    def _seconds_until_due(self) -> float:
        due = [self._announce_at, self._check_at] + ([self._renew_at] if self._leases else [])
        return max(0.0, min(due) - boot_time())

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            pass
        self._wakeup.clear()


async def _close_connection(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    try:
        async with asyncio.timeout(1.0):
            await connection.close()
    except (*UNREACHABLE_ERRORS, asyncpg.PostgresError):
        connection.terminate()
