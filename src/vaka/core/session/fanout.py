"""Live events to followers: bounded queues of deltas, and the open blocks a late joiner needs."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from vaka.core.types import progress
from vaka.core.types.event import Event
from vaka.core.types.ids import MessageId, SessionId

QUEUE = 256
"""Live events a follower may be behind before it gets snapshots instead."""
MERGE = 64
"""From this many on, neighbouring deltas of one block become one."""
TAIL = 512
"""Recent durable events kept at hand, so that a follower that keeps up never asks the store."""
OUTPUT = 64 * 1024
"""Characters kept of what a running tool prints; of a message everything is kept."""
CLOSED = 64
"""Messages remembered as over, for snapshots from another process that come late."""

_DELTAS = (progress.TextDelta, progress.ReasoningDelta, progress.ToolArgsDelta, progress.ToolOutputDelta)
_OVER = frozenset[type](
    {
        progress.TurnResumed,
        progress.TurnCompleted,
        progress.TurnFailed,
        progress.TurnCancelled,
        progress.TurnInterrupted,
    }
)
"""After these nothing of the turn that was open before is open any more."""
_CLOSING = _OVER | {
    progress.MessageCompleted,
    progress.MessageDiscarded,
    progress.ToolCompleted,
    progress.ToolFailed,
}
"""What brings blocks to an end."""


class Block:
    """What an open block holds so far; of a tool's output only the end."""

    def __init__(self, event: Event) -> None:
        self.first = event
        self._parts: list[str] = []
        self._length = self._dropped = 0

    def add(self, text: str) -> None:
        """Take the next piece."""
        self._parts.append(text)
        self._length += len(text)
        if self._length > 2 * OUTPUT and isinstance(self.first.data, progress.ToolOutputDelta):
            self._dropped += self._length - OUTPUT
            self._parts, self._length = ["".join(self._parts)[-OUTPUT:]], OUTPUT

    def snapshot(self) -> Event:
        """Return everything the block holds as one event."""
        text = "".join(self._parts)
        self._parts = [text]
        body = self.first.data
        assert isinstance(body, _DELTAS)  # noqa: S101  # only deltas come here
        snapshot = progress.MessageSnapshot(
            message_id=body.message_id, block=body.block, of=body.type, text=text, offset=self._dropped,
            name=body.name if isinstance(body, progress.ToolArgsDelta) else "",
        )  # fmt: skip
        return msgspec.structs.replace(self.first, data=snapshot)


class Follower:
    """One reader's queue: live events, and numbers that say how far the log reaches.

    A patient one only wants to know how a turn ended: it gets no deltas and is woken then.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.queue: deque[Event | int] = deque()
        self._patient = patient
        self.live = 0
        self.behind = True
        """True when open blocks must be sent whole: at the start, and after too much was missed."""
        self.ended = False
        self.error: BaseException | None = None
        self.wake = asyncio.Event()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes, because of ``error`` if there is one: stop when everything so far was read."""
        self.ended, self.error = True, error
        self.wake.set()

    def reach(self, head: int, *, over: bool = True) -> None:
        """The log now reaches ``head``; ``over`` when a turn may have ended there."""
        if self.queue and isinstance(self.queue[-1], int):
            self.queue[-1] = head
        else:
            self.queue.append(head)
        if over or not self._patient:
            self.wake.set()

    def push(self, event: Event) -> None:
        """Something live happened. Never blocks: a slow reader loses deltas and gets a snapshot."""
        if self.behind or self._patient:
            return
        if self.live >= MERGE and self._merge(event):
            return
        if self.live >= QUEUE:
            self.queue = deque(item for item in self.queue if isinstance(item, int))
            self.live, self.behind = 0, True
            return
        self.queue.append(event)
        self.live += 1
        self.wake.set()

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
        self.tail: deque[Event] = deque(maxlen=TAIL)
        self.blocks: dict[tuple[MessageId, int], Block] = {}
        self.remote: dict[tuple[MessageId, int], Event] = {}
        """The open blocks of a writer in another process, as last heard."""
        self.followers: set[Follower] = set()
        self._closed: deque[MessageId] = deque(maxlen=CLOSED)

    def durable(self, events: Sequence[Event]) -> None:
        """These events were appended."""
        over = self.close(events)
        self.tail.extend(events)
        self.reach(events[-1].seq, over=over or len(self.tail) == TAIL)

    def reach(self, head: int, *, over: bool = True) -> None:
        """The log reaches ``head``, whoever wrote it; ``over`` unless surely no turn has ended."""
        self.head = max(self.head, head)
        for follower in self.followers:
            follower.reach(self.head, over=over)

    def live(self, event: Event) -> None:
        """A piece of an open block, or another live event, is there."""
        body = event.data
        if isinstance(body, _DELTAS):
            block = self.blocks.get((body.message_id, body.block))
            if block is None:
                block = self.blocks[body.message_id, body.block] = Block(event)
            block.add(body.text)
        for follower in self.followers:
            follower.push(event)

    def elsewhere(self, event: Event) -> None:
        """A writer in another process shows an open block."""
        body = event.data
        if isinstance(body, progress.MessageSnapshot) and body.message_id not in self._closed:
            self.remote[body.message_id, body.block] = event
            for follower in self.followers:
                follower.push(event)

    def snapshots(self) -> list[Event]:
        """Return every open block whole."""
        return [*(block.snapshot() for block in self.blocks.values()), *self.remote.values()]

    def recent(self, after: int, upto: int) -> list[Event]:
        """Return the durable events after one and up to another if all of them are at hand, and none otherwise."""
        tail = self.tail
        if not tail or tail[-1].seq < self.head:
            return []
        first = tail[0].seq
        return list(islice(tail, after + 1 - first, upto + 1 - first)) if first <= after + 1 else []

    def forget(self) -> None:
        """Who writes has changed: what was open is not known to be open any more."""
        self.blocks.clear()
        self.remote.clear()
        self.tail.clear()

    def close(self, events: Iterable[Event]) -> bool:
        """Drop the blocks these events bring to an end; return whether one of them ends a turn."""
        over = False
        for event in events:
            body = event.data
            if type(body) not in _CLOSING:
                continue
            if isinstance(body, progress.MessageCompleted | progress.MessageDiscarded):
                self._drop(body.message_id)
            elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
                self._drop(MessageId(body.result.call))
            else:
                over = True
                self.blocks = {key: block for key, block in self.blocks.items() if block.first.turn != event.turn}
                self.remote = {key: block for key, block in self.remote.items() if block.turn != event.turn}
        return over

    def _drop(self, message: MessageId) -> None:
        self._closed.append(message)
        for blocks in (self.blocks, self.remote):
            if blocks:
                for key in [key for key in blocks if key[0] == message]:
                    del blocks[key]
