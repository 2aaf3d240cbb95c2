"""One stream for each agent, stream id and kind, made from the root stream of a session.

``Demultiplexer`` reads any async iterable once. A function, the *route*, says which streams an item belongs to and
which items end the round; ``agent_events.py`` has the routes for events of a session and for GenX agent events. Queues
are bounded, and a reader that is slow, fails or never comes does not break the others.
"""

import asyncio
import base64
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar

import msgspec

from vaka.core.types.errors import Closed, InvalidInput, TurnError

T = TypeVar("T")

OverflowPolicy: TypeAlias = Literal["block", "drop_oldest", "error"]
"""What happens when the queue of a stream is full: wait for its reader, drop its oldest piece, or fail the stream.

``block`` waits only while a reader reads the stream, and not longer than the time limit of the demultiplexer: then the
stream fails. Without a reader the oldest piece is dropped.
"""
_POLICIES = ("block", "drop_oldest", "error")
MAX_UNCLAIMED = 1024
"""New streams held for ``async for stream in demultiplexer``; the oldest are dropped first."""
MAX_ERRORS = 100

EndKind: TypeAlias = Literal["eof", "closed", "interrupted", "error"]


class StreamKey(NamedTuple):
    """The agent, the message or call, and the kind of a stream: ``text``, ``audio``, ``tool`` or another media type."""

    agent_state_id: str
    stream_id: str
    kind: str


class StreamPiece(msgspec.Struct, frozen=True, kw_only=True):
    """One item of one stream."""

    key: StreamKey
    agent_def: str
    data: Any
    """Text, bytes, or for ``tool`` a JSON object."""
    begins: bool = False
    ends: bool = False


class RoundEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a round, which ends every open stream; for ``error`` their readers raise it."""

    kind: EndKind
    agent_def: str
    agent_state_id: str
    code: str = ""
    message: str = ""


Routed: TypeAlias = StreamPiece | RoundEnd


class AgentStream:
    """The pieces of one stream, for one reader at a time: ``async for piece in stream``."""

    def __init__(self, first: StreamPiece, limit: int, policy: OverflowPolicy, block_timeout: float) -> None:
        self.key, self.agent_def = first.key, first.agent_def
        self.ending: Literal["", "end", "eof", "closed", "interrupted", "error"] = ""
        """How it ended: by its own last piece (``end``) or with the round; ``""`` while it is open."""
        self.dropped = 0
        """The number of pieces that were dropped because the queue was full."""
        self._limit = limit
        self._policy = policy
        self._block_timeout = block_timeout
        self._queue: deque[StreamPiece] = deque()
        self._error: BaseException | None = None
        self._readers = 0
        self._was_read = False
        self._changed: asyncio.Future[None] | None = None

    async def __aiter__(self) -> AsyncGenerator[StreamPiece]:
        self._readers += 1
        self._was_read = True
        try:
            while True:
                while self._queue:
                    piece = self._queue.popleft()
                    self._wake()
                    yield piece
                if self.ending:
                    break
                await self._wait()
        finally:
            self._readers -= 1
            self._wake()
        if self._error is not None:
            raise self._error

    async def text(self) -> str:
        """Read the stream to its end, and return its text."""
        return "".join([piece.data async for piece in self if isinstance(piece.data, str)])

    async def put(self, piece: StreamPiece) -> None:
        """Queue a piece; under ``block`` wait until there is room, or no reader."""
        if len(self._queue) >= self._limit and not self._was_read:
            await asyncio.sleep(0)  # its reader may have been started just now
        while self._policy == "block" and len(self._queue) >= self._limit and self._readers and not self.ending:
            if not await self._wait(self._block_timeout):
                self._fail(f"its reader has read nothing for {self._block_timeout:g} seconds")
        if self.ending:
            return
        if len(self._queue) >= self._limit:
            if self._policy == "error":
                self._fail(f"its reader is {self._limit} pieces behind")
                return
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(piece)
        self._wake()

    def end(
        self, ending: Literal["end", "eof", "closed", "interrupted", "error"], error: BaseException | None = None
    ) -> None:
        """End the stream after what is queued; its reader raises ``error``."""
        if not self.ending:
            self.ending, self._error = ending, error
            self._wake()

    def _fail(self, why: str) -> None:
        self.end("error", Closed(f"stream {'/'.join(self.key)} was closed: {why}"))

    async def _wait(self, timeout: float | None = None) -> bool:
        """Return whether the queue, the reader or the ending has changed before the timeout."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait([self._changed], timeout=timeout)
        return bool(done)

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)


StreamCallback: TypeAlias = Callable[[AgentStream], Awaitable[None] | None]


class Demultiplexer(Generic[T]):
    """Reads a root stream in a task of its own, and hands each piece to its stream.

    ::

        async with Demultiplexer(source, route) as demultiplexer:
            async for stream in demultiplexer:
                ...

    ``on_new_stream`` is called with each new stream, sync or async, in a task of its own: it may read the stream to its
    end. What it raises is in ``errors`` and ends nothing else.
    """

    def __init__(
        self,
        source: AsyncIterable[T],
        route: Callable[[T], Sequence[Routed]],
        *,
        limit: int = 256,
        policy: OverflowPolicy = "block",
        block_timeout: float = 10.0,
        on_new_stream: StreamCallback | None = None,
    ) -> None:
        """Create a demultiplexer; ``async with`` starts it.

        Args:
            source: The root stream.
            route: Returns the pieces and ends that an item of the source is.
            limit: The number of pieces that the queue of a stream holds.
            policy: What happens when the queue is full.
            block_timeout: Seconds that ``block`` waits for a reader to read a piece.
            on_new_stream: Called with each new stream.

        Raises:
            InvalidInput: The limit is below 1, or the policy is unknown.
        """
        if limit < 1:
            raise InvalidInput(f"limit must be at least 1, not {limit}")
        if policy not in _POLICIES:
            raise InvalidInput(f"policy must be one of {', '.join(_POLICIES)}, not {policy!r}")
        self.streams: dict[StreamKey, AgentStream] = {}
        """The open streams."""
        self.last_end: RoundEnd | None = None
        self.errors: deque[tuple[StreamKey, BaseException]] = deque(maxlen=MAX_ERRORS)
        """The last exceptions of ``on_new_stream``, each with the key of its stream."""
        self._source = source
        self._route = route
        self._limit = limit
        self._policy: OverflowPolicy = policy
        self._block_timeout = block_timeout
        self._on_new_stream = on_new_stream
        self._new: deque[AgentStream] = deque(maxlen=MAX_UNCLAIMED)
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._readers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read_source())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*self._readers, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aiter__(self) -> AsyncGenerator[AgentStream]:
        """Yield each new stream, until the source ends; raises the error of the source."""
        while True:
            while self._new:
                yield self._new.popleft()
            if self._task is None or self._task.done():
                break
            self._arrived.clear()
            await self._arrived.wait()
        await self.join()

    async def join(self) -> None:
        """Wait until the source has ended and every reader of ``on_new_stream`` has returned.

        Raises the error of the source.
        """
        if self._task is not None:
            await asyncio.wait([self._task])
        while self._readers:
            await asyncio.wait(self._readers)
        if self._task is not None and not self._task.cancelled():
            self._task.result()

    async def _read_source(self) -> None:
        try:
            async for item in self._source:
                for routed in self._route(item):
                    if isinstance(routed, RoundEnd):
                        self._end_round(routed)
                    else:
                        await self._put(routed)
        except BaseException as error:
            self._end_streams("error", error if isinstance(error, Exception) else Closed("the root stream was closed"))
            raise
        finally:
            self._end_streams("closed")
            self._arrived.set()

    async def _put(self, piece: StreamPiece) -> None:
        stream = self.streams.get(piece.key)
        if stream is None:
            stream = self.streams[piece.key] = AgentStream(piece, self._limit, self._policy, self._block_timeout)
            self._announce(stream)
        await stream.put(piece)
        if piece.ends:
            del self.streams[piece.key]
            stream.end("end")

    def _announce(self, stream: AgentStream) -> None:
        self._new.append(stream)
        self._arrived.set()
        if self._on_new_stream is not None:
            task = asyncio.create_task(_call_reader(self._on_new_stream, stream))
            self._readers.add(task)
            task.add_done_callback(lambda done: self._reader_done(stream.key, done))

    def _reader_done(self, key: StreamKey, task: "asyncio.Task[None]") -> None:
        self._readers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.errors.append((key, error))

    def _end_round(self, end: RoundEnd) -> None:
        self.last_end = end
        self._end_streams(end.kind, TurnError(end.message, code=end.code) if end.kind == "error" else None)

    def _end_streams(self, kind: EndKind, error: BaseException | None = None) -> None:
        for stream in self.streams.values():
            stream.end(kind, error)
        self.streams.clear()


async def _call_reader(callback: StreamCallback, stream: AgentStream) -> None:
    if (reading := callback(stream)) is not None:
        await reading


def frame_of(routed: Routed) -> dict[str, Any]:
    """Return a piece or an end as a JSON object, to be sent over a WebSocket; bytes are in base64."""
    if isinstance(routed, RoundEnd):
        end = {"type": routed.kind, "agent_def": routed.agent_def, "agent_state_id": routed.agent_state_id}
        return end | ({"error": {"code": routed.code, "message": routed.message}} if routed.kind == "error" else {})
    data = base64.b64encode(routed.data).decode() if isinstance(routed.data, bytes) else routed.data
    key, marks = routed.key, {"begin": routed.begins, "end": routed.ends}
    frame = {"type": key.kind, "agent_def": routed.agent_def, "agent_state_id": key.agent_state_id}
    frame |= {"stream_id": key.stream_id, "data": data}
    return frame | {name: True for name, is_set in marks.items() if is_set}


async def frames(source: AsyncIterable[T], route: Callable[[T], Sequence[Routed]]) -> AsyncGenerator[dict[str, Any]]:
    """Yield the frames of a root stream, in its order."""
    async for item in source:
        for routed in route(item):
            yield frame_of(routed)
