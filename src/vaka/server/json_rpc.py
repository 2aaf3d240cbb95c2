"""JSON-RPC 2.0 between two peers, one message per line, in both directions at once."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

import msgspec

from vaka.core.types.message import replace_surrogates

MAX_LINE_BYTES = 32 * 1024 * 1024
MAX_RUNNING = 1000
"""Requests of the peer that are handled at the same time."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

JsonObject: TypeAlias = dict[str, Any]
ReadLine: TypeAlias = Callable[[int], Awaitable[tuple[bytes, int] | None]]
"""Returns the next line, at most so many bytes of it, and its length; ``None`` at the end."""
WriteLine: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Writes a line and its end. Raises ``OSError`` when the peer is gone."""
Handler: TypeAlias = Callable[[str, JsonObject], Awaitable["RpcReply | None"]]
"""Handles a request or a notification; a notification has no use for what is returned. Raises ``JsonRpcError``."""

_log = logging.getLogger(__name__)


class JsonRpcError(Exception):
    """The ``error`` of a response."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data

    def to_json(self) -> JsonObject:
        """Return the member ``error`` of the response."""
        data = {} if self.data is None else {"data": self.data}
        return {"code": self.code, "message": replace_surrogates(str(self)), **data}


class RpcReply(msgspec.Struct, frozen=True):
    """The result of a request, and the notifications that follow it."""

    result: JsonObject
    notifications: tuple[tuple[str, JsonObject], ...] = ()


class JsonRpcConnection:
    """One connection: handles what the peer asks, each request in a task of its own, and asks the peer."""

    def __init__(self, read: ReadLine, write: WriteLine, handle: Handler) -> None:
        self._read = read
        self._write = write
        self._handle = handle
        self._writing = asyncio.Lock()
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None
        self._is_gone = False

    async def serve(self) -> None:
        """Handle messages until the peer is gone; requests that are still handled then are cancelled."""
        self._reading = asyncio.create_task(self._read_messages())
        try:
            await self._reading
        except asyncio.CancelledError:
            if not self._is_gone:
                raise
        finally:
            self._is_gone = True
            tasks = [*self._running]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def request(self, method: str, params: JsonObject) -> Any:
        """Ask the peer and return its result. Raises ``JsonRpcError``."""
        id = next(self._ids)
        future = self._pending[id] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": id, "method": method, "params": params})
            return await future
        finally:
            del self._pending[id]

    async def notify(self, method: str, params: JsonObject) -> None:
        await self._send({"method": method, "params": params})

    async def _send(self, message: JsonObject) -> None:
        line = msgspec.json.encode({"jsonrpc": "2.0", **message})
        async with self._writing:
            if self._is_gone:
                return
            try:
                await self._write(line)
            except OSError:
                self._is_gone = True
                if self._reading is not None:
                    self._reading.cancel()

    async def _read_messages(self) -> None:
        while (taken := await self._read(MAX_LINE_BYTES)) is not None:
            line, length = taken
            if length > MAX_LINE_BYTES:
                await self._refuse(None, PARSE_ERROR, f"a message has {length} bytes, more than {MAX_LINE_BYTES}")
            elif line.strip():
                await self._take_line(line)

    async def _take_line(self, line: bytes) -> None:
        try:
            message: Any = msgspec.json.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            await self._refuse(None, PARSE_ERROR, f"a line is not JSON: {error}")
            return
        match message:
            case {"method": str(method)}:
                await self._take_call(method, cast("JsonObject", message))
            case {"id": int(id), "result": result}:
                self._settle(id, lambda future: future.set_result(result))
            case {"id": int(id), "error": error}:
                problem = _read_error(error)
                self._settle(id, lambda future: future.set_exception(problem))
            case {"id": id} if isinstance(id, int | str):
                await self._refuse(id, INVALID_REQUEST, "a message has neither a method, a result nor an error")
            case _:
                await self._refuse(None, INVALID_REQUEST, "a message must be an object with a method, and not a batch")

    def _settle(self, id: int, settle: Callable[[asyncio.Future[Any]], None]) -> None:
        """Give a response to its request. Drop a response that no request waits for."""
        future = self._pending.get(id)
        if future is not None and not future.done():
            settle(future)

    async def _take_call(self, method: str, message: JsonObject) -> None:
        id, params = message.get("id"), message.get("params")
        if "id" in message and not isinstance(id, int | str):
            await self._refuse(None, INVALID_REQUEST, "the id of a request must be a number or a text")
        elif params is not None and not isinstance(params, dict):
            await self._refuse(id, INVALID_PARAMS, f"{method}: params must be an object")
        elif len(self._running) >= MAX_RUNNING:
            await self._refuse(id, INTERNAL_ERROR, f"{MAX_RUNNING} requests are handled already; wait for a result")
        else:
            task = asyncio.create_task(self._answer(method, cast("JsonObject", params or {}), id))
            self._running.add(task)
            task.add_done_callback(lambda ended: self._end_task(ended, id))

    async def _answer(self, method: str, params: JsonObject, id: int | str | None) -> None:
        try:
            reply = await self._handle(method, params)
        except JsonRpcError as error:
            if id is not None:
                await self._send({"id": id, "error": error.to_json()})
            return
        if id is not None:
            await self._send({"id": id, "result": reply.result if reply is not None else {}})
        for name, values in reply.notifications if reply is not None else ():
            await self.notify(name, values)

    def _end_task(self, task: "asyncio.Task[None]", id: int | str | None) -> None:
        """Answer a request whose handler has failed with an unexpected error."""
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a request could not be handled", exc_info=error)
        if error is not None and id is not None:
            answer = asyncio.create_task(self._refuse(id, INTERNAL_ERROR, f"{type(error).__name__}: {error}"))
            self._running.add(answer)
            answer.add_done_callback(self._running.discard)

    async def _refuse(self, id: int | str | None, code: int, message: str) -> None:
        """Send an error; the id is ``null`` for what has none that can be read."""
        await self._send({"id": id, "error": JsonRpcError(code, message).to_json()})


def _read_error(error: Any) -> JsonRpcError:
    match error:
        case {"code": int(code), "message": str(message)}:
            return JsonRpcError(code, message)
        case _:
            return JsonRpcError(INTERNAL_ERROR, f"the error of a response cannot be read: {error!r}"[:500])
