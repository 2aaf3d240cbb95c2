"""``ctx.transformer``: transformers that a script feeds and reads."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence

import msgspec

from vaka.core.loop.script_journal import ScriptRequest
from vaka.core.ports.transformer import StreamChunk, Transformer
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.message import Audio, Document, Image, Text
from vaka.luau.host.io import parse_part, part_table
from vaka.luau.protocol import HostFunction, HostFunctions, MultipleResults, as_count, as_list, as_string, as_table
from vaka.luau.services import HostServices

MAX_INPUT_CHARS = 16 << 20
"""How much one transformer accepts from a script."""
SCRIPT_TRANSFORMERS = ("text",)
"""Transformers that are part of the script's prelude."""


class InputNeeded(Exception):
    """The transformer has no output before the script sends more."""


class TransformerStream:
    """A transformer between the ``send`` and the ``recv`` of a script.

    It runs when it is first read. A replayed script sends everything again, and skips what it has received.
    """

    def __init__(self, transformer: Transformer) -> None:
        self._input: deque[StreamChunk] = deque()
        self._input_chars = 0
        self._has_ended_input = self._awaits_input = False
        self._input_changed, self._output_changed = asyncio.Event(), asyncio.Event()
        self._output = transformer.transform(self._read_input())
        self._next_output: asyncio.Task[StreamChunk | None] | None = None
        self._received = 0

    def send(self, chunks: Sequence[StreamChunk]) -> None:
        if self._has_ended_input:
            raise ScriptError("transformer: send was called after close_send")
        self._input_chars += sum(map(_size_of, chunks))
        if self._input_chars > MAX_INPUT_CHARS:
            raise ScriptError(f"transformer: more than {MAX_INPUT_CHARS} characters were sent; open another one")
        self._input.extend(chunks)
        self._input_changed.set()

    def close_send(self) -> None:
        self._has_ended_input = True
        self._input_changed.set()

    async def recv(self, received: int) -> StreamChunk | None:
        """Return the next chunk, ``None`` at the end; ``received`` is how many chunks the script has received.

        Raises ``InputNeeded``, and the error of the transformer.
        """
        while True:
            task = self._next_output
            if task is None:
                task = self._next_output = asyncio.create_task(self._read_output())
                task.add_done_callback(lambda _: self._output_changed.set())
            while not task.done():
                if self._awaits_input and not self._input and not self._has_ended_input:
                    raise InputNeeded
                self._output_changed.clear()
                await self._output_changed.wait()  # if this call is cancelled, the next one receives the chunk
            chunk = task.result()
            if chunk is None:
                return None
            self._next_output = None
            self._received += 1
            if self._received > received:
                return chunk

    async def close(self) -> None:
        self.close_send()
        self._input.clear()
        if self._next_output is not None:
            self._next_output.cancel()
            await asyncio.gather(self._next_output, return_exceptions=True)
        await self._output.aclose()

    async def _read_output(self) -> StreamChunk | None:
        return await anext(self._output, None)

    async def _read_input(self) -> AsyncGenerator[StreamChunk]:
        while True:
            while self._input:
                yield self._input.popleft()
            if self._has_ended_input:
                return
            # A transformer that reads its input in a task of its own may have output before the next input.
            self._awaits_input = asyncio.current_task() is self._next_output
            self._output_changed.set()
            self._input_changed.clear()
            await self._input_changed.wait()
            self._awaits_input = False


def transformer_functions(services: HostServices) -> HostFunctions:
    """``transformer.open``, ``.send``, ``.close_send``, ``.recv`` and ``.close``.

    Only ``recv`` is recorded: a replayed script opens its transformers again, and feeds them as before.
    """
    streams: dict[int, TransformerStream] = {}

    async def open(request: ScriptRequest, name: JSON, config: JSON = None) -> JSON:
        factories = {**services.runtime.builtin_transformers, **services.runtime.transformers}
        factory = factories.get(as_string(name, "transformer: name"))
        if factory is None:
            known = ", ".join(sorted([*factories, *SCRIPT_TRANSFORMERS]))
            raise ScriptError(f"unknown transformer: {name}; there are {known}")
        stream = streams[request.number] = TransformerStream(factory(as_table(config, "transformer: config")))
        services.exit_stack.push_async_callback(stream.close)
        return request.number

    def find_stream(handle: JSON) -> TransformerStream:
        stream = streams.get(as_count(handle, "transformer: the handle"))
        if stream is None:
            raise ScriptError("there is no such transformer")
        return stream

    async def send(handle: JSON, chunk: JSON) -> None:
        find_stream(handle).send(_parse_chunks(chunk))

    async def close_send(handle: JSON) -> None:
        find_stream(handle).close_send()

    async def recv(handle: JSON, received: JSON) -> JSON:
        try:
            chunk = await find_stream(handle).recv(as_count(received, "transformer: received"))
        except InputNeeded:
            return MultipleResults((None, True))
        return None if chunk is None else _chunk_table(chunk)

    async def close(handle: JSON) -> None:
        await find_stream(handle).close()

    return {
        "transformer.open": HostFunction(open, wants_request=True, local=True),
        "transformer.send": HostFunction(send, local=True),
        "transformer.close_send": HostFunction(close_send, local=True),
        "transformer.recv": HostFunction(recv),
        "transformer.close": HostFunction(close, local=True),
    }


def _parse_chunks(value: JSON) -> list[StreamChunk]:
    """Return the chunks of a table as ``chunks.luau`` makes it: one for each part; marks are in the first and last."""
    fields = as_table(value, "transformer: a chunk")
    begin, end = bool(fields.get("bos")), bool(fields.get("eof"))
    parts = [parse_part(part, "send") for part in as_list(fields.get("parts"), "send: parts")]
    stream = as_string(fields.get("stream_id") or "", "send: stream_id")
    chunks = [StreamChunk(part=part, stream=stream) for part in parts]
    if not chunks:
        return [StreamChunk(stream=stream, begin=begin, end=end)] if begin or end else []
    chunks[0] = msgspec.structs.replace(chunks[0], begin=begin)
    chunks[-1] = msgspec.structs.replace(chunks[-1], end=end)
    return chunks


def _chunk_table(chunk: StreamChunk) -> JSON:
    part = None if chunk.part is None else part_table(chunk.part)
    return {
        "parts": [] if part is None else [part],
        "stream_id": chunk.stream or None,
        "bos": chunk.begin or None,
        "eos": chunk.end or None,
    }


def _size_of(chunk: StreamChunk) -> int:
    part = chunk.part
    if isinstance(part, Text):
        return len(part.text) + 1
    return len(part.data or "") + 1 if isinstance(part, Image | Audio | Document) else 1
