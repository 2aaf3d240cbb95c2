"""Reopening a session: the last snapshot, then the tail."""

from contextlib import aclosing

from vaka.core.ports.store import Store
from vaka.core.session.fold import fold
from vaka.core.session.state import FOLD, State, dump, load
from vaka.core.session.window import Window
from vaka.core.types.control import SessionReverted
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import VERSION, Event
from vaka.core.types.ids import SessionId

EVERY = 256
"""A snapshot is worth it when the tail since the last one has more events than this, and more bytes than it has."""


class Opened:
    """A session as it was found: its state, the events the model still sees, and where the log ends."""

    def __init__(self, state: State, window: Window, last: Event | None, base: int, size: int) -> None:
        self.state, self.window, self.last = state, window, last
        self.base, self.size = base, size
        """The seq and bytes of the snapshot it was opened from."""
        self.too_new = 0


async def reopen(store: Store, session: SessionId, *, upto: int | None = None) -> Opened:
    """Read a session (up to an event) from its last good snapshot on."""
    if await store.sessions.find(session) is None:
        return Opened(State(), Window((), State()), None, 0, 0)
    limit = upto
    while True:
        state, size = await _snapshot(store, session, limit)
        base = state.seq
        start = min(base, state.oldest - 1)
        branch = _Branch(base)
        # The event before the window is read again: its bytes are where the chain of the rest begins.
        async with aclosing(store.events.read(session, after=start, upto=upto)) as events:
            async for event in events:
                branch.take(event)
        if branch.behind is None:
            break
        limit = branch.behind  # the log was taken back to before this snapshot: it needs an older one
    tail = [event for event in branch.live if event.seq > base]
    fold(state, tail)
    if branch.last is not None:
        state.seq, state.epoch = branch.last.seq, branch.last.epoch
    opened = Opened(state, Window(branch.live, state), branch.last, base, size)
    opened.too_new = branch.too_new
    return opened


async def _snapshot(store: Store, session: SessionId, upto: int | None) -> tuple[State, int]:
    found = await store.snapshots.load(session, version=FOLD, upto=upto)
    if found is None:
        return State(), 0
    try:
        state = load(found[1])
    except Corrupt:
        return State(), 0  # losing a snapshot loses nothing
    return state, len(found[1])


class _Branch:
    """The events that still count: what a rewind left behind is dropped."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.live: list[Event] = []
        self.last: Event | None = None
        self.behind: int | None = None
        self.too_new = 0

    def take(self, event: Event) -> None:
        self.last = event
        if event.v > VERSION:
            self.too_new = event.v
        if isinstance(event.data, SessionReverted):
            to = event.data.to
            self.live = [kept for kept in self.live if kept.seq <= to]
            if event.seq > self.base > to:
                self.behind = to
        self.live.append(event)


async def keep(store: Store, session: SessionId, state: State, *, events: int, size: int) -> int | None:
    """Save a snapshot if the tail (``events``, ``size`` bytes) has outgrown one; return its size if so."""
    if events <= EVERY:
        return None
    data = dump(state)
    if size <= len(data):
        return None
    await store.snapshots.save(session, seq=state.seq, version=FOLD, data=data)
    return len(data)
