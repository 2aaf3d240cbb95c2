"""Group commit: appends requested at the same time are checked, sealed and written together."""

import asyncio
from collections.abc import Sequence

import msgspec

from vaka.core.session.hash_chain import seal_chain
from vaka.core.session.invariants import InvariantChecker
from vaka.core.session.redaction import Secrets
from vaka.core.types.errors import LogError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.pending import Entry
from vaka.core.types.state import SessionState


class WriteLock:
    """A lock that costs nothing while it is free: ``held`` may be set, and cleared if there are no ``waiters``."""

    __slots__ = ("held", "waiters")

    def __init__(self) -> None:
        self.held = False
        self.waiters: list[asyncio.Future[None]] = []

    async def acquire(self) -> None:
        """Wait until the lock is free, and take it."""
        while self.held:
            waiter = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self.wake_next()  # this waiter may have been woken: another must get the lock
                raise
            finally:
                if waiter in self.waiters:
                    self.waiters.remove(waiter)
        self.held = True

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.held = False
        self.wake_next()

    def wake_next(self) -> None:
        """Wake one of the waiting writers, if the lock is free."""
        waiting = [] if self.held else [waiter for waiter in self.waiters if not waiter.done()]
        if waiting:
            waiting[0].set_result(None)


class AppendGroup(msgspec.Struct, eq=False):
    """The entries of one append. The first ``deferred_count`` were deferred earlier and are written with them."""

    entries: Sequence[Entry]
    deferred_count: int = 0
    release: bool = False
    events: Sequence[Event] = ()
    error: LogError | None = None
    owner: "AppendGroup | None" = None
    waiting: bool = True
    """True until it is written or rejected."""

    def reject(self, error: LogError) -> "AppendGroup | None":
        """Reject the group; return a group of its deferred entries, which may still be written."""
        self.error, self.waiting = error, False
        if self.owner is not None:
            self.owner.error = error
        if not self.deferred_count:
            return None
        rest = AppendGroup(self.entries[: self.deferred_count])
        rest.owner = self
        return rest

    def withdraw(self) -> bool:
        """Remove the caller's own entries; return whether deferred ones are left to write."""
        self.entries = self.entries[: self.deferred_count]
        self.deferred_count = 0
        self.release = False
        return bool(self.entries)


class WriteAttempt(msgspec.Struct, frozen=True, eq=False):
    """A write that was sent to the store and may have been committed."""

    group_events: Sequence[tuple[AppendGroup, Sequence[Event]]]
    events: Sequence[Event]
    release: bool

    def was_written(self, tail: Sequence[Event]) -> bool:
        """Whether ``tail``, the stored events after the old head, begins with these."""
        return [event.stored for event in self.events] == [event.stored for event in tail[: len(self.events)]]


def seal_groups(
    session: SessionId, state: SessionState, groups: list[AppendGroup], last: Event | None, ts: str, secrets: Secrets
) -> WriteAttempt:
    """Return the events of the groups that keep the invariants; reject the others and remove them from ``groups``.

    ``last`` is the event before them, ``state`` the state after ``last``; ``ts`` is the time of the new events.
    """
    group, *others = groups
    if not others:
        try:
            InvariantChecker(state).check(group.entries)
            events = seal_chain(session, last, group.entries, ts, secrets)
            return WriteAttempt(((group, events),), events, group.release)
        except LogError:
            pass  # it is rejected below
    checker = InvariantChecker(state)
    accepted: list[tuple[AppendGroup, Sequence[Event]]] = []
    sealed_events: list[Event] = []
    release, queue = False, list(groups)
    while queue:
        group = queue.pop(0)
        try:
            checker.check(group.entries)
            before = sealed_events[-1] if sealed_events else last
            sealed = seal_chain(session, before, group.entries, ts, secrets)
        except LogError as error:
            rest = group.reject(error)
            queue[:0] = [rest] if rest else []
            checker = InvariantChecker(state)
            for other, _ in accepted:
                checker.check(other.entries)
        else:
            accepted.append((group, sealed))
            sealed_events += sealed
            release = release or group.release
    groups[:] = [group for group, _ in accepted]
    return WriteAttempt(accepted, sealed_events, release)
