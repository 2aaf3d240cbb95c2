"""Snapshots of a session's state, and reopening a session from the last one and the events after it."""

import hashlib
from collections.abc import Sequence
from contextlib import aclosing
from operator import attrgetter
from typing import NamedTuple

import msgspec

from vaka.core.ports.store import SessionInfo, Store
from vaka.core.session.branches import LiveBranch
from vaka.core.session.context_window import ContextWindow, WindowIndex
from vaka.core.session.fold import fold
from vaka.core.types.control import SessionReverted
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import VERSION, Event
from vaka.core.types.ids import SessionId
from vaka.core.types.state import SessionState

FOLD_VERSION = "12"
"""The version of the fold. Raise it when the same events fold to another state: older snapshots are then ignored."""
SNAPSHOT_INTERVAL = 256
"""A snapshot is saved when more events than this, and more bytes than it has, follow the last one."""


class OpenedSession(NamedTuple):
    """A session as read from the store."""

    state: SessionState
    window: ContextWindow
    last: Event | None
    tail: "SnapshotTail"
    """The events after the last snapshot."""
    too_new: int = 0
    """The highest version of an event that this code must not act on."""
    info: SessionInfo | None = None
    """Its index row, for an edit."""


def empty_session(*, with_window: bool = True) -> OpenedSession:
    """Return a session without events."""
    state = SessionState()
    window = ContextWindow((), state)
    return OpenedSession(state, window, None, SnapshotTail(window if with_window else None))


async def reopen_warm(store: Store, session: SessionId, warm: OpenedSession) -> OpenedSession | None:
    """Bring a session that was read before up to date; see ``read_newer``."""
    return await read_newer(store, session, warm, await store.sessions.find(session))


async def read_newer(
    store: Store, session: SessionId, warm: OpenedSession, info: SessionInfo | None
) -> OpenedSession | None:
    """Bring a session that was read before up to date, which reads only what is new; ``None`` to read it whole.

    The head of ``info``, its index row, must be the last event known, or events that directly follow it must lead
    there. A rewind, a new epoch and events of a newer version need the whole log. Events that are known already are not
    read again.
    """
    last = warm.last
    if info is None or last is None or info.epoch != last.epoch or info.head < last.seq:
        return None
    if info.head == last.seq:
        return warm if info.hash == last.hash else None
    new = await _read_events(store, session, last.seq, None)
    if not new or new[0].prev != last.hash or any(_needs_whole_log(event, last) for event in new):
        return None
    fold(warm.state, new)
    if warm.tail.has_window:
        warm.window.add(new, warm.state)
    warm.tail.add(new)
    return warm._replace(last=new[-1])


def _needs_whole_log(event: Event, last: Event) -> bool:
    return isinstance(event.data, SessionReverted) or event.epoch != last.epoch or event.v > VERSION


async def reopen(
    store: Store, session: SessionId, *, upto: int | None = None, with_window: bool = True
) -> OpenedSession:
    """Read a session, up to an event, from its last valid snapshot on.

    Without its context window, which is empty then, it costs little however long the conversation is.
    """
    if await store.sessions.find(session) is None:
        return empty_session(with_window=with_window)
    limit = upto
    while True:
        snapshot = await _load_snapshot(store, session, limit)
        base = snapshot.state.seq
        branch = LiveBranch(base)
        # The last event of the snapshot is read again: its hash proves that the snapshot is of this log.
        events = await _read_events(store, session, max(base - 1, 0), upto)
        if base and (not events or events[0].hash != snapshot.hash):
            limit = base - 1
            continue
        for event in events[1 if base else 0 :]:
            branch.add(event)
        tail, limit = branch.live_events()
        if limit is None:  # otherwise the log was rewound to before this snapshot: an older one is needed
            break
    begin = snapshot.state.window
    state, last = fold(snapshot.state, tail), events[-1] if events else None
    if last is not None:
        state.seq, state.epoch = last.seq, last.epoch
    older: Sequence[Event] = ()
    if not with_window:
        window = ContextWindow((), state)
    elif state.window == begin and snapshot.window is not None:
        visible = await store.events.select(session, snapshot.window.seqs, digest=snapshot.window.digest)
        window = ContextWindow(tail, state, visible=visible)
    else:  # the index is of a window that begins earlier, or the snapshot has none
        older = await _read_before_snapshot(store, session, state, base)
        window = ContextWindow([*older, *tail], state)
    too_new = max([0, *(event.v for event in (*older, *events) if event.v > VERSION)])
    count = (last.seq if last is not None else 0) - base
    return OpenedSession(
        state, window, last, SnapshotTail(window if with_window else None, count, snapshot.size), too_new
    )


async def _read_events(store: Store, session: SessionId, after: int, upto: int | None) -> list[Event]:
    async with aclosing(store.events.read(session, after=after, upto=upto)) as events:
        return [event async for event in events]


async def _read_before_snapshot(store: Store, session: SessionId, state: SessionState, base: int) -> list[Event]:
    """Return the events up to the snapshot that are in the context window, and the inputs before it."""
    events: list[Event] = []
    for seq in state.early_input_seqs:
        if seq <= base:
            events += await _read_events(store, session, seq - 1, seq)
    if state.window <= base:
        branch = LiveBranch(state.window - 1)
        for event in await _read_events(store, session, state.window - 1, base):
            branch.add(event)
        events += branch.live_events()[0]
    return events


class _StoredSnapshot(msgspec.Struct):
    """A stored snapshot: the state, the index of its window, their checksum, and the hash of the last event."""

    v: int
    """The highest version of an event that the snapshot may include."""
    hash: str
    sum: str
    state: msgspec.Raw
    window: msgspec.Raw


class _LoadedSnapshot(NamedTuple):
    state: SessionState
    window: WindowIndex | None
    hash: str
    size: int


_decode_snapshot = msgspec.json.Decoder(_StoredSnapshot).decode
_decode_index = msgspec.json.Decoder(WindowIndex | None).decode
_state_encoder = msgspec.json.Encoder()
_state_decoder = msgspec.json.Decoder(SessionState)


def encode_state(state: SessionState) -> bytes:
    return _state_encoder.encode(state)


def decode_state(data: bytes) -> SessionState:
    """Return the state that ``data`` encodes. Raises ``Corrupt``."""
    try:
        return _state_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"snapshot cannot be decoded: {error}") from error


async def _load_snapshot(store: Store, session: SessionId, upto: int | None) -> _LoadedSnapshot:
    while True:
        row = await store.snapshots.load(session, version=FOLD_VERSION, upto=upto)
        if row is None:
            return _LoadedSnapshot(SessionState(), None, "", 0)
        seq, data = row
        try:
            return _decode_checked(seq, data)
        except (Corrupt, msgspec.MsgspecError, ValueError, RecursionError):
            upto = seq - 1  # a snapshot is only a cache: use the one before


def _decode_checked(seq: int, data: bytes) -> _LoadedSnapshot:
    stored = _decode_snapshot(data)
    if stored.v > VERSION or stored.sum != _checksum(stored):
        raise Corrupt(f"snapshot {seq} is not what was written, or of a newer version")
    state = decode_state(bytes(stored.state))
    if state.seq != seq:
        raise Corrupt(f"snapshot {seq} has the state of event {state.seq}")
    return _LoadedSnapshot(state, _decode_index(stored.window), stored.hash, len(data))


def _encode_snapshot(state: SessionState, window: ContextWindow | None, hash: str) -> bytes:
    index = msgspec.json.encode(window.index() if window is not None else None)
    stored = _StoredSnapshot(VERSION, hash, "", msgspec.Raw(encode_state(state)), msgspec.Raw(index))
    stored.sum = _checksum(stored)
    return msgspec.json.encode(stored)


def _checksum(stored: _StoredSnapshot) -> str:
    sums = [hashlib.sha256(data).hexdigest() for data in (stored.state, stored.window)]
    return hashlib.sha256(msgspec.json.encode((stored.v, stored.hash, sums))).hexdigest()


_STORED_BYTES = attrgetter("stored")


class SnapshotTail:
    """Counts the events and bytes after the last snapshot."""

    def __init__(self, window: ContextWindow | None, events: int = 0, last_size: int = 0) -> None:
        """Without a window the snapshots have no index of one, and the next ``reopen`` reads its events."""
        self._window = window
        self._events = events
        self._size = last_size + 1
        self._last_size = last_size
        self.is_due = events > SNAPSHOT_INTERVAL
        """Whether a snapshot may be due; its exact size is known only when it is encoded."""

    @property
    def has_window(self) -> bool:
        return self._window is not None

    def add(self, events: Sequence[Event]) -> None:
        self._events += events[-1].seq - events[0].seq + 1
        self._size += sum(map(len, map(_STORED_BYTES, events)))
        self.is_due = self._events > SNAPSHOT_INTERVAL and self._size > self._last_size

    async def save_if_due(self, store: Store, session: SessionId, state: SessionState, hash: str) -> None:
        """Save a snapshot if the tail is larger than it; ``hash`` is the hash of event ``state.seq``."""
        if not self.is_due:
            return
        data = _encode_snapshot(state, self._window, hash)
        self._last_size, self.is_due = len(data), False
        if self._size > self._last_size:
            await store.snapshots.save(session, seq=state.seq, version=FOLD_VERSION, data=data)
            self._events, self._size = 0, 0
