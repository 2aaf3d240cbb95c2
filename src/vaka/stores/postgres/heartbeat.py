"""The background connection of a store handle: it renews leases, and carries notifications between handles.

All handles use one channel of LISTEN/NOTIFY. A message is words separated by blanks; a session is named by its key:

- ``head <key> <seq>``: the log has grown
- ``live <sender> <key>``: its open blocks have changed
- ``here <sender> <key> <key>! …``: this handle follows these sessions; ``!`` marks those whose open blocks it watches
- ``who <sender>``: a new handle asks the others to announce what they follow
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from uuid import UUID, uuid4

import asyncpg

from vaka.core.ports.store import SessionInfo
from vaka.core.types.errors import VakaError
from vaka.core.types.ids import Term
from vaka.stores.followers import HeadWaiters
from vaka.stores.postgres.database import UNREACHABLE_ERRORS, PostgresDatabase, boot_time
from vaka.stores.postgres.encoding import PostgresKey

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


CHANNEL = "vaka"
FOLLOWER_TTL = 15.0
"""Seconds after which a follower that was not announced again is removed."""
_KEYS_PER_NOTIFICATION = 200
"""Keys in one notification, which is limited to 8000 bytes."""


def _ignore(*_: object) -> None:
    """Callback until one is set."""


class Followers:
    """Waits and watches in this process, what other handles follow as far as they announced it, and the messages."""

    def __init__(self) -> None:
        self._handle_id = uuid4().hex
        self._waiters: HeadWaiters[str] = HeadWaiters()
        self.awaited: dict[str, PostgresKey] = {}
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._followed_until: dict[str, float] = {}
        self._watched_until: dict[str, float] = {}
        self.complete_from: float | None = None
        """When every other handle has had time to announce; ``None`` while this one does not listen."""
        self.on_who: Callable[[], None] = _ignore
        self.on_watched: Callable[[str], None] = _ignore
        self.closed = False

    def __bool__(self) -> bool:
        return bool(self.awaited or self._watchers)

    def add_waiter(self, place: PostgresKey, after: int) -> "asyncio.Future[int]":
        """Return a future for the head once it is above ``after``; pass it to ``remove_waiter`` at the end."""
        self.awaited[place.key] = place
        return self._waiters.add(place.key, after)

    def remove_waiter(self, place: PostgresKey, future: "asyncio.Future[int]") -> None:
        if future.done() and not future.cancelled():
            future.exception()  # marks it as retrieved, also when the waiting task was cancelled
        self._waiters.remove(place.key, future)
        if place.key not in self._waiters:
            del self.awaited[place.key]

    def add_watcher(self, place: PostgresKey) -> asyncio.Event:
        """Return an event set whenever open blocks may have changed; pass it to ``remove_watcher`` at the end."""
        event = asyncio.Event()
        self._watchers.setdefault(place.key, set()).add(event)
        return event

    def remove_watcher(self, place: PostgresKey, event: asyncio.Event) -> None:
        self._watchers[place.key].discard(event)
        if not self._watchers[place.key]:
            del self._watchers[place.key]

    def set_head(self, key: str, head: int) -> None:
        """Resolve the waits for a log that are below ``head``."""
        self._waiters.wake(key, head)

    def wake_watchers(self, key: str | None = None) -> None:
        """Let the watchers of one session, or of all, read the open blocks again."""
        for name in [key] if key is not None else list(self._watchers):
            for event in self._watchers.get(name, ()):
                event.set()

    def close(self, error: Exception) -> None:
        """Raise ``error`` in all waits, and end all watches."""
        self.closed = True
        self._waiters.fail(self._waiters.keys(), error)
        self.wake_watchers()

    def may_follow(self, key: str) -> bool:
        """Whether another handle may follow this log, so that it must be notified."""
        now = boot_time()
        return self.complete_from is None or now < self.complete_from or self._followed_until.get(key, 0.0) > now

    def is_watched(self, key: str) -> bool:
        """Whether another handle watches the session's open blocks."""
        until = self._watched_until.get(key)
        return until is not None and until > boot_time()

    def prune(self) -> None:
        """Remove followers whose announcements have expired."""
        now = boot_time()
        for known in (self._followed_until, self._watched_until):
            for key in [key for key, until in known.items() if until <= now]:
                del known[key]

    def followed_keys(self) -> set[str]:
        """Return the keys that are followed here, with ``!`` after those whose open blocks are watched."""
        return {f"{key}!" for key in self._watchers} | (self.awaited.keys() - self._watchers.keys())

    def head_message(self, key: str, seq: int) -> str:
        return f"head {key} {seq}"

    def live_message(self, key: str) -> str:
        return f"live {self._handle_id} {key}"

    def who_message(self) -> str:
        return f"who {self._handle_id}"

    def here_messages(self, keys: set[str]) -> list[str]:
        names, size = sorted(keys), _KEYS_PER_NOTIFICATION
        pages = [names[start : start + size] for start in range(0, len(names), size)]
        return [f"here {self._handle_id} {' '.join(page)}" for page in pages]

    def on_notification(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        """Act on a message; an unknown one may come from a newer version and is ignored."""
        match str(payload).split(" "):
            case ["head", key, seq] if seq.isascii() and seq.isdigit() and len(seq) < 19:
                self.set_head(key, int(seq))
            case ["live", sender, key] if sender != self._handle_id:
                self.wake_watchers(key)
            case ["here", sender, *keys] if sender != self._handle_id:
                self._record_announcement(keys)
            case ["who", sender] if sender != self._handle_id:
                self.on_who()
            case _:
                pass

    def _record_announcement(self, keys: list[str]) -> None:
        until = boot_time() + FOLLOWER_TTL
        watched = [key[:-1] for key in keys if key.endswith("!")]
        self._watched_until.update(dict.fromkeys(watched, until))
        self._followed_until.update({key.rstrip("!"): until for key in keys})
        for key in watched:
            self.on_watched(key)


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
        followers: Followers,
        leases: Mapping[UUID, Lease],
        lease: float,
        is_needed: Callable[[], bool],
    ) -> None:
        self._database, self._followers, self._leases, self._is_needed = database, followers, leases, is_needed
        self._lease, self._renew_interval = lease, lease / 3
        self._statement_timeout = min(5.0, max(1.0, self._renew_interval))
        self._task: asyncio.Task[None] | None = None
        self._wakeup = asyncio.Event()
        self._announced: set[str] = set()
        self._announce_at = self._check_at = self._renew_at = 0.0
        followers.on_who = self.announce

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
            self._followers.complete_from = None
            await self._pause(min(0.25, self._renew_interval / 2))
            if self._is_needed():
                until = boot_time() + IDLE_SECONDS

    async def _run_connected(self) -> None:
        """Do what is due until nothing is needed or the connection breaks."""
        connection = await self._database.connect()
        try:
            connection.add_termination_listener(lambda _: self._wakeup.set())
            await connection.add_listener(CHANNEL, self._followers.on_notification)
            message = self._followers.who_message()
            await connection.execute(_NOTIFY, CHANNEL, [message], timeout=self._statement_timeout)
            self._followers.complete_from = boot_time() + ANSWER_SECONDS
            self._announced = set()
            self._announce_at = self._check_at = 0.0
            self._followers.wake_watchers()
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
        followed = self._followers.followed_keys()
        due = now >= self._announce_at
        if due or not followed <= self._announced:
            messages = self._followers.here_messages(followed if due else followed - self._announced)
            await connection.execute(_NOTIFY, CHANNEL, messages, timeout=self._statement_timeout)
            self._announced = followed
            if due:
                self._announce_at = now + ANNOUNCE_INTERVAL
                self._followers.prune()
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
        places = {(place.namespace, place.session): place.key for place in self._followers.awaited.values()}
        if places:
            namespaces, sessions = zip(*places, strict=True)
            heads = await connection.fetch(_SELECT_HEADS, namespaces, sessions, timeout=self._statement_timeout)
            for namespace, session, head in heads:
                self._followers.set_head(places[namespace, session], head)

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
