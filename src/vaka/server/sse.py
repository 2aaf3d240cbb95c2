"""``EventStream``: a response of server-sent events that ends when its source or the client does."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from vaka.server.kit.guard import PRINCIPAL_KEY
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import CLIENT_LEFT, Problem
from vaka.server.limits import credential_of, too_many_requests
from vaka.server.settings import ServerSettings

T = TypeVar("T")

PIECE_BYTES = 64 * 1024
"""Bytes that are given to the connection at a time."""
OPENING = b": open\nretry: 1000\n\n"
HEARTBEAT = b": keep-alive\n\n"
EVENT_STREAM_HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}


class OpenStream(Protocol):
    """A stream or socket that is open."""

    resumable: bool
    """Whether it ends at once when the server stops, since its client opens it again."""

    @property
    def principal(self) -> Principal | None:
        """The caller, if it has authenticated."""
        ...

    def cut(self) -> None:
        """Begin to end it."""
        ...

    def expire(self) -> None:
        """Begin to end it, since the credential of its caller does not work any more."""
        ...


class OpenStreams:
    """The open streams of a server: their limits, and how they end when it stops."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._open: set[OpenStream] = set()
        self._credentials: dict[OpenStream, str] = {}
        """The credential under which each stream of a caller that is known is counted."""
        self._stream_counts: Counter[str] = Counter()
        self._subscription_counts: Counter[str] = Counter()
        self._unauthenticated: set[OpenStream] = set()
        self._closing = 0
        self._ends_followers = False
        self._changed: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: OpenStream) -> None:
        """Count a stream. Raises a ``Problem`` when there are too many (503), or too many of one credential (429).

        A resumable stream is cut at once if ``end_followers`` was called: its client has kept a connection open.
        """
        self._require_place()
        if stream.principal is None:
            self._add_unauthenticated(stream)
        else:
            self.identify(stream, stream.principal)
        self._open.add(stream)
        if self._ends_followers and stream.resumable:
            stream.cut()

    def require_room(self, principal: Principal) -> None:
        """Raise a ``Problem`` (503, 429) if no stream may be opened now, before the request has an effect."""
        self._require_place()
        if self.settings.streams_per_credential:
            self._require_less(self._stream_counts, credential_of(principal), "streams")

    def _require_place(self) -> None:
        if len(self._open) >= self.settings.max_streams:
            detail = f"{self.settings.max_streams} streams are open; try again later"
            raise Problem(503, "overloaded", detail, headers={"Retry-After": "2"})

    def _require_less(self, counts: Counter[str], credential: str, what: str) -> None:
        limit = self.settings.streams_per_credential
        if limit and counts[credential] >= limit:
            raise too_many_requests(f"too_many_{what}", f"{limit} {what} of this credential are open; close one", 1.0)

    def identify(self, stream: OpenStream, principal: Principal) -> None:
        """Count a stream of a caller that is known from now on. Raises a ``Problem`` (429)."""
        credential, known = credential_of(principal), self._credentials.get(stream)
        if credential != known:
            self._require_less(self._stream_counts, credential, "streams")
            self._forget_credential(stream)
            self._credentials[stream] = credential
            self._stream_counts[credential] += 1

    def _forget_credential(self, stream: OpenStream) -> None:
        known = self._credentials.pop(stream, None)
        if known is not None:
            _decrement(self._stream_counts, known)

    def add_subscription(self, principal: Principal) -> Callable[[], None]:
        """Count a subscription of a socket and return what ends it. Raises a ``Problem`` (429) for too many."""
        credential = credential_of(principal)
        self._require_less(self._subscription_counts, credential, "subscriptions")
        self._subscription_counts[credential] += 1
        return partial(_decrement, self._subscription_counts, credential)

    def _add_unauthenticated(self, stream: OpenStream) -> None:
        """Keep most places for callers that have authenticated."""
        limit = max(self.settings.max_streams // 10, 1)
        if len(self._unauthenticated) >= limit:
            self._unauthenticated = {each for each in self._unauthenticated if each.principal is None}
            if len(self._unauthenticated) >= limit:
                detail = f"{limit} clients have not authenticated yet; try again later"
                raise Problem(503, "overloaded", detail, headers={"Retry-After": "2"})
        self._unauthenticated.add(stream)

    def remove(self, stream: OpenStream) -> None:
        self._open.discard(stream)
        self._unauthenticated.discard(stream)
        self._forget_credential(stream)
        self._announce_change()

    @contextmanager
    def count_closing(self) -> Generator[None]:
        """Count a stream that was removed and sends its last frames."""
        self._closing += 1
        try:
            yield
        finally:
            self._closing -= 1
            self._announce_change()

    def _announce_change(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def wait_for_followers(self, seconds: float) -> None:
        """Wait until the streams that ``end_followers`` ends have sent their last frames, at most some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._closing or any(stream.resumable for stream in self._open):
                    self._changed = asyncio.Event()
                    await self._changed.wait()

    def end_followers(self) -> None:
        """End the streams that a client opens again at its last cursor, also streams that are opened from now on."""
        self._ends_followers = True
        self.cut_followers()

    def cut_followers(self) -> None:
        """End the streams that a client opens again at its last cursor; it may do so at once."""
        for stream in list(self._open):
            if stream.resumable:
                stream.cut()

    async def end_expired(self, is_valid: Callable[[Principal], Awaitable[bool]]) -> None:
        """End the streams of callers whose credential does not work any more."""
        callers = {stream.principal for stream in self._open}
        expired = {caller for caller in callers if caller is not None and not await is_valid(caller)}
        for stream in list(self._open) if expired else ():
            if stream.principal in expired:
                stream.expire()


def _decrement(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]


class EventStream:
    """Sends frames as they come, and comments while there are none.

    The source is read one frame at a time, after the frame before it has been accepted by the connection: a client that
    reads slowly delays its own source only. A long frame is sent in pieces, since the connection holds what it has
    accepted. The source is closed on every path.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes],
        streams: OpenStreams,
        *,
        headers: Mapping[str, str] | None = None,
        opening: bytes = OPENING,
        on_disconnect: Callable[[], Awaitable[None]] | None = None,
        resumable: bool = False,
        ending: bytes = b"",
    ) -> None:
        """Send ``frames``; count the stream among ``streams`` while it is open.

        Args:
            frames: The source.
            streams: The open streams of the server.
            headers: Headers in addition to the headers of every event stream.
            opening: What is sent first.
            on_disconnect: Awaited when the client leaves before the source has ended.
            resumable: Whether the stream ends at once when the server stops, since its client opens it again.
            ending: What is sent last when the server stops.
        """
        self._frames = frames
        self._streams = streams
        self._opening = opening
        self._on_disconnect = on_disconnect
        self._settings = streams.settings
        self.resumable = resumable
        self._ending = ending
        self._pump: asyncio.Task[None] | None = None
        self._cut = False
        self.principal: Principal | None = None
        self.headers = {**EVENT_STREAM_HEADERS, **(headers or {})}
        self.status_code = 200
        self._sending = 0.0
        """The time at which the frame that is being sent was given to the connection; 0 while none is."""
        self._sent = False

    def cut(self) -> None:
        """Close the connection after the frame that is being sent."""
        self._cut = True
        if self._pump is not None:
            self._pump.cancel()

    def expire(self) -> None:
        """Close the connection without an ending: the client opens it again, with a credential that works."""
        self._ending = b""
        self.cut()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.principal = scope.get(PRINCIPAL_KEY)
        try:
            self._streams.add(self)
            await self._send_all(receive, send, with_body=scope.get("method") != "HEAD")
        finally:
            self._streams.remove(self)
            await self._frames.aclose()

    async def _send_all(self, receive: Receive, send: Send, *, with_body: bool) -> None:
        raw = list[tuple[bytes, bytes]]()
        for name, value in self.headers.items():
            raw.append((name.encode("latin-1"), value.encode("latin-1")))
        await send({"type": "http.response.start", "status": self.status_code, "headers": raw})
        if not with_body:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if self._opening:
            await send({"type": "http.response.body", "body": self._opening, "more_body": True})
        self._pump = pump = asyncio.create_task(self._send_frames(send))
        if self._cut:
            pump.cancel()
        leaving, beating = wait_disconnect(receive), self._send_heartbeats(send)
        tasks = [pump, asyncio.create_task(leaving), asyncio.create_task(beating)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left = not pump.done()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._pump = None  # its error has the frames of the stream: a cycle would keep their memory for long
        if left:
            if self._on_disconnect is not None:
                await self._on_disconnect()
            return
        if not pump.cancelled():
            pump.result()
        ending = self._ending if pump.cancelled() else b""
        with suppress(TimeoutError):  # the client does not read
            async with asyncio.timeout(self._settings.stall_timeout):
                await send({"type": "http.response.body", "body": ending, "more_body": False})

    async def _send_frames(self, send: Send) -> None:
        now = asyncio.get_running_loop().time
        async with aclosing(self._frames) as frames:
            async for frame in frames:
                self._sent = True
                while len(frame) > PIECE_BYTES:
                    self._sending = now()
                    await send({"type": "http.response.body", "body": frame[:PIECE_BYTES], "more_body": True})
                    frame = frame[PIECE_BYTES:]
                self._sending = now()
                await send({"type": "http.response.body", "body": frame, "more_body": True})
                self._sending = 0.0

    async def _send_heartbeats(self, send: Send) -> None:
        """Send a comment after each silent interval; return when the client has not read for too long."""
        now, stall = asyncio.get_running_loop().time, self._settings.stall_timeout
        with suppress(TimeoutError):
            while True:
                await asyncio.sleep(self._settings.heartbeat)
                if self._sending:
                    if now() - self._sending > stall:
                        return
                elif not self._sent:
                    async with asyncio.timeout(stall):
                        await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
                self._sent = False


async def wait_disconnect(receive: Receive) -> None:
    """Return when the client has closed the connection, or sends a body that is too large or too slow."""
    with suppress(Problem):
        while (await receive())["type"] != "http.disconnect":
            continue


async def wait_while_connected(
    request: Request, work: Coroutine[Any, Any, T], on_leave: Callable[[], Awaitable[None]] | None = None
) -> T:
    """Return the result of ``work``. When the client leaves before, cancel it, await ``on_leave``, raise a ``Problem``.

    The body of the request has been read. A turn that ``work`` waits for goes on, unless ``on_leave`` stops it.
    """
    working, leaving = asyncio.create_task(work), asyncio.create_task(wait_disconnect(request.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait((working, leaving))
        for task in (working, leaving):
            if not task.cancelled():
                task.exception()  # marks it as retrieved: the caller may be cancelled, or the client has left
    if on_leave is not None:
        await on_leave()
    raise Problem(CLIENT_LEFT, "disconnected", "the client left before the answer was complete")
