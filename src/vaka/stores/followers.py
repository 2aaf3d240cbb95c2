"""Primitives of followers and of what they follow: waits for the head of a log, and snapshots of open blocks."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Iterable, Sequence
from contextlib import contextmanager
from typing import Generic, TypeAlias, TypeVar

from vaka.core.types.event import Event
from vaka.core.types.progress import MessageSnapshot

K = TypeVar("K", bound=Hashable)

BlockGetter: TypeAlias = Callable[[], Sequence[Event]]
"""Returns snapshots of the open blocks of a session."""

SNAPSHOT_INTERVAL = 0.1
"""Seconds between two snapshots of the same blocks."""


class SnapshotMailbox:
    """Holds the newest snapshot of each open block until its follower takes it, so a slow follower delays no writer."""

    def __init__(self) -> None:
        self._latest: dict[object, Event] = {}
        self._wakeup = asyncio.Event()
        self._closed = False

    def put(self, event: Event) -> None:
        """Add a snapshot; it replaces an older one of the same block."""
        data = event.data
        if isinstance(data, MessageSnapshot):
            self._latest[event.path, data.message_id, data.block, data.of] = event
            self._wakeup.set()

    def close(self) -> None:
        """End ``receive``."""
        self._closed = True
        self._wakeup.set()

    async def receive(self) -> AsyncGenerator[Event]:
        """Yield snapshots until the mailbox is closed."""
        while not self._closed:
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._latest and not self._closed:
                yield self._latest.pop(next(iter(self._latest)))


class Mailboxes(Generic[K]):
    """The mailboxes of the watches in this handle, by session."""

    def __init__(self) -> None:
        self._boxes: dict[K, list[SnapshotMailbox]] = {}

    @contextmanager
    def open(self, key: K) -> Generator[SnapshotMailbox]:
        """Make a mailbox that receives the snapshots of a session while the context is open."""
        boxes, box = self._boxes.setdefault(key, []), SnapshotMailbox()
        boxes.append(box)
        try:
            yield box
        finally:
            boxes.remove(box)
            if not boxes:
                del self._boxes[key]

    def put(self, key: K, event: Event) -> None:
        for box in self._boxes.get(key, ()):
            box.put(event)

    def close(self) -> None:
        """End ``receive`` of all mailboxes."""
        for boxes in self._boxes.values():
            for box in boxes:
                box.close()

    def keys(self) -> list[K]:
        return list(self._boxes)

    def __contains__(self, key: K) -> bool:
        return key in self._boxes


class Throttle:
    """Calls ``send`` at the first request, and then at most every 100 ms while there are requests."""

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._earliest = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def request(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._earliest, loop.time()), self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._send = _do_nothing  # no reference cycle is left to the garbage collector

    def _fire(self) -> None:
        self._timer = None
        self._earliest = asyncio.get_running_loop().time() + SNAPSHOT_INTERVAL
        self._send()


def _do_nothing() -> None:
    return


class SharedBlocks(Generic[K]):
    """The open blocks of the sessions this handle writes; while one is watched, ``send`` gets its blocks."""

    def __init__(self, is_watched: Callable[[K], bool], send: Callable[[K, Sequence[Event]], None]) -> None:
        self._is_watched, self._send = is_watched, send
        self._shared: dict[K, BlockGetter] = {}
        self._throttles: dict[K, Throttle] = {}
        """The throttles of the sessions that are or were watched."""

    def share(self, key: K, blocks: BlockGetter | None) -> None:
        """Set the source of a session's open blocks; ``None`` to stop sharing."""
        if key in self._throttles:
            self._throttles.pop(key).stop()
        if blocks is None:
            self._shared.pop(key, None)
            return
        self._shared[key] = blocks
        if self._is_watched(key):
            self._request(key)

    def touch(self, key: K) -> None:
        """Send the blocks of a session soon, if it is watched."""
        if key in self._shared and self._is_watched(key):
            self._request(key)

    def _request(self, key: K) -> None:
        throttle = self._throttles.get(key)
        if throttle is None:
            throttle = self._throttles[key] = Throttle(lambda: self._send(key, self.current_blocks(key)))
        throttle.request()

    def current_blocks(self, key: K) -> Sequence[Event]:
        return self._shared[key]() if key in self._shared else ()

    def close(self) -> None:
        for key in list(self._shared):
            self.share(key, None)


class HeadWaiters(Generic[K]):
    """Futures that are resolved with the head of a log as soon as it is above the head they were made with."""

    def __init__(self) -> None:
        self.waiting: dict[K, dict[asyncio.Future[int], int]] = {}
        """For each key the futures and the heads they were made with."""

    async def wait(self, key: K, after: int) -> int:
        """Return the head once ``wake`` is called with a head above ``after``."""
        future = self.add(key, after)
        try:
            return await future
        finally:
            self.remove(key, future)

    def add(self, key: K, after: int) -> "asyncio.Future[int]":
        """Return a future for the head once it is above ``after``; pass it to ``remove`` at the end."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(key, {})[future] = after
        return future

    def remove(self, key: K, future: "asyncio.Future[int]") -> None:
        waiting = self.waiting[key]
        del waiting[future]
        if not waiting:
            del self.waiting[key]

    def wake(self, key: K, head: int) -> None:
        """Resolve the waits for ``key`` that are below ``head``."""
        for future, after in self.waiting[key].items() if key in self.waiting else ():
            if head > after and not future.done():
                future.set_result(head)

    def fail(self, keys: Iterable[K], error: Exception) -> None:
        """Raise ``error`` in all waits for ``keys``."""
        for key in keys:
            for future in self.waiting.get(key, ()):
                if not future.done():
                    future.set_exception(error)

    def keys(self) -> list[K]:
        return list(self.waiting)

    def __contains__(self, key: K) -> bool:
        return key in self.waiting
