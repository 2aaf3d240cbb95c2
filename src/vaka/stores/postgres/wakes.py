"""Who is to be told what: those who wait or watch here, and what is known of those elsewhere.

Handles talk on one channel, in words apart by a blank; a session is named by the key of its place:

- ``head <key> <seq>``: the log has grown
- ``live <me> <key>``: its open blocks have changed
- ``here <me> <key> <key>! …``: I follow these; with ``!`` their open blocks too
- ``who <me>``: I have just come, say again what you follow
"""

import asyncio
from collections.abc import Callable, Iterator
from uuid import uuid4

from vaka.stores.postgres.claims import clock
from vaka.stores.postgres.text import Place

CHANNEL = "vaka"
FORGET = 15.0
"""Seconds after which a follower that was not heard of again is forgotten."""
_ROOM = 200
"""Keys in one notification, which holds 8000 bytes."""


def _nothing(*_: object) -> None:
    """Nobody cares yet."""


class Here:
    """Those who wait for a log to grow, or watch its open blocks, in this process."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Place, dict[asyncio.Future[int], int]]] = {}
        self._watching: dict[str, set[asyncio.Event]] = {}
        self.closed = False

    def __bool__(self) -> bool:
        return bool(self._waiting or self._watching)

    def wait(self, place: Place, after: int) -> "asyncio.Future[int]":
        """Return a future that gets the head once it is above ``after``; hand it to ``forget`` in the end."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place.key, (place, {}))[1][future] = after
        return future

    def forget(self, place: Place, future: "asyncio.Future[int]") -> None:
        """Stop a wait."""
        if future.done() and not future.cancelled():
            future.exception()  # seen, also by one who was cancelled meanwhile
        waiting = self._waiting[place.key][1]
        del waiting[future]
        if not waiting:
            del self._waiting[place.key]

    def watch(self, place: Place) -> asyncio.Event:
        """Return what is set whenever open blocks may have changed; hand it to ``unwatch`` in the end."""
        event = asyncio.Event()
        self._watching.setdefault(place.key, set()).add(event)
        return event

    def unwatch(self, place: Place, event: asyncio.Event) -> None:
        """Stop a watch."""
        watching = self._watching[place.key]
        watching.discard(event)
        if not watching:
            del self._watching[place.key]

    def waited(self) -> list[Place]:
        """Return the places whose head someone waits for."""
        return [place for place, _ in self._waiting.values()]

    def followed(self) -> set[str]:
        """Return the keys that are followed here, with ``!`` after those whose open blocks are watched."""
        return {f"{key}!" for key in self._watching} | {key for key in self._waiting if key not in self._watching}

    def grown(self, key: str, head: int) -> None:
        """Tell those who wait for a log its head."""
        for future, after in self._waiting[key][1].items() if key in self._waiting else ():
            if head > after and not future.done():
                future.set_result(head)

    def changed(self, key: str | None = None) -> None:
        """Tell those who watch a session, or any, to look again."""
        for name in [key] if key is not None else list(self._watching):
            for event in self._watching.get(name, ()):
                event.set()

    def close(self, error: Exception) -> None:
        """Raise ``error`` in those who wait, and let those who watch end."""
        self.closed = True
        for _, waiting in self._waiting.values():
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
        self.changed()


class Elsewhere:
    """What other handles follow, as far as we have heard."""

    def __init__(self) -> None:
        self._follow: dict[str, float] = {}
        self._watch: dict[str, float] = {}
        self.sure_from: float | None = None
        """When everyone there has had time to speak; ``None`` while we do not listen."""

    def follows(self, key: str) -> bool:
        """Tell whether someone may have to be told that this log has grown."""
        now = clock()
        return self.sure_from is None or now < self.sure_from or self._follow.get(key, 0.0) > now

    def watches(self, key: str) -> bool:
        """Tell whether someone watches the session's open blocks."""
        until = self._watch.get(key)
        return until is not None and until > clock()

    def heard(self, keys: list[str]) -> list[str]:
        """Take note of an announcement; return the keys whose open blocks are watched."""
        until = clock() + FORGET
        watched = [key[:-1] for key in keys if key.endswith("!")]
        self._watch.update(dict.fromkeys(watched, until))
        self._follow.update({key.rstrip("!"): until for key in keys})
        return watched

    def prune(self) -> None:
        """Forget those who were not heard of for long."""
        now = clock()
        for known in (self._follow, self._watch):
            for key in [key for key, until in known.items() if until <= now]:
                del known[key]


class Talk:
    """The words handles exchange."""

    def __init__(self, here: Here, elsewhere: Elsewhere) -> None:
        self._me = uuid4().hex
        self.here, self.elsewhere = here, elsewhere
        self.on_who: Callable[[], None] = _nothing
        self.on_watched: Callable[[str], None] = _nothing

    def head(self, key: str, seq: int) -> str:
        """Say that a log has grown."""
        return f"head {key} {seq}"

    def live(self, key: str) -> str:
        """Say that open blocks have changed."""
        return f"live {self._me} {key}"

    def who(self) -> str:
        """Ask who is there."""
        return f"who {self._me}"

    def announce(self, keys: set[str]) -> Iterator[str]:
        """Say what is followed here."""
        names = sorted(keys)
        for start in range(0, len(names), _ROOM):
            yield f"here {self._me} {' '.join(names[start : start + _ROOM])}"

    def hear(self, payload: object) -> None:
        """Act on what another handle said; what we do not understand may be for newer ones."""
        match str(payload).split(" "):
            case ["head", key, seq] if seq.isascii() and seq.isdigit() and len(seq) < 19:
                self.here.grown(key, int(seq))
            case ["live", sender, key] if sender != self._me:
                self.here.changed(key)
            case ["here", sender, *keys] if sender != self._me:
                for key in self.elsewhere.heard(keys):
                    self.on_watched(key)
            case ["who", sender] if sender != self._me:
                self.on_who()
            case _:
                return
