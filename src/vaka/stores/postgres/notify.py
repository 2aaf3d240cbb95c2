"""LISTEN/NOTIFY between handles: followers in this process, followers elsewhere as far as known, and the messages.

All handles use one channel. A message is words separated by blanks; a session is named by its key:

- ``head <key> <seq>``: the log has grown
- ``live <sender> <key>``: its open blocks have changed
- ``here <sender> <key> <key>! …``: this handle follows these sessions; ``!`` marks those whose open blocks it watches
- ``who <sender>``: a new handle asks the others to announce what they follow
"""

import asyncio
from collections.abc import Callable, Iterator
from uuid import uuid4

from vaka.stores.followers import HeadWaiters
from vaka.stores.postgres.database import boot_time
from vaka.stores.postgres.encoding import PostgresKey

CHANNEL = "vaka"
FOLLOWER_TTL = 15.0
"""Seconds after which a follower that was not announced again is removed."""
_KEYS_PER_NOTIFICATION = 200
"""Keys in one notification, which is limited to 8000 bytes."""


def _ignore(*_: object) -> None:
    """Callback until one is set."""


class LocalFollowers:
    """Waits for a log to grow, and watches of open blocks, in this process."""

    def __init__(self) -> None:
        self._waiters: HeadWaiters[str] = HeadWaiters()
        self._awaited: dict[str, PostgresKey] = {}
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self.closed = False

    def __bool__(self) -> bool:
        return bool(self._awaited or self._watchers)

    def add_waiter(self, place: PostgresKey, after: int) -> "asyncio.Future[int]":
        """Return a future for the head once it is above ``after``; pass it to ``remove_waiter`` at the end."""
        self._awaited[place.key] = place
        return self._waiters.add(place.key, after)

    def remove_waiter(self, place: PostgresKey, future: "asyncio.Future[int]") -> None:
        if future.done() and not future.cancelled():
            future.exception()  # marks it as retrieved, also when the waiting task was cancelled
        self._waiters.remove(place.key, future)
        if place.key not in self._waiters:
            del self._awaited[place.key]

    def add_watcher(self, place: PostgresKey) -> asyncio.Event:
        """Return an event set whenever open blocks may have changed; pass it to ``remove_watcher`` at the end."""
        event = asyncio.Event()
        self._watchers.setdefault(place.key, set()).add(event)
        return event

    def remove_watcher(self, place: PostgresKey, event: asyncio.Event) -> None:
        watching = self._watchers[place.key]
        watching.discard(event)
        if not watching:
            del self._watchers[place.key]

    def awaited_sessions(self) -> list[PostgresKey]:
        return list(self._awaited.values())

    def followed_keys(self) -> set[str]:
        """Return the keys that are followed here, with ``!`` after those whose open blocks are watched."""
        return {f"{key}!" for key in self._watchers} | (self._awaited.keys() - self._watchers.keys())

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


class RemoteFollowers:
    """What other handles follow, according to their announcements."""

    def __init__(self) -> None:
        self._followed_until: dict[str, float] = {}
        self._watched_until: dict[str, float] = {}
        self.complete_from: float | None = None
        """When every other handle has had time to announce; ``None`` while this one does not listen."""

    def may_follow(self, key: str) -> bool:
        """Whether another handle may follow this log, so that it must be notified."""
        now = boot_time()
        return self.complete_from is None or now < self.complete_from or self._followed_until.get(key, 0.0) > now

    def is_watched(self, key: str) -> bool:
        """Whether another handle watches the session's open blocks."""
        until = self._watched_until.get(key)
        return until is not None and until > boot_time()

    def record_announcement(self, keys: list[str]) -> list[str]:
        """Record a ``here`` message; return the keys whose open blocks are watched."""
        until = boot_time() + FOLLOWER_TTL
        watched = [key[:-1] for key in keys if key.endswith("!")]
        self._watched_until.update(dict.fromkeys(watched, until))
        self._followed_until.update({key.rstrip("!"): until for key in keys})
        return watched

    def prune(self) -> None:
        """Remove followers whose announcements have expired."""
        now = boot_time()
        for known in (self._followed_until, self._watched_until):
            for key in [key for key, until in known.items() if until <= now]:
                del known[key]


class NotifyProtocol:
    """Builds and handles the messages between handles."""

    def __init__(self, local: LocalFollowers, remote: RemoteFollowers) -> None:
        self._handle_id = uuid4().hex
        self.local, self.remote = local, remote
        self.on_who: Callable[[], None] = _ignore
        self.on_watched: Callable[[str], None] = _ignore

    def head_message(self, key: str, seq: int) -> str:
        return f"head {key} {seq}"

    def live_message(self, key: str) -> str:
        return f"live {self._handle_id} {key}"

    def who_message(self) -> str:
        return f"who {self._handle_id}"

    def here_messages(self, keys: set[str]) -> Iterator[str]:
        names = sorted(keys)
        for start in range(0, len(names), _KEYS_PER_NOTIFICATION):
            yield f"here {self._handle_id} {' '.join(names[start : start + _KEYS_PER_NOTIFICATION])}"

    def handle_message(self, payload: object) -> None:
        """Act on a message; an unknown one may come from a newer version and is ignored."""
        match str(payload).split(" "):
            case ["head", key, seq] if seq.isascii() and seq.isdigit() and len(seq) < 19:
                self.local.set_head(key, int(seq))
            case ["live", sender, key] if sender != self._handle_id:
                self.local.wake_watchers(key)
            case ["here", sender, *keys] if sender != self._handle_id:
                for key in self.remote.record_announcement(keys):
                    self.on_watched(key)
            case ["who", sender] if sender != self._handle_id:
                self.on_who()
            case _:
                return
