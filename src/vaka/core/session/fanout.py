"""Fan-out of live events to followers: bounded queues of deltas, and the open blocks a late follower needs."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from vaka.core.types import progress
from vaka.core.types.event import Event
from vaka.core.types.ids import EventScope, MessageId, SessionId, TurnId

MAX_QUEUED = 256
"""Queued live events above which a follower gets snapshots instead."""
MAX_QUEUED_CHARS = 128 * 1024
"""Characters of queued live events above which a follower gets snapshots instead."""
BATCH_BYTES = 128 * 1024
"""Bytes of durable events that a follower gets at a time, unless one event is larger: a slow reader holds them."""
STORED_BYTES = attrgetter("stored")
MERGE_FROM = 64
"""Queued live events from which on adjacent deltas of one block are merged."""
MAX_MERGED_CHARS = 4096
"""Characters of a delta above which nothing is added to it."""
RECENT_EVENTS = 512
"""Durable events held in memory, so that a follower that keeps up never reads the store."""
MAX_OUTPUT_CHARS = 64 * 1024
"""Characters held of a running tool's output; a message is held whole."""
REMEMBERED_CLOSED = 64
"""Closed messages remembered, to ignore late snapshots from another process."""

UnreadDelta: TypeAlias = tuple[EventScope, progress.Delta]
"""A delta that is not published yet."""

_TURN_ENDS = frozenset[type]({progress.TurnResumed, *progress.TURN_ENDS})
"""Events that end or resume a turn, which closes its blocks."""
_MESSAGE_ENDS = frozenset[type]({progress.MessageCompleted, progress.MessageDiscarded})
_CALL_ENDS = frozenset[type]({progress.ToolCompleted, progress.ToolFailed})


class BlockBuffer:
    """The text of an open block so far; of a tool's output only the end."""

    def __init__(self, event: Event) -> None:
        self.first_event = event
        self._parts: list[str] = []
        self._length = self._dropped = 0

    def add(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)
        if self._length > 2 * MAX_OUTPUT_CHARS and isinstance(self.first_event.data, progress.ToolOutputDelta):
            self._dropped += self._length - MAX_OUTPUT_CHARS
            self._parts, self._length = ["".join(self._parts)[-MAX_OUTPUT_CHARS:]], MAX_OUTPUT_CHARS

    def snapshot(self) -> Event:
        """Return the text as one event."""
        text = "".join(self._parts)
        self._parts = [text]
        body = self.first_event.data
        assert isinstance(body, progress.DELTAS)  # noqa: S101  # ``publish_live`` adds only deltas
        snapshot = progress.MessageSnapshot(
            message_id=body.message_id,
            block=body.block,
            of=body.type,
            text=text,
            offset=self._dropped,
            name=body.name if isinstance(body, progress.ToolArgsDelta) else "",
            stream=body.stream if isinstance(body, progress.ToolOutputDelta) else "stdout",
        )
        first = self.first_event
        return Event(
            data=snapshot, session=first.session, ts=first.ts, turn=first.turn, step=first.step, path=first.path
        )


class Follower:
    """The queue of one reader: live events, and head positions of the log.

    With ``turn_ends_only`` it gets no deltas and is woken only when a turn may have ended.
    """

    def __init__(self, *, turn_ends_only: bool = False) -> None:
        self.queue: deque[Event | int] = deque()
        self.input = ""
        """The key of the input whose turn is read, if it is one."""
        self.turn_ends_only = turn_ends_only
        self.live_count = self.live_chars = 0
        self.needs_snapshot = True
        """True when open blocks must be sent whole: at the start, and after the queue overflowed."""
        self.ended = False
        self.error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def next_wake(self) -> asyncio.Future[None]:
        """Return a future for the next ``wake``; for the one reader of the queue, which has found it empty."""
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        return waiter

    def wake(self) -> None:
        """Wake the reader."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def end(self, error: BaseException | None = None) -> None:
        """End the follower after what is queued; its reader raises ``error``."""
        self.ended, self.error = True, error
        self.wake()

    def advance_head(self, head: int) -> None:
        """Queue the new head of the log."""
        if self.queue and isinstance(self.queue[-1], int):
            self.queue[-1] = head
        else:
            self.queue.append(head)
        self.wake()

    def push(self, event: Event) -> None:
        """Queue a live event. Never blocks: a slow reader loses deltas and gets a snapshot."""
        if self.needs_snapshot:
            return
        chars = chars_of(event)
        is_too_long = self.live_count > 0 and self.live_chars + chars > MAX_QUEUED_CHARS
        if self.live_count >= MERGE_FROM and not is_too_long and self._merge(event, chars):
            return
        if self.live_count >= MAX_QUEUED or is_too_long:
            self.queue = deque(item for item in self.queue if isinstance(item, int))
            self.live_count = 0
            self.live_chars = 0
            self.needs_snapshot = True
            return
        self.queue.append(event)
        self.live_count += 1
        self.live_chars += chars
        if self._waiter is not None:
            self.wake()

    def _merge(self, event: Event, chars: int) -> bool:
        last = self.queue[-1]
        merged = None if isinstance(last, int) else merge_deltas(last, event)
        if merged is None:
            return False
        self.queue[-1] = merged
        self.live_chars += chars
        return True


def chars_of(event: Event) -> int:
    """Return the length of the text of a live event."""
    return len(getattr(event.data, "text", ""))


def take_batch(events: Sequence[Event]) -> list[Event]:
    """Return the first of some durable events, at most ``BATCH_BYTES`` of them but at least one."""
    if sum(map(len, map(STORED_BYTES, events))) <= BATCH_BYTES:
        return list(events)
    size, count = 0, 0
    for event in events:
        size += len(event.stored)
        if size > BATCH_BYTES and count:
            break
        count += 1
    return list(events[:count])


def merge_deltas(first: Event, second: Event) -> Event | None:
    """Return two adjacent deltas of one block as one; ``None`` if they are not, or if the first is long already."""
    old, new = first.data, second.data
    if not isinstance(old, progress.DELTAS) or not isinstance(new, progress.DELTAS) or type(old) is not type(new):
        return None
    if len(old.text) > MAX_MERGED_CHARS:
        return None
    if (old.message_id, old.block) != (new.message_id, new.block):
        return None
    return msgspec.structs.replace(first, data=msgspec.structs.replace(old, text=old.text + new.text))


class Fanout:
    """The followers of one session in this process, and what they share."""

    def __init__(self, session: SessionId) -> None:
        self.session = session
        self.head = 0
        self.recent_events: deque[Event] = deque(maxlen=RECENT_EVENTS)
        """The last events that this process has published, a chain of hashes without a gap. A cache of the log."""
        self.blocks: dict[tuple[MessageId, int], BlockBuffer] = {}
        self.remote_blocks: dict[tuple[MessageId, int], Event] = {}
        """The open blocks of a writer in another process, as last received."""
        self.followers: set[Follower] = set()
        self.readers: list[Follower] = []
        """The followers that read live events, and every new head; the others wait for the end of a turn."""
        self.unread: list[UnreadDelta] = []
        """The last deltas. They are published together, when a follower reads or needs the open blocks."""
        self.publish_deltas: Callable[[Sequence[UnreadDelta]], None] | None = None
        """Publishes the unread deltas; the log of the writer, which refers to this fanout."""
        self._closed: deque[MessageId] = deque(maxlen=REMEMBERED_CLOSED)

    def add_follower(self, follower: Follower) -> None:
        self.followers.add(follower)
        if not follower.turn_ends_only:
            self.readers.append(follower)

    def remove_follower(self, follower: Follower) -> None:
        self.followers.discard(follower)
        if follower in self.readers:
            self.readers.remove(follower)

    def publish_durable(self, events: Sequence[Event]) -> None:
        """Publish events that were appended, one after the other."""
        turn_ended, recent = self.close_blocks(events), self.recent_events
        # A sealed event has its digest; others were read. Events between them were written by another process.
        if recent and (recent[-1].digest or recent[-1].hash) != events[0].prev:
            recent.clear()
        recent += events
        head = events[-1].seq
        if head > self.head:  # noqa: PLR1730  # max() is slower, and this runs for every append
            self.head = head
        is_full = head - recent[0].seq + 1 >= RECENT_EVENTS  # those that wait must read before events are dropped
        for follower in self.followers if turn_ended or is_full else self.readers:
            follower.advance_head(self.head)

    def advance_head(self, head: int) -> None:
        """Publish the new head of a log that may be written elsewhere; a turn may have ended."""
        self.head = max(head, self.head)
        for follower in self.followers:
            follower.advance_head(self.head)

    def defer_delta(
        self, publish: Callable[[Sequence[UnreadDelta]], None], scope: EventScope, body: progress.Delta
    ) -> None:
        """Wake the followers, and publish the delta when the first follower reads: all deltas of one tick together."""
        if not self.unread:  # otherwise they are awake
            self.publish_deltas = publish
            for follower in self.readers:
                follower.wake()
        self.unread += ((scope, body),)
        if self.unread[MAX_QUEUED - 1 :]:
            self.publish_unread()

    def publish_unread(self) -> None:
        if self.unread and self.publish_deltas is not None:
            unread, self.unread = self.unread, []
            self.publish_deltas(unread)

    def publish_live(self, event: Event) -> None:
        body = event.data
        if isinstance(body, progress.DELTAS):
            block = self.blocks.get((body.message_id, body.block))
            if block is None:
                block = self.blocks[body.message_id, body.block] = BlockBuffer(event)
            block.add(body.text)
        for follower in self.readers:
            follower.push(event)

    def has_remote_block(self, event: Event) -> bool:
        """Whether a snapshot of the same block of a writer in another process was published, and is still open."""
        body = event.data
        return isinstance(body, progress.MessageSnapshot) and (body.message_id, body.block) in self.remote_blocks

    def publish_remote_block(self, event: Event) -> None:
        """Publish the snapshot of an open block of a writer in another process."""
        body = event.data
        if isinstance(body, progress.MessageSnapshot) and body.message_id not in self._closed:
            self.remote_blocks[body.message_id, body.block] = event
            for follower in self.readers:
                follower.push(event)

    def snapshots(self) -> list[Event]:
        """Return a snapshot of every open block."""
        self.publish_unread()
        if not self.blocks and not self.remote_blocks:
            return []
        return [*(block.snapshot() for block in self.blocks.values()), *self.remote_blocks.values()]

    def recent_between(self, after: int, upto: int) -> list[Event]:
        """Return the next durable events after ``after`` if all up to ``upto`` are in memory, otherwise none."""
        tail = self.recent_events
        if not tail or not tail[0].seq - 1 <= after < upto <= tail[-1].seq:
            return []
        first = tail[0].seq  # the chain of hashes has no gap, so positions are seqs
        events = list(islice(tail, after + 1 - first, upto + 1 - first))
        return events if len(events) == 1 else take_batch(events)

    def clear_open_blocks(self) -> None:
        """Forget open blocks and recent events: the writer has changed."""
        self.blocks = {}
        self.remote_blocks = {}
        self.unread = []
        self.recent_events.clear()

    def close_blocks(self, events: Iterable[Event]) -> bool:
        """Drop the blocks that these events close; return whether one of them ends or resumes a turn."""
        turn_ended = False
        for event in events:
            body: Any = event.data
            kind = type(event.data)
            if kind in _MESSAGE_ENDS or kind in _CALL_ENDS:
                message = MessageId(body.result.call) if kind in _CALL_ENDS else body.message_id
                self._closed += (message,)
                if self.unread or self.blocks or self.remote_blocks:
                    self._drop_message(message)
            elif kind in _TURN_ENDS:
                turn_ended = True
                if self.unread or self.blocks or self.remote_blocks:
                    self._drop_turn(event.turn)
        return turn_ended

    def _drop_turn(self, turn: TurnId) -> None:
        self.unread = [delta for delta in self.unread if delta[0].turn != turn]
        self.blocks = {key: block for key, block in self.blocks.items() if block.first_event.turn != turn}
        self.remote_blocks = {key: block for key, block in self.remote_blocks.items() if block.turn != turn}

    def _drop_message(self, message: MessageId) -> None:
        if self.unread:
            self.unread = [delta for delta in self.unread if delta[1].message_id != message]
        for blocks in (self.blocks, self.remote_blocks) if self.blocks or self.remote_blocks else ():
            for key in [key for key in blocks if key[0] == message]:
                del blocks[key]
