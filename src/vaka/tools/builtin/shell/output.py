"""The output of commands: filtered, cut to a length, and stored where it is long."""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import msgspec

from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Part, Text, replace_surrogates
from vaka.tools.builtin.builtin_tool import output_name_of, store_output
from vaka.tools.builtin.shell import filter_worker

MEMORY_BYTES = 256 * 1024
"""Bytes of one command kept in memory; commands that print no more never touch the disk."""

TAIL_BYTES = 64 * 1024
"""Bytes of the end that are kept in any case."""

DEFAULT_QUOTA = 4 * 1024**3

_SPOOL_DIRECTORIES = (Path("/var/tmp"),)  # noqa: S108  # more likely to be a disk than /tmp; a folder of our own is made in it


class SpoolStore:
    """Where the files of one runtime lie, and how much there may be in them."""

    def __init__(self, folder: str | Path | None = None, *, quota: int = DEFAULT_QUOTA) -> None:
        if quota < 0:
            raise InvalidInput(f"quota {quota!r} must not be below zero")
        self._folder, self._left = folder, quota

    def reserve(self, size: int) -> bool:
        """Claim room; false when there is none left."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def release(self, size: int) -> None:
        """Give room back."""
        self._left += size

    def open_file(self) -> int:
        """Return a new file that has no name any more: it is gone with whoever holds it, however that ends."""
        folder = Path(
            tempfile.mkdtemp(prefix="vaka-", dir=self._folder or _spool_directory())
        )  # 0700, a name nobody guesses
        path = folder / "output"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            path.unlink()
        finally:
            folder.rmdir()
        return descriptor


class Spool:
    """The bytes of one command, valid UTF-8. One writes, anyone reads."""

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
        """Characters that were printed."""
        self.lost_bytes = 0
        """Bytes after them for which there was no room."""
        self.error = ""
        """Why there was none."""

    async def append(self, text: str) -> None:
        """Take what is printed next."""
        data = text.encode()
        self.characters += len(text)
        if not self.error and not self._store.reserve(len(data)):
            self.error = "there is no room for more"
        if self.error or self._closed:
            self._discard(data)
            return
        self._memory += data
        self.size += len(data)
        if len(self._memory) > MEMORY_BYTES:
            async with self._lock:
                await asyncio.to_thread(self._flush)

    async def read(self, start: int, size: int) -> bytes:
        """Return bytes from ``start`` on, at most ``size``, as far as there are any."""
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
        """Return the end of what there was no room for."""
        return bytes(self._tail)

    async def close(self) -> None:
        """Forget everything."""
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
        """Write what is in memory to the file; what has no room there counts as lost."""
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
            self.error = f"it cannot be kept: {error.strerror}"
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


def _spool_directory() -> str | None:
    return next((str(folder) for folder in _SPOOL_DIRECTORIES if os.access(folder, os.W_OK | os.X_OK)), None)


MAX_CHARACTERS = 30_000
"""Characters that are told as they are."""

HEAD_CHARACTERS, TAIL_CHARACTERS = 4_000, 8_000

MAX_STORED_BYTES = 4 * 1024**2
"""Bytes that are put away in one piece: of longer output as many from the beginning and from the end."""


class RenderedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Output as parts of a result."""

    parts: tuple[Part, ...]
    names: tuple[str, ...] = ()
    """Under which names ``Read`` finds what is not shown."""
    partly: bool = False
    """Whether some of it is nowhere but with the command itself."""


async def render_output(context: ToolContext, spool: Spool) -> RenderedOutput:
    """Return all that was printed."""
    if spool.lost_bytes == 0 and spool.characters <= MAX_CHARACTERS:
        text = _decode_text(await spool.read(0, spool.size)).rstrip("\r\n")
        return RenderedOutput(parts=(Text(text=text),) if text else ())
    if spool.lost_bytes == 0 and spool.size <= MAX_STORED_BYTES:
        stored = await store_output(
            context, _decode_text(await spool.read(0, spool.size)), head=HEAD_CHARACTERS, tail=TAIL_CHARACTERS
        )
        return RenderedOutput(parts=(stored,), names=(output_name_of(stored.blob),))
    return await _render_ends(context, spool)


async def _render_ends(context: ToolContext, spool: Spool) -> RenderedOutput:
    """Put away how it begins and how it ends."""
    first = await context.store_text(_decode_text(await spool.read(0, MAX_STORED_BYTES)))
    head, rest = (await context.load_text(first.blob))[:HEAD_CHARACTERS], _format_size(first.size)
    end = _decode_text(
        spool.lost_tail()
        if spool.lost_bytes
        else await spool.read(max(spool.size - MAX_STORED_BYTES, MAX_STORED_BYTES), MAX_STORED_BYTES)
    )
    last = await context.store_text(end)
    tail, size = (await context.load_text(last.blob))[-TAIL_CHARACTERS:], _format_size(last.size)
    names = output_name_of(first.blob), output_name_of(last.blob)
    lost = (
        f"; {_format_size(spool.lost_bytes)} at the end were not kept but for what is here: {spool.error}"
        if spool.lost_bytes
        else ""
    )
    total = _format_size(spool.size + spool.lost_bytes)
    said = f"[… {total} were printed. The first {rest} are {names[0]}, give Read that as file_path …]"
    more = f"[… the last {size} are {names[1]}{lost} …]"
    parts = (
        msgspec.structs.replace(first, preview=f"{head}\n{said}\n"),
        msgspec.structs.replace(last, preview=f"{more}\n{tail}"),
    )
    return RenderedOutput(parts=parts, names=names, partly=True)


def _decode_text(data: bytes) -> str:
    """Return bytes as text; a character that was cut at either end is left out."""
    return replace_surrogates(data.decode("utf-8", "ignore"))


def _format_size(count: int) -> str:
    return (
        f"{count} bytes"
        if count < 10_000
        else f"{count / 1024**2:.1f} MiB"
        if count >= 1024**2
        else f"{count // 1024} KiB"
    )


TIMEOUT_SECONDS = 30.0

MAX_PATTERN_LENGTH = 1_000
"""Characters of a pattern."""

_CHUNK_BYTES = 1024**2

_PROGRAM = (sys.executable, "-I", "-S", filter_worker.__file__)


class FilterResult(msgspec.Struct, frozen=True):
    """What was found."""

    lines: tuple[str, ...] = ()
    used: int = 0
    """Bytes that were looked at."""
    problem: str = ""


async def filter_lines(
    spool: Spool, start: int, pattern: str, *, max_characters: int, final: bool, seconds: float = TIMEOUT_SECONDS
) -> FilterResult:
    """Return lines from ``start`` on. Raises ``InvalidInput`` for a pattern that is wrong or takes too long."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidInput(f"the filter has {len(pattern)} characters; at most {MAX_PATTERN_LENGTH} are taken")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM, stdin=pipe, stdout=pipe, env={}, limit=64 * max_characters + _CHUNK_BYTES, start_new_session=True
    )
    order = json.dumps({"pattern": pattern, "most": max_characters, "final": final}).encode() + b"\n"
    feeding = asyncio.create_task(_feed_worker(process, order, spool, start))
    try:
        async with asyncio.timeout(seconds):
            said = await _read_answer(process)
    except TimeoutError:
        raise InvalidInput(
            f"the filter {pattern!r} took longer than {seconds:g} s and was stopped; nothing was read. Use a simpler "
            "pattern: nested repetitions can take for ever"
        ) from None
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])
        await kill_process(process)
    found = msgspec.json.decode(said, type=FilterResult)
    if found.problem:
        raise InvalidInput(f"the filter {pattern!r} is no regular expression: {found.problem}")
    return found


async def kill_process(process: asyncio.subprocess.Process) -> None:
    """End a process of ours and let go of everything that leads to it.

    Its exit can be known before the end of its pipes is: whoever left then would leave them open.
    """
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    while process.stdout is not None and await process.stdout.read(_CHUNK_BYTES):
        pass
    await process.wait()


async def _read_answer(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    return await process.stdout.readline() or b'{"problem": "the search for it failed"}'


async def _feed_worker(process: asyncio.subprocess.Process, order: bytes, spool: Spool, start: int) -> None:
    assert process.stdin is not None  # noqa: S101  # it is a pipe
    end = spool.size
    with contextlib.suppress(ConnectionError):  # it has found enough
        process.stdin.write(order)
        while start < end and (piece := await spool.read(start, min(_CHUNK_BYTES, end - start))):
            start += len(piece)
            process.stdin.write(piece)
            await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()
