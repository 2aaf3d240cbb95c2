"""Transformers: parts that turn a stream of content into another one.

``SplitText`` cuts text into sentences, lines or paragraphs, ``MergeText`` joins its pieces, ``MapText`` passes it
through a function. ``split`` divides a stream in two, ``merge`` unites several.
"""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, cast

import msgspec

from vaka.core.ports.transformer import StreamChunk, Transformer, TransformerFactory
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON
from vaka.core.types.message import Text

__all__ = [
    "MapText",
    "MergeText",
    "SplitText",
    "StreamChunk",
    "TextUnit",
    "Transformer",
    "TransformerFactory",
    "builtin_transformers",
    "merge",
    "split",
]

MAX_OPEN_STREAMS = 1_000
"""Streams whose text is held back at once; beyond that the text of the oldest one is yielded early."""
MAX_UNREAD = 1_000
"""Chunks of one side of a divided stream that may wait to be read."""

TextUnit: TypeAlias = Literal["sentence", "line", "paragraph"]

_MARKS, _BLANKS = "{1,40}+", "{0,80}+"  # possessive: a match gives nothing back
_SENTENCE = (
    rf"(?<![.!?…])[.!?…]{_MARKS}['\")\]”’]{_BLANKS}\s(?:\s{_BLANKS})|"
    rf"(?<![。！？])[。！？]{_MARKS}['\")\]”’」』）]{_BLANKS}\s{_BLANKS}|"
    rf"(?<!\s)[^\S\n]{_BLANKS}\n\s{_BLANKS}"
)
_BOUNDARIES: dict[str, re.Pattern[str]] = {
    "sentence": re.compile(rf"(?:{_SENTENCE})(?=\S)"),
    "line": re.compile(r"\n"),
    "paragraph": re.compile(rf"(?<!\s)[^\S\n]{_BLANKS}\n[^\S\n]{_BLANKS}\n\s{_BLANKS}(?=\S)"),
}
_MAX_BOUNDARY = 256
"""More characters than a boundary can have. A match starts only at the start of a run, so that the search is linear."""
_SPACES = "".join(map(chr, (*range(9, 14), *range(28, 33), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)))) + (
    "\u2028\u2029\u202f\u205f\u3000"
)
_UNDECIDED = ".!?…。！？'\")]”’」』）" + _SPACES
"""Characters at the end of a text that may be a boundary, depending on what follows."""


class _TextBuffer:
    """The text of one stream that is not yielded yet."""

    def __init__(self, boundary: re.Pattern[str] | None, max_chars: int) -> None:
        self._boundary, self._max_chars = boundary, max_chars
        self._pieces: list[str] = []
        self._length = 0

    def add(self, text: str) -> list[str]:
        """Add text, and return the segments that are now complete."""
        if self._boundary is None:
            self._pieces.append(text)
            self._length += len(text)
            segments = list[str]()
            rest = self.take() if self._length > self._max_chars else None
        else:
            held = self.take()
            segments, rest = _cut_text(self._boundary, held + text, _decided_length(held))
        if rest is None:
            return []
        *long, rest = self._limit(rest) or [""]
        self._pieces, self._length = [rest], len(rest)
        return [piece for segment in segments for piece in self._limit(segment)] + long

    def take(self) -> str:
        """Return the text, and forget it."""
        text = "".join(self._pieces)
        self._pieces, self._length = [], 0
        return text

    def _limit(self, text: str) -> list[str]:
        return [text[at : at + self._max_chars] for at in range(0, len(text), self._max_chars)]


def _decided_length(text: str) -> int:
    """Return the length of the text without the end that may become a boundary."""
    tail = text[-_MAX_BOUNDARY:]
    return len(text) - len(tail) + len(tail.rstrip(_UNDECIDED))


def _cut_text(boundary: re.Pattern[str], text: str, start: int) -> tuple[list[str], str]:
    """Return the segments of a text and the rest; there is no boundary before ``start``."""
    segments, begin = list[str](), 0
    for match in boundary.finditer(text, start):
        segments.append(text[begin : match.end()])
        begin = match.end()
    return segments, text[begin:]


class _OpenStreams:
    """The texts of the streams that have not ended."""

    def __init__(self, boundary: re.Pattern[str] | None, max_chars: int) -> None:
        self._boundary, self._max_chars = boundary, max_chars
        self._buffers: dict[str, _TextBuffer] = {}

    def feed(self, chunk: StreamChunk) -> list[StreamChunk]:
        """Return the chunks that follow from a chunk: complete segments, marks, and what is not text."""
        if not isinstance(chunk.part, Text):
            has_text_before = chunk.part is not None or chunk.end
            return [*(self._end_text(chunk.stream) if has_text_before else ()), chunk]
        marks = [StreamChunk(stream=chunk.stream, begin=True)] if chunk.begin else []
        if chunk.stream not in self._buffers:
            self._buffers[chunk.stream] = _TextBuffer(self._boundary, self._max_chars)
        ready = _text_chunks(chunk.stream, self._buffers[chunk.stream].add(chunk.part.text))
        if chunk.end:
            ready += [*self._end_text(chunk.stream), StreamChunk(stream=chunk.stream, end=True)]
        elif len(self._buffers) > MAX_OPEN_STREAMS:
            ready += self._end_text(next(iter(self._buffers)))
        return marks + ready

    def finish(self) -> list[StreamChunk]:
        """Return the texts that are left."""
        return [chunk for stream in list(self._buffers) for chunk in self._end_text(stream)]

    def _end_text(self, stream: str) -> list[StreamChunk]:
        buffer = self._buffers.pop(stream, None)
        return _text_chunks(stream, [buffer.take()] if buffer is not None else [])


def _text_chunks(stream: str, texts: list[str]) -> list[StreamChunk]:
    return [StreamChunk(part=Text(text=text), stream=stream) for text in texts if text]


async def _transform_text(chunks: AsyncGenerator[StreamChunk], streams: _OpenStreams) -> AsyncGenerator[StreamChunk]:
    async for chunk in chunks:
        for result in streams.feed(chunk):
            yield result
    for result in streams.finish():
        yield result


class SplitText:
    """Cuts text into sentences, lines or paragraphs, each a chunk, as it arrives; implements ``Transformer``.

    The chunks together are the text unchanged. A segment longer than ``max_chars`` is cut.
    """

    def __init__(self, by: TextUnit = "sentence", *, max_chars: int = 10_000) -> None:
        """Raises ``InvalidInput`` for an unknown unit."""
        if by not in _BOUNDARIES:
            raise InvalidInput(f"text can be split by {', '.join(_BOUNDARIES)}, not by {by!r}")
        self._boundary, self._max_chars = _BOUNDARIES[by], _check_max_chars(max_chars)

    def transform(self, chunks: AsyncGenerator[StreamChunk]) -> AsyncGenerator[StreamChunk]:
        """Yield the segments of the text of each stream."""
        return _transform_text(chunks, _OpenStreams(self._boundary, self._max_chars))


class MergeText:
    """Joins the pieces of a stream's text to one chunk, yielded at the end of the stream; implements ``Transformer``.

    A text longer than ``max_chars`` is yielded in chunks of that length.
    """

    def __init__(self, *, max_chars: int = 1_000_000) -> None:
        self._max_chars = _check_max_chars(max_chars)

    def transform(self, chunks: AsyncGenerator[StreamChunk]) -> AsyncGenerator[StreamChunk]:
        """Yield the text of each stream."""
        return _transform_text(chunks, _OpenStreams(None, self._max_chars))


MapFunction: TypeAlias = "Callable[[str], str | Awaitable[str] | AsyncGenerator[str]]"


class MapText:
    """Passes the text of each stream, when it is complete, through a function; implements ``Transformer``.

    The function returns a text, may be async, or yields the text in pieces. An error of it is raised to the reader.
    """

    def __init__(self, function: MapFunction, *, max_chars: int = 1_000_000) -> None:
        self._function, self._merge = function, MergeText(max_chars=max_chars)

    async def transform(self, chunks: AsyncGenerator[StreamChunk]) -> AsyncGenerator[StreamChunk]:
        """Yield what the function makes of each text."""
        async with aclosing(self._merge.transform(chunks)) as merged:
            async for chunk in merged:
                if not isinstance(chunk.part, Text):
                    yield chunk
                    continue
                async with aclosing(self._map(chunk.part.text)) as pieces:
                    async for piece in pieces:
                        yield StreamChunk(part=Text(text=piece), stream=chunk.stream)

    async def _map(self, text: str) -> AsyncGenerator[str]:
        result: Any = self._function(text)
        if not isinstance(result, AsyncGenerator):
            yield await result if isawaitable(result) else result
            return
        pieces = cast("AsyncGenerator[str]", result)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece


async def _next_chunk(chunks: AsyncGenerator[StreamChunk]) -> StreamChunk | None:
    return await anext(chunks, None)


class _DividedStream:
    """A stream with two readers; each gets the chunks of its side."""

    def __init__(self, chunks: AsyncGenerator[StreamChunk], match: Callable[[StreamChunk], bool]) -> None:
        self._chunks, self._match = chunks, match
        self._queues: tuple[deque[StreamChunk], deque[StreamChunk]] = deque(), deque()
        self._pending: asyncio.Task[StreamChunk | None] | None = None
        self.sides: tuple[Any, Any] = self._read(0), self._read(1)

    async def _read(self, side: int) -> AsyncGenerator[StreamChunk]:
        try:
            while True:
                while self._queues[side]:
                    yield self._queues[side].popleft()
                if self._pending is None:
                    self._pending = asyncio.create_task(_next_chunk(self._chunks))
                task = self._pending
                await asyncio.wait([task])  # a reader that is cancelled does not cancel the task
                chunk = task.result()
                if chunk is None:
                    return
                if self._pending is task:
                    self._pending = None
                    self._store(chunk)
        finally:
            if self._pending is not None and self.sides[1 - side].ag_frame is None:
                self._pending.cancel()

    def _store(self, chunk: StreamChunk) -> None:
        side = 0 if self._match(chunk) else 1
        if self.sides[side].ag_frame is None:  # closed
            return
        if len(self._queues[side]) >= MAX_UNREAD:
            raise InvalidInput(f"one side of a divided stream is not read: {MAX_UNREAD} chunks wait; read or close it")
        self._queues[side].append(chunk)


def split(
    chunks: AsyncGenerator[StreamChunk], match: Callable[[StreamChunk], bool]
) -> tuple[AsyncGenerator[StreamChunk], AsyncGenerator[StreamChunk]]:
    """Return the chunks that ``match``, and the others, as two streams to be read concurrently.

    Chunks wait until their stream is read, at most ``MAX_UNREAD``: the next one raises ``InvalidInput`` to the reader
    of the other stream. Chunks of a stream that is closed are discarded.
    """
    return _DividedStream(chunks, match).sides


async def merge(*streams: AsyncGenerator[StreamChunk]) -> AsyncGenerator[StreamChunk]:
    """Yield the chunks of several streams as they arrive. An error of one of them stops the others."""
    tasks = {asyncio.create_task(_next_chunk(stream)): stream for stream in streams}
    try:
        while tasks:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in tasks if task in done]:
                chunk, stream = task.result(), tasks.pop(task)
                if chunk is not None:
                    tasks[asyncio.create_task(_next_chunk(stream))] = stream
                    yield chunk
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def builtin_transformers() -> dict[str, TransformerFactory]:
    """Return the transformers that scripts find by name: ``split`` and ``merge``."""
    return {
        "split": lambda config: SplitText(**_check_config("split", config, SplitConfig)),
        "merge": lambda config: MergeText(**_check_config("merge", config, MergeConfig)),
    }


class MergeConfig(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The configuration of ``merge`` in a script."""

    max_chars: int = 1_000_000


class SplitConfig(MergeConfig, forbid_unknown_fields=True, omit_defaults=True):
    """The configuration of ``split`` in a script."""

    by: TextUnit = "sentence"
    max_chars: int = 10_000


def _check_config(name: str, config: Mapping[str, JSON], kind: type[MergeConfig]) -> dict[str, Any]:
    try:
        return msgspec.structs.asdict(msgspec.convert(config, kind, strict=False))
    except msgspec.ValidationError as error:
        raise InvalidInput(f"transformer {name}: {error}") from error


def _check_max_chars(value: int) -> int:
    if value < 1:
        raise InvalidInput(f"max_chars must be at least 1, not {value!r}")
    return value
