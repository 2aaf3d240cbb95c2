"""``OutboundQueue``: the frames that wait for one connection, bounded by their number and bytes.

The queue never drops a stored event: while it is under pressure the subscriptions of the connection read nothing. What
a session publishes meanwhile waits in the log. Its deltas are merged by the follower, and replaced by snapshots of the
open blocks if there are too many.
"""

import asyncio
from collections import deque

import msgspec

from vaka.core.session.fanout import merge_deltas
from vaka.core.types.event import Event
from vaka.server.ws.frames import PressureControl, encode_control, encode_event

MAX_QUEUED_BYTES = 256 * 1024
MAX_QUEUED_FRAMES = 4096
MERGE_LEVEL = 0.5
"""From here on adjacent deltas of one block are merged; below it the pressure ends."""
PRESSURE_LEVEL = 0.8


class _QueuedFrame(msgspec.Struct, gc=False):
    data: bytes
    sub: str = ""
    cursor: str = ""
    """The cursor of a stored event."""
    delta: Event | None = None
    """A live event, to which the next one may be added."""


class OutboundQueue:
    """The frames of one connection that the client has not taken yet."""

    def __init__(self, max_bytes: int = MAX_QUEUED_BYTES, max_frames: int = MAX_QUEUED_FRAMES) -> None:
        self.max_bytes, self.max_frames = max_bytes, max_frames
        self.queued_bytes = 0
        self.pressure = False
        """True from ``PRESSURE_LEVEL`` until the queue is below ``MERGE_LEVEL`` again."""
        self.overflowed = False
        """True when a frame did not fit: the connection must be closed."""
        self._finished = False
        self.last_cursor = ""
        """The subscription and the cursor of the last stored event that was sent, such as ``s1 1.42``."""
        self._sending = ""
        self._frames: deque[_QueuedFrame] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.replaying = asyncio.Lock()
        """Held by the subscription that replays a log: each has some events in memory while the client reads slowly."""
        self._relief = asyncio.Event()
        self._relief.set()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def level(self) -> float:
        """How full the queue is, from 0 to 1."""
        return max(self.queued_bytes / self.max_bytes, len(self._frames) / self.max_frames)

    def put(self, data: bytes, *, first: bool = False) -> None:
        """Queue a reply, or with ``first`` a control frame before all others; sets ``overflowed`` if the queue is full.

        One frame may be larger than what is left.
        """
        if len(self._frames) >= self.max_frames or (self._frames and self.queued_bytes > self.max_bytes):
            self.overflowed = True
            self._wake()
            return
        frame = _QueuedFrame(data)
        if first:
            self._frames.appendleft(frame)
        else:
            self._frames.append(frame)
        self._grow(len(data))

    def put_event(self, sub: str, event: Event) -> None:
        """Queue an event; the caller has waited for ``relief``."""
        if not event.seq and self._frames and self.level >= MERGE_LEVEL and self._merge(sub, event):
            return
        data = encode_event(sub, event)
        queued = _QueuedFrame(data, sub, event.id) if event.seq else _QueuedFrame(data, sub, delta=event)
        self._frames.append(queued)
        self._grow(len(data))

    def _merge(self, sub: str, event: Event) -> bool:
        last = self._frames[-1]
        merged = merge_deltas(last.delta, event) if last.delta is not None and last.sub == sub else None
        if merged is None:
            return False
        data = encode_event(sub, merged)
        added = len(data) - len(last.data)
        last.data = data
        last.delta = merged
        self._grow(added)
        return True

    def _grow(self, added: int) -> None:
        self.queued_bytes += added
        self._wake()
        if not self.pressure and self.level >= PRESSURE_LEVEL:
            self._set_pressure(True)

    def _set_pressure(self, active: bool) -> None:
        self.pressure = active
        if active:
            self._relief.clear()
        else:
            self._relief.set()
        control = PressureControl(active=active, queued_frames=len(self._frames), queued_bytes=self.queued_bytes)
        data = encode_control(control)
        self._frames.appendleft(_QueuedFrame(data))
        self.queued_bytes += len(data)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def relief(self) -> None:
        """Wait until the queue is not under pressure."""
        await self._relief.wait()

    def finish(self) -> None:
        """End the queue when it has been emptied."""
        self._finished = True
        self._wake()

    async def take(self) -> bytes:
        """Return the next frame, for the only task that sends frames, when it has sent the previous frame.

        Returns ``b""`` at the end: when a finished queue is empty, and when the queue has overflowed.
        """
        self.last_cursor = self._sending
        while not self._frames and not self.overflowed and not self._finished:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.overflowed or not self._frames:
            return b""
        frame = self._frames.popleft()
        self.queued_bytes -= len(frame.data)
        if frame.cursor:
            self._sending = f"{frame.sub} {frame.cursor}"
        if self.pressure and self.level < MERGE_LEVEL:
            self._set_pressure(False)
        return frame.data
