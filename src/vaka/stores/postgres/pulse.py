"""What happens by itself: leases are renewed, heads looked at, followers announced. One task, one connection."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from uuid import UUID

import asyncpg

from vaka.core.types.errors import VakaError
from vaka.stores.postgres.claims import Claim, clock
from vaka.stores.postgres.database import UNREACHABLE, Database
from vaka.stores.postgres.wakes import CHANNEL, Talk

CHECK = 1.0
"""Seconds between looks at the heads that are waited for: the safety net under notifications."""
ANNOUNCE = 5.0
SETTLE = 1.0
"""Seconds that others get to answer when we ask who follows."""
LINGER = 5.0
"""Seconds to stay connected when there is nothing to do: something may come soon."""

_SAY = "select pg_notify($1, word) from unnest($2::text[]) as word"
_HEADS = (
    "select s.namespace, s.id, s.head from vaka.sessions s "
    "join unnest($1::bytea[], $2::bytea[]) as w (namespace, id) on s.namespace = w.namespace and s.id = w.id"
)
# A row that is locked is being written: by its writer, which renews it too, or by someone who is done before long.
_RENEW = (
    "with mine as (select s.namespace, s.id from vaka.sessions s "
    "join unnest($1::bytea[], $2::bytea[], $3::uuid[]) as c (namespace, id, owner) "
    "on s.namespace = c.namespace and s.id = c.id and s.owner = c.owner for no key update of s skip locked) "
    "update vaka.sessions s set lease_until = now() + make_interval(secs => $4) from mine "
    "where s.namespace = mine.namespace and s.id = mine.id returning s.owner"
)


class Pulse:
    """Runs while ``needed`` says so, and comes back by itself when the server was away."""

    def __init__(
        self, database: Database, talk: Talk, claims: Mapping[UUID, Claim], lease: float, needed: Callable[[], bool]
    ) -> None:
        self._database, self._talk, self._claims, self._needed = database, talk, claims, needed
        self._here, self._elsewhere = talk.here, talk.elsewhere
        self._lease, self._every = lease, lease / 3
        self._patience = min(5.0, max(1.0, self._every))
        self._task: asyncio.Task[None] | None = None
        self._kick = asyncio.Event()
        self._announced: set[str] = set()
        self._announce_at = self._check_at = self._renew_at = 0.0
        talk.on_who = self.announce

    def wake(self) -> None:
        """There is something new to do."""
        if self._task is None or self._task.done():
            self._renew_at = clock() + self._every
            self._task = asyncio.create_task(self._run())
        self._kick.set()

    def announce(self) -> None:
        """Say again what is followed here, soon."""
        self._announce_at = 0.0
        self._kick.set()

    async def close(self) -> None:
        """Stop for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        until = clock() + LINGER
        while clock() < until and not self._database.closed:
            with suppress(*UNREACHABLE, asyncpg.PostgresError, VakaError):
                await self._connected()
            self._elsewhere.sure_from = None
            await self._pause(min(0.25, self._every / 2))
            if self._needed():
                until = clock() + LINGER

    async def _connected(self) -> None:
        """Do what is due, until nothing is needed any more or the connection breaks."""
        talk = self._talk
        connection = await self._database.connect()
        try:
            connection.add_termination_listener(lambda _: self._kick.set())
            await connection.add_listener(CHANNEL, self._heard)
            await connection.execute(_SAY, CHANNEL, [talk.who()], timeout=self._patience)
            self._elsewhere.sure_from = clock() + SETTLE
            self._announced = set()
            self._announce_at = self._check_at = 0.0
            self._here.changed()
            until = clock() + LINGER
            while clock() < until and not connection.is_closed():
                if self._needed():
                    until = clock() + LINGER
                await self._step(connection)
                await self._pause(self._rest())
        finally:
            await _hang_up(connection)

    async def _step(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        now = clock()
        if now >= self._renew_at:
            await self._renew(connection)
        followed = self._here.followed()
        due = now >= self._announce_at
        if due or not followed <= self._announced:
            said = list(self._talk.announce(followed if due else followed - self._announced))
            await connection.execute(_SAY, CHANNEL, said, timeout=self._patience)
            self._announced = followed
            if due:
                self._announce_at = now + ANNOUNCE
                self._elsewhere.prune()
        if now >= self._check_at:
            await self._check(connection)
            self._check_at = now + CHECK

    async def _renew(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        sent = clock()
        old = [claim for claim in self._claims.values() if claim.tried and sent - claim.renewed > self._every / 2]
        if old:
            names = [claim.place.namespace for claim in old], [claim.place.session for claim in old]
            rows = await connection.fetch(
                _RENEW, *names, [claim.owner for claim in old], self._lease, timeout=self._patience
            )
            for (owner,) in rows:
                if (claim := self._claims.get(owner)) is not None:
                    claim.renewed = sent
        self._renew_at = sent + self._every

    async def _check(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        places = {(place.namespace, place.session): place.key for place in self._here.waited()}
        if places:
            namespaces, sessions = zip(*places, strict=True)
            heads = await connection.fetch(_HEADS, namespaces, sessions, timeout=self._patience)
            for namespace, session, head in heads:
                self._here.grown(places[namespace, session], head)

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        self._talk.hear(payload)

    def _rest(self) -> float:
        """Return how long nothing is due."""
        due = [self._announce_at, self._check_at] + ([self._renew_at] if self._claims else [])
        return max(0.0, min(due) - clock())

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._kick.wait()
        except TimeoutError:
            pass
        self._kick.clear()


async def _hang_up(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    try:
        async with asyncio.timeout(1.0):
            await connection.close()
    except (*UNREACHABLE, asyncpg.PostgresError):
        connection.terminate()
