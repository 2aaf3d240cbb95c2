"""Reopening a session: the last snapshot, the tail after it, and what the model still sees."""

import hashlib
from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from vaka.core.ports.store import Store
from vaka.core.session.branches import LiveBranch
from vaka.core.session.context_window import ContextWindow
from vaka.core.session.fold import fold
from vaka.core.session.state import FOLD_VERSION, SessionState, decode_state, encode_state
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import VERSION, Event
from vaka.core.types.ids import SessionId

SNAPSHOT_INTERVAL = 256
"""A snapshot is worth it when the tail since the last one has more events than this, and more bytes than it has."""


class OpenedSession(NamedTuple):
    """A session as it was found: its state, the events the model still sees, and where the log ends."""

    state: SessionState
    window: ContextWindow
    last: Event | None
    base: int
    """The seq of the snapshot it was opened from, and its bytes."""
    size: int
    too_new: int = 0


def empty_session() -> OpenedSession:
    """Return a session nobody has begun."""
    return OpenedSession(SessionState(), ContextWindow((), SessionState()), None, 0, 0)


async def reopen(store: Store, session: SessionId, *, upto: int | None = None) -> OpenedSession:
    """Read a session (up to an event) from its last good snapshot on."""
    if await store.sessions.find(session) is None:
        return empty_session()
    limit = upto
    while True:
        kept = await _load_snapshot(store, session, limit)
        base = kept.state.seq
        line = LiveBranch(base)
        # The event of the snapshot is read again: it proves that this is the log the snapshot was made of.
        events = await _read_events(store, session, max(base - 1, 0), upto)
        if base and (not events or events[0].hash != kept.hash):
            limit = base - 1
            continue
        for event in events[1 if base else 0 :]:
            line.add(event)
        tail, behind = line.live_events()
        if behind is None:
            break
        limit = behind  # the log was taken back to before this snapshot: it needs an older one
    state, last = fold(kept.state, tail), events[-1] if events else None
    if last is not None:
        state.seq, state.epoch = last.seq, last.epoch
    older = await _read_before_snapshot(store, session, state, base)
    too_new = max([0, *(event.v for event in (*older, *events) if event.v > VERSION)])
    return OpenedSession(state, ContextWindow([*older, *tail], state), last, base, kept.size, too_new)


async def _read_events(store: Store, session: SessionId, after: int, upto: int | None) -> list[Event]:
    async with aclosing(store.events.read(session, after=after, upto=upto)) as events:
        return [event async for event in events]


async def _read_before_snapshot(store: Store, session: SessionId, state: SessionState, base: int) -> list[Event]:
    """Return what the model still sees of the events up to the snapshot, and the inputs from before its window."""
    found: list[Event] = []
    for seq in state.early_input_seqs:
        if seq <= base:
            found += await _read_events(store, session, seq - 1, seq)
    if state.window <= base:
        line = LiveBranch(state.window - 1)
        for event in await _read_events(store, session, state.window - 1, base):
            line.add(event)
        found += line.live_events()[0]
    return found


class _StoredSnapshot(msgspec.Struct):
    """A snapshot as it is stored: the state, its checksum, and the hash of the last event it was made of."""

    hash: str
    sum: str
    state: msgspec.Raw


class _LoadedSnapshot(NamedTuple):
    state: SessionState
    hash: str
    size: int


_decode_snapshot = msgspec.json.Decoder(_StoredSnapshot).decode


async def _load_snapshot(store: Store, session: SessionId, upto: int | None) -> _LoadedSnapshot:
    while True:
        found = await store.snapshots.load(session, version=FOLD_VERSION, upto=upto)
        if found is None:
            return _LoadedSnapshot(SessionState(), "", 0)
        seq, data = found
        try:
            return _decode_checked(seq, data)
        except (Corrupt, msgspec.MsgspecError, ValueError, RecursionError):
            upto = seq - 1  # losing a snapshot loses nothing


def _decode_checked(seq: int, data: bytes) -> _LoadedSnapshot:
    kept = _decode_snapshot(data)
    state = decode_state(bytes(kept.state))
    if state.seq != seq or kept.sum != _checksum(kept.hash, bytes(kept.state)):
        raise Corrupt(f"snapshot {seq} is not what was written")
    return _LoadedSnapshot(state, kept.hash, len(data))


def _encode_snapshot(state: SessionState, hash: str) -> bytes:
    data = encode_state(state)
    return msgspec.json.encode(_StoredSnapshot(hash, _checksum(hash, data), msgspec.Raw(data)))


def _checksum(hash: str, data: bytes) -> str:
    return hashlib.sha256(hash.encode() + data).hexdigest()


class SnapshotTail:
    """What came after the last snapshot, and whether it is time for another."""

    def __init__(self, events: int = 0, last_size: int = 0) -> None:
        self._events, self._size, self._last_size = events, last_size + 1, last_size

    def add(self, events: Sequence[Event]) -> None:
        """Count events that were appended."""
        self._events += len(events)
        for event in events:
            self._size += len(event.stored)

    @property
    def is_due(self) -> bool:
        """Whether it may be time for a snapshot."""
        return self._events > SNAPSHOT_INTERVAL and self._size > self._last_size

    async def save_if_due(self, store: Store, session: SessionId, state: SessionState, hash: str) -> None:
        """Save a snapshot if the tail has outgrown one; ``hash`` is that of the event the state is as of."""
        if not self.is_due:
            return
        data = _encode_snapshot(state, hash)
        self._last_size = len(data)
        if self._size > self._last_size:
            await store.snapshots.save(session, seq=state.seq, version=FOLD_VERSION, data=data)
            self._events, self._size = 0, 0
