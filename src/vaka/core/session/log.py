"""The writer's end of a session: append, and what was appended.

One ``Log`` holds the claim of its session. Everything it writes goes through ``append``: checked against the rules,
sealed, stored, and only then folded and shown. Appends made at the same time share one write.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from functools import lru_cache

from vaka.core.ports.clock import Clock
from vaka.core.ports.store import Store
from vaka.core.session.fanout import Fanout
from vaka.core.session.fold import apply
from vaka.core.session.place import NOWHERE, Place
from vaka.core.session.redact import Secrets
from vaka.core.session.rules import check
from vaka.core.session.snapshot import EVERY, Opened, keep
from vaka.core.types.control import ContextCompacted
from vaka.core.types.errors import ConflictError, HeadMoved, LogError, StoreError, Unavailable
from vaka.core.types.event import Body, Event, decode, seal
from vaka.core.types.ids import SessionId, Term

PATIENCE = 60.0
"""Seconds to go on trying when the store cannot be reached."""


@lru_cache(maxsize=16)
def _stamp(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stamp(seconds: float) -> str:
    """Return a time as RFC 3339 in UTC with milliseconds."""
    return _stamp(int(seconds * 1000))


class _Group:
    """What one caller wants to append."""

    def __init__(self, entries: list[tuple[Place, Body]], release: bool) -> None:
        self.entries, self.release = entries, release
        self.events: tuple[Event, ...] | None = None
        self.error: LogError | None = None


class Log:
    """The log of one session, held by its one writer."""

    def __init__(
        self, store: Store, session: SessionId, fanout: Fanout, clock: Clock, secrets: Secrets | None = None
    ) -> None:
        self.store, self.session, self.fanout, self.clock = store, session, fanout, clock
        self.listeners: list[Callable[[], None]] = []
        """Called after events were folded."""
        self.term = Term(0)
        self._secrets = secrets
        self._lock = asyncio.Lock()
        self._waiting: list[_Group] = []
        self._later: list[tuple[Place, Body]] = []
        self._flying: tuple[list[_Group], list[Event]] | None = None
        self._changed = asyncio.Event()

    def begin(self, term: Term, opened: Opened) -> None:
        """Take over as the writer of a session found as ``opened``."""
        self.term = term
        self.state, self.window = opened.state, opened.window
        self._head = opened.last.seq if opened.last else 0
        self._hash = opened.last.hash if opened.last else ""
        self._tail_events, self._tail_bytes = self._head - opened.base, opened.size + 1
        self.fanout.reach(self._head)

    @property
    def released(self) -> bool:
        """Whether the claim was given back."""
        return self.term == 0

    @property
    def head(self) -> int:
        """The seq of the last event."""
        return self._head

    @property
    def held(self) -> bool:
        """Whether this is surely still the writer, by the monotonic clock."""
        return self.store.events.held(self.session, self.term)

    def require(self) -> None:
        """Raise ``ConflictError`` unless this is surely still the writer."""
        if not self.held:
            raise ConflictError(f"session {self.session!r} is no longer ours to write")

    def later(self, place: Place, *bodies: Body) -> None:
        """Append these with whatever is appended next, at no cost of their own."""
        self._later.extend((place, body) for body in bodies)

    @property
    def deferred(self) -> Sequence[tuple[Place, Body]]:
        """What waits to be appended with the next write."""
        return self._later

    async def append(self, place: Place, *bodies: Body, release: bool = False) -> tuple[Event, ...]:
        """Append events, durable on return, and show them. Breaking a rule raises ``LogError`` and writes nothing.

        With ``release`` the claim ends with them, if nothing else is waiting to be written.
        """
        group = _Group([*self._later, *((place, body) for body in bodies)], release)
        self._later = []
        self._waiting.append(group)
        try:
            async with self._lock:
                if group.events is None and group.error is None:
                    await self._flush()
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(group)
            raise
        if group.error is not None:
            raise group.error
        return group.events or ()

    def live(self, place: Place, body: Body) -> None:
        """Show an event that is not stored."""
        event = Event(
            data=body,
            session=self.session,
            ts=stamp(self.clock.time()),
            turn=place.turn,
            step=place.step,
            path=place.path,
        )
        self.fanout.live(event)
        self.store.live.touch(self.session)

    async def sync(self) -> None:
        """Read what others have offered since."""
        async with self._lock:
            await self._settle()
            await self._catch_up()

    async def changed(self) -> None:
        """Return after the next event was folded."""
        await self._changed.wait()

    async def _flush(self) -> None:
        await self._settle()
        groups, self._waiting = self._waiting, []
        waited = 0.0
        while groups:
            events = self._seal(groups)
            groups = [group for group in groups if group.error is None]
            if not events:
                await self._release_only(groups)
                break
            self._flying = (groups, events)
            release = any(group.release for group in groups) and not self._waiting
            try:
                await self.store.events.append(self.session, events, head=self._head, term=self.term, release=release)
            except HeadMoved:
                self._flying = None
                await self._catch_up()
            except Unavailable:
                waited = await self._wait_for_store(waited)
                await self._settle()
                groups = [group for group in groups if group.events is None]
            except StoreError:
                self._flying = None
                raise
            else:
                self.term = Term(0) if release else self.term
                self._landed(groups, events)
                break
        for group in groups:
            group.events = group.events or ()
        await self._snapshot()

    async def _release_only(self, groups: list[_Group]) -> None:
        if any(group.release for group in groups) and not self._waiting:
            await self.store.events.release(self.session, self.term)
            self.term = Term(0)

    def _seal(self, groups: list[_Group]) -> list[Event]:
        events: list[Event] = []
        entries: list[tuple[Place, Body]] = []
        for group in groups:
            try:
                check(self.state, (*entries, *group.entries) if entries else group.entries)
            except LogError as error:
                group.error = error
            else:
                entries.extend(group.entries)
        seq, prev, ts = self._head, self._hash, stamp(self.clock.time())
        for place, body in entries:
            seq += 1
            event = Event(data=body, session=self.session, ts=ts, turn=place.turn, step=place.step, path=place.path)
            event = self._redacted(seal(event, epoch=self.state.epoch, seq=seq, prev=prev))
            prev = event.hash
            events.append(event)
        return events

    def _redacted(self, event: Event) -> Event:
        if self._secrets is None:
            return event
        clean = self._secrets.clean(event.stored)
        return event if clean == event.stored else decode(clean)

    def _landed(self, groups: list[_Group], events: list[Event]) -> None:
        self._flying = None
        at = 0
        for group in groups:
            group.events = tuple(events[at : at + len(group.entries)])
            at += len(group.entries)
        self._take(events)

    def _take(self, events: Sequence[Event]) -> None:
        if not events:
            return
        for event in events:
            apply(self.state, event)
            self.window.add(event)
            self._tail_bytes += len(event.stored)
            if isinstance(event.data, ContextCompacted):
                self.window.compact(self.state)
        self._head, self._hash = events[-1].seq, events[-1].hash
        self._tail_events += len(events)
        self.fanout.durable(events)
        for listener in self.listeners:
            listener()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _catch_up(self) -> None:
        async with aclosing(self.store.events.read(self.session, after=self._head)) as found:
            events = [event async for event in found]
        self._take(events)

    async def _settle(self) -> None:
        """Find out what became of a write whose end nobody saw."""
        if self._flying is None:
            return
        groups, sent = self._flying
        async with aclosing(self.store.events.read(self.session, after=self._head)) as found:
            events = [event async for event in found]
        self._flying = None
        if [event.stored for event in events[: len(sent)]] == [event.stored for event in sent]:
            self._landed(groups, sent)
            self._take(events[len(sent) :])
        else:
            self._take(events)

    async def _wait_for_store(self, waited: float) -> float:
        if waited > PATIENCE:
            raise Unavailable(f"the store of session {self.session!r} cannot be reached; gave up after {waited:.0f} s")
        pause = min(0.05 + waited / 4, 1.0)
        await self.clock.sleep(pause)
        return waited + pause

    async def _snapshot(self) -> None:
        if self._tail_events <= EVERY:
            return
        with suppress(StoreError):  # losing a snapshot loses nothing
            size = await keep(self.store, self.session, self.state, events=self._tail_events, size=self._tail_bytes)
            if size is not None:
                self._tail_events, self._tail_bytes = 0, 0


__all__ = ["NOWHERE", "Log", "Place", "stamp"]
