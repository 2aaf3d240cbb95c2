"""``Connection``: one WebSocket. It reads requests, sends what its queue has, and ends with a code that says why."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from starlette.requests import HTTPConnection
from starlette.routing import WebSocketRoute
from starlette.types import Message, Receive, Scope, Send

from vaka import __version__
from vaka.core.types.errors import VakaError
from vaka.server.kit.door import Door
from vaka.server.kit.guard import PRINCIPAL_KEY, Credentials, read_credentials
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem, problem_before_login, problem_of
from vaka.server.kit.service import AgentService
from vaka.server.socket_protocol import admit_large_messages
from vaka.server.ws import frames
from vaka.server.ws.frames import InvalidFrame, encode_control, encode_error, encode_reply, parse_frame
from vaka.server.ws.outbound import OutboundQueue
from vaka.server.ws.requests import RequestHandlers
from vaka.server.ws.subscriptions import SessionChanges

_log = logging.getLogger("vaka.server")

CLOSE_SECONDS = 2.0
"""Seconds that a client has to take the last frames and the reason of a close."""
MISSED_HEARTBEATS = 2
RECONNECT_MS = (100, 2000)
"""The delay that a client is given when the server stops, chosen at random for each."""
MAX_REASON_BYTES = 123


class ConnectionEnd(Exception):
    """Ends the connection with a close code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class SocketApp:
    """The ASGI application of ``/api/v1/ws``: one ``Connection`` for each client that is let in."""

    def __init__(self, service: AgentService) -> None:
        self._service = service
        self._changes = SessionChanges()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        await receive()  # websocket.connect
        offered = scope.get("subprotocols", ())
        known = frames.SUBPROTOCOL in offered
        await send({"type": "websocket.accept", "subprotocol": frames.SUBPROTOCOL if known else None})
        if not known:
            await _close(send, frames.CLOSE_PROTOCOL, f"the subprotocol must be {frames.SUBPROTOCOL}")
            return
        await Connection(self._service, connection, receive, send, self._changes).run()


async def _close(send: Send, code: int, reason: str) -> None:
    encoded = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
    with suppress(TimeoutError, OSError):  # a client that does not read gets no reason
        async with asyncio.timeout(CLOSE_SECONDS):
            await send({"type": "websocket.close", "code": code, "reason": encoded})


class Connection:
    """One client."""

    resumable = True

    def __init__(
        self,
        service: AgentService,
        connection: HTTPConnection,
        receive: Receive,
        send: Send,
        changes: SessionChanges,
    ) -> None:
        self._service = service
        self._connection = connection
        self._receive = receive
        self._send = send
        self._settings = service.settings
        self.queue = OutboundQueue()
        self._handlers = RequestHandlers(service, self.queue, changes)
        self._end: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self._heard = self._now()
        """When the last frame came."""
        self._sending = 0.0
        """When the frame that is being sent was given to the connection; 0 while none is."""
        self._pings = 0

    async def run(self) -> None:
        """Serve the client until one side ends the connection."""
        streams = self._service.streams
        try:
            await self._authenticate_handshake()
            streams.add(self)
        except ConnectionEnd as end:
            await _close(self._send, end.code, end.reason)
            return
        except Problem as problem:
            code = frames.CLOSE_QUOTA if problem.status == 429 else frames.CLOSE_OVERLOADED
            await _close(self._send, code, problem.detail)
            return
        try:
            code, reason = await self._serve()
        finally:
            streams.remove(self)
            await self._handlers.close()
        if code:
            with streams.count_closing():
                await _close(self._send, code, reason)

    async def _serve(self) -> tuple[int, str]:
        """Return the code and reason of the end; the code is 0 if the client has left."""
        reader, sender, watcher = tasks = [
            asyncio.create_task(work) for work in (self._read_frames(), self._send_frames(), self._watch())
        ]
        try:
            waited: list[asyncio.Future[Any]] = [*tasks, self._end]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            await self._handlers.close()
            has_left = reader.done() and not reader.exception()
            if not sender.done() and not watcher.done() and not has_left:  # the client reads what is queued
                self.queue.finish()
                await asyncio.wait([sender], timeout=CLOSE_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        return self._result_of(reader, watcher, sender)

    def _result_of(self, *tasks: asyncio.Task[None]) -> tuple[int, str]:
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, ConnectionEnd):
                return error.code, error.reason
            if error is not None and not isinstance(error, OSError):  # what a server raises when the client has left
                raise error
        return self._end.result() if self._end.done() else (0, "")

    # ------------------------------------------------------------------------------------------------- authentication

    async def _authenticate_handshake(self) -> None:
        """Authenticate by header or ticket; a handshake without either is followed by ``auth``."""
        credentials = read_credentials(self._connection, changes=True, tickets=True)
        try:
            await self._admit(credentials)
        except ConnectionEnd as end:
            if end.code != frames.CLOSE_UNAUTHENTICATED or credentials.kind not in ("none", "cookie"):
                raise
        except VakaError as error:  # the store cannot be reached
            raise ConnectionEnd(frames.CLOSE_OVERLOADED, problem_before_login(error).detail) from error

    async def _admit(self, credentials: Credentials) -> Principal:
        principal = await self._authenticate(credentials)
        try:
            self._service.guard.limiter.count_request(principal)
        except Problem as problem:
            raise ConnectionEnd(frames.CLOSE_QUOTA, problem.detail) from problem
        return principal

    async def _authenticate(self, credentials: Credentials) -> Principal:
        try:
            principal = await self._service.guard.authenticator.authenticate(credentials)
        except Problem as problem:
            code = frames.CLOSE_QUOTA if problem.status == 429 else frames.CLOSE_UNAUTHENTICATED
            raise ConnectionEnd(code, problem.detail) from problem
        known = self._handlers.principal
        if known is not None and (known.id, known.namespace) != (principal.id, principal.namespace):
            raise ConnectionEnd(frames.CLOSE_FORBIDDEN, "the token belongs to another principal; connect again with it")
        self._handlers.principal = self._connection.scope[PRINCIPAL_KEY] = principal
        admit_large_messages(self._connection.scope)
        return principal

    async def _renew(self, frame: frames.Auth) -> frames.AuthResult:
        shown = read_credentials(self._connection, changes=True)
        token = Credentials(token=frame.params.token, kind="bearer", origin=shown.origin, address=shown.address)
        principal = await self._admit(token)
        try:
            self._service.streams.identify(self, principal)
        except Problem as problem:
            raise ConnectionEnd(frames.CLOSE_QUOTA, problem.detail) from problem
        scopes = tuple(sorted(principal.scopes))
        return frames.AuthResult(principal=principal.id, namespace=principal.namespace, scopes=scopes)

    # --------------------------------------------------------------------------------------------------------- frames

    async def _read_frames(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            await self.queue.relief()  # a client that does not read its replies may not ask for more
            self._heard, self._pings = self._now(), 0
            await self._handle(_text_of(message))
            self._heard = self._now()

    async def _handle(self, text: str) -> None:
        try:
            frame = parse_frame(text)
        except InvalidFrame as error:
            if error.id is None:
                raise ConnectionEnd(frames.CLOSE_PROTOCOL, str(error)) from error
            data = {"status": error.status}
            self.queue.put(encode_error(error.id, frames.FrameError(code=error.code, message=str(error), data=data)))
            return
        try:
            result = await self._answer(frame)
        except (Problem, VakaError) as error:
            problem = problem_of(error) if self._handlers.principal is not None else problem_before_login(error)
            self.queue.put(encode_error(frame.id, _error_of(problem)))
            if isinstance(frame, frames.Subscribe) and problem.status == 404 and not self._handlers.subscriptions:
                self._finish(frames.CLOSE_NO_SESSION, problem.detail)
            return
        self.queue.put(encode_reply(frame.id, result))
        if isinstance(frame, frames.Subscribe):
            self._handlers.start(result.sub)

    async def _answer(self, frame: frames.ClientFrame) -> Any:
        if isinstance(frame, frames.Auth):
            return await self._renew(frame)
        if isinstance(frame, frames.Hello):
            return self._greet(frame)
        return await self._handlers.answer(frame)

    def _greet(self, frame: frames.Hello) -> frames.HelloResult:
        if frames.PROTOCOL_VERSION not in frame.params.versions:
            message = f"this server speaks version {frames.PROTOCOL_VERSION} of {frames.SUBPROTOCOL}"
            raise ConnectionEnd(frames.CLOSE_PROTOCOL, message)
        limits = frames.ConnectionLimits(
            subscriptions=self._settings.max_subscriptions,
            queue_bytes=self.queue.max_bytes,
            queue_frames=self.queue.max_frames,
        )
        return frames.HelloResult(
            server=f"vaka/{__version__}",
            version=frames.PROTOCOL_VERSION,
            heartbeat_ms=int(self._settings.socket_heartbeat * 1000),
            max_frame=frames.MAX_FRAME_BYTES,
            limits=limits,
        )

    async def _send_frames(self) -> None:
        queue, send = self.queue, self._send
        while data := await queue.take():
            self._sending = self._now()
            await send({"type": "websocket.send", "text": data.decode()})
            self._sending = 0.0
        if queue.overflowed:
            raise self._slow_consumer()

    def _slow_consumer(self) -> ConnectionEnd:
        cursor = self.queue.last_cursor
        return ConnectionEnd(frames.CLOSE_SLOW_CONSUMER, f"frames were not read in time; last cursor: {cursor}")

    # ------------------------------------------------------------------------------------------------- time and endings

    async def _watch(self) -> None:
        """End the connection of a client that does not authenticate, does not read, or does not answer."""
        await asyncio.sleep(self._settings.socket_auth_seconds if self._handlers.principal is None else 0)
        if self._handlers.principal is None:
            raise ConnectionEnd(frames.CLOSE_UNAUTHENTICATED, "no token came in time; send auth first")
        heartbeat, stall = self._settings.socket_heartbeat, self._settings.stall_timeout
        while True:
            await asyncio.sleep(min(heartbeat, stall))
            now = self._now()
            if self._sending and now - self._sending >= stall:
                raise self._slow_consumer()
            silent = int((now - self._heard) // heartbeat)
            if silent > MISSED_HEARTBEATS:
                raise ConnectionEnd(frames.CLOSE_SILENT, "no frame came in answer to the last pings")
            if silent > self._pings:
                self._pings = silent
                self.queue.put(encode_control(frames.PingControl()), first=True)

    def cut(self) -> None:
        """Tell the client to connect again, and close when it has read what is queued."""
        if not self._end.done():
            delay = random.randint(*RECONNECT_MS)  # noqa: S311  # nosec B311  # not a secret
            self.queue.put(encode_control(frames.DrainControl(reconnect_after_ms=delay)))
            self._finish(frames.CLOSE_DRAINING, "the server is stopping; connect again")

    @property
    def principal(self) -> Principal | None:
        return self._handlers.principal

    def expire(self) -> None:
        """Close a connection whose client has not renewed its token in time."""
        self._finish(frames.CLOSE_TOKEN_EXPIRED, "the credential does not work any more; connect again with another")

    def _finish(self, code: int, reason: str) -> None:
        if not self._end.done():
            self._end.set_result((code, reason))


def _text_of(message: Message) -> str:
    text: str | None = message.get("text")
    if text is None:
        raise ConnectionEnd(frames.CLOSE_PROTOCOL, "frames must be text; this one was binary")
    if len(text) > frames.MAX_FRAME_BYTES or len(text.encode()) > frames.MAX_FRAME_BYTES:
        raise ConnectionEnd(frames.CLOSE_PROTOCOL, f"a frame may have {frames.MAX_FRAME_BYTES} bytes")
    return text


def _error_of(problem: Problem) -> frames.FrameError:
    data: dict[str, Any] = {"status": problem.status}
    if "Retry-After" in problem.headers:
        data["retry_after"] = float(problem.headers["Retry-After"])
    retryable = problem.status in (429, 503) or "retry_after" in data
    return frames.FrameError(code=problem.code, message=problem.detail, retryable=retryable, data=data)


def door(service: AgentService) -> Door:
    """Return the route of the WebSocket."""
    return Door([WebSocketRoute("/api/v1/ws", SocketApp(service))])
