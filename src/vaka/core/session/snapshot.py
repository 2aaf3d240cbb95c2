"""Reopening a session: the last snapshot, the tail after it, and what the model still sees."""

import hashlib
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from vaka.core.ports.store import Store
from vaka.core.session.fold import fold
from vaka.core.session.line import Line
from vaka.core.session.state import FOLD, State, dump, load
from vaka.core.session.window import Window
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import VERSION, Event
from vaka.core.types.ids import SessionId

EVERY = 256
"""A snapshot is worth it when the tail since the last one has more events than this, and more bytes than it has."""


class Opened(NamedTuple):
    """A session as it was found: its state, the events the model still sees, and where the log ends."""

    state: State
    window: Window
    last: Event | None
    base: int
    """The seq of the snapshot it was opened from, and its bytes."""
    size: int
    too_new: int = 0


def nothing() -> Opened:
    """Return a session nobody has begun."""
    return Opened(State(), Window((), State()), None, 0, 0)


async def reopen(store: Store, session: SessionId, *, upto: int | None = None) -> Opened:
    """Read a session (up to an event) from its last good snapshot on."""
    if await store.sessions.find(session) is None:
        return nothing()
    limit = upto
    while True:
        kept = await _load(store, session, limit)
        base = kept.state.seq
        line = Line(base)
        # The event of the snapshot is read again: it proves that this is the log the snapshot was made of.
        events = await _read(store, session, max(base - 1, 0), upto)
        if base and (not events or events[0].hash != kept.hash):
            limit = base - 1
            continue
        for event in events[1 if base else 0 :]:
            line.take(event)
        tail, behind = line.live()
        if behind is None:
            break
        limit = behind  # the log was taken back to before this snapshot: it needs an older one
    state, last = fold(kept.state, tail), events[-1] if events else None
    if last is not None:
        state.seq, state.epoch = last.seq, last.epoch
    older = await _older(store, session, state, base)
    too_new = max([0, *(event.v for event in (*older, *events) if event.v > VERSION)])
    return Opened(state, Window([*older, *tail], state), last, base, kept.size, too_new)


async def _read(store: Store, session: SessionId, after: int, upto: int | None) -> list[Event]:
    async with aclosing(store.events.read(session, after=after, upto=upto)) as events:
        return [event async for event in events]


async def _older(store: Store, session: SessionId, state: State, base: int) -> list[Event]:
    """Return what the model still sees of the events up to the snapshot, and the inputs from before its window."""
    found: list[Event] = []
    for seq in state.early:
        if seq <= base:
            found += await _read(store, session, seq - 1, seq)
    if state.window <= base:
        line = Line(state.window - 1)
        for event in await _read(store, session, state.window - 1, base):
            line.take(event)
        found += line.live()[0]
    return found


class _Kept(msgspec.Struct):
    """A snapshot as it is stored: the state, its checksum, and the hash of the last event it was made of."""

    hash: str
    sum: str
    state: msgspec.Raw


class _Loaded(NamedTuple):
    state: State
    hash: str
    size: int


_read_kept = msgspec.json.Decoder(_Kept).decode


async def _load(store: Store, session: SessionId, upto: int | None) -> _Loaded:
    while True:
        found = await store.snapshots.load(session, version=FOLD, upto=upto)
        if found is None:
            return _Loaded(State(), "", 0)
        seq, data = found
        try:
            return _unpack(seq, data)
        except (Corrupt, msgspec.MsgspecError, ValueError, RecursionError):
            upto = seq - 1  # losing a snapshot loses nothing


def _unpack(seq: int, data: bytes) -> _Loaded:
    kept = _read_kept(data)
    state = load(bytes(kept.state))
    if state.seq != seq or kept.sum != _sum(kept.hash, bytes(kept.state)):
        raise Corrupt(f"snapshot {seq} is not what was written")
    return _Loaded(state, kept.hash, len(data))


def _pack(state: State, hash: str) -> bytes:
    data = dump(state)
    return msgspec.json.encode(_Kept(hash, _sum(hash, data), msgspec.Raw(data)))


def _sum(hash: str, data: bytes) -> str:
    return hashlib.sha256(hash.encode() + data).hexdigest()


class Tail:
    """What came after the last snapshot, and whether it is time for another."""

    def __init__(self, events: int = 0, floor: int = 0) -> None:
        self._events, self._size, self._floor = events, floor + 1, floor

    def add(self, events: Sequence[Event]) -> None:
        """Count events that were appended."""
        self._events += len(events)
        for event in events:
            self._size += len(event.stored)

    @property
    def grown(self) -> bool:
        """Whether it may be time for a snapshot."""
        return self._events > EVERY and self._size > self._floor

    async def keep(self, store: Store, session: SessionId, state: State, hash: str) -> None:
        """Save a snapshot if the tail has outgrown one; ``hash`` is that of the event the state is as of."""
        if not self.grown:
            return
        data = _pack(state, hash)
        self._floor = len(data)
        if self._size > self._floor:
            await store.snapshots.save(session, seq=state.seq, version=FOLD, data=data)
            self._events, self._size = 0, 0
