"""``EventStream``: a response of server-sent events that ends when its source or the client does."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import Protocol

from starlette.types import Receive, Scope, Send

from vaka.server.guard import PRINCIPAL_KEY
from vaka.server.principal import Principal
from vaka.server.problems import Problem
from vaka.server.settings import ServerSettings

OPENING = b": open\nretry: 1000\n\n"
HEARTBEAT = b": keep-alive\n\n"
EVENT_STREAM_HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}  # fmt: skip


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
        self._unauthenticated: set[OpenStream] = set()
        self._closing = 0
        self._changed: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, stream: OpenStream) -> None:
        """Count a stream. Raises a ``Problem`` (503) when there are too many."""
        if len(self._open) >= self.settings.max_streams:
            detail = f"{self.settings.max_streams} streams are open; try again later"
            raise Problem(503, "overloaded", detail, headers={"Retry-After": "2"})
        if stream.principal is None:
            self._add_unauthenticated(stream)
        self._open.add(stream)

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
        """End the streams that a client opens again at its last cursor."""
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


class EventStream:
    """Sends frames as they come, and comments while there are none.

    The source is read one frame at a time, after the frame before it has been accepted by the connection: a client that
    reads slowly delays its own source only. The source is closed on every path.
    """

    def __init__(
        self, frames: AsyncGenerator[bytes], streams: OpenStreams, *, headers: Mapping[str, str] | None = None,
        opening: bytes = OPENING, on_disconnect: Callable[[], Awaitable[None]] | None = None, resumable: bool = False,
        ending: bytes = b"",
    ) -> None:  # fmt: skip
        """Send ``frames``; count the stream among ``streams`` while it is open.

        Args:
            frames: The source.
            streams: The open streams of the server.
            headers: Headers besides those of every event stream.
            opening: What is sent first.
            on_disconnect: Awaited when the client leaves before the source has ended.
            resumable: Whether the stream ends at once when the server stops, since its client opens it again.
            ending: What is sent last when the server stops.
        """
        self._frames, self._streams, self._opening, self._on_disconnect = frames, streams, opening, on_disconnect
        self._settings, self.resumable, self._ending = streams.settings, resumable, ending
        self._pump: asyncio.Task[None] | None = None
        self.principal: Principal | None = None
        self.headers = {**EVENT_STREAM_HEADERS, **(headers or {})}
        self.status_code = 200
        self._sending = 0.0
        """The time at which the frame that is being sent was given to the connection; 0 while none is."""
        self._sent = False

    def cut(self) -> None:
        """Close the connection after the frame that is being sent."""
        if self._pump is not None:
            self._pump.cancel()

    def expire(self) -> None:
        """Close the connection without an ending: the client opens it again, with a credential that works."""
        self._ending = b""
        self.cut()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.principal = scope.get(PRINCIPAL_KEY)
        self._streams.add(self)
        try:
            await self._send_all(receive, send, with_body=scope.get("method") != "HEAD")
        finally:
            self._streams.remove(self)
            await self._frames.aclose()

    async def _send_all(self, receive: Receive, send: Send, *, with_body: bool) -> None:
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status_code, "headers": raw})
        if not with_body:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if self._opening:
            await send({"type": "http.response.body", "body": self._opening, "more_body": True})
        tasks = [
            asyncio.create_task(work)
            for work in (self._send_frames(send), wait_disconnect(receive), self._send_heartbeats(send))
        ]
        self._pump = pump = tasks[0]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left = not pump.done()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
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
                self._sent, self._sending = True, now()
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
