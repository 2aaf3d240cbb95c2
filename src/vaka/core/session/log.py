"""The log of a session as its writer has it.

One ``SessionLog`` holds the claim of its session. Every event it writes goes through ``append``: it is checked against
the invariants, sealed, stored, and only then folded and published. Appends made at the same time share one write.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any

from vaka.core.ports.env import Clock, format_milliseconds
from vaka.core.ports.log import SecretFinder
from vaka.core.ports.store import Store
from vaka.core.session.branches import LiveBranch
from vaka.core.session.fanout import Fanout
from vaka.core.session.fold import fold
from vaka.core.session.group_commit import (
    AppendGroup,
    WriteAttempt,
    WriteLock,
    seal_groups,
)
from vaka.core.session.live_redaction import LiveRedactor
from vaka.core.session.redaction import Secrets
from vaka.core.session.snapshot import OpenedSession, reopen
from vaka.core.types.control import OfferedBody
from vaka.core.types.errors import Closed, ConflictError, Corrupt, HeadMoved, StoreError, Unavailable
from vaka.core.types.event import Body, Event, Unknown
from vaka.core.types.ids import JSON, EventScope, SessionId, Term
from vaka.core.types.pending import NOTHING_PENDING, Entry, PendingView
from vaka.core.types.progress import DELTA_TYPES, Delta

STORE_RETRY_SECONDS = 60.0
"""Seconds of retries while the store cannot be reached."""


class SessionLog:
    """Implements the port ``Log`` over a store."""

    def __init__(
        self, store: Store, session: SessionId, fanout: Fanout, clock: Clock, secrets: Secrets | None = None
    ) -> None:
        self.store = store
        self.session = session
        self.fanout = fanout
        self.clock = clock
        self.listeners: list[Callable[[Sequence[Event]], None]] = []
        """Called with events after they are folded."""
        self.term, self.head = Term(0), 0
        """The claim, and the seq of the last event."""
        self.secrets = secrets if secrets is not None else Secrets()  # an empty registry is false, and may fill later
        self._lock = WriteLock()
        self._pending: PendingView | None = None
        self._groups: list[AppendGroup] = []
        self._deferred_entries: list[Entry] = []
        self._attempts: list[WriteAttempt] = []
        """Writes of unknown outcome. All begin at the head, so at most one of them is in the log."""
        self._changed: asyncio.Event | None = None
        self._is_reverting = False
        """True while a rewind is being written: the state then differs from the log."""
        self._handed_over = False
        self._live_redactor = LiveRedactor()

    def begin_writing(self, term: Term, opened: OpenedSession) -> None:
        """Become the writer of a session that was read as ``opened``."""
        self.term = term
        self.state, self.window = opened.state, opened.window
        self._last, self.head = opened.last, opened.last.seq if opened.last else 0
        self._tail = opened.tail
        self._attempts, self._handed_over = [], False
        self.fanout.advance_head(self.head)

    def hand_over(self) -> OpenedSession | None:
        """Return the session as of the last event, for another log to go on with; this one must not be used again.

        ``None`` when this log has not released its claim, or does not know what the stored log has.
        """
        uncertain = self._attempts or self._groups or self._deferred_entries or self._is_reverting
        if not self.released or uncertain or self._lock.held or self._last is None:
            return None
        self._handed_over = True
        self.window.forget_loaded()
        return OpenedSession(self.state, self.window, self._last, self._tail)

    @property
    def released(self) -> bool:
        """Whether the claim was released."""
        return self.term == 0

    @property
    def is_writer(self) -> bool:
        """Whether the claim certainly still holds, by the monotonic clock."""
        return self.store.events.is_held(self.session, self.term)

    def require_writer(self) -> None:
        """Raise ``ConflictError`` unless the claim certainly still holds."""
        if not self.is_writer:
            raise ConflictError(f"session {self.session!r}: this process no longer holds its claim")

    def predecessor_died(self) -> bool:
        """Whether the process that had the claim before has certainly ended."""
        return self.store.events.predecessor_died(self.session, self.term)

    def add_secret_finders(self, finders: Sequence[SecretFinder]) -> None:
        """Redact the matches of more finders in all further events."""
        missing = [finder for finder in finders if finder not in self.secrets.finders]
        if missing:
            self.secrets = self.secrets.with_finders(*missing)

    async def read_branch(self, after: int) -> list[Event]:
        """Return the stored events after ``after`` that no rewind has taken back."""
        branch = LiveBranch(after)
        async with aclosing(self.store.events.read(self.session, after=after)) as events:
            async for event in events:
                branch.add(event)
        return branch.live_events()[0]

    def defer(self, scope: EventScope, *bodies: Body) -> None:
        """Append these with the next append, without a write of their own."""
        for body in bodies:  # mostly one
            self._deferred_entries += ((scope, body),)
        self._pending = None

    @property
    def deferred(self) -> Sequence[Entry]:
        """The entries that wait for the next write."""
        if not self._groups:
            return self._deferred_entries
        return [*(entry for group in self._groups for entry in group.entries), *self._deferred_entries]

    @property
    def pending(self) -> PendingView:
        """The view of the deferred entries: the state of a turn is ``state`` with this view on top."""
        view = self._pending
        if view is None:
            deferred = self.deferred if self._groups else self._deferred_entries
            view = self._pending = PendingView(deferred) if deferred else NOTHING_PENDING
        return view

    def get_value(self, key: str) -> JSON:
        """Return a value of the session's state, deferred changes included."""
        values = self.pending.values
        return values[key] if key in values else self.state.values.get(key)

    async def append(self, scope: EventScope, *bodies: Body, release: bool = False) -> tuple[Event, ...]:
        """Append events, durable on return, and publish them. Raises ``LogError`` when they break an invariant.

        With ``release`` the claim ends with them. Deferred entries are written first, and stay deferred when this is
        cancelled before the write.
        """
        if self._handed_over:
            raise ConflictError(f"session {self.session!r}: this log has been handed over")
        entries = self._deferred_entries
        self._deferred_entries = []
        self._pending = None
        deferred_count = len(entries)
        for body in bodies:
            entries += ((scope, body),)
        group = AppendGroup(entries, deferred_count, release)
        self._groups += (group,)
        lock = self._lock
        try:
            if lock.held:
                await lock.acquire()
            else:
                lock.held = True
            try:
                if group.waiting:  # the append before this one may have written it
                    await self._flush(group)
            finally:
                lock.held = False
                if lock.waiters:
                    lock.wake_next()
        except BaseException:
            self._pending = None
            if group in self._groups and not group.withdraw():
                self._groups.remove(group)
            raise
        if group.error is not None:
            raise group.error
        return tuple(group.events[group.deferred_count :])

    async def revert(self, scope: EventScope, *bodies: Body) -> None:
        """Append the rewind of a turn by itself, and go on with the state that the stored log has then."""
        self._is_reverting = True
        await self.append(scope, *bodies)
        async with self._lock:
            opened = await reopen(self.store, self.session, upto=self.head)
            self.state.replace_with(opened.state)
            self.window, self._is_reverting = opened.window, False
            self._tail = opened.tail

    def publish_live(self, scope: EventScope, body: Body) -> None:
        """Publish an event that is not stored, with secrets redacted."""
        if type(body) in DELTA_TYPES:
            delta: Any = body
            self.fanout.defer_delta(self._publish_deltas, scope, delta)
            self.store.live.touch(self.session)  # no other event changes an open block
        elif self.fanout.readers:
            self.fanout.publish_unread()
            self._publish(((scope, self._live_redactor.redact(self.secrets, body)),))

    def _publish_deltas(self, deltas: Sequence[tuple[EventScope, Delta]]) -> None:
        self._publish(self._live_redactor.redact_deltas(self.secrets, deltas))

    def _publish(self, live: Sequence[Entry]) -> None:
        session, now = self.session, format_milliseconds(int(self.clock.time() * 1000))
        publish = self.fanout.publish_live
        for at, body in live:
            publish(Event(body, session, now, at.turn, at.step, at.path))

    async def sync(self, head: int | None = None) -> None:
        """Read the events that other processes have offered; with ``head`` only while this log is below it.

        Without the claim nothing is read: the next claim reads what is new, which may be a rewind.
        """
        if not self._handed_over:
            async with self._lock:
                if not self.released and (head is None or head > self.head):
                    await self._catch_up()

    def wait_for_change(self) -> Coroutine[Any, Any, bool]:
        """Return a coroutine that ends after the next event, counted from this call and not from its first await."""
        if self._changed is None:
            self._changed = asyncio.Event()
        return self._changed.wait()

    def wake_waiters(self) -> None:
        """Wake all callers of ``wait_for_change``."""
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def _flush(self, group: AppendGroup) -> None:
        """Write every waiting group, ``group`` among them."""
        waited, moved = 0.0, False
        while group.waiting:
            try:
                if (moved or self._attempts) and not await self._catch_up() and moved:
                    raise Corrupt(f"session {self.session!r}: its log ends before event {self.head}")
                moved = False
                if group.waiting:
                    await self._write()
            except HeadMoved:
                moved = True
            except Unavailable:
                waited = await self._wait_for_store(waited)
        if self._tail.is_due and not self._is_reverting and self._last is not None:
            with suppress(StoreError, Closed):  # a snapshot is only a cache
                await self._tail.save_if_due(self.store, self.session, self.state, self._last.hash)

    async def _write(self) -> None:
        now = format_milliseconds(int(self.clock.time() * 1000))
        attempt = seal_groups(self.session, self.state, self._groups, self._last, now, self.secrets)
        self._pending = None
        events, release = attempt.events, attempt.release
        if events:
            self._attempts += (attempt,)
            try:
                await self.store.events.append(self.session, events, head=self.head, term=self.term, release=release)
            except Unavailable:
                raise
            except StoreError:
                self._attempts = [other for other in self._attempts if other is not attempt]
                raise
        elif release:
            await self.store.events.release(self.session, self.term)
        self._finish_attempt(attempt)

    def _finish_attempt(self, attempt: WriteAttempt) -> None:
        for group, events in attempt.group_events:
            group.events, group.waiting = events, False
        groups, self._groups = self._groups, []
        for group in groups:  # those that came during the write
            if group.waiting:
                self._groups += (group,)
        self._attempts, self._pending = [], None
        if attempt.release:
            self.term = Term(0)
        self._apply(attempt.events)

    def _apply(self, events: Sequence[Event]) -> None:
        if not events:
            return
        fold(self.state, events)
        self.window.add(events, self.state)
        self._attempts = []
        self._last = last = events[-1]
        self.head = last.seq
        self._tail.add(events)
        fanout = self.fanout
        if fanout.unread and fanout.readers:
            fanout.publish_unread()
        if self._live_redactor.blocks:
            self._publish(self._live_redactor.flush_closed(events))
        for listener in self.listeners:
            listener(events)
        fanout.publish_durable(events)
        if self._changed is not None:
            self.wake_waiters()

    async def _catch_up(self) -> bool:
        """Read the new events of the log: offered events, and events of an attempt whose commit was not confirmed."""
        async with aclosing(self.store.events.read(self.session, after=self.head)) as stored:
            events = [event async for event in stored]
        committed = [attempt for attempt in self._attempts if attempt.was_written(events)]
        # One attempt may be a prefix of another: the longest was committed.
        attempt = max(committed, key=lambda attempt: len(attempt.events), default=None)
        if attempt is not None:
            if attempt.release:  # in the log the claim has ended, in the store handle it has not
                await self.store.events.release(self.session, self.term)
            self._finish_attempt(attempt)
        rest = events[len(attempt.events) if attempt else 0 :]
        # Unknown: a later version may know more bodies that can be offered.
        if not self.released and not all(isinstance(event.data, OfferedBody | Unknown) for event in rest):
            raise ConflictError(f"session {self.session!r} has another writer: its events were not offered")
        self._apply(rest)
        return bool(events)

    async def _wait_for_store(self, waited: float) -> float:
        if waited > STORE_RETRY_SECONDS:
            raise Unavailable(f"the store of session {self.session!r} cannot be reached; gave up after {waited:.0f} s")
        pause = min(0.05 + waited / 4, 1.0)
        await self.clock.sleep(pause)
        return waited + pause
