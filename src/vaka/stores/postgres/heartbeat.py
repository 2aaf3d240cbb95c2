"""The background connection of a store handle: it carries notifications between handles.

All handles use one channel of LISTEN/NOTIFY. A message is words separated by blanks; a session is named by its key:

- ``head <key> <seq>``: the log has grown
- ``live <sender> <key>``: its open blocks have changed
- ``here <sender> <key> <key>! …``: this handle follows these sessions; ``!`` marks those whose open blocks it watches
- ``who <sender>``: a new handle asks the others to announce what they follow
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from uuid import uuid4

import asyncpg

from vaka.core.types.errors import VakaError
from vaka.stores.followers import HeadWaiters
from vaka.stores.postgres.database import UNREACHABLE_ERRORS, PostgresDatabase, PostgresRecord, boot_time
from vaka.stores.postgres.encoding import PostgresKey

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

    def fail_waits(self, error: Exception) -> None:
        """Raise ``error`` in all waits."""
        self._waiters.fail(self._waiters.keys(), error)

    def close(self, error: Exception) -> None:
        """Raise ``error`` in all waits, and end all watches."""
        self.closed = True
        self.fail_waits(error)
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
        """Return the keys that are followed here, with ``!`` after keys whose open blocks are watched."""
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

RECONNECT_SECONDS = 0.25
"""Seconds between attempts to open the connection."""

_STATEMENT_TIMEOUT = 5.0

CONNECTION_ERRORS = (*UNREACHABLE_ERRORS, asyncpg.PostgresError, VakaError)

_log = logging.getLogger(__name__)


class Heartbeat:
    """Announces followers and polls heads while ``is_needed()``, over a connection of its own that listens.

    It opens the connection again when it was lost. Until then heads are polled over the pool; if that fails too for
    as long as the store is patient, the waits end with an error.
    """

    def __init__(self, database: PostgresDatabase, followers: Followers, is_needed: Callable[[], bool]) -> None:
        self._database = database
        self._followers = followers
        self._is_needed = is_needed
        self._task: asyncio.Task[None] | None = None
        self._wakeup = asyncio.Event()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._opening: asyncio.Task[asyncpg.Connection[asyncpg.Record]] | None = None
        self._statement_lock = asyncio.Lock()
        self._announced: set[str] = set()
        self._announce_at = self._check_at = self._until = 0.0
        self._last_check = 0.0
        """When the awaited heads were last read, or there were none."""
        self._is_reported = False
        """Whether the log of the process says that the connection is missing."""
        followers.on_who = self.announce

    def wake(self) -> None:
        """Start the heartbeat, or let a running one look for new work."""
        if self._task is None or self._task.done():
            self._last_check = boot_time()
            self._task = asyncio.create_task(self._run())
        self._wakeup.set()

    async def require_connection(self) -> None:
        """Return when the connection is open. Raises ``CannotOpen`` or ``Unavailable`` if it cannot be opened.

        A session is claimed only after that: its lease can then be renewed even if the server accepts no more
        connections.
        """
        self._until = boot_time() + IDLE_SECONDS
        if self._connection is None or self._connection.is_closed():
            await self._database.try_until_deadline(self._open_connection)

    async def _open_connection(self) -> "asyncpg.Connection[asyncpg.Record]":
        """Return the connection; callers that need it at the same time share one attempt to open it."""
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._connect())
            self._opening.add_done_callback(_retrieve_error)
        return await asyncio.shield(self._opening)

    async def _connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        connection = self._connection = await self._database.connect()
        self.wake()  # it closes the connection when that is not needed for some time
        return connection

    async def fetch(self, statement: str, *arguments: object, timeout: float) -> list[PostgresRecord]:
        """Return the rows of a statement that runs on the connection. Raises asyncpg's errors."""
        async with self._statement_lock:
            if self._connection is None:
                raise asyncpg.InterfaceError("the connection of the heartbeat is not open")
            return await self._connection.fetch(statement, *arguments, timeout=timeout)

    def announce(self) -> None:
        """Announce again what this handle follows."""
        self._announce_at = 0.0
        self._wakeup.set()

    async def close(self) -> None:
        for task in (self._opening, self._task):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await close_connection(connection)

    async def _run(self) -> None:
        self._until = boot_time() + IDLE_SECONDS
        while boot_time() < self._until and not self._database.closed:
            try:
                await self._run_connected()
            except CONNECTION_ERRORS as error:
                await self._run_unconnected(error)
            self._followers.complete_from = None
            await self._pause(RECONNECT_SECONDS)
            if self._is_needed():
                self._until = boot_time() + IDLE_SECONDS

    async def _run_connected(self) -> None:
        """Do what is due until nothing is needed or the connection breaks."""
        connection = await self._open_connection()
        try:
            connection.add_termination_listener(lambda _: self._wakeup.set())
            async with self._statement_lock:
                await connection.add_listener(CHANNEL, self._followers.on_notification)
            await self.fetch(_NOTIFY, CHANNEL, [self._followers.who_message()], timeout=_STATEMENT_TIMEOUT)
            self._is_reported = False
            self._followers.complete_from = boot_time() + ANSWER_SECONDS
            self._announced = set()
            self._announce_at = self._check_at = 0.0
            self._followers.wake_watchers()
            self._until = boot_time() + IDLE_SECONDS
            while boot_time() < self._until and not connection.is_closed():
                if self._is_needed():
                    self._until = boot_time() + IDLE_SECONDS
                await self._run_due()
                await self._pause(self._seconds_until_due())
        finally:
            if self._connection is connection:  # otherwise a claim has opened another one meanwhile
                self._connection = None
            await close_connection(connection)

    async def _run_unconnected(self, error: Exception) -> None:
        """Poll over the pool what notifications do not report now."""
        cause = self._database.unreachable_error(error)
        if not self._is_reported:
            self._is_reported = True
            _log.warning("no connection for notifications, heads are polled every second: %s", cause)
        if boot_time() < self._check_at:
            return
        try:
            await self._check_heads(self._database.fetch_once)
            self._followers.wake_watchers()
        except CONNECTION_ERRORS as failure:
            if boot_time() - self._last_check > self._database.retry_seconds:
                self._followers.fail_waits(self._database.unreachable_error(failure))
                self._last_check = boot_time()

    async def _run_due(self) -> None:
        now = boot_time()
        followed = self._followers.followed_keys()
        due = now >= self._announce_at
        if due or not followed <= self._announced:
            messages = self._followers.here_messages(followed if due else followed - self._announced)
            await self.fetch(_NOTIFY, CHANNEL, messages, timeout=_STATEMENT_TIMEOUT)
            self._announced = followed
            if due:
                self._announce_at = now + ANNOUNCE_INTERVAL
                self._followers.prune()
        if now >= self._check_at:
            await self._check_heads(self.fetch)

    async def _check_heads(self, fetch: Callable[..., Awaitable[list[PostgresRecord]]]) -> None:
        self._check_at = boot_time() + CHECK_INTERVAL
        places = {(place.namespace, place.session): place.key for place in self._followers.awaited.values()}
        if places:
            namespaces, sessions = zip(*places, strict=True)
            for namespace, session, head in await fetch(
                _SELECT_HEADS, namespaces, sessions, timeout=_STATEMENT_TIMEOUT
            ):
                self._followers.set_head(places[namespace, session], head)
        self._last_check = boot_time()

    def _seconds_until_due(self) -> float:
        return max(0.0, min(self._announce_at, self._check_at) - boot_time())

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            pass
        self._wakeup.clear()


def _retrieve_error(opening: "asyncio.Task[asyncpg.Connection[asyncpg.Record]]") -> None:
    """Mark the error of a task as retrieved: the callers have got it, or were cancelled."""
    if not opening.cancelled():
        opening.exception()


async def close_connection(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Close a connection; cut it if it does not answer within a second."""
    try:
        async with asyncio.timeout(1.0):
            await connection.close()
    except (*UNREACHABLE_ERRORS, asyncpg.PostgresError):
        connection.terminate()
