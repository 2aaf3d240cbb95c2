"""Live events to followers: bounded queues of deltas, and the open blocks a late joiner needs."""

import asyncio
from collections import deque
from collections.abc import Sequence

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

_DELTAS = (progress.TextDelta, progress.ReasoningDelta, progress.ToolArgsDelta, progress.ToolOutputDelta)


class Block:
    """What an open block holds so far."""

    def __init__(self, event: Event) -> None:
        self.first = event
        self.parts: list[str] = []

    def snapshot(self) -> Event:
        """Return everything the block holds as one event."""
        text = "".join(self.parts)
        self.parts = [text]
        body = self.first.data
        return msgspec.structs.replace(
            self.first,
            data=progress.MessageSnapshot(
                message_id=body.message_id,  # type: ignore[attr-defined]  # only deltas come here
                block=body.block,  # type: ignore[attr-defined]  # only deltas come here
                of=body.type,
                text=text,
                name=getattr(body, "name", ""),
            ),
        )


class Follower:
    """One reader's queue: live events, and numbers that say how far the log reaches."""

    def __init__(self) -> None:
        self.queue: deque[Event | int] = deque()
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

    def reach(self, head: int) -> None:
        """The log now reaches ``head``."""
        if self.queue and isinstance(self.queue[-1], int):
            self.queue[-1] = head
        else:
            self.queue.append(head)
        self.wake.set()

    def push(self, event: Event) -> None:
        """Something live happened. Never blocks: a slow reader loses deltas and gets a snapshot."""
        if self.behind:
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
        self.followers: set[Follower] = set()

    def durable(self, events: Sequence[Event]) -> None:
        """These events were appended."""
        for event in events:
            self._close(event)
        self.tail.extend(events)
        self.reach(events[-1].seq)

    def reach(self, head: int) -> None:
        """The log reaches ``head``, whoever wrote it."""
        if head > self.head:
            self.head = head
        for follower in self.followers:
            follower.reach(self.head)

    def live(self, event: Event) -> None:
        """A piece of an open block, or another live event, is there."""
        body = event.data
        if isinstance(body, _DELTAS):
            block = self.blocks.get((body.message_id, body.block))
            if block is None:
                block = self.blocks[body.message_id, body.block] = Block(event)
            block.parts.append(body.text)
        for follower in self.followers:
            follower.push(event)

    def snapshots(self) -> list[Event]:
        """Return every open block whole."""
        return [block.snapshot() for block in self.blocks.values()]

    def recent(self, after: int) -> list[Event] | None:
        """Return the durable events after ``after`` if all of them are at hand."""
        if not self.tail or self.tail[0].seq > after + 1 or self.tail[-1].seq < self.head:
            return None
        skip = after + 1 - self.tail[0].seq
        return [event for index, event in enumerate(self.tail) if index >= skip]

    def forget(self) -> None:
        """The writer in this process is gone: what it had open is not open here any more."""
        self.blocks.clear()
        self.tail.clear()

    def _close(self, event: Event) -> None:
        body = event.data
        if not self.blocks:
            return
        if isinstance(body, progress.MessageCompleted | progress.MessageDiscarded):
            self._drop(body.message_id)
        elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
            self._drop(MessageId(body.result.call))

    def _drop(self, message: MessageId) -> None:
        for key in [key for key in self.blocks if key[0] == message]:
            del self.blocks[key]
