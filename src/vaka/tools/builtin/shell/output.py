"""The output of commands: spooled to memory and disk, rendered for results, and filtered."""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput, StoreError
from vaka.core.types.message import Part, Text, replace_surrogates
from vaka.system.event_loops import write_to_stream
from vaka.tools.builtin import regex_worker
from vaka.tools.builtin.builtin_tool import HOW_TO_READ, output_name_of, store_output

MEMORY_BYTES = 256 * 1024
"""Bytes of one command kept in memory; only longer output is written to disk."""

TAIL_BYTES = 64 * 1024
"""Bytes of the end that are kept even when the quota is used up."""

DEFAULT_QUOTA = 4 * 1024**3

_SPOOL_DIRECTORIES = (Path("/var/tmp"),)  # noqa: S108  # nosec B108  # on disk; a private folder is created in it


class SpoolStore:
    """The spool files of one runtime and their common quota."""

    def __init__(self, folder: str | Path | None = None, *, quota: int = DEFAULT_QUOTA) -> None:
        if quota < 0:
            raise InvalidInput(f"quota {quota!r} must not be below zero")
        self._folder, self._left = folder, quota

    def reserve(self, size: int) -> bool:
        """Take bytes from the quota; return false when it is used up."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def release(self, size: int) -> None:
        """Return bytes to the quota."""
        self._left += size

    def open_file(self) -> int:
        """Open a new file without a name: the kernel removes it when the process ends, however it ends."""
        place = self._folder or next(
            (known for known in _SPOOL_DIRECTORIES if os.access(known, os.W_OK | os.X_OK)), None
        )
        with tempfile.TemporaryFile(dir=place) as file:
            return os.dup(file.fileno())


class Spool:
    """The output of one command as valid UTF-8, for one writer and any number of readers."""

    def __init__(self, store: SpoolStore) -> None:
        self._store = store
        self._memory = bytearray()
        self._file = -1
        self._written = 0
        self._tail = bytearray()
        self._lock = asyncio.Lock()
        self._closed = False
        self.size = 0
        """Bytes that can be read."""
        self.characters = 0
        """Characters printed so far."""
        self.lost_bytes = 0
        """Bytes after those, which were not stored."""
        self.error = ""
        """Why they were not stored."""

    async def append(self, text: str) -> None:
        data = text.encode()
        self.characters += len(text)
        if not self.error and not self._store.reserve(len(data)):
            self.error = "the quota is used up"
        if self.error or self._closed:
            self._discard(data)
            return
        self._memory += data
        self.size += len(data)
        if len(self._memory) > MEMORY_BYTES:
            async with self._lock:
                await asyncio.to_thread(self._flush)

    async def read(self, start: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``start`` on."""
        async with self._lock:
            end = min(start + size, self.size)
            if start >= end or self._closed:
                return b""
            data = b""
            if start < self._written:
                data = await asyncio.to_thread(_read_at, self._file, start, min(end, self._written) - start)
            at = start + len(data)
            return data + bytes(self._memory[at - self._written : end - self._written]) if at < end else data

    def lost_tail(self) -> bytes:
        """Return the end of the output that was not stored."""
        return bytes(self._tail)

    async def close(self) -> None:
        """Discard the output."""
        async with self._lock:
            if self._closed:
                return
            self._closed = True
            self._store.release(self.size)
            self._memory.clear()
            self._tail.clear()
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _discard(self, data: bytes) -> None:
        self.lost_bytes += len(data)
        self._tail += data
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def _flush(self) -> None:
        """Move the memory to the file; what cannot be written counts as lost."""
        if self._closed:
            return
        try:
            if self._file < 0:
                self._file = self._store.open_file()
            while self._memory:
                count = os.write(self._file, self._memory)
                del self._memory[:count]
                self._written += count
        except OSError as error:
            self.error = f"it cannot be written: {error.strerror}"
            rest = len(self._memory)
            self._store.release(rest)
            self.size -= rest
            self._discard(bytes(self._memory))
            self._memory.clear()


def _read_at(descriptor: int, start: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (piece := os.pread(descriptor, size, start)):
        pieces.append(piece)
        start, size = start + len(piece), size - len(piece)
    return b"".join(pieces)


MAX_CHARACTERS = 30_000
"""Characters up to which output is shown whole."""

HEAD_CHARACTERS, TAIL_CHARACTERS = 4_000, 8_000

MAX_STORED_BYTES = 4 * 1024**2
"""Bytes of one stored text; longer output is stored as two texts, its beginning and its end."""


class RenderedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Output as parts of a result."""

    parts: tuple[Part, ...]
    names: tuple[str, ...] = ()
    """The names under which Read finds the stored output."""
    partly: bool = False
    """Whether some output is only in the spool of the command."""


async def render_output(context: ToolContext, spool: Spool) -> RenderedOutput:
    """Return all output, or its beginning and end with the names of the stored texts."""
    if spool.lost_bytes == 0 and spool.characters <= MAX_CHARACTERS:
        text = _decode_text(await spool.read(0, spool.size)).rstrip("\r\n")
        return RenderedOutput(parts=(Text(text=text),) if text else ())
    try:
        if spool.lost_bytes or spool.size > MAX_STORED_BYTES:
            return await _render_ends(context, spool)
        stored = await store_output(
            context, _decode_text(await spool.read(0, spool.size)), head=HEAD_CHARACTERS, tail=TAIL_CHARACTERS
        )
    except StoreError as error:  # the command has run: its exit code must reach the model, or it is run again
        return await _render_unstored(spool, error)
    return RenderedOutput(parts=(stored,), names=(output_name_of(stored.blob),))


async def _render_unstored(spool: Spool, problem: StoreError) -> RenderedOutput:
    """Return whole lines of the beginning and the end, so that no secret is cut."""
    head = _decode_text(await spool.read(0, HEAD_CHARACTERS)).rpartition("\n")[0]
    end = spool.lost_tail() or await spool.read(max(spool.size - TAIL_CHARACTERS, 0), TAIL_CHARACTERS)
    tail = _decode_text(end[-TAIL_CHARACTERS:]).partition("\n")[2]
    total = _format_size(spool.size + spool.lost_bytes)
    note = f"[… {total} were printed by the command, which has run. The output could not be stored: {problem} …]"
    return RenderedOutput(parts=(Text(text=f"{head}\n{note}\n{tail}"),), partly=True)


async def _render_ends(context: ToolContext, spool: Spool) -> RenderedOutput:
    """Store the beginning and the end."""
    first = await context.store_text(_decode_text(await spool.read(0, MAX_STORED_BYTES)))
    head = (await context.load_text(first.blob))[:HEAD_CHARACTERS]
    lost, end = "", spool.lost_tail()
    if spool.lost_bytes:
        lost = f"; {_format_size(spool.lost_bytes)} at the end were not kept but for what is here: {spool.error}"
    else:
        end = await spool.read(max(spool.size - MAX_STORED_BYTES, MAX_STORED_BYTES), MAX_STORED_BYTES)
    last = await context.store_text(_decode_text(end))
    tail = (await context.load_text(last.blob))[-TAIL_CHARACTERS:]
    names = output_name_of(first.blob), output_name_of(last.blob)
    total, start = _format_size(spool.size + spool.lost_bytes), _format_size(first.size)
    head_note = f"[… {total} were printed. The first {start} are {names[0]}: {HOW_TO_READ} …]"
    tail_note = f"[… the last {_format_size(last.size)} are {names[1]}{lost} …]"
    parts = (
        msgspec.structs.replace(first, preview=f"{head}\n{head_note}\n"),
        msgspec.structs.replace(last, preview=f"{tail_note}\n{tail}"),
    )
    return RenderedOutput(parts=parts, names=names, partly=True)


def _decode_text(data: bytes) -> str:
    """Decode UTF-8 without the characters that are cut at either end."""
    return replace_surrogates(data.decode("utf-8", "ignore"))


def _format_size(count: int) -> str:
    if count < 10_000:
        return f"{count} bytes"
    return f"{count / 1024**2:.1f} MiB" if count >= 1024**2 else f"{count // 1024} KiB"


TIMEOUT_SECONDS = 30.0
MAX_PATTERN_LENGTH = 1_000
_CHUNK_BYTES = 1024**2
_PROGRAM = (sys.executable, "-I", "-S", regex_worker.__file__)


class SlowPattern(TimeoutError):
    """A regular expression has taken too much processor time, so its worker was ended."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the regular expression took longer than {seconds:g} s")
        self.seconds = seconds


class RegexWorker(NamedTuple):
    """A running ``regex_worker.py`` and the task that writes to it."""

    process: asyncio.subprocess.Process
    stdout: asyncio.StreamReader
    feeding: "asyncio.Task[None]"

    async def read_answer(self, seconds: float) -> bytes:
        """Return the next answer, ``b""`` if it has failed. Raises ``SlowPattern`` if ``seconds`` ended it."""
        answer = await self.stdout.readline()
        if not answer and await self.process.wait() == -regex_worker.TIMEOUT_SIGNAL:
            raise SlowPattern(seconds)
        return answer


@asynccontextmanager
async def start_regex_worker(
    job: str, feed: Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]], *, limit: int
) -> AsyncGenerator[RegexWorker]:
    """Start a worker process; it is killed at the end. ``limit``: the largest answer."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM, job, stdin=pipe, stdout=pipe, env={}, limit=limit, start_new_session=True
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None  # noqa: S101  # a pipe
    assert stdout is not None  # noqa: S101  # a pipe
    feeding = asyncio.create_task(feed(stdin))
    try:
        yield RegexWorker(process, stdout, feeding)
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        stdin.close()
        while await stdout.read(_CHUNK_BYTES):  # its exit may be reported before the end of its pipes,
            pass  # which would stay open
        await process.wait()


class FilterResult(msgspec.Struct, frozen=True):
    """The answer of the filter worker."""

    lines: tuple[str, ...] = ()
    used: int = 0
    """Bytes consumed."""
    problem: str = ""


async def filter_lines(
    spool: Spool,
    start: int,
    pattern: str,
    *,
    max_characters: int,
    final: bool,
    seconds: float = TIMEOUT_SECONDS,
    match_seconds: float = regex_worker.MATCH_SECONDS,
) -> FilterResult:
    """Return matching lines from ``start`` on. Raises ``InvalidInput`` for a bad or too slow pattern.

    ``match_seconds`` bounds the processor time for one piece of the text, ``seconds`` the whole search.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidInput(f"the filter has {len(pattern)} characters; at most {MAX_PATTERN_LENGTH} are allowed")
    given = {"pattern": pattern, "most": max_characters, "final": final, "seconds": match_seconds}
    order = json.dumps(given).encode() + b"\n"
    limit = 64 * max_characters + _CHUNK_BYTES
    async with start_regex_worker(
        "filter", lambda stdin: _feed_text(stdin, order, spool, start), limit=limit
    ) as worker:
        try:
            async with asyncio.timeout(seconds):
                answer = await worker.read_answer(match_seconds)
        except TimeoutError as error:
            taken = error.seconds if isinstance(error, SlowPattern) else seconds
            raise InvalidInput(
                f"the filter {pattern!r} took longer than {taken:g} s and was stopped; nothing was read. Use a "
                "simpler pattern: nested repetitions can take for ever"
            ) from None
    answer = answer or b'{"problem": "the search for it failed"}'
    result = msgspec.json.decode(answer, type=FilterResult)
    if result.problem:
        raise InvalidInput(f"the filter {pattern!r} is not a regular expression: {result.problem}")
    return result


async def _feed_text(stdin: asyncio.StreamWriter, order: bytes, spool: Spool, start: int) -> None:
    end = spool.size
    with contextlib.suppress(ConnectionError):  # the worker has found enough and ended
        write_to_stream(stdin, order)
        while start < end and (piece := await spool.read(start, min(_CHUNK_BYTES, end - start))):
            start += len(piece)
            write_to_stream(stdin, piece)
            await stdin.drain()
        stdin.close()
        await stdin.wait_closed()
