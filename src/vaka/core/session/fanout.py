"""Live events to followers: bounded queues of deltas, and the open blocks a late joiner needs."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from vaka.core.types import progress
from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId, SessionId

MAX_QUEUED = 256
"""Live events a follower may be behind before it gets snapshots instead."""
MERGE_FROM = 64
"""From this many on, neighbouring deltas of one block become one."""
RECENT_EVENTS = 512
"""Recent durable events kept at hand, so that a follower that keeps up never asks the store."""
MAX_OUTPUT_CHARS = 64 * 1024
"""Characters kept of what a running tool prints; of a message everything is kept."""
REMEMBERED_CLOSED = 64
"""Messages remembered as over, for snapshots from another process that come late."""

_DELTAS = (progress.TextDelta, progress.ReasoningDelta, progress.ToolArgsDelta, progress.ToolOutputDelta)
_TURN_BOUNDARIES = frozenset[type](
    {
        progress.TurnResumed,
        progress.TurnCompleted,
        progress.TurnFailed,
        progress.TurnCancelled,
        progress.TurnInterrupted,
    }
)
"""After these nothing of the turn that was open before is open any more."""
_BLOCK_ENDS = _TURN_BOUNDARIES | {
    progress.MessageCompleted,
    progress.MessageDiscarded,
    progress.ToolCompleted,
    progress.ToolFailed,
}
"""What brings blocks to an end."""


class BlockBuffer:
    """What an open block holds so far; of a tool's output only the end."""

    def __init__(self, event: Event) -> None:
        self.first_event = event
        self._parts: list[str] = []
        self._length = self._dropped = 0

    def add(self, text: str) -> None:
        """Take the next piece."""
        self._parts.append(text)
        self._length += len(text)
        if self._length > 2 * MAX_OUTPUT_CHARS and isinstance(self.first_event.data, progress.ToolOutputDelta):
            self._dropped += self._length - MAX_OUTPUT_CHARS
            self._parts, self._length = ["".join(self._parts)[-MAX_OUTPUT_CHARS:]], MAX_OUTPUT_CHARS

    def snapshot(self) -> Event:
        """Return everything the block holds as one event."""
        text = "".join(self._parts)
        self._parts = [text]
        body = self.first_event.data
        assert isinstance(body, _DELTAS)  # noqa: S101  # only deltas come here
        snapshot = progress.MessageSnapshot(
            message_id=body.message_id, block=body.block, of=body.type, text=text, offset=self._dropped,
            name=body.name if isinstance(body, progress.ToolArgsDelta) else "",
        )  # fmt: skip
        return msgspec.structs.replace(self.first_event, data=snapshot)


class Follower:
    """One reader's queue: live events, and numbers that say how far the log reaches.

    A patient one only wants to know how a turn ended: it gets no deltas and is woken then.
    """

    def __init__(self, *, turn_ends_only: bool = False) -> None:
        self.queue: deque[Event | int] = deque()
        self._turn_ends_only = turn_ends_only
        self.live_count = 0
        self.needs_snapshot = True
        """True when open blocks must be sent whole: at the start, and after too much was missed."""
        self.ended = False
        self.error: BaseException | None = None
        self.wakeup = asyncio.Event()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes, because of ``error`` if there is one: stop when everything so far was read."""
        self.ended, self.error = True, error
        self.wakeup.set()

    def advance_head(self, head: int, *, turn_ended: bool = True) -> None:
        """The log now reaches ``head``; ``over`` when a turn may have ended there."""
        if self.queue and isinstance(self.queue[-1], int):
            self.queue[-1] = head
        else:
            self.queue.append(head)
        if turn_ended or not self._turn_ends_only:
            self.wakeup.set()

    def push(self, event: Event) -> None:
        """Something live happened. Never blocks: a slow reader loses deltas and gets a snapshot."""
        if self.needs_snapshot or self._turn_ends_only:
            return
        if self.live_count >= MERGE_FROM and self._merge(event):
            return
        if self.live_count >= MAX_QUEUED:
            self.queue = deque(item for item in self.queue if isinstance(item, int))
            self.live_count, self.needs_snapshot = 0, True
            return
        self.queue.append(event)
        self.live_count += 1
        self.wakeup.set()

    def _merge(self, event: Event) -> bool:
        last = self.queue[-1]
        if isinstance(last, int) or type(last.data) is not type(event.data) or not isinstance(event.data, _DELTAS):
            return False
        old, new = last.data, event.data
        assert isinstance(old, _DELTAS)  # noqa: S101  # same type as the new one
        if (old.message_id, old.block) != (new.message_id, new.block) or len(old.text) > 4096:
            return False
        self.queue[-1] = msgspec.structs.replace(last, data=msgspec.structs.replace(old, text=old.text + new.text))
        return True


class Fanout:
    """Everyone who follows one session in this process."""

    def __init__(self, session: SessionId) -> None:
        self.session = session
        self.head = 0
        self.recent_events: deque[Event] = deque(maxlen=RECENT_EVENTS)
        self.blocks: dict[tuple[MessageId, int], BlockBuffer] = {}
        self.remote_blocks: dict[tuple[MessageId, int], Event] = {}
        """The open blocks of a writer in another process, as last heard."""
        self.followers: set[Follower] = set()
        self._closed: deque[MessageId] = deque(maxlen=REMEMBERED_CLOSED)

    def publish_durable(self, events: Sequence[Event]) -> None:
        """These events were appended."""
        over = self.close_blocks(events)
        self.recent_events.extend(events)
        self.advance_head(events[-1].seq, turn_ended=over or len(self.recent_events) == RECENT_EVENTS)

    def advance_head(self, head: int, *, turn_ended: bool = True) -> None:
        """The log reaches ``head``, whoever wrote it; ``over`` unless surely no turn has ended."""
        self.head = max(self.head, head)
        for follower in self.followers:
            follower.advance_head(self.head, turn_ended=turn_ended)

    def publish_live(self, event: Event) -> None:
        """A piece of an open block, or another live event, is there."""
        body = event.data
        if isinstance(body, _DELTAS):
            block = self.blocks.get((body.message_id, body.block))
            if block is None:
                block = self.blocks[body.message_id, body.block] = BlockBuffer(event)
            block.add(body.text)
        for follower in self.followers:
            follower.push(event)

    def publish_remote_block(self, event: Event) -> None:
        """A writer in another process shows an open block."""
        body = event.data
        if isinstance(body, progress.MessageSnapshot) and body.message_id not in self._closed:
            self.remote_blocks[body.message_id, body.block] = event
            for follower in self.followers:
                follower.push(event)

    def snapshots(self) -> list[Event]:
        """Return every open block whole."""
        return [*(block.snapshot() for block in self.blocks.values()), *self.remote_blocks.values()]

    def recent_between(self, after: int, upto: int) -> list[Event]:
        """Return the durable events after one and up to another if all of them are at hand, and none otherwise."""
        tail = self.recent_events
        if not tail or tail[-1].seq < self.head:
            return []
        first = tail[0].seq
        return list(islice(tail, after + 1 - first, upto + 1 - first)) if first <= after + 1 else []

    def clear_open_blocks(self) -> None:
        """Who writes has changed: what was open is not known to be open any more."""
        self.blocks.clear()
        self.remote_blocks.clear()
        self.recent_events.clear()

    def close_blocks(self, events: Iterable[Event]) -> bool:
        """Drop the blocks these events bring to an end; return whether one of them ends a turn."""
        over = False
        for event in events:
            body = event.data
            if type(body) not in _BLOCK_ENDS:
                continue
            if isinstance(body, progress.MessageCompleted | progress.MessageDiscarded):
                self._drop_message(body.message_id)
            elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
                self._drop_message(MessageId(body.result.call))
            else:
                over = True
                self.blocks = {key: block for key, block in self.blocks.items() if block.first_event.turn != event.turn}
                self.remote_blocks = {
                    key: block for key, block in self.remote_blocks.items() if block.turn != event.turn
                }
        return over

    def _drop_message(self, message: MessageId) -> None:
        self._closed.append(message)
        for blocks in (self.blocks, self.remote_blocks):
            if blocks:
                for key in [key for key in blocks if key[0] == message]:
                    del blocks[key]
