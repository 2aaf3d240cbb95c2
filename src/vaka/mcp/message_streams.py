"""Streams of messages over the bytes of a stdio server, one message per line."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from vaka.core.types.errors import McpError
from vaka.mcp.repair import find_answered_request
from vaka.mcp.stdio import ServerLog, ServerStreams

MAX_MESSAGE_BYTES = 64 << 20


@asynccontextmanager
async def message_streams(
    streams: ServerStreams, log: ServerLog, ended: Callable[[], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield streams of messages over streams of bytes, one message per line; ``ended`` is called at their end."""
    to_client, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_client = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        async with to_client:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for line in _lines(streams):
                    message = _parse_message(line, log)
                    if message is not None:
                        await to_client.send(SessionMessage(message))
        ended()

    async def send() -> None:
        async with from_client:
            with suppress(OSError):
                async for item in from_client:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await streams.write(text.encode() + b"\n")
                return
        ended()

    async with read, write, anyio.create_task_group() as group:
        group.start_soon(receive)
        group.start_soon(send)
        try:
            yield read, write
        finally:
            group.cancel_scope.cancel()


def _parse_message(line: bytes, log: ServerLog) -> types.JSONRPCMessage | None:
    """Return a message, and an error in place of an invalid answer: its request must not wait for another one."""
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        log.write(line + b"\n")  # what a server prints besides messages
    id = find_answered_request(line)
    if id is None:
        return None
    text = "the server sent an answer that the protocol does not allow"
    return types.JSONRPCError(jsonrpc="2.0", id=id, error=types.ErrorData(code=types.INTERNAL_ERROR, message=text))


async def _lines(streams: ServerStreams) -> AsyncGenerator[bytes]:
    pieces: list[bytes] = []
    size = 0
    while data := await streams.read():
        first, *rest = data.split(b"\n")
        pieces.append(first)
        size += len(first)
        if size > MAX_MESSAGE_BYTES:
            raise McpError(f"the server sent a message of more than {MAX_MESSAGE_BYTES >> 20} MB")
        if not rest:
            continue
        *whole, last = [b"".join(pieces), *rest]
        for line in whole:
            if line.strip():
                yield line
        pieces, size = [last], len(last)
